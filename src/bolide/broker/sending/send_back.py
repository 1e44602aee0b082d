"""A message that could not be consumed comes back (36): again later, or among the group's dead letters.

What is stored is a new record with the same content and one failure more. It waits in the schedule topic for the level
of its failure (3 for the first: 10 s, then 30 s, a minute ... 2 h) and goes to %RETRY%group when due; after the last
attempt, or when the consumer gave it up, it goes to %DLQ%group at once. The rules are those of 5.5.0, in its order.

Where we differ: under synchronous flush the answer waits for the disk, and for the entry of a new topic (RocketMQ lets
the message go unflushed, WAIT=false, though its consumer counts it as done from here on). A group with a retry policy
of its own is retried by that (`backoff.py`), a consumer that names its delay in milliseconds beside the level gets just
that, and a dead letter says where it came from (`deadletters.py`).
"""

import logging
import random
from collections.abc import Awaitable, Mapping

from bolide.broker.intake import Intake
from bolide.broker.later.routing import TIMER_PREFIX, Destination
from bolide.broker.sending.backoff import level_not_below, own_delay_ms
from bolide.broker.sending.dead_letters import dead_properties
from bolide.broker.sending.send import RETRY_LIMIT_VERSION, UNIT_SUBSCRIBED_FLAG, check_ready
from bolide.broker.state import BrokerState
from bolide.broker.tables.open_topics import OpenTopics
from bolide.broker.tables.places import unknown_group
from bolide.broker.tables.topics import PERM_WRITE
from bolide.errors import Refusal, StoreError
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC, dead_letter_topic, retry_topic
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import DELAY_FIELD, REASON_FIELD, SendBackRequest
from bolide.protocol.properties import encode_properties
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.config import delays_ms_of
from bolide.store.record import Draft, decode

FIRST_RETRY_LEVEL = 3
_DIGITS_MAX = 18
log = logging.getLogger(__name__)


