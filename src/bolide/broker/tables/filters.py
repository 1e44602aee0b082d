"""What groups filter by other than tags: their SQL92 expressions, compiled once, and kept in RocketMQ's file.

A group's filter comes with its heartbeats. It replaces the one before if its version is newer; an older one changes
nothing, and one that does not compile takes the old one away, so that the next pull says so (27) instead of filtering
by what nobody asked for. When the last member leaves, the filter is marked dead, and a day later it is deleted.

The file, consumerFilter.json, follows every 10 s and at the stop, as in RocketMQ. It is for those who read it: here and
in a Java broker a heartbeat brings everything back. After a start all filters count as dead until somebody is heard.

What is compiled costs a hundred times the length of its text in memory, and the time of everybody on the loop. So the
expressions of a heartbeat are compiled before it is heard (`expressions.py`), this many of them, and the next one goes
on; and beyond a megabyte of texts in all, or twenty thousand of them (short ones for topics that nobody has), no more
are taken.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bolide.broker.config import LiveConfig
from bolide.broker.tables.expressions import Expressions
from bolide.broker.tables.table_files import TableWriter
from bolide.clock import Clock
from bolide.files import read_whole
from bolide.filter.bloom import BloomSize, bloom_positions, bloom_size
from bolide.filter.sql import SQL92, Predicate, SqlError
from bolide.filter.tags import is_tag_type
from bolide.protocol.bodies import Subscription
from bolide.protocol.bodies.body import read
from bolide.protocol.bodies.filters import FilterBits, FilterEntry, FilterTable, TopicFilters

FILE_NAME = "consumerFilter.json"
SAVE_INTERVAL_S = 10.0
_ABSENT_MS = 30_000  # at the start: so long ago everybody left
_HEARD_LENGTH_MAX = 32_768  # of new expressions in one heartbeat, unless the first alone is longer
KEPT_LENGTH_MAX = 1 << 20
KEPT_COUNT_MAX = 20_000
_SHOWN_MAX = 200
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class GroupFilter:
    """The filter of a group in a topic."""

    topic: str
    group: str
    expression: str
    expression_type: str
    predicate: Predicate | None  # None: kept in a file by somebody who understood it
    client_version: int
    born_ms: int
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


class Filters:
    """All of them by group and topic. Built before the broker listens: reading the file blocks."""

    def __init__(self, settings: LiveConfig, table_writer: TableWriter, clock: Clock) -> None:
        config = settings.now
        self._settings = settings
        self._table_writer = table_writer
        self._clock = clock
        self._size = bloom_size(config.filter_error_percent, config.filter_group_count)
        self._path: Path = config.directory / FILE_NAME
        self.expressions = Expressions()
        self._kept_length = self._kept_count = 0
        self._by_group: dict[str, dict[str, GroupFilter]] = {}
        self._is_changed = False
        self._load(read_whole(self._path, parse_filters, FilterTable()))

    def get(self, topic: str, group: str) -> GroupFilter | None:
        """What a group filters a topic by, if not by tags."""
        return self._by_group.get(group, {}).get(topic)

    # What heartbeats say

    def heard(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """A member of the group told what it wants."""
        known = self._by_group.get(group)
        told = {each.topic: each for each in subscriptions}
        length = 0
        for subscription in told.values():
            if subscription.sub_string and not is_tag_type(subscription.expression_type):
                if length > _HEARD_LENGTH_MAX:
                    log.warning("filters of group %s are many: the next heartbeat goes on with them", group)
                    break
                length += self._follow(group, subscription)
        for kept in (known or {}).values():
            if kept.topic not in told and not kept.is_dead:
                self._bury(kept)

    def slow(self, group: str, subscriptions: Iterable[Subscription]) -> list[str]:
        """The texts for which what a member told would keep everybody waiting, if they were not compiled before."""
        texts: list[str] = []
        for told in subscriptions:
            kept = self.get(told.topic, group)
            is_known = kept is not None and (told.sub_version <= kept.client_version or _is_same(kept, told))
            if is_known or told.expression_type != SQL92 or not self.expressions.is_slow(told.sub_string):
                continue
            texts.append(told.sub_string)
            if sum(map(len, texts)) > _HEARD_LENGTH_MAX:
                break
        return texts

    def _follow(self, group: str, told: Subscription) -> int:
        """Returns how long a text had to be compiled for it."""
        kept = self.get(told.topic, group)
        if kept is not None and told.sub_version <= kept.client_version:
            if told.sub_version == kept.client_version and kept.is_dead:
                self._revive(kept)
            elif not _is_same(kept, told):
                text = "filter not followed group=%s topic=%s: version %d is not newer than %d"
                log.warning(text, group, told.topic, told.sub_version, kept.client_version)
            return 0
        if kept is not None and kept.predicate is not None and _is_same(kept, told):
            kept.client_version = told.sub_version
            self._revive(kept)
            return 0
        self._replace(group, told)
        return len(told.sub_string)

    def _replace(self, group: str, told: Subscription) -> None:
        self._drop(group, told.topic)
        if not self._has_room(told.sub_string):
            self._clean(self._clock.now_ms())  # the dead make room
        try:
            if not self._has_room(told.sub_string):
                limits = f"more than {KEPT_LENGTH_MAX} characters, or are more than {KEPT_COUNT_MAX}"
                raise SqlError(f"the expressions of all groups have {limits}")
            predicate = self.expressions.compiled_at_once(told.sub_string, told.expression_type)
        except SqlError as problem:
            log.warning("filter refused group=%s topic=%s problem=%s", group, told.topic, problem)
            return
        kept = GroupFilter(
            topic=told.topic,
            group=group,
            expression=told.sub_string,
            expression_type=told.expression_type,
            predicate=predicate,
            client_version=told.sub_version,
            born_ms=self._clock.now_ms(),
        )
        self._put(kept)
        log.info("filter taken group=%s topic=%s expression=%s", group, told.topic, told.sub_string[:_SHOWN_MAX])

    def _has_room(self, expression: str) -> bool:
        return self._kept_length + len(expression) <= KEPT_LENGTH_MAX and self._kept_count < KEPT_COUNT_MAX

    def _put(self, kept: GroupFilter) -> None:
        self._by_group.setdefault(kept.group, {})[kept.topic] = kept
        self._kept_length += len(kept.expression)
        self._kept_count += 1
        self._is_changed = True

    def _drop(self, group: str, topic: str) -> None:
        topics = self._by_group.get(group, {})
        kept = topics.pop(topic, None)
        if kept is not None:
            self._kept_length -= len(kept.expression)
            self._kept_count -= 1
            self._is_changed = True
            if not topics:
                del self._by_group[group]

    def left(self, group: str) -> None:
        """The last member of the group left."""
        for kept in self._by_group.get(group, {}).values():
            if not kept.is_dead:
                self._bury(kept)

    def _bury(self, kept: GroupFilter) -> None:
        kept.dead_ms = self._clock.now_ms()
        self._is_changed = True

    def _revive(self, kept: GroupFilter) -> None:
        kept.dead_ms = 0
        self._is_changed = True

    # The file

    async def save_forever(self) -> None:
        """Have the file follow the table every 10 s."""
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            self.save()

    def save(self) -> None:
        """Delete what died long ago, and have the rest written if anything changed."""
        self._clean(self._clock.now_ms() - self._settings.now.filter_life_ms)
        if self._is_changed:
            self._is_changed = False
            self._table_writer.save(self._path, lambda: self._table().encode().decode())

    def _clean(self, died_before_ms: int) -> None:
        for group, topics in list(self._by_group.items()):
            for topic in [topic for topic, kept in topics.items() if kept.is_dead and kept.dead_ms <= died_before_ms]:
                self._drop(group, topic)
                log.info("filter deleted group=%s topic=%s: nobody used it", group, topic)

    def _table(self) -> FilterTable:
        by_topic: dict[str, dict[str, FilterEntry]] = {}
        for topics in self._by_group.values():
            for kept in topics.values():
                by_topic.setdefault(kept.topic, {})[kept.group] = _entry(kept, self._size)
        return FilterTable(
            filter_data_by_topic={
                topic: TopicFilters(topic=topic, group_filter_data=groups) for topic, groups in by_topic.items()
            }
        )

    def _load(self, table: FilterTable) -> None:
        entries = [entry for topic in table.filter_data_by_topic.values() for entry in topic.group_filter_data.values()]
        if not all(self._is_ours(entry) for entry in entries):
            log.info("filters not taken, heartbeats bring them back: other sizes of bits in path=%s", self._path)
            return
        for entry in entries:
            self._put(self._loaded(entry))
        self._is_changed = False

    def _is_ours(self, entry: FilterEntry) -> bool:
        """A Java broker drops all if one does not fit its sizes; who goes back and forth sees the same here."""
        bits = entry.bloom_filter_data
        return bits is not None and BloomSize(bits.bit_num, len(bits.bit_pos)) == self._size

    def _loaded(self, entry: FilterEntry) -> GroupFilter:
        predicate = None
        try:
            predicate = self.expressions.compiled_at_once(entry.expression or "", entry.expression_type)
        except SqlError as problem:
            log.warning("filter in %s does not compile group=%s problem=%s", self._path, entry.consumer_group, problem)
        dead_ms = entry.dead_time or max(self._clock.now_ms() - _ABSENT_MS, entry.born_time)
        return GroupFilter(
            topic=entry.topic,
            group=entry.consumer_group,
            expression=entry.expression,
            expression_type=entry.expression_type,
            predicate=predicate,
            client_version=entry.client_version,
            born_ms=entry.born_time,
            dead_ms=dead_ms,
        )


def _is_same(kept: GroupFilter, told: Subscription) -> bool:
    return (told.sub_string, told.expression_type) == (kept.expression, kept.expression_type)


def _entry(kept: GroupFilter, size: BloomSize) -> FilterEntry:
    positions = bloom_positions(f"{kept.group}#{kept.topic}", size)
    return FilterEntry(
        bloom_filter_data=FilterBits(bit_num=size.bit_count, bit_pos=positions),
        born_time=kept.born_ms,
        client_version=kept.client_version,
        consumer_group=kept.group,
        dead=kept.is_dead,
        dead_time=kept.dead_ms,
        expression=kept.expression,
        expression_type=kept.expression_type,
        topic=kept.topic,
    )


def parse_filters(text: str) -> FilterTable:
    """Read a consumerFilter.json of 4.9, 5.x or our own; raises ValueError."""
    return read(FilterTable, text.encode())
