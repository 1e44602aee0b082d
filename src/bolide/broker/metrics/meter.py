"""What the broker counts only if its metrics are shown: by topic and kind, by request and answer.

The fast path notes its sends once a turn of the loop, as the kernel has added them up, and pulls once each (`told`).
All of that is kept as it is told, and counted when there is much of it, when a turn took a millisecond or more
(`count_turn`), or when somebody looks (`catch_up`): a counter costs more than the note that it is to grow. A turn takes
from its first read, whose time the session has noted, to its answers: the clock is asked once.
Everything that is served one by one passes through `answered`. What `Stats` counts anyway is not counted twice:
messages that went out, and dead letters.

Names come from strangers. Topics are those where something was stored, and go when they are deleted (`forget_topic`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bolide.kernel.layout import SIZE_BOUNDS, SentTally
from bolide.metrics.page import Page
from bolide.metrics.values import Histogram
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.owner import Request
from bolide.remoting.request_times import RequestTimes

CREATE_MS_BOUNDS = (10, 100, 1_000, 3_000, 5_000)
FINISH_S_BOUNDS = (5, 60, 600, 3_600, 43_200, 86_400)
DELAY_S_BOUNDS = (60, 600, 3_600, 43_200, 86_400, 259_200)
_SUCCESS = int(ResponseCode.SUCCESS)
TOLD_MAX = 1_024  # before it is counted
QUICK_S = 0.001  # a turn that is shorter took 0 ms
_FEW = 4  # are counted one by one

K = TypeVar("K")
V = TypeVar("V")
PutKey = tuple[str, str, str]  # group, topic, what was stored


@dataclass(slots=True)
class SentCounts:
    """Messages of one topic and kind."""

    count: int = 0
    size: int = 0
    sizes: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS))


class Meter:
    """The counters."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.sent: dict[tuple[str, int], SentCounts] = {}
        self.requests = RequestTimes(now_s)
        self.beside: Callable[[], Page] | None = None  # what the gRPC port beside the broker counts
        self.topic_creations: dict[tuple[bool, bool], Histogram] = {}  # whether it went well, and is of a system topic
        self.group_creations: dict[bool, Histogram] = {}
        self.commits: dict[str, int] = {}
        self.rollbacks: dict[str, int] = {}
        self.finishes: dict[str, Histogram] = {}
        self.filed: dict[str, int] = {}
        self.timed: dict[str, int] = {}
        self.delays: dict[str, Histogram] = {}
        self.revive_puts: dict[PutKey, int] = {}
        self.revivals: dict[tuple[str, str], int] = {}
        # What was told and is not counted: of sends what the kernel added up, of pulls the codes of request and answer.
        # The fast path adds to it itself, for a call would be the larger part of the cost.
        self.told: list[SentTally | tuple[int, int]] = []
        self.told_before = 0  # how much of it in turns that were over in no time
        self._stored: list[SentTally] = []  # of sends whose answers wait: their times are told by themselves

    # The fast path

    def stored_in_turn(self, tallies: Sequence[SentTally]) -> None:
        """The kernel stored this, and the answers wait for the disk or for replicas (`answered_later`)."""
        self._stored += tallies
        if len(self._stored) >= TOLD_MAX:
            self._count_stored()

    def count_turn(self, took_s: float) -> None:
        """All requests of a turn of the loop are answered, and it took long, or much was told."""
        self._count(self.told[self.told_before :], int(took_s * 1000))
        del self.told[self.told_before :]
        self.catch_up()

    def catch_up(self) -> None:
        """Count what was told and is not counted yet."""
        if self.told:
            self._count(self.told, 0)
            self.told.clear()
            self.told_before = 0
        if self._stored:
            self._count_stored()

    def _count_stored(self) -> None:
        self._count_sent([(tally, 1) for tally in self._stored])
        self._stored.clear()

    def _count(self, told: Sequence[SentTally | tuple[int, int]], took_ms: int) -> None:
        tallies: list[tuple[SentTally, int]] = []
        for each, times in Counter(told).items() if len(told) > _FEW else [(each, 1) for each in told]:
            if len(each) == 2:
                self.requests.add(took_ms, each[0], each[1], times)
            else:
                tallies.append((each, times))
        for code, request_count in self._count_sent(tallies):
            self.requests.add(took_ms, code, _SUCCESS, request_count)

    def _count_sent(self, tallies: Sequence[tuple[SentTally, int]]) -> list[tuple[int, int]]:
        """Count messages, each tally as often as it is told; returns codes and how many requests had them."""
        sums: dict[tuple[str, int, int, int], list[int]] = {}  # topic, kind, code and step of size → what is added up
        for (topic, count, size, kind, code, step, request_count), times in tallies:
            found = sums.setdefault((topic, kind, code, step), [0, 0, 0, 0])
            found[0] += count * times
            found[1] += size * times
            found[2] += size // count * request_count * times
            found[3] += request_count * times
        for (topic, kind, _, step), (count, size, mean_size, request_count) in sums.items():
            counts = self.sent.setdefault((topic, kind), SentCounts())
            counts.count += count
            counts.size += size
            counts.sizes.add_within(step, request_count, mean_size)
        return [(code, found[3]) for (_, _, code, _), found in sums.items()]

    def answered_later(self, code: int, answer: int, count: int, began_s: float) -> None:
        """Sends of a turn whose answers had to wait."""
        took_ms = int((self._now_s() - began_s) * 1000)
        self.requests.add(took_ms, code, answer, count)

    # One by one

    def answered(self, request: Request, answer: int) -> None:
        """A request has its answer, or would have it if it were not one-way."""
        took_ms = self.requests.answered(request, answer)
        code = request.command.code
        if code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            is_system = is_system_topic(request.command.fields.get("topic", ""))
            _histogram(self.topic_creations, (answer == _SUCCESS, is_system), CREATE_MS_BOUNDS).add(took_ms)
        elif code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            _histogram(self.group_creations, answer == _SUCCESS, CREATE_MS_BOUNDS).add(took_ms)

    def sent_one(self, topic: str, kind: int, count: int, size: int) -> None:
        """One request stored messages; those for retry and dead-letter topics are not counted, as in RocketMQ."""
        if not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            self._store(topic, kind, count, size)

    def delivered(self, topic: str, kind: int, count: int, size: int) -> None:
        """Messages that waited for a delay level are where they belong."""
        self._store(topic, kind, count, size)

    def _store(self, topic: str, kind: int, count: int, size: int) -> None:
        counts = self.sent.setdefault((topic, kind), SentCounts())
        counts.count += count
        counts.size += size
        counts.sizes.add(size // count)

    # What waits

    def ended(self, topic: str, *, is_commit: bool, age_ms: int) -> None:
        """A transaction has ended, so long after its half message was born."""
        table = self.commits if is_commit else self.rollbacks
        table[topic] = table.get(topic, 0) + 1
        if is_commit:
            _histogram(self.finishes, topic, FINISH_S_BOUNDS).add(max(0, age_ms) // 1000)

    def file(self, topic: str, count: int) -> None:
        """Timed messages are on the wheel."""
        self.filed[topic] = self.filed.get(topic, 0) + count

    def wait(self, topic: str, delay_ms: int) -> None:
        """A timed message is to wait so long."""
        _histogram(self.delays, topic, DELAY_S_BOUNDS).add(max(0, delay_ms) // 1000)

    def deliver(self, topic: str, count: int) -> None:
        """Timed messages were delivered."""
        self.timed[topic] = self.timed.get(topic, 0) + count

    def put_revive(self, group: str, topic: str, kind: str) -> None:
        """A record of a popped message, or of its acknowledgement, was stored."""
        key = group, topic, kind
        self.revive_puts[key] = self.revive_puts.get(key, 0) + 1

    def revive(self, group: str, topic: str) -> None:
        """A popped message came back."""
        self.revivals[group, topic] = self.revivals.get((group, topic), 0) + 1

    def forget_topic(self, topic: str) -> None:
        """It is gone, and so are its counters."""
        self.catch_up()
        _forget(self.sent, lambda key: key[0] == topic)
        _forget(self.revive_puts, lambda key: key[1] == topic)
        _forget(self.revivals, lambda key: key[1] == topic)
        for counts in (self.commits, self.rollbacks, self.filed, self.timed):
            counts.pop(topic, None)
        for histograms in (self.finishes, self.delays):
            histograms.pop(topic, None)


def _histogram(table: dict[K, Histogram], key: K, bounds: Sequence[float]) -> Histogram:
    found = table.get(key)
    if found is None:
        found = table[key] = Histogram(bounds)
    return found


def _forget(table: dict[K, V], is_meant: Callable[[K], bool]) -> None:
    for key in [key for key in table if is_meant(key)]:
        del table[key]
