"""How replication stands, as values for request 907 and `bolide cluster`."""

from dataclasses import dataclass

from bolide.clock import Clock


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave as its master sees it. Moments are seconds of the steady clock."""

    address: str
    slave_id: int | None  # None in the plain stream
    is_learner: bool
    is_in_transfer: bool  # it has said where to begin
    acked_end: int
    sent_end: int
    lag_size: int
    lag_ms: int  # since it last had everything
    caught_up_s: float  # when it last had everything
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """How a slave copies. Without a master its address is empty."""

    address: str
    is_connected: bool
    end: int
    master_end: int  # as far as it is known
    bytes_per_s: int
    last_read_s: float
    last_written_s: float
    problem: str  # why it is not connected


class Rate:
    """Bytes in this second and in the one before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._size = self._size_before = 0

    def add(self, size: int) -> None:
        self._turn()
        self._size += size

    @property
    def size_now(self) -> int:
        """Since this second began."""
        self._turn()
        return self._size

    @property
    def bytes_per_s(self) -> int:
        """In the last full second."""
        self._turn()
        return self._size_before

    def _turn(self) -> None:
        second = int(self._clock.monotonic_s())
        if second != self._second:
            self._size_before = self._size if second == self._second + 1 else 0
            self._second, self._size = second, 0
