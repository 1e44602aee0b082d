"""Messages that count only if something else has happened: sent as halves, then committed or rolled back.

    async with producer.transaction("Transfers", b"...", keys="t-1") as transaction:   # the half message is stored
        await move_money(transaction.id)                                               # raises: rolled back

The end is told to the broker without waiting for an answer, as RocketMQ's own client does. It may get lost, and so may
this process; then the broker asks any member of the group, whose `checker` looks up what really happened. So whatever
the block does must leave a trace that the checker can find by the transaction's id or by the message's keys.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, Unpack

import msgspec

from bolide.client.options import ProducerOptions
from bolide.client.routes import MASTER_ID
from bolide.client.sending.message import EXTRA_SIZE_MAX, SendRules, replace_properties
from bolide.client.sending.parts import Given, Parts
from bolide.client.sending.pipeline import SendPipeline
from bolide.client.sending.preparation import Preparation
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt, SendStatus
from bolide.client.transactions.checker import Check, Checker, Outcome
from bolide.client.transactions.decisions import Deciding
from bolide.client.transactions.outcomes import Outcomes
from bolide.errors import BolideError, ClientError
from bolide.kernel.layout import Item
from bolide.model import properties as names
from bolide.model.message import Message, StoredMessage
from bolide.model.queue import MessageQueue
from bolide.model.topics import AUTO_CREATE_TOPIC
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.callbacks import CheckTransactionRequest
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.ids import UniqueIds
from bolide.protocol.properties import encode_properties
from bolide.protocol.records import inflate
from bolide.remoting.session import Session

# Java takes the level off without a word; a message that comes at another time than was asked for is worse than none.
_DELAYS = frozenset([names.DELAY, names.TIMER_DELAY_S, names.TIMER_DELAY_MS, names.TIMER_DELIVER_AT])
HALVES_MAX = 10_000
STATES = {  # Java's words, the last one misspelt
    Outcome.COMMIT: "COMMIT_MESSAGE",
    Outcome.ROLLBACK: "ROLLBACK_MESSAGE",
    Outcome.UNKNOWN: "UNKNOW",
}
log = logging.getLogger(__name__)


class Transaction(Deciding[Awaitable[Receipt]]):
    """One message whose fate is open; made by `TransactionProducer.transaction`, decided once.

    Left without a decision the block commits; an exception rolls back. Cancelled or interrupted, nobody can know how
    far it came: then the checker decides.
    """

    __slots__ = ()

    async def start(self) -> None:
        """Have the half message stored; raises ClientError when that did not succeed in full: none will be seen."""
        self._check_new()
        receipt = await self._send()
        self._begin(receipt if receipt.is_ok else await self._send_again(receipt))

    async def commit(self) -> None:
        """Let consumers have the message."""
        self._decide(Outcome.COMMIT)

    async def rollback(self) -> None:
        """Let nobody have it."""
        self._decide(Outcome.ROLLBACK)

    async def unknown(self) -> None:
        """Leave it to the checker, which is asked later."""
        self._decide(Outcome.UNKNOWN)

    async def __aenter__(self) -> Self:
        self._check_new()  # as `start`, with one coroutine less for every transaction
        receipt = await self._send()
        self._begin(receipt if receipt.is_ok else await self._send_again(receipt))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(problem)


class HalfPreparation(Preparation):
    """Stage two of a half message: it says what it is, and whose."""

    def __init__(
        self, rules: SendRules, ids: UniqueIds, *, is_fast: bool, traced: dict[str, Message] | None = None
    ) -> None:
        """`traced` keeps those whose end is to be traced, by id."""
        super().__init__(rules, ids, is_fast=is_fast)
        self._properties = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: rules.group}
        self._mark = encode_properties(self._properties)
        self._traced = traced

    def item(self, parts: Given) -> Item | None:
        item = super().item(parts)
        if item is None or len(item[1]) + len(self._mark) > EXTRA_SIZE_MAX:
            return None
        body, extra, flag = item
        return body, extra + self._mark, flag

    def message(self, parts: Parts) -> Message:
        message = super().message(parts)
        if not _DELAYS.isdisjoint(message.properties):
            raise ClientError(
                "a message with a delay cannot be sent in a transaction: it is delivered when it is committed",
                ResponseCode.MESSAGE_ILLEGAL,
            )
        half = replace_properties(message, {**message.properties, **self._properties})
        if self._traced is not None:
            if len(self._traced) >= HALVES_MAX:  # the oldest was never decided on here
                self._traced.pop(next(iter(self._traced)), None)
            self._traced[half.unique_id or ""] = half
        return half


class TransactionProducer(Producer):
    """A producer that also sends transactions, and answers for those of its group."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        checker: Check,
        check_concurrency: int = 1,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`checker` is given a message and says how its transaction ended; it may be async, and may be asked about
        transactions that another member of the group began.

        A member is asked by the brokers it knows: those that create topics by themselves, those of the topics it has
        sent to, and those of `topics`. The other options are those of a `Producer`.
        """
        super().__init__(group, namesrv, **options)
        self._halves: dict[str, Message] = {}  # those whose end is to be traced, by id
        self._abandoned: dict[str, None] = {}  # half messages in whose place another was sent, by id
        self._check = checker
        self._check_concurrency = check_concurrency
        self._answered_topics = (*topics, AUTO_CREATE_TOPIC)
        self.ends_may_pass_loop = self._is_fast and self.may_pass_loop  # no thought, nobody looks on

    # Life

    async def start(self) -> None:
        """Join the group, and let brokers know that we can be asked."""
        if self._instance is not None:
            return
        self._checker = Checker(self._check, self._check_concurrency)
        self._questions: set[asyncio.Task[None]] = set()
        await super().start()
        instance = self.instance
        self._half_pipeline = self._new_pipeline(instance, self._half_preparation())
        self._ends = Outcomes(self.group, instance, self._guests, is_signed=not self._is_fast)
        instance.deciders[self.group] = self
        for topic in self._answered_topics:
            try:
                await instance.refresh(topic)
                self._placement.topics.setdefault(topic)
            except BolideError as problem:
                log.warning("brokers of %s cannot ask about transactions yet problem=%s", topic, problem)
        await instance.heartbeat()

    async def close(self) -> None:
        """Leave the group; half messages under way get their answer first, questions under way do not."""
        instance = self._instance
        if instance is not None:
            for task in self._questions:
                task.cancel()
            instance.deciders.pop(self.group, None)
            try:
                async with asyncio.timeout(self.timeout_s):
                    await self._half_pipeline.flush()
                    await self._ends.flush()
            except TimeoutError:
                log.warning("half messages without an answer are left to the brokers group=%s", self.group)
            self._ends.close()
            self._checker.close()
        await super().close()

    def _half_preparation(self) -> HalfPreparation:
        rules = msgspec.structs.replace(self.rules, is_prepared=True, linger_s=0.0)
        traced = None if self.tracing is None else self._halves
        return HalfPreparation(rules, self.ids, is_fast=self._is_fast, traced=traced)

    # Transactions

    @property
    def half_pipeline(self) -> SendPipeline:
        """The road of half messages; only while it is open."""
        if self._instance is None:
            raise self._not_open()
        return self._half_pipeline

    def transaction(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        immunity_s: int | None = None,
    ) -> Transaction:
        """A transaction for `async with`: the half message is stored on entering, the end told on leaving.

        `immunity_s` keeps brokers from asking for so long; a broker takes no end of ours that comes later than that.
        """
        parts = half_parts(Parts(topic, body, tags, keys, properties, flag), immunity_s)
        send = partial(self.half_pipeline.send, parts, shard, queue)
        return Transaction(send, partial(self.send_half_again, parts, shard, queue, self.until_s()), self.tell_end)

    def until_s(self) -> float:
        """When the time limit of a send that begins now is over."""
        return self._clock.monotonic_s() + self.timeout_s

    async def send_half_again(
        self, parts: Parts, shard: str | None, queue: MessageQueue | None, until_s: float, receipt: Receipt
    ) -> Receipt:
        """The receipt of another half message, where the replicas of the first were late: another broker may lead.

        Nothing runs yet that could be done twice. The first one may be there or not; if a broker asks about it, it is
        rolled back. It is told to nobody: at the new master another message may lie in its place.
        """
        while receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT:
            self._abandon(receipt.msg_id)
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            receipt = await self.half_pipeline.send(parts, shard, queue, left_s)
        return receipt

    def _abandon(self, msg_id: str) -> None:
        if len(self._abandoned) >= HALVES_MAX:  # the oldest is too old to be asked about
            self._abandoned.pop(next(iter(self._abandoned)))
        self._abandoned[msg_id] = None
        self._halves.pop(msg_id, None)

    def tell_end(self, receipt: Receipt, outcome: Outcome) -> None:
        """Have a broker told how a transaction ended."""
        half = self._halves.pop(receipt.msg_id, None) if self._halves else None
        if half is not None and self.tracing is not None:
            address = self.instance.address(receipt.queue.broker_name, MASTER_ID) or ""
            self.tracing.transaction_ended(half, address, STATES[outcome], receipt.msg_id, is_from_check=False)
        if self._telemetry is not None:
            self._telemetry.settled(outcome.name, receipt.queue.topic, receipt.msg_id, self.instance.client_id)
        self._ends.add(receipt, outcome)

    async def tell_end_now(self, receipt: Receipt, outcome: Outcome) -> None:
        """The same, and the end is under way before this returns, where a connection is at hand."""
        self.tell_end(receipt, outcome)
        self._ends.tell()

    # Questions

    def asked(self, question: CheckTransactionRequest, message: StoredMessage, session: Session) -> None:
        """A broker asks how a transaction ended, of ours or of another member's."""
        if self._checker.is_full:
            log.warning("question dropped, too many wait for the checker id=%s", message.message_id)
            return
        task = self._guests.start(self._answer(question, message, session), name="producer.check")
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _answer(self, question: CheckTransactionRequest, message: StoredMessage, session: Session) -> None:
        if message.unique_id in self._abandoned:
            outcome, remark = Outcome.ROLLBACK, None
        else:
            outcome, remark = await self._checker.outcome(inflate(message))
        transaction_id = question.transaction_id or message.message_id
        header = EndTransactionRequest(
            topic=message.topic,
            producer_group=self.group,
            half_queue_offset=question.half_queue_offset,
            physical_offset=question.physical_offset,
            commit_or_rollback=outcome.value,
            is_from_check=True,
            message_id=message.message_id,
            transaction_id=transaction_id,
            addressed_broker=question.addressed_broker,
        )
        command = Command(RequestCode.END_TRANSACTION, flag=ONEWAY_FLAG, remark=remark, fields=header.encode())
        if self.tracing is not None:
            half = Message(message.topic, message.body, properties=message.properties)
            self.tracing.transaction_ended(half, session.peer, STATES[outcome], transaction_id, is_from_check=True)
        if self._telemetry is not None:
            told = (outcome.name, message.topic, transaction_id, self.instance.client_id)
            self._telemetry.settled(*told, asked=message.properties)
        self.instance.sign(session.peer, command)
        session.send(command)
        log.info("transaction checked id=%s topic=%s outcome=%s", message.message_id, message.topic, outcome.name)


def half_parts(parts: Parts, immunity_s: int | None) -> Parts:
    """The parts of a half message; `immunity_s` asks brokers not to ask for so long."""
    if immunity_s is None:
        return parts
    immunity = {names.CHECK_IMMUNITY_S: str(immunity_s)}
    if isinstance(parts.topic, Message):
        return parts.with_properties({**(parts.properties or {}), **immunity})
    return parts._replace(properties={**(parts.properties or {}), **immunity})
