"""How transactions end (37), and one that was given up is taken up again (323).

Producers end transactions one-way: nobody waits for an answer, so the ends of one turn of the loop are carried out
together at its end, with one write to the log. What those commit that need no thought is laid out by the kernel, from
the log itself. Who does ask for an answer is served at once and hears what is wrong.

A commit is stored before its half message counts as decided; a crash between the two has somebody asked who answers
the same again. An end that comes twice is carried out once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from bolide import kernel
from bolide.broker.intake import Intake
from bolide.broker.later.routing import Destination
from bolide.broker.state import BrokerState
from bolide.broker.tables.places import Places
from bolide.broker.transactions.ended import Ended
from bolide.broker.transactions.halves import HALVES, Half, again, committed, immunity_ms, read_half, real_place
from bolide.broker.transactions.operations import Operations
from bolide.errors import BolideError, Refusal
from bolide.kernel.layout import EncodedOutcomes, Outcome
from bolide.model import properties as names
from bolide.model.halves import transaction_key
from bolide.model.message import parse_offset_id
from bolide.model.names import shown
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC
from bolide.protocol import sysflags
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.operating import ResumeCheckHalfMessageRequest
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.properties import decode_properties
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.remoting.request_times import ONEWAY, RequestTimes
from bolide.store.record import Draft, decode

_HALF_TOPICS = (HALF_TOPIC, CHECK_EXHAUSTED_TOPIC)
_BATCH_COUNT_MAX = 256
_BATCH_SIZE_MAX = 32 << 10  # of bodies and properties: a batch lies in one segment of the log
_DECISIONS = {sysflags.COMMITTED: "committed", sysflags.ROLLED_BACK: "rolled back"}
log = logging.getLogger(__name__)


class Outcomes:
    """Ends transactions. `ended` and `operations` are shared with the rounds that ask about them."""

    def __init__(self, state: BrokerState, intake: Intake, ended: Ended, operations: Operations) -> None:
        self._settings = state.settings
        self._store = state.store
        self._places = Places(state.topics, None, state.store)
        self._state = state
        self._intake = intake
        self._ended = ended
        self._operations = operations
        self._clock = state.clock
        self.due: list[Outcome] = []  # ends that were taken and are not carried out yet
        self._begun_s = 0.0  # since when

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def collect(self, stream: memoryview, bounds: list[int]) -> list[int]:
        """Take the one-way ends out of a read; returns the bounds of what is left."""
        if self._state.is_slave:
            return bounds
        ends, left = kernel.read_outcomes(stream, bounds)
        if ends:
            self._add(ends)
        return left

    def _add(self, ends: list[Outcome]) -> None:
        if not self.due:
            asyncio.get_running_loop().call_soon(self.finish)
            self._begun_s = self._clock.monotonic_s()
        self.due += ends

    def end(self, request: Request) -> Reply:
        """37: commit, roll back, or nothing while the producer does not know."""
        command = request.command
        if self._state.is_slave:
            remark = "this broker is a slave, transactions end at its master"
            raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        header = EndTransactionRequest.decode(command.fields)
        if header.commit_or_rollback not in _DECISIONS:
            log.debug("transaction not decided yet group=%s id=%s", header.producer_group, header.message_id)
            return command.answer(ResponseCode.SUCCESS, remark="not decided: the producer will be asked again")
        end = (
            header.physical_offset,
            header.half_queue_offset,
            header.commit_or_rollback,
            header.is_from_check,
            header.producer_group.encode(),
        )
        if command.is_oneway:
            self._add([end])
            return None
        self.finish()
        draft = self._draft(end)
        self._check_place(end)
        how = self._ended.how(self._ended.newest(header.half_queue_offset))
        if how in _DECISIONS and how != header.commit_or_rollback:
            remark = f"the transaction was {_DECISIONS[how]} before; nothing has changed"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._carry_out([end], [draft])
        # Whatever it was that decided the transaction: one that is ended again hears of the first time.
        return self._intake.when_safe(request, self._store.log_end, command.answer(ResponseCode.SUCCESS))

    def finish(self) -> None:
        """Carry out the ends nobody waits for."""
        due, self.due = self.due, []
        problems: list[tuple[Outcome, BolideError]] = []
        count = len(due)
        while due:
            seen, left = self._finish_plain(due)
            problems += self._finish_slowly(left)
            due = due[seen:]
        if problems:  # one line for all: anyone who sends nonsense must not fill the log with it
            (_, offset, _, _, group), problem = problems[0]
            text = "transactions not ended count=%d, the first: group=%s offset=%d problem=%.400s"
            log.warning(text, len(problems), shown(group.decode()), offset, problem)
        if count and self._state.meter is not None:
            self._time(self._state.meter.requests, count - len(problems), [problem.code for _, problem in problems])

    def _time(self, times: RequestTimes, done_count: int, refusals: Sequence[int | None]) -> None:
        """One-way requests have no answer that would be timed."""
        took_ms = int((self._clock.monotonic_s() - self._begun_s) * 1000)
        answers = Counter(ResponseCode.SYSTEM_ERROR if code is None else code for code in refusals)
        for answer, count in (Counter({ResponseCode.SUCCESS: done_count}) + answers).items():
            times.add(took_ms, RequestCode.END_TRANSACTION, answer, count, result=ONEWAY)

    def _finish_plain(self, due: list[Outcome]) -> tuple[int, list[Outcome]]:
        """Those that need no thought, as many as one write takes: how many were looked at, and which are left."""
        store, ended = self._store, self._ended
        physical_offset, offset, *_ = due[0]  # the others lie near it, as a rule
        segment, queue = store.segment_at(physical_offset), store.queue(HALVES)
        if segment is None or queue is None:
            return 1, due[:1]
        near = queue.near(offset)
        places = (segment.view, segment.base, store.visible_end, *near, ended.marks, ended.base)
        encode = partial(kernel.encode_outcomes, due, *places, _BATCH_SIZE_MAX, store.store_host)
        try:
            seen, decided, tallies, left = self._intake.append_encoded(lambda *at: self._targets_checked(encode(*at)))
        except Refusal:
            return len(due), due  # whichever of them it was: one by one it is found
        self._state.stats.put_all(tallies)
        self._note(decided)
        if self._state.meter is not None:
            self._count(due[:seen], decided)
        return seen, left

    def _count(self, due: Sequence[Outcome], decided: Mapping[int, int]) -> None:
        """Count ends that the kernel carried out; where each belongs is in its half message."""
        for physical_offset, offset, decision, _, _ in due:
            if offset in decided:
                record = self._store.record_at(physical_offset)
                half = None if record is None else read_half(record)
                place = None if half is None else real_place(half.properties)
                if half is not None and place is not None:
                    self._count_one(place[0], decision, half.born_ms)

    def _count_one(self, topic: str, decision: int, born_ms: int) -> None:
        if self._state.meter is not None:
            age_ms = self._clock.now_ms() - born_ms
            self._state.meter.ended(topic, is_commit=decision == sysflags.COMMITTED, age_ms=age_ms)

    def _targets_checked(self, encoded: EncodedOutcomes) -> EncodedOutcomes:
        for topic, queue_id, *_ in encoded[1]:
            self._places.check_target(topic, queue_id)
        return encoded

    def _finish_slowly(self, due: list[Outcome]) -> list[tuple[Outcome, BolideError]]:
        """One by one; returns those that are no ends of a half message, with why."""
        ends: list[Outcome] = []
        drafts: list[Draft] = []
        problems: list[tuple[Outcome, BolideError]] = []
        size = 0
        for end in due:
            try:
                draft = self._draft(end)
                self._check_place(end)
            except BolideError as problem:
                problems.append((end, problem))
                continue
            ends.append(end)
            drafts.append(draft)
            size += len(draft[2]) + len(draft[3])
            if size > _BATCH_SIZE_MAX or len(ends) == _BATCH_COUNT_MAX:
                self._carry_out_silently(ends, drafts)
                ends, drafts, size = [], [], 0
        self._carry_out_silently(ends, drafts)
        return problems

    def _carry_out_silently(self, ends: Sequence[Outcome], drafts: Sequence[Draft]) -> None:
        try:
            self._carry_out(ends, drafts)
        except Refusal as refusal:
            # Their producers will be asked about them.
            log.warning("transactions not ended count=%d problem=%s", len(ends), refusal.remark)

    def _carry_out(self, ends: Sequence[Outcome], drafts: Sequence[Draft]) -> None:
        """Store what is committed, then note all of them as decided."""
        ended, has_copies = self._ended, self._ended.has_copies
        decided: dict[int, int] = {}
        stored: list[Draft] = []
        for (_, offset, decision, _, _), draft in zip(ends, drafts, strict=True):
            if has_copies:
                offset = ended.newest(offset)
            how = ended.how(offset)
            if how is None and ended.has_strays:
                copy = ended.stray(transaction_key(decode_properties(bytes(draft.properties)), draft.born_ms))
                offset, how = (offset, how) if copy is None else (copy, ended.how(copy))
            if offset in decided or how:
                continue  # it was ended already: nothing is stored twice
            decided[offset] = decision
            if decision == sysflags.COMMITTED:
                stored.append(draft)
        if stored:
            self._intake.append(stored)
        self._note(decided)
        for end, draft in zip(ends, drafts, strict=True):
            if end[1] in decided:
                self._count_one(draft.topic, end[2], draft.born_ms)

    def _note(self, decided: Mapping[int, int]) -> None:
        if decided:
            self._ended.mark_all(decided)
            self._operations.add(decided)

    def _draft(self, end: Outcome) -> Draft:
        """What a commit stores; raises Refusal if this end is not one of that half message."""
        half = self._half_at(end[0])
        self._check(end, half)
        place = real_place(half.properties)
        if place is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the half message at {half.physical_offset} has no real topic")
        if end[2] == sysflags.ROLLED_BACK:
            return committed(half, Destination(*place, half.properties))
        self._places.check_target(*place)
        return committed(half, self._intake.route(*place, half.properties))

    def _check_place(self, end: Outcome) -> None:
        """Anyone who sends a message can write a record into its body, and name the place: ask the half queue."""
        queue = self._store.queue(HALVES)
        offset = end[1]
        if queue is None or not queue.min_offset <= offset < queue.next_offset or queue.entry(offset)[0] != end[0]:
            remark = f"no half message at {end[0]} of the log that is the half queue's {offset}th"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _half_at(self, physical_offset: int) -> Half:
        record = self._store.record_at(physical_offset)
        half = None if record is None else read_half(record)
        if half is None:
            remark = f"no half message at {physical_offset} of the log: it expired, or the offset is wrong"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return half

    def _check(self, end: Outcome, half: Half) -> None:
        _, half_offset, _, was_asked, group = end
        immune_ms = immunity_ms(half.properties, self._settings.now.transaction_timeout_ms)
        age_ms = self._clock.now_ms() - half.born_ms
        if immune_ms is not None and not was_asked and age_ms > immune_ms:
            remark = f"the transaction had {immune_ms} ms of its own and ends after {age_ms}; its producer is asked now"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        own = half.properties.get(names.PRODUCER_GROUP)
        if own is None or own.encode() != group:
            remark = f"the half message is of producer group {own!r}, not of {group.decode()!r}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if half.queue_offset != half_offset:
            remark = f"the half message has queue offset {half.queue_offset}, not {half_offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def resume(self, request: Request) -> Reply:
        """323: a message that was given up is asked about again, from the first check on."""
        header = ResumeCheckHalfMessageRequest.decode(request.command.fields)
        found = parse_offset_id(header.message_id or "")
        record = None if found is None else self._store.record_at(found.physical_offset)
        if record is None:
            remark = (
                f"no message here with the id {shown(header.message_id or '')}; give the broker's own id of the message"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        message = decode(record)
        place = real_place(message.properties)
        # Anybody can send a message with these properties; what lies in one of these two topics the broker put there.
        if place is None or names.PRODUCER_GROUP not in message.properties or message.topic not in _HALF_TOPICS:
            remark = f"the message {header.message_id} of {message.topic!r} is no half message of this broker"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._places.check_target(*place)
        # It begins again: an earlier place of it in the half queue says nothing any more.
        properties = {name: text for name, text in message.properties.items() if name != names.PREPARED_QUEUE_OFFSET}
        message = replace(message, properties=properties)
        appended = self._intake.append_own([again(message, **{names.TRANSACTION_CHECK_TIMES: "0"})])
        log.info("transaction taken up again id=%s", message.unique_id)
        return self._intake.when_safe(request, appended.end, request.command.answer(ResponseCode.SUCCESS))
