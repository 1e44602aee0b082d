"""Sends over a real connection: every one answered, and each queue in the order in which its messages were sent."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.hotpath import HotPath
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handlers
from bolide.remoting.session import Reply, Request, Session
from bolide.store.record import decode
from tests.broker.sending import Sending, message, sending
from tests.remoting.ends import Peer, served


class SendingOwner:
    """The hot path, and behind it the plain one."""

    def __init__(self, room: Sending) -> None:
        self.hot = HotPath(room.sends, room.store, room.tables.current, room.stats, room.clock)
        self.handlers = Handlers(room.sends.handlers())
        self.left_counts: list[int] = []
        self.has_taken = asyncio.Event()

    def take(self, session: Session, stream: memoryview, bounds: list[int]) -> tuple[bytes, list[int]]:
        answers, left = self.hot.take(session, stream, bounds)
        self.left_counts.append(len(left) // 2)
        self.has_taken.set()
        return answers, left

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self.handlers.serve(request)

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
    settings: Any = {"flushDiskType": mode, "mappedFileSizeCommitLog": str(1 << 20), "brokerFastFailureEnable": "false"}

    async def play() -> None:
        async with sending(tmp_path, **settings) as room:
            room.tables.topics.update(TopicConfig(topic_name="Orders"))
            await room.sends.open_topics.keep("Orders")
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
            assert 0 < sum(owner.left_counts) < count

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
        async with sending(tmp_path, flushDiskType="SYNC_FLUSH") as room:
            room.tables.topics.update(TopicConfig(topic_name="Orders"))
            await room.sends.open_topics.keep("Orders")
            owner = SendingOwner(room)
            async with served(owner) as server:
                peer = await Peer.connect(server.port)
                peer.send(*(message(opaque=number) for number in range(5)))
                await owner.has_taken.wait()
            assert [answer.code for answer in await peer.answers(5)] == [0] * 5
            peer.leave()

    asyncio.run(play())
