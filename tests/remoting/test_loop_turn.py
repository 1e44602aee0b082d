"""The reads of one turn of the loop: one call for all of them, each answered in order, and never mixed up."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bolide import kernel
from bolide.clock import SystemClock
from bolide.protocol.command import Command, encode_commands, read_commands
from bolide.remoting import loop_turn
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.loop_turn import ALONE_TURNS, AT_ONCE_READS, READS_MAX, LoopTurn, answer_each
from bolide.remoting.opening import Opening
from bolide.remoting.owner import Answered, Read
from bolide.remoting.session import Session
from bolide.remoting.shared import Shared
from tests.remoting.ends import Peer, Table, request_of, served, stream_of
from tests.remoting.loops import both_loops, eventually


class Noting(Table):
    """Answers the even at once and leaves the odd; notes what each turn brought, and fails when told."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[list[bytes]] = []
        self.fails = False

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        self.turns.append([bytes(read.stream[read.bounds[0] : read.bounds[-1]]) for read in reads])
        if self.fails:
            raise ZeroDivisionError("in the middle of a turn")
        return answer_each(reads, self.answer_read)

    def answer_read(self, read: Read) -> Answered:
        answers: list[Command] = []
        left: list[int] = []
        for i, command in enumerate(read_commands(read.stream, read.bounds)):
            if command.opaque % 2:
                left += read.bounds[2 * i : 2 * i + 2]
            else:
                answers.append(command.answer(0, remark="at once", body=bytes(command.body)))
        return encode_commands(answers), left


