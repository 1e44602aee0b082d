"""A byte stream → whole frames, however the network cut it.

Sans-IO: anyone who owns the socket reads into `window()`, calls `cut(size)`, uses the frames and calls `settle()`. The
rule: memory follows bytes that are really there. A length field is believed only to refuse it; the buffer doubles when
it is full, and goes back to its small size once the large frame is out. Beyond four megabytes, which few messages have,
it is a map as long as the frame, of which the system gives the pages that are written: nothing is copied again, and all
of it goes back at once. A window takes at most `read_size`, more only inside a frame that is larger than that, and then
never beyond the end of that frame, so a cut yields little work.

Between frames a reader holds no buffer at all, and after `shrink()` the beginning of one takes its own size only:
connections that say little cost little, and readers that share a list of spare buffers pass them around. The price is
that frames are views into a buffer which the next read overwrites: what is to stay has to be copied before `settle()`.

A header has a bound of its own, far below the frame's, for anyone who reads it turns it into objects; a stream with a
larger one is refused before it has come. What clients say in headers is bounded by RocketMQ: properties of a message
have 32 KiB, which grow to some 115 KiB where half of them are separators and JSON escapes each.
"""

import mmap
from collections.abc import Iterator
from typing import cast

from bolide import kernel
from bolide.errors import ProtocolError
from bolide.protocol.command import FRAME_SIZE_MAX

READ_SIZE = 64 * 1024
HEADER_SIZE_MAX = 128 * 1024
_SPARE_COUNT_MAX = 64
_WINDOW_SIZE_MAX = 256 * 1024  # one read takes no longer than some requests
_NOWHERE = memoryview(b"")  # while no buffer is held
_MAPPED_SIZE_MIN = 4 << 20
_MAPPED_STEP_SIZE = 1 << 20  # by which what is held of a map is reckoned

# How other protocols begin. Four bytes are enough, and all of them are lengths beyond any limit.
_STRANGERS = {
    b"PRI ": "an HTTP/2 preface (gRPC belongs on the proxy's port)",
    b"GET ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"DELE": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"PATC": "an HTTP request",
    b"CONN": "an HTTP request",
    b"TRAC": "an HTTP request",
    b"HTTP": "an HTTP answer",
    b"SSH-": "an SSH greeting",
    b"PROX": "a PROXY header",
    b"\r\n\r\n": "a PROXY header",
}


_SETTINGS_FRAME = b"\x04\x00\x00\x00\x00\x00"  # type, flags and stream 0 of the frame an HTTP/2 server begins with


def unfinished(held: bytes) -> str | None:
    """What bytes are that looked like the beginning of a frame and had no end; None when nobody we know."""
    if held[3:9] == _SETTINGS_FRAME:
        return "HTTP/2, which the gRPC port of a 5.x proxy speaks; clients of the remoting protocol use another port"
    return None


def stranger(head: bytes) -> str | None:
    """What the first bytes of a stream are when they are another protocol's; None when nobody we know."""
    if head[:2] == b"\x16\x03":
        return "a TLS handshake"
    return _STRANGERS.get(bytes(head[:4]))


