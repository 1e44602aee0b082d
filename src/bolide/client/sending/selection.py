"""Which queue takes the next message: in turn, away from what failed, and, if wanted, away from what is slow.

Plain values and no clock: times come in. Ordered messages do not come here; their queue is a hash of their shard.
"""

import random
from collections.abc import Callable, Sequence

import msgspec

from bolide import kernel
from bolide.model.queue import MessageQueue

# From which latency on a broker is left alone, and for how long (5.x).
_LATENCY_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
_REST_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
_FAILURE_COUNTS_AS_MS = 10_000


def shard_queue(queues: Sequence[MessageQueue], shard: str) -> MessageQueue:
    """The queue Java's SelectMessageQueueByHash would take for the same text."""
    number = kernel.java_hash(shard)
    # Java's % keeps the sign, and then the absolute value is taken.
    return queues[abs(number) % len(queues)]


def rest_ms(latency_ms: float) -> int:
    """How long a broker with such a latency is left alone."""
    for threshold_ms, duration_ms in zip(reversed(_LATENCY_MS), reversed(_REST_MS), strict=True):
        if latency_ms >= threshold_ms:
            return duration_ms
    return 0


class _Fault(msgspec.Struct):
    available_from_s: float
    is_reachable: bool


class Selection:
    """A turn for each topic, and what is known of each broker."""

    def __init__(self, chance: random.Random, *, avoids_slow: bool = False) -> None:
        self._chance = chance
        self._avoids_slow = avoids_slow
        self._turns: dict[str, int] = {}
        self._faults: dict[str, _Fault] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], now_s: float, last_broker: str | None = None
    ) -> MessageQueue:
        """The next queue; after a failure one of another broker than `last_broker`, where there is another."""
        queue = self.next(topic, queues)
        if last_broker is None and not self._avoids_slow:
            return queue
        turn = self._turns[topic]
        for accepts in self._wishes(last_broker, now_s):
            for step in range(len(queues)):
                other = queues[(turn + step) % len(queues)]
                if accepts(other.broker_name):
                    self._turns[topic] = turn + step
                    return other
        return queue

    def next(self, topic: str, queues: Sequence[MessageQueue]) -> MessageQueue:
        """The next queue in turn, whatever is known of its broker."""
        turn = self._turns.get(topic)
        turn = self._chance.randrange(1 << 30) if turn is None else turn + 1
        self._turns[topic] = turn
        return queues[turn % len(queues)]

    def _wishes(self, last_broker: str | None, now_s: float) -> list[Callable[[str], bool]]:
        def is_other(name: str) -> bool:
            return name != last_broker

        if not self._avoids_slow:
            return [is_other]
        faults = self._faults
        return [
            lambda name: is_other(name) and (name not in faults or faults[name].available_from_s <= now_s),
            lambda name: is_other(name) and (name not in faults or faults[name].is_reachable),
        ]

    def note(self, broker: str, latency_ms: float, now_s: float, *, has_failed: bool, is_reachable: bool) -> None:
        """What an attempt showed of its broker."""
        if not self._avoids_slow:
            return
        duration_ms = rest_ms(_FAILURE_COUNTS_AS_MS if has_failed else latency_ms)
        known = self._faults.get(broker)
        until_s = now_s + duration_ms / 1000
        # A rest is made longer, never shorter: one quick answer does not prove that the trouble is over.
        self._faults[broker] = _Fault(max(until_s, known.available_from_s if known else 0.0), is_reachable)
