"""The door for storing. On a disk that is late whoever has something stored is told so, within the time it has."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from bolide.broker.intake import LATE_DISK, Late
from bolide.clock import SystemClock
from bolide.model import properties as names
from bolide.model.message import parse_offset_id
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.bodies import Heartbeat, ProducerMember
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import SendBackRequest
from bolide.protocol.headers.operating import ResumeCheckHalfMessageRequest
from bolide.protocol.headers.send import EndTransactionRequest, RecallMessageRequest
from bolide.protocol.properties import join_properties
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.session import Reply, Request
from bolide.testing import VirtualClock, run
from tests.broker.poppers import Popped, Popper
from tests.broker.pullers import GROUP, TOPIC, topic_of
from tests.broker.senders import Peer as Sender
from tests.broker.senders import answered, message, sending
from tests.broker.whole import Whole, whole
from tests.remoting.ends import Peer
from tests.store.given import draft

ROOT = Path(__file__).parents[2]
LATE_MS = 200
WELL_MS = 30_000
LIMIT_S = 30.0
FLUSH_DISK_TIMEOUT, SYSTEM_ERROR, SUCCESS = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SUCCESS,
)


@dataclass
class Scene:
    """A broker under synchronous flush, what was stored while its disk was well, and the disk's gate."""

    broker: Whole
    popper: Popper
    gate: asyncio.Event
    plain: Command
    half: Command
    timed: Command
    popped: list[Popped]

    def make_late(self) -> None:
        """From here on the disk is late, and is not waited for long."""
        self.gate.clear()
        self._wait_for_disk(LATE_MS)

    def make_well(self) -> None:
        """As it began: all is durable in the end, however busy the machine is."""
        self.gate.set()
        self._wait_for_disk(WELL_MS)

    def _wait_for_disk(self, limit_ms: int) -> None:
        store = self.broker.broker.state.store
        store.config = replace(store.config, sync_flush_timeout_ms=limit_ms)

    async def ask(self, command: Command) -> Command:
        return await self.broker.client.request(self.broker.address, command, LIMIT_S)

    # Each stores something, and gives what it is told.

    async def send(self) -> Command:
        return await self.ask(message(b"late", topic=TOPIC))

    async def send_with_thought(self) -> Command:
        return await self.ask(message(b"late", topic=TOPIC, properties="TAGS\x01a\x02"))  # no unique id

    async def reply(self) -> Command:
        properties = {names.MESSAGE_TYPE: "reply", names.CORRELATION_ID: "7", names.REPLY_TO_CLIENT: "asker"}
        return await self.ask(message(b"42", code=325, topic="C1_REPLY_TOPIC", properties=join_properties(properties)))

    async def recall(self) -> Command:
        handle = self.timed.fields["recallHandle"]
        header = RecallMessageRequest(producer_group="pg", topic=TOPIC, recall_handle=handle)
        return await self.ask(Command(RequestCode.RECALL_MESSAGE, fields=header.encode()))

    async def send_back(self) -> Command:
        header = SendBackRequest(physical_offset=place_of(self.plain), group=GROUP, delay_level=0)
        return await self.ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=header.encode()))

    async def commit(self) -> Command:
        return await self._end(8)

    async def roll_back(self) -> Command:
        await self.broker.client.send_oneway(
            self.broker.address, message(topic=TOPIC, oneway=True)
        )  # something to wait for
        return await self._end(12)

    async def _end(self, how: int) -> Command:
        header = EndTransactionRequest(
            producer_group="pg",
            half_queue_offset=QueueOffset(int(self.half.fields["queueOffset"])),
            physical_offset=place_of(self.half),
            commit_or_rollback=how,
            message_id="7F0000010002",
        )
        return await self.ask(Command(RequestCode.END_TRANSACTION, fields=header.encode()))

    async def resume(self) -> Command:
        header = ResumeCheckHalfMessageRequest(topic=TOPIC, message_id=self.half.fields["msgId"])
        return await self.ask(Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields=header.encode()))

    async def pop(self) -> Command:
        popped = await self.popper.pop(message_count_max=1)
        assert len(popped) == 1
        return self.popper.answer

    async def ack(self) -> Command:
        return Command(await self.popper.ack(self.popped[0]))

    async def ack_many(self) -> Command:
        return Command(await self.popper.ack_many(self.popped))

    async def change(self) -> Command:
        changed = await self.popper.change(self.popped[0], 5_000)
        return Command(0 if isinstance(changed, Popped) else changed)


