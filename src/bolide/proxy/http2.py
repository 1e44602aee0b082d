"""One connection of HTTP/2, and the calls on it.

The frames are `protocol/http2.py`'s; what they leave is here: deadlines, answers that wait for a window, and bounds on
all that a peer can make us keep or do. The rule is the one of `remoting/session.py`: nothing grows because of the peer.

| what a peer may send much of | what bounds it |
|---|---|
| streams | 1,000 at once (a setting that the frames hold it to) |
| headers | 16 KiB of a call, 64 CONTINUATION frames |
| resets, and calls that make us reset | an allowance, refilled by time: rapid reset ends the connection |
| pings, settings, priorities, windows, crumbs of data | an allowance, refilled by calls and by what is sent |
| windows while many answers wait | the answers are looked at once a read |
| headers of open calls, bytes of messages that are not whole | a limit for each, and one sum over all connections |
| answers that are not read | nothing is read from a peer that is slow; beyond a limit it is left |
| time | a deadline for each call, a minute for a request to be whole |

A read is small until a large message is on its way, and of many calls or small frames some are worked through at a
time: then others have a turn. Of those with more to do one goes on in each turn, so what a newcomer waits for does not
grow with them.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

from bolide.protocol.http2 import Http2Server
from bolide.protocol.http2_errors import BrokenHttp2, ErrorCode
from bolide.protocol.http2_events import Asked, Began, DataCame, Event, SaidGoodbye, WasReset
from bolide.proxy.allowance import Allowance
from bolide.proxy.answers import ANSWER_HEADERS, NO_CALL, NO_CALL_HEADERS, OK_TRAILERS, encode_trailers
from bolide.proxy.calls import Call, GrpcStatus, cut_message, kept_headers, only_message, parse_timeout
from bolide.proxy.deadlines import Deadlines
from bolide.proxy.port import LIMITS, Port
from bolide.remoting.address import join_address
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.lines import LineBudget, spoken
from bolide.remoting.opening import Opening
from bolide.remoting.sparse import Sparse

log = logging.getLogger(__name__)
log.addFilter(Sparse())

RESETS_MAX, RESETS_PER_S = 500, 50
TRIFLES_MAX, TRIFLES_PER_S = 1_000, 50
_TRIFLES_A_CALL = 20  # frames that belong to work: windows, priorities, a ping or two
_SMALL_PIECE = 512
_SMALL_READ, _LARGE_READ = 8 * 1024, 64 * 1024
_UNSENT_SIZE_HIGH = 256 * 1024
_CALLS_LET_GO = 64
_OVERHEAR_LIMIT_S, _OVERHEARD_SIZE_MAX = 1.0, 256 * 1024
_buffer = memoryview(bytearray(_LARGE_READ))  # what is read is copied out of it in the same turn


class Http2Connection(asyncio.BufferedProtocol):
    """A guest of the server: frames in, calls out, answers back."""

    def __init__(self, port: Port, opening: Opening) -> None:
        self._port = port
        self._clock = port.clock
        self._loop = asyncio.get_running_loop()
        self.peer, self.local = opening.ends or ("", "")
        self.origin, self.is_lost = "", False
        self._taken = opening.taken
        self.lines: LineBudget | None = None
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._tasks: IsolatedTasks | None = None
        self._calls: dict[int, Call] = {}
        self._touched: list[Call] = []  # in this read
        self._limit: asyncio.TimerHandle | None = None  # set while finishing
        self._is_reading = self._is_in_body = self._is_peer_slow = False
        self._is_flush_due = self._is_late_flush_due = self._is_read_due = False
        self._has_goodbye = False  # of the peer: its calls are answered yet
        self._has_left, self._overheard_size = False, 0  # said goodbye for good; what came since
        self._waiting_size = 0  # of answers that no window has room for
        now_s = self._last_active_s = self._clock.monotonic_s()
        self._resets = Allowance(RESETS_MAX, RESETS_PER_S, now_s)
        self._trifles = Allowance(TRIFLES_MAX, TRIFLES_PER_S, now_s)
        self._deadlines = Deadlines(self._loop, self._clock, self._refuse)
        self._frames = Http2Server(LIMITS)

    # What the server calls

    @property
    def is_made(self) -> bool:
        return self._transport is not None

    async def run(self, attach: Callable[[], Awaitable[object]], _: IsolatedTasks) -> None:
        """Be the connection that `attach` makes, until it is gone and all its work has ended."""
        async with IsolatedTasks() as tasks:
            self._tasks = tasks
            try:
                await attach()
                await self._gone
            finally:
                if self._transport is not None:
                    self._transport.abort()

    def finish(self, why: str) -> None:
        """Take no more calls, end those that only wait, let the others be answered within a limit."""
        if self._limit is not None or self._transport is None or self._transport.is_closing():
            return
        self._limit = self._loop.call_later(self._port.config.listen.close_limit_s, self._transport.abort)
        self._frames.say_goodbye(ErrorCode.NO_ERROR)
        self.flush()
        for call in list(self._calls.values()):
            if call.is_lasting:
                self._refuse(call, GrpcStatus.UNAVAILABLE, why)
        self._close_if_done()

    def expire(self, now_s: float, idle_max_s: float) -> float:
        """Close if there was no call for too long, or a peer takes none of its answers."""
        if self._calls and not self._unsent_size:
            return now_s + idle_max_s / 2
        due_s = self._last_active_s + idle_max_s
        if due_s <= now_s and self._limit is None:
            log.info("connection closed: peer=%s was silent for %d s", self.peer, idle_max_s)
            self.finish("the connection was silent")
        return max(due_s, now_s + 1)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_UNSENT_SIZE_HIGH)
        peer, local = (join_address(transport.get_extra_info(end)) for end in ("peername", "sockname"))
        self.origin = peer.rpartition(":")[0]
        self.peer, self.local = self.peer or peer, self.local or local
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer if self._is_in_body or self._has_left else _buffer[:_SMALL_READ]

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._has_left:
            self._overheard_size += nbytes
            if self._overheard_size > _OVERHEARD_SIZE_MAX:
                transport.close()
            return
        is_full = nbytes == len(self.get_buffer(0))
        self._last_active_s = self._clock.monotonic_s()
        self._taken += bytes(_buffer[:nbytes])
        if not is_full or not self._port.backlog.is_busy:
            self._work()
        if (is_full or self._frames.is_behind) and not transport.is_closing():
            transport.pause_reading()  # it would read on at once: others have a turn first
            self._read_on_soon()

    def _work(self) -> None:
        """Have the next frames served of those that are here."""
        self._is_reading = True
        data, self._taken = self._taken, b""
        try:
            found = self._frames.receive(data)
            spoken(self, self._take, found)
        except BrokenHttp2 as problem:
            self._break(f"sent what HTTP/2 does not allow: {problem}", problem.http2_code)
            return
        finally:
            self._is_reading = False
        if self._is_flush_due:
            self.flush()
        elif self._frames.has_outgoing and not self._is_late_flush_due:
            self._is_late_flush_due = True
            self._port.late.add(self._flush_late)

    def pause_writing(self) -> None:
        self._is_peer_slow = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_peer_slow = False
        self._read_on_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self.is_lost = True
        self._let_go()

    def _let_go(self) -> None:
        """Drop the calls of a connection that is gone, some in each turn."""
        for call in list(itertools.islice(self._calls.values(), _CALLS_LET_GO)):
            self._forget(call, GrpcStatus.CANCELLED)
            call.gone()
        if self._calls:
            self._port.backlog.add(self._let_go)
            return
        if self._port.times is not None:
            self._port.times.count(self._clock.monotonic_s())
        if not self._gone.done():
            self._gone.set_result(None)

    def _read_on_soon(self) -> None:
        if not self._is_read_due:
            self._is_read_due = True
            self._port.backlog.add(self._read_on)

    def _read_on(self) -> None:
        """Go on with what is here, a turn after the other, then with what comes."""
        self._is_read_due = False
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_peer_slow:
            return
        if (self._taken or self._frames.is_behind) and not self._has_left:
            self._work()
            self._read_on_soon()
        else:
            transport.resume_reading()

    # Frames of the peer

    def _take(self, found: list[Event]) -> None:
        has_room = False  # more than before the read, in one window or in all
        touched = self._touched = []
        for event in found:
            if isinstance(event, Asked):
                stream_id, headers, headers_size, data = event
                if self._begin(stream_id, headers, headers_size, True) is not None:
                    self._add(stream_id, data, True)
            elif isinstance(event, Began):
                call = self._begin(*event)
                if call is not None and event.is_whole:
                    self._ended(call)
            elif isinstance(event, DataCame):
                self._add(*event)
            elif isinstance(event, WasReset):
                self._reset_by_peer(event.stream_id)
            elif isinstance(event, SaidGoodbye):
                self._has_goodbye = True
                self._close_if_done()
            else:
                if not self._trifles.spend(self._last_active_s):
                    self._break("sent too many frames that ask for nothing")
                has_room = has_room or event.has_room
        if has_room:
            self._send_waiting()
        self._is_in_body = any(call.received for call in touched)
        if any(call.is_open for call in touched):
            self._loop.call_soon(self._deadlines.watch, touched, self._last_active_s)  # most are answered by then

    def _begin(self, stream_id: int, headers: dict[bytes, bytes], headers_size: int, is_whole: bool) -> Call | None:
        """A call; None if it is refused at once."""
        self._trifles.earn(_TRIFLES_A_CALL)
        path = headers.get(b":path", b"").decode("latin-1")
        call = Call(self, stream_id, path, headers if is_whole else kept_headers(headers))
        call.began_s, call.is_whole, call.headers_size = self._last_active_s, is_whole, headers_size
        self._calls[stream_id] = call
        self._touched.append(call)
        if not self._has_room(call, headers_size):
            return None
        if self._limit is not None:
            self._refuse(call, GrpcStatus.UNAVAILABLE, "the server is stopping")
            return None
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            call.is_foreign = True
            return call
        method = self._port.methods.get(call.path)
        if method is None:
            self._refuse(call, GrpcStatus.UNIMPLEMENTED, f"there is no method {call.path}")
            return None
        if (timeout_s := parse_timeout(headers.get(b"grpc-timeout", b""))) is not None:
            call.deadline_s = self._last_active_s + timeout_s
        if method.is_streaming:
            call.is_lasting, call.began_s = True, None
            call.receiver = partial(method.serve, call)
        return call

    def _add(self, stream_id: int, data: bytes, is_whole: bool) -> None:
        call = self._calls.get(stream_id)
        if call is None or not call.is_open:
            return
        if is_whole and not call.received and call.receiver is None and not call.is_foreign:
            message = only_message(data, self._port.config.message_size_max)
            if message is not None:
                call.is_whole = True
                self._port.methods[call.path].serve(call, message)
                return
        if data and not call.is_foreign:
            self._keep(call, data)
        if is_whole:
            self._ended(call)

    def _keep(self, call: Call, data: bytes) -> None:
        call.received += data
        if not self._has_room(call, len(data)):
            return
        self._touched.append(call)
        if call.receiver is not None or len(call.received) > self._port.config.message_size_max:
            self._deliver(call)

    def _has_room(self, call: Call, size: int) -> bool:
        """Count what is kept of a call now; false if it is refused for that."""
        unwhole = self._port.unwhole
        unwhole.size += size
        if unwhole.size > unwhole.size_max:
            self._refuse(call, GrpcStatus.RESOURCE_EXHAUSTED, "too many requests are on their way; try again")
        return call.is_open

    def _deliver(self, call: Call) -> None:
        """The messages of a stream that are whole; of a request nothing, unless it is too large already."""
        before = len(call.received)
        try:
            while (
                call.is_open and (message := cut_message(call.received, self._port.config.message_size_max)) is not None
            ):
                if call.receiver is None:
                    raise ValueError("more than one message in a call that takes one")
                call.receiver(message)
        except ValueError as problem:
            self._port.unwhole.size -= before - len(call.received)
            self._refuse(call, GrpcStatus.RESOURCE_EXHAUSTED, str(problem))
            return
        self._port.unwhole.size -= before - len(call.received)

    def _ended(self, call: Call) -> None:
        """The client has said all."""
        if not call.is_open:
            return
        call.is_whole = True
        if call.is_foreign:
            self._refuse_http(call)
            return
        if call.receiver is not None:
            call.gone()  # of the client's stream; the answer's end follows
            self._end(call, GrpcStatus.OK, "")
            return
        received, size = call.received, len(call.received)
        try:
            message = cut_message(received, self._port.config.message_size_max)
            if message is None or received:
                raise ValueError(f"{size} bytes are not one whole message")
        except ValueError as problem:
            self._refuse(call, GrpcStatus.INTERNAL, str(problem))
            return
        finally:
            self._port.unwhole.size -= size - len(received)
        self._port.methods[call.path].serve(call, message)

    def _reset_by_peer(self, stream_id: int) -> None:
        if not self._resets.spend(self._last_active_s):
            self._break("opened and reset too many streams")
        call = self._calls.get(stream_id)
        if call is not None:
            self._forget(call, GrpcStatus.CANCELLED)
            call.gone()

    def _break(self, why: str, code: ErrorCode = ErrorCode.ENHANCE_YOUR_CALM) -> None:
        """The peer breaks the rules, or wears us out: say so and hang up."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._has_left:
            return
        log.warning("connection closed: peer=%s %s", self.peer, why)
        self._frames.say_goodbye(code)
        self.flush()
        # A socket that is closed with bytes unread is reset, and the goodbye may be lost with it: it ends on our side.
        self._has_left = self.is_lost = True
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(_OVERHEAR_LIMIT_S, transport.close)
        self._read_on_soon()

    # Answers: the carrier of calls

    def run_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._tasks is not None, "a connection is served while it runs"
        self._tasks.start(work, name=name)

    def start(self, call: Call) -> None:
        self._frames.send_headers(call.stream_id, ANSWER_HEADERS)
        self._expect_flush()

    def push(self, call: Call, piece: bytes) -> None:
        if not call.outgoing and len(piece) <= self._frames.room(call.stream_id):
            self._frames.send_data(call.stream_id, piece)
            self._trifles.earn(_TRIFLES_A_CALL)
            self._expect_flush()
            return
        call.outgoing += piece
        self._waiting_size += len(piece)
        self._send(call)
        self._expect_flush()
        if self._waiting_size > self._port.config.listen.unsent_size_max:
            self._break(f"has no window for {self._waiting_size} bytes of answers")

    def answer(self, call: Call, piece: bytes) -> bool:
        if not self._frames.send_answer(call.stream_id, ANSWER_HEADERS, piece, OK_TRAILERS):
            return False
        self._trifles.earn(_TRIFLES_A_CALL)
        self._forget(call, GrpcStatus.OK)
        self._expect_flush()
        return True

    def end(self, call: Call, status: int, text: str) -> None:
        if call.outgoing:
            call.unsent_end = (status, text)
            self._send(call)
        else:
            self._end(call, status, text)

    def _send_waiting(self) -> None:
        for call in [each for each in (self._calls.values() if self._waiting_size else ()) if each.outgoing]:
            self._send(call)

    def _send(self, call: Call) -> None:
        """As much as the windows allow, and the end if it was all."""
        if call.stream_id not in self._calls:
            return
        frames, stream_id, outgoing = self._frames, call.stream_id, call.outgoing
        while (size := min(frames.room(stream_id), len(outgoing))) > 0:
            if size >= _SMALL_PIECE or size == len(outgoing):  # windows of some bytes earn nothing
                self._trifles.earn(_TRIFLES_A_CALL)
            frames.send_data(stream_id, bytes(memoryview(outgoing)[:size]))
            del outgoing[:size]
            self._waiting_size -= size
        if not outgoing and call.unsent_end is not None:
            self._end(call, *call.unsent_end)

    def _end(self, call: Call, status: int, text: str) -> None:
        if call.stream_id not in self._calls:
            return
        self._forget(call, status)
        trailers = encode_trailers(status, text) if status or text else OK_TRAILERS
        if not call.has_begun:
            trailers = ANSWER_HEADERS + trailers
        self._frames.send_headers(call.stream_id, trailers, is_end=True)
        if not call.is_whole:
            # The answer is out and the request is not: the rest of it is not wanted.
            self._frames.reset(call.stream_id, ErrorCode.NO_ERROR)
        self._expect_flush()

    def _refuse(self, call: Call, status: int, text: str) -> None:
        """End a call that was not served."""
        call.gone()
        self._end(call, status, text)

    def _refuse_http(self, call: Call) -> None:
        """Not gRPC at all: an answer that any client of HTTP reads."""
        call.gone()
        call.has_begun = True
        self._frames.send_headers(call.stream_id, NO_CALL_HEADERS)
        self.push(call, NO_CALL)
        self.end(call, GrpcStatus.UNIMPLEMENTED, "")

    def _forget(self, call: Call, status: int) -> None:
        if self._calls.pop(call.stream_id, None) is not None:
            if self._port.times is not None:
                self._port.times.end(call, status)
            self._port.unwhole.size -= len(call.received) + call.headers_size
            self._waiting_size -= len(call.outgoing)
            call.received.clear()
            call.outgoing.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if (self._limit is not None or self._has_goodbye) and not self._calls and self._transport is not None:
            self._loop.call_soon(self._close)

    def _close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    # Bytes out

    @property
    def _unsent_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _expect_flush(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            if not self._is_reading:  # else the read ends with it
                self._loop.call_soon(self.flush)

    def _flush_late(self) -> None:
        self._is_late_flush_due = False
        self.flush()

    def flush(self) -> None:
        """Write what the frames have ready."""
        self._is_flush_due = False
        transport = self._transport
        if transport is None or transport.is_closing() or self._has_left:
            return
        if data := self._frames.take_outgoing():
            transport.write(data)
            self._last_active_s = self._clock.monotonic_s()
        if self._port.times is not None:
            self._port.times.count(self._last_active_s)
        if transport.get_write_buffer_size() > self._port.config.listen.unsent_size_max:
            log.warning("connection closed: peer=%s left %d bytes unread", self.peer, self._unsent_size)
            transport.abort()
