"""Keeps one queue pulled: ask, wait at the broker for news, hand over what comes, ask again.

The rule: it stops asking while too much lies unsettled (count, bytes, or distance from the oldest to the newest), and
goes on the moment something is settled. An error costs a pause and never the queue.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from bolide import kernel
from bolide.client.access import failure_of
from bolide.client.consuming.class_filters import ClassFilters
from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.received import Home, Received
from bolide.client.consuming.rules import PullRules, SubscriberRules
from bolide.client.consuming.subscriptions import Labelled, tag_test
from bolide.client.instance import Instance
from bolide.errors import BolideError, NoAnswer, ProtocolError
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.protocol.batch import unwrap
from bolide.protocol.bodies.clients import Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import PullMessageAnswer, PullMessageRequest
from bolide.protocol.records import decode_record, inflate

_COMMIT, _SUSPEND, _SUBSCRIPTION, _CLASS_FILTER = 1, 2, 4, 8
_COMMITTING = str(_COMMIT | _SUSPEND | _SUBSCRIPTION)
_FLOW_CONTROL_PAUSE_S = 0.02
_GOES_ON = frozenset((ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY))
log = logging.getLogger(__name__)


class Reader(Protocol):
    """The member of a group that reads a queue, and hears what came of it."""

    group: str
    rules: SubscriberRules

    def found(self, inflight: InFlight) -> None:
        """Messages came."""

    def moved(self, inflight: InFlight, offset: int) -> None:
        """The broker has other offsets than we thought."""


class QueuePull:
    """The loop of one owned queue."""

    def __init__(
        self, instance: Instance, reader: Reader, inflight: InFlight, subscription: Subscription, filters: ClassFilters
    ) -> None:
        rules = reader.rules
        self._instance = instance
        self._reader = reader
        inflight.replier = instance.replier(reader.group)
        inflight.serializer = rules.serializer
        self._fields = _unchanging_fields(reader.group, inflight.queue, subscription, rules.pull)
        self._inflight = inflight
        self._is_wanted = tag_test(subscription) if subscription.tags_set else None
        self._rules = rules.pull
        self._filters = filters if subscription.class_filter_mode else None
        # A filter server asks its broker in its own name: what we settled is told otherwise.
        self._commits = not rules.is_broadcasting and self._filters is None
        self._needs_lock = rules.needs_lock
        self._at = ""

    async def run(self) -> None:
        """Until the queue is dropped."""
        inflight = self._inflight
        while not inflight.is_dropped:
            if self._is_held_up():
                await inflight.room()
                continue
            inflight.pulled_s = self._instance.clock.monotonic_s()
            try:
                await self._pull_once()
            except (BolideError, ValueError) as problem:
                await self._pause(problem)
        self._instance.outages.forget(inflight.queue)

    async def _pause(self, problem: BolideError | ValueError) -> None:
        """After an error; a broker that is away is told of once, not for each of its queues."""
        queue, instance = self._inflight.queue, self._instance
        if isinstance(problem, NoAnswer):
            await instance.doubt(queue.topic)
        if self._inflight.is_dropped:
            return
        if self._at and isinstance(problem, NoAnswer):
            instance.outages.failed(self._at, f"broker {queue.broker_name} at {self._at}", problem)
        else:
            instance.outages.failed(queue, f"reading {queue}", problem)
        await asyncio.sleep(self._rules.pause_s)

    def _is_held_up(self) -> bool:
        inflight, rules = self._inflight, self._rules
        return (
            inflight.is_paused
            or (self._needs_lock and not inflight.is_locked)
            or is_full(inflight, rules, is_span_bound=not self._needs_lock)
        )

    async def _pull_once(self) -> None:
        inflight = self._inflight
        address = self._at = await self._address()
        await self._instance.introduce(address)
        if self._filters is not None:
            address = await self._filters.server_for(inflight.queue.topic, address)
        answer = await self._instance.request(address, self._command(), self._rules.timeout_s)
        if inflight.is_dropped:
            return
        outages = self._instance.outages
        if outages:
            outages.worked(self._at)
        if answer.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL_PAUSE_S)
            return
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._reader.moved(inflight, PullMessageAnswer.decode(answer.fields).next_offset)
            return
        if answer.code not in _GOES_ON:
            raise failure_of(answer)
        if outages:
            outages.worked(inflight.queue)
        header = PullMessageAnswer.decode(answer.fields)
        inflight.broker_id = header.suggested_broker_id
        is_found = answer.code == ResponseCode.SUCCESS
        messages = decode_pulled(answer.body, inflight, self._is_wanted) if is_found else []
        inflight.add(messages, header.next_offset)
        if messages:
            self._reader.found(inflight)

    async def _address(self) -> str:
        """Where the last answer sent us; if that is gone, any of its name: reading goes on without a master."""
        queue, instance = self._inflight.queue, self._instance
        return instance.address(queue.broker_name, self._inflight.broker_id) or await instance.found_address(
            queue.topic, queue.broker_name
        )

    def _command(self) -> Command:
        inflight = self._inflight
        commit_offset = inflight.commit_offset if self._commits and inflight.broker_id == 0 else 0
        fields = self._fields.copy()
        fields["queueOffset"] = str(inflight.next_offset)
        if commit_offset > 0:
            fields["commitOffset"] = str(commit_offset)
            fields["sysFlag"] = _COMMITTING
        return Command(RequestCode.PULL_MESSAGE, fields=fields)


def is_full(inflight: InFlight, rules: PullRules, *, is_span_bound: bool = True) -> bool:
    """Whether so much of a queue lies unsettled that no more is asked for."""
    return (
        len(inflight) > rules.held_count_max
        or inflight.held_size > rules.held_size_max
        or (is_span_bound and inflight.span > rules.span_max)
    )


def _unchanging_fields(group: str, queue: MessageQueue, subscription: Subscription, rules: PullRules) -> dict[str, str]:
    """A pull of one queue, but for where it begins and what it commits: those alone differ from one to the next."""
    return PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=QueueOffset(0),
        message_count_max=rules.batch_count,
        sys_flag=_SUSPEND | (_CLASS_FILTER if subscription.class_filter_mode else _SUBSCRIPTION),
        commit_offset=QueueOffset(0),
        suspend_timeout_ms=int(rules.suspend_s * 1000),
        # With the expression in it a request is right also while the broker has not heard our heartbeat yet.
        subscription=subscription.sub_string,
        subscription_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        answer_size_max=rules.batch_size,
    ).encode()


def decode_pulled(body: bytes, home: Home, is_wanted: Callable[[Labelled], bool] | None) -> list[Received]:
    """The messages of an answer that were asked for; without `is_wanted` all were."""
    rows = kernel.cut_records(body)
    if rows is None:
        return _decode_odd(body, home, is_wanted)
    messages = [Received(home, row, body) for row in rows]
    return messages if is_wanted is None else list(filter(is_wanted, messages))


def _decode_odd(body: bytes, home: Home, is_wanted: Callable[[Labelled], bool] | None) -> list[Received]:
    """Records of every kind; one that nobody can read is said in the log and left out."""
    messages = []
    for record in _readable(body, home):
        for stored in unwrap(record):
            if is_wanted is not None and not is_wanted(stored):
                continue
            try:
                messages.append(Received.of(inflate(stored), home))
            except ProtocolError as problem:
                # To stop here would hold up its queue for ever.
                log.error("message skipped queue=%s id=%s problem=%s", home.queue, stored.message_id, problem)
    return messages


def _readable(body: bytes, home: Home) -> Iterator[StoredMessage]:
    """The records of an answer without those whose parts do not fit; where even a size does not, nothing does."""
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        try:
            yield decode_record(body, position)
        except ProtocolError as problem:
            if not 0 < size <= len(body) - position:
                raise
            log.error("message skipped queue=%s problem=%s", home.queue, problem)
        position += size