class Wire(asyncio.Transport):
    """A transport that notes what is done to it, so that a test says when reads come."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 5), "sockname": ("10.0.0.1", 6)})
        self.written = b""
        self.is_aborted = self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = self.is_closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def answers(self) -> list[Command]:
        bounds, _, _ = kernel.cut_frames(self.written, len(self.written), 1 << 24)
        return read_commands(self.written, bounds)


class Ends:
    """Connections of one owner, of which a test delivers the reads."""

    def __init__(self) -> None:
        self.owner = Noting()
        self.turn = LoopTurn(self.owner)
        self.shared = Shared()

    def connect(self) -> tuple[Session, Wire]:
        session, wire = Session(self.turn, ListenConfig(), SystemClock(), Opening(is_tls=False), self.shared), Wire()
        session.connection_made(wire)
        return session, wire


def deliver(session: Session, stream: bytes) -> None:
    window = session.get_buffer(-1)
    window[: len(stream)] = stream
    session.buffer_updated(len(stream))


async def end_of_turn() -> None:
    await asyncio.sleep(0)


@both_loops
async def test_the_reads_of_many_connections_in_one_turn_are_one_call() -> None:
    ends = Ends()
    connections = [ends.connect() for _ in range(3)]
    for number, (session, _) in enumerate(connections):
        deliver(session, stream_of(4, b"%d" % number))
        assert session.in_flight_count == 1
    assert ends.owner.turns == []
    await end_of_turn()
    assert [len(turn) for turn in ends.owner.turns] == [3]
    for number, (session, wire) in enumerate(connections):
        assert [(answer.opaque, answer.body) for answer in wire.answers] == [(n, b"%d" % number) for n in (0, 2, 1, 3)]
        assert session.in_flight_count == 0


@both_loops
async def test_no_turn_brings_more_reads_than_there_are_buffers() -> None:
    owner = Noting()
    async with served(owner) as server:
        peers = [await Peer.connect(server.port) for _ in range(100)]
        for peer in peers:
            assert (await peer.ask(request_of(0))).remark == "at once"
        owner.turns.clear()
        for peer in peers:
            peer.send(stream_of(2))
        for peer in peers:
            assert [answer.opaque for answer in await peer.answers(2)] == [0, 1]
            peer.leave()
    assert sum(len(turn) for turn in owner.turns) == 100
    assert 10 < max(len(turn) for turn in owner.turns) <= READS_MAX


@both_loops
async def test_a_large_read_is_answered_at_once_with_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_turn, "LARGE_SIZE", 3000)
    ends = Ends()
    connections = [ends.connect() for _ in range(4)]
    for number, (session, _) in enumerate(connections):
        deliver(session, stream_of(1, bytes(3000 if number == 2 else 1000)))
    assert [len(turn) for turn in ends.owner.turns] == [3]
    await end_of_turn()
    assert [len(turn) for turn in ends.owner.turns] == [3, 1]
    assert all(len(wire.answers) == 1 for _, wire in connections)


@both_loops
async def test_a_second_read_of_a_connection_ends_the_turn_before_it() -> None:
    ends = Ends()
    (session, wire), (other, _) = ends.connect(), ends.connect()
    stream = stream_of(6)
    frame_size = len(stream_of(1))
    deliver(other, stream_of(1))
    deliver(session, stream[: 2 * frame_size + 7])
    deliver(session, stream[2 * frame_size + 7 : 3 * frame_size + 9])
    assert [len(turn) for turn in ends.owner.turns] == [2]
    deliver(session, stream[3 * frame_size + 9 :])
    await end_of_turn()
    assert [len(turn) for turn in ends.owner.turns] == [2, 1, 1]
    assert [answer.opaque for answer in wire.answers] == [0, 1, 2, 4, 3, 5]


@both_loops
async def test_a_read_that_fills_its_window_is_answered_before_the_next() -> None:
    ends = Ends()
    session, wire = ends.connect()
    body_size = len(session.get_buffer(-1)) - len(stream_of(1))
    deliver(session, stream_of(1, bytes(body_size)))
    assert [answer.opaque for answer in wire.answers] == [0]
    await end_of_turn()
    assert len(ends.owner.turns) == 1


class Generous(Table):
    """Answers every frame with much."""

    def answer_read(self, read: Read) -> Answered:
        commands = read_commands(read.stream, read.bounds)
        return encode_commands([command.answer(0, body=b"x" * 100_000) for command in commands]), []


@both_loops
async def test_a_peer_that_does_not_read_is_not_read_either_though_it_sent_more_than_a_read_takes() -> None:
    async with served(Generous()) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2000))
        await eventually(lambda: any(not session.is_writable for session in server.sessions))
        assert server.sessions[0].read_count < 20
        peer.leave()


@both_loops
async def test_a_read_is_answered_though_its_connection_ends_or_is_finished_in_that_turn() -> None:
    ends = Ends()
    (leaving, one), (finishing, two) = ends.connect(), ends.connect()
    deliver(leaving, stream_of(2))
    deliver(finishing, stream_of(1))
    finishing.finish("the server stopped")
    assert not two.is_closed
    leaving.eof_received()
    assert [[answer.opaque for answer in wire.answers] for wire in (one, two)] == [[0, 1], [0]]
    assert two.is_closed
    await end_of_turn()
    assert len(ends.owner.turns) == 1


@both_loops
async def test_what_is_left_of_a_read_waits_while_its_peer_takes_no_bytes() -> None:
    ends = Ends()
    session, wire = ends.connect()
    deliver(session, stream_of(4))
    session.pause_writing()
    await end_of_turn()
    assert [answer.opaque for answer in wire.answers] == [0, 2]
    session.resume_writing()
    await end_of_turn()
    assert [answer.opaque for answer in wire.answers] == [0, 2, 1, 3]


@both_loops
async def test_the_buffer_of_a_read_is_nobody_elses_until_the_turn_ends_though_its_connection_is_gone() -> None:
    ends = Ends()
    (session, wire), (other, _) = ends.connect(), ends.connect()
    deliver(session, stream_of(2, b"mine"))
    session.shrink()
    wire.abort()
    session.connection_lost(None)
    deliver(other, stream_of(2, b"else"))
    await end_of_turn()
    assert [(b"mine" in read, b"else" in read) for read in ends.owner.turns[0]] == [(True, False), (False, True)]
    assert (wire.written, ends.owner.served) == (b"", [1])
    assert session.held_size == 0


@both_loops
async def test_if_the_owner_fails_nothing_of_that_turn_is_served_and_the_next_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends = Ends()
    victims = [ends.connect() for _ in range(2)]
    bystander, wire = ends.connect()
    for session, _ in victims:
        deliver(session, stream_of(2))
    ends.owner.fails = True
    await end_of_turn()
    ends.owner.fails = False
    assert [(each.is_aborted, each.written) for _, each in victims] == [(True, b"")] * 2
    assert ends.owner.served == []
    assert "in the middle of a turn" in caplog.text
    deliver(bystander, stream_of(2))
    await end_of_turn()
    assert [answer.opaque for answer in wire.answers] == [0, 1]


@both_loops
async def test_a_connection_whose_answers_cannot_be_written_costs_the_others_of_its_turn_nothing() -> None:
    ends = Ends()
    (broken, wire), (other, good) = ends.connect(), ends.connect()

    def fail(data: Any) -> None:
        raise OSError("nobody thought of this")

    wire.write = fail  # type: ignore[method-assign]
    deliver(broken, stream_of(1))
    deliver(other, stream_of(1))
    await end_of_turn()
    assert wire.is_aborted
    assert [answer.opaque for answer in good.answers] == [0]


@both_loops
async def test_a_connection_that_is_alone_is_answered_as_its_reads_come_and_gathered_again_with_others() -> None:
    ends = Ends()
    (session, wire), (other, _) = ends.connect(), ends.connect()
    for _ in range(ALONE_TURNS):
        wire.written = b""
        deliver(session, stream_of(1))
        assert wire.written == b""
        await end_of_turn()
    for _ in range(AT_ONCE_READS):
        wire.written = b""
        deliver(session, stream_of(2))
        assert [answer.opaque for answer in wire.answers] == [0, 1]
    for _ in range(3):
        ends.owner.turns.clear()
        deliver(session, stream_of(1))
        deliver(other, stream_of(1))
        await end_of_turn()
        assert [len(turn) for turn in ends.owner.turns] == [2]
