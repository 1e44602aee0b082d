"""`bolide cluster`: the brokers there are, and how replicas keep up."""

from typing import TYPE_CHECKING, Annotated

from bolide.cli.commands import Option
from bolide.cli.output import Format, Namesrv, Output, look, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin, BrokerRow
    from bolide.admin.controllers import ReplicaRow


def cluster(
    has_more: Annotated[
        bool, Option("--more", help="also what waits, disk, age of the oldest message, and totals by day")
    ] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """All brokers: where they are, how busy, and who leads."""
    from bolide.admin.rows import broker_cells, broker_more_cells
    from bolide.clock import SystemClock

    rows, replicas = look(namesrv, _asked)
    now_ms = SystemClock().now_ms()
    table = [broker_cells(row, replicas) | (broker_more_cells(told, now_ms) if has_more else {}) for row, told in rows]
    show(table, output, empty="no broker is registered here; `bolide broker -n ...` starts one")


async def _asked(admin: "Admin") -> "tuple[list[tuple[BrokerRow, dict[str, str]]], dict[str, ReplicaRow]]":
    return await admin.broker_statuses(), await admin.replicas()
