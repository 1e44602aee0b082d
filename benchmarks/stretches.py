"""How long does a server's loop work without a pause? Runs a command of `bolide` and notes all such stretches.

On a machine that others use too, the latency of a client says as much about them as about the server. The processor
time that the loop's thread takes between two looks of a timer, a millisecond apart, is the server's own: nobody on the
loop is served meanwhile. From all of them follows how long somebody has to wait who comes at any moment (`wait_s`): who
comes within a stretch waits for its end. The file has the longest, and how many there were of each length and their
sum; whoever reads it may begin anew.

    python -m benchmarks.stretches FILE up --port 0
"""

import asyncio
import math
import mmap
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bolide.cli.main import main as run_command

_LOOK_S = 0.001
_BIN_COUNT = 64
_BIN_FIRST_S = 0.00005
_BIN_STEP = 1.2  # each bin is so many times as wide as the one before
_NUMBERS = struct.Struct(f"<{1 + 2 * _BIN_COUNT}d")


def wait_s(stretches: Sequence[tuple[float, float]], span_s: float, share: float) -> float:
    """So long, or less, waits this share of those who come at any moment of a span, by counts and sums of stretches."""
    low_s, high_s = 0.0, max((total_s / count for count, total_s in stretches if count), default=0.0)
    for _ in range(40):
        middle_s = (low_s + high_s) / 2
        late_s = sum(max(total_s - count * middle_s, 0.0) for count, total_s in stretches)
        low_s, high_s = (middle_s, high_s) if late_s > (1 - share) * span_s else (low_s, middle_s)
    return high_s


class Stretches:
    """The file, seen from both sides."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_NUMBERS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBERS.size)
        self._numbers = memoryview(self._map).cast("d")
        self._began_s = time.monotonic()

    def begin(self) -> None:
        """Forget what was noted."""
        self._map[:] = bytes(_NUMBERS.size)
        self._began_s = time.monotonic()

    @property
    def longest_s(self) -> float:
        return float(self._numbers[0])

    def wait_s(self, share: float) -> float:
        """How long this share of those waits at most who come at any moment since the beginning."""
        numbers = self._numbers
        bins = [(numbers[1 + 2 * at], numbers[2 + 2 * at]) for at in range(_BIN_COUNT)]
        return wait_s(bins, time.monotonic() - self._began_s, share)

    def note(self, took_s: float) -> None:
        numbers = self._numbers
        numbers[0] = max(numbers[0], took_s)
        at = int(math.log(max(took_s, _BIN_FIRST_S) / _BIN_FIRST_S, _BIN_STEP))
        at = min(at, _BIN_COUNT - 1)
        numbers[1 + 2 * at] += 1
        numbers[2 + 2 * at] += took_s

    def look(self, loop: asyncio.AbstractEventLoop, before_s: float) -> None:
        now_s = time.thread_time()
        self.note(now_s - before_s)
        loop.call_later(_LOOK_S, self.look, loop, now_s)


def main(path: str, *command: str) -> None:
    stretches, make_loop = Stretches(Path(path)), uvloop.new_event_loop

    def make_watched_loop() -> uvloop.Loop:
        loop = make_loop()
        loop.call_soon(stretches.look, loop, time.thread_time())
        return loop

    uvloop.new_event_loop = make_watched_loop
    sys.argv[1:] = command
    run_command()


if __name__ == "__main__":
    main(*sys.argv[1:])
