"""Reads that their owner keeps to the end of a turn: answered all the same, in order, and never mixed up."""

import asyncio

from bolide.protocol.command import Command, encode_commands, read_commands
from bolide.remoting.owner import Taken
from bolide.remoting.session import Session
from tests.remoting.ends import Peer, Table, served, stream_of
from tests.remoting.loops import POLL_INTERVAL_S, both_loops, eventually


class Keeping(Table):
    """Keeps reads until it is told to go on, or a session says that it must; then answers the even, leaves the odd."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Session, memoryview, list[int]]] = []
        self.asked_count = 0

    def take(self, session: Session, stream: memoryview, bounds: list[int]) -> Taken:  # type: ignore[override]
        self.kept.append((session, stream, bounds))
        return self.must_go_on

    def must_go_on(self) -> None:
        self.asked_count += 1
        self.go_on()

    def go_on(self) -> None:
        kept, self.kept = self.kept, []
        for session, stream, bounds in kept:
            answers: list[Command] = []
            left: list[int] = []
            for i, command in enumerate(read_commands(stream, bounds)):
                if command.opaque % 2:
                    left += bounds[2 * i : 2 * i + 2]
                else:
                    answers.append(command.answer(0, remark="hot"))
            session.taken(encode_commands(answers), left)


@both_loops
async def test_a_read_that_is_kept_is_answered_when_its_owner_goes_on() -> None:
    owner = Keeping()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(10), b"\0\0")
        await eventually(lambda: bool(owner.kept))
        assert owner.kept[0][0].in_flight_count == 1
        owner.go_on()
        assert len(await peer.answers(10)) == 10
        peer.send(stream_of(3)[2:])
        await eventually(lambda: bool(owner.kept))
        owner.go_on()
        assert [answer.opaque for answer in await peer.answers(3)] == [0, 2, 1]
        assert owner.asked_count == 0
        peer.leave()


@both_loops
async def test_a_read_is_kept_no_longer_than_until_the_next_one_or_the_end() -> None:
    owner = Keeping()
    async with served(owner) as server:
        peer, leaving = await Peer.connect(server.port), await Peer.connect(server.port)
        peer.send(stream_of(2))
        await eventually(lambda: bool(owner.kept))
        peer.send(stream_of(1))
        assert len(await peer.answers(2)) == 2
        await eventually(lambda: bool(owner.kept))
        leaving.send(stream_of(2))
        await eventually(lambda: len(owner.kept) == 2)
        leaving.leave()
        assert len(await peer.answers(1)) == 1
        await eventually(lambda: owner.served == [1, 1])
        assert owner.asked_count == 2
        peer.leave()


class Generous(Keeping):
    """Answers every frame with much."""

    def go_on(self) -> None:
        kept, self.kept = self.kept, []
        for session, stream, bounds in kept:
            answers = [command.answer(0, body=b"x" * 100_000) for command in read_commands(stream, bounds)]
            session.taken(encode_commands(answers), [])


@both_loops
async def test_a_peer_that_does_not_read_is_not_read_either_though_it_sent_more_than_a_read_takes() -> None:
    owner = Generous()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2000))
        await eventually(lambda: any(not session.is_writable for session in server.sessions))
        owner.go_on()
        assert owner.asked_count > 0
        assert server.sessions[0].read_count < 20
        peer.leave()


@both_loops
async def test_a_kept_read_is_answered_before_a_stopping_server_closes() -> None:
    owner = Keeping()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(1))
        await eventually(lambda: bool(owner.kept))
        asyncio.get_running_loop().call_later(POLL_INTERVAL_S, owner.go_on)
    assert [answer.remark for answer in await peer.answers(1)] == ["hot"]
    assert await peer.end() == b""


@both_loops
async def test_the_buffer_of_a_kept_read_is_nobody_elses_though_its_connection_is_gone() -> None:
    owner = Keeping()
    async with served(owner) as server:
        peer, other = await Peer.connect(server.port), await Peer.connect(server.port)
        peer.send(stream_of(1, b"mine"))
        await eventually(lambda: bool(owner.kept))
        session, stream, bounds = owner.kept.pop()
        session.abort("test")
        await eventually(lambda: bool(owner.gone))
        other.send(stream_of(1, b"else"))
        await eventually(lambda: bool(owner.kept))
        assert read_commands(stream, bounds)[0].body == b"mine"
        session.taken(b"", bounds)
        owner.go_on()
        assert len(await other.answers(1)) == 1
        assert owner.served == []
        other.leave()
        peer.leave()
