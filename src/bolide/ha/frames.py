"""The two streams between a master and its slaves, to the byte. No socket, no loop, no clock.

    plain        slave → master   end q
                 master → slave   offset q, size i, bytes of the log

    AutoSwitch   slave → master   1 i, from last file h, learner h, id q           once, then
                                  2 i, end q
                 master → slave   1 i, 12·n i, end q, last epoch i, n × (epoch i, start q)    once, then
                                  2 i, size i, offset q, epoch i, its start q, confirmed q, bytes of the log

Size 0 is a heartbeat. Numbers are big-endian and signed. The readers take a stream that is cut anywhere, and give the
bytes of the log on as they come: a frame is never gathered, so no length that a peer claims costs memory.
What breaks the rules is a ProtocolError, and the connection is closed.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from bolide.errors import ProtocolError

HANDSHAKE = 1
TRANSFER = 2
EPOCHS_MAX = 1_000  # as many as Java's master has room for

_PLAIN_REPORT = Struct(">q")
_PLAIN_HEAD = Struct(">qi")
_STATE = Struct(">i")
_GREETING = Struct(">ihhq")
_REPORT = Struct(">iq")
_WELCOME = Struct(">iiqi")
_EPOCH = Struct(">iq")
_HEAD = Struct(">iiqiqq")


class Epoch(NamedTuple):
    """A term of one master: its number, and where the log ended when the term began."""

    number: int
    start: int


class Greeting(NamedTuple):
    """What a slave of the AutoSwitch stream says first."""

    slave_id: int
    begins_at_last_file: bool = False
    is_learner: bool = False


class Welcome(NamedTuple):
    """What its master answers: where its log ends, and all its epochs."""

    end: int
    epochs: tuple[Epoch, ...]


class Head(NamedTuple):
    """What stands before bytes of the log. The plain stream has no epochs and confirms nothing: -1."""

    offset: int
    size: int
    epoch: int = -1
    epoch_start: int = -1
    confirmed: int = -1


class Body(NamedTuple):
    """Bytes of the log, or some of a frame's; a view of what was read, valid until more is."""

    offset: int
    content: memoryview


def plain_report(end: int) -> bytes:
    return _PLAIN_REPORT.pack(end)


def plain_head(head: Head) -> bytes:
    return _PLAIN_HEAD.pack(head.offset, head.size)


def report(end: int) -> bytes:
    return _REPORT.pack(TRANSFER, end)


def greeting(given: Greeting) -> bytes:
    return _GREETING.pack(HANDSHAKE, given.begins_at_last_file, given.is_learner, given.slave_id)


def welcome(end: int, epochs: Sequence[Epoch]) -> bytes:
    """Of more epochs than fit the newest are told: a slave looks for a common one from its newest down."""
    told = epochs[-EPOCHS_MAX:]
    last = told[-1].number if told else -1
    return _WELCOME.pack(HANDSHAKE, _EPOCH.size * len(told), end, last) + b"".join(_EPOCH.pack(*each) for each in told)


def head(given: Head) -> bytes:
    return _HEAD.pack(TRANSFER, given.size, given.offset, given.epoch, given.epoch_start, given.confirmed)


class PlainReports:
    """The master's reader of the plain stream: 8 bytes are a report, whatever they are."""

    def __init__(self) -> None:
        self._part = b""

    def feed(self, chunk: bytes) -> list[int]:
        """The reports that are complete now."""
        stream = self._part + chunk if self._part else chunk
        whole = len(stream) - len(stream) % _PLAIN_REPORT.size
        self._part = stream[whole:]
        return [end for (end,) in _PLAIN_REPORT.iter_unpack(stream[:whole])]


class Reports:
    """The master's reader of the AutoSwitch stream. A greeting may come again while it was not answered."""

    def __init__(self) -> None:
        self._part = b""

    def feed(self, chunk: bytes) -> Iterator[Greeting | int]:
        """The greetings and reports that are complete now."""
        stream, at = self._part + chunk, 0
        self._part = b""
        while len(stream) - at >= _STATE.size:
            (state,) = _STATE.unpack_from(stream, at)
            if state not in (HANDSHAKE, TRANSFER):
                raise ProtocolError(f"a slave in state {state}; only HANDSHAKE (1) and TRANSFER (2) are known")
            size = _GREETING.size if state == HANDSHAKE else _REPORT.size
            if len(stream) - at < size:
                break
            if state == HANDSHAKE:
                _, begins_at_last_file, is_learner, slave_id = _GREETING.unpack_from(stream, at)
                yield Greeting(slave_id, begins_at_last_file == 1, is_learner == 1)
            else:
                yield _REPORT.unpack_from(stream, at)[1]
            at += size
        self._part = stream[at:]


