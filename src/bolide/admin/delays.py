"""What is to be delivered later: how many messages wait in each level, and how many are timed, by topic."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from bolide.admin.reach import Reach
from bolide.client.routes import MASTER_ID
from bolide.errors import ClientError, ConfigError
from bolide.model import properties as names
from bolide.model.queue import MessageQueue
from bolide.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.settings import read_properties

if TYPE_CHECKING:
    from bolide.client.pulling.puller import PullConsumer
    from bolide.model.message import StoredMessage


DUE_SPANS_MS = (60_000, 3_600_000, 86_400_000)
_READ_MAX = 256  # of a level, to tell their topics
_TIMED_READ_MAX = 2_048  # of a broker's timed messages, to tell when they are due


class DelayLevelRow(msgspec.Struct, frozen=True):
    """One level on one broker. `due_ms` is when the first that waits is due; None where nothing waits.

    `due_counts` has how many are due within each of `DUE_SPANS_MS`, and after them; `topics` those of the first that
    wait, by topic.
    """

    broker: str
    level: int
    delay_ms: int
    waiting_count: int
    due_ms: int | None
    due_counts: tuple[int, ...] = ()
    topics: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def read_count(self) -> int:
        """How many were read to tell their topics."""
        return sum(self.topics.values())


class TimedRow(msgspec.Struct, frozen=True):
    """The timed messages of one broker: how many wait, and of those that were read how many are due when."""

    broker: str
    waiting_count: int
    due_counts: tuple[int, ...]  # within each of `DUE_SPANS_MS`, and after them
    due_ms: int | None  # of the first of them

    @property
    def unread_count(self) -> int:
        return max(0, self.waiting_count - sum(self.due_counts))


class DelayCalls(Reach):
    """The administrator's questions about delays."""

    async def delay_levels(self, consumer: "PullConsumer", now_ms: int) -> list[DelayLevelRow]:
        """Every level in which something waits; the consumer reads when the first of it was stored, and what for."""
        from bolide.protocol.bodies.queues import DelayOffsets

        rows = []
        for name, address in (await self._masters_by_name()).items():
            asking = self._ask(address, Command(RequestCode.GET_ALL_DELAY_OFFSET))
            answer = await self._noting(name, address, asking)
            if answer is None or not answer.body:
                continue
            offsets = DelayOffsets.decode(answer.body).offset_table
            for level, delay_ms in enumerate(await self._delays_ms(address), 1):
                queue = MessageQueue(SCHEDULE_TOPIC, name, level - 1)
                end = await consumer.max_offset(queue)
                first = max(offsets.get(level, 0), 0)
                if end > first:
                    waiting = await _read(consumer, queue, first)
                    due_ms = waiting[0].stored_at + delay_ms if waiting else None
                    counts = await _due_counts(consumer, queue, range(first, end), now_ms - delay_ms)
                    topics = Counter(each.properties.get(names.REAL_TOPIC, "") for each in waiting)
                    rows.append(DelayLevelRow(name, level, delay_ms, end - first, due_ms, counts, topics))
        return rows

    async def _delays_ms(self, address: str) -> tuple[int, ...]:
        from bolide.store.config import StoreConfig, delays_ms_of

        answer = await self._ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        text = read_properties(answer.body.decode("utf-8", "replace")).get("messageDelayLevel", "")
        try:
            return delays_ms_of(text or StoreConfig().delay_levels)
        except ConfigError:
            return delays_ms_of(StoreConfig().delay_levels)

    async def timed_counts(self) -> dict[str, dict[str, int]]:
        """How many timed messages of each topic wait, by the name of the broker; a broker without timers has none."""
        from bolide.protocol.bodies.brokers import TimerCounts

        found = {}
        known = await self.clusters()
        for data in known.broker_addr_table.values():
            address = data.broker_addrs.get(MASTER_ID)
            if address is None:
                continue
            try:
                answer = await self._ask(address, Command(RequestCode.GET_TIMER_METRICS))
            except ClientError as problem:
                if problem.retriable:
                    raise
                continue  # its timer wheel is off
            counts = TimerCounts.decode(answer.body).timing_count if answer.body else {}
            found[data.broker_name] = {topic: each.count for topic, each in counts.items() if each.count > 0}
        return found

    async def timed_rows(
        self, consumer: "PullConsumer", counts: Mapping[str, Mapping[str, int]], now_ms: int
    ) -> list[TimedRow]:
        """When timed messages are due, of the brokers of `timed_counts`; read from the timer's topic, newest first.

        What is delivered stays in that topic for as long as the log keeps it, so only what is due from now on counts.
        """
        rows = []
        for broker, topics in counts.items():
            if waiting_count := sum(topics.values()):
                due = await _timed_due(consumer, MessageQueue(TIMER_TOPIC, broker, 0), waiting_count, now_ms)
                spans = [0] * (len(DUE_SPANS_MS) + 1)
                for each in due:
                    spans[bisect_left(DUE_SPANS_MS, each - now_ms)] += 1
                rows.append(TimedRow(broker, waiting_count, tuple(spans), min(due, default=None)))
        return rows


async def _timed_due(consumer: "PullConsumer", queue: MessageQueue, wanted_count: int, now_ms: int) -> list[int]:
    """When each of a broker's timed messages is due; one that was filed halfway is there twice and counted once."""
    end = await consumer.max_offset(queue)
    first = max(await consumer.min_offset(queue), end - _TIMED_READ_MAX)
    due: dict[str, int] = {}
    while end > first and len(due) < wanted_count:
        begin = max(first, end - _READ_MAX)
        for each in await _read(consumer, queue, begin):
            at = each.properties.get(names.TIMER_OUT_AT, "")
            is_recall = names.TIMER_DELETE_UNIQUE_KEY in each.properties
            if not is_recall and at.isdecimal() and len(at) < 19 and int(at) > now_ms:
                due[each.properties.get(names.UNIQUE_KEY) or each.offset_id] = int(at)
        end = begin
    return list(due.values())


async def _due_counts(
    consumer: "PullConsumer", queue: MessageQueue, waiting: range, due_now_ms: int
) -> tuple[int, ...]:
    """How many are due within each span. A level keeps the order of time: who was stored by `due_now_ms` is due."""
    ends = [await consumer.offset_at(queue, due_now_ms + span_ms) for span_ms in DUE_SPANS_MS]
    places = [waiting.start, *(min(max(end, waiting.start), waiting.stop) for end in ends), waiting.stop]
    return tuple(max(0, after - before) for before, after in pairwise(places))


async def _read(consumer: "PullConsumer", queue: MessageQueue, offset: int) -> "list[StoredMessage]":
    """The first that wait."""
    from bolide.model.message import StoredMessage

    found: list[StoredMessage] = []
    while len(found) < _READ_MAX:
        pulled = await consumer.pull(queue, offset, 64)
        if not pulled.messages:
            break
        found += [each.stored for each in pulled.messages]
        offset = pulled.next_offset
    return found
