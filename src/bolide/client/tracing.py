"""What became of each message, told by producers and consumers: records in a trace topic, as RocketMQ's clients write.

Anyone who sends or consumes notes a record and goes on. Records wait in a bounded queue, leave in batches, one message
for those of one topic, and find themselves under the ids and keys of what they tell about. Tracing must never disturb
what it watches: a full queue drops records, a trace topic that cannot be written costs a line in the log, and it all
goes over connections of its own. What is noted at the end leaves within the close.

Messages of the trace topic itself are not traced, nor those of a broker that does not want it (`traceOn=false`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from types import TracebackType
from typing import Protocol, Self

import msgspec

from bolide.client.config import ClientConfig
from bolide.client.instance import BROKER_NOT_IN_ROUTE, NO_ROUTE, Instance, open_instance
from bolide.client.sending.message import DEFAULT_QUEUE_COUNT, SendRules, send_command, to_queue, with_id
from bolide.client.sending.receipt import receipt_of
from bolide.client.sending.selection import Selection
from bolide.client.watching import SUCCESS
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError, NoAnswer, ProtocolError
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import TRACE_TOPIC
from bolide.protocol.batch import split_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.ids import UniqueIds
from bolide.protocol.properties import parse_properties
from bolide.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
    encode_trace,
    trace_keys,
)
from bolide.remoting.isolated_tasks import IsolatedTasks

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
WAITING_MAX = 2048
BATCH_COUNT = 100
LINGER_S = 0.5
_NORMAL, _HALF, _COMMIT, _DELAYED = 0, 1, 2, 3
_BODY_SIZE_MAX = 118_000
_KEYS_SIZE_MAX = 16_000
_UNENDED_MAX = 10_000
_SEND_LIMIT_S = 5.0
_CLOSE_LIMIT_S = 3.0
_NOBODY_THERE = (NO_ROUTE, BROKER_NOT_IN_ROUTE)
_STORED = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
)
_PAUSE_S = 0.1  # between two attempts to reach a broker
_REGION = "DefaultRegion"
_DELAY_NAMES = (names.DELAY, names.START_DELIVER_AT, names.TIMER_DELIVER_AT, names.TIMER_DELAY_S, names.TIMER_DELAY_MS)
log = logging.getLogger(__name__)


class Traced(Protocol):
    """What a consumed message says of itself."""

    @property
    def topic(self) -> str: ...

    @property
    def msg_id(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def retry_times(self) -> int: ...


class Tracing:
    """The records of one producer or consumer; any thread may note one. Open while its `async with` block runs."""

    def __init__(self, group: str, topic: str | bool, config: ClientConfig, clock: Clock) -> None:
        self.group = group
        self.topic = topic if isinstance(topic, str) else TRACE_TOPIC
        self._config = msgspec.structs.replace(config, instance_name="")
        self._clock = clock
        self._rules = SendRules(group=f"{GROUP_PREFIX}-{group}", compress_over=_BODY_SIZE_MAX * 2)
        self._waiting: deque[tuple[str, TraceRecord]] = deque()
        self._begun: dict[Traced, ConsumeBegun] = {}
        self._stack = AsyncExitStack()
        self._guests = IsolatedTasks()
        self._wake = asyncio.Event()
        self._is_woken = False
        self._is_closing = False
        self._is_failing = False
        self._had_route = False
        self._dropped_count = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    # Life

    async def __aenter__(self) -> Self:
        instance = await self._stack.enter_async_context(open_instance(self._config, self._clock))
        ip = ip_address(instance.client_id.partition("@")[0]).packed
        self._ids = UniqueIds(ip, instance.process_id, id(self), self._clock)
        self._selection = Selection(instance.chance)
        await self._stack.enter_async_context(self._guests)
        self._task = self._guests.start(self._send_forever(instance), name=f"tracing.{self.group}")
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None
        self._is_closing = True
        self._wake.set()
        await asyncio.wait((self._task,), timeout=_CLOSE_LIMIT_S)
        if not self._task.done():
            log.warning("trace records lost at the close group=%s count=%d", self.group, len(self._waiting))
            self._task.cancel()
        await self._stack.aclose()

    # Noting

    def published(self, command: Command, queue: MessageQueue, address: str, answer: Command, begun_ms: int) -> None:
        """A send (or a batch: each of its messages) was answered; attempts without an answer are not told of."""
        if answer.code not in _STORED or queue.topic == self.topic or _is_off(answer.fields):
            return
        cost_ms = max(self._clock.now_ms() - begun_ms, 0)
        offset_ids = answer.fields.get("msgId", "").split(",")
        for i, (properties, size) in enumerate(_sent(command)):
            record = Published(
                at=begun_ms,
                region=answer.fields.get(names.REGION) or _REGION,
                group=self.group,
                topic=queue.topic,
                message_id=properties.get(names.UNIQUE_KEY) or offset_ids[0],
                tags=properties.get(names.TAGS),
                keys=properties.get(names.KEYS),
                store_host=address,
                body_size=size,
                cost_ms=cost_ms,
                message_type=_message_type(properties),
                offset_id=offset_ids[min(i, len(offset_ids) - 1)],
                is_success=answer.code == ResponseCode.SUCCESS,
            )
            self._note(queue.topic, record)

    def begun(self, message: Traced) -> None:
        """A message was given to the user."""
        properties = message.properties
        if message.topic == self.topic or _is_off(properties):
            return
        record = ConsumeBegun(
            at=self._clock.now_ms(),
            region=properties.get(names.REGION),
            group=self.group,
            request_id=self._ids.next(),
            message_id=message.msg_id,
            retry_times=message.retry_times,
            keys=properties.get(names.KEYS),
        )
        if len(self._begun) >= _UNENDED_MAX:  # messages of queues that were lost have no end
            with suppress(StopIteration, KeyError, RuntimeError):
                del self._begun[next(iter(self._begun))]
        self._begun[message] = record
        self._note(message.topic, record)

    def ended(self, message: Traced, outcome: int) -> None:
        """The user is done with it, well (0) or not; only the first word counts."""
        begun = self._begun.pop(message, None)
        if begun is None:
            return
        now_ms = self._clock.now_ms()
        record = ConsumeEnded(
            request_id=begun.request_id,
            message_id=begun.message_id,
            cost_ms=max(now_ms - begun.at, 0),
            is_success=outcome == SUCCESS,
            keys=begun.keys,
            outcome=outcome,
            at=now_ms,
            group=self.group,
        )
        self._note(message.topic, record)

    def transaction_ended(
        self, message: Message, address: str, state: str, transaction_id: str | None, *, is_from_check: bool
    ) -> None:
        """A half message was decided on; `state` is RocketMQ's word, like COMMIT_MESSAGE."""
        record = TransactionEnded(
            at=self._clock.now_ms(),
            region=message.properties.get(names.REGION) or _REGION,
            group=self.group,
            topic=message.topic,
            message_id=message.unique_id or "",
            tags=message.tags,
            keys=message.properties.get(names.KEYS),
            store_host=address,
            message_type=_COMMIT,
            transaction_id=transaction_id or message.unique_id,
            state=state,
            is_from_check=is_from_check,
        )
        self._note(message.topic, record)

    def recalled(self, topic: str, message_id: str, region: str | None, *, is_success: bool) -> None:
        """A timed message was called back, or that was tried."""
        self._note(
            topic,
            Recalled(
                at=self._clock.now_ms(),
                region=region or _REGION,
                group=self.group,
                topic=topic,
                message_id=message_id,
                is_success=is_success,
            ),
        )

    def _note(self, topic: str, record: TraceRecord) -> None:
        loop = self._loop
        if loop is None:
            return
        if len(self._waiting) >= WAITING_MAX:
            if not self._dropped_count:
                log.warning("trace records dropped: %d wait already group=%s", WAITING_MAX, self.group)
            self._dropped_count += 1
            return
        self._waiting.append((topic, record))
        if not self._is_woken or len(self._waiting) == BATCH_COUNT:
            self._is_woken = True
            loop.call_soon_threadsafe(self._wake.set)

    # Sending

    async def _send_forever(self, instance: Instance) -> None:
        while not self._is_closing or self._waiting:
            await self._wake.wait()
            if len(self._waiting) < BATCH_COUNT and not self._is_closing:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_S):  # the close does not wait for company
                        await self._wake.wait()
            self._wake.clear()
            self._is_woken = False
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            for start in range(0, len(taken), BATCH_COUNT):
                await self._send_batch(instance, taken[start : start + BATCH_COUNT])
            if self._is_closing:
                self._wake.set()

    async def _send_batch(self, instance: Instance, batch: list[tuple[str, TraceRecord]]) -> None:
        by_topic: dict[str, list[TraceRecord]] = {}
        for topic, record in batch:
            by_topic.setdefault(topic, []).append(record)
        for records in by_topic.values():
            for part in parts(records):
                await self._send(instance, part)

    async def _send(self, instance: Instance, records: list[TraceRecord]) -> None:
        message = with_id(Message(self.topic, encode_trace(records), keys=trace_keys(records)), self._ids.next())
        try:
            async with asyncio.timeout(_SEND_LIMIT_S):
                while not await self._is_taken(instance, message):
                    await instance.doubt(self.topic)  # the broker may have moved
                    await asyncio.sleep(_PAUSE_S)
        except asyncio.CancelledError:
            log.warning("trace records lost at the close topic=%s count=%d", self.topic, len(records))
            raise
        except (BolideError, TimeoutError) as problem:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            log.log(level, "trace records lost topic=%s count=%d problem=%r", self.topic, len(records), problem)
            self._is_failing = True
        else:
            if self._dropped_count:
                log.warning("trace records dropped in all group=%s count=%d", self.group, self._dropped_count)
            self._is_failing = False
            self._dropped_count = 0

    async def _is_taken(self, instance: Instance, message: Message) -> bool:
        """False where the broker cannot be reached, or its topic had a route and has none: it may be restarting."""
        try:
            await self._attempt(instance, message)
        except NoAnswer:
            return False
        except ClientError as problem:
            if not self._had_route or problem.code not in _NOBODY_THERE:
                raise
            return False
        return True

    async def _attempt(self, instance: Instance, message: Message) -> None:
        route = await instance.route(self.topic, DEFAULT_QUEUE_COUNT)
        self._had_route = True
        if not route.publish:
            raise ClientError(f"topic {self.topic} takes no messages")
        queue = self._selection.choose(self.topic, route.publish, self._clock.monotonic_s())
        address = await instance.found_address(self.topic, queue.broker_name)
        command = send_command(message, self._rules, self._clock.now_ms())
        receipt_of(await instance.request(address, to_queue(command, queue), _SEND_LIMIT_S), queue, "")


