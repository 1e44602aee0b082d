"""Messages come in: one (10, 310), or many in one request (320), one-way too.

This is the plain path: every rule, one request at a time. Sends that need no thought are taken by `hotpath.py`, a whole
read at once, by the same rules; a test holds the two to the same bytes. The message is appended before anything is
awaited, so that sends of one connection are stored in the order in which they came.

What is answered: the place of the message, and region and trace switch, which Java looks for in every answer, refusals
too. What is to be delivered later waits elsewhere (`later/routing.py`), half messages are kept aside until their
transaction ends (`transactions/`), and what comes back is in `send_back.py`.
"""

import os
import random
from collections.abc import Awaitable, Mapping
from functools import lru_cache

from bolide.broker.config import BrokerConfig
from bolide.broker.intake import Intake
from bolide.broker.later.routing import TIMER_PREFIX, Destination
from bolide.broker.members.locks import Locks
from bolide.broker.pop.lanes import group_of_retry
from bolide.broker.sending.dead_letters import dead_properties
from bolide.broker.state import BrokerState
from bolide.broker.tables.open_topics import OpenTopics, queue_count
from bolide.broker.tables.topics import PERM_WRITE
from bolide.broker.transactions.halves import is_half, prepared
from bolide.errors import ConfigError, ProtocolError, Refusal, StoreError
from bolide.kernel.layout import DELAYED_MESSAGE, HALF_MESSAGE, ORDERED_MESSAGE, PLAIN_MESSAGE
from bolide.model import properties as names
from bolide.model.host import Host
from bolide.model.names import topic_problem
from bolide.model.queue import QueueOffset
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, dead_letter_topic, is_closed_topic
from bolide.protocol import sysflags
from bolide.protocol.batch import split_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageAnswer, SendMessageRequest
from bolide.protocol.ids import UniqueIds
from bolide.protocol.properties import PAIR_END, encode_properties, parse_properties
from bolide.remoting.address import split_address
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.record import Draft

# A message that brings one of these is rewritten: our values count, and a pop handle belongs to another message.
REWRITTEN_NAMES = frozenset([names.REGION, names.TRACE_ON, names.CLUSTER, names.POP_HANDLE])
_SUSPECT_NAMES = (TIMER_PREFIX.encode(), names.DELAY.encode(), names.INNER_COUNT.encode())
_UNIT_FLAG, UNIT_SUBSCRIBED_FLAG = 1, 2
RETRY_LIMIT_VERSION = 121  # 3.4.9: from here on the request's own limit of retries counts


