"""`bolide broker list|status|settings|set|drain|restore|clean|promote`: what an operator does with brokers that run."""

from enum import StrEnum
from itertools import dropwhile
from typing import TYPE_CHECKING, Annotated

from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.completion import broker_names
from bolide.cli.exits import NOT_THERE, fail, pairs_of, plain_errors
from bolide.cli.output import Format, Namesrv, Output, ask, look, noting_what_is_missing, report, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin

app = Commands(
    "Brokers that run: list, status, settings, set, drain, restore, clean, promote. Alone, `bolide broker` runs one.",
    around=noting_what_is_missing,
)
Broker = Annotated[str, Argument(help="its name (a slave is NAME:1), or its address", complete=broker_names)]
Name = Annotated[str, Argument(help="the broker's name", complete=broker_names)]
_OF_A_LIST = {
    "version": "brokerVersionDesc",
    "uptime": "runtime",
    "disk_used": "commitLogDiskRatio",
    "put_p99_ms": "putLatency99",
    "in_per_s": "putTps",
    "out_per_s": "getTransferredTps",
}


@app.add("list", watched=True)
def list_(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All brokers, with disk, latency and uptime."""

    async def asked(admin: "Admin") -> list[dict[str, str | float | None]]:
        from bolide.errors import NoAnswer

        rows: list[dict[str, str | float | None]] = []
        for name, address in (await admin.broker_addresses()).items():
            try:
                told = await admin.broker_status(address)
            except NoAnswer:
                told = {"brokerVersionDesc": "does not answer"}
            rows.append({"broker": name, "address": address, **_cells(told)})
        return rows

    show(look(namesrv, asked), output, empty="no broker is registered here; `bolide broker -n ...` starts one")


def _cells(told: dict[str, str]) -> dict[str, str | float | None]:
    return {column: _short(told, key) for column, key in _OF_A_LIST.items()}


def _short(told: dict[str, str], key: str) -> str | float | None:
    text = told.get(key, told.get(key.replace("Transferred", "Transfered"), ""))
    if key.endswith("Tps"):
        return round(float(text.split()[0]), 1) if text else None
    if key.endswith("Ratio"):
        return f"{float(text):.0%}" if text else ""
    if key == "runtime":
        *larger, seconds = text.strip("[] ").split(", ")
        return ", ".join((*dropwhile(lambda part: part.startswith("0 "), larger), seconds))
    return text.strip("[] ")


@app.add(watched=True)
def status(broker: Broker, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All that a broker tells of itself."""

    async def asked(admin: "Admin") -> dict[str, str]:
        (address,) = (await admin.broker_addresses(broker)).values()
        return await admin.broker_status(address)

    told = ask(namesrv, asked)
    show([{"what": key, "value": told[key]} for key in sorted(told)], output, empty="")


@app.add()
def settings(
    broker: Broker,
    words: Annotated[list[str] | None, Argument(metavar="KEY...", help="only these; without any, all")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The settings of a running broker, by RocketMQ's keys."""

    async def asked(admin: "Admin") -> dict[str, str]:
        (address,) = (await admin.broker_addresses(broker)).values()
        return await admin.broker_settings(address)

    told = ask(namesrv, asked)
    rows = [{"key": key, "value": told[key]} for key in sorted(told) if not words or key in words]
    missing = sorted(set(words or ()) - told.keys())
    if missing:
        from bolide.client.careless import nearest

        fail(f"{broker} has no setting {', '.join(missing)}{nearest(missing[0], told)}", NOT_THERE)
    show(rows, output, empty="")


@app.add("set")
def set_(
    broker: Broker,
    assignments: Annotated[list[str], Argument(metavar="KEY=VALUE...", help="what to change")],
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Change settings of a running broker; they hold over restarts."""
    with plain_errors():
        changes = pairs_of("KEY=VALUE", assignments)

    async def change(admin: "Admin") -> str:
        (address,) = (await admin.broker_addresses(broker)).values()
        await admin.set_broker(address, changes)
        return address

    address = ask(namesrv, change)
    sentence = f"{broker} ({address}): changed {', '.join(changes)}"
    report(sentence, {"broker": broker, "address": address, "changed": changes}, output)


@app.add()
def drain(name: Name, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Let no more messages be sent to a broker.

    What it holds is still consumed; `restore` opens it again. For a broker that is to be stopped.
    """

    async def change(admin: "Admin") -> dict[str, int]:
        await admin.broker_addresses(name)
        return await admin.drain_broker(name)

    told = ask(namesrv, change)
    report(
        f"{name}: no more is sent to it ({_counts(told)}); `bolide broker restore {name}` opens it again",
        {"broker": name, "drained": True, "told": told},
        output,
    )


@app.add()
def restore(name: Name, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Let messages be sent to a broker again."""

    async def change(admin: "Admin") -> dict[str, int]:
        await admin.broker_addresses(name)
        return await admin.restore_broker(name)

    told = ask(namesrv, change)
    sentence = f"{name}: messages are sent to it again ({_counts(told)})"
    report(sentence, {"broker": name, "drained": False, "told": told}, output)


def _counts(told: dict[str, int]) -> str:
    return ", ".join(f"{count} topics at {address}" for address, count in told.items())


class Leftover(StrEnum):
    """What a broker lets go of by itself, in time."""

    QUEUES = "queues"
    TOPICS = "topics"
    LOG = "log"


@app.add()
def clean(
    what: Annotated[Leftover, Argument(help="queue files and log files past their time, or queues of no topic")],
    broker: Broker,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a broker delete now what it would let go of in time."""

    async def change(admin: "Admin") -> str:
        (address,) = (await admin.broker_addresses(broker)).values()
        await admin.clean_leftovers(address, what.value)
        return address

    address = ask(namesrv, change)
    sentence = f"{broker} ({address}) deletes {_CLEANED[what]}"
    report(sentence, {"broker": broker, "address": address, "cleaned": what.value}, output)


_CLEANED = {
    Leftover.QUEUES: "queue files that point at nothing any more",
    Leftover.TOPICS: "the queues of topics that it does not have",
    Leftover.LOG: "log files that are past their time",
}


@app.add()
def promote(
    name: Annotated[str, Argument(help="the brokerName that all replicas of a group have")],
    replica: Annotated[
        int | None, Option("--replica", help="which one is to lead (default: one in sync that does not)")
    ] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Hand the lead of a group to another replica, on purpose: nothing is lost, and clients go on."""
    elected = ask(namesrv, lambda admin: admin.promote(name, replica))
    number, address, epoch = elected.master_broker_id, elected.master_address, elected.master_epoch
    sentence = f"{name}: replica {number} at {address} leads (epoch {epoch})"
    report(sentence, {"name": name, "replica": number, "address": address, "epoch": epoch}, output)


def main(arguments: list[str]) -> None:
    app(arguments, prog_name="bolide broker")
