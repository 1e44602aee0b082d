"""What a connection does with frames: batches in, answers out, limits kept, errors told."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable

import pytest

from bolide import kernel
from bolide.errors import ConnectionLost, ProtocolError, Refusal, RequestTimeout
from bolide.kernel.layout import BINARY_CODEC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command, encode_commands, read_commands
from bolide.protocol.frames import READ_SIZE
from bolide.remoting import serving
from bolide.remoting.owner import Answered, Read
from bolide.remoting.pending import following_opaque
from bolide.remoting.session import Reply, Request, Session
from bolide.testing import VirtualClock
from tests.remoting.ends import Parked, Peer, Table, echo, request_of, served, stream_of
from tests.remoting.loops import POLL_INTERVAL_S, both_loops, eventually, own_loop, virtual_time


@both_loops
async def test_requests_are_answered_in_their_codec_and_with_their_opaque() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        for codec in (0, BINARY_CODEC):
            answer = await peer.ask(request_of(-7, b"body", codec=codec))
            assert (answer.opaque, answer.body, answer.codec, answer.is_response) == (-7, b"body", codec, True)
        peer.leave()


@both_loops
async def test_all_whole_frames_of_one_read_come_together() -> None:
    owner = Table()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(50))
        assert [answer.opaque for answer in await peer.answers(50)] == list(range(50))
        assert owner.reads == [50]
        peer.leave()


@both_loops
async def test_a_read_is_never_larger_than_its_bound() -> None:
    owner = Table()
    frame_size = len(stream_of(1))
    async with served(owner, read_size=1024) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(1000))
        await peer.answers(1000)
        assert max(owner.reads) <= 1024 // frame_size + 1
        peer.leave()


class FastPath(Table):
    """Answers every frame at once but those with an odd opaque."""

    def answer_read(self, read: Read) -> Answered:
        answers: list[Command] = []
        left: list[int] = []
        for i, command in enumerate(read_commands(read.stream, read.bounds)):
            if command.opaque % 2:
                left += read.bounds[2 * i : 2 * i + 2]
            else:
                answers.append(command.answer(0, remark="hot"))
        return encode_commands(answers), left


@both_loops
async def test_what_the_fast_path_leaves_is_served_one_by_one() -> None:
    owner = FastPath()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(10))
        remarks = {answer.opaque: answer.remark for answer in await peer.answers(10)}
        assert remarks == {n: None if n % 2 else "hot" for n in range(10)}
        assert owner.served == [1, 3, 5, 7, 9]
        peer.leave()


@both_loops
async def test_replies_of_one_read_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    made, is_ours = Session.connection_made, own_loop()

    class Counting:
        """The transport, and a note of every write."""

        def __init__(self, transport: asyncio.Transport) -> None:
            self._transport = transport

        def write(self, frames: bytes) -> None:
            if is_ours():
                writes.append(len(kernel.cut_frames(frames, len(frames), 1 << 24)[0]) // 2)
            self._transport.write(frames)

        def __getattr__(self, name: str) -> object:
            return getattr(self._transport, name)

    monkeypatch.setattr(Session, "connection_made", lambda self, transport: made(self, Counting(transport)))  # type: ignore[arg-type]
    monkeypatch.setattr(serving, "TURN_S", 60.0)  # a turn has room for all of them, however busy the machine
    parked = Parked()
    owner = Table(lambda request: echo(request) if request.command.opaque % 2 else parked(request))
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(20))
        assert {answer.opaque for answer in await peer.answers(10)} == set(range(1, 20, 2))
        parked.let_go()
        await peer.answers(10)
        assert writes == [10, 10]
        peer.leave()


@both_loops
async def test_answers_that_wait_do_not_hold_up_others() -> None:
    parked = Parked()
    async with served(Table(parked)) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(3))
        await eventually(lambda: len(parked.waiting) == 3)
        parked.let_go(2)
        assert [answer.opaque for answer in await peer.answers(1)] == [2]
        parked.let_go(0, 1)
        assert {answer.opaque for answer in await peer.answers(2)} == {0, 1}
        peer.leave()


async def raise_later(request: Request) -> Reply:
    await asyncio.sleep(0)
    return raise_now(request)


def raise_now(request: Request) -> Reply:
    if request.command.body == b"refuse":
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    if request.command.body == b"cancel":
        raise asyncio.CancelledError
    raise ZeroDivisionError("of all things")


@pytest.mark.parametrize("answer", [raise_now, raise_later])
@both_loops
async def test_a_refusal_is_answered_with_its_code_and_remark(answer: object) -> None:
    async with served(Table(answer)) as server:  # type: ignore[arg-type]
        peer = await Peer.connect(server.port)
        told = await peer.ask(request_of(1, b"refuse"))
        assert (told.code, told.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        peer.leave()


@pytest.mark.parametrize("answer", [raise_now, raise_later])
@both_loops
async def test_a_mistake_of_ours_is_logged_and_answered_and_the_connection_lives(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Table(answer)) as server:  # type: ignore[arg-type]
        peer = await Peer.connect(server.port)
        for opaque in (1, 2):
            told = await peer.ask(request_of(opaque))
            assert (told.code, told.opaque) == (ResponseCode.SYSTEM_ERROR, opaque)
            assert "of all things" in (told.remark or "")
        peer.leave()
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == 2
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in failures)


@both_loops
async def test_work_that_was_cancelled_below_a_request_is_still_answered() -> None:
    async with served(Table(raise_later)) as server:
        peer = await Peer.connect(server.port)
        assert (await peer.ask(request_of(1, b"cancel"))).code == ResponseCode.SYSTEM_ERROR
        peer.leave()


@pytest.mark.parametrize("answer", [echo, raise_now, raise_later])
@pytest.mark.parametrize("body", [b"", b"refuse"])
@both_loops
async def test_a_one_way_request_is_never_answered(answer: object, body: bytes) -> None:
    owner = Table(lambda request: answer(request) if request.command.is_oneway else echo(request))  # type: ignore[operator]
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(request_of(1, body, flag=ONEWAY_FLAG))
        assert (await peer.ask(request_of(2))).opaque == 2
        assert owner.served == [1, 2]
        peer.leave()


@both_loops
async def test_silence_is_a_reply_too() -> None:
    owner = Table(lambda request: None if request.command.opaque == 1 else echo(request))
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(request_of(1), request_of(2))
        assert [answer.opaque for answer in await peer.answers(1)] == [2]
        peer.leave()


@both_loops
async def test_an_answer_beyond_the_frame_limit_becomes_an_error_the_peer_can_read() -> None:
    owner = Table(lambda request: request.command.answer(0, body=bytes(5000)))
    async with served(owner, frame_size_max=4096) as server:
        peer = await Peer.connect(server.port)
        told = await peer.ask(request_of(1))
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert "4096" in (told.remark or "")
        peer.leave()


@both_loops
async def test_an_owner_whose_fast_path_breaks_loses_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Table):
        def answer_read(self, read: Read) -> Answered:
            if len(read.bounds) > 2:
                raise ZeroDivisionError("in the fast path")
            return b"", read.bounds

    owner = Broken()
    async with served(owner) as server:
        bystander, victim = await Peer.connect(server.port), await Peer.connect(server.port)
        victim.send(stream_of(3))
        assert await victim.end() == b""
        assert (await bystander.ask(request_of(1))).opaque == 1
        assert owner.served == [1]
        bystander.leave()
    assert "in the fast path" in caplog.text


@both_loops
async def test_what_a_fast_path_leaves_after_hanging_up_is_not_served() -> None:
    class Closing(Table):
        def answer_read(self, read: Read) -> Answered:
            read.session.close("enough")
            return b"", read.bounds

    owner = Closing()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(3))
        assert await peer.end() == b""
        peer.leave()
    assert owner.served == []
    assert [why for _, why in owner.gone] == ["enough"]


@both_loops
async def test_an_owner_may_hang_up_on_who_breaks_the_rules(caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: Request) -> Reply:
        if request.command.opaque == 3:
            raise ProtocolError("a request nobody may send")
        return echo(request)

    owner = Table(answer)
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(6))
        assert [answer.opaque for answer in await peer.answers(3)] == [0, 1, 2]
        assert await peer.end() == b""
    assert owner.served == [0, 1, 2, 3]
    assert "a request nobody may send" in caplog.text


@both_loops
async def test_the_owner_hears_of_every_end_once_and_after_all_work() -> None:
    parked = Parked()
    order: list[str] = []

    class Ordered(Table):
        def closed(self, session: Session, why: str) -> None:
            super().closed(session, why)
            order.append(f"closed with {parked.cancelled}")

    owner = Ordered(parked)
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2))
        await eventually(lambda: len(parked.waiting) == 2)
        peer.leave()
        await eventually(lambda: bool(owner.gone))
        assert server.sessions == []
    assert [(session.peer, why) for session, why in owner.gone] == [(peer.name, "left")]
    assert order == ["closed with [0, 1]"] or order == ["closed with [1, 0]"]


@both_loops
async def test_a_session_knows_both_its_ends() -> None:
    seen: list[Session] = []
    owner = Table(lambda request: seen.append(request.session))
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(request_of(1))
        await eventually(lambda: bool(seen))
        assert (seen[0].peer, seen[0].local, seen[0].is_tls) == (peer.name, f"127.0.0.1:{server.port}", False)
        peer.leave()


@both_loops
async def test_a_full_session_stops_reading_until_it_has_room() -> None:
    parked = Parked()
    owner = Table(parked)
    async with served(owner, in_flight_max=4, read_size=1024) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2_000))
        await eventually(lambda: len(parked.waiting) == 4)
        (session,) = server.sessions
        reading = asyncio.ensure_future(peer.answers(2_000))
        most = 0
        while not reading.done():
            assert len(session._tasks) <= 4
            most = max(most, session.in_flight_count)
            parked.let_go()
            await asyncio.sleep(0)
        assert {answer.opaque for answer in reading.result()} == set(range(2_000))
        assert most <= 4 + 1024 // len(stream_of(1)) + 1
        peer.leave()


@both_loops
async def test_a_slow_reader_is_not_read_and_its_answers_do_not_pile_up() -> None:
    owner = Table(lambda request: request.command.answer(0, body=bytes(100_000)))
    async with served(owner, unsent_size_high=200_000) as server:
        peer = await Peer.connect(server.port)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(stream_of(3_000))  # 300 MB of answers
        await eventually(lambda: bool(server.sessions) and server.sessions[0].unsent_size > 200_000)
        (session,) = server.sessions
        await eventually(lambda: bool(session.in_flight_count))
        served_before = len(owner.served)
        for _ in range(50):
            await asyncio.sleep(POLL_INTERVAL_S)
            assert session.unsent_size <= 200_000 + 2 * 100_200
        assert len(owner.served) == served_before < 1_000
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [answer.opaque for answer in await peer.answers(300)] == list(range(300))
        peer.leave()


@both_loops
async def test_a_peer_that_leaves_too_much_unread_is_closed_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    owner = Table()
    async with served(owner, unsent_size_high=1000, unsent_size_max=1_000_000) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(1))
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = server.sessions
        for _ in range(100_000):
            if owner.gone:
                break
            session.send(Command(40, flag=ONEWAY_FLAG, body=bytes(100_000)))
            await asyncio.sleep(0)
            assert session.unsent_size < 1_200_000
        assert [why for _, why in owner.gone] == ["slow reader"]
        peer.leave()
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert "bytes unread" in caplog.text


@both_loops
async def test_a_large_frame_makes_the_buffer_grow_only_as_it_arrives_and_shrink_after() -> None:
    owner = Table()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        frame = request_of(1, bytes(4_000_000)).encode()
        peer.send(frame[:1000])
        await eventually(lambda: bool(server.sessions) and server.sessions[0].read_count == 1)
        (session,) = server.sessions
        assert session.held_size == READ_SIZE
        peer.send(frame[1000:])
        (answer,) = await peer.answers(1)
        assert len(answer.body) == 4_000_000
        assert session.held_size <= READ_SIZE
        peer.leave()


@both_loops
async def test_requests_of_many_connections_go_on_after_each_other_when_a_turn_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "TURN_S", 0.0)  # nobody has more than one request served in a turn
    owner = Table()
    async with served(owner) as server:
        many, few = await Peer.connect(server.port), await Peer.connect(server.port)
        many.send(stream_of(400))
        await eventually(lambda: bool(owner.served))
        few.send(*[request_of(1_000 + n) for n in range(3)])
        assert [answer.opaque for answer in await few.answers(3)] == [1_000, 1_001, 1_002]
        assert len(owner.served) < 300
        assert [answer.opaque for answer in await many.answers(400)] == list(range(400))
        many.send(stream_of(5))  # it is read again
        assert len(await many.answers(5)) == 5
        for peer in (many, few):
            peer.leave()


@both_loops
async def test_a_server_may_ask_its_peer_on_the_same_connection() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        asking = [asyncio.ensure_future(session.request(Command(220, body=b"%d" % n), timeout_s=30)) for n in range(3)]
        asked = await peer.answers(3)
        assert [command.is_response for command in asked] == [False] * 3
        assert len({command.opaque for command in asked}) == 3
        # Its own request with the same opaque is another matter: the response bit tells the two apart.
        peer.send(request_of(asked[0].opaque, b"mine"), *(c.answer(0, body=c.body) for c in reversed(asked)))
        assert (await peer.answers(1))[0].body == b"mine"
        assert [(await answer).body for answer in asking] == [b"0", b"1", b"2"]
        peer.leave()


@virtual_time
async def test_a_peer_that_does_not_answer_is_given_up_and_keeps_its_connection() -> None:
    clock = VirtualClock()
    async with served(Table(), clock) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        with pytest.raises(RequestTimeout, match="within 5 s"):
            await session.request(Command(220), timeout_s=5)
        assert clock.monotonic_s() == 5
        (late,) = await peer.answers(1)
        peer.send(late.answer(0))  # nobody waits for it any more
        assert (await peer.ask(request_of(1))).opaque == 1
        peer.leave()


@both_loops
async def test_who_waits_for_a_peer_that_leaves_is_told() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        asking = asyncio.ensure_future(session.request(Command(220), timeout_s=30))
        await peer.answers(1)
        peer.leave()
        with pytest.raises(ConnectionLost, match="left"):
            await asking
        with pytest.raises(ConnectionLost):
            await session.request(Command(220), timeout_s=30)
        session.send(Command(40, flag=ONEWAY_FLAG))  # into the void, and nobody minds


def test_the_opaque_wraps_around_and_passes_over_what_is_in_flight() -> None:
    assert following_opaque(-1, {}) == 0
    assert following_opaque(0x7FFF_FFFF, {}) == -0x8000_0000
    assert following_opaque(0x7FFF_FFFE, {0x7FFF_FFFF, -0x8000_0000}) == -0x7FFF_FFFF


@both_loops
async def test_requests_of_ours_survive_the_wrap_of_the_opaque() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        session.pending.last_opaque = 0x7FFF_FFFE
        asking = [asyncio.ensure_future(session.request(Command(220), timeout_s=30)) for _ in range(2)]
        asked = await peer.answers(2)
        assert [command.opaque for command in asked] == [0x7FFF_FFFF, -0x8000_0000]
        peer.send(*(command.answer(command.opaque & 7) for command in asked))
        assert [(await answer).code for answer in asking] == [7, 0]
        peer.leave()


@virtual_time
async def test_requests_of_ours_are_bounded_and_wait_for_a_place() -> None:
    async with served(Table(), VirtualClock(), requests_max=2) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        first = [asyncio.ensure_future(session.request(Command(220), timeout_s=50)) for _ in range(2)]
        asked = await peer.answers(2)
        with pytest.raises(RequestTimeout, match="took no further request"):
            await session.request(Command(220), timeout_s=5)
        third = asyncio.ensure_future(session.request(Command(221), timeout_s=50))
        peer.send(*(command.answer(0) for command in asked))
        (last,) = await peer.answers(1)
        assert last.code == 221
        peer.send(last.answer(9))
        assert [(await answer).code for answer in (*first, third)] == [0, 0, 9]
        peer.leave()


@both_loops
async def test_one_way_requests_carry_numbers_that_no_request_in_flight_has() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(0))
        (session,) = server.sessions
        asking = asyncio.ensure_future(session.request(Command(220), timeout_s=30))
        (asked,) = await peer.answers(1)
        session.send(Command(40, flag=ONEWAY_FLAG))
        (told,) = await peer.answers(1)
        assert told.is_oneway
        peer.send(told.answer(1), asked.answer(0))  # some peers do answer them
        assert (await asking).code == 0
        peer.leave()


class Later(Table):
    """An owner that answers nothing at once; `answer` runs when it is told to."""

    def __init__(self) -> None:
        super().__init__(lambda request: None)
        self.left: dict[int, Request] = {}

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        self.left[request.command.opaque] = request
        return super().serve(request)

    def let_go(self, opaque: int, serve: Callable[[Request], Reply] = echo) -> None:
        request = self.left.pop(opaque)
        request.session.answer(request, lambda: serve(request))


@both_loops
async def test_a_request_left_without_an_answer_is_answered_later_and_without_a_task() -> None:
    owner = Later()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(3, b"body"))
        await eventually(lambda: len(owner.left) == 3)
        session = owner.left[0].session
        assert session.in_flight_count == 0
        owner.let_go(2)
        owner.let_go(0)
        assert [(answer.opaque, answer.body) for answer in await peer.answers(2)] == [(2, b"body"), (0, b"body")]
        peer.leave()
        await eventually(lambda: bool(owner.gone))
        owner.let_go(1)  # nobody is there any more: silently nothing
        assert session.unsent_size == 0


@both_loops
async def test_what_goes_wrong_with_a_late_answer_is_told_like_any_failure() -> None:
    owner = Later()

    def refuse(request: Request) -> Reply:
        raise Refusal(ResponseCode.NO_PERMISSION, "not any more")

    def break_down(request: Request) -> Reply:
        raise KeyError("lost")

    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2))
        await eventually(lambda: len(owner.left) == 2)
        owner.let_go(0, refuse)
        owner.let_go(1, break_down)
        answers = await peer.answers(2)
        assert [(answer.opaque, answer.code) for answer in answers] == [(0, 16), (1, 1)]
        assert [answer.remark for answer in answers] == ["not any more", "KeyError: 'lost'"]
        peer.leave()


@both_loops
async def test_closing_waits_for_held_requests_and_not_for_those_left_behind() -> None:
    owner = Later()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2))
        await eventually(lambda: len(owner.left) == 2)
        session = owner.left[0].session
        session.hold(1)
        session.finish("enough")
        await asyncio.sleep(0)
        assert not owner.gone
        owner.let_go(0)
        session.release(1)
        assert [answer.opaque for answer in await peer.answers(1)] == [0]
        assert await peer.end() == b""
        await eventually(lambda: [why for _, why in owner.gone] == ["enough"])


@both_loops
async def test_held_requests_count_against_the_bound_and_ready_frames_are_written_as_they_are() -> None:
    owner = HoldingAll()
    async with served(owner, in_flight_max=4, read_size=512) as server:
        peer = await Peer.connect(server.port)
        peer.send(stream_of(100))
        await eventually(lambda: len(owner.held) >= 4)
        for _ in range(20):
            await asyncio.sleep(0)
        seen = len(owner.held)
        assert seen < 100  # one read over the bound, and then none
        while owner.held:
            session, frame = owner.held.pop(0)
            session.push(frame)
            session.release(1)
            await asyncio.sleep(0)
            await eventually(lambda: bool(owner.held) or owner.count == 100)
        assert [answer.opaque for answer in await peer.answers(100)] == list(range(100))
        peer.leave()


class HoldingAll(Table):
    """A fast path whose answers are ready later, as when they wait for the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Session, bytes]] = []
        self.count = 0

    def answer_read(self, read: Read) -> Answered:
        commands = read_commands(read.stream, read.bounds)
        read.session.hold(len(commands))
        self.count += len(commands)
        self.held += [(read.session, command.answer(0).encode()) for command in commands]
        return b"", []


