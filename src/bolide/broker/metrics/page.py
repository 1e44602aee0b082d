"""The broker's page: RocketMQ's families with their labels, and ours.

Every number is read when the page is asked for, a series at a time, on the loop (`remoting/pages.py`). What has to be
walked for long gives way with None in between. Where there may be a series for each of ten thousand topics, its label
text is written out: `labels` takes several times as long.
"""

import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from bolide.broker.later.delay import Delays
from bolide.broker.later.timers import Timers
from bolide.broker.members.members import Member
from bolide.broker.metrics import exporter, lag
from bolide.broker.metrics import families as f
from bolide.broker.metrics.meter import Meter, SentCounts
from bolide.broker.metrics.versions import version_name
from bolide.broker.pop.pop import Pop
from bolide.broker.state import BrokerState
from bolide.broker.stats import Flow
from bolide.broker.transactions.halves import HALVES, read_half, real_place
from bolide.broker.transactions.transactions import Transactions
from bolide.errors import CorruptRecord
from bolide.ha.replication import Replication
from bolide.kernel.layout import LANGUAGES
from bolide.metrics.page import Page, Sample, Value, escaped, labels
from bolide.model.queue import QueueKey
from bolide.model.topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    TIMER_TOPIC,
    is_system_topic,
)
from bolide.protocol.bodies import ConsumeType
from bolide.store.config import delays_ms_of
from bolide.store.consumequeue import ConsumeQueue

