"""The background walk: every 15 s the whole cluster is looked at with few calls, and pages show what it saw.

A list of groups that asks several calls for each group takes seconds at some hundred of them. So the walk asks each
master once for the progress of all groups (317), once for all topics (21), once for itself (28). What a topic holds is
asked topic by topic, some hundred in a walk, those with dead letters first. A walk never begins before the last one has
ended; what it could not see is said in its result.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bolide.admin.admin import Admin, BrokerRow, ProgressRow
from bolide.admin.calls import gathered
from bolide.admin.deadletters import group_of
from bolide.admin.reach import SilentBroker
from bolide.admin.topics import TopicQueueRow
from bolide.admin.walking import TOOLS_GROUP
from bolide.client.tally import counting
from bolide.clock import Clock
from bolide.dashboard.history import UNKNOWN, History
from bolide.errors import BolideError, ClientError
from bolide.model.queue import MessageQueue
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.bodies import TopicConfig

TOPICS_A_WALK = 200
_RATE_SPAN_MIN_MS = 4_000
_SLICE = 100
_OLDEST_LASTS_MS = 300_000  # retention deletes a file at a time
_OLDEST_LIMIT_S = 0.3
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """A broker, and all it told of itself."""

    row: BrokerRow
    status: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group as one walk saw it. None is what nobody knows."""

    group: str
    behind: int
    retry_behind: int
    lag_ms: int | None
    consumed: int
    counted_ms: int = 0  # when it was so much
    out_rate: float | None = None
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicLook:
    """What a topic holds, and when that was seen."""

    end: int
    seen_ms: int
    kept: int | None = None
    last_ms: int | None = None
    in_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one walk saw."""

    at_ms: int = 0
    took_ms: int = 0
    call_count: int = 0
    problem: str = ""  # why nothing could be seen
    cluster: str = ""
    brokers: tuple[BrokerLook, ...] = ()
    silent: tuple[SilentBroker, ...] = ()
    groups: Mapping[str, GroupLook] = field(default_factory=dict)
    topic_names: frozenset[str] = frozenset()  # without those that RocketMQ keeps for itself
    configs: Mapping[str, Mapping[str, TopicConfig]] = field(default_factory=dict)
    groups_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by topic
    behind_of: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by group and topic

    @property
    def is_seen(self) -> bool:
        return self.at_ms > 0


class Walk:
    """Looks again and again while `run` runs."""

    def __init__(self, admin: Admin, history: History, clock: Clock, interval_s: float) -> None:
        self._admin = admin
        self._history = history
        self._clock = clock
        self._interval_s = interval_s
        self._turn = 0
        self._wanted = asyncio.Event()
        self._walked = asyncio.Condition()
        self.snapshot = Snapshot()
        self.topics: dict[str, TopicLook] = {}
        self._oldest: dict[str, tuple[int, int | None]] = {}  # by topic: asked when, and the time of its oldest message
        self._late: dict[str, None] = {}  # topics whose oldest message a page did not wait for
        self.walk_count = 0

    async def run(self) -> None:
        """Walk for ever."""
        while True:
            await self._walk()
            self._wanted.clear()
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def hurry(self) -> None:
        """Walk soon: something was changed."""
        self._wanted.set()

    async def first(self, limit_s: float = 10.0) -> Snapshot:
        """The newest snapshot; at the beginning it waits for one."""
        if not self.snapshot.is_seen and not self.snapshot.problem:
            try:
                async with asyncio.timeout(limit_s), self._walked:
                    await self._walked.wait_for(lambda: self.snapshot.is_seen or bool(self.snapshot.problem))
            except TimeoutError:
                pass
        return self.snapshot

    async def _walk(self) -> None:
        began_s = self._clock.monotonic_s()
        before = self.snapshot
        self._admin.silent.clear()
        with counting() as tally:
            try:
                seen = await self._look(before)
            except (BolideError, TimeoutError) as problem:
                log.info("the cluster was not seen: %s", problem)
                # What was seen last stays, with its age, and the problem beside it.
                seen = replace(before, problem=str(problem) or "the cluster did not answer in time")
        took_ms = round((self._clock.monotonic_s() - began_s) * 1000)
        self.snapshot = replace(seen, took_ms=took_ms, call_count=tally.count)
        self.walk_count += 1
        async with self._walked:
            self._walked.notify_all()

    async def _look(self, before: Snapshot) -> Snapshot:
        admin = self._admin
        brokers = tuple(BrokerLook(row, status) for row, status in await admin.broker_statuses())
        names = frozenset(await admin.topics())
        configs = await admin.topic_configs()
        progress = await self._progress()
        now_ms = self._clock.now_ms()
        groups: dict[str, GroupLook] = {}
        async for group, rows in in_slices(progress.items()):
            groups[group] = _group_look(group, rows, now_ms, before.groups.get(group))
        self._note_ends(progress.values(), now_ms)
        await self.look_at(self._next_topics(configs), configs, brokers)
        await self._ask_late(configs, now_ms)
        self.topics = {name: look for name, look in self.topics.items() if name in configs}
        self._oldest = {name: known for name, known in self._oldest.items() if name in configs}
        groups_of, behind_of = _by_topic(progress)
        snapshot = Snapshot(
            at_ms=now_ms,
            cluster=brokers[0].row.cluster if brokers else before.cluster,
            brokers=brokers,
            silent=tuple(admin.silent.values()),
            groups=groups,
            topic_names=names,
            configs=configs,
            groups_of=groups_of,
            behind_of=behind_of,
        )
        await self._remember(snapshot, now_ms / 1000)
        return snapshot

    async def _progress(self) -> dict[str, list[ProgressRow]]:
        """All groups at once, or one by one where a broker does not tell all."""
        try:
            return await self._admin.all_progress()
        except ClientError as problem:
            if problem.retriable or problem.code is None:
                raise
            log.debug("groups are asked one by one: %s", problem)
        names = await self._admin.groups()
        found = await gathered({name: self._admin.group_progress(name) for name in names})
        return {name: rows if isinstance(rows, list) else [] for name, rows in found.items()}

    def _note_ends(self, progress: Iterable[list[ProgressRow]], now_ms: int) -> None:
        """Where topics end that somebody consumes: told with the progress."""
        ends: dict[str, dict[MessageQueue, int]] = {}
        for rows in progress:
            for row in rows:
                ends.setdefault(row.queue.topic, {})[row.queue] = row.broker_offset
        for topic, queues in ends.items():
            self._note_topic(topic, sum(queues.values()), now_ms, None)

    def _note_topic(self, topic: str, end: int, now_ms: int, rows: list[TopicQueueRow] | None) -> None:
        known = self.topics.get(topic)
        look = TopicLook(end, now_ms)
        if known is not None:
            look = replace(look, kept=known.kept, last_ms=known.last_ms, in_rate=known.in_rate)
            span_ms = now_ms - known.seen_ms
            if span_ms < _RATE_SPAN_MIN_MS:
                look = replace(look, end=known.end, seen_ms=known.seen_ms)  # too short a span to count a rate from
            else:
                fresh = max(0, end - known.end)
                kept = None if known.kept is None else known.kept + fresh
                look = replace(look, kept=kept, in_rate=fresh * 1000 / span_ms)
        if rows is not None:
            kept = sum(row.message_count for row in rows)
            look = replace(look, kept=kept, last_ms=max((row.last_update_ms for row in rows), default=0))
        self.topics[topic] = look

    def _next_topics(self, configs: Mapping[str, object]) -> list[str]:
        """Whose turn it is: dead letters always, of the others some hundred."""
        dead = [name for name in configs if group_of(name) is not None]
        others = sorted(name for name in configs if group_of(name) is None and not name.startswith(RETRY_PREFIX))
        room = max(TOPICS_A_WALK - len(dead), TOPICS_A_WALK // 4)
        begin = self._turn % len(others) if len(others) > room else 0
        self._turn = begin + room
        return [*dead[: 4 * TOPICS_A_WALK], *(others + others)[begin : begin + min(room, len(others))]]

    async def look_at(
        self,
        topics: Iterable[str],
        configs: Mapping[str, Mapping[str, TopicConfig]] | None = None,
        brokers: tuple[BrokerLook, ...] | None = None,
    ) -> dict[str, str]:
        """Ask what some topics hold; returns why it is not known of those that failed."""
        configs = self.snapshot.configs if configs is None else configs
        brokers = self.snapshot.brokers if brokers is None else brokers
        masters = {look.row.name: look.row.address for look in brokers if not look.row.broker_id and look.status}
        asked = {
            (topic, name): self._admin.queues_at(masters[name], topic)
            for topic in topics
            for name in configs.get(topic, ())
            if name in masters
        }
        failed: dict[str, str] = {}
        found: dict[str, list[TopicQueueRow]] = {}
        for (topic, _), rows in (await gathered(asked)).items():
            if isinstance(rows, BaseException):
                failed[topic] = str(rows)
            else:
                found.setdefault(topic, []).extend(rows)
        now_ms = self._clock.now_ms()
        for topic, rows in found.items():
            if topic not in failed:
                self._note_topic(topic, sum(row.max_offset for row in rows), now_ms, rows)
        return failed

    async def oldest_of(self, topics: Iterable[str]) -> dict[str, int | None]:
        """When the oldest messages of some topics were stored; None where that is not known, or there is none.

        A list does not wait for all of them: what comes too late for it the next walk asks, before the list's next
        refresh.
        """
        topics, now_ms = list(topics), self._clock.now_ms()
        filled = {name for name in topics if name not in self.topics or self.topics[name].kept != 0}
        due = [
            name
            for name in topics
            if name in filled and now_ms - self._oldest.get(name, (0, None))[0] > _OLDEST_LASTS_MS
        ]
        try:
            async with asyncio.timeout(_OLDEST_LIMIT_S):
                await gathered({name: self._ask_oldest(name, now_ms) for name in due})
        except TimeoutError:
            self._late |= {name: None for name in due if self._oldest.get(name, (0, None))[0] != now_ms}
        return {name: self._oldest[name][1] if name in filled and name in self._oldest else None for name in topics}

    async def _ask_late(self, configs: Mapping[str, object], now_ms: int) -> None:
        """Some of those that pages did not wait for, of topics that are still there."""
        late = [name for name in self._late if name in configs][:TOPICS_A_WALK]
        self._late.clear()
        await gathered({name: self._ask_oldest(name, now_ms) for name in late})

    async def _ask_oldest(self, topic: str, now_ms: int) -> None:
        spans = await self._admin.time_spans(TOOLS_GROUP, topic)
        times = [span.min_time_stamp for span in spans.values() if span.min_time_stamp > 0]
        # A topic that is empty is asked again: its first message may come at once.
        self._oldest[topic] = (now_ms if times else 0, min(times, default=None))

    async def _remember(self, seen: Snapshot, at_s: float) -> None:
        history = self._history
        async for name, group in in_slices(seen.groups.items()):
            lag_s = UNKNOWN if group.lag_ms is None else group.lag_ms / 1000
            rate = UNKNOWN if group.out_rate is None else group.out_rate
            is_active = group.behind > 0 or bool(group.out_rate)
            history.add("group", name, at_s, (group.behind, lag_s, rate), is_active=is_active)
        async for name, topic in in_slices(list(self.topics.items())):
            if topic.in_rate is not None:
                rates = [seen.groups[group].out_rate for group in seen.groups_of.get(name, ())]
                out = sum(rate for rate in rates if rate is not None)
                history.add("topic", name, at_s, (topic.in_rate, out), is_active=bool(topic.in_rate or out))
        rows = [look.row for look in seen.brokers if look.row.is_reachable]
        for look in seen.brokers:
            end = look.status.get("commitLogMaxOffset", "")
            history.add("broker", look.row.address, at_s, (float(end) if end.isdigit() else UNKNOWN,))
        history.add("cluster", "", at_s, (sum(row.put_rate for row in rows), sum(row.got_rate for row in rows)))


def _group_look(group: str, rows: list[ProgressRow], now_ms: int, before: GroupLook | None) -> GroupLook:
    own = [row for row in rows if row.behind > 0]
    # The last message that was consumed was stored then; the first unread one is younger than that.
    ages = [now_ms - row.last_consumed_ms for row in own if row.last_consumed_ms > 0]
    consumed, counted_ms, rate = sum(row.consumer_offset for row in rows), now_ms, None
    if before is not None:
        span_ms = now_ms - before.counted_ms
        if span_ms < _RATE_SPAN_MIN_MS:
            consumed, counted_ms, rate = before.consumed, before.counted_ms, before.out_rate
        else:
            rate = max(0, consumed - before.consumed) * 1000 / span_ms
    return GroupLook(
        group=group,
        behind=sum(row.behind for row in rows),
        retry_behind=sum(row.behind for row in rows if row.queue.topic.startswith(RETRY_PREFIX)),
        lag_ms=max(ages, default=None if own else 0),
        consumed=consumed,
        counted_ms=counted_ms,
        out_rate=rate,
        topics=tuple(sorted({row.queue.topic for row in rows})),
    )


def _by_topic(
    progress: Mapping[str, list[ProgressRow]],
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str, str], int]]:
    groups: dict[str, dict[str, None]] = {}
    behind: dict[tuple[str, str], int] = {}
    for group, rows in progress.items():
        for row in rows:
            topic = row.queue.topic
            groups.setdefault(topic, {})[group] = None
            behind[group, topic] = behind.get((group, topic), 0) + row.behind
    return {topic: tuple(found) for topic, found in groups.items()}, behind


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a chance for everybody else after each hundred: pages are served by the same loop."""
    for place, item in enumerate(items, 1):
        yield item
        if place % _SLICE == 0:
            await asyncio.sleep(0)
