"""Questions about messages that name them by other things than a group's progress: by key, by id, by time, by queue.

Offsets and ids are looked up at once. A search by key follows a chain through the index, which is as long as the
messages that share its hash are many: it waits for its turn between a few records (`slow_work.py`), and ends after some
seconds with what it has found. An answer is kept below what a frame may hold, the newest messages first.
"""

import logging
from collections.abc import Awaitable

from bolide.broker.pulling.access import subscription_filter
from bolide.broker.state import BrokerState
from bolide.errors import CorruptRecord, Refusal
from bolide.filter.tags import any_passes, is_tag_type
from bolide.kernel.layout import ENTRY, ENTRY_SIZE
from bolide.model.queue import PhysicalOffset, QueueKey, QueueOffset
from bolide.protocol.bodies import QueueEntries, QueueEntry, Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers import (
    BoundaryType,
    GetEarliestStoreTimeAnswer,
    GetEarliestStoreTimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetAnswer,
    QueryConsumeQueueRequest,
    QueryMessageAnswer,
    QueryMessageRequest,
    SearchOffsetRequest,
    ViewMessageRequest,
)
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Request
from bolide.remoting.slow_work import Place, check_room, place_of
from bolide.store.record import decode, store_ms_of

UNIQUE_KEY_COUNT_MAX = 32
ANSWER_SIZE_MAX = 15 << 20
QUERY_LIMIT_S = 3.0
ENTRY_COUNT_MAX = 1_000
_PAUSE_COUNT = 4  # records decoded between looks at the clock
log = logging.getLogger(__name__)