STORAGE = labels(storage_type="local", storage_medium="disk")
KINDS = ("normal", "fifo", "delay", "transaction")
_MODES = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}
_SNAPSHOT_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
_HALVES_READ_MAX = 20_000
Samples = Iterator[Sample | None]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page is read from."""

    state: BrokerState
    delays: Delays
    timers: Timers | None
    pop: Pop
    transactions: Transactions
    replication: Replication


class BrokerPage:
    """Reads them when it is asked to."""

    def __init__(self, shown: Shown, meter: Meter) -> None:
        self._shown = shown
        self._state = shown.state
        self._store = shown.state.store
        self._stats = shown.state.stats
        self._meter = meter

    def families(self) -> Page:
        """All of them, in the order of the page."""
        self._meter.catch_up()
        yield from self._traffic()
        yield from self._requests()
        yield from self._waiting()
        yield from self._timing()
        yield from self._members()
        yield from self._storage()
        yield from self._progress()
        if self._state.settings.now.metrics.names == "exporter":
            yield from exporter.families(self._state)

    # What came in and went out

    def _traffic(self) -> Page:
        sent: list[tuple[str, SentCounts]] = []
        yield f.MESSAGES_IN, self._sent(sent)
        yield f.THROUGHPUT_IN, ((text, counts.size) for text, counts in sent)
        yield f.MESSAGE_SIZE, ((text, counts.sizes) for text, counts in sent)
        gots, dead, sent_back = map(self._stats.by_group, ("GROUP_GET_NUMS", "DLQ_PUT_NUMS", "SNDBCK_PUT_NUMS"))
        yield f.MESSAGES_OUT, ((text, flow.count) for text, flow in _flows(gots))
        yield f.THROUGHPUT_OUT, ((text, flow.size) for text, flow in _flows(gots))
        yield f.DEAD_LETTERS, ((text, flow.count) for text, flow in _flows(dead))
        yield f.SENT_BACK, ((text, flow.count) for text, flow in _flows(sent_back))

    def _sent(self, told: list[tuple[str, SentCounts]]) -> Samples:
        """Messages that came in; `told` keeps the label texts for the families that follow."""
        for (topic, kind), counts in list(self._meter.sent.items()):
            text = f'topic="{escaped(topic)}",message_type="{KINDS[kind]}",is_system="{_flag(is_system_topic(topic))}"'
            told.append((text, counts))
            yield text, counts.count

    def _requests(self) -> Page:
        meter = self._meter
        yield from meter.requests.families()
        if meter.beside is not None:
            yield from meter.beside()
        yield (
            f.TOPIC_CREATION,
            (
                (labels(invocation_status="success" if is_done else "failure", is_system=_flag(is_system)), histogram)
                for (is_done, is_system), histogram in list(meter.topic_creations.items())
            ),
        )
        yield (
            f.GROUP_CREATION,
            (
                (labels(invocation_status="success" if is_done else "failure"), histogram)
                for is_done, histogram in list(meter.group_creations.items())
            ),
        )

    # What waits

    def _waiting(self) -> Page:
        meter = self._meter
        yield f.COMMITS, _by_topic(meter.commits)
        yield f.ROLLBACKS, _by_topic(meter.rollbacks)
        yield f.FINISH, _by_topic(meter.finishes)
        yield f.HALVES, self._halves()
        yield f.DELAYED, self._delayed()
        yield (
            f.REVIVE_IN,
            (
                (labels(consumer_group=group, topic=topic, revive_message_type=kind, put_status="PUT_OK"), count)
                for (group, topic, kind), count in list(meter.revive_puts.items())
            ),
        )
        yield (
            f.REVIVED,
            (
                (labels(consumer_group=group, topic=topic, put_status="PUT_OK"), count)
                for (group, topic), count in list(meter.revivals.items())
            ),
        )
        yield f.CHECKPOINTS, [("", self._shown.pop.revivals.out_count)]

    def _halves(self) -> Samples:
        """Counted from what is undecided now, so that it is true after a restart too; those beyond a measure as one."""
        counts: dict[str, int] = {}
        queue, ended = self._store.queue(HALVES), self._shown.transactions.ended
        if queue is None or self._state.is_slave:
            return
        offset, read_count = ended.next_undecided(ended.base), 0
        while offset < queue.next_offset:
            topic = HALF_TOPIC if read_count >= _HALVES_READ_MAX else self._topic_of_half(queue, offset)
            counts[topic] = counts.get(topic, 0) + 1
            read_count += 1
            yield None
            offset = ended.next_undecided(offset + 1)
        for topic, count in counts.items():
            yield labels(topic=topic), count

    def _topic_of_half(self, queue: ConsumeQueue, offset: int) -> str:
        record = self._store.record_at(queue.entry(offset)[0]) if queue.min_offset <= offset else None
        with suppress(CorruptRecord):
            half = None if record is None else read_half(record)
            place = None if half is None else real_place(half.properties)
            return HALF_TOPIC if place is None else place[0]
        return HALF_TOPIC

    def _delayed(self) -> Samples:
        """By level, of those that were ever used; the table has a level only once something of it was delivered."""
        delivered = self._shown.delays.table
        for level in range(1, len(delays_ms_of(self._store.config.delay_levels)) + 1):
            if end := self._store.max_offset(QueueKey(SCHEDULE_TOPIC, level - 1)):
                yield labels(level=str(level)), max(0, end - delivered.get(level, 0))

    def _timing(self) -> Page:
        meter, timers = self._meter, self._shown.timers
        yield f.TIMER_IN, _by_topic(meter.filed, f",{STORAGE}")
        yield f.TIMER_OUT, _by_topic(meter.timed, f",{STORAGE}")
        yield f.DELAY, _by_topic(meter.delays, f",{STORAGE}")
        if timers is None or self._state.is_slave:
            return
        now_ms = self._state.clock.now_ms()
        yield f.TIMER_IN_LAG, [(STORAGE, timers.unfiled_count)]
        yield f.TIMER_IN_LATE, self._unfiled_age(timers, now_ms)
        yield f.TIMER_OUT_LAG, [(STORAGE, max(0, timers.files.waiting_count))]
        yield f.TIMER_OUT_LATE, [(STORAGE, max(0, now_ms - timers.read_ms) if timers.files.waiting_count > 0 else 0)]
        yield (
            f.TIMING,
            (
                (f"{labels(topic=topic)},{STORAGE}", each.count)
                for topic, each in list(timers.files.counts.table.items())
                if each.count > 0
            ),
        )
        yield f.TIMER_SNAPSHOT, _snapshot(timers, now_ms)

    def _unfiled_age(self, timers: Timers, now_ms: int) -> Samples:
        queue, offset = self._store.queue(QueueKey(TIMER_TOPIC, 0)), timers.files.check.queue_offset
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            yield STORAGE, 0
        elif (store_ms := self._store.store_ms(queue, offset)) >= 0:
            yield STORAGE, max(0, now_ms - store_ms)

    # What there is

    def _members(self) -> Page:
        state = self._state
        yield f.PERMISSION, [("", state.settings.now.permission)]
        yield f.TOPICS, [("", len(state.topics.table))]
        yield f.GROUPS, [("", len(state.groups.table))]
        yield f.PRODUCERS, self._producers()
        yield f.CONSUMERS, self._consumers()
        yield (
            f.CONFLICTS,
            (
                (labels(consumer_group=name), len(found))
                for name, group in list(state.members.consumer_groups.items())
                if (found := group.agreement.conflicts())
            ),
        )
        role = state.role.now
        yield f.ROLE, [(labels(role=role.kind.value, is_fenced=_flag(role.is_fenced)), 1)]

    def _producers(self) -> Samples:
        counts: dict[str, int] = {}
        for members in list(self._state.members.producer_groups.values()):
            for member in members.values():
                text = _of_client(member)
                counts[text] = counts.get(text, 0) + 1
            yield None
        yield from counts.items()

    def _consumers(self) -> Samples:
        for name, group in list(self._state.members.consumer_groups.items()):
            counts: dict[str, int] = {}
            for member in group.channels.values():
                text = _of_client(member)
                counts[text] = counts.get(text, 0) + 1
            about = labels(
                consumer_group=name,
                consume_mode=_MODES[group.consume_type],
                is_system=_flag(name.startswith(SYSTEM_GROUP_PREFIX)),
            )
            for text, count in counts.items():
                yield f"{about},{text}", count

    def _storage(self) -> Page:
        store, config = self._store, self._store.config
        disk = shutil.disk_usage(config.log_directory)
        yield f.STORAGE, [(STORAGE, disk.used)]
        yield f.STORE_SIZE, [(STORAGE, store.log_end - store.log_start)]
        yield f.FLUSH_BEHIND, [(STORAGE, store.log_end - store.durable_end)]
        yield f.DISPATCH_BEHIND, [(STORAGE, store.dispatch_behind)]
        oldest_ms = store.earliest_ms()
        yield f.OLDEST, [(STORAGE, max(0, self._state.clock.now_ms() - oldest_ms))] if oldest_ms >= 0 else []
        yield f.DISK_USED, [("", round(disk.used / disk.total, 4))]
        yield f.DISK_LIMIT, [("", config.disk_percent_full / 100)]
        yield f.FSYNC, [(STORAGE, store.sync_times)] if any(store.sync_times.counts) else []
        yield f.PASSED_OVER, [(labels(task=task), count) for task, count in store.mishaps.counts.items()]
        yield (
            f.REPLICA_BEHIND,
            [(labels(replica=each.address), max(0, each.lag_size)) for each in self._shown.replication.slaves],
        )

    # How far groups are

    def _progress(self) -> Page:
        told: list[tuple[str, lag.Progress]] = []
        yield f.LAG, _walked(self._state, told)
        yield f.INFLIGHT, ((text, each.inflight) for text, each in told if each.inflight is not None)
        yield f.READY, ((text, each.ready) for text, each in told if each.ready is not None)
        yield f.LAG_LATENCY, ((text, each.lag_ms) for text, each in told if each.lag_ms is not None)
        yield f.QUEUEING_LATENCY, ((text, each.queueing_ms) for text, each in told if each.queueing_ms is not None)
        if self._state.settings.now.metrics.shows_queues:
            yield (
                f.QUEUE_LAG,
                (
                    (f'{text},queue_id="{queue_id}"', behind)
                    for text, each in told
                    for queue_id, behind in each.queues.items()
                ),
            )


def _walked(state: BrokerState, told: list[tuple[str, lag.Progress]]) -> Samples:
    """The lag of each group and topic; `told` keeps what is known of them for the families that follow."""
    for each in lag.walk(state):
        if each is None:
            yield None
            continue
        group, topic = escaped(each.group), escaped(each.topic)
        is_system = _flag(is_system_topic(topic) or group.startswith(SYSTEM_GROUP_PREFIX))
        text = f'consumer_group="{group}",topic="{topic}",is_retry="{_flag(each.is_retry)}",is_system="{is_system}"'
        told.append((text, each))
        yield text, each.lag


def _snapshot(timers: Timers, now_ms: int) -> Samples:
    """How many are due within each bound, and not within the one before; none beyond the last."""
    counts = [0] * (len(_SNAPSHOT_BOUNDS_S) + 1)
    for slot in timers.files.wheel.occupied() if timers.files.waiting_count > 0 else ():
        if slot.time_ms >= timers.read_ms:
            counts[bisect_left(_SNAPSHOT_BOUNDS_S, (slot.time_ms - now_ms) / 1000)] += slot.load
        yield None
    for bound_s, count in zip(_SNAPSHOT_BOUNDS_S, counts, strict=False):
        yield f'timer_bound_s="{bound_s}",{STORAGE}', max(0, count)


def _flows(flows: Iterable[tuple[tuple[str, str], Flow]]) -> Iterator[tuple[str, Flow]]:
    """By topic and group, without retry and dead-letter topics, as in RocketMQ."""
    for (topic, group), flow in flows:
        if not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            is_system = _flag(is_system_topic(topic) or group.startswith(SYSTEM_GROUP_PREFIX))
            yield f'topic="{escaped(topic)}",consumer_group="{escaped(group)}",is_system="{is_system}"', flow


def _by_topic(table: Mapping[str, Value], more: str = "") -> Samples:
    for topic, value in list(table.items()):
        yield labels(topic=topic) + more, value


def _of_client(member: Member) -> str:
    language = LANGUAGES[member.language] if 0 <= member.language < len(LANGUAGES) else "other"
    return labels(language=language.lower(), version=version_name(member.version), protocol_type="remoting")


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
