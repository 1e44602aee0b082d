"""A whole read given to the fast path, and a session that keeps what is written to it."""

from dataclasses import dataclass, field
from typing import Any

from bolide.broker.hotpath import HotPath
from bolide.remoting.owner import Read
from tests.kernel.send_frames import bounds_of

PEER = "192.168.1.9:51234"


@dataclass(eq=False)
class Peer:
    """A session that keeps what is written to it, and how many requests are held."""

    peer: str = PEER
    written: list[bytes] = field(default_factory=list)
    held: int = 0
    frame_began_s: float = 0.0

    def push(self, frames: bytes) -> None:
        self.written.append(frames)

    def hold(self, count: int) -> None:
        self.held += count

    def release(self, count: int) -> None:
        self.held -= count


def answered(hot: HotPath, session: Any, stream: bytes, bounds: list[int] | None = None) -> tuple[bytes, list[int]]:
    """The answers to one read, and what is left of it."""
    bounds = bounds_of(stream) if bounds is None else bounds
    ((answers, left),) = hot.handle_turn([Read(session, memoryview(stream), bounds)])
    return answers, left
