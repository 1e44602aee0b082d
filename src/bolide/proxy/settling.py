"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of a message that is out.

A client names a message by the handle it was given; where the message was kept hidden since, the newest handle counts.
A handle that is merely old is told as such (40013): push consumers repeat after any other refusal without end.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from bolide import kernel
from bolide.broker.sending.backoff import own_delay_ms
from bolide.model.queue import QueueOffset
from bolide.protocol.command import Command
from bolide.protocol.headers.poptext import PopHandle, TopicMark
from bolide.protocol.popped import ack_command, bury_command, change_command, changed_handle
from bolide.proxy import messages as m
from bolide.proxy.answers import varint
from bolide.proxy.back import Answer, asked
from bolide.proxy.calls import Call
from bolide.proxy.checks import checked_group, checked_topic, group_name, millis, topic_name
from bolide.proxy.clients import GrpcClient
from bolide.proxy.handles import Held, Receipt, Renewals, read_receipt
from bolide.proxy.methods import Handler
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, denial_of, ok, set_status, status

_ANSWER_LIMIT_S = 3.0
_ENTRIES_MAX = 1_000
_FIRST_BACKOFF_MS = 1_000
_MARKS = [TopicMark.NORMAL, TopicMark.RETRY_V1, TopicMark.RETRY_V2]
_OK_FIELD = m.AckMessageResponse(status=ok()).SerializeToString()
_OK_OF_ENTRY = m.AckMessageResultEntry(status=ok()).SerializeToString()
log = logging.getLogger(__name__)


class PlainAck(NamedTuple):
    """A request that acknowledges one message, as the kernel reads it."""

    group: str
    topic: str
    message_id: str
    handle: str
    start_offset: int
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: int
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def receipt(self) -> Receipt:
        """What the handle says; where the message lies is of no use here."""
        handle = PopHandle(
            start_offset=QueueOffset(self.start_offset),
            popped_ms=self.popped_ms,
            invisible_ms=self.invisible_ms,
            revive_queue_id=self.revive_queue_id,
            mark=_MARKS[self.mark],
            broker_name=self.broker_name,
            queue_id=self.queue_id,
            queue_offset=QueueOffset(self.queue_offset),
        )
        return Receipt(handle, -1)


def read_ack(content: bytes) -> m.AckMessageRequest | PlainAck:
    """A request, sooner if it is everyday."""
    found = kernel.read_grpc_ack(content)
    return m.AckMessageRequest.FromString(content) if found is None else PlainAck(*found)


