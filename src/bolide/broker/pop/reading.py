"""What a lane has next, and where that is.

A group that pops has one offset a queue, like one that pulls, and it moves when messages are given and not when they
are acknowledged: what is out is remembered elsewhere (`revivals.py`). Reading here changes that offset only where it
leads nowhere: to messages that are gone, or that the group does not want.

Failed messages are in a topic of their own: one pop in five looks there first, the others last, so that neither
starves.
"""

import random
from typing import NamedTuple

from bolide.broker.pop.lanes import Lane
from bolide.broker.pulling.filter_budget import FilterBudget, MessageFilter
from bolide.broker.state import BrokerState
from bolide.broker.tables.filters import Filters
from bolide.errors import Refusal
from bolide.filter.tags import is_tag_type, parse_tags, tag_hashes
from bolide.kernel.layout import ENTRY_SIZE
from bolide.model.queue import QueueKey
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.popped import retry_topic_v1, retry_topic_v2
from bolide.remoting.handlers import Handler
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.read import PullStatus, Slices, memory_size

START_AT_MIN = 0
_QUEUE_OFFSET = slice(20, 28)  # of a record
_ELSEWHERE = frozenset([PullStatus.OFFSET_TOO_SMALL, PullStatus.OFFSET_OVERFLOW_BADLY, PullStatus.OFFSET_FOUND_NULL])
_UNWANTED = frozenset([PullStatus.NO_MATCHED_MESSAGE, PullStatus.MESSAGE_WAS_REMOVING, PullStatus.OFFSET_FOUND_NULL])


class Taken(NamedTuple):
    """Messages of a lane from an offset on; `remaining` more follow. `is_skipping`: unwanted ones were passed over."""

    lane: Lane
    start_offset: int
    views: list[memoryview]
    offsets: list[int]
    next_offset: int
    remaining: int
    is_skipping: bool