def place_of(answer: Command) -> PhysicalOffset:
    found = parse_offset_id(answer.fields["msgId"])
    assert found is not None
    return PhysicalOffset(found.physical_offset)


@asynccontextmanager
async def scene(root: Path) -> AsyncIterator[Scene]:
    """The disk is well, and is late from the moment the gate is cleared."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": str(WELL_MS), "recallMessageEnable": "true"}
    async with whole(root, **settings) as broker:
        store, gate = broker.broker.state.store, asyncio.Event()
        gate.set()
        flush = store.flush_in_thread

        async def flush_late() -> None:
            await gate.wait()
            await flush()

        store.flush_in_thread = flush_late  # type: ignore[method-assign]
        broker.broker.state.topics.update(topic_of())
        peer = await Peer.connect(int(broker.address.rpartition(":")[2]))
        here = Scene(broker, Popper(peer, SystemClock()), gate, Command(0), Command(0), Command(0), [])
        half = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "7F0000010002"}
        here.plain = await here.ask(message(b"1", topic=TOPIC))
        here.half = await here.ask(message(topic=TOPIC, sys_flag=4, properties=join_properties(half)))
        here.timed = await here.ask(message(topic=TOPIC, properties="UNIQ_KEY\x01u1\x02TIMER_DELAY_SEC\x01600\x02"))
        assert (await here.send_back()).code == 0  # the topic of its retries is made
        assert (await here.ask(message(topic="C1_REPLY_TOPIC"))).code == 0
        here.popped = await here.popper.pop(init_mode=0, message_count_max=1)
        for number in range(3):
            await here.ask(message(b"more%d" % number, topic=TOPIC))
        assert len(here.popped) == 1
        async with asker(broker):
            try:
                yield here
            finally:
                gate.set()
        peer.leave()


@asynccontextmanager
async def asker(broker: Whole) -> AsyncIterator[None]:
    """The producer to whom replies go."""

    def take(request: Request) -> Reply:
        return request.command.answer(0)

    async with Client(ConnectConfig(), SystemClock(), handlers={326: take}) as client:
        heartbeat = Heartbeat(client_id="asker", producer_data_set=[ProducerMember(group_name="askers")])
        await client.request(broker.address, Command(34, body=heartbeat.encode()), 5)
        yield


TOLD: list[tuple[Callable[[Scene], Awaitable[Command]], ResponseCode]] = [
    (Scene.send, FLUSH_DISK_TIMEOUT),
    (Scene.send_with_thought, FLUSH_DISK_TIMEOUT),
    (Scene.reply, FLUSH_DISK_TIMEOUT),
    (Scene.recall, FLUSH_DISK_TIMEOUT),
    (Scene.commit, FLUSH_DISK_TIMEOUT),
    (Scene.roll_back, FLUSH_DISK_TIMEOUT),
    (Scene.ack, FLUSH_DISK_TIMEOUT),
    (Scene.ack_many, FLUSH_DISK_TIMEOUT),
    (Scene.send_back, SYSTEM_ERROR),
    (Scene.resume, SYSTEM_ERROR),
    (Scene.pop, SUCCESS),
    (Scene.change, SUCCESS),
]
each_request = pytest.mark.parametrize(("call", "told"), TOLD, ids=[call.__name__ for call, _ in TOLD])


@pytest.mark.feature("F087")
@each_request
def test_who_has_something_stored_is_told_of_a_late_disk_and_does_not_wait_for_it_for_ever(
    tmp_path: Path, call: Callable[[Scene], Awaitable[Command]], told: ResponseCode
) -> None:
    async def play() -> None:
        async with scene(tmp_path) as here:
            here.make_late()
            async with asyncio.timeout(LIMIT_S):
                assert (await call(here)).code == told
            assert here.broker.broker.state.store.progress.flushed < here.broker.broker.state.store.progress.appended

    asyncio.run(play())


@each_request
def test_on_a_disk_that_is_well_the_answer_comes_when_all_of_it_is_durable(
    tmp_path: Path, call: Callable[[Scene], Awaitable[Command]], told: ResponseCode
) -> None:
    async def play() -> None:
        async with scene(tmp_path) as here:
            appended = here.broker.broker.state.store.progress.appended
            async with asyncio.timeout(LIMIT_S):
                assert (await call(here)).code == 0
            assert here.broker.broker.state.store.progress.flushed > appended

    asyncio.run(play())


def test_a_commit_that_was_told_late_may_be_repeated_and_is_carried_out_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path) as here:
            here.make_late()
            assert (await here.commit()).code == FLUSH_DISK_TIMEOUT
            appended = here.broker.broker.state.store.progress.appended
            assert (await here.commit()).code == FLUSH_DISK_TIMEOUT, "what is not durable yet was told as done"
            here.make_well()
            assert (await here.commit()).code == 0
            assert here.broker.broker.state.store.progress.appended == appended

    asyncio.run(play())


def test_the_page_of_what_is_compatible_says_what_is_told_of_a_late_replica() -> None:
    page = (ROOT / "docs" / "compat.md").read_text("utf-8").partition("## What a late replica is told as")[2]
    rows = re.findall(r"^\| .* \| (\d+) ([A-Z_]+) \|$", page.partition("\n## ")[0], re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(late.value), late.value.name) for late in Late]


def test_the_page_of_what_is_compatible_says_what_each_request_is_told() -> None:
    page = (ROOT / "docs" / "compat.md").read_text("utf-8").partition("## What a late disk is told as")[2]
    rows = re.findall(r"^\| ([\d, ]+)[a-z ]* \| (\d+) [A-Z_]+ \|", page.partition("\n## ")[0], re.MULTILINE)
    told = {int(code): int(answer) for codes, answer in rows for code in codes.split(",")}
    assert told == {int(code): int(answer) for code, answer in LATE_DISK.items()}


def test_who_came_later_has_its_own_time_and_who_came_before_is_not_held_up(tmp_path: Path) -> None:
    async def play() -> None:
        clock = VirtualClock()
        async with sending(tmp_path, clock=clock, flushDiskType="SYNC_FLUSH") as room:
            gate = asyncio.Event()

            async def never() -> None:
                await gate.wait()

            room.store.flush_in_thread = never  # type: ignore[method-assign]
            room.intake.append_own([draft(b"x")])
            began_s, told_s = clock.monotonic_s(), {}

            async def wait(waited_s: float) -> None:
                session, command = Sender(), message()
                request = Request(command, cast(Any, session), clock.monotonic_s() - waited_s)
                reply = room.intake.when_safe(request, room.store.log_end, command.answer(0))
                answer = await answered(session, reply)
                told_s[waited_s] = clock.monotonic_s() - began_s
                assert (answer.code, session.held_count) == (FLUSH_DISK_TIMEOUT, 0)

            async with asyncio.TaskGroup() as group:
                for waited_s in (0.0, 3.0, 1.0, 9.0):
                    group.create_task(wait(waited_s), name="test.wait")
            assert {waited_s: round(told, 1) for waited_s, told in told_s.items()} == {
                0.0: 5.0,
                1.0: 4.0,
                3.0: 2.0,
                9.0: 0.0,
            }
            gate.set()

    run(play())
