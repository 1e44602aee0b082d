"""How much came in and went out: totals, and rates over the last minute, hour and day.

The hot path adds plain integers once per batch and reads no clock. A timer (`sample_forever`) notes the totals every
ten seconds, ten minutes and hour; a rate is the live total less the one noted at the start of its window. So the newest
messages count at once, where RocketMQ shows them up to one sampling step late. A counter that stood still is not noted,
and one that stood still for a day is forgotten: what an idle topic costs is one comparison every ten seconds.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from bolide.clock import Clock
from bolide.protocol.bodies.brokers import BrokerStats, StatsItem

TICK_S = 10
_CHUNK = 1000  # counters noted in one go before others on the loop have their turn
_TICKS_OF_STEP = (1, 60, 360)  # 10 s, 10 min, 1 h
_STEPS_OF_WINDOW = (6, 6, 24)  # 1 min, 1 h, 1 day
_MINUTE, _HOUR, _DAY = range(3)
_TOOK_MS_BOUNDS = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_TOOK_NAMES = ("0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s",
               "4~5s", "5~10s", "10s~")  # fmt: skip

Sample = tuple[int, int, int, int]  # number of the step, then count, size and times at that moment


class Moment(NamedTuple):
    """The broker's totals at a time."""

    at_s: float
    put_count: float
    found_count: float
    missed_count: float
    got_count: float
    filed_count: float
    timed_count: float


class Flow:
    """What passed one point: how many messages, how many bytes, on how many occasions."""

    __slots__ = ("count", "noted", "size", "times")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.times = 0
        self.noted: tuple[list[Sample], list[Sample], list[Sample]] = ([], [], [])

    def note(self, level: int, step: int) -> None:
        """Remember the totals if they moved; keeps one sample from before the window."""
        samples = self.noted[level]
        if self.times != (samples[-1][3] if samples else 0):
            samples.append((step, self.count, self.size, self.times))
        first = step - _STEPS_OF_WINDOW[level]
        while len(samples) > 1 and samples[1][0] <= first:
            del samples[0]

    def at(self, level: int, step: int) -> Sample:
        """The totals at the start of a window."""
        found: Sample = (step, 0, 0, 0)
        for sample in self.noted[level]:
            if sample[0] > step:
                break
            found = sample
        return found


IsKnown = Callable[[str], bool]


def _any(name: str) -> bool:
    return True