def parts(records: Sequence[TraceRecord]) -> list[list[TraceRecord]]:
    """Records as many messages as their sizes need; the keys of a message have their limit too."""
    found: list[list[TraceRecord]] = [[]]
    body_size = keys_size = 0
    for record in records:
        size, keys = len(encode_trace([record])), sum(len(key.encode()) + 1 for key in trace_keys([record]))
        if found[-1] and (body_size + size > _BODY_SIZE_MAX or keys_size + keys > _KEYS_SIZE_MAX):
            found.append([])
            body_size = keys_size = 0
        found[-1].append(record)
        body_size, keys_size = body_size + size, keys_size + keys
    return found


def _is_off(properties: Mapping[str, str]) -> bool:
    return properties.get(names.TRACE_ON) == "false"


def _sent(command: Command) -> list[tuple[Mapping[str, str], int]]:
    """The properties and the size of each message of a send."""
    if command.code != RequestCode.SEND_BATCH_MESSAGE:
        return [(parse_properties(command.fields.get("i", "")), len(command.body))]
    try:
        return [(item.properties, len(item.body)) for item in split_batch(command.body)]
    except ProtocolError:
        return []


def _message_type(properties: Mapping[str, str]) -> int:
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return _HALF
    return _DELAYED if any(name in properties for name in _DELAY_NAMES) else _NORMAL
