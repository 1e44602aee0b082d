"""A broker that can be popped from: real tables, a real store, a real port; and clients as Java's are."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bolide.broker.pop.pop import Pop
from bolide.broker.pop.queues import TopicQueues
from bolide.broker.pop.reading import LaneReader
from bolide.broker.pulling.filter_budget import FilterBudget
from bolide.broker.tables.filters import Filters
from bolide.clock import Clock
from bolide.model.message import StoredMessage
from bolide.protocol.bodies import Heartbeat
from bolide.protocol.bodies.pop import BatchAck, BatchAcks
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
    PopMessageRequest,
)
from bolide.protocol.headers.poptext import PopHandle, PoppedQueue, TopicMark, build_handle, parse_handle, parse_popped
from bolide.protocol.popped import marked_topic
from bolide.protocol.records import decode_records
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.handlers import Handlers
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner, Reply, Request
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Session
from bolide.store.store import Store
from tests.broker.open_tables import Tables, intake_of, tables
from tests.broker.pullers import GROUP, SMALL, TOPIC, topic_of
from tests.remoting.ends import Peer
from tests.store.given import draft

BROKER = "broker-a"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_C1"
RETRY_TOPIC = f"%RETRY%{GROUP}_{TOPIC}"


class Rig(Owner):
    """The rooms a pop goes through. It is the owner of its sessions too."""

    def __init__(self, kept: Tables, store: Store, clock: Clock) -> None:
        self.kept = kept
        self.state = state = kept.state(store)
        self.settings, self.store, self.stats = state.settings, store, state.stats
        self.offsets, self.members = state.offsets, state.members
        self.clock = clock
        self.client = Client(ConnectConfig(), clock)
        filters = Filters(kept.settings, kept.table_writer, clock)
        reader = LaneReader(state, filters, FilterBudget(clock), chance=random.Random(7))
        self.intake = intake_of(state)
        self.room = Pop(state, self.intake, kept.table_writer, reader, TopicQueues(state, self.client))
        self.handlers = Handlers(self.room.handlers())
        self.sessions: set[Session] = set()
        self.is_killed = False
        self.server: Server | None = None
        store.listen(self.room.on_arrival)

    @property
    def port(self) -> int:
        assert self.server is not None
        return self.server.port

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        self.sessions.add(request.session)
        if request.command.code == RequestCode.HEART_BEAT:
            self.members.heard(request.session, Heartbeat.decode(request.command.body), 0, 0)
            return request.command.answer(0)
        return self.handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self.sessions.discard(session)
        self.room.left(session)
        self.members.disconnected(session)

    def put(self, *bodies: bytes, topic: str = TOPIC, queue_id: int = 0, **properties: str) -> None:
        self.store.append([draft(body, topic, queue_id, 0, **properties) for body in bodies])

    def records(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """Everything a queue holds."""
        queue = self.store.dispatch.queues.get((topic, queue_id))
        if queue is None:
            return []
        places = [queue.entry(offset)[0] for offset in range(queue.next_offset)]
        return [decode_records(bytes(self.store.record_at(place) or b""))[0] for place in places]

    def revive_records(self) -> list[StoredMessage]:
        return [record for queue_id in range(8) for record in self.records(REVIVE_TOPIC, queue_id)]


@asynccontextmanager
async def popping(root: Path, clock: Clock, *, queue_count: int = 4, **settings: str) -> AsyncIterator[Rig]:
    """A rig that listens, with topic T. Left with `is_killed`, nothing is saved and the store is not closed cleanly."""
    async with tables(root, clock, **SMALL | settings) as kept:
        store = Store.open(kept.settings.now.store, clock)
        kept.topics.update(topic_of(queue_count=queue_count))
        rig = Rig(kept, store, clock)
        await rig.room.load()
        async with (
            asyncio.TaskGroup() as background,
            rig.client,
            listen(ListenConfig(host="127.0.0.1", port=0), rig, clock) as server,
        ):
            rig.server = server
            works = (rig.room.revive_forever, rig.room.release_forever)
            running = [background.create_task(work(), name="test.pop") for work in works]
            yield rig
            for task in running:
                task.cancel()
        if rig.is_killed:
            store.abandon()
            return
        rig.room.save()
        await rig.offsets.stop()
        store.close()


@dataclass(frozen=True)
class Popped:
    """A message with what it is acknowledged by."""

    message: StoredMessage
    handle: PopHandle

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def topic(self) -> str:
        return marked_topic(GROUP, TOPIC, self.handle.mark)


class Popper:
    """A consumer of group G that pops topic T the way Java's client does."""

    def __init__(self, peer: Peer, clock: Clock) -> None:
        self.peer = peer
        self.clock = clock
        self.answer = Command(0)

    @classmethod
    async def connect(cls, rig: Rig) -> Self:
        return cls(await Peer.connect(rig.port), rig.clock)

    def pop_request(self, **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": -1,
            "message_count_max": 32,
            "invisible_ms": 60_000,
            "poll_ms": 0,
            "born_ms": self.clock.now_ms(),
            "init_mode": 0,
            "expression_type": "TAG",
            "expression": "*",
        }
        return Command(RequestCode.POP_MESSAGE, opaque=1, fields=PopMessageRequest(**fields | changes).encode())

    async def pop(self, **changes: Any) -> list[Popped]:
        self.answer = await self.peer.ask(self.pop_request(**changes))
        return popped_of(self.answer)

    async def bodies(self, **changes: Any) -> list[bytes]:
        return [each.body for each in await self.pop(**changes)]

    async def ack(self, popped: Popped) -> int:
        header = AckMessageRequest(
            consumer_group=GROUP,
            topic=popped.topic,
            queue_id=popped.handle.queue_id,
            handle=build_handle(popped.handle),
            offset=popped.handle.queue_offset,
        )
        return (await self.peer.ask(Command(RequestCode.ACK_MESSAGE, opaque=2, fields=header.encode()))).code

    async def ack_many(self, popped: Sequence[Popped]) -> int:
        """All in one request, those of one pop in one bit set."""
        together: dict[PopHandle, list[Popped]] = {}
        for each in popped:
            name = PopHandle(**{**_fields(each.handle), "queue_offset": 0})
            together.setdefault(name, []).append(each)
        acks = [
            BatchAck(
                bits=BatchAck.bits_of([each.handle.queue_offset for each in members], name.start_offset),
                consumer_group=GROUP,
                invisible_time=name.invisible_ms,
                pop_time=name.popped_ms,
                queue_id=name.queue_id,
                topic_mark=str(int(name.mark)),
                revive_queue_id=name.revive_queue_id,
                start_offset=name.start_offset,
                topic=TOPIC,
            )
            for name, members in together.items()
        ]
        body = BatchAcks(acks=acks, broker_name=BROKER).encode()
        return (await self.peer.ask(Command(RequestCode.BATCH_ACK_MESSAGE, opaque=3, body=body))).code

    async def change(self, popped: Popped, invisible_ms: int, *, is_suspended: bool = False) -> Popped | int:
        """The message with its new handle, or the code of the refusal."""
        header = ChangeInvisibleTimeRequest(
            consumer_group=GROUP,
            topic=popped.topic,
            queue_id=popped.handle.queue_id,
            handle=build_handle(popped.handle),
            offset=popped.handle.queue_offset,
            invisible_ms=invisible_ms,
            is_suspended=is_suspended,
        )
        command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, opaque=4, fields=header.encode())
        answer = await self.peer.ask(command)
        if answer.code:
            return answer.code
        changed = ChangeInvisibleTimeAnswer.decode(answer.fields)
        fields = {
            **_fields(popped.handle),
            "start_offset": popped.handle.queue_offset,
            "popped_ms": changed.popped_ms,
            "invisible_ms": changed.invisible_ms,
            "revive_queue_id": changed.revive_queue_id,
        }
        return Popped(popped.message, PopHandle(**fields))


