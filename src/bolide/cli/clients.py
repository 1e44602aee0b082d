"""`bolide clients`: who is connected to the brokers."""

from typing import TYPE_CHECKING, Annotated

from bolide.cli.commands import Option
from bolide.cli.completion import group_names
from bolide.cli.output import Format, Namesrv, Output, look, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin


def clients(
    group: Annotated[str | None, Option("-g", "--group", help="only of this group", complete=group_names)] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Who is connected: producers and consumers, by group."""
    from bolide.admin.rows import consumer_cells, producer_cells

    async def asked(admin: "Admin") -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        for name, members in (await admin.producers()).items():
            rows += [producer_cells(name, each) for each in members if group in (None, name)]
        for name in await admin.groups():
            found = await admin.members(name) if group in (None, name) else None
            rows += [consumer_cells(name, each) for each in (found.connection_set if found is not None else ())]
        return rows

    show(look(namesrv, asked), output, empty="nobody is connected now")
