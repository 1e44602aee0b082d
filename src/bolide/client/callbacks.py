"""What brokers ask of their clients, on the connections the clients opened."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from bolide.client.consuming.replies import ReplyBox
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.consumers import RunningConsumer
from bolide.protocol.bodies.queues import ConsumerStatus, ResetOffsets
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.callbacks import (
    CheckTransactionRequest,
    ConsumeDirectlyRequest,
    GetConsumerStateRequest,
    GetConsumerStatusRequest,
    NotifyConsumersChangedRequest,
    ResetOffsetRequest,
)
from bolide.protocol.records import decode_record
from bolide.remoting.session import Reply, Request, Session

log = logging.getLogger(__name__)


class AskedConsumer(Protocol):
    """What a consumer can be asked."""

    def members_changed(self) -> None: ...

    def progress(self, topic: str) -> dict[MessageQueue, int]: ...

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None: ...

    def running(self, *, with_stacks: bool) -> RunningConsumer: ...

    async def consume_by_hand(self, body: bytes, broker_name: str) -> bytes: ...


class AskedProducer(Protocol):
    """What a producer of transactions can be asked."""

    def asked(self, question: CheckTransactionRequest, message: StoredMessage, session: Session) -> None: ...


class Callbacks:
    """Finds the consumer or producer that is meant."""

    def __init__(
        self, consumers: Mapping[str, AskedConsumer], deciders: Mapping[str, AskedProducer], replies: ReplyBox
    ) -> None:
        self._consumers = consumers
        self._deciders = deciders
        self._replies = replies

    def handlers(self) -> dict[int, Callable[[Request], Reply | Awaitable[Reply]]]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_by_hand,
            RequestCode.CHECK_TRANSACTION_STATE: self.check_transaction,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._replies.pushed,
        }

    def _consumer(self, group: str) -> AskedConsumer:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer of group {group} here")
        return consumer

    def members_changed(self, request: Request) -> Reply:
        """40: somebody joined or left."""
        header = NotifyConsumersChangedRequest.decode(request.command.fields)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is not None:
            consumer.members_changed()
        return None

    async def reset(self, request: Request) -> Reply:
        """220: go on at these offsets. Nobody waits for an answer."""
        header = ResetOffsetRequest.decode(request.command.fields)
        consumer = self._consumers.get(header.group)
        if consumer is not None:
            await consumer.reset(ResetOffsets.decode(request.command.body).offset_table)
        return None

    def check_transaction(self, request: Request) -> Reply:
        """39: how did this transaction end? The answer is a request of its own, and nobody waits for it here."""
        question = CheckTransactionRequest.decode(request.command.fields)
        message = decode_record(request.command.body)
        group = message.properties.get(names.PRODUCER_GROUP, "")
        producer = self._deciders.get(group)
        if producer is None:
            log.warning("asked about a transaction of group %s, which has no TransactionProducer here", group)
        else:
            producer.asked(question, message, request.session)
        return None

    def status(self, request: Request) -> Reply:
        """221: how far are you?"""
        header = GetConsumerStatusRequest.decode(request.command.fields)
        table = self._consumer(header.group).progress(header.topic)
        return request.command.answer(ResponseCode.SUCCESS, body=ConsumerStatus(message_queue_table=table).encode())

    def running(self, request: Request) -> Reply:
        """307: tell everything about yourself."""
        header = GetConsumerStateRequest.decode(request.command.fields)
        state = self._consumer(header.consumer_group).running(with_stacks=header.is_stack_wanted)
        return request.command.answer(ResponseCode.SUCCESS, body=state.encode())

    async def consume_by_hand(self, request: Request) -> Reply:
        """309: consume this one message now."""
        header = ConsumeDirectlyRequest.decode(request.command.fields)
        consumer = self._consumer(header.consumer_group)
        body = await consumer.consume_by_hand(request.command.body, header.broker_name or "")
        return request.command.answer(ResponseCode.SUCCESS, body=body)
