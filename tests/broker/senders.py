"""A broker's sending side without a socket: real tables, a real store, and a peer that only has an address."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolide.broker.intake import Intake
from bolide.broker.members.locks import Locks
from bolide.broker.sending.send import Sends
from bolide.broker.sending.send_back import SendBacks
from bolide.broker.state import BrokerState
from bolide.broker.stats import Stats
from bolide.broker.tables.open_topics import OpenTopics
from bolide.clock import Clock, SystemClock
from bolide.errors import Refusal
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import QueueKey
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.properties import join_properties
from bolide.remoting.handlers import Handlers
from bolide.remoting.owner import Reply, Request, failure
from bolide.store.disk import Disk
from bolide.store.open import open_store
from bolide.store.record import decode
from bolide.store.store import Store
from tests.broker.open_tables import Tables, intake_of, tables

STORE_HOST = Host("10.0.0.5", 10911).packed()
SMALL = {
    "mappedFileSizeCommitLog": "65536",
    "maxHashSlotNum": "64",
    "maxIndexNum": "4096",
    "maxMessageSize": "4096",
    "diskMaxUsedSpaceRatio": "100",
    "diskSpaceCleanForciblyRatio": "100",
    "diskSpaceWarningLevelRatio": "100",
}
# Synchronous flush on a real disk, which a busy machine keeps for longer than a broker would wait.
DURABLE: dict[str, Any] = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "60000"}


@dataclass
class Peer:
    """As much of a session as sending asks for."""

    peer: str = "192.168.1.9:51234"
    held_count: int = 0
    answers: list[Reply] = field(default_factory=list)
    has_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, count: int) -> None:
        self.held_count += count

    def release(self, count: int) -> None:
        self.held_count -= count

    def answer(self, request: Request, serve: Callable[[], Reply]) -> None:
        try:
            self.answers.append(serve())
        except Refusal as refusal:
            self.answers.append(failure(request, refusal))
        self.has_answer.set()


@dataclass
class Sending:
    tables: Tables
    state: BrokerState
    intake: Intake
    open_topics: OpenTopics
    store: Store
    stats: Stats
    sends: Sends
    send_backs: SendBacks
    locks: Locks
    clock: Clock

    def ask(self, command: Command, peer: str = Peer.peer, waited_s: float = 0.0, session: Any = None) -> Any:
        by: Any = session or Peer(peer)
        request = Request(command, by, self.clock.monotonic_s() - waited_s)
        return Handlers(self.sends.handlers() | self.send_backs.handlers()).serve(request)

    def answer(self, command: Command, **how: Any) -> Command:
        """The answer of a send that needs no wait."""
        answer = self.ask(command, **how)
        assert isinstance(answer, Command), "the answer waits for something"
        return answer

    async def sent(self, command: Command, **how: Any) -> Command:
        session = Peer()
        reply = await answered(session, self.ask(command, session=session, **how))
        assert session.held_count == 0
        return reply

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        key = QueueKey(topic, queue_id)
        queue = self.store.queue(key)
        if queue is None:
            return []
        views = self.store.read(key, 0, 1000).views if queue.next_offset else []
        return [decode(view) for view in views]


async def answered(session: Peer, reply: Reply | Awaitable[Reply]) -> Command:
    """What a request is told in the end, whichever way."""
    reply = await reply if isinstance(reply, Awaitable) else reply
    if reply is None:
        await session.has_answer.wait()
        await asyncio.sleep(0)
        (reply,) = session.answers
    assert reply is not None
    return reply


@asynccontextmanager
async def sending(
    root: Path, *, clock: Clock | None = None, disk: Disk | None = None, host: bytes = STORE_HOST, **settings: str
) -> AsyncIterator[Sending]:
    clock = clock or SystemClock()
    async with (
        tables(root, clock, **SMALL | settings) as kept,
        open_store(kept.settings.now.store, clock, host, disk) as store,
    ):
        state = kept.state(store)
        stats = state.stats
        intake, locks = intake_of(state), Locks(clock)
        open_topics = OpenTopics(kept.topics, kept.settings, kept.table_writer)
        sends = Sends(state, intake, open_topics, locks)
        back = SendBacks(state, intake, open_topics)
        yield Sending(kept, state, intake, open_topics, store, stats, sends, back, locks, clock)


def header(topic: str = "Orders", **changes: Any) -> SendMessageRequest:
    fields: dict[str, Any] = {
        "producer_group": "pg",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_count": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_ms": 1_700_000_000_000,
        "flag": 7,
        "properties": join_properties({"UNIQ_KEY": "7F0000010001", "TAGS": "TagA"}),
    }
    return SendMessageRequest(**fields | changes)


def message(body: bytes = b"hello", *, code: int = 310, opaque: int = 1, **changes: Any) -> Command:
    flag, codec = changes.pop("oneway", 0) * 2, changes.pop("codec", 0)
    fields = header(**changes).encode(short=code != 10)
    return Command(code, opaque=opaque, flag=flag, codec=codec, fields=fields, body=body, version=453)
