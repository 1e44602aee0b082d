"""SendMessage, EndTransaction and RecallMessage.

A message group always goes to the same queue: its hash over all queues that may be written, in one order. A transaction
is named to its client by its message's id and by where its half message lies, so nothing of it is kept here, and its
end finds it at any proxy and after any restart.
"""

import itertools
import random
from functools import lru_cache, partial
from typing import NamedTuple

from bolide import kernel
from bolide.errors import Refusal
from bolide.kernel.layout import ReceiptRow
from bolide.model import properties as names
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.model.topics import AUTO_CREATE_TOPIC, DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.protocol import sysflags
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import (
    EndTransactionRequest,
    RecallMessageAnswer,
    RecallMessageRequest,
    SendMessageAnswer,
    SendMessageRequest,
)
from bolide.protocol.ids import parse_recall_handle
from bolide.protocol.properties import join_properties
from bolide.proxy import messages as m
from bolide.proxy.answers import varint
from bolide.proxy.back import MIXED, NORMAL, Answer, TopicRoute, asked
from bolide.proxy.calls import Call
from bolide.proxy.checks import check_message, checked_topic, millis, topic_name
from bolide.proxy.clients import GrpcClient
from bolide.proxy.methods import Handler, Needs
from bolide.proxy.routing import accepted_kinds
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, denial_of, ok, set_status, status
from bolide.proxy.translation import PRIORITY_KIND, kind_of, stored_body, stored_properties
from bolide.store.config import delays_ms_of

_ANSWER_LIMIT_S = 3.0
_MESSAGES_MAX = 1_000
_OFFSET_ID_LENGTHS = (32, 56)  # in hexadecimal digits: with an address of IPv4, of IPv6
_ID_SEPARATOR = "@"
_JUMP_FACTOR, _JUMP_MASK = 2_862_933_555_777_941_757, (1 << 64) - 1
_TRANSACTION = m.MessageType.TRANSACTION
_OK_FIELD = m.SendMessageResponse(status=ok()).SerializeToString()  # the same in an entry: both have it as their first
_OUTCOMES = {m.TransactionResolution.COMMIT: sysflags.COMMITTED, m.TransactionResolution.ROLLBACK: sysflags.ROLLED_BACK}


class Place(NamedTuple):
    """Where a half message lies; a client holds it as its transaction id."""

    message_id: str
    queue_offset: int
    physical_offset: int
    broker: str


class PlainSend(NamedTuple):
    """A request of one message that needs no thought, as the kernel reads it."""

    topic: str
    message_id: str
    properties: str
    body: bytes
    born_ms: int