class SendBacks:
    """Takes back what consumers could not consume. `open_topics` is that of the sends."""

    def __init__(self, state: BrokerState, intake: Intake, open_topics: OpenTopics) -> None:
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store
        self._settings = state.settings
        self._stats = state.stats
        self._open_topics = open_topics
        self._intake = intake
        self._state = state
        self._delays_ms = delays_ms_of(state.store.config.delay_levels)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.take_back}

    def take_back(self, request: Request) -> Reply | Awaitable[Reply]:
        """36: one message, named by its place in the log."""
        command = request.command
        header = SendBackRequest.decode(command.fields)
        check_ready(request, self._state)
        group = self._groups.find(header.group)
        if group is None:
            raise unknown_group(header.group)
        self._check_writable()
        if group.retry_queue_nums <= 0:
            return command.answer(ResponseCode.SUCCESS)  # a group without retries: it is done with
        retry = self._retry_topic(header, group)
        message = self._read(header.physical_offset)
        limit = retry_limit(group, header.reconsume_times_max, command.version)
        level = level_of(message.reconsume_times, limit, header.delay_level)
        if level is None:
            reason = command.fields.get(REASON_FIELD, "")
            target, draft = self._dead_draft(message, header, reason)
        else:
            target = retry
            if header.delay_level > 0:
                delay_ms = asked_delay_ms(command.fields, self._settings.now.store.timer_delay_max_s)
            else:
                delay_ms = own_delay_ms(group.group_retry_policy, message.reconsume_times)
            draft = self._retry_draft(message, group, retry, level, delay_ms)
        try:
            # A dead letter counts as one, and as no message that was sent.
            is_counted = draft.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
            appended = self._intake.append([draft]) if is_counted else self._intake.append_own([draft])
        except Refusal as refusal:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"not taken back: {refusal.remark}") from None
        self._count(header.group, message, is_dead=level is None)
        answer = command.answer(ResponseCode.SUCCESS)
        if not self._open_topics.is_kept(target.topic_name):
            return self._when_kept(request, target.topic_name, appended.end, answer)
        return self._intake.when_safe(request, appended.end, answer)

    async def _when_kept(self, request: Request, topic: str, end: int, answer: Command) -> Reply:
        """The answer once a new topic would survive a crash, and the message: the consumer counts it as done then."""
        try:
            await self._open_topics.keep(topic)
        except StoreError as problem:
            remark = f"the message is stored, but its new topic {topic!r} is not: {problem}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from problem
        return self._intake.when_safe(request, end, answer)

    # The checks

    def _check_writable(self) -> None:
        config = self._settings.now
        if not self._state.may_write:
            remark = f"broker {config.name} is closed for writing (brokerPermission {config.permission})"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)

    def _retry_topic(self, header: SendBackRequest, group: GroupConfig) -> TopicConfig:
        sys_flag = UNIT_SUBSCRIBED_FLAG if header.is_unit_mode else 0
        config = self._topics.ensure(retry_topic(header.group), group.retry_queue_nums, sys_flag=sys_flag)
        if not config.perm & PERM_WRITE:
            remark = f"topic {config.topic_name!r} may not be written to (perm {config.perm}); give it permission 6"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return config

    def _read(self, physical_offset: int) -> StoredMessage:
        """The message itself, its body as it was stored."""
        view = self._store.record_at(physical_offset) if physical_offset >= 0 else None
        if view is None:
            remark = f"there is no message at {physical_offset} of the log; it may have been deleted with its file"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        try:
            return decode(view)
        except StoreError as problem:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the record at {physical_offset} is broken: {problem}") from None

    # What is stored

    def _retry_draft(
        self, message: StoredMessage, group: GroupConfig, retry: TopicConfig, level: int, delay_ms: int | None
    ) -> Draft:
        """The record that waits for the next attempt, for `delay_ms` or, without one, for what its level stands for."""
        queue_id = random.randrange(max(1, min(group.retry_queue_nums, retry.write_queue_nums)))
        properties = _sent_back(message)
        if delay_ms is None:
            destination = self._intake.route(retry.topic_name, queue_id, properties | {names.DELAY: str(level)})
        else:
            destination = self._put_off(retry.topic_name, queue_id, properties, delay_ms)
        return _draft(message, destination.topic, destination.queue_id, destination.properties)

    def _put_off(self, topic: str, queue_id: int, properties: dict[str, str], delay_ms: int) -> Destination:
        """A delay that is a level waits there, any other on the timer; without a timer, for the next longer level."""
        if delay_ms not in self._delays_ms and self._intake.has_timer:
            timed = {name: value for name, value in properties.items() if not name.startswith(TIMER_PREFIX)}
            timed.pop(names.DELAY, None)
            try:
                return self._intake.route(topic, queue_id, timed | {names.TIMER_DELAY_MS: str(delay_ms)})
            except Refusal as refusal:  # too many wait for that moment
                log.debug("not put on the timer topic=%s problem=%s", topic, refusal.remark)
        level = level_not_below(delay_ms, self._delays_ms)
        return self._intake.route(topic, queue_id, properties | {names.DELAY: str(level)})

    def _dead_draft(self, message: StoredMessage, header: SendBackRequest, reason: str) -> tuple[TopicConfig, Draft]:
        """The record that stays among the dead letters, and their topic."""
        config = self._topics.ensure(dead_letter_topic(header.group), 1)
        properties = _sent_back(message) | {names.DELAY: "0"}
        properties = dead_properties(properties, message.topic, message.message_id, reason)
        return config, _draft(message, config.topic_name, 0, properties)

    def _count(self, group: str, message: StoredMessage, *, is_dead: bool) -> None:
        origin = message.properties.get(names.RETRY_TOPIC, message.topic)
        self._stats.sent_back(group, origin)
        if is_dead:
            self._stats.died(group, origin)
            log.info("dead letter group=%s topic=%s id=%s", group, origin, message.message_id)


def retry_limit(group: GroupConfig, asked: int | None, version: int) -> int:
    """How often the message may be retried: as the consumer says, where it can say it, else as the group is set."""
    return asked if asked is not None and version >= RETRY_LIMIT_VERSION else group.retry_max_times


def level_of(reconsume_times: int, limit: int, asked: int) -> int | None:
    """The delay level before the next attempt; None when there is none, and the message is dead."""
    if reconsume_times >= limit or asked < 0:
        return None
    return asked or FIRST_RETRY_LEVEL + reconsume_times


def asked_delay_ms(fields: Mapping[str, str], limit_s: int) -> int | None:
    """The delay that the consumer asks for, at most what the timer allows; None where it names a level alone."""
    text = fields.get(DELAY_FIELD, "")
    return min(int(text), limit_s * 1000) if text.isdecimal() and len(text) <= _DIGITS_MAX else None


def _sent_back(message: StoredMessage) -> dict[str, str]:
    properties = dict(message.properties)
    properties.setdefault(names.RETRY_TOPIC, message.topic)
    if not properties.get(names.ORIGIN_MESSAGE_ID, "").strip():
        properties[names.ORIGIN_MESSAGE_ID] = message.offset_id
    properties[names.WAIT] = "false"
    return properties


def _draft(message: StoredMessage, topic: str, queue_id: int, properties: dict[str, str]) -> Draft:
    return Draft(
        topic,
        queue_id,
        message.body,
        encode_properties(properties),
        message.flag,
        message.sys_flag,
        message.born_at,
        message.born_host.packed(),
        message.reconsume_times + 1,
    )
