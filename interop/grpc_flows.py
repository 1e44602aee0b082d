"""What the programs in `grpc/` need of a cluster, and what they say of it: one program for each language.

Each says of every claim whether it held.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bolide.admin.admin import Admin
from bolide.protocol.bodies.groups import GroupConfig
from interop.clients import JavaClient
from interop.process import running

LIMIT_S = 240.0
SETTINGS: dict[str, object] = {
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 5000,  # a check that overtakes a rollback on a slow machine commits what was to go
}
TOPICS = {
    **dict.fromkeys(("Normal", "Filter", "Push", "Dead", "Shared", "Large", "Load", "Cross"), "NORMAL"),
    "Fifo": "FIFO",
    "Delay": "DELAY",
    "Transaction": "TRANSACTION",
    "Orphan": "TRANSACTION",
}


def prepare(name_servers: str) -> None:
    """A topic of each type and the groups that are not as others, for each language."""
    asyncio.run(_prepare(name_servers))


async def _prepare(name_servers: str) -> None:
    async with Admin(namesrv=name_servers) as admin:
        for letter in "JGPN":
            for name, kind in TOPICS.items():
                await admin.create_topic(letter + name, 4, message_type=kind)
            await admin.set_group(GroupConfig(group_name=f"{letter.lower()}-fifo", consume_message_orderly=True))
            await admin.set_group(GroupConfig(group_name=f"{letter.lower()}-dead", retry_max_times=1))


@contextmanager
def program(directory: Path, name: str, *command: str) -> Iterator[JavaClient]:
    with running(name, command, directory, {"HOME": str(directory)}) as started:
        yield JavaClient(started)


def claims(directory: Path, *command: str) -> dict[str, str]:
    with program(directory, "flows", *command) as client:
        client.await_events("done", 1, LIMIT_S)
        return {event["name"]: event["found"] for event in client.events("claim")}


def held(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "ok")


CLAIMS = {
    "python": ("simple", "order, delay and tags", "transactions", "push with a failure", "refusals"),
    "java": (
        *("simple", "filters", "push with a failure", "order per message group with failures", "delay and recall"),
        *("transactions", "orphaned transaction", "dead letter", "two members share", "refusals", "large"),
    ),
    "go": ("simple", "order, delay and recall", "filters", "transactions", "refusals"),
    "node": ("simple", "order, delay and tags", "transactions", "refusals"),
}
