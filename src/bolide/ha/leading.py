"""The master's side: a port, and a link for each slave that came.

A slave is sent the log from where its first report says, as frames that cross neither the end of a file nor the end of
an epoch, straight from the mapped file. Appends wake the port once a turn of the loop, however many they are, and where
nobody waits for slaves at most once in some milliseconds: a frame costs as much as many appends. A slave that
is far behind gets its share of each turn, of what a thread has read ahead (`ahead.py`), and one whose line is full is
left alone until there is room.

What a slave says is believed after it is checked: one that has more than we have, or less than we still have, is closed
with a line that tells the operator what to do, and counts for nothing.
"""

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bolide.clock import Clock
from bolide.errors import BolideError, ProtocolError
from bolide.ha.acks import Acks
from bolide.ha.ahead import Ahead
from bolide.ha.config import HaConfig
from bolide.ha.door import Door
from bolide.ha.epochs import Epochs
from bolide.ha.frames import Epoch, Greeting, Head, PlainReports, Reports, head, plain_head, welcome
from bolide.ha.link import Link
from bolide.ha.status import Rate, SlaveStatus
from bolide.ha.wire import Wire
from bolide.remoting.address import join_address, reason_of
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.reach import accept_from
from bolide.remoting.sparse import Sparse
from bolide.store.store import Store

log = logging.getLogger(__name__)
log.addFilter(Sparse())

_REPORTS_SIZE = 512  # read at a time: some reports, and not so many that a flood of them keeps the loop
_TURN_SIZE_MAX = 256 << 10  # sent to one slave before others have their turn, and senders theirs
_ACCEPTED_MAX = 16
_RATE_PAUSE_S = 0.1
# A push and its report cost both brokers a turn of their loops each, however little is in it. While nobody waits for a
# replica, messages of some milliseconds go together.
_PUSH_INTERVAL_S = 0.005


def first_offset(reported: int, log_start: int, log_end: int, file_size: int, begins_at_last_file: bool) -> int:
    """Where a slave that reported its end is sent the log from."""
    if reported:
        return reported
    return max(log_start, log_end - log_end % file_size) if begins_at_last_file else log_start