class LaneReader:
    """Reads lanes of one store."""

    def __init__(
        self, state: BrokerState, filters: Filters, filter_budget: FilterBudget, chance: random.Random | None = None
    ) -> None:
        """`chance` says where a pop begins to look."""
        self._settings = state.settings
        self._topics = state.topics
        self._store = state.store
        self._offsets = state.offsets
        self._filters = filters
        self._filter_budget = filter_budget
        self._chance = chance or random.Random()
        self._near_size = memory_size() * state.store.config.near_percent_of_memory // 100

    def compiling(self, handler: Handler) -> Handler:
        """The handler of pops, which may bring expressions that have to be compiled first."""
        return self._filters.expressions.serving(handler)

    def filter_of(self, expression: str | None, expression_type: str | None) -> MessageFilter:
        """What a pop asks for; RocketMQ does not ask enablePropertyFilter here."""
        if not expression:
            return MessageFilter()
        try:
            if is_tag_type(expression_type):
                return MessageFilter(tag_hashes(parse_tags(expression)))
            return MessageFilter(None, self._filters.expressions.compiled(expression, expression_type))
        except ValueError as problem:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription: {problem}") from None

    def lanes(self, lane: Lane, config: TopicConfig, *, has_retries: bool) -> list[Lane]:
        """The lanes that one pop looks at, in its order: those that may have something."""
        chance = self._chance.randrange(100)
        own = self._unread(lane, config, chance)
        if not has_retries:
            return own
        retries = self.retry_lanes(lane, chance)
        return retries + own if chance < self._settings.now.pop_retry_percent else own + retries

    def _unread(self, lane: Lane, config: TopicConfig, start: int) -> list[Lane]:
        """The same as `queues_of` without those that the group has read to their end: most, when one of many waits."""
        group, topic, queue_id = lane
        if queue_id >= 0:
            return [lane]
        settled, find, count = self._offsets.settled(group, topic), self._store.find_queue, config.read_queue_nums
        unread = []
        for number in range(start, start + count):
            queue_id = number % count
            offset, queue = settled.get(queue_id), find((topic, queue_id))
            if offset is None or (queue is not None and queue.next_offset != offset):
                unread.append(Lane(group, topic, queue_id))
        return unread

    def retry_lanes(self, lane: Lane, chance: int) -> list[Lane]:
        """The queues of the group's failed messages; while names change over, the older topic every other time."""
        settings = self._settings.now
        name = retry_topic_v1
        if settings.makes_retry_topics_v2 and not (settings.reads_retry_topics_v1 and chance % 2 == 0):
            name = retry_topic_v2
        config = self._topics.find(name(lane.group, lane.topic))
        return [] if config is None else queues_of(Lane(lane.group, config.topic_name, -1), config, chance)

    def position(self, lane: Lane, init_mode: int | None) -> int:
        """Where the lane goes on. Without an init mode nothing is begun: a lane never popped is seen from its start."""
        group, topic, queue_id = lane
        offset = self._offsets.get(group, topic, queue_id)
        if offset is not None:
            return offset
        first = self._first(lane, START_AT_MIN if init_mode is None else init_mode)
        if init_mode is not None:
            self._offsets.put(group, topic, queue_id, first)
        return first

    def remaining(self, lane: Lane) -> int:
        """How many messages the lane has before it."""
        queue = self._queue(lane)
        return 0 if queue is None else max(0, queue.next_offset - self.position(lane, None))

    def read(self, lane: Lane, count_max: int, wanted: MessageFilter, init_mode: int | None) -> Taken:
        """The next messages, without taking them; what nobody could take is passed over, with an init mode for good."""
        start = self.position(lane, init_mode)
        queue = self._queue(lane)
        if queue is None or start == queue.next_offset:
            return Taken(lane, start, [], [], start, 0, False)  # a topic may have a thousand queues that are read out
        slices = self._read(lane, start, count_max, wanted)
        is_skipping = False
        if slices.status in _ELSEWHERE:
            start, is_skipping = slices.next_offset, True
            slices = self._read(lane, start, count_max, wanted)
        next_offset = start
        if slices.views or slices.status in _UNWANTED:
            next_offset = slices.next_offset
            is_skipping = is_skipping or not slices.views
        if is_skipping and init_mode is not None:
            self._offsets.put(*lane, start if slices.views else next_offset)
        remaining = max(0, slices.max_offset - next_offset)
        offsets = [int.from_bytes(view[_QUEUE_OFFSET], "big") for view in slices.views]
        return Taken(lane, start, slices.views, offsets, next_offset, remaining, is_skipping)

    def _read(self, lane: Lane, offset: int, count_max: int, wanted: MessageFilter) -> Slices:
        key = QueueKey(lane.topic, lane.queue_id)
        if wanted.sieve is None:
            return self._store.read(key, offset, count_max, wanted.tags)
        self._filter_budget.begin()
        is_over = self._filter_budget.is_over
        return self._store.read(key, offset, count_max, sieve=wanted.sieve, is_over=is_over)

    def _queue(self, lane: Lane) -> ConsumeQueue | None:
        return self._store.find_queue((lane.topic, lane.queue_id))

    def _first(self, lane: Lane, init_mode: int) -> int:
        queue = self._queue(lane)
        if queue is None or not queue.next_offset:
            return 0
        if init_mode == START_AT_MIN or lane.topic.startswith(RETRY_PREFIX) or self._is_young(queue):
            return queue.min_offset
        return queue.next_offset - 1  # with the last message, as in Java

    def _is_young(self, queue: ConsumeQueue) -> bool:
        """Whether the queue's very first message is still near the end of the log."""
        entries = queue.read(0, 1) if queue.min_offset <= 0 else None
        if entries is None or len(entries) < ENTRY_SIZE:
            return False
        return self._store.log_end - int.from_bytes(entries[:8], "big") <= self._near_size


def queues_of(lane: Lane, config: TopicConfig, start: int) -> list[Lane]:
    """The lane itself; of one for any queue all of them, from some queue on, so that each is the first at times."""
    if lane.queue_id >= 0:
        return [lane]
    count = config.read_queue_nums
    return [Lane(lane.group, lane.topic, (start + i) % count) for i in range(count)]
