"""`bolide controller status|leader|elect|clean|config`: what an operator asks of controllers that run."""

from typing import TYPE_CHECKING, Annotated

import click

from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.connection import connection_options
from bolide.cli.exits import pairs_of
from bolide.cli.output import Format, Output, ask, noting_what_is_missing, show

if TYPE_CHECKING:
    from bolide.protocol.bodies.controller import ReplicaGroupState

app = Commands(
    "Controllers: status, leader, elect, clean, config. Without a word behind it, `bolide controller` runs one.",
    around=noting_what_is_missing,
)
Address = Annotated[
    str,
    Option(
        "-a",
        "--address",
        envvar="BOLIDE_CONTROLLER",
        help="controllers, host:port;host:port",
        brings=connection_options,
    ),
]
Name = Annotated[str, Argument(help="the broker name")]
DEFAULT = "127.0.0.1:9877"


@app.add()
def status(
    names: Annotated[list[str] | None, Argument(help="broker names; without any, all")] = None,
    address: Address = DEFAULT,
    output: Format = Output.TABLE,
) -> None:
    """Who is master of each broker name, who is in sync with it, and who is alive."""
    found = ask(None, lambda admin: admin.sync_state(address, names or []))
    rows = [row for name in sorted(found) for row in _rows(name, found[name])]
    show(rows, output, empty=f"the controller at {address} knows no such broker name; brokers register themselves")


def _rows(name: str, state: "ReplicaGroupState") -> list[dict[str, object]]:
    replicas = [*state.in_sync_replicas, *state.not_in_sync_replicas]
    return [
        {
            "broker": name,
            "id": replica.broker_id,
            "address": replica.broker_address,
            "role": "master" if replica.broker_id == state.master_broker_id else "slave",
            "in_sync": "yes" if replica in state.in_sync_replicas else "no",
            "alive": "yes" if replica.alive else "no",
            "epoch": state.master_epoch,
            "set_epoch": state.sync_state_set_epoch,
        }
        for replica in sorted(replicas, key=lambda replica: replica.broker_id)
    ]


@app.add()
def leader(address: Address = DEFAULT, output: Format = Output.TABLE) -> None:
    """Which controller leads."""
    found = ask(None, lambda admin: admin.controller_metadata(address))
    peers = ", ".join(filter(None, (found.peers or "").split(";")))
    row = {"group": found.group, "leader": found.leader_id, "address": found.leader_address, "peers": peers}
    show([row], output, empty="")


@app.add()
def elect(
    name: Name,
    broker_id: Annotated[int, Argument(help="the id of the broker that becomes master")],
    address: Address = DEFAULT,
) -> None:
    """Make a broker master that is in sync and alive."""
    elected = ask(None, lambda admin: admin.elect_master(address, name, broker_id))
    where = f"{elected.master_broker_id} ({elected.master_address})"
    click.echo(f"{name}: broker {where} is master of epoch {elected.master_epoch}")


@app.add()
def clean(
    name: Name,
    broker_ids: Annotated[list[int] | None, Argument(help="ids to forget; without any, the whole name")] = None,
    living: Annotated[bool, Option("--living", help="those that are alive too")] = False,
    address: Address = DEFAULT,
) -> None:
    """Forget brokers that will not return."""
    ask(None, lambda admin: admin.clean_broker(address, name, broker_ids or [], living=living))
    click.echo(f"{name}: forgot {', '.join(map(str, broker_ids)) if broker_ids else 'everything'}")


@app.add()
def config(
    assignments: Annotated[list[str] | None, Argument(help="KEY=VALUE to change; without any, show all")] = None,
    address: Address = DEFAULT,
    output: Format = Output.TABLE,
) -> None:
    """The settings of one controller, or a change of them that holds over restarts."""
    if not assignments:
        found = ask(None, lambda admin: admin.controller_config(address))
        show([{"key": key, "value": found[key]} for key in sorted(found)], output, empty="")
        return
    changes = pairs_of("KEY=VALUE", assignments)
    ask(None, lambda admin: admin.set_controller_config(address, changes))
    click.echo(f"{address}: changed {', '.join(changes)}")


def main(arguments: list[str]) -> None:
    app(arguments, prog_name="bolide controller")
