"""`bolide namesrv status|settings|set|kv`: what an operator asks of name servers that run."""

from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.exits import PARTIAL_ANSWER, UNREACHABLE, fail, pairs_of, plain_errors
from bolide.cli.output import Format, Namesrv, Output, ask, noting_what_is_missing, report, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin

app = Commands(
    "Name servers that run: status, settings, set, kv. Without a word behind it, `bolide namesrv` runs one.",
    around=noting_what_is_missing,
)


@app.add(watched=True)
def status(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Each name server: does it answer, and how many brokers and topics does it know."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        from bolide.admin.admin import Admin
        from bolide.errors import NoAnswer

        rows: list[dict[str, object]] = []
        for address in admin.namesrv_addresses():
            row: dict[str, object] = {"address": address}
            try:
                async with Admin(address) as alone:
                    known = await alone.clusters()
                    brokers = sum(len(data.broker_addrs) for data in known.broker_addr_table.values())
                    topics = len(await alone.topics(with_system=True))
                    row |= {"answers": "yes", "brokers": brokers, "topics": topics}
            except NoAnswer as problem:
                row |= {"answers": str(problem), "brokers": None, "topics": None}
            rows.append(row)
        return rows

    rows = ask(namesrv, asked)
    show(rows, output, empty="")
    silent = [row for row in rows if row["answers"] != "yes"]
    if silent:
        raise Exit(PARTIAL_ANSWER if len(silent) < len(rows) else UNREACHABLE)


@app.add()
def settings(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """The settings of every name server, by RocketMQ's keys."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        return [
            {"address": address, "key": key, "value": value}
            for address in admin.namesrv_addresses()
            for key, value in sorted((await admin.namesrv_settings(address)).items())
        ]

    show(ask(namesrv, asked), output, empty="")


@app.add("set")
def set_(
    assignments: Annotated[list[str], Argument(metavar="KEY=VALUE...", help="what to change")],
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Change settings of every name server; they hold over restarts."""
    with plain_errors():
        changes = pairs_of("KEY=VALUE", assignments)
    addresses = ask(namesrv, lambda admin: admin.set_namesrv(changes))
    sentence = f"{', '.join(addresses)}: changed {', '.join(changes)}"
    report(sentence, {"addresses": addresses, "changed": changes}, output)


@app.add()
def kv(
    namespace: Annotated[str, Argument(help="the namespace, as ORDER_TOPIC_CONFIG")],
    assignments: Annotated[list[str] | None, Argument(metavar="KEY=VALUE...", help="what to keep")] = None,
    removed: Annotated[list[str] | None, Option("--delete", metavar="KEY", help="forget this; may be repeated")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Values that name servers keep: show, put and delete them."""
    with plain_errors():
        changes = pairs_of("KEY=VALUE", assignments)
    if changes.keys() & set(removed or ()):
        fail("a key is put or deleted, not both")

    async def change(admin: "Admin") -> dict[str, str]:
        for key, value in changes.items():
            await admin.put_kv(namespace, key, value)
        for key in removed or ():
            await admin.delete_kv(namespace, key)
        return await admin.kv(namespace)

    rows = [{"key": key, "value": value} for key, value in sorted(ask(namesrv, change).items())]
    show(rows, output, empty=f"nothing is kept in {namespace}")


def main(arguments: list[str]) -> None:
    app(arguments, prog_name="bolide namesrv")
