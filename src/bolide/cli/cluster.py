"""`bolide cluster`: the brokers there are, and how replicas keep up."""

from typing import TYPE_CHECKING

from bolide.cli.output import Format, Namesrv, Output, look, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin, BrokerRow
    from bolide.admin.controllers import ReplicaRow


def cluster(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All brokers: where they are, how busy, and who leads."""
    from bolide.admin.rows import broker_cells

    rows, replicas = look(namesrv, _asked)
    table = [broker_cells(row, replicas) for row in rows]
    show(table, output, empty="no broker is registered here; `bolide broker -n ...` starts one")


async def _asked(admin: "Admin") -> "tuple[list[BrokerRow], dict[str, ReplicaRow]]":
    return await admin.brokers(), await admin.replicas()
