"""Telemetry, Heartbeat and NotifyClientTermination: clients tell of themselves, and are asked.

The stream of telemetry carries settings up and our answer to them down, and down the questions of brokers: how an
orphaned transaction ended, what a consumer's threads do, how it takes one message. Who asks waits five seconds.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from bolide.errors import ProtocolError, RequestTimeout
from bolide.protocol.bodies.consumers import ConsumeResult, DirectConsumption, RunningConsumer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import CheckTransactionRequest, ConsumeDirectlyRequest, GetConsumerStateRequest
from bolide.protocol.records import decode_record
from bolide.proxy import messages as m
from bolide.proxy.agreement import for_consumer, for_producer, subscriptions_of
from bolide.proxy.calls import Call, GrpcStatus
from bolide.proxy.checks import group_name, topic_name
from bolide.proxy.clients import GrpcClient
from bolide.proxy.methods import SERVICE, Gate, Handler, Needs, status_of
from bolide.proxy.port import Method
from bolide.proxy.rights import Rights
from bolide.proxy.sending import Place, transaction_id
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, ok
from bolide.proxy.translation import delivered

_ANSWER_LIMIT_S = 5.0
_WAITING_MAX = 64
_TOPICS_MAX = 1_000
_CONSUMED = {
    m.Code.OK: ConsumeResult.CR_SUCCESS,
    m.Code.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.CR_LATER,
    m.Code.MESSAGE_CORRUPTED: ConsumeResult.CR_RETURN_NULL,
}
_LITE_CLIENTS = (m.ClientType.LITE_PUSH_CONSUMER, m.ClientType.LITE_SIMPLE_CONSUMER)
_NO_LITE_TOPICS = "there are no lite topics here; use a topic of its own for each, and a push or a simple consumer"
log = logging.getLogger(__name__)


class Telemetry:
    """Hears clients, and asks them."""

    def __init__(self, state: ProxyState, rights: Rights, gate: Gate | None = None) -> None:
        self._state = state
        self._rights = rights
        self._gate = gate

    def handlers(self) -> dict[str, Handler]:
        return {
            "Heartbeat": Handler(m.HeartbeatRequest, m.HeartbeatResponse, self.heartbeat, _group),
            "NotifyClientTermination": Handler(
                m.NotifyClientTerminationRequest, m.NotifyClientTerminationResponse, self.leave
            ),
            "SyncLiteSubscription": Handler(
                m.SyncLiteSubscriptionRequest, m.SyncLiteSubscriptionResponse, self.subscribe_lite
            ),
        }

    def methods(self) -> dict[str, Method]:
        return {f"/{SERVICE}/Telemetry": Method(self.hear, is_streaming=True)}

    def heartbeat(self, call: Call, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        """The client is there; brokers hear of it, as it told in its settings."""
        client = self._state.clients.of(call)
        if client.settings is None:
            raise Denied(m.Code.UNRECOGNIZED_CLIENT_TYPE, "the client has told no settings here yet")
        self._state.clients.register(client)
        return m.HeartbeatResponse(status=ok())

    def leave(self, call: Call, request: m.NotifyClientTerminationRequest) -> m.NotifyClientTerminationResponse:
        """The client says goodbye."""
        self._state.clients.leave(self._state.clients.of(call))
        return m.NotifyClientTerminationResponse(status=ok())

    def subscribe_lite(self, call: Call, request: m.SyncLiteSubscriptionRequest) -> m.SyncLiteSubscriptionResponse:
        """Lite topics are not served."""
        raise Denied(m.Code.NOT_IMPLEMENTED, _NO_LITE_TOPICS)

    # The stream

    def hear(self, call: Call, content: bytes) -> None:
        """One command of a client's stream."""
        try:
            told = m.TelemetryCommand.FromString(content)
            late = self._gate(call, told) if self._gate is not None else None
            if late is not None:
                call.carrier.run_task(self._refuse_later(late, call), "grpc.telemetry")
                return
            client = self._state.clients.of(call)
            kind = told.WhichOneof("command")
            if kind == "settings":
                group = told.settings.subscription.group.name or None
                checking, prepare = self._rights.check(client, None, group), self._state.back.prepare
                waiting = prepare(None, group) if checking is None else self._prepared(checking, group)
                if waiting is None:
                    self._agree(call, client, told.settings)
                else:
                    call.carrier.run_task(self._agree_later(waiting, call, client, told.settings), "grpc.telemetry")
            elif kind in ("thread_stack_trace", "verify_message_result"):
                waiter = client.waiting.pop(getattr(told, kind).nonce, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(told)
        except DecodeError as problem:
            call.end(GrpcStatus.INTERNAL, f"the command cannot be read: {problem}")
        except Denied as denial:
            self._refuse(call, denial)

    async def _refuse_later(self, late: Awaitable[None], call: Call) -> None:
        try:
            await late
        except Denied as denial:
            self._refuse(call, denial)

    async def _prepared(self, checking: Awaitable[None], group: str | None) -> None:
        await checking
        waiting = self._state.back.prepare(None, group)
        if waiting is not None:
            await waiting

    async def _agree_later(
        self, waiting: Awaitable[None], call: Call, client: GrpcClient, settings: m.Settings
    ) -> None:
        try:
            await waiting
            self._agree(call, client, settings)
        except Denied as denial:
            self._refuse(call, denial)

    def _refuse(self, call: Call, denial: Denied) -> None:
        """What cannot be agreed on ends the stream; who is not let in hears it in words of the protocol first."""
        if denial.code in (m.Code.UNAUTHORIZED, m.Code.FORBIDDEN):
            call.write(m.TelemetryCommand(status=status_of(denial, call)))
            call.end()
        else:
            call.end(GrpcStatus.INVALID_ARGUMENT, denial.text)

    def _agree(self, call: Call, client: GrpcClient, told: m.Settings) -> None:
        if told.client_type in _LITE_CLIENTS:
            raise Denied(m.Code.UNRECOGNIZED_CLIENT_TYPE, _NO_LITE_TOPICS)
        kind = told.WhichOneof("pub_sub")
        if kind == "publishing":
            topics = [topic_name(topic) for topic in told.publishing.topics if topic.name]
            if len(topics) > _TOPICS_MAX:
                raise Denied(m.Code.BAD_REQUEST, f"{len(topics)} topics of one producer, at most {_TOPICS_MAX}")
            answer, subscriptions = for_producer(told, self._state.config), []
        elif kind == "subscription":
            name = group_name(told.subscription.group)
            group = self._state.back.group(name)
            if group is None:
                text = f"there is no group {name!r}, and none may be made (autoCreateSubscriptionGroup); create it"
                raise Denied(m.Code.CONSUMER_GROUP_NOT_FOUND, text)
            entries = told.subscription.subscriptions
            if len(entries) > _TOPICS_MAX:
                raise Denied(m.Code.BAD_REQUEST, f"{len(entries)} topics of one consumer, at most {_TOPICS_MAX}")
            subscriptions = subscriptions_of(entries, self._state.clock.now_ms())
            answer = for_consumer(told, group, self._state.config)
        else:
            raise Denied(
                m.Code.BAD_REQUEST, "settings are a producer's or a consumer's: give publishing or subscription"
            )
        client.settings, client.subscriptions, client.stream = told, subscriptions, call
        call.write(m.TelemetryCommand(status=ok(), settings=answer))
        self._state.clients.register(client)


def hearing(state: Callable[[], ProxyState], client: GrpcClient) -> Callable[[str, Command], Awaitable[Command] | None]:
    """Who hears for a client what brokers tell it."""

    def hear(broker: str, command: Command) -> Awaitable[Command] | None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            _ask_outcome(state().clock.now_ms(), client, broker, command)
            return None
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _running(client, command)
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return _consume(state().clock.now_ms(), client, command)
        return None  # members and offsets that changed are nothing to clients that pop

    return hear


def _ask_outcome(now_ms: int, client: GrpcClient, broker: str, command: Command) -> None:
    """Have a producer say how a transaction ended; it answers with EndTransaction, or not at all."""
    if client.stream is None or not client.stream.is_open:
        return
    header = CheckTransactionRequest.decode(command.fields)
    try:
        half = decode_record(command.body)
    except ProtocolError as problem:
        log.warning("a transaction cannot be asked about: %s", problem)
        return
    message = delivered(half, half.topic, now_ms)
    message_id = message.system_properties.message_id
    place = Place(message_id, header.half_queue_offset, header.physical_offset, broker)
    asked = m.RecoverOrphanedTransactionCommand(message=message, transaction_id=transaction_id(place))
    client.stream.write(m.TelemetryCommand(recover_orphaned_transaction_command=asked))


async def _running(client: GrpcClient, command: Command) -> Command:
    header = GetConsumerStateRequest.decode(command.fields)
    trace = None
    if header.is_stack_wanted:
        nonce = secrets.token_hex(8)
        asked = m.PrintThreadStackTraceCommand(nonce=nonce)
        told = await _ask(client, nonce, m.TelemetryCommand(print_thread_stack_trace_command=asked))
        trace = told.thread_stack_trace.thread_stack_trace
    properties = {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "0"}
    body = RunningConsumer(jstack=trace, properties=properties, subscription_set=client.subscriptions).encode()
    return command.answer(ResponseCode.SUCCESS, body=body)


async def _consume(now_ms: int, client: GrpcClient, command: Command) -> Command:
    ConsumeDirectlyRequest.decode(command.fields)
    stored, nonce = decode_record(command.body), secrets.token_hex(8)
    asked = m.VerifyMessageCommand(nonce=nonce, message=delivered(stored, stored.topic, now_ms))
    told = await _ask(client, nonce, m.TelemetryCommand(verify_message_command=asked))
    result = _CONSUMED.get(told.status.code, ConsumeResult.CR_THROW_EXCEPTION)
    body = DirectConsumption(consume_result=result, remark=told.status.message or None).encode()
    return command.answer(ResponseCode.SUCCESS, body=body)


async def _ask(client: GrpcClient, nonce: str, command: m.TelemetryCommand) -> m.TelemetryCommand:
    if client.stream is None or not client.stream.is_open:
        raise RequestTimeout(f"client {client.client_id} has no telemetry stream open")
    if len(client.waiting) >= _WAITING_MAX:
        raise RequestTimeout(f"client {client.client_id} has {len(client.waiting)} questions to answer")
    answer: asyncio.Future[m.TelemetryCommand] = asyncio.get_running_loop().create_future()
    client.waiting[nonce] = answer
    client.stream.write(command)
    try:
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            return await answer
    except TimeoutError:
        raise RequestTimeout(f"client {client.client_id} did not answer within {_ANSWER_LIMIT_S:g} s") from None
    finally:
        client.waiting.pop(nonce, None)


def _group(request: m.HeartbeatRequest) -> Needs:
    return None, request.group.name or None
