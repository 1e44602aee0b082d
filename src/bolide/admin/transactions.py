"""Transactions that nobody decided yet, and those that brokers gave up: to look at, and to take up again.

Looking leaves no trace. What is open is read from the half queue, from where the broker's own progress is, without what
the op queue says is decided and without old copies of what was asked about; the queue is read twice for that, so that
only places are remembered. A decision of the last seconds may not be written there yet, so young ones may be listed
although they are done.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from bolide.admin.deadletters import DeadLetterCalls
from bolide.admin.walking import TOOLS_GROUP, walk_queue
from bolide.client.instance import NO_ROUTE
from bolide.client.routes import MASTER_ID
from bolide.errors import ClientError
from bolide.model import properties as names
from bolide.model.halves import TransactionKey, is_copy, transaction_key
from bolide.model.queue import MessageQueue
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.client.pulling.puller import PullConsumer
    from bolide.model.message import StoredMessage
    from bolide.protocol.bodies.routes import TopicRoute

CHECK_GROUP = "CID_RMQ_SYS_TRANS"


class OpenTransaction(msgspec.Struct, frozen=True):
    """A half message that is not decided, or was given up; `offset_id` is what brokers find it by."""

    broker_name: str
    message: "StoredMessage"

    @property
    def id(self) -> str:
        return self.message.message_id

    @property
    def offset_id(self) -> str:
        return self.message.offset_id

    @property
    def topic(self) -> str:
        """The topic it is for."""
        return self.message.properties.get(names.REAL_TOPIC, "")

    @property
    def group(self) -> str:
        """The producer group that is asked about it."""
        return self.message.properties.get(names.PRODUCER_GROUP, "")

    @property
    def check_count(self) -> int:
        """How often somebody was asked."""
        text = self.message.properties.get(names.TRANSACTION_CHECK_TIMES, "0")
        return int(text) if text.isdecimal() and len(text) < 10 else 0


class TransactionCalls(DeadLetterCalls, ABC):
    """The administrator's operations on transactions."""

    @abstractmethod
    async def route(self, topic: str) -> "TopicRoute":
        """Where a topic is."""

    @abstractmethod
    async def _ask(self, address: str, command: Command) -> Command:
        """Ask one broker."""

    async def open_transactions(self) -> AsyncIterator[OpenTransaction]:
        """Half messages that nobody decided, oldest first, broker by broker."""
        async with self.puller(TOOLS_GROUP) as consumer:
            for queue, address in await self._queues_of(HALF_TOPIC):
                done = await self._decided(consumer, queue, address)
                start = await self._settled(address, HALF_TOPIC, queue.queue_id)
                places: dict[TransactionKey, int | None] = {}
                async for message in walk_queue(consumer, queue, start):
                    note_place(places, message, message.queue_offset in done)
                newest = set(places.values())
                async for message in walk_queue(consumer, queue, start):
                    if message.queue_offset in newest:
                        yield OpenTransaction(queue.broker_name, message)

    async def given_up_transactions(self) -> AsyncIterator[OpenTransaction]:
        """Half messages that were asked about too often, oldest first, broker by broker."""
        async with self.puller(TOOLS_GROUP) as consumer:
            for queue, _ in await self._queues_of(CHECK_EXHAUSTED_TOPIC):
                async for message in walk_queue(consumer, queue):
                    yield OpenTransaction(queue.broker_name, message)

    async def resume_transaction(self, offset_id: str) -> None:
        """Have a transaction that was given up asked about again, by the broker's id of its message."""
        from bolide.model.message import parse_offset_id
        from bolide.protocol.headers.operating import ResumeCheckHalfMessageRequest

        found = parse_offset_id(offset_id)
        if found is None:
            raise ClientError(
                f"{offset_id!r} is no offset id (a broker's id of a message); "
                "`bolide transaction list --given-up` shows them"
            )
        header = ResumeCheckHalfMessageRequest(topic=CHECK_EXHAUSTED_TOPIC, message_id=offset_id)
        command = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields=header.encode())
        await self._ask(str(found.host), command)

    async def _queues_of(self, topic: str) -> list[tuple[MessageQueue, str]]:
        """The queues of a topic, each with the address of its master."""
        try:
            route = await self.route(topic)
        except ClientError as problem:
            if problem.code not in (NO_ROUTE, ResponseCode.TOPIC_NOT_EXIST):
                raise
            return []  # the topic comes with the first that is given up
        masters = {each.broker_name: each.broker_addrs.get(MASTER_ID) for each in route.broker_datas}
        return [
            (MessageQueue(topic, each.broker_name, queue_id), address)
            for each in sorted(route.queue_datas, key=lambda each: each.broker_name)
            for queue_id in range(each.read_queue_nums)
            if (address := masters.get(each.broker_name)) is not None
        ]

    async def _settled(self, address: str, topic: str, queue_id: int) -> int:
        from bolide.protocol.headers.consume import OffsetAnswer, QueryConsumerOffsetRequest

        header = QueryConsumerOffsetRequest(consumer_group=CHECK_GROUP, topic=topic, queue_id=queue_id)
        try:
            answer = await self._ask(address, Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=header.encode()))
        except ClientError as problem:
            if problem.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return 0
        return max(OffsetAnswer.decode(answer.fields).offset, 0)

    async def _decided(self, consumer: "PullConsumer", half: MessageQueue, address: str) -> set[int]:
        queue = MessageQueue(OP_HALF_TOPIC, half.broker_name, half.queue_id)
        start = await self._settled(address, OP_HALF_TOPIC, half.queue_id)
        done: set[int] = set()
        async for record in walk_queue(consumer, queue, start):
            done.update(int(text) for text in record.body.split(b",") if text.isdigit())
        return done


def note_place(places: dict[TransactionKey, int | None], message: "StoredMessage", is_done: bool) -> None:
    """Learn from the next record of a half queue where each transaction has its newest copy, None if it is decided."""
    key = transaction_key(message.properties, message.born_at) or ("", "", message.queue_offset)
    if is_done:
        places[key] = None
    elif not is_copy(message.properties) or places.get(key, 0) is not None:
        places[key] = message.queue_offset
