"""A broker that can be sent to and pulled from: real tables, a real store, a real port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bolide.broker.pulling.access import PullAccess
from bolide.broker.pulling.filter_budget import FilterBudget
from bolide.broker.pulling.longpoll import ParkedPulls
from bolide.broker.pulling.pull import Pulls
from bolide.broker.state import BrokerState
from bolide.broker.tables.filters import Filters
from bolide.clock import Clock, SystemClock
from bolide.filter.tags import parse_tags
from bolide.kernel import java_hash
from bolide.protocol.bodies import (
    ConsumeFrom,
    ConsumerMember,
    ConsumeType,
    Heartbeat,
    MessageModel,
    Subscription,
    TopicConfig,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers import PullMessageAnswer, PullMessageRequest
from bolide.protocol.records import decode_records
from bolide.remoting.handlers import Handlers
from bolide.remoting.loop_turn import answer_each
from bolide.remoting.owner import Answered, Owner, Read, Reply, Request
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Session
from bolide.store.store import Store
from bolide.testing.loop import VirtualClock, VirtualLoop
from tests.broker.open_tables import tables
from tests.remoting.ends import Peer
from tests.store.given import draft

TOPIC, GROUP = "T", "G"
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "64",
    "maxIndexNum": "4096",
    "diskMaxUsedSpaceRatio": "100",
    "diskSpaceCleanForciblyRatio": "100",
    "diskSpaceWarningLevelRatio": "100",
}


@dataclass
class Rig(Owner):
    """The rooms a pull goes through. It is the owner of its sessions too, with the fast path or without."""

    is_fast: ClassVar[bool] = True
    is_master_here: ClassVar[bool] = True

    state: BrokerState
    parked: ParkedPulls
    pulls: Pulls
    filters: Filters
    server: Server | None = None

    def __post_init__(self) -> None:
        state = self.state
        self.settings, self.store, self.stats = state.settings, state.store, state.stats
        self.topics, self.groups, self.offsets, self.members = state.topics, state.groups, state.offsets, state.members
        self.handlers = Handlers(self.pulls.handlers())
        self.sessions: list[Session] = []
        self.fast_count = 0

    @property
    def port(self) -> int:
        assert self.server is not None
        return self.server.port

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        return answer_each(reads, self._answer) if Rig.is_fast else super().handle_turn(reads)

    def _answer(self, read: Read) -> Answered:
        replies, left = self.pulls.answer_read(read)
        self.fast_count += (len(read.bounds) - len(left)) // 2
        return replies, left

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        if request.session not in self.sessions:
            self.sessions.append(request.session)
        if request.command.code == RequestCode.HEART_BEAT:
            self.members.heard(request.session, Heartbeat.decode(request.command.body), 0, 0)
            return request.command.answer(0)
        return self.handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self.parked.left(session)
        self.members.disconnected(session)

    def put(self, *bodies: bytes, topic: str = TOPIC, queue_id: int = 0, **properties: str) -> None:
        self.store.append([draft(body, topic, queue_id, 0, **properties) for body in bodies])


def topic_of(name: str = TOPIC, queue_count: int = 4, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_count, write_queue_nums=queue_count, perm=perm)


@asynccontextmanager
async def pulling(root: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Rig]:
    """A rig that listens, with topic T of four queues. In virtual time it lives in it: a search takes none."""
    clock = clock or (VirtualClock() if isinstance(asyncio.get_running_loop(), VirtualLoop) else SystemClock())
    async with tables(root, clock, **SMALL | settings) as kept:
        config = kept.settings.now
        with Store.open(config.store, clock) as store:
            state, parked = kept.state(store), ParkedPulls(kept.settings, clock)
            filters = Filters(kept.settings, kept.table_writer, clock)
            state.members.listen(filters.heard, filters.left)
            pulls = Pulls(state, PullAccess(state, filters), parked, FilterBudget(clock), lambda: rig.is_master_here)
            store.listen(parked.on_arrival)
            kept.topics.update(topic_of())
            rig = Rig(state, parked, pulls, filters)
            async with listen(config.listen, rig, clock) as server:
                rig.server = server
                yield rig


def pull_of(offset: int = 0, *, opaque: int = 1, codec: int = 0, code: int = 11, **changes: Any) -> Command:
    """A pull of 32 from queue 0 of T by G that says what it wants; `changes` are fields of its header."""
    fields: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": offset,
        "message_count_max": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_ms": 15_000,
        "subscription": "*",
        "subscription_version": 0,
        "expression_type": "TAG",
    }
    header = PullMessageRequest(**fields | changes)
    return Command(code, opaque=opaque, codec=codec, fields=header.encode())


def heartbeat_of(
    expression: str = "*",
    *,
    version: int = 0,
    topic: str = TOPIC,
    group: str = GROUP,
    expression_type: str = "TAG",
    model: MessageModel = MessageModel.CLUSTERING,
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
) -> Command:
    """What a consumer says of itself before it pulls."""
    tags = parse_tags(expression) if expression_type == "TAG" else []
    subscription = Subscription(
        topic=topic,
        sub_string=expression,
        sub_version=version,
        tags_set=tags or [],
        code_set=[java_hash(tag) for tag in tags or []],
        expression_type=expression_type,
    )
    member = ConsumerMember(
        group_name=group,
        consume_type=consume_type,
        message_model=model,
        consume_from_where=ConsumeFrom.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[subscription],
    )
    body = Heartbeat(client_id="c", consumer_data_set=[member]).encode()
    return Command(RequestCode.HEART_BEAT, opaque=99, body=body)


def bodies_of(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def place_of(answer: Command) -> PullMessageAnswer:
    return PullMessageAnswer.decode(answer.fields)


async def connected(rig: Rig, **heartbeat: Any) -> Peer:
    """A consumer that has said its heartbeat."""
    peer = await Peer.connect(rig.port)
    assert (await peer.ask(heartbeat_of(**heartbeat))).code == 0
    return peer


both_paths = pytest.fixture(autouse=True, params=[True, False], ids=["hot", "plain"])


def choose_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an autouse fixture (`both_paths(choose_path)`): every test of a module runs on both paths."""
    monkeypatch.setattr(Rig, "is_fast", request.param)
