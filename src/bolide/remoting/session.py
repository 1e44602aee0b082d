"""One connection: frames in, replies out, its own group of tasks.

The same class serves both ends: the side that accepted and the side that connected may ask and answer. What the peer
sends goes to the `Owner`, all whole frames of one read together with those of other connections (`loop_turn.py`), then
one by one what it left of them (`serve`); all replies of one read leave in one write, and so do the answers of tasks
that finish in one turn of the loop.

The rule: nothing here grows because of the peer. While too many of its requests are being worked on, or its answers lie
unsent, it is not read; what was read but not begun waits in `_waiting`, at most one read's worth. A connection is a
guest: what it breaks is logged and closed, and ends nobody else.

An answer need not come from `serve`: where that returns None, somebody answers later (`answer`), or nobody does. Such
a request leaves nothing here, so thousands that are parked cost their owner's memory alone, and closing does not wait
for them. Requests whose answers must still go out (they wait for the disk, say) are counted while they last (`hold`,
`release`): they take part in the bounds, and closing waits for them.

A life has three parts: open; finishing (nothing is read, what was begun is answered); closed, when `Owner.closed` is
the last call of all. A timer bounds the second, because a peer that takes no bytes would keep us there for good.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from bolide.clock import Clock
from bolide.errors import ClientError, ProtocolError, RequestTimeout
from bolide.protocol.command import Command
from bolide.protocol.frames import FrameReader, unfinished
from bolide.remoting.address import is_same_machine, join_address
from bolide.remoting.config import SessionConfig
from bolide.remoting.idle import has_hung_up, untaken_size
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.lines import LineBudget, spoken
from bolide.remoting.loop_turn import LoopTurn
from bolide.remoting.opening import Opening
from bolide.remoting.owner import Owner, Read, Reply, Request, failure
from bolide.remoting.pending import PendingRequests, lost
from bolide.remoting.shared import Shared
from bolide.remoting.sparse import Sparse
from bolide.remoting.waiting import Waiting

__all__ = ["Owner", "Read", "Reply", "Request", "Session"]

log = logging.getLogger(__name__)
_new = tuple.__new__  # of a Read: half the cost of its own
log.addFilter(Sparse())

_UNSENT_SIZE_HIGH = 256 * 1024
LARGE_SIZE = 256 * 1024  # from here on a buffer is written as it lies, without a copy
# A peer that fills the buffer is read again before anybody else has a turn; after so much of that it rests.
FILLED_SIZE_MAX = 256 * 1024


class Session(asyncio.BufferedProtocol):
    """One connection and everything that happens on it."""

    # Thousands that say little are to cost little: a dictionary for each would be a tenth of it.
    __slots__ = (
        "__weakref__",
        "_clock",
        "_config",
        "_dozing_as",
        "_filled_size",
        "_gone",
        "_group",
        "_held_count",
        "_is_flush_due",
        "_is_in_turn",
        "_is_lost",
        "_is_peer_slow",
        "_limit",
        "_loop",
        "_outgoing",
        "_outgoing_size",
        "_owner",
        "_tasks",
        "_transport",
        "_turn",
        "_unfinished_size",
        "_unsent_seen_size",
        "_waiting",
        "_why",
        "_window",
        "_writable",
        "frame_began_s",
        "has_left",
        "is_from_here",
        "is_reading",
        "is_tls",
        "last_active_s",
        "lines",
        "local",
        "origin",
        "peer",
        "pending",
        "read_count",
        "reader",
        "shared",
    )

    def __init__(
        self,
        turn: LoopTurn,
        config: SessionConfig,
        clock: Clock,
        opening: Opening,
        shared: Shared | None = None,
    ) -> None:
        self.is_tls = opening.is_tls
        self.peer, self.local = opening.ends or ("", "")
        self.origin, self.is_from_here = "", False  # by the socket, not by what a PROXY header says
        self.read_count = 0
        self.has_left = False  # the peer ended it, not we
        self.last_active_s = self.frame_began_s = clock.monotonic_s()
        self._turn = turn
        self._owner = turn.owner
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.shared = shared or Shared()
        self.reader = FrameReader(config.frame_size_max, config.read_size, self.shared.spare, config.header_size_max)
        self._unfinished_size = 0  # as it was told last
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._is_lost = False
        self._why = ""
        self._limit: asyncio.TimerHandle | None = None  # set while finishing
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # a set that is empty takes three times as much
        self._waiting = Waiting()
        self._is_in_turn = False  # a read of it waits for the end of the turn, in the reader's buffer
        self._window = memoryview(b"")  # where the transport reads to
        self.is_reading = True  # what the peer sends is taken; otherwise it waits for us
        self._dozing_as = -1  # the descriptor by which it is woken
        self._filled_size = 0  # since it rested
        self._is_peer_slow = False
        self._outgoing: list[bytes | memoryview] = []
        self._held_count = self._outgoing_size = self._unsent_seen_size = 0
        self._is_flush_due = False
        self._writable: asyncio.Event | None = None  # exists once the peer was slow
        self.pending = PendingRequests(config.requests_max)
        self.lines: LineBudget | None = None

    def __repr__(self) -> str:
        return f"<Session peer={self.peer} local={self.local}{' tls' if self.is_tls else ''}>"

    # What others call

    @property
    def is_open(self) -> bool:
        """Requests of the peer are read, and ours can be sent."""
        return self._transport is not None and self._limit is None and not self._transport.is_closing()

    @property
    def is_made(self) -> bool:
        """The connection was established, be it closed by now."""
        return self._transport is not None

    @property
    def has_hung_up(self) -> bool:
        """The peer has gone, whether we have read so far or not."""
        return has_hung_up(self._transport)

    @property
    def in_flight_count(self) -> int:
        """Requests of the peer that are being worked on."""
        return len(self._tasks) + len(self._waiting) + self._held_count + self._is_in_turn

    @property
    def unsent_size(self) -> int:
        """Bytes written here that the operating system did not take yet."""
        return self._outgoing_size + (self._transport.get_write_buffer_size() if self._transport else 0)

    @property
    def held_size(self) -> int:
        """Memory for bytes that came and are not a whole frame yet."""
        return self.reader.capacity

    def send(self, command: Command) -> None:
        """Write an answer or a one-way request; to a peer that is gone, silently nothing."""
        if not self._is_lost:
            if not command.is_response:
                command.opaque = self.pending.number()  # some peers answer one-way requests all the same
            self._push(self._encode(command))

    def answer(self, request: Request, serve: Callable[[], Reply]) -> None:
        """Answer a request for which `Owner.serve` gave None; an error is told as it would have been there."""
        try:
            if request.recheck is not None:
                request.recheck(request)
            reply = serve()
        except Exception as problem:
            reply = failure(request, problem)
        self._answer(request, reply)

    def push(self, frames: bytes | memoryview) -> None:
        """Write ready frames, or a part of one, with the next write; to a peer that is gone, silently nothing."""
        if not self._is_lost:
            self._push(frames)

    def hold(self, count: int) -> None:
        """This many places are taken by requests that were begun and will be answered through `push` or `answer`."""
        self._held_count += count
        if not self.has_room():
            self._read(False)

    def release(self, count: int) -> None:
        """This many of them are free again."""
        self._held_count -= count
        if not self.is_reading and not self._is_lost:
            self.go_on()

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Ask the peer and wait for its answer, the wait for room included; sets the command's opaque."""
        deadline_s = self._loop.time() + timeout_s
        await self.pending.acquire(self, timeout_s)
        try:
            return await self._ask(command, timeout_s, deadline_s)
        finally:
            self.pending.places.release()

    def submit(self, command: Command, timeout_s: float, done: Callable[[Command | ClientError], None]) -> None:
        """Ask the peer; `done` hears the answer, or why there is none. To wait costs no task."""
        opaque, answer = self.pending.add(self.read_count)
        timer = self._loop.call_later(timeout_s, self._give_up, opaque, command.code, timeout_s)

        def settled(answer: asyncio.Future[Command]) -> None:
            timer.cancel()
            self.pending.remove(opaque)
            problem = answer.exception()
            assert problem is None or isinstance(problem, ClientError), "only these are told to who asks"
            done(problem or answer.result())

        answer.add_done_callback(settled)
        command.opaque = opaque
        self._push(self._encode(command))

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once the connection has ended, also if that was before."""
        self._gone.add_done_callback(lambda _: callback())

    @property
    def is_writable(self) -> bool:
        """The peer takes what was written before."""
        return self._writable is None or self._writable.is_set()

    async def writable(self) -> None:
        """Wait until the peer takes what was written before."""
        # Of many that wake together the first may fill the buffer again.
        while self._writable is not None and not self._writable.is_set():
            await self._writable.wait()

    def shrink(self) -> int:
        """Keep what has come of a frame in as little memory as it takes; returns how much that is."""
        if not self._is_in_turn:
            self.reader.shrink()
        self._unfinished_size = self.reader.capacity
        return self._unfinished_size

    def doze(self) -> None:
        """Have the peer watched beside the loop: it has said nothing whole, and may be one of thousands."""
        transport = self._transport
        if self.is_tls or self._is_in_turn or not self.is_reading or transport is None or transport.is_closing():
            return
        descriptor = transport.get_extra_info("socket").fileno()
        if self.shared.dozing.add(self, descriptor):
            self._dozing_as = descriptor
            transport.pause_reading()

    def wake(self) -> None:
        """The peer has sent something, or left."""
        self._dozing_as = -1
        if self.is_reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def finish(self, why: str) -> None:
        """Read no more, answer what was begun, then close; at the latest after `close_limit_s`."""
        if self._limit is None and not self._is_lost:
            self._why = self._why or why
            self._limit = self._loop.call_later(self._config.close_limit_s, self.abort, why)
            self.go_on()

    def close(self, why: str) -> None:
        """Close as soon as what was written is sent; what was begun is not answered any more."""
        self._waiting.clear()
        self.finish(why)
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: str) -> None:
        """Close now; what is unsent is lost."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def expire(self, now_s: float, idle_max_s: float) -> float:
        """Close if nothing was read and nothing written for too long; otherwise the time to look again."""
        due_s = self.last_active_s + idle_max_s
        if due_s > now_s or self._limit is not None:
            return max(due_s, now_s + 1)
        unsent_size = self.unsent_size + untaken_size(self._transport)
        if unsent_size and unsent_size != self._unsent_seen_size:
            # The peer may be taking an old answer slowly: see in a while whether more of it is gone.
            self._unsent_seen_size = unsent_size
            return now_s + idle_max_s / 4
        if unsent_size:
            log.warning("connection closed: peer=%s took none of %d bytes for %d s", self.peer, unsent_size, idle_max_s)
            self.abort("slow reader")
        else:
            log.info("connection closed: peer=%s was silent for %d s", self.peer, idle_max_s)
            self.close("idle")
        return now_s + 1

    async def run(self, attach: Callable[[], Awaitable[object]], tasks: IsolatedTasks) -> None:
        """Be the connection that `attach` makes, until it is gone and all its work, which `tasks` has, has ended."""
        self._group = tasks.group
        try:
            await attach()
            del attach
            await self._gone
        finally:
            self.abort("cancelled")
            if self._tasks:
                await self._end_tasks()
            self._group = None
            if self._transport is not None:
                log.debug("connection ended peer=%s why=%s", self.peer, self._why)
                try:
                    spoken(self, self._owner.closed, self, self._why)
                except Exception:
                    log.exception("closing failed peer=%s", self.peer)

    async def _end_tasks(self) -> None:
        """Cancel them and wait; who cancels the wait waits too, as with a group."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(self._tasks)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(
            min(self._config.unsent_size_high or _UNSENT_SIZE_HIGH, self._config.unsent_size_max)
        )
        peer, local = (join_address(transport.get_extra_info(end)) for end in ("peername", "sockname"))
        self.origin = peer.rpartition(":")[0]
        self.is_from_here = is_same_machine(peer, local) and is_same_machine(self.peer or peer, local)
        self.peer, self.local = self.peer or peer, self.local or local
        self.last_active_s = self._clock.monotonic_s()
        log.debug("connection made peer=%s local=%s tls=%s", self.peer, self.local, self.is_tls)

    def get_buffer(self, sizehint: int) -> memoryview:
        # The turn cannot end here: that may stop the reading, which libuv does not survive while it asks where to.
        self._window = self.reader.aside() if self._is_in_turn else self.reader.window()
        return self._window

    def buffer_updated(self, nbytes: int) -> None:
        self.read_count += 1
        self.last_active_s = self._clock.monotonic_s()
        if self._is_in_turn:
            self._turn.end()
            self.reader.window()[:nbytes] = self._window[:nbytes]
        transport = self._transport
        if transport is None or self._limit is not None or transport.is_closing():
            return
        reader = self.reader
        bounds = reader.cut(nbytes)
        if bounds:
            self.frame_began_s = self.last_active_s
            self._is_in_turn = True
            self._turn.add(_new(Read, (self, reader.stream, bounds)))
        else:
            if not self._unfinished_size:
                self.frame_began_s = self.last_active_s
            self.read_answered(b"", bounds)
        if nbytes == len(self._window):
            self._filled(nbytes)

    def _filled(self, nbytes: int) -> None:
        """There is more, and it is read at once, unless it was much already."""
        if self._is_in_turn:
            self._turn.end()
        self._filled_size += nbytes
        if self._filled_size >= FILLED_SIZE_MAX and self.is_reading:
            self._filled_size = 0
            self._read(False)
            self._loop.call_soon(self.go_on)

    def read_answered(self, replies: bytes, left: list[int]) -> None:
        """The owner has done what it does at once with a read: write the replies, serve what it left."""
        self._is_in_turn = False
        reader = self.reader
        if replies:
            self._outgoing.append(replies)
            self._outgoing_size += len(replies)
        if left and self.is_open:
            self._is_flush_due = True  # what is served now leaves with the rest
            self._waiting.put(self, reader.stream, left)
            self.go_on()
        if self._is_lost:
            reader.close()
        else:
            size = reader.settle()
            if size != self._unfinished_size and self.shared.unfinished is not None:
                self._unfinished_size = size
                self.shared.unfinished.hold(self, self._unfinished_size)
        if left or self._outgoing:
            self.flush()
        if reader.problem:
            self._refuse(reader.problem)
        elif self._limit is not None:
            self.go_on()

    def eof_received(self) -> bool:
        if self._is_in_turn:
            self._turn.end()
        self.has_left = True
        self.shrink()  # the end was read into a buffer too, and thousands may leave at once
        if self.is_tls or self.shared.endings.is_its_turn(self._take_leave):
            self._explain_leaving()
            return False
        return True

    def _take_leave(self) -> None:
        if not self._is_lost:
            self._explain_leaving()
            cast(asyncio.Transport, self._transport).close()

    def _explain_leaving(self) -> None:
        if self._why:
            return
        held_size = self.reader.held_size
        self._why = "left in the middle of a frame" if held_size else "left"
        if name := unfinished(self.reader.held):
            self._why = f"sent {name}"
        if held_size:
            log.warning("connection closed: peer=%s %s, %d bytes of it had come", self.peer, self._why, held_size)

    def pause_writing(self) -> None:
        self._writable = self._writable or asyncio.Event()
        self._writable.clear()
        if self._config.is_reading_tied:
            self._is_peer_slow = True
            self._read(False)

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
        self._is_peer_slow = False
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self.has_left = self.has_left or exc is not None
        self._why = self._why or (f"lost: {exc}" if exc else "closed")
        if self._limit is not None:
            self._limit.cancel()
        self.pending.fail_all(lambda: lost(self.peer, self._why))
        if self._writable is not None:
            self._writable.set()
        self._waiting.clear()
        self._outgoing, self._outgoing_size = [], 0
        if not self._is_in_turn:
            self.reader.close()
        if self.shared.unfinished is not None:
            self.shared.unfinished.left(self)
        if self._dozing_as >= 0:
            self.shared.dozing.left(self, self._dozing_as)
        if self.shared.endings.is_its_turn(self._be_gone):
            self._be_gone()

    def _be_gone(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)

    # Requests of the peer

    def go_on(self, *, is_its_turn: bool = False) -> None:
        """Serve what waits as far as the limits allow; then read on, or stop reading, or be done."""
        waiting = self._waiting
        if (waiting.ready or waiting.unread) and self.has_room():
            spoken(self, waiting.serve, self, is_its_turn)
        if waiting.problem is not None and not waiting:
            self._refuse(waiting.problem)
        self._read(self._limit is None and not waiting and self.has_room())
        if self._limit is not None and not self.in_flight_count and self._transport is not None:
            self.flush()
            self._transport.close()

    def has_room(self) -> bool:
        return not self._is_peer_slow and len(self._tasks) + self._held_count < self._config.in_flight_max

    def _read(self, is_wanted: bool) -> None:
        if is_wanted == self.is_reading or self._transport is None or self._transport.is_closing():
            return
        self.is_reading = is_wanted
        self.frame_began_s = self._clock.monotonic_s()  # a frame that we kept waiting has its time again
        change = self._transport.resume_reading if is_wanted else self._transport.pause_reading
        change()

    def serve(self, request: Request) -> None:
        try:
            reply = self._owner.serve(request)
        except ProtocolError as problem:
            self._waiting.clear()
            self._refuse(str(problem))
            return
        except Exception as problem:
            reply = failure(request, problem)
        if reply is None or isinstance(reply, Command):
            self._answer(request, reply)
        else:
            assert self._group is not None, "a session is served while it runs"
            task = self._group.create_task(self._wait_for(request, reply), name=f"session.serve.{request.command.code}")
            self._tasks[task] = None
            task.add_done_callback(self._served)

    async def _wait_for(self, request: Request, awaitable: Awaitable[Reply]) -> None:
        task = asyncio.current_task()
        try:
            reply = await awaitable
        except ProtocolError as problem:
            self._waiting.clear()
            self._refuse(str(problem))
            return
        except asyncio.CancelledError as problem:
            if task is None or task.cancelling():
                raise
            reply = failure(request, problem)  # something it waited for was cancelled, not the request
        except Exception as problem:
            reply = failure(request, problem)
        finally:
            del awaitable, task  # an error knows this frame: what the frame knows would stay until it is searched for
        try:
            self._answer(request, reply)
        except Exception:  # the group is everybody's
            log.exception("an answer failed peer=%s", self.peer)
            self.abort("failed")

    def _served(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not self.is_reading:
            self.go_on()

    def _answer(self, request: Request, reply: Reply) -> None:
        if reply is None:
            return
        self._owner.on_answer(request, reply)
        if request.command.is_oneway or self._is_lost:
            return
        try:
            frame = self._encode(reply)
        except (ValueError, ClientError) as problem:
            frame = self._encode(failure(request, problem))
        self._push(frame)

    def _refuse(self, problem: str) -> None:
        if self._limit is None and not self._is_lost:
            log.warning("connection closed: peer=%s sent %s", self.peer, problem)
            self.finish(f"sent {problem}")

    # Our requests

    async def _ask(self, command: Command, timeout_s: float, deadline_s: float) -> Command:
        if not self.is_open:
            raise lost(self.peer, self._why)
        opaque, answer = self.pending.add(self.read_count)
        timer = self._loop.call_at(deadline_s, self._give_up, opaque, command.code, timeout_s)
        try:
            command.opaque = opaque
            self._push(self._encode(command))
            return await answer
        finally:
            timer.cancel()
            self.pending.remove(opaque)

    def _give_up(self, opaque: int, code: int, timeout_s: float) -> None:
        text = f"{self.peer} did not answer request {code} within {timeout_s:g} s"
        self.note_silence(self.pending.fail(opaque, RequestTimeout(text)), text)

    def note_silence(self, read_count: int, text: str) -> None:
        """Nothing was read since a request that got no answer in time: then nothing will be."""
        if self._config.is_silence_fatal and read_count == self.read_count:
            log.warning("connection closed: %s, nor send anything else", text)
            self.abort("half-open")

    # Bytes out

    def _encode(self, command: Command) -> bytes:
        frame = command.encode()
        if len(frame) > self._config.frame_size_max:
            raise ClientError(f"a frame of {len(frame)} bytes, the limit is {self._config.frame_size_max}")
        return frame

    def _push(self, frames: bytes | memoryview) -> None:
        self._outgoing.append(frames)
        self._outgoing_size += len(frames)
        if self._outgoing_size >= (self._config.unsent_size_high or _UNSENT_SIZE_HIGH):
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write now what would leave with the next write: for who knows that no more will come in this turn."""
        self._is_flush_due = False
        transport, outgoing = self._transport, self._outgoing
        if not outgoing or transport is None:
            return
        self._outgoing, self._outgoing_size = [], 0
        if transport.is_closing():
            return
        if len(outgoing) == 1:
            transport.write(outgoing[0])
        elif len(outgoing[-1]) >= LARGE_SIZE:  # it was the last to fit: better not copied
            transport.writelines(outgoing)
        else:
            transport.write(b"".join(outgoing))
        self.last_active_s = self._clock.monotonic_s()
        # Only a peer that was slow before can have left so much: the limit at which writing pauses is below this one.
        if self._writable is not None and transport.get_write_buffer_size() > self._config.unsent_size_max:
            log.warning("connection closed: peer=%s left %d bytes unread", self.peer, transport.get_write_buffer_size())
            self.abort("slow reader")
