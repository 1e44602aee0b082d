"""ReceiveMessage: messages for a while, and a wait for them.

A receive is a pop of any queue of its broker, which waits where remoting's pops wait: here nothing is kept meanwhile
but the call itself. It ends by itself before the client's deadline. What is popped is looked at once more: a message
whose tag only has the same hash is acknowledged and left out, and one that failed too often goes to the dead letters.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from bolide import kernel
from bolide.errors import BolideError
from bolide.filter.tags import parse_tags
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import PopMessageAnswer, PopMessageRequest
from bolide.protocol.popped import handle_heads, read_popped
from bolide.proxy import messages as m
from bolide.proxy.back import Answer, Pop
from bolide.proxy.calls import Call
from bolide.proxy.checks import group_name, millis, topic_name
from bolide.proxy.clients import GrpcClient
from bolide.proxy.handles import Held, Receipt, Renewals, read_receipt
from bolide.proxy.methods import Handler, Needs, status_of
from bolide.proxy.settling import Settling
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, denial_of, ok, status
from bolide.proxy.translation import deliver, set_millis

START_AT_MAX = 1
ANY_QUEUE = -1
_COUNT_MAX = 32
_MARGIN_S = 0.5  # an answer needs some time to get there
_LAST_WORD_S = 0.2  # and one that says that the broker is slow
_ANSWER_SPARE_S = 5.0
_NOTHING = {ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT}
_NEWER_VERSION = "5.0.3"
_SQL = m.FilterType.SQL  # looked up once: the wrapper of an enum is slow
_OK_ANSWER = m.ReceiveMessageResponse(status=ok()).SerializeToString()


class Receive(NamedTuple):
    """One receive, as it was understood."""

    client: GrpcClient
    group: str
    topic: str
    broker: str
    tags: frozenset[str] | None
    attempts_max: int
    is_renewed: bool


class Receiving:
    """Gives messages out."""

    def __init__(self, state: ProxyState, settling: Settling, renewals: Renewals) -> None:
        self._state = state
        self._settling = settling
        self._renewals = renewals

    def handlers(self) -> dict[str, Handler]:
        return {
            "ReceiveMessage": Handler(
                m.ReceiveMessageRequest, m.ReceiveMessageResponse, self.receive, _needs, self._refuse
            )
        }

    def receive(self, call: Call, request: m.ReceiveMessageRequest) -> None:
        """Ask the broker; the answer comes when there is one."""
        client = self._state.clients.of(call)
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
        config = self._state.back.group(group)
        if config is None:
            raise Denied(m.Code.CONSUMER_GROUP_NOT_FOUND, f"there is no group {group!r} here; create it")
        receive = Receive(
            client,
            group,
            topic,
            request.message_queue.broker.name,
            _wanted_tags(request.filter_expression),
            attempts_max(config),
            request.auto_renew and self._state.config.renews,
        )
        poll_ms = self._poll_ms(call, request)
        header = self._header(request, receive, config, poll_ms)
        call.is_lasting = True
        limit_s = poll_ms / 1000 + _ANSWER_SPARE_S
        asked = Pop(header, client.language)
        give_up = client.pop(receive.broker, asked, limit_s, partial(self._popped, call, receive))
        call.when_gone(give_up)
        call.when_late(partial(self._give_up, call, give_up), _LAST_WORD_S)

    def _give_up(self, call: Call, give_up: Callable[[], None]) -> None:
        """The broker is slow, and the client's time nearly over: one that hears nothing waits before it asks again."""
        give_up()
        self._refuse(call, status(m.Code.MESSAGE_NOT_FOUND, "no new message"))

    def _header(
        self, request: m.ReceiveMessageRequest, receive: Receive, config: GroupConfig, poll_ms: int
    ) -> PopMessageRequest:
        expression = request.filter_expression
        return PopMessageRequest(
            consumer_group=receive.group,
            topic=receive.topic,
            queue_id=ANY_QUEUE,
            message_count_max=max(1, min(request.batch_size, _COUNT_MAX)),
            invisible_ms=self._invisible_ms(request),
            poll_ms=poll_ms,
            born_ms=self._state.clock.now_ms(),
            init_mode=START_AT_MAX,
            expression_type="SQL92" if expression.type == _SQL else "TAG",
            expression=expression.expression or "*",
            is_ordered=config.consume_message_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )

    def _invisible_ms(self, request: m.ReceiveMessageRequest) -> int:
        config = self._state.config
        if request.auto_renew and config.renews:
            return config.invisible_ms
        invisible_ms = millis(request.invisible_duration) or config.invisible_ms
        if not config.invisible_min_ms <= invisible_ms <= config.invisible_max_ms:
            text = (
                f"messages cannot be hidden for {invisible_ms} ms, but for {config.invisible_min_ms} to "
                f"{config.invisible_max_ms} (minInvisibleTimeMillsForRecv, maxInvisibleTimeMills)"
            )
            raise Denied(m.Code.ILLEGAL_INVISIBLE_TIME, text)
        return invisible_ms

    def _poll_ms(self, call: Call, request: m.ReceiveMessageRequest) -> int:
        """How long to wait: what the client asks for within our bounds, and less than its deadline."""
        config, now_s = self._state.config, self._state.clock.monotonic_s()
        poll_ms = config.polling_max_ms
        if request.HasField("long_polling_timeout"):
            poll_ms = millis(request.long_polling_timeout)
        poll_ms = min(max(poll_ms, config.polling_min_ms), config.polling_max_ms)
        if call.deadline_s is None:
            return poll_ms
        left_ms = int((call.deadline_s - now_s - _MARGIN_S) * 1000)
        if left_ms >= poll_ms:
            return poll_ms
        if left_ms < config.polling_min_ms - 1000 * _MARGIN_S:
            is_new = call.header("x-mq-client-version") >= _NEWER_VERSION
            code = m.Code.ILLEGAL_POLLING_TIME if is_new else m.Code.BAD_REQUEST
            raise Denied(code, f"the deadline leaves {left_ms} ms to wait, at least {config.polling_min_ms} are needed")
        return left_ms

    # The broker's answer

    def _popped(self, call: Call, receive: Receive, answer: Answer) -> None:
        try:
            if isinstance(answer, Command) and answer.code in _NOTHING:
                raise Denied(m.Code.MESSAGE_NOT_FOUND, "no new message")
            denial = denial_of(answer)
            if denial is not None or isinstance(answer, BolideError):
                assert denial is not None, "an error is no success"
                raise denial
            if call.is_open and self._give_plain(call, receive, answer):
                return
            found = self._received(receive, answer)
            if not call.is_open:
                self._settling.release(receive.client, receive.group, receive.topic, [each for each, _ in found])
                return
            kept = [each for each in found if self._is_wanted(receive, *each)]
            if not kept:
                raise Denied(m.Code.MESSAGE_NOT_FOUND, "no new message")
        except (Denied, BolideError) as problem:
            self._refuse(call, status_of(problem, call))
            return
        self._give(call, receive, kept)

    def _give_plain(self, call: Call, receive: Receive, answer: Command) -> bool:
        """The everyday case: all are delivered for the first time, as they lie; false if nothing was done."""
        told = PopMessageAnswer.decode(answer.fields)
        if told.order_counts:
            return False
        heads, topic = handle_heads(told, receive.broker), receive.topic.encode()
        plain = kernel.encode_received(bytes(answer.body), topic, heads, told.invisible_ms)
        if not plain or (receive.tags is not None and any(tag not in receive.tags for _, _, tag in plain)):
            return False
        if receive.is_renewed:
            for _, handle, _ in plain:
                self._keep_hidden(receive, handle, read_receipt(handle))
        self._end(call, [_OK_ANSWER, *(content for content, _, _ in plain)])
        return True

    def _received(self, receive: Receive, answer: Command) -> list[tuple[Receipt, StoredMessage]]:
        """The messages of a pop, each with its handle."""
        popped = read_popped(answer, receive.broker)
        return [(Receipt(handle, record.physical_offset), record) for handle, record in popped]

    def _is_wanted(self, receive: Receive, receipt: Receipt, record: StoredMessage) -> bool:
        """Whether a message goes to the client; one that does not is settled."""
        is_asked_for = receive.tags is None or record.tags in receive.tags
        if is_asked_for and record.reconsume_times < receive.attempts_max:
            return True
        held = Held(receive.client.client_id, receive.group, receive.topic, receipt.text)
        settle = self._settling.bury if is_asked_for else self._settling.drop
        settle(receive.client, held, receipt)
        return False

    def _give(self, call: Call, receive: Receive, kept: Iterable[tuple[Receipt, StoredMessage]]) -> None:
        answers = [_OK_ANSWER]
        now_ms = self._state.clock.now_ms()
        for receipt, record in kept:
            answers.append(received(record, receipt, receive.topic, now_ms).SerializeToString())
            if receive.is_renewed:
                self._keep_hidden(receive, receipt.text, receipt)
        self._end(call, answers)

    def _keep_hidden(self, receive: Receive, handle: str, receipt: Receipt) -> None:
        self._renewals.add(Held(receive.client.client_id, receive.group, receive.topic, handle), receipt)

    def _refuse(self, call: Call, found: m.Status) -> None:
        self._end(call, [m.ReceiveMessageResponse(status=found).SerializeToString()])

    def _end(self, call: Call, answers: list[bytes]) -> None:
        last = m.ReceiveMessageResponse()
        set_millis(last.delivery_timestamp, self._state.clock.now_ms())
        call.reply_all([*answers, last.SerializeToString()])


def received(record: StoredMessage, receipt: Receipt, topic: str, now_ms: int) -> m.ReceiveMessageResponse:
    """A message that is out, as a client of the topic hears of it."""
    answer = m.ReceiveMessageResponse()
    deliver(record, topic, now_ms, answer.message)
    system = answer.message.system_properties
    system.receipt_handle = receipt.text
    system.delivery_attempt = record.reconsume_times + 1
    set_millis(system.invisible_duration, receipt.pop.invisible_ms)
    return answer


def attempts_max(config: GroupConfig) -> int:
    """How often a message of a group is delivered before it is a dead letter."""
    return max(config.retry_max_times, 0) + 1


def _needs(request: m.ReceiveMessageRequest) -> Needs:
    return None, request.group.name


def _wanted_tags(expression: m.FilterExpression) -> frozenset[str] | None:
    """The tags themselves, for brokers compare hashes; raises Denied."""
    if expression.type == _SQL:
        return None
    try:
        tags = parse_tags(expression.expression)
    except ValueError as problem:
        raise Denied(m.Code.ILLEGAL_FILTER_EXPRESSION, str(problem)) from None
    return None if tags is None else frozenset(tags)
