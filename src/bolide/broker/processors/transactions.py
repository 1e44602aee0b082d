"""How transactions end (37), and one that was given up is taken up again (323).

Producers end transactions one-way: nobody waits for an answer, so the ends of one turn of the loop are carried out
together at its end, with one write to the log. Who does ask for an answer is served at once and hears what is wrong.

A commit is stored before its half message counts as decided; a crash between the two has somebody asked who answers
the same again. An end that comes twice is carried out once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from bolide.broker.config import CurrentConfig
from bolide.broker.stats import Stats
from bolide.broker.transactions.ended import UNDECIDED, Ended
from bolide.broker.transactions.halves import Half, again, committed, immunity_ms, read_half, real_place
from bolide.broker.transactions.operations import Operations
from bolide.broker.waiting import Waiting
from bolide.clock import Clock
from bolide.errors import BolideError, Refusal
from bolide.model import properties as names
from bolide.model.message import parse_offset_id
from bolide.protocol import sysflags
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.operating import ResumeCheckHalfMessageRequest
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request
from bolide.store.record import Draft, decode
from bolide.store.store import Store

_BATCH_SIZE_MAX = 32 << 10  # of bodies and properties: a batch lies in one segment of the log
_DECISIONS = {sysflags.COMMITTED: "committed", sysflags.ROLLED_BACK: "rolled back"}
log = logging.getLogger(__name__)


class Transactions:
    """Ends transactions. `ended` and `operations` are shared with the rounds that ask about them."""

    def __init__(
        self,
        current: CurrentConfig,
        store: Store,
        waiting: Waiting,
        stats: Stats,
        ended: Ended,
        operations: Operations,
        clock: Clock,
    ) -> None:
        self._current = current
        self._store = store
        self._waiting = waiting
        self._stats = stats
        self._ended = ended
        self._operations = operations
        self._clock = clock
        self._due: list[EndTransactionRequest] = []

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, request: Request) -> Command | Awaitable[Command] | None:
        """37: commit, roll back, or nothing while the producer does not know."""
        command = request.command
        if self._store.config.role == "SLAVE":
            remark = "this broker is a slave, transactions end at its master"
            raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        header = EndTransactionRequest.decode(command.fields)
        if header.commit_or_rollback not in _DECISIONS:
            log.debug("transaction not decided yet group=%s id=%s", header.producer_group, header.message_id)
            return command.answer(ResponseCode.SUCCESS, remark="not decided: the producer will be asked again")
        if command.is_oneway:
            if not self._due:
                asyncio.get_running_loop().call_soon(self.finish)
            self._due.append(header)
            return None
        self.finish()
        draft = self._draft(header)
        how = self._ended.how(self._ended.newest(header.half_queue_offset))
        if how in _DECISIONS and how != header.commit_or_rollback:
            remark = f"the transaction was {_DECISIONS[how]} before; nothing has changed"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._carry_out([(header, draft)])
        if self._store.config.is_sync:
            return self._durable(command.answer(ResponseCode.SUCCESS))
        return command.answer(ResponseCode.SUCCESS)

    async def _durable(self, answer: Command) -> Command:
        await self._store.durable(self._store.commitlog.end)
        return answer

    def finish(self) -> None:
        """Carry out the ends nobody waits for."""
        due, self._due = self._due, []
        ends: list[tuple[EndTransactionRequest, Draft | None]] = []
        size = 0
        for header in due:
            try:
                draft = self._draft(header)
            except BolideError as problem:
                log.warning(
                    "transaction not ended group=%s id=%s problem=%s",
                    *(header.producer_group, header.message_id, problem),
                )
                continue
            ends.append((header, draft))
            size += 0 if draft is None else len(draft.body) + len(draft.properties)
            if size > _BATCH_SIZE_MAX:
                self._carry_out_silently(ends)
                ends, size = [], 0
        self._carry_out_silently(ends)

    def _carry_out_silently(self, ends: Sequence[tuple[EndTransactionRequest, Draft | None]]) -> None:
        try:
            self._carry_out(ends)
        except Refusal as refusal:
            # Their producers will be asked about them.
            log.warning("transactions not ended count=%d problem=%s", len(ends), refusal.remark)

    def _carry_out(self, ends: Sequence[tuple[EndTransactionRequest, Draft | None]]) -> None:
        """Store what is committed, then note all of them as decided."""
        decided: dict[int, int] = {}
        drafts: list[Draft] = []
        for header, draft in ends:
            offset = self._ended.newest(header.half_queue_offset)
            if offset in decided or self._ended.how(offset) not in (UNDECIDED, None):
                continue  # it was ended already: nothing is stored twice
            decided[offset] = header.commit_or_rollback
            if draft is not None:
                drafts.append(draft)
        if drafts:
            appended = self._store.append(drafts)
            sizes = zip(appended.physical_offsets, [*appended.physical_offsets[1:], appended.end], strict=True)
            for draft, (start, end) in zip(drafts, sizes, strict=True):
                self._stats.put(draft.topic, 1, end - start)
        for offset, how in decided.items():
            self._ended.mark(offset, how)
        self._operations.add(decided)

    def _draft(self, header: EndTransactionRequest) -> Draft | None:
        """What a commit stores, None for a rollback; raises Refusal if this end is not one of that half message."""
        half = self._half_at(header.physical_offset)
        self._check(header, half)
        if header.commit_or_rollback == sysflags.ROLLED_BACK:
            return None
        place = real_place(half.properties)
        if place is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the half message at {half.physical_offset} has no real topic")
        return committed(half, self._waiting.divert(*place, half.properties))

    def _half_at(self, physical_offset: int) -> Half:
        record = self._store.record_at(physical_offset)
        half = None if record is None else read_half(record)
        if half is None:
            remark = f"no half message at {physical_offset} of the log: it expired, or the offset is wrong"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return half

    def _check(self, header: EndTransactionRequest, half: Half) -> None:
        immune_ms = immunity_ms(half.properties, self._current.config.transaction_timeout_ms)
        age_ms = self._clock.now_ms() - half.born_ms
        if immune_ms is not None and not header.is_from_check and age_ms > immune_ms:
            remark = f"the transaction had {immune_ms} ms of its own and ends after {age_ms}; its producer is asked now"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        group = half.properties.get(names.PRODUCER_GROUP)
        if group != header.producer_group:
            remark = f"the half message is of producer group {group!r}, not of {header.producer_group!r}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if half.queue_offset != header.half_queue_offset:
            remark = f"the half message has queue offset {half.queue_offset}, not {header.half_queue_offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def resume(self, request: Request) -> Command:
        """323: a message that was given up is asked about again, from the first check on."""
        header = ResumeCheckHalfMessageRequest.decode(request.command.fields)
        found = parse_offset_id(header.message_id or "")
        record = None if found is None else self._store.record_at(found.physical_offset)
        if record is None:
            remark = f"no message here with the id {header.message_id!r}; give the broker's own id of the message"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        message = decode(record)
        if real_place(message.properties) is None or names.PRODUCER_GROUP not in message.properties:
            remark = f"the message {header.message_id} of {message.topic!r} is no half message"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._store.append([again(message, **{names.TRANSACTION_CHECK_TIMES: "0"})])
        log.info("transaction taken up again id=%s", message.unique_id)
        return request.command.answer(ResponseCode.SUCCESS)