def popped_of(answer: Command) -> list[Popped]:
    """The messages of an answer, with handles made as Java's client makes them."""
    if answer.code:
        return []
    header = PopMessageAnswer.decode(answer.fields)
    ranges = parse_popped(header.start_offsets or "", header.message_offsets or "")
    positions: dict[PoppedQueue, int] = {}
    popped = []
    for message in decode_records(answer.body):
        own = message.properties.get("POP_CK")
        if own is not None:
            popped.append(Popped(message, parse_handle(own)))
            continue
        mark = TopicMark.NORMAL if message.topic == TOPIC else TopicMark.RETRY_V1
        mark = TopicMark.RETRY_V2 if "+" in message.topic else mark
        queue = PoppedQueue(mark, message.queue_id)
        position = positions.get(queue, 0)
        positions[queue] = position + 1
        handle = PopHandle(
            start_offset=ranges[queue].start,
            popped_ms=header.popped_ms,
            invisible_ms=header.invisible_ms,
            revive_queue_id=header.revive_queue_id,
            mark=mark,
            broker_name=BROKER,
            queue_id=message.queue_id,
            queue_offset=ranges[queue].offsets[position],
        )
        popped.append(Popped(message, handle))
    return popped


def _fields(handle: PopHandle) -> dict[str, Any]:
    return {name: getattr(handle, name) for name in PopHandle.__slots__}