class Settling:
    """Settles what was received."""

    def __init__(self, state: ProxyState) -> None:
        self._state = state
        self.renewals = Renewals(state.config, state.clock, self._renew, self._first_backoff_ms)

    def handlers(self) -> dict[str, Handler]:
        return {
            "AckMessage": Handler(m.AckMessageRequest, m.AckMessageResponse, self.ack, read=read_ack),
            "ChangeInvisibleDuration": Handler(
                m.ChangeInvisibleDurationRequest, m.ChangeInvisibleDurationResponse, self.change
            ),
            "ForwardMessageToDeadLetterQueue": Handler(
                m.ForwardMessageToDeadLetterQueueRequest, m.ForwardMessageToDeadLetterQueueResponse, self.forward
            ),
        }

    # AckMessage

    def ack(self, call: Call, request: m.AckMessageRequest | PlainAck) -> None:
        """These messages are done; each entry says how it went."""
        client = self._state.clients.of(call)
        if isinstance(request, PlainAck):
            self._ack_plain(call, client, request)
            return
        group, topic = group_name(request.group), topic_name(request.topic)
        if not 0 < len(request.entries) <= _ENTRIES_MAX:
            raise Denied(m.Code.BAD_REQUEST, f"{len(request.entries)} entries, 1 to {_ENTRIES_MAX} go at once")
        results = _AckResults(call, request.entries)
        for number, entry in enumerate(request.entries):
            held = Held(client.client_id, group, topic, entry.receipt_handle)
            try:
                self._ack(client, held, results.settler(number))
            except Denied as denial:
                results.settle(number, denial)

    def _ack_plain(self, call: Call, client: GrpcClient, ack: PlainAck) -> None:
        """The everyday case: one message."""
        held = Held(client.client_id, checked_group(ack.group), checked_topic(ack.topic), ack.handle)
        settled = partial(_settle_plain, call, ack)
        try:
            self._ack(client, held, settled, ack.receipt)
        except Denied as denial:
            settled(denial)

    def _ack(
        self,
        client: GrpcClient,
        held: Held,
        settled: Callable[[Denied | None], None],
        told: Receipt | None = None,
    ) -> None:
        """`told` is what the client's handle says, where it was read."""
        receipt = self._good(held, told)
        renewal = self.renewals.take(held)

        def answered(answer: Answer) -> None:
            denial = denial_of(answer, is_about_handle=True)
            if denial is not None:
                self.renewals.put_back(held, renewal)
            settled(denial)

        client.ack(held.group, held.topic, receipt.pop, _ANSWER_LIMIT_S, answered)

    def _good(self, held: Held, told: Receipt | None = None) -> Receipt:
        """The handle that counts now; raises Denied for one that is over."""
        receipt = self.renewals.newest(held) or told or read_receipt(held.first)
        if receipt.expires_ms <= self._state.clock.now_ms():
            text = "the message is not hidden any more; it was or will be delivered again"
            raise Denied(m.Code.INVALID_RECEIPT_HANDLE, text)
        return receipt

    def _ask(
        self, client: GrpcClient, held: Held, receipt: Receipt, command: Command, done: Callable[[Answer], None]
    ) -> None:
        client.ask(receipt.pop.broker_name, command, _ANSWER_LIMIT_S, done)

    # ChangeInvisibleDuration

    async def change(self, call: Call, request: m.ChangeInvisibleDurationRequest) -> m.ChangeInvisibleDurationResponse:
        """Hidden for so long from now on; only the handle in the answer is good then."""
        client, config = self._state.clients.of(call), self._state.config
        held = Held(client.client_id, group_name(request.group), topic_name(request.topic), request.receipt_handle)
        invisible_ms = millis(request.invisible_duration)
        if not 0 <= invisible_ms <= config.invisible_max_ms:
            text = f"messages cannot be hidden for {invisible_ms} ms, but for 0 to {config.invisible_max_ms}"
            raise Denied(m.Code.ILLEGAL_INVISIBLE_TIME, text)
        receipt = self._good(held)
        renewal = self.renewals.take(held)
        command = _change_command(held, receipt, invisible_ms, is_suspended=request.suspend)
        answer = await asked(client, receipt.pop.broker_name, command, _ANSWER_LIMIT_S)
        denial = denial_of(answer, is_about_handle=True)
        if denial is not None:
            self.renewals.put_back(held, renewal)
            return m.ChangeInvisibleDurationResponse(
                status=status(denial.code, denial.text), receipt_handle=request.receipt_handle
            )
        return m.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=_changed(receipt, answer).text)

    # ForwardMessageToDeadLetterQueue

    async def forward(
        self, call: Call, request: m.ForwardMessageToDeadLetterQueueRequest
    ) -> m.ForwardMessageToDeadLetterQueueResponse:
        """The client gives a message up."""
        client = self._state.clients.of(call)
        held = Held(client.client_id, group_name(request.group), topic_name(request.topic), request.receipt_handle)
        receipt = self._good(held)
        if receipt.physical_offset < 0:
            raise Denied(m.Code.INVALID_RECEIPT_HANDLE, "the handle does not say where the message lies")
        renewal = self.renewals.take(held)
        for command in (_bury_command(held, receipt), _ack_command(held, receipt)):
            answer = await asked(client, receipt.pop.broker_name, command, _ANSWER_LIMIT_S)
            denial = denial_of(answer, is_about_handle=True)
            if denial is not None:
                self.renewals.put_back(held, renewal)
                raise denial
        return m.ForwardMessageToDeadLetterQueueResponse(status=ok())

    # For receives

    def drop(self, client: GrpcClient, held: Held, receipt: Receipt) -> None:
        """A message that its group did not ask for is done."""
        client.ack(held.group, held.topic, receipt.pop, _ANSWER_LIMIT_S, _note)

    def bury(self, client: GrpcClient, held: Held, receipt: Receipt) -> None:
        """A message that failed too often is a dead letter, and done once it is one."""

        def buried(answer: Answer) -> None:
            if denial_of(answer) is None:
                self.drop(client, held, receipt)
            else:
                _note(answer)  # it comes again, and is tried again then

        self._ask(client, held, receipt, _bury_command(held, receipt), buried)

    def release(self, client: GrpcClient, group: str, topic: str, receipts: Iterable[Receipt]) -> None:
        """Nobody is there to take these: others get them soon."""
        for receipt in receipts:
            held = Held(client.client_id, group, topic, receipt.text)
            self._ask(client, held, receipt, _change_command(held, receipt, self._state.config.released_ms), _note)

    # For renewals

    def _renew(
        self, held: Held, receipt: Receipt, invisible_ms: int, changed: Callable[[Receipt | None], None]
    ) -> None:
        client = self._state.clients.find(held.client_id)
        if client is None:
            changed(None)
            return

        def answered(answer: Answer) -> None:
            if isinstance(answer, Command) and denial_of(answer) is None:
                changed(_changed(receipt, answer))
            else:
                _note(answer)
                changed(None)

        self._ask(client, held, receipt, _change_command(held, receipt, invisible_ms), answered)

    def _first_backoff_ms(self, group: str) -> int:
        config = self._state.back.group(group)
        return _FIRST_BACKOFF_MS if config is None else own_delay_ms(config.group_retry_policy, 0) or _FIRST_BACKOFF_MS


