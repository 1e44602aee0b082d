"""How much a peer may do that costs us and is no work: a number that grows with time and with real work.

HTTP/2 has frames that cost the sender some bytes and the receiver more: a stream that is opened and reset, a ping, a
setting, an empty piece of data. Each is right in itself, so only their number tells a flood from a client.
"""


class Allowance:
    """What is left of it; never more than `count_max`."""

    __slots__ = ("_at_s", "_left", "count_max", "per_s")

    def __init__(self, count_max: float, per_s: float, now_s: float) -> None:
        self.count_max = count_max
        self.per_s = per_s
        self._left = count_max
        self._at_s = now_s

    def earn(self, count: float) -> None:
        """The peer did something that brings such frames with it."""
        self._left = min(self._left + count, self.count_max)

    def spend(self, now_s: float) -> bool:
        """One more; false if there was none left."""
        self.earn((now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        self._left -= 1
        return self._left >= 0