class Queries:
    """Answers from the store; `members` say how a group filters."""

    def __init__(self, state: BrokerState) -> None:
        self._store = state.store
        self._members = state.members
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_id,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.offset_at,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
            RequestCode.QUERY_CONSUME_QUEUE: self.entries,
        }

    def by_key(self, request: Request) -> Awaitable[Command]:
        """12: messages of a topic with a key, or with the id their producer gave them."""
        check_room(request.session)
        return self._by_key(request)

    async def _by_key(self, request: Request) -> Command:
        command = request.command
        asked = QueryMessageRequest.decode(command.fields)
        count_max = UNIQUE_KEY_COUNT_MAX if asked.is_unique_key else asked.message_count_max
        with place_of(request.session) as place:
            records = await self._search(asked, min(count_max, self._store.config.query_count_max), place)
        indexed_ms, place_of_newest = self._store.indexed_to
        fields = QueryMessageAnswer(
            indexed_ms=indexed_ms, indexed_physical_offset=PhysicalOffset(place_of_newest)
        ).encode()
        if not records:
            remark = f"no message of {asked.topic!r} with the key {asked.key!r} was stored in that time"
            return command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark, fields=fields)
        return command.answer(ResponseCode.SUCCESS, fields=fields, body=b"".join(records))

    async def _search(self, asked: QueryMessageRequest, count_max: int, place: Place) -> list[memoryview]:
        """The newest that match, in the order of the log."""
        await place.turn()
        deadline_s = self._clock.monotonic_s() + QUERY_LIMIT_S
        found: dict[int, memoryview] = {}
        size = 0
        walk = self._store.search(asked.topic, asked.key, asked.begin_ms, asked.end_ms)
        for number, physical_offset in enumerate(walk, 1):
            if len(found) >= count_max:
                break
            if physical_offset is None or number % _PAUSE_COUNT == 0:
                await place.turn()
                if self._clock.monotonic_s() > deadline_s:
                    log.warning("query cut short topic=%s key=%s found=%d", asked.topic, asked.key, len(found))
                    break
            record = None if physical_offset is None else self._matching(physical_offset, asked)
            if record is not None and physical_offset is not None and physical_offset not in found:
                size += len(record)
                if found and size > ANSWER_SIZE_MAX:
                    break
                found[physical_offset] = record
        return [found[each] for each in sorted(found)]

    def _matching(self, physical_offset: int, asked: QueryMessageRequest) -> memoryview | None:
        """The record there, if it is what was asked for; other keys may share the hash."""
        record = self._store.record_at(physical_offset)
        if record is None or not asked.begin_ms <= store_ms_of(record) <= asked.end_ms:
            return None
        try:
            message = decode(record)
        except CorruptRecord as problem:
            log.warning("query passed over a record physical_offset=%d: %s", physical_offset, problem)
            return None
        keys = (message.properties.get("UNIQ_KEY"), *message.properties.get("KEYS", "").split(" "))
        return record if message.topic == asked.topic and asked.key in keys else None

    def by_id(self, request: Request) -> Command:
        """33: the message that lies at an offset of the log."""
        asked = ViewMessageRequest.decode(request.command.fields)
        record = self._store.record_at(asked.physical_offset)
        if record is None:
            remark = f"no message begins at {asked.physical_offset} in the log of this broker"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return request.command.answer(ResponseCode.SUCCESS, body=bytes(record))

    def offset_at(self, request: Request) -> Command:
        """29: the offset that belongs to a time; between two messages, that of the later."""
        asked = SearchOffsetRequest.decode(request.command.fields)
        key = QueueKey(asked.topic, asked.queue_id)
        offset = self._store.offset_at(key, asked.timestamp_ms, asked.boundary is BoundaryType.UPPER)
        return _offset(request, offset)

    def max_offset(self, request: Request) -> Command:
        """30: the offset the next message of a queue will get."""
        asked = GetMaxOffsetRequest.decode(request.command.fields)
        return _offset(request, self._store.max_offset(QueueKey(asked.topic, asked.queue_id)))

    def min_offset(self, request: Request) -> Command:
        """31: the oldest offset a queue still has."""
        asked = GetMinOffsetRequest.decode(request.command.fields)
        return _offset(request, self._store.min_offset(QueueKey(asked.topic, asked.queue_id)))

    def earliest(self, request: Request) -> Command:
        """32: when the oldest message of a queue was stored; -1 for a queue without any."""
        asked = GetEarliestStoreTimeRequest.decode(request.command.fields)
        stored_ms = self._store.earliest_ms(QueueKey(asked.topic, asked.queue_id))
        fields = GetEarliestStoreTimeAnswer(timestamp_ms=stored_ms).encode()
        return request.command.answer(ResponseCode.SUCCESS, fields=fields)

    def entries(self, request: Request) -> Awaitable[Command]:
        """321: entries of a queue, and whether a group would get their messages."""
        check_room(request.session)
        return self._entries_in_turn(request)

    async def _entries_in_turn(self, request: Request) -> Command:
        with place_of(request.session) as place:
            await place.turn()
            return self._entries(request)

    def _entries(self, request: Request) -> Command:
        asked = QueryConsumeQueueRequest.decode(request.command.fields)
        name = asked.topic or ""
        queue = self._store.queue(QueueKey(name, asked.queue_id))
        if queue is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no queue {asked.queue_id} of topic {name!r} here")
        subscription, told = self._subscription(asked.consumer_group, name)
        wanted = None if subscription is None else _filter_of(subscription)
        count_max = min(max(asked.entry_count, 0), ENTRY_COUNT_MAX)
        is_there = queue.min_offset <= asked.first_offset < queue.next_offset
        content = queue.read(asked.first_offset, count_max) if is_there else None
        body = QueueEntries(
            filter_data=told,
            max_queue_index=queue.next_offset,
            min_queue_index=queue.min_offset,
            queue_data=[] if content is None else _shown(bytes(content), subscription is not None, wanted),
            subscription_data=subscription,
        )
        remark = None if is_there else f"offset {asked.first_offset} is not in the queue"
        return request.command.answer(ResponseCode.SUCCESS, remark=remark, body=body.encode())

    def _subscription(self, group: str | None, topic: str) -> tuple[Subscription | None, str | None]:
        """How a group filters a topic, and why not if it does not."""
        if not group:
            return None, None
        members = self._members.consumers(group)
        subscription = None if members is None else members.subscriptions.get(topic)
        return subscription, f"nobody of {group!r} is here for {topic!r}" if subscription is None else None


def _filter_of(subscription: Subscription) -> frozenset[int] | None:
    try:
        # By its properties a message is judged when it is pulled; its entry does not tell.
        return subscription_filter(subscription) if is_tag_type(subscription.expression_type) else None
    except ValueError:
        return frozenset()  # it cannot be parsed, so its pulls are refused


def _shown(content: bytes, is_filtered: bool, wanted: frozenset[int] | None) -> list[QueueEntry]:
    shown = []
    for at in range(0, len(content), ENTRY_SIZE):
        entry = content[at : at + ENTRY_SIZE]
        physical_offset, size, tag_hash = ENTRY.unpack(entry)
        is_wanted = is_filtered and any_passes(entry, wanted)
        shown.append(QueueEntry(physic_offset=physical_offset, physic_size=size, tags_code=tag_hash, eval=is_wanted))
    return shown


def _offset(request: Request, offset: int) -> Command:
    fields = OffsetAnswer(offset=QueueOffset(offset)).encode()
    return request.command.answer(ResponseCode.SUCCESS, fields=fields)
