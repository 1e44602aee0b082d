"""Guessing is slow: after some failures the refusals of an address come late, one after the other.

A right signature is never delayed, so an honest client beside a guesser does not feel it. What is kept is bounded: so
many addresses, and of each two numbers. When refusals of one address already wait for as long as that may be, its
connection is closed instead. Of IPv6 a whole network of 64 bits is one address: anybody who has one has all of it.
"""

from ipaddress import IPv6Address, ip_address, ip_network

from bolide.clock import Clock

FREE_COUNT = 20  # failures that cost nothing: a client with a wrong secret says so at once
STEP_S = 0.1  # between two refusals after that: ten guesses a second
WAIT_MAX_S = 5.0
FORGIVEN_S = 60.0  # an address that was silent for so long begins again
ADDRESSES_MAX = 4_096


class Guesses:
    """The failures of each address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}  # count, and when the last refusal leaves; the oldest first

    def __len__(self) -> int:
        return len(self._failed)

    def delay_s(self, host: str) -> float | None:
        """How long the refusal of one more failure waits; None if too many wait already."""
        now_s, origin = self._clock.monotonic_s(), _origin(host)
        count, free_s = self._failed.pop(origin, (0, now_s))
        if now_s - free_s > FORGIVEN_S:
            count = 0
        count += 1
        due_s = max(free_s, now_s) + STEP_S if count > FREE_COUNT else now_s
        is_over = due_s - now_s > WAIT_MAX_S
        self._failed[origin] = count, free_s if is_over else due_s
        if len(self._failed) > ADDRESSES_MAX:
            self._failed.pop(next(iter(self._failed)))
        return None if is_over else due_s - now_s


def _origin(host: str) -> str:
    """Whom a failure is counted against."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))