class Sends:
    """Takes messages in, one request at a time."""

    def __init__(self, state: BrokerState, intake: Intake, open_topics: OpenTopics, locks: Locks) -> None:
        self._topics = state.topics
        self._groups = state.groups
        self._locks = locks
        self._store = state.store
        self._intake = intake
        self._state = state
        self._settings = state.settings
        self._stats = state.stats
        self._clock = state.clock
        self._unique_ids = UniqueIds(state.store.store_host[:-4], os.getpid(), random.getrandbits(32), state.clock)
        self._open_topics = open_topics

    def handlers(self) -> dict[int, Handler]:
        sends = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        return dict.fromkeys(sends, self.send)

    def send(self, request: Request) -> Reply | Awaitable[Reply]:
        """10, 310, 320: a message or a batch, with the checks in RocketMQ's order."""
        command = request.command
        try:
            self._check_ready(request)
            header = SendMessageRequest.decode(command.fields, short=command.code != RequestCode.SEND_MESSAGE)
            config = self._topic_for(header)
            queue_id = self._queue_for(header, config)
            properties = parse_properties(header.properties or "")
            config, queue_id, properties = self._or_dead_letter(command, header, config, queue_id, properties)
            self._check_kind(header, properties)
            drafts, unique_id, handle = self._drafts(request, header, config.topic_name, queue_id, properties)
            waits = self._intake.is_sync and properties.get(names.WAIT, "true").lower() == "true"
            appended = self._intake.append(drafts, waits=waits)
        except Refusal as refusal:
            return self._intake.refused(command, refusal)
        if self._state.meter is not None:
            size = appended.end - appended.places[0]
            self._state.meter.sent_one(drafts[0].topic, kind_of(properties), len(drafts), size)
        if config.topic_name != header.topic:
            origin = properties.get(names.RETRY_TOPIC, header.topic)
            self._stats.died(config.topic_name.removeprefix(DEAD_LETTER_PREFIX), origin)
        ids = [self._store.store_host + place.to_bytes(8, "big") for place in appended.physical_offsets]
        settings = self._settings.now
        answer = command.answer(
            ResponseCode.SUCCESS,
            fields=SendMessageAnswer(
                region=settings.region,
                is_traced=settings.is_traced,
                message_id=",".join([offset_id.hex().upper() for offset_id in ids]),
                queue_id=queue_id,
                queue_offset=QueueOffset(appended.queue_offsets[0]),
                transaction_id=unique_id,
                recall_handle=handle,
            ).encode(),
        )
        end, count = appended.end if waits else 0, len(drafts)
        if not self._open_topics.is_kept(config.topic_name):
            return self._when_kept(request, config.topic_name, end, answer, count)
        return self._intake.when_safe(request, end, answer, count=count, refuse=self._intake.refused)

    async def _when_kept(self, request: Request, topic: str, end: int, answer: Command, count: int) -> Reply:
        """The answer once a new topic would survive a crash, and the message."""
        try:
            await self._open_topics.keep(topic)
        except StoreError as problem:
            remark = f"the message is stored, but its new topic {topic!r} is not: {problem}"
            return self._intake.refused(answer, Refusal(ResponseCode.SYSTEM_ERROR, remark))
        return self._intake.when_safe(request, end, answer, count=count, refuse=self._intake.refused)

    def admitted(self, request: Request, *, short: bool) -> tuple[SendMessageRequest, int]:
        """The header and the queue of what is like a send and is not stored by one: a reply. Raises Refusal."""
        self._check_ready(request)
        header = SendMessageRequest.decode(request.command.fields, short=short)
        queue_id = self._queue_for(header, self._topic_for(header))
        self._check_body(request.command.body)
        return header, queue_id

    # The checks

    def _check_ready(self, request: Request) -> None:
        """Whether this broker takes messages at all, now, and this one is not too old."""
        config = self._settings.now
        check_ready(request, self._state)
        if self._clock.now_ms() < config.accepts_sends_from_ms:
            remark = f"messages are taken from {config.accepts_sends_from_ms} on (startAcceptSendRequestTimeStamp)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _topic_for(self, header: SendMessageRequest) -> TopicConfig:
        topic, settings = header.topic, self._settings.now
        config = self._topics.find(topic)
        if config is not None and config.order and not self._state.may_write:
            remark = (
                f"broker {settings.name} is closed for writing (brokerPermission), and {topic!r} is an ordered topic"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if problem := topic_problem(topic):
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if is_closed_topic(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic!r} is the broker's own; send to another")
        if config is None:
            config = self._created(header)
        if not config.perm & PERM_WRITE:
            remark = f"topic {topic!r} may not be written to (perm {config.perm}); give it permission 2 or 6"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return config

    def _created(self, header: SendMessageRequest) -> TopicConfig:
        sys_flag = 0
        if header.is_unit_mode:
            sys_flag = UNIT_SUBSCRIBED_FLAG if header.topic.startswith(RETRY_PREFIX) else _UNIT_FLAG
        config = self._topics.for_send(header.topic, header.default_topic, header.default_topic_queue_count, sys_flag)
        if config is None:
            remark = (
                f"topic {header.topic!r} is not on this broker, and could not be made after {header.default_topic!r} "
                "(autoCreateTopicEnable); create it or check the spelling"
            )
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return config

    def _queue_for(self, header: SendMessageRequest, config: TopicConfig) -> int:
        if header.queue_id >= queue_count(config) or config.write_queue_nums <= 0 > header.queue_id:
            remark = (
                f"queue {header.queue_id} of topic {config.topic_name!r} is not there: it has "
                f"{config.read_queue_nums} queues to read and {config.write_queue_nums} to write"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return header.queue_id if header.queue_id >= 0 else random.randrange(config.write_queue_nums)

    def _or_dead_letter(
        self,
        command: Command,
        header: SendMessageRequest,
        config: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[TopicConfig, int, dict[str, str]]:
        """Where a message for a retry topic goes: there, or to the group's dead letters after too many attempts.

        A group that holds locks is ordered and retries at home: what it sends here it has given up (5.x).
        """
        if not header.topic.startswith(RETRY_PREFIX):
            return config, queue_id, properties
        name = group_of_retry(header.topic, properties.get(names.ORIGIN_GROUP, ""))
        group = self._groups.find(name)
        if group is None:
            remark = f"group {name!r} is not here and may not be made by use (autoCreateSubscriptionGroup); create it"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = group.retry_max_times
        if header.reconsume_times_max is not None and command.version >= RETRY_LIMIT_VERSION:
            limit = header.reconsume_times_max
        if (header.reconsume_times or 0) <= limit and not self._locks.has_live(name):
            return config, queue_id, properties
        left = {key: value for key, value in properties.items() if key != names.DELAY}
        message_id = left.get(names.UNIQUE_KEY) or left.get(names.ORIGIN_MESSAGE_ID, "")
        left = dead_properties(left, header.topic, message_id)
        return self._topics.ensure(dead_letter_topic(name), 1), 0, left

    def _check_kind(self, header: SendMessageRequest, properties: Mapping[str, str]) -> None:
        """Refuse what could not be kept as what it is."""
        is_prepared = is_half(properties, header.reconsume_times or 0)
        if is_prepared or header.sys_flag & sysflags.TRANSACTION_MASK:
            if self._settings.now.refuses_transactions:
                remark = f"broker {self._settings.now.name} takes no transactions (rejectTransactionMessage)"
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
            if not is_prepared or header.is_batch:
                remark = "half a half message: it needs the property TRAN_MSG=true, and may not be one of a batch"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        _check_kept(properties)
        if header.is_batch and header.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch for {header.topic!r}; send its messages one by one")

    def _check_body(self, body: bytes) -> None:
        limit = self._store.config.body_size_max
        if not body or len(body) > limit:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a body of {len(body)} bytes, it may have 1 to {limit}")

    # What is stored

    def _drafts(
        self,
        request: Request,
        header: SendMessageRequest,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[list[Draft], str | None, str | None]:
        """The messages of a request, the unique id its answer tells, and the handle to recall a timed one by."""
        body = request.command.body
        self._check_body(body)
        born = (header.born_ms, pack_peer(request.session.peer), header.reconsume_times or 0)
        unique_id = properties.get(names.UNIQUE_KEY)
        if not header.is_batch:
            unique_id = unique_id or self._unique_ids.next()
            sys_flag = header.sys_flag & ~sysflags.TRANSACTION_MASK
            if is_half(properties, header.reconsume_times or 0):
                # It waits where its transaction is decided; a delay it has begins then.
                where = Destination(*prepared(topic, queue_id, properties, unique_id))
            else:
                where = self._intake.route(topic, queue_id, properties)
            text = self._stored_properties(header.properties or "", where.properties, unique_id)
            draft = Draft(where.topic, where.queue_id, body, text, header.flag, sys_flag, *born)
            return [draft], unique_id, where.recall_handle(self._settings.now.name, unique_id)
        try:
            items = split_batch(body)
        except ProtocolError as problem:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"no batch: {problem}") from None
        for item in items:
            # Looked for in the bytes first: hardly any batch has one, and a map of each message is dear.
            if any(name in item.encoded_properties for name in _SUSPECT_NAMES):
                _check_plain(item.properties)
        # As 5.4 and later: what the request says of all messages is not copied into each.
        return (
            [
                Draft(topic, queue_id, item.body, item.encoded_properties, item.flag, header.sys_flag, *born)
                for item in items
            ],
            unique_id,
            None,
        )

    def _stored_properties(self, text: str, properties: dict[str, str], unique_id: str) -> bytes:
        """What the sender gave, and behind it what the broker adds."""
        added = broker_properties(self._settings.now)
        if names.UNIQUE_KEY not in properties:
            added = {names.UNIQUE_KEY: unique_id, **added}
        given = parse_properties(text)
        is_rewritten = not REWRITTEN_NAMES.isdisjoint(properties)
        if is_rewritten or any(properties.get(name) != value for name, value in given.items()):
            return encode_properties(
                {key: value for key, value in properties.items() if key not in REWRITTEN_NAMES} | added
            )
        if text and not text.endswith(PAIR_END):
            text += PAIR_END
        own = {name: value for name, value in properties.items() if name not in given}
        return text.encode() + encode_properties(own | added)


def check_ready(request: Request, state: BrokerState) -> None:
    """Whether this broker writes at all, and the request has not waited too long; for all that stores messages."""
    if state.is_slave:
        remark = "[REJECTREQUEST]this broker is a slave and takes no messages; send to its master"
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    waited_ms, config = (state.clock.monotonic_s() - request.arrived_s) * 1000, state.settings.now
    if config.fails_fast and waited_ms > config.send_wait_max_ms:
        remark = f"[TIMEOUT_CLEAN_QUEUE]broker busy, the message waited {waited_ms:.0f} ms; send it again later"
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)


def kind_of(properties: Mapping[str, str]) -> int:
    """What a message is, as RocketMQ's metrics tell it."""
    if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true":
        return HALF_MESSAGE
    if names.DELAY in properties or not properties.keys().isdisjoint(names.TIMED_NAMES):
        return DELAYED_MESSAGE
    return ORDERED_MESSAGE if names.SHARDING_KEY in properties else PLAIN_MESSAGE


def broker_properties(config: BrokerConfig) -> dict[str, str]:
    """What a broker writes into every message, as 5.x does."""
    return {
        names.REGION: config.region,
        names.TRACE_ON: "true" if config.is_traced else "false",
        names.CLUSTER: config.cluster,
    }


@lru_cache(maxsize=4096)
def pack_peer(peer: str) -> bytes:
    """The other end of a connection, as records hold it; of a socket without an address, zeros."""
    try:
        return Host(*split_address(peer)).packed()
    except (ConfigError, ValueError):
        return bytes(8)


def _check_kept(properties: Mapping[str, str]) -> None:
    if names.INNER_COUNT in properties:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "an inner batch (INNER_NUM), which is not kept here")


def _check_plain(properties: Mapping[str, str]) -> None:
    """What may be one of a batch."""
    level = properties.get(names.DELAY, "0")
    if level not in ("0", "-1"):
        remark = f"a message with delay level {level[:20]} in a batch; send delayed messages one by one"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    if not properties.keys().isdisjoint(names.TIMED_NAMES):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a timed message in a batch; send timed messages one by one")
    _check_kept(properties)