class Transfers:
    """The slave's reader of both streams; in AutoSwitch one welcome comes first, and never again."""

    def __init__(self, is_plain: bool) -> None:
        self._is_plain = is_plain
        self._is_welcomed = is_plain
        self._part = bytearray()
        self._wanted_size = _PLAIN_HEAD.size if is_plain else _WELCOME.size
        self._offset = 0
        self._left_size = 0  # of the body that is being read

    @property
    def is_inside_body(self) -> bool:
        """Whether more of the same frame is to come."""
        return self._left_size > 0

    def feed(self, chunk: memoryview) -> Iterator[Welcome | Head | Body]:
        """What is complete now; of a body whatever has come."""
        at, end = 0, len(chunk)
        while at < end:
            if self._left_size:
                size = min(self._left_size, end - at)
                offset, self._offset, self._left_size = self._offset, self._offset + size, self._left_size - size
                yield Body(offset, chunk[at : at + size])
            else:
                size = min(self._wanted_size - len(self._part), end - at)
                self._part += chunk[at : at + size]
                if len(self._part) == self._wanted_size and (found := self._complete()) is not None:
                    yield found
            at += size

    def _complete(self) -> Welcome | Head | None:
        """What the gathered bytes are; None where more are needed to tell."""
        part = bytes(self._part)
        if not self._is_welcomed:
            size = _welcome_size(part)
            if len(part) < size:
                self._wanted_size = size
                return None
            self._is_welcomed, self._wanted_size = True, _HEAD.size
            self._part.clear()
            return _welcome_of(part)
        self._part.clear()
        found = Head(*_PLAIN_HEAD.unpack(part)) if self._is_plain else _head_of(part)
        if found.size < 0 or (found.offset < 0 and found.size) or found.offset < -1:
            raise ProtocolError(f"a frame of {found.size} bytes at offset {found.offset}")
        self._offset, self._left_size = found.offset, found.size
        return found


def _head_of(part: bytes) -> Head:
    state, size, offset, epoch, epoch_start, confirmed = _HEAD.unpack(part)
    if state != TRANSFER:
        raise ProtocolError(f"a master in state {state} where log was to come (TRANSFER, 2)")
    return Head(offset, size, epoch, epoch_start, confirmed)


def _welcome_size(part: bytes) -> int:
    state, size, _, _ = _WELCOME.unpack_from(part)
    if state != HANDSHAKE:
        raise ProtocolError(f"a master in state {state} where its epochs were to come (HANDSHAKE, 1)")
    if size < 0 or size % _EPOCH.size or size > EPOCHS_MAX * _EPOCH.size:
        raise ProtocolError(
            f"epochs of a master that take {size} bytes; at most {EPOCHS_MAX} of {_EPOCH.size} are read"
        )
    return _WELCOME.size + int(size)


def _welcome_of(part: bytes) -> Welcome:
    _, _, end, _ = _WELCOME.unpack_from(part)
    epochs = tuple(Epoch(*each) for each in _EPOCH.iter_unpack(part[_WELCOME.size :]))
    check_order(epochs)
    if end < 0:
        raise ProtocolError(f"a master whose log ends at {end}")
    return Welcome(end, epochs)


def check_order(epochs: Sequence[Epoch]) -> None:
    """Raises ProtocolError unless numbers grow and starts do not fall."""
    if epochs and min(epochs[0]) < 0:
        raise ProtocolError(f"epoch {epochs[0].number} that starts at {epochs[0].start}")
    for older, newer in pairwise(epochs):
        if newer.number <= older.number or newer.start < older.start:
            raise ProtocolError(f"epoch {older.number} at {older.start} is followed by {newer.number} at {newer.start}")