class SlaveLink(Link):
    """A slave's connection, in either stream."""

    def __init__(self, wire: Wire, port: "Port") -> None:
        super().__init__(wire, port.config, port.clock)
        self.slave_id: int | None = None
        self.is_learner = False
        self.acked_end = 0
        self.sent_end: int | None = None  # None until the slave has said where to begin
        self.caught_up_s = 0.0
        self._port = port
        self._store = port.store
        self._epochs = port.epochs
        self._reports = PlainReports() if port.epochs is None else Reports()
        self._begins_at_last_file = port.epochs is None
        self._is_greeted = port.epochs is None
        self._told_confirmed = -1
        self._mark = (0, 0.0)  # where our log ended at a moment: a slave that reports so much was up to date then
        self._rate = Rate(port.clock)
        self._ahead = Ahead(port.store, port.reader, self.push)
        self._is_waiting = False  # for its next share, or for the next second

    # What comes

    def on_bytes(self) -> None:
        newest: int | None = None
        for said in self._reports.feed(self.receive(_REPORTS_SIZE)):
            self.last_read_s = self.clock.monotonic_s()
            if isinstance(said, Greeting):
                self._greet(said)
            elif self.sent_end is None:
                self._begin(said)
            else:
                newest = said  # of many that came together the last one counts
        if newest is not None:
            self._port.acks.reported(self, newest)
            self._note_acked(newest)

    def _greet(self, said: Greeting) -> None:
        if self._is_greeted:
            if said.slave_id != self.slave_id:
                raise ProtocolError(f"slave {self.slave_id} says that it is slave {said.slave_id}")
            return  # again, for our answer was slow
        assert self._epochs is not None
        if self._epochs.last is None:
            raise ProtocolError("a slave came before an epoch was recorded here")
        self.slave_id, self.is_learner = said.slave_id, said.is_learner
        self._begins_at_last_file = said.begins_at_last_file
        self._is_greeted = True
        self._epochs.drop_below(self._store.log_start)
        self.send([welcome(self._store.log_end, self._epochs.entries)])

    def _begin(self, reported: int) -> None:
        store = self._store
        if not self._is_greeted:
            raise ProtocolError(
                "a report before the handshake; is brokerRole=SLAVE set at a broker without controller?"
            )
        log_start, log_end = store.log_start, store.log_end
        if reported > log_end:
            raise ProtocolError(
                f"the slave has {reported} bytes of log, and ours ends at {log_end}: it followed another master, or we"
                " lost what it has. Stop it, move its store away and start it empty, or make it the master"
            )
        if 0 < reported < log_start:
            raise ProtocolError(
                f"the slave's log ends at {reported}, and ours begins at {log_start}: it was away for too long. Stop"
                " it, replace its store by a copy of this one, or move it away to begin with what is here"
            )
        self._port.acks.reported(self, reported)  # before it counts: a negative one is refused here
        file_size = store.config.segment_size
        self.sent_end = first_offset(reported, log_start, log_end, file_size, self._begins_at_last_file)
        self._mark = (log_end, self.clock.monotonic_s())
        for replaced in self._port.acks.joined(self):
            assert isinstance(replaced, SlaveLink)
            replaced.close("the same slave has connected again")
        self._port.acks.reported(self, reported)
        self._note_acked(reported)
        log.info(
            "slave connected address=%s id=%s from=%d behind=%d",
            self.address,
            self.slave_id,
            self.sent_end,
            log_end - self.sent_end,
        )
        self.push()

    def _note_acked(self, end: int) -> None:
        self.acked_end = end
        log_end = self._store.log_end
        if end >= log_end:
            self.caught_up_s = self.clock.monotonic_s()
        elif end >= self._mark[0]:
            self.caught_up_s = self._mark[1]
        else:
            return
        self._mark = (log_end, self.clock.monotonic_s())

    # What goes

    def push(self) -> None:
        """Send what there is, as much as is this slave's share of a turn; closes itself where that fails."""
        self._is_waiting = False
        try:
            self._push()
        except OSError as problem:
            self.close(reason_of(problem))
        except BolideError as problem:
            self.close(str(problem))

    def _push(self) -> None:
        left_size = _TURN_SIZE_MAX
        while self.sent_end is not None and not self.is_full and not self.is_closed:
            if left_size <= 0 or not self._has_rate_left():
                self._wait(0 if left_size <= 0 else _RATE_PAUSE_S)
                return
            size = self._send_next(self.sent_end)
            if not size:
                self._tell_confirmed()
                return
            if self.sent_end == self._store.written_end:  # as nearly always; the frame has told what is confirmed
                return
            left_size -= size

    def _wait(self, seconds: float) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_later(seconds, self.push)

    def _has_rate_left(self) -> bool:
        return not self.config.is_rate_limited or self._rate.size_now < self.config.bytes_per_s_max

    def _send_next(self, offset: int) -> int:
        """Send one frame; returns the size of its body, 0 where there is nothing to send."""
        epoch, size_max = self._epoch_at(offset)
        view = self._store.log_view(offset, min(size_max, self._ahead.end_from(offset) - offset))
        if view is None:
            raise ProtocolError(
                f"the slave needs the log from {offset} on, and ours begins at {self._store.log_start}: it is too slow."
                " Raise fileReservedTime, or replace its store by a copy of this one"
            )
        if not view:
            return 0
        self.sent_end = offset + len(view)
        self._rate.add(len(view))
        self.send([self._head(offset, len(view), epoch), view])
        return len(view)

    def _epoch_at(self, offset: int) -> tuple[Epoch | None, int]:
        """The epoch that a frame at an offset is labelled with, and how large it may be."""
        size_max = self.config.frame_size_max
        if self._epochs is None:
            return None, size_max
        found = self._epochs.holding(offset)
        if found is None:  # older than the first epoch: it was the log of a plain broker
            first = self._epochs.entries[0]
            return first, min(size_max, first.start - offset)
        epoch, end = found
        return epoch, size_max if end is None else min(size_max, end - offset)

    def _head(self, offset: int, size: int, epoch: Epoch | None) -> bytes:
        if epoch is None:
            return plain_head(Head(offset, size))
        self._told_confirmed = self._store.visible_end
        return head(Head(offset, size, epoch.number, epoch.start, self._told_confirmed))

    def _tell_confirmed(self) -> None:
        """Say how far the log is confirmed, unless something that says so is on its way."""
        if self._epochs is not None and self._told_confirmed < self._store.visible_end:
            self.on_silence()

    def on_silence(self) -> None:
        if self.sent_end is not None and not self.is_full and not self.is_closed:
            epoch, _ = self._epoch_at(self.sent_end)
            self.send([self._head(self.sent_end, 0, epoch)])

    def on_room(self) -> None:
        self.push()

    def on_closed(self, why: str) -> None:
        self._port.forget(self)
        log.info("slave gone address=%s id=%s acked=%d why=%s", self.address, self.slave_id, self.acked_end, why)

    @property
    def status(self) -> SlaveStatus:
        log_end = self._store.log_end
        lag_size = log_end - self.acked_end
        since_s = self.clock.monotonic_s() - (self.caught_up_s or self._mark[1])
        return SlaveStatus(
            address=self.address,
            slave_id=self.slave_id,
            is_learner=self.is_learner,
            is_in_transfer=self.sent_end is not None,
            acked_end=self.acked_end,
            sent_end=self.sent_end or 0,
            lag_size=lag_size,
            lag_ms=round(since_s * 1000) if lag_size and self.sent_end is not None else 0,
            caught_up_s=self.caught_up_s,
            bytes_per_s=self._rate.bytes_per_s,
        )