@both_loops
async def test_that_a_peer_has_hung_up_is_seen_while_it_is_not_read() -> None:
    sessions: list[Session] = []

    def hold(request: Request) -> Reply:
        sessions.append(request.session)
        request.session.hold(1 << 30)
        return None

    async with served(Table(hold)) as server:
        peer = await Peer.connect(server.port)
        peer.send(request_of(1))
        await eventually(lambda: bool(sessions))
        [session] = sessions
        assert not session.is_reading
        assert not session.has_hung_up
        peer.leave()
        await eventually(lambda: session.has_hung_up)
        assert session.is_open  # nobody has read that far
        session.release(1 << 30)
        await eventually(lambda: not session.is_open)


@both_loops
async def test_a_connection_that_has_gone_leaves_nothing_to_search_for() -> None:
    owner = Table()
    async with served(owner) as server:
        gc.disable()
        try:
            peers = [await Peer.connect(server.port) for _ in range(3)]
            await peers[0].ask(request_of(1))
            peers[1].send(stream_of(1)[:20])
            peers[2].send(stream_of(300), stream_of(1)[:20])
            await eventually(lambda: len(server.sessions) == 3)
            sessions = [weakref.ref(session) for session in server.sessions]
            for peer in peers:
                peer.leave()
            await eventually(lambda: len(owner.gone) == 3)
            owner.gone.clear()
            await eventually(lambda: not any(session() for session in sessions))
        finally:
            gc.enable()


@both_loops
async def test_a_request_whose_wait_failed_leaves_nothing_to_search_for() -> None:
    waits: list[asyncio.Future[Reply]] = []
    seen: list[weakref.ref[asyncio.Future[Reply]]] = []

    def wait(_: Request) -> Awaitable[Reply]:
        waits.append(asyncio.get_running_loop().create_future())
        seen.append(weakref.ref(waits[-1]))
        return waits[-1]

    async with served(Table(wait)) as server:
        gc.disable()
        try:
            peer = await Peer.connect(server.port)
            for problem in (None, Refusal(1, "no")):
                peer.send(request_of(1))
                await eventually(lambda: bool(waits))
                if problem is None:
                    waits.pop().cancel()
                else:
                    waits.pop().set_exception(problem)
                assert (await peer.answers(1))[0].code == 1
            del problem
            await eventually(lambda: not any(each() for each in seen))
        finally:
            gc.enable()
        peer.leave()