class Sending:
    """Takes messages in and ends transactions."""

    def __init__(self, state: ProxyState) -> None:
        self._state = state
        self._turns = itertools.count(random.getrandbits(16))

    def handlers(self) -> dict[str, Handler]:
        return {
            "SendMessage": Handler(
                m.SendMessageRequest, m.SendMessageResponse, self.send, _topic_of_send, read=self._read
            ),
            "EndTransaction": Handler(m.EndTransactionRequest, m.EndTransactionResponse, self.end_transaction),
            "RecallMessage": Handler(m.RecallMessageRequest, m.RecallMessageResponse, self.recall, _topic_of_recall),
        }

    def _read(self, content: bytes) -> m.SendMessageRequest | PlainSend:
        config = self._state.config
        found = kernel.read_grpc_send(content, config.body_size_max, config.properties_size_max)
        return m.SendMessageRequest.FromString(content) if found is None else PlainSend(*found)

    def send(self, call: Call, request: m.SendMessageRequest | PlainSend) -> None:
        """One message or several of one topic; the answer has an entry for each."""
        client = self._state.clients.of(call)
        if isinstance(request, PlainSend):
            self._send_plain(call, client, request)
            return
        messages = request.messages
        if not 0 < len(messages) <= _MESSAGES_MAX:
            raise Denied(m.Code.MESSAGE_CORRUPTED, f"{len(messages)} messages in one request, 1 to {_MESSAGES_MAX} go")
        topic = topic_name(messages[0].topic)
        if any(message.topic.name != topic for message in messages):
            raise Denied(m.Code.MESSAGE_CORRUPTED, "messages of several topics in one request; send them apart")
        now_ms = self._state.clock.now_ms()
        for message in messages:
            check_message(message, self._state.config, now_ms)
        route = self._state.route(topic)
        prepared = [self._prepared(message, route) for message in messages]
        entries = _Entries(call, len(messages))
        for number, (broker, command) in enumerate(prepared):
            given = partial(entries.settle, number, messages[number].system_properties.message_id, broker)
            client.send(broker, command, _ANSWER_LIMIT_S, given)

    def _send_plain(self, call: Call, client: GrpcClient, sent: PlainSend) -> None:
        """The everyday case: one message with neither a time nor a group nor properties of its own."""
        route = self._state.route(checked_topic(sent.topic))
        self._check_kind(NORMAL, route)
        broker, queue_id = self._queue("", route)
        command = send_command(route.topic, queue_id, sent.born_ms, sent.properties, sent.body)
        client.send(broker, command, _ANSWER_LIMIT_S, partial(_settle_plain, call, sent.message_id, broker))

    def _prepared(self, message: m.Message, route: TopicRoute) -> tuple[str, Command]:
        """The broker that a message goes to, and what it is sent as; raises Denied."""
        properties = stored_properties(message, route.topic)
        self._check_kind(kind_of(properties), route)
        if self._state.config.uses_delay_levels and message.system_properties.HasField("delivery_timestamp"):
            wait_ms = millis(message.system_properties.delivery_timestamp) - self._state.clock.now_ms()
            properties[names.DELAY] = str(self._delay_level(wait_ms))
        broker, queue_id = self._queue(message.system_properties.message_group, route)
        is_half = message.system_properties.message_type == _TRANSACTION
        try:
            text = join_properties(properties)
        except Refusal as refusal:
            raise Denied(m.Code.MESSAGE_PROPERTIES_TOO_LARGE, refusal.remark) from None
        body = stored_body(message, self._state.config.body_size_max or 1 << 30)
        born_ms = millis(message.system_properties.born_timestamp) or self._state.clock.now_ms()
        sys_flag = sysflags.PREPARED if is_half else 0
        return broker, send_command(route.topic, queue_id, born_ms, text, body, sys_flag)

    def _delay_level(self, wait_ms: int) -> int:
        """The shortest level that is longer than a wait, or the longest; levels are counted from 1."""
        delays_ms = delays_ms_of(self._state.config.delay_levels)
        longer = [(delay_ms, level) for level, delay_ms in enumerate(delays_ms, 1) if delay_ms > wait_ms]
        return min(longer)[1] if longer else delays_ms.index(max(delays_ms)) + 1

    def _check_kind(self, kind: str, route: TopicRoute) -> None:
        if kind == PRIORITY_KIND != route.kind:
            text = "priorities are not served here: a message without one is taken, and comes in the order of its queue"
            raise Denied(m.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
        is_derived = route.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        if not self._state.config.checks_types or is_derived or route.kind == MIXED:
            return
        (expected,) = accepted_kinds(route.kind)
        if kind != expected:
            text = (
                f"a {kind} message for topic {route.topic!r}, which takes {expected}; "
                f"create a topic for it: bolide topic create NAME --type {kind}"
            )
            raise Denied(m.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)

    def _queue(self, group: str, route: TopicRoute) -> tuple[str, int]:
        writable = route.writable
        if not writable:
            raise Denied(m.Code.FORBIDDEN, f"topic {route.topic!r} has no queue that may be written")
        return writable[jump_hash(group, len(writable)) if group else next(self._turns) % len(writable)]

    async def end_transaction(self, call: Call, request: m.EndTransactionRequest) -> m.EndTransactionResponse:
        """Commit or roll back; answered when the broker has done it."""
        client = self._state.clients.of(call)
        topic = topic_name(request.topic)
        place = parse_transaction_id(request.transaction_id)
        header = EndTransactionRequest(
            topic=topic,
            producer_group=topic,
            half_queue_offset=QueueOffset(place.queue_offset),
            physical_offset=PhysicalOffset(place.physical_offset),
            commit_or_rollback=_OUTCOMES.get(request.resolution, 0),
            is_from_check=request.source == m.TransactionSource.SOURCE_SERVER_CHECK,
            message_id=place.message_id,
            transaction_id=place.message_id,
        )
        command = Command(RequestCode.END_TRANSACTION, fields=header.encode())
        denial = denial_of(await asked(client, place.broker, command, _ANSWER_LIMIT_S))
        if denial is not None:
            raise denial
        return m.EndTransactionResponse(status=ok())

    async def recall(self, call: Call, request: m.RecallMessageRequest) -> m.RecallMessageResponse:
        """Take back a message that was to come later."""
        client = self._state.clients.of(call)
        topic = topic_name(request.topic)
        if (kind := self._state.route(topic).kind) not in ("DELAY", MIXED) and self._state.config.checks_types:
            text = f"topic {topic!r} takes {kind} messages, and only DELAY messages can be recalled"
            raise Denied(m.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
        handle = parse_recall_handle(request.recall_handle)
        if handle is None:
            raise Denied(m.Code.INTERNAL_SERVER_ERROR, f"{request.recall_handle[:80]!r} is no recall handle")
        header = RecallMessageRequest(producer_group=topic, topic=topic, recall_handle=request.recall_handle)
        command = Command(RequestCode.RECALL_MESSAGE, fields=header.encode())
        answer = await asked(client, handle.broker_name, command, _ANSWER_LIMIT_S)
        denial = denial_of(answer)
        if denial is not None:
            raise denial
        told = RecallMessageAnswer.decode(answer.fields)
        return m.RecallMessageResponse(status=ok(), message_id=told.message_id)


def send_command(topic: str, queue_id: int, born_ms: int, properties: str, body: bytes, sys_flag: int = 0) -> Command:
    """A message as brokers are sent it."""
    fields = _common_fields(topic, sys_flag).copy()
    fields["e"], fields["g"], fields["i"] = str(queue_id), str(born_ms), properties
    return Command(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)


@lru_cache(maxsize=1_000)
def _common_fields(topic: str, sys_flag: int) -> dict[str, str]:
    """What all sends to a topic say alike."""
    header = SendMessageRequest(
        producer_group=topic,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_count=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_ms=0,
        flag=0,
        properties=None,
        reconsume_times=0,
    )
    return header.encode(short=True)


class _Entries:
    """The answer to a send while brokers work on it."""

    __slots__ = ("_answer", "_call", "_left")

    def __init__(self, call: Call, count: int) -> None:
        self._call = call
        self._answer = m.SendMessageResponse()
        self._left = count
        for _ in range(count):
            self._answer.entries.add()

    def settle(self, number: int, message_id: str, broker: str, answer: Answer | ReceiptRow) -> None:
        entries = self._answer.entries
        _fill(entries[number], message_id, broker, answer)
        self._left -= 1
        if self._left:
            return
        if len(entries) > 1 and len({entry.status.code for entry in entries}) > 1:
            self._answer.status.CopyFrom(status(m.Code.MULTIPLE_RESULTS, "the entries say how each went"))
        else:
            self._answer.status.CopyFrom(entries[0].status)
        self._call.reply(self._answer)


def _settle_plain(call: Call, message_id: str, broker: str, answer: Answer | ReceiptRow) -> None:
    if isinstance(answer, tuple):
        call.reply_encoded(encode_receipt(message_id, broker, answer))
    else:
        _Entries(call, 1).settle(0, message_id, broker, answer)


def encode_receipt(message_id: str, broker: str, receipt: ReceiptRow) -> bytes:
    """The answer to a message that is stored, as protobuf writes it."""
    _, _, queue_offset, offset_id = receipt
    told = transaction_id(Place(message_id, queue_offset, _physical_offset(offset_id), broker)).encode()
    name = message_id.encode()
    pieces = [_OK_FIELD, b"\x12", varint(len(name)), name, b"\x1a", varint(len(told)), told]
    if queue_offset:
        pieces += (b"\x20", varint(queue_offset))
    entry = b"".join(pieces)
    return b"".join((_OK_FIELD, b"\x12", varint(len(entry)), entry))


def _physical_offset(offset_id: str) -> int:
    """What every such id ends with; it came from a broker, and nothing else of it is wanted."""
    if len(offset_id) not in _OFFSET_ID_LENGTHS:
        return -1
    try:
        offset = int(offset_id[-16:], 16)
    except ValueError:
        return -1
    return offset if offset < 1 << 63 else -1


def _fill(entry: m.SendResultEntry, message_id: str, broker: str, answer: Answer | ReceiptRow) -> None:
    """Say in an entry what became of its message."""
    entry.message_id = message_id
    if isinstance(answer, tuple):
        _, _, queue_offset, offset_id = answer
    else:
        denial = denial_of(answer)
        if denial is not None or not isinstance(answer, Command):
            set_status(entry.status, denial)
            return
        told = SendMessageAnswer.decode(answer.fields)
        queue_offset, offset_id, entry.recall_handle = told.queue_offset, told.message_id, told.recall_handle or ""
    set_status(entry.status, None)
    entry.offset = queue_offset
    entry.transaction_id = transaction_id(Place(message_id, queue_offset, _physical_offset(offset_id), broker))


def _topic_of_send(request: m.SendMessageRequest | PlainSend) -> Needs:
    if isinstance(request, PlainSend):
        return request.topic, None
    return (request.messages[0].topic.name if request.messages else None), None


def _topic_of_recall(request: m.RecallMessageRequest) -> Needs:
    return request.topic.name, None


def transaction_id(place: Place) -> str:
    """What a client names a transaction by."""
    return _ID_SEPARATOR.join(map(str, place))


def parse_transaction_id(text: str) -> Place:
    """Raises Denied for what we did not give out."""
    parts = text.split(_ID_SEPARATOR, 3)
    if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts[1:3]):
        raise Denied(m.Code.INVALID_TRANSACTION_ID, f"{text[:80]!r} is no transaction id of ours")
    return Place(parts[0], int(parts[1]), int(parts[2]), parts[3])


def jump_hash(text: str, count: int) -> int:
    """The queue of a message group among `count`, as Apache's proxy chooses it (jump consistent hash)."""
    key, chosen, following = kernel.java_hash(text) & _JUMP_MASK, 0, 0
    while True:
        key = (key * _JUMP_FACTOR + 1) & _JUMP_MASK
        following = int((chosen + 1) / (((key >> 33) + 1) / (1 << 31)))
        if not 0 <= following < count:
            return chosen
        chosen = following
