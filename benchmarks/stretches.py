"""How long does a server's loop work without a pause? Runs a command of `bolide` and notes the longest such stretch.

On a machine that others use too, the latency of a client says as much about them as about the server. The processor
time that the loop's thread takes between two looks of a timer, a millisecond apart, is the server's own: nobody on the
loop is served meanwhile. The longest is kept in a file of eight bytes; whoever reads it may set it to zero.

    python -m benchmarks.stretches FILE up --port 0
"""

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path

import uvloop

from bolide.cli.main import main as run_command

_LOOK_S = 0.001
_NUMBER = struct.Struct("<d")


class Stretches:
    """The file, seen from both sides."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_NUMBER.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBER.size)

    @property
    def longest_s(self) -> float:
        (longest_s,) = _NUMBER.unpack(self._map[:])
        return float(longest_s)

    @longest_s.setter
    def longest_s(self, value_s: float) -> None:
        self._map[:] = _NUMBER.pack(value_s)

    def look(self, loop: asyncio.AbstractEventLoop, before_s: float) -> None:
        now_s = time.thread_time()
        if now_s - before_s > self.longest_s:
            self.longest_s = now_s - before_s
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
