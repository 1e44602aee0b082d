"""The slave's side: a client that copies the master's log.

The bytes of a frame are appended as they come, cut anywhere: nothing is gathered, and what was written counts at once.
A report follows when the end of a frame is in the file, before queues and index have it: senders wait for it. Of a long
frame there are some on the way. Under synchronous flush one follows every flush: a slave acknowledges what outlives a
power cut.

In the AutoSwitch stream the slave first cuts what its log has beyond the newest epoch that it shares with the master.
An epoch is recorded before the first byte of it, so that no byte is ever taken for another master's.

A power cut may take a page from the middle of a log and leave what follows. Recovery goes round it, for one broker has
nothing better. A slave has: it cuts its log where the damage begins, and copies the rest again. Otherwise it would
acknowledge, and one day lead, with messages missing.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from bolide.clock import Clock
from bolide.errors import BolideError, ProtocolError
from bolide.ha.config import HaConfig
from bolide.ha.door import LIMIT_S, Door
from bolide.ha.epochs import Epochs
from bolide.ha.frames import Body, Epoch, Greeting, Head, Transfers, Welcome, greeting, plain_report, report
from bolide.ha.link import Link
from bolide.ha.status import FollowerStatus, Rate
from bolide.ha.wire import Wire
from bolide.remoting.address import reason_of, split_address
from bolide.remoting.reach import reach_of
from bolide.remoting.sparse import Sparse
from bolide.store.store import Store

log = logging.getLogger(__name__)
log.addFilter(Sparse())

CONNECT_LIMIT_S = 3.0
ENTER_LIMIT_S = LIMIT_S + 1
READ_SIZE = 1 << 20
_REPORT_SIZE = 256 << 10  # within a frame


class MasterLink(Link):
    """The connection to a master, in either stream."""

    def __init__(self, wire: Wire, client: "SlaveClient") -> None:
        super().__init__(wire, client.config, client.clock)
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.master_end = 0
        self.rate = Rate(client.clock)
        self._client = client
        self._store = client.store
        self._epochs = client.epochs
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._transfers = Transfers(client.epochs is None)
        self._is_greeted = client.epochs is None
        self._confirmed = -1
        self._reported = -1  # -1 until the first report
        self._is_report_due = False
        self._flush: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Say where we are: at once in the plain stream, after a handshake in the other."""
        if self._epochs is None:
            if (whole_end := self._whole_end()) > self._store.log_start:  # below, a plain master sends its last file
                self._cut(whole_end)
            self._report_when_flushed()
            return
        # An epoch may have been recorded for bytes that never came.
        self._epochs.cut_to(self._store.cut_incomplete())
        self._greet()

    def _greet(self) -> None:
        config = self.config
        said = Greeting(self._client.own_id(), config.begins_at_last_file, config.is_learner)
        self.send([greeting(said)])

    # What comes

    def on_bytes(self) -> None:
        size = self.receive_into(self._view)
        self.last_read_s = self.clock.monotonic_s()
        self.rate.add(size)
        for part in self._transfers.feed(self._view[:size]):
            if self.is_closed:  # what was appended may have ended our role
                return
            if isinstance(part, Body):
                self._store.append_copy(part.offset, part.content, self._on_written)
            elif isinstance(part, Head):
                self._check(part)
            else:
                self._agree(part)
        if self._confirmed >= 0:
            self._store.confirm(min(self._confirmed, self._store.log_end))
        if not self._transfers.is_inside_body:
            self._report_when_flushed()

    def _on_written(self) -> None:
        if self._transfers.is_inside_body and self._store.log_end - self._reported < _REPORT_SIZE:
            return
        try:
            self._report_when_flushed()
        except OSError as problem:
            self.close(reason_of(problem))

    def _agree(self, master: Welcome) -> None:
        """Cut what the master does not have."""
        assert self._epochs is not None
        self._is_greeted = True
        self.master_end = master.end
        own_end = self._store.log_end
        if self._epochs.entries:
            shared = self._epochs.common(master.epochs, master.end, own_end)
            if shared is None:
                raise ProtocolError(
                    f"our log, up to {own_end}, has no epoch in common with the master's: it is another one's. Stop"
                    " this broker, move its store away and start it empty"
                )
            number, end = shared
            if end < own_end:
                log.warning("log cut to where it agrees with the master's end=%d was=%d epoch=%d", end, own_end, number)
                self._client.cut_to(end)
            self._epochs.cut_to(end, number)
        if self._cut(self._whole_end()):
            self._epochs.cut_to(self._store.log_end)

    def _whole_end(self) -> int:
        """Up to where our log has no bad stretch."""
        damaged_from = self._store.recovered.damaged_from
        return self._store.log_end if damaged_from is None else damaged_from

    def _cut(self, end: int) -> bool:
        if end >= self._store.log_end:
            return False
        log.warning("log cut where it is damaged, to be copied again end=%d was=%d", end, self._store.log_end)
        self._client.cut_to(end)
        return True

    def _check(self, head: Head) -> None:
        """Whether a frame follows on what we have; its epoch is recorded before its bytes."""
        end, file_size = self._store.log_end, self._store.config.segment_size
        if head.offset != -1 and end not in (0, head.offset):
            raise ProtocolError(f"the master sends log from {head.offset} on, and ours ends at {end}")
        if head.size and head.offset % file_size + head.size > file_size:
            raise ProtocolError(
                f"the master sends {head.size} bytes of log at {head.offset}, beyond the end of a file of {file_size}."
                " Both need the same mappedFileSizeCommitLog"
            )
        if self._epochs is not None:
            self._record(self._epochs, head)
            self._confirmed = max(head.confirmed, self._confirmed)
        self.master_end = max(self.master_end, head.offset + head.size)

    def _record(self, epochs: Epochs, head: Head) -> None:
        label, last = Epoch(head.epoch, head.epoch_start), epochs.last
        # A heartbeat of Java's that has nothing to send yet has no offset, or the label of its first epoch.
        if label == last or (not head.size and (head.offset < 0 or (last is not None and label.number <= last.number))):
            return
        # Java's master labels the last piece of an epoch with the next one, which begins right behind it.
        if last is not None and label.start > max(head.offset, self._store.log_end) + head.size:
            raise ProtocolError(f"a frame at {head.offset} of epoch {label.number}, which begins at {label.start} only")
        epochs.record(label.number, label.start)

    # What goes

    def _report_when_flushed(self) -> None:
        """Report what is new; the first report has to be of all we have, for the master goes on from there."""
        store = self._store
        if not self._is_greeted or self.is_closed:
            return
        if store.reported_end < store.log_end and self._flush is None:
            self._flush = store.when_durable(store.log_end)
            self._flush.add_done_callback(self._on_flushed)
        is_first = self._reported < 0
        if store.reported_end > self._reported and (not is_first or store.reported_end == store.log_end):
            self._report()

    def _on_flushed(self, flush: asyncio.Future[None]) -> None:
        self._flush = None
        problem = None if flush.cancelled() else flush.exception()
        if self.is_closed:
            return
        if problem is not None or flush.cancelled():
            self.close(f"the log cannot be made durable: {problem}")
            return
        try:
            self._report_when_flushed()
        except OSError as error:
            self.close(reason_of(error))

    def _report(self) -> None:
        if self.is_full:
            self._is_report_due = True
            return
        self._is_report_due = False
        end = self._reported = self._store.reported_end
        self.send([plain_report(end) if self._epochs is None else report(end)])

    def on_room(self) -> None:
        if self._is_report_due:
            self._report()

    def on_silence(self) -> None:
        if self.is_full:
            return
        if not self._is_greeted:
            self._greet()
        elif self._reported >= 0:
            self._report()

    def on_closed(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


class SlaveClient:
    """Follows one master at a time, as long as it is told to. A connection that ends is made again after a pause."""

    def __init__(
        self,
        store: Store,
        config: HaConfig,
        clock: Clock,
        epochs: Epochs | None,
        own_id: Callable[[], int],
        door: Door,
    ) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.epochs = epochs
        self.own_id = own_id
        self._door = door
        self._address: str | None = None
        self._is_moved = False
        self._link: MasterLink | None = None
        self._wait: asyncio.Timeout | None = None
        self._problem = ""
        self.on_cut: list[Callable[[], None]] = []

    def cut_to(self, end: int) -> None:
        """Cut our log, and have it told before anything is stored there again."""
        self.store.cut_to(end)
        for tell in self.on_cut:
            tell()

    def follow(self, address: str | None) -> None:
        """Copy from there, from now on; the same address again changes nothing, None ends it."""
        if address == self._address:
            return
        self._address = address
        self._problem = ""
        self._is_moved = True
        if self._link is not None:
            self._link.close("another master is followed" if address else "no master is followed")
        if self._wait is not None and not self._wait.expired():
            self._wait.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Connect, copy, and again."""
        while True:
            address, self._is_moved = self._address, False
            if address is not None:
                await self._copy_from(address)
            if not self._is_moved:
                await self._pause(None if self._address is None else self.config.reconnect_pause_ms / 1000)

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds) as self._wait:
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            pass
        finally:
            self._wait = None

    async def _copy_from(self, address: str) -> None:
        try:
            wire = await self._connect(address)
        except (OSError, BolideError) as problem:
            self._note(address, reason_of(problem) if isinstance(problem, OSError) else str(problem))
            return
        if self._is_moved:
            wire.close()
            return
        try:
            link = self._link = MasterLink(wire, self)
        except OSError as problem:
            wire.close()
            self._note(address, reason_of(problem))
            return
        try:
            link.open()
            self._begin(link)
            self._note(address, await link.ended)
        finally:
            link.close("the broker stops")
            self._link = None

    def _begin(self, link: MasterLink) -> None:
        self._problem = ""
        log.info("following master=%s end=%d", link.address, self.store.log_end)
        try:
            link.begin()
        except OSError as problem:
            link.close(reason_of(problem))
        except BolideError as problem:
            link.close(str(problem))

    async def _connect(self, address: str) -> Wire:
        """A wire on which the stream may begin."""
        loop = asyncio.get_running_loop()
        host, port = split_address(address)
        reach = reach_of(port)
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S) as self._wait:
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                family, kind, protocol, _, sockaddr = found[0]
                end = socket.socket(family, kind, protocol)
                try:
                    end.setblocking(False)
                    await loop.sock_connect(end, sockaddr)
                    if reach is not None:
                        reach.note(end, port)
                except BaseException:
                    end.close()
                    raise
            async with asyncio.timeout(ENTER_LIMIT_S) as self._wait:
                return await self._door.enter(end, host)
        except TimeoutError:
            raise ProtocolError(f"no connection within {CONNECT_LIMIT_S:g} s") from None
        finally:
            self._wait = None

    def _note(self, address: str, problem: str) -> None:
        if not self._is_moved:
            self._problem = problem
            pause_s = self.config.reconnect_pause_ms / 1000
            log.warning("not following master=%s problem=%s, again in %g s", address, problem, pause_s)

    @property
    def status(self) -> FollowerStatus:
        link = self._link
        return FollowerStatus(
            address=self._address or "",
            is_connected=link is not None and not link.is_closed,
            end=self.store.log_end,
            master_end=link.master_end if link else 0,
            bytes_per_s=link.rate.bytes_per_s if link else 0,
            last_read_s=link.last_read_s if link else 0.0,
            last_written_s=link.last_written_s if link else 0.0,
            problem=self._problem,
        )