class _AckResults:
    """The answer to an acknowledgement while brokers work on it."""

    __slots__ = ("_answer", "_call", "_left")

    def __init__(self, call: Call, entries: Iterable[m.AckMessageEntry]) -> None:
        self._call = call
        self._answer = m.AckMessageResponse()
        self._left = 0
        for each in entries:
            entry = self._answer.entries.add()
            entry.message_id, entry.receipt_handle = each.message_id, each.receipt_handle
            self._left += 1

    def settler(self, number: int) -> Callable[[Denied | None], None]:
        return lambda denial: self.settle(number, denial)

    def settle(self, number: int, denial: Denied | None) -> None:
        entries = self._answer.entries
        set_status(entries[number].status, denial)
        self._left -= 1
        if self._left:
            return
        if len(entries) > 1 and len({entry.status.code for entry in entries}) > 1:
            self._answer.status.CopyFrom(status(m.Code.MULTIPLE_RESULTS, "the entries say how each went"))
        else:
            self._answer.status.CopyFrom(entries[0].status)
        self._call.reply(self._answer)


def _settle_plain(call: Call, ack: PlainAck, denial: Denied | None) -> None:
    if denial is None:
        call.reply_encoded(encode_acked(ack.message_id, ack.handle))
    else:
        entry = m.AckMessageEntry(message_id=ack.message_id, receipt_handle=ack.handle)
        _AckResults(call, [entry]).settle(0, denial)


def encode_acked(message_id: str, handle: str) -> bytes:
    """The answer to a message that is done, as protobuf writes it."""
    name, told = message_id.encode(), handle.encode()
    entry = b"".join((b"\x0a", varint(len(name)), name, b"\x12", varint(len(told)), told, _OK_OF_ENTRY))
    return b"".join((_OK_FIELD, b"\x12", varint(len(entry)), entry))


def _ack_command(held: Held, receipt: Receipt) -> Command:
    return ack_command(held.group, held.topic, receipt.pop)


def _change_command(held: Held, receipt: Receipt, invisible_ms: int, *, is_suspended: bool = False) -> Command:
    return change_command(held.group, held.topic, receipt.pop, invisible_ms, is_suspended=is_suspended)


def _bury_command(held: Held, receipt: Receipt) -> Command:
    return bury_command(held.group, held.topic, receipt.pop, receipt.physical_offset)


def _changed(receipt: Receipt, answer: Command) -> Receipt:
    return replace(receipt, pop=changed_handle(receipt.pop, answer))


def _note(answer: Answer) -> None:
    denial = denial_of(answer)
    if denial is not None:
        log.info("a message that is out was not settled: %s", denial)