class Stats:
    """The broker's counters; `sample_forever` is a task of the broker.

    Only what is here has counters of its own, as the two functions say: names come from strangers, in properties too.
    """

    def __init__(self, clock: Clock, is_topic: IsKnown = _any, is_group: IsKnown = _any) -> None:
        self._clock = clock
        self._is_topic = is_topic
        self.forgets_idle = True  # not where metrics are shown: a counter there never goes back
        self._is_group = is_group
        self.booted_ms = clock.now_ms()
        self.put_total = Flow()
        self.got_total = Flow()
        self.missed_count = 0
        self.filed_count = 0  # timed messages that began to wait
        self.timed_count = 0  # and those whose time came
        self.took_max_ms = 0
        self._took_counts = [0] * len(_TOOK_NAMES)
        self._puts: dict[str, Flow] = {}
        self._gots: dict[tuple[str, str], Flow] = {}
        self._acks: dict[tuple[str, str], Flow] = {}
        self._sent_back: dict[tuple[str, str], Flow] = {}
        self._dead: dict[tuple[str, str], Flow] = {}
        self._ticks = 0
        # When each step of a window began; the first is the start of the broker.
        self._began_s = tuple(deque([clock.monotonic_s()], maxlen=steps + 1) for steps in _STEPS_OF_WINDOW)
        self._moments = deque([self._moment()], maxlen=1 + 600 // TICK_S)
        self._day = _local_day(self.booted_ms)
        self.put_mornings = (0, 0)  # totals at the last two midnights
        self.got_mornings = (0, 0)

    def put(self, topic: str, count: int, size: int) -> None:
        """Messages of one topic were stored; `size` is what they take in the log."""
        self.put_all(((topic, count, size),))

    def put_all(self, tallies: Iterable[tuple[str, int, int, *tuple[int, ...]]]) -> int:
        """The same for several topics; returns how many messages those are. Every turn of the loop passes here."""
        total, puts, before = self.put_total, self._puts, self.put_total.count
        for tally in tallies:
            topic, count, size = tally[0], tally[1], tally[2]
            flow = puts.get(topic)
            if flow is None:
                flow = Flow()
                if self._is_topic(topic):
                    puts[topic] = flow
            flow.count += count
            flow.size += size
            flow.times += count
            total.count += count
            total.size += size
        total.times += total.count - before
        return total.count - before

    def took(self, count: int, took_ms: int) -> None:
        """This many messages took that long to be stored, with the wait for the disk if there was one."""
        self._took_counts[bisect_left(_TOOK_MS_BOUNDS, took_ms)] += count
        if took_ms > self.took_max_ms:
            self.took_max_ms = took_ms

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """One pull or pop handed out messages."""
        flow = self._gots.get((topic, group))
        if flow is None:
            self._add(self._gots, (topic, group), count, size)
        else:  # as `_add` does: every pull passes here
            flow.count += count
            flow.size += size
            flow.times += 1
        total = self.got_total
        total.count += count
        total.size += size
        total.times += 1

    def missed(self) -> None:
        """One pull or pop found nothing."""
        self.missed_count += 1

    def acked(self, group: str, topic: str, count: int) -> None:
        """Popped messages were settled."""
        self._add(self._acks, (topic, group), count, 0)

    def sent_back(self, group: str, topic: str, count: int = 1) -> None:
        """Messages of a topic were given back for a later attempt."""
        self._add(self._sent_back, (topic, group), count, 0)

    def died(self, group: str, topic: str, count: int = 1) -> None:
        """Messages of a topic went to the group's dead letters."""
        self._add(self._dead, (topic, group), count, 0)

    def _add(self, table: dict[tuple[str, str], Flow], key: tuple[str, str], count: int, size: int) -> None:
        flow = table.get(key)
        if flow is None:
            flow = Flow()
            if self._is_topic(key[0]) and self._is_group(key[1]):
                table[key] = flow
        flow.count += count
        flow.size += size
        flow.times += 1

    def forget_topic(self, topic: str) -> None:
        """The topic is gone, and so are its counters; the totals stay."""
        self._puts.pop(topic, None)
        for table in self._of_groups():
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def forget_group(self, group: str) -> None:
        """The group is gone, and so are its counters; the totals stay."""
        for table in self._of_groups():
            for key in [key for key in table if key[1] == group]:
                del table[key]

    def _of_groups(self) -> tuple[dict[tuple[str, str], Flow], ...]:
        return self._gots, self._acks, self._sent_back, self._dead

    def put_rate(self, topic: str) -> float:
        """Messages stored a second over the last minute."""
        return self._item(self._puts.get(topic), _MINUTE, 0).tps

    def got_rate(self, group: str, topic: str) -> float:
        """Messages handed out a second over the last minute."""
        return self._item(self._gots.get((topic, group)), _MINUTE, 0).tps

    def view(self, name: str, key: str, cluster: str) -> BrokerStats | None:
        """What RocketMQ calls statsName and statsKey, as request 315 asks; None if there is no such counter."""
        field = 1 if name.endswith("_SIZE") else 0
        flow = self._find(name, key, cluster)
        if flow is None:
            return None
        day, hour, minute = (self._item(flow, level, field) for level in (_DAY, _HOUR, _MINUTE))
        return BrokerStats(stats_day=day, stats_hour=hour, stats_minute=minute)

    def _find(self, name: str, key: str, cluster: str) -> Flow | None:
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            return self._puts.get(key)
        if name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            return (self.put_total if name == "BROKER_PUT_NUMS" else self.got_total) if key == cluster else None
        topic, _, group = key.partition("@")
        table = self._table(name)
        return None if table is None else table.get((topic, group))

    def _table(self, name: str) -> dict[tuple[str, str], Flow] | None:
        tables = {
            "GROUP_GET_NUMS": self._gots,
            "GROUP_GET_SIZE": self._gots,
            "GROUP_ACK_NUMS": self._acks,
            "SNDBCK_PUT_NUMS": self._sent_back,
            "DLQ_PUT_NUMS": self._dead,
        }
        return tables.get(name)

    def by_group(self, name: str) -> list[tuple[tuple[str, str], Flow]]:
        """Topic and group with what passed, of all counters that RocketMQ calls so."""
        return list((self._table(name) or {}).items())

    def _item(self, flow: Flow | None, level: int, field: int) -> StatsItem:
        if flow is None:
            return StatsItem()
        began_s = self._began_s[level]
        step = self._ticks // _TICKS_OF_STEP[level] - (len(began_s) - 1)
        before = flow.at(level, step)
        total = (flow.count, flow.size)[field] - before[1 + field]
        times = flow.times - before[3]
        # A broker that just started has no rate worth the name: the first second counts whole.
        elapsed_s = max(1.0, self._clock.monotonic_s() - began_s[0])
        return StatsItem(sum=total, tps=total / elapsed_s, avgpt=total / times if times else 0.0)

    def rates(self, over_s: int) -> Moment:
        """What passed a second, over the last 10, 60 or 600 seconds or the life of the broker; `at_s` is the span."""
        now = self._moment()
        before = next((moment for moment in reversed(self._moments) if now.at_s - moment.at_s >= over_s), None)
        before = before or self._moments[0]
        span_s = max(1.0, now.at_s - before.at_s)
        return Moment(span_s, *((late - early) / span_s for late, early in zip(now[1:], before[1:], strict=True)))

    def took_text(self) -> str:
        """How many messages were stored how fast, as RocketMQ writes it."""
        return " ".join(f"[{name}]:{count}" for name, count in zip(_TOOK_NAMES, self._took_counts, strict=True))

    def took_below_ms(self, share: float) -> int:
        """That share of all messages was stored within this many milliseconds; the longest seen where no bound is."""
        wanted = share * sum(self._took_counts)
        for bound_ms, count in zip(_TOOK_MS_BOUNDS, self._took_counts, strict=False):
            wanted -= count
            if wanted <= 0:
                return bound_ms
        return self.took_max_ms

    async def sample_forever(self) -> None:
        """Note totals every ten seconds, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            due = self._tick()
            for number, flow in enumerate(self._flows()):
                if number % _CHUNK == _CHUNK - 1:
                    await asyncio.sleep(0)
                for level, step in due:
                    flow.note(level, step)
            if due[-1][0] == _DAY and self.forgets_idle:
                self._forget_idle(due[-1][1])

    def _tick(self) -> list[tuple[int, int]]:
        """Begin the next step; returns the levels to note with their steps."""
        self._ticks += 1
        self._moments.append(self._moment())
        due = [(level, self._ticks // ticks) for level, ticks in enumerate(_TICKS_OF_STEP) if self._ticks % ticks == 0]
        for level, _ in due:
            self._began_s[level].append(self._moments[-1].at_s)
        today = _local_day(self._clock.now_ms())
        if today != self._day:
            self._day = today
            self.put_mornings = (self.put_mornings[1], self.put_total.count)
            self.got_mornings = (self.got_mornings[1], self.got_total.count)
        return due

    def _moment(self) -> Moment:
        got = self.got_total
        return Moment(
            self._clock.monotonic_s(),
            self.put_total.count,
            got.times,
            self.missed_count,
            got.count,
            self.filed_count,
            self.timed_count,
        )

    def _flows(self) -> list[Flow]:
        return [self.put_total, self.got_total, *(flow for table in self._tables() for flow in table.values())]

    def _tables(self) -> list[dict[Any, Flow]]:
        return [self._puts, *self._of_groups()]

    def _forget_idle(self, step: int) -> None:
        first = step - _STEPS_OF_WINDOW[_DAY]
        for table in self._tables():
            for key in [key for key, flow in table.items() if flow.at(_DAY, first)[3] == flow.times]:
                del table[key]


def _local_day(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
