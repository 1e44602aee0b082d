"""Sends over a real connection: every one answered, and each queue in the order in which its messages were sent."""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.hotpath import HotPath
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handlers
from bolide.remoting.owner import Answered, Read
from bolide.remoting.session import Reply, Request, Session
from bolide.store.disk import Disk
from bolide.store.record import decode
from tests.broker.senders import DURABLE, Sending, message, sending
from tests.remoting.ends import Peer, served
from tests.remoting.loops import both_loops

pytestmark = pytest.mark.usefixtures("fast_path")


class NotedPath(HotPath):
    """The fast path, and what it left of each read."""

    def __init__(self, room: Sending) -> None:
        super().__init__(room.state, room.intake, room.open_topics)
        self.left_counts: list[int] = []
        self.turns: list[int] = []
        self.has_taken = asyncio.Event()

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        answered = super().handle_turn(reads)
        self.turns.append(len(reads))
        self.left_counts += [len(left) // 2 for _, left in answered]
        self.has_taken.set()
        return answered


class SendingOwner:
    """The fast path, and behind it the general one."""

    def __init__(self, room: Sending) -> None:
        self.hot = NotedPath(room)
        self.handle_turn = self.hot.handle_turn
        self.handlers = Handlers(room.sends.handlers())

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self.handlers.serve(request)

    def on_answer(self, request: Request, answer: Command) -> None: ...

    def closed(self, session: Session, why: str) -> None: ...


def variety(number: int) -> Command:
    """Most need no thought; some must be left, and one topic is new."""
    body, opaque = b"%d" % number, number
    if number % 7 == 3:
        return message(body, opaque=opaque, properties="TAGS\x01TagA\x02")  # no unique key
    if number % 11 == 5:
        return message(body, opaque=opaque, topic="New")
    return message(body, opaque=opaque, code=10 if number % 5 == 0 else 310, codec=number % 2)


@pytest.mark.feature("F098")
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_pipelined_producer_gets_every_answer_and_keeps_its_order(tmp_path: Path, mode: str) -> None:
    count = 600
    settings: Any = DURABLE | {"flushDiskType": mode, "mappedFileSizeCommitLog": str(1 << 20)}
    settings |= {"brokerFastFailureEnable": "false"}

    async def play() -> None:
        async with sending(tmp_path, **settings) as room:
            room.tables.topics.update(TopicConfig(topic_name="Orders"))
            await room.open_topics.keep("Orders")
            owner = SendingOwner(room)
            async with served(owner, in_flight_max=50) as server:
                peer = await Peer.connect(server.port)
                peer.send(*(variety(number) for number in range(count)))
                answers = {answer.opaque: answer for answer in await peer.answers(count)}
                peer.leave()
            assert sorted(answers) == list(range(count))
            assert {answer.code for answer in answers.values()} == {0}
            for topic in ("Orders", "New"):
                stored = [int(each.body) for each in messages_of(room, topic)]
                assert stored == sorted(stored)
                assert [int(answers[number].fields["queueOffset"]) for number in stored] == list(range(len(stored)))
            assert 0 < sum(owner.hot.left_counts) < count

    asyncio.run(play())


def messages_of(room: Sending, topic: str) -> list[Any]:
    found: list[Any] = []
    queue = room.store.queue(QueueKey(topic, 0))
    assert queue is not None
    while len(found) < queue.next_offset:
        found += [decode(view) for view in room.store.read(QueueKey(topic, 0), len(found), 32).views]
    return found


def test_a_stopping_server_still_answers_what_waits_for_the_disk(tmp_path: Path) -> None:
    async def play() -> None:
        async with sending(tmp_path, **DURABLE) as room:
            room.tables.topics.update(TopicConfig(topic_name="Orders"))
            await room.open_topics.keep("Orders")
            owner = SendingOwner(room)
            async with served(owner) as server:
                peer = await Peer.connect(server.port)
                peer.send(*(message(opaque=number) for number in range(5)))
                await owner.hot.has_taken.wait()
            assert [answer.code for answer in await peer.answers(5)] == [0] * 5
            peer.leave()

    asyncio.run(play())


class CountingDisk(Disk):
    """Counts writes to the log; other files are written by the clock."""

    write_count = 0

    def write(self, fd: int, content: bytes | memoryview, position: int) -> None:
        self.write_count += "commitlog" in os.readlink(f"/proc/self/fd/{fd}")
        super().write(fd, content, position)


def record_of(room: Sending, answer: Command) -> Any:
    record = room.store.record_at(int(answer.fields["msgId"][16:], 16))
    assert record is not None
    return decode(record)


@both_loops
async def test_the_reads_of_one_turn_are_stored_by_one_write(tmp_path: Path) -> None:
    disk = CountingDisk()
    async with sending(tmp_path, disk=disk, mappedFileSizeCommitLog=str(1 << 20)) as room:
        room.tables.topics.update(TopicConfig(topic_name="Orders"))
        await room.open_topics.keep("Orders")
        owner = SendingOwner(room)
        async with served(owner) as server:
            peers = [await Peer.connect(server.port) for _ in range(100)]
            for peer in peers:
                assert (await peer.ask(message(b"first"))).code == 0
            owner.hot.turns.clear()
            disk.write_count = 0
            # What all peers write before the loop looks again is there when it does.
            for number, peer in enumerate(peers):
                peer.send(message(b"%d" % number, opaque=number), message(b"%d" % number, opaque=1000 + number))
            for number, peer in enumerate(peers):
                answers = await peer.answers(2)
                assert [(answer.code, answer.opaque) for answer in answers] == [(0, number), (0, 1000 + number)]
                stored = [record_of(room, answer) for answer in answers]
                assert [(each.body, str(each.born_host)) for each in stored] == [(b"%d" % number, peer.name)] * 2
                peer.leave()
        assert sum(owner.hot.turns) == 100
        assert 10 < max(owner.hot.turns) <= 64
        assert disk.write_count == len(owner.hot.turns)


@both_loops
async def test_a_message_that_needs_thought_holds_up_its_own_connection_only(tmp_path: Path) -> None:
    # A busy machine may write the table of topics for longer than a send waits.
    async with sending(tmp_path, waitTimeMillsInSendQueue="20000") as room:
        room.tables.topics.update(TopicConfig(topic_name="Orders"))
        await room.open_topics.keep("Orders")
        owner = SendingOwner(room)
        async with served(owner) as server:
            peers = [await Peer.connect(server.port) for _ in range(4)]
            for peer in peers:
                peer.send(*(variety(number) for number in (1, 3, 1, 2)))
            for peer in peers:
                assert [answer.code for answer in await peer.answers(4)] == [0] * 4
                peer.leave()
        bodies: dict[str, list[bytes]] = {}
        for each in messages_of(room, "Orders"):
            bodies.setdefault(str(each.born_host), []).append(each.body)
        assert list(bodies.values()) == [[b"1", b"3", b"1", b"2"]] * 4


@both_loops
async def test_if_the_fast_path_breaks_nobody_of_that_turn_is_answered_and_the_next_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with sending(tmp_path) as room:
        room.tables.topics.update(TopicConfig(topic_name="Orders"))
        await room.open_topics.keep("Orders")
        owner = SendingOwner(room)
        async with served(owner) as server:
            victims = [await Peer.connect(server.port) for _ in range(2)]
            with monkeypatch.context() as broken:
                broken.setattr(owner.hot, "_store_sends", lambda reads: 1 / 0)
                for victim in victims:
                    victim.send(message())
                for victim in victims:
                    assert await victim.end() == b""
            peer = await Peer.connect(server.port)
            assert (await peer.ask(message())).code == 0
            peer.leave()
        assert len(messages_of(room, "Orders")) == 1
    assert "ZeroDivisionError" in caplog.text