@dataclass(frozen=True, slots=True)
class Entrance:
    """Who is let in, and the tasks of those who are at the door."""

    door: Door
    tasks: IsolatedTasks


class Port:
    """Where slaves connect. A port that is not open hangs up at once."""

    def __init__(self, store: Store, config: HaConfig, clock: Clock, epochs: Epochs | None, entrance: Entrance) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.epochs = epochs
        self.acks = Acks(lambda: store.log_end)
        self.is_open = epochs is None
        self.reader = ThreadPoolExecutor(1, "ha_ahead")  # begins when it is used
        self._links: dict[SlaveLink, None] = {}
        self._entrance = entrance
        self._entering: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []
        self._loop = asyncio.get_running_loop()
        self._is_awake = False
        self._pushed_s = 0.0

    def listen(self, listeners: list[socket.socket]) -> None:
        """Let slaves come."""
        self._listeners = listeners
        for listener in listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    @property
    def number(self) -> int | None:
        """Of the port; None while nobody can come."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else None

    @property
    def slaves(self) -> list[SlaveStatus]:
        return [link.status for link in self._links]

    def wake(self) -> None:
        """The log has grown, or more of it is confirmed. Called with every append, so it does next to nothing."""
        if self._links and not self._is_awake:
            self._is_awake = True
            since_s = self.clock.monotonic_s() - self._pushed_s
            if since_s >= _PUSH_INTERVAL_S or self.acks.has_to_wait:
                self._loop.call_soon(self._push_all)
            else:
                self._loop.call_later(_PUSH_INTERVAL_S - since_s, self._push_all)

    def _push_all(self) -> None:
        self._is_awake = False
        self._pushed_s = self.clock.monotonic_s()
        for link in list(self._links):
            link.push()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_MAX):
            try:
                end, peer = accept_from(listener)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                log.error("no slave can be taken problem=%s", problem.strerror)
                return
            if not self.is_open or len(self._links) + len(self._entering) >= self.config.links_max:
                why = "too many connections (bolideHaConnectionsMax)" if self.is_open else "this broker does not lead"
                log.warning("slave turned away address=%s why=%s", peer[0], why)
                end.close()
                continue
            host = join_address(peer).rpartition(":")[0]
            task = self._entrance.tasks.start(self._enter(end, host), name=f"ha.slave.{host}")
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, end: socket.socket, host: str) -> None:
        """Have a slave as a link, if it is let in; from the first byte of the stream on nothing waits."""
        try:
            wire = await self._entrance.door.admit(end, host, self.config.silence_max_ms / 1000)
        except (OSError, BolideError) as problem:
            why = reason_of(problem) if isinstance(problem, OSError) else str(problem)
            log.warning("slave turned away address=%s why=%s", host, why)
            return
        try:
            link = SlaveLink(wire, self)
        except OSError:  # it went before we looked
            wire.close()
            return
        self._links[link] = None
        link.open()

    def forget(self, link: SlaveLink) -> None:
        """A link has ended."""
        self._links.pop(link, None)
        self.acks.left(link)

    def drop_all(self, why: str) -> None:
        for task in self._entering:
            task.cancel()
        for link in list(self._links):
            link.close(why)

    def close(self) -> None:
        """Give the port back."""
        self.is_open = False
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners = []
        self.drop_all("the broker stops")
        self.reader.shutdown(wait=False, cancel_futures=True)
