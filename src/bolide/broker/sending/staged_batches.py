"""Batches that are published once: staged by a writer, carried over by one request, and never twice.

The messages of a batch lie in the stage topic, laid together as they will be sent. To publish them we note in the mark
topic that we begin, with the list of stages; append the messages where they belong; and note that we are done. All
three go into the one log, in this order, so a crash leaves a beginning of it. After one, `load` finds the note that was
begun and not done, looks in the queues for the messages behind it that carry the batch's name, appends those that are
missing, and notes the end. A batch whose number is not above the last one done is answered as done; so is a repeated
request, whatever it staged in the meantime, for the first list is what counts.

The marks outlive the log in a table of our own (`config/bolidePublished.json`), with the place in the mark topic up to
which it is complete; a mark enters it when the log is on disk behind it, for the table must not know more than the log
after a power cut. Stages are never deleted one by one: they go with the log, and are not published any more when
the newest is older than an hour. What it costs: every message is written twice.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from bolide.broker.intake import Intake
from bolide.broker.later.routing import TIMER_PREFIX
from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import PERM_READ, PERM_WRITE
from bolide.errors import ProtocolError, Refusal, StoreError
from bolide.files import read_whole
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.names import shown
from bolide.model.queue import QueueKey
from bolide.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic
from bolide.protocol.batch import BatchItem, split_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.properties import encode_properties
from bolide.protocol.staging import (
    IDENTITY,
    MARK_TOPIC,
    NOTHING,
    STAGE,
    STAGE_QUEUE_COUNT,
    STAGE_TOPIC,
    TARGET_QUEUE,
    TARGET_TOPIC,
    Done,
    Publish,
    Published,
    read_note,
)
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.read import PullStatus
from bolide.store.record import Draft, decode

log = logging.getLogger(__name__)

TABLE_NAME = "bolidePublished.json"
STAGE_LIFE_MS = 3_600_000
QUERIES_MAX = 10_000
_MARKS = QueueKey(MARK_TOPIC, 0)
_READ_COUNT = 32
_WAITING = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))  # where messages with a delay wait for their queues
_WAITING_NAMES = (names.DELAY.encode(), TIMER_PREFIX.encode())


class Table(msgspec.Struct):
    """The file: up to where the mark topic is in it, and of each query the last batch and when that was published.

    `owners` are the users of queries, where access is checked.
    """

    offset: int = 0
    marks: dict[str, tuple[int, int]] = {}
    owners: dict[str, str] = {}


@dataclass(slots=True)
class _Begun:
    """A batch whose publication was noted: from which place in the log on, and how many stages are done.

    `known` are the messages that were published in an earlier life.
    """

    publish: Publish
    noted_at: int
    done_count: int = 0
    known: frozenset[bytes] = frozenset()


class _Fresh(NamedTuple):
    """A mark that is in the log and not in the table yet."""

    log_end: int
    offset: int  # of the mark topic, up to which all is done then
    query: str
    batch: int
    at_ms: int


class StagedBatches:
    """Publishes batches, one after the other."""

    def __init__(self, state: BrokerState, intake: Intake, table_writer: TableWriter) -> None:
        self._state = state
        self._store = state.store
        self._topics = state.topics
        self._intake = intake
        self._settings = state.settings
        self._table_writer = table_writer
        self._clock = state.clock
        self._path: Path = state.settings.now.directory / TABLE_NAME
        self._table = Table()
        self._marks: dict[str, int] = {}
        self._owners: dict[str, str] = {}  # of queries that were published by somebody with a name
        self._fresh: deque[_Fresh] = deque()
        self._begun: dict[str, _Begun] = {}
        self._turn = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PUBLISH_STAGED: self.publish}

    def publish(self, request: Request) -> Awaitable[Reply]:
        """27001: prepare for a batch, or publish it."""
        try:
            wanted = Publish.decode(request.command.body)
        except ValueError as problem:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"no request to publish: {problem}") from None
        config = self._settings.now
        if self._state.is_slave:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this broker is a slave and takes no messages; ask its master")
        if not self._state.may_write:
            raise Refusal(ResponseCode.NO_PERMISSION, f"broker {config.name} is closed for writing (brokerPermission)")
        return self._answer(request, self._owned(request, wanted))

    def _owned(self, request: Request, wanted: Publish) -> Publish:
        """The request with its user. The name of a query is in every message of it, so that others may know it: by an
        empty batch of a high number they could have its later ones passed over as done.
        """
        user_of = self._state.members.user_of
        user = "" if user_of is None else user_of(request.session)
        owner = self._owners.get(wanted.query, "")
        if owner and user != owner and user_of is not None:
            remark = f"query {shown(wanted.query)} is of user {owner}; take a new checkpoint to write as another"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return msgspec.structs.replace(wanted, user=user)

    async def _answer(self, request: Request, wanted: Publish) -> Reply:
        end = 0
        if wanted.stages is None:
            await self._prepare()
        else:
            async with self._turn:
                await self._publish(wanted)
            end = self._store.log_end
        body = Published(published=self.last_done(wanted.query)).encode()
        return self._intake.when_safe(request, end, request.command.answer(ResponseCode.SUCCESS, body=body))

    async def _prepare(self) -> None:
        """The two topics, kept before anybody relies on them: at a start queues without a topic are deleted."""
        self._topics.ensure(STAGE_TOPIC, STAGE_QUEUE_COUNT, PERM_WRITE)
        self._topics.ensure(MARK_TOPIC, 1, PERM_READ)
        try:
            await self._table_writer.flush()
        except StoreError as problem:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the stage topic could not be made: {problem}") from None

    def last_done(self, query: str) -> int:
        """The last batch of a query that is published."""
        return self._marks.get(query, NOTHING)

    # Publishing

    async def _publish(self, wanted: Publish) -> None:
        begun = self._begun.get(wanted.query)
        if begun is not None:
            await self._carry_out(begun)  # an earlier request did not come to its end
        if wanted.batch > self.last_done(wanted.query):
            assert wanted.stages is not None
            await self._check(wanted)
            appended = self._intake.append_own([self._note(wanted.encode())])
            begun = self._begun[wanted.query] = _Begun(wanted, appended.physical_offsets[0])
            self._own(wanted)
            await self._carry_out(begun)

    def _own(self, publish: Publish) -> None:
        if publish.user:
            self._owners[publish.query] = publish.user

    async def _check(self, wanted: Publish) -> None:
        """Refuse what could not be carried out to its end, before it is begun."""
        newest_ms = 0
        for queue_id, offset in wanted.stages or ():
            stage = self._stage(queue_id, offset)
            if stage is None or not stage.properties.get(STAGE, "").startswith(f"{wanted.query}/{wanted.batch}/"):
                what = "is gone" if stage is None else "belongs to another batch"
                remark = f"stage {offset} of queue {queue_id} {what}; batch {wanted.batch} has to be staged again"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
            newest_ms = max(newest_ms, stage.stored_at)
            self._check_target(stage)
            self._check_items(stage)
            await asyncio.sleep(0)
        if wanted.stages and newest_ms < self._clock.now_ms() - STAGE_LIFE_MS:
            remark = f"batch {wanted.batch} was staged more than an hour ago and is dropped; it has to be staged again"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _check_target(self, stage: StoredMessage) -> None:
        key = target_of(stage)
        topic = None if key is None else self._topics.find(key.topic)
        if key is None or topic is None or is_system_topic(key.topic):
            remark = f"a stage for topic {shown(stage.properties.get(TARGET_TOPIC, ''))}, which is not here; create it"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_WRITE or not 0 <= key.queue_id < topic.write_queue_nums:
            remark = (
                f"queue {key.queue_id} of topic {key.topic!r} may not be written to: "
                f"it has {topic.write_queue_nums} queues for that, and permission {topic.perm}"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)

    def _check_items(self, stage: StoredMessage) -> None:
        try:
            items = split_batch(stage.body)
            for item in items:
                if _waits(item):
                    self._intake.route("", 0, item.properties)
        except ProtocolError as problem:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a stage that is no batch: {problem}") from None
        except Refusal as refusal:
            remark = f"a staged message cannot be published: {refusal.remark}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark) from None
        size_max = self._store.config.body_size_max
        if any(not 0 < len(item.body) <= size_max for item in items):
            remark = f"a staged message whose body is empty or larger than {size_max} bytes (maxMessageSize)"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    async def _carry_out(self, begun: _Begun) -> None:
        """Append the messages of all stages but those that are known to be there, and note the end."""
        publish = begun.publish
        stages = publish.stages or []
        while begun.done_count < len(stages):
            stage = self._stage(*stages[begun.done_count])
            if stage is None:
                log.error("stage gone, its messages are lost query=%s batch=%d", publish.query, publish.batch)
            else:
                self._append(stage, begun.known)
            begun.done_count += 1  # in one turn with the append: anyone who goes on begins behind it
            await asyncio.sleep(0)
        self._intake.append_own([self._note(Done(query=publish.query, done=publish.batch).encode())])
        del self._begun[publish.query]
        self._mark_done(publish.query, publish.batch)

    def _append(self, stage: StoredMessage, known: frozenset[bytes]) -> None:
        drafts = [draft for draft in self._drafts(stage) if not known or identity_of(draft.properties) not in known]
        if drafts:
            self._intake.append(drafts)

    def _drafts(self, stage: StoredMessage) -> Iterator[Draft]:
        key = target_of(stage)
        assert key is not None, "it was checked before the batch was begun"
        born = stage.born_at, stage.born_host.packed()
        for item in split_batch(stage.body):
            topic, queue_id, text = key.topic, key.queue_id, item.encoded_properties
            if _waits(item):
                topic, queue_id, properties = self._intake.route(topic, queue_id, item.properties)
                text = encode_properties(properties)
            yield Draft(topic, queue_id, item.body, text, item.flag, 0, *born)

    def _note(self, body: bytes) -> Draft:
        self._topics.ensure(MARK_TOPIC, 1, PERM_READ)
        return Draft(MARK_TOPIC, 0, body, b"", 0, 0, self._clock.now_ms(), self._store.store_host)

    def _mark_done(self, query: str, batch: int) -> None:
        self._marks[query] = batch
        offset = self._table.offset if self._begun else self._store.max_offset(_MARKS)
        self._fresh.append(_Fresh(self._store.log_end, offset, query, batch, self._clock.now_ms()))
        self._keep_durable()

    def _keep_durable(self) -> None:
        """Put into the table what cannot be lost any more."""
        table, has_changed = self._table, False
        while self._fresh and self._fresh[0].log_end <= self._store.durable_end:
            fresh = self._fresh.popleft()
            table.marks.pop(fresh.query, None)
            table.marks[fresh.query] = fresh.batch, fresh.at_ms  # the last one in the map is the newest
            if owner := self._owners.get(fresh.query):
                table.owners[fresh.query] = owner
            table.offset, has_changed = max(table.offset, fresh.offset), True
        while len(table.marks) > QUERIES_MAX:
            oldest = next(iter(table.marks))
            del table.marks[oldest]
            self._marks.pop(oldest, None)
            self._owners.pop(oldest, None)
            table.owners.pop(oldest, None)
        if has_changed:
            self._table_writer.save(self._path, lambda: msgspec.json.encode(self._table).decode())

    def _stage(self, queue_id: int, offset: int) -> StoredMessage | None:
        slices = self._store.read(QueueKey(STAGE_TOPIC, queue_id), offset, 1)
        if slices.status is not PullStatus.FOUND:
            return None
        stage = decode(slices.views[0])
        return stage if stage.queue_offset == offset else None

    # After a start

    def forget(self) -> None:
        """Another broker is the master now: what was published here may be cut off, and only the mark topic knows."""
        self._fresh.clear()
        self._begun.clear()
        self._marks, self._owners = {}, {}
        if self._table.marks or self._table.offset:
            self._table = Table()
            self._table_writer.save(self._path, lambda: msgspec.json.encode(self._table).decode())

    async def load(self) -> None:
        """Learn what was published, and carry out what was begun; nothing is served before that."""
        self._fresh.clear()
        self._begun.clear()
        self._table = read_whole(self._path, lambda text: msgspec.json.decode(text, type=Table), Table())
        self._marks = {query: batch for query, (batch, _) in self._table.marks.items()}
        self._owners = dict(self._table.owners)
        for slices in self._store.walk(_MARKS, self._table.offset, count_max=_READ_COUNT):
            for view in slices.views:
                self._take_in(view)
            await asyncio.sleep(0)
        for begun in list(self._begun.values()):
            begun.known = frozenset(self._appended_names(begun))
            try:
                await self._carry_out(begun)
            except Refusal as refusal:  # it goes on with the next request of its query
                log.error("batch not carried out yet query=%s problem=%s", begun.publish.query, refusal.remark)
            else:
                log.info("batch carried out query=%s batch=%d", begun.publish.query, begun.publish.batch)

    def _take_in(self, view: memoryview) -> None:
        try:
            note = decode(view)
            read = read_note(note.body)
        except (ValueError, StoreError) as problem:
            log.error("record of %s passed over: %s", MARK_TOPIC, problem)
            return
        if isinstance(read, Publish):
            self._begun[read.query] = _Begun(read, note.physical_offset)
            self._own(read)
        else:
            self._begun.pop(read.query, None)
            self._marks[read.query] = read.done
            self._fresh.append(
                _Fresh(self._store.log_end, note.queue_offset + 1, read.query, read.done, note.stored_at)
            )

    def _appended_names(self, begun: _Begun) -> Iterator[bytes]:
        """The names of the batch's messages that were appended since it was noted."""
        publish = begun.publish
        stages = [self._stage(*place) for place in publish.stages or ()]
        targets = {key for stage in stages if stage is not None and (key := target_of(stage)) is not None}
        waiting = {key for key in self._store.queue_keys if key.topic in _WAITING}
        for key in targets | waiting:
            yield from self._names_behind(key, begun.noted_at, f"{publish.query}/{publish.batch}/".encode())

    def _names_behind(self, key: QueueKey, physical_offset: int, prefix: bytes) -> Iterator[bytes]:
        queue = self._store.queue(key)
        offset = 0 if queue is None else queue.next_offset
        while queue is not None and offset > queue.min_offset:
            offset -= 1
            at, size, _ = queue.entry(offset)
            if at < physical_offset:
                return
            record = self._store.view(at, size)
            name = None if record is None else identity_of(bytes(record))
            if name is not None and name.startswith(prefix):
                yield name


def target_of(stage: StoredMessage) -> QueueKey | None:
    """Where the messages of a stage belong."""
    topic, queue_id = stage.properties.get(TARGET_TOPIC), stage.properties.get(TARGET_QUEUE, "")
    return QueueKey(topic, int(queue_id)) if topic and queue_id.isdecimal() and len(queue_id) < 10 else None


def identity_of(text: bytes) -> bytes | None:
    """The name of a message, in its properties or in a record that ends with them."""
    start = text.rfind(f"{IDENTITY}\x01".encode())
    return None if start < 0 else text[start + len(IDENTITY) + 1 :].partition(b"\x02")[0]


def _waits(item: BatchItem) -> bool:
    return any(name in item.encoded_properties for name in _WAITING_NAMES)