class FrameReader:
    """Collects the bytes of one stream and cuts the whole frames out of them."""

    __slots__ = (
        "_frame_size_max",
        "_has_large_reads",
        "_header_seen_from",
        "_header_size_max",
        "_held_size",
        "_read_size",
        "_spare",
        "_used_size",
        "problem",
        "stream",
    )

    def __init__(
        self,
        frame_size_max: int = FRAME_SIZE_MAX,
        read_size: int = READ_SIZE,
        spare: list[memoryview] | None = None,
        header_size_max: int = HEADER_SIZE_MAX,
    ) -> None:
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._header_seen_from = read_size // 2
        self._has_large_reads = read_size > header_size_max
        self._read_size = read_size
        self._spare = [] if spare is None else spare
        self.stream = _NOWHERE  # what the bounds of the last `cut` point into; gone after `settle`
        self._held_size = 0  # bytes at the front of the buffer that no cut has used up
        self._used_size = 0  # those of them that the last cut turned into frames
        self.problem: str | None = None  # why the stream can not be read any further

    @property
    def held_size(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._held_size

    @property
    def capacity(self) -> int:
        """The memory this reader holds at the moment."""
        size = len(self.stream)
        if size > _MAPPED_SIZE_MIN:
            size = min(size, -(-self._held_size // _MAPPED_STEP_SIZE) * _MAPPED_STEP_SIZE)
        return size

    def window(self) -> memoryview:
        """Where the next bytes may go: a quarter of `read_size` at least."""
        view = self.stream
        if view is _NOWHERE:
            view = self.stream = self._spare.pop() if self._spare else self._buffer()
            return view
        if len(view) < self._read_size:
            beginning, view = view, self._spare.pop() if self._spare else self._buffer()
            view[: len(beginning)] = beginning
            self.stream = view
        elif len(view) - self._held_size < self._read_size // 4:
            view = self.stream = self._larger(view)
        size = self._read_size
        if self._held_size >= size:
            missing_size = int.from_bytes(view[:4], "big") + 4 - self._held_size
            size = max(size, min(missing_size, len(view) - self._held_size, _WINDOW_SIZE_MAX))
        return view[self._held_size : self._held_size + size]

    def aside(self) -> memoryview:
        """A buffer for bytes that come while `stream` is in use; the window after that has room for them."""
        return memoryview(bytearray(self._read_size // 4))

    def cut(self, size: int) -> list[int]:
        """Take note of `size` bytes put into the window; the bounds of the whole frames now in `stream`."""
        self._held_size = held_size = self._held_size + size
        bounds, self._used_size, problem = kernel.cut_frames(self.stream, held_size, self._frame_size_max)
        if problem is not None:
            self.problem = self._explain(problem)
        elif held_size - self._used_size >= self._header_seen_from:  # any larger header comes by here unfinished
            self._check_header(self._used_size)
        if self._has_large_reads:  # else whatever came whole in one read is small enough
            return self._with_small_headers(bounds)
        return bounds

    def _check_header(self, at: int) -> None:
        size = int.from_bytes(self.stream[at + 5 : at + 8], "big")
        if size > self._header_size_max:
            self.problem = f"a header of {size} bytes, the limit is {self._header_size_max}"

    def _with_small_headers(self, bounds: list[int]) -> list[int]:
        for i in range(0, len(bounds), 2):
            if bounds[i + 1] - bounds[i] > self._header_size_max:
                self._check_header(bounds[i] - 4)
                if self.problem is not None:
                    return bounds[:i]
        return bounds

    def settle(self) -> int:
        """Forget the frames of the last cut; what is left moves to the front. Returns the memory held for it."""
        view = self.stream
        used, end = self._used_size, self._held_size
        if used == end or self.problem is not None:
            self._held_size = self._used_size = 0
            self.stream = _NOWHERE
            if len(view) == self._read_size and len(self._spare) < _SPARE_COUNT_MAX:
                self._spare.append(view)  # as `_release` does: nearly every read passes here
            return 0
        self._held_size = end - used
        self._used_size = 0
        if used:
            target = view if len(view) == self._read_size or end - used >= self._read_size else self._buffer()
            target[: end - used] = view[used:end]
            self.stream = target
        return self.capacity

    def shrink(self) -> None:
        """Keep a small beginning of a frame in a buffer of its own size; the next window takes a large one again."""
        assert not self._used_size, "what was cut is settled first"
        view = self.stream
        if view is not _NOWHERE and self._held_size < self._read_size // 4:
            beginning = bytes(view[: self._held_size])
            self._release(view)
            # Until the next window copies it, it is only measured and shown: a view would be ten times its size.
            self.stream = cast(memoryview, beginning)

    @property
    def held(self) -> bytes:
        """The first bytes of a frame that is not whole yet."""
        return bytes(self.stream[self._used_size : self._held_size][:16])

    def close(self) -> None:
        """The stream has ended: forget what is left of it and give the buffer back."""
        self._held_size = self._used_size = 0
        self._release(self.stream)

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """The frames that `chunk` completes, without their length; a broken stream raises after the last good one."""
        rest = memoryview(chunk)
        while len(rest) and self.problem is None:
            window = self.window()
            size = min(len(rest), len(window))
            window[:size] = rest[:size]
            rest = rest[size:]
            bounds = self.cut(size)
            frames = [bytes(self.stream[bounds[i] : bounds[i + 1]]) for i in range(0, len(bounds), 2)]
            self.settle()
            yield from frames
        if self.problem is not None:
            raise ProtocolError(self.problem)

    def _buffer(self) -> memoryview:
        return memoryview(bytearray(self._read_size))

    def _larger(self, view: memoryview) -> memoryview:
        size = 2 * len(view)
        if size <= _MAPPED_SIZE_MIN:
            larger = memoryview(bytearray(min(size, self._frame_size_max + self._read_size)))
        else:  # the frame at the front is the one that has no room, and its length was found good
            frame_size = 4 + int.from_bytes(view[:4], "big")
            larger = memoryview(mmap.mmap(-1, frame_size + self._read_size, flags=mmap.MAP_PRIVATE))
        larger[: self._held_size] = view[: self._held_size]
        return larger

    def _release(self, view: memoryview) -> None:
        self.stream = _NOWHERE
        if len(view) == self._read_size and len(self._spare) < _SPARE_COUNT_MAX:
            self._spare.append(view)

    def _explain(self, problem: str) -> str:
        name = stranger(bytes(self.stream[self._used_size : self._used_size + 4]))
        return problem if name is None else f"{name} on a port of RocketMQ's remoting protocol"
