"""A port with the broker's rooms for clients behind it, and clients that come to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolide.broker.admin.forwarding import Forwarding
from bolide.broker.admin.offsets import GroupOffsets
from bolide.broker.admin.progress import Progress
from bolide.broker.admin.resets import Resets
from bolide.broker.members.locks import Locks
from bolide.broker.members.members import Members
from bolide.broker.members.requests import Clients
from bolide.broker.tables.filters import Filters
from bolide.broker.tables.offsets import Offsets
from bolide.clock import Clock, SystemClock
from bolide.protocol.bodies import (
    ConsumeFrom,
    ConsumerMember,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerMember,
    Subscription,
    TopicConfig,
)
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.handlers import Handlers
from bolide.remoting.owner import Owner
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session
from bolide.store.store import Store
from tests.broker.open_tables import Tables, tables
from tests.store.given import HOST, draft, small

TIMEOUT_S = 20


@dataclass
class Guest:
    """A client; remembers what the broker tells it, and answers what it is asked with `answers`."""

    client: Client
    address: str
    told: list[Command] = field(default_factory=list)
    answers: dict[int, Callable[[Request], Reply | Awaitable[Reply]]] = field(default_factory=dict)

    async def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> Command:
        return await self.client.request(self.address, Command(code, fields=fields or {}, body=body, **more), TIMEOUT_S)

    async def beat(self, client_id: str, *members: ConsumerMember, producers: str = "", **more: Any) -> Command:
        told = [ProducerMember(group_name=name) for name in producers.split()]
        heartbeat = Heartbeat(client_id=client_id, consumer_data_set=list(members), producer_data_set=told, **more)
        return await self.ask(34, body=heartbeat.encode())

    def hear(self, request: Request) -> Reply | Awaitable[Reply]:
        self.told.append(request.command)
        answer = self.answers.get(request.command.code)
        return answer(request) if answer is not None else None

    def notices(self) -> list[str]:
        """The groups it was told of since it last looked."""
        groups = [command.fields["consumerGroup"] for command in self.told if command.code == 40]
        self.told = [command for command in self.told if command.code != 40]
        return groups


@dataclass
class Meeting:
    """Everything behind the port."""

    tables: Tables
    clock: Clock
    store: Store
    offsets: Offsets
    members: Members
    locks: Locks
    server: Server

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def guest(self) -> AsyncIterator[Guest]:
        guest = Guest(None, self.address)  # type: ignore[arg-type]
        handlers = dict.fromkeys((40, 220, 221, 307, 309), guest.hear)
        async with Client(ConnectConfig(idle_max_s=10_000), self.clock, handlers=handlers) as client:
            guest.client = client
            yield guest

    def topic(self, name: str, queue_count: int = 4, **more: Any) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queue_count, write_queue_nums=queue_count, perm=6, **more)
        self.tables.topics.update(config)

    def store_messages(self, topic: str, queue_id: int, count: int) -> None:
        self.store.append([draft(b"body", topic, queue_id) for _ in range(count)])

    async def settle(self) -> None:
        """Let what is on its way arrive: notices leave after a pause that no test may depend on."""
        await asyncio.sleep(0.2)  # virtual


class _Owner(Owner):
    def __init__(self, members: Members, handlers: Handlers) -> None:
        self._members = members
        self._handlers = handlers

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self._members.disconnected(session)


@asynccontextmanager
async def meeting(root: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Meeting]:
    """The tables, a store with small files, and the processors on a free port, with their timers."""
    clock = clock or SystemClock()
    async with tables(root, clock, **settings) as kept:
        live = kept.settings
        with Store.open(small(root), clock, HOST) as store:
            state = kept.state(store)
            offsets, members = state.offsets, state.members
            locks = Locks(clock, live.now.lock_life_ms / 1000, live.now.directory, kept.table_writer)
            filters = Filters(live, kept.table_writer, clock)
            handlers = Handlers(
                Clients(state, locks, filters).handlers(),
                Forwarding(state).handlers(),
                GroupOffsets(state).handlers(),
                Progress(state).handlers(),
                Resets(state).handlers(),
            )
            async with asyncio.TaskGroup() as background:
                tasks = [
                    background.create_task(members.scan_forever(), name="test.scan"),
                    background.create_task(members.notices.tell_forever(), name="test.notices"),
                    background.create_task(offsets.save_forever(lambda: 5.0), name="test.offsets"),
                ]
                async with listen(live.now.listen, _Owner(members, handlers), clock) as server:
                    yield Meeting(kept, clock, store, offsets, members, locks, server)
                await offsets.stop()
                for task in tasks:
                    task.cancel()


def consumer(group: str, *topics: str, version: int = 1, **more: Any) -> ConsumerMember:
    """A push consumer of a clustering group, as the Java client tells of it."""
    told: dict[str, Any] = {
        "consume_from_where": ConsumeFrom.CONSUME_FROM_LAST_OFFSET,
        "consume_type": ConsumeType.CONSUME_PASSIVELY,
        "message_model": MessageModel.CLUSTERING,
    }
    wanted = [Subscription(topic=topic, sub_string="*", sub_version=version) for topic in topics]
    return ConsumerMember(group_name=group, subscription_data_set=wanted, **told | more)


def queue_fields(group: str, topic: str, queue_id: int, **more: object) -> dict[str, str]:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, **more}
    return {name: str(value) for name, value in fields.items()}
