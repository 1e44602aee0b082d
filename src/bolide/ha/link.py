"""One connection of replication: a wire that is read and written by calls, without a transport.

A transport would copy what it cannot send at once, and give out what it reads in pieces of its own size. Here a frame
goes to the system as its head and a view of the mapped log, and what the system does not take stays a view: a peer that
reads nothing costs the memory of a head. What comes is read into one buffer of our own.

Reads and writes only note the time. One timer looks at both, and comes back when the next heartbeat or the end of our
patience is due.
"""

import asyncio
import logging

from bolide.clock import Clock
from bolide.errors import BolideError, ProtocolError
from bolide.ha.config import HaConfig
from bolide.ha.wire import Parts, Wire
from bolide.remoting.address import join_address, reason_of
from bolide.remoting.sparse import Sparse

log = logging.getLogger(__name__)
log.addFilter(Sparse())


class Link:
    """What both ends share. Anything that breaks the rules, the disk or the line closes it, once."""

    def __init__(self, wire: Wire, config: HaConfig, clock: Clock) -> None:
        self.address = join_address(wire.end.getpeername())
        self.host = self.address.rpartition(":")[0]
        self.config = config
        self.clock = clock
        self.is_closed = False
        self.problem = ""
        self.last_read_s = self.last_written_s = self._last_taken_s = clock.monotonic_s()
        self._wire = wire
        self._number = wire.end.fileno()
        self._unsent: Parts = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to read."""
        self._loop.add_reader(self._number, self._on_readable)
        self._look_at_time()

    def close(self, why: str) -> None:
        """End it; only the first reason counts."""
        if self.is_closed:
            return
        self.is_closed = True
        self.problem = why
        self._loop.remove_reader(self._number)
        self._loop.remove_writer(self._number)
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()  # or the view would keep a file that was deleted
        self._wire.close()
        self.on_closed(why)

    # What each end does for itself

    def on_bytes(self) -> None:
        """Read what has come, with `receive` or `receive_into`."""
        raise NotImplementedError

    def on_room(self) -> None:
        """Everything was sent that had been waiting."""
        raise NotImplementedError

    def on_silence(self) -> None:
        """Nothing was sent for the interval of a heartbeat."""
        raise NotImplementedError

    def on_closed(self, why: str) -> None:
        """It is over."""
        raise NotImplementedError

    # Reading and writing

    @property
    def is_full(self) -> bool:
        """Whether something waits that the system did not take."""
        return bool(self._unsent)

    def receive(self, size_max: int) -> bytes:
        """Some bytes; the end of the stream is an error like any other."""
        chunk = self._wire.receive(size_max)
        if not chunk:
            raise ProtocolError("the peer has ended the connection")
        return chunk

    def receive_into(self, buffer: memoryview) -> int:
        """The same into a buffer; returns how many."""
        size = self._wire.receive_into(buffer)
        if not size:
            raise ProtocolError("the peer has ended the connection")
        return size

    def send(self, parts: Parts) -> bool:
        """Send in one piece, as far as the system takes it. False if the rest waits for its room."""
        assert not self._unsent, "one frame after the other"
        self.last_written_s = self._last_taken_s = self.clock.monotonic_s()
        if self._put(parts):
            return True
        self._loop.add_writer(self._number, self._on_writable)
        return False

    def _put(self, parts: Parts) -> bool:
        """True if all was taken; else the rest is kept."""
        self._unsent = self._wire.put(parts)
        return not self._unsent

    # What the loop calls

    def _on_readable(self) -> None:
        try:
            self.on_bytes()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.close(reason_of(problem))
        except BolideError as problem:
            self.close(str(problem))

    def _on_writable(self) -> None:
        unsent, self._unsent = self._unsent, []
        try:
            self._last_taken_s = self.clock.monotonic_s()
            if self._put(unsent):
                self._loop.remove_writer(self._number)
                self.on_room()
        except OSError as problem:
            self.close(reason_of(problem))
        except BolideError as problem:
            self.close(str(problem))

    def _look_at_time(self) -> None:
        now_s = self.clock.monotonic_s()
        silence_max_s = self.config.silence_max_ms / 1000
        heartbeat_s = self.config.heartbeat_interval_ms / 1000
        if now_s - self.last_read_s >= silence_max_s:
            self.close(f"the peer has said nothing for {silence_max_s:g} s")
            return
        if self._unsent and now_s - self._last_taken_s >= silence_max_s:
            self.close(f"the peer has taken nothing for {silence_max_s:g} s")
            return
        if now_s - self.last_written_s >= heartbeat_s:
            try:
                self.on_silence()
            except OSError as problem:
                self.close(reason_of(problem))
        if self.is_closed:
            return
        quiet_s = max(self.last_written_s + heartbeat_s - now_s, 0) or heartbeat_s
        due_s = min(quiet_s, self.last_read_s + silence_max_s - now_s)
        self._timer = self._loop.call_later(max(due_s, 0.001), self._look_at_time)
