"""Asking about transactions that nobody decided, every half minute; and giving up those that stay undecided.

`judge` decides, `Checks` carries out. A half message that is asked about moves to the end of its queue as a copy with
one more check counted, and the question names the copy; so the queue always advances, and one undecided transaction
holds up no other. The question goes to one live producer of the group, any of them: the sender may be long dead.

Three things differ from RocketMQ. What is decided is known (`ended.py`), so a round never waits for the op queue. A
message that is moved because it asked for time (CHECK_IMMUNITY_TIME_IN_SECONDS) does not use up one of its checks. And
with nobody of its group connected a message is not asked about, so nothing is counted and nothing copied: it waits in
its place (`absent.py`), until somebody is there or it is too old. Only when many that are decided have gathered behind
such ones are they moved, uncounted, so that memory and the next start depend on what is undecided, not on all the rest.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from bolide.broker.config import BrokerConfig
from bolide.broker.intake import Intake
from bolide.broker.state import BrokerState
from bolide.broker.transactions.absent import Absent
from bolide.broker.transactions.ended import Ended
from bolide.broker.transactions.halves import (
    CHECK_GROUP,
    HALF_QUEUE_ID,
    HALVES,
    again,
    check_count,
    discarded,
    immunity_ms,
    real_place,
)
from bolide.broker.transactions.operations import Operations
from bolide.errors import CorruptRecord, Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueKey, QueueOffset
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.callbacks import CheckTransactionRequest
from bolide.protocol.records import encode_record
from bolide.remoting.session import Session
from bolide.store.record import decode

OPERATIONS = QueueKey(OP_HALF_TOPIC, HALF_QUEUE_ID)
ROUND_LIMIT_S = 60.0
HELD_UP_MAX = 1 << 18  # half messages behind one that waits; half a minute of a busy broker
_CROWDED = 4  # of those at least this many for each that waits, or moving these costs more than it saves
_READ_COUNT = 32
_SLOW_PRODUCER_LIMIT_S = 3.0
_SLOW_DISK_LIMIT_S = 60.0
_TASK = "broker.transactions"
log = logging.getLogger(__name__)


class Step(Enum):
    """What a round does with an undecided half message."""

    STOP = "it and all behind it are too young"
    KEEP = "it asked for more time: move it, ask nobody"
    ASK = "move it and ask"
    DISCARD = "it was asked about too often, or is too old"


class CheckRules(NamedTuple):
    """What a round goes by."""

    timeout_ms: int
    check_count_max: int
    keep_ms: int


def rules_of(config: BrokerConfig) -> CheckRules:
    return CheckRules(config.transaction_timeout_ms, config.transaction_check_max, config.store.keep_hours * 3_600_000)


def judge(
    born_ms: int, stored_ms: int, properties: Mapping[str, str], now_ms: int, began_ms: int, rules: CheckRules
) -> Step:
    """What to do with an undecided half message in a round that began at `began_ms`, in RocketMQ's order."""
    age_ms = now_ms - born_ms
    if check_count(properties) >= rules.check_count_max or age_ms > rules.keep_ms:
        return Step.DISCARD
    if stored_ms >= began_ms:
        return Step.STOP
    own_ms = immunity_ms(properties, rules.timeout_ms)
    if own_ms is not None and age_ms <= own_ms:
        return Step.KEEP
    # A sender whose clock is ahead of ours is asked at once.
    return Step.STOP if own_ms is None and 0 <= age_ms <= rules.timeout_ms else Step.ASK


class Checks:
    """The rounds. `ended` and `operations` are shared with those who end transactions."""

    def __init__(self, state: BrokerState, intake: Intake, ended: Ended, operations: Operations) -> None:
        self._intake = intake
        self._settings = state.settings
        self._store = state.store
        self._topics = state.topics
        self._offsets = state.offsets
        self._members = state.members
        self._safety = state.safety
        self._ended = ended
        self._operations = operations
        self._clock = state.clock
        self._absent = Absent()
        self._questions: list[tuple[Session, Command]] = []
        self._moves_below = 0

    def forget(self) -> None:
        """Nobody is waited for, and nothing is about to be asked."""
        self._absent = Absent()
        self._questions.clear()

    async def run_forever(self) -> None:
        """A round every half minute, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.now.transaction_check_interval_ms / 1000)
            try:
                await self.check()
            except Refusal as problem:
                log.error("transactions not checked, again with the next round problem=%s", problem)

    async def check(self) -> None:
        """One round: ask about everything that is old enough, and note how far all is settled."""
        ended, began_ms = self._ended, self._clock.now_ms()
        limit_s = self._clock.monotonic_s() + ROUND_LIMIT_S
        end = self._store.max_offset(HALVES)
        self._wake(end, began_ms)
        offset, is_over = ended.base, False
        try:
            while not is_over and self._clock.monotonic_s() < limit_s:
                offset = ended.next_undecided(offset)
                if offset >= end:
                    break
                offset, is_over = self._check_some(offset, began_ms)
                await self._put_questions()
                await asyncio.sleep(0)
        finally:
            self.settle(min(offset, end))

    def _wake(self, end: int, now_ms: int) -> None:
        """Look again at those that nobody could be asked about, where something has changed."""
        ended, size = self._ended, end - self._ended.base
        is_crowded = size > HELD_UP_MAX and size > ended.waiting_count() * _CROWDED
        self._moves_below = ended.base + size // 2 if is_crowded else self._store.min_offset(HALVES)
        expired_ms = now_ms - rules_of(self._settings.now).keep_ms
        ended.wake(self._absent.take_due(self._members.has_producer, expired_ms, self._moves_below))

    def settle(self, offset: int) -> None:
        """Note that all before an offset is decided, up to the first that waits."""
        self._ended.settle(max(offset, self._ended.base))
        offset = self._ended.base
        op_end = self._store.max_offset(OPERATIONS)
        for topic, settled in (
            (HALF_TOPIC, offset),
            (OP_HALF_TOPIC, self._operations.settled_to(offset, op_end)),
        ):
            if self._offsets.get(CHECK_GROUP, topic, HALF_QUEUE_ID) != settled:
                self._offsets.put(CHECK_GROUP, topic, HALF_QUEUE_ID, settled)

    def _check_some(self, offset: int, began_ms: int) -> tuple[int, bool]:
        """Go on from an undecided message; returns where to, and whether what lies there is too young."""
        slices = next(self._store.walk(HALVES, offset, count_max=_READ_COUNT), None)
        if slices is None:
            return offset, True
        here = range(offset, slices.next_offset)
        for view in slices.views:
            if not self._ended.is_due(int.from_bytes(view[20:28], "big")):
                continue
            with self._store.mishaps.passing_over(_TASK, partial("a half message behind {}".format, offset)):
                half = decode(view)
                # Believed, it would settle others, or keep all behind it waiting.
                if half.queue_offset not in here or half.stored_at > self._store.dispatched_ms:
                    raise CorruptRecord(f"it says it is at {half.queue_offset}, stored at {half.stored_at} ms")
                if self._is_too_young(half, began_ms):
                    return half.queue_offset, True
        return slices.next_offset, False

    def _is_too_young(self, half: StoredMessage, began_ms: int) -> bool:
        """Do what is to be done with a half message, unless it is too young for that."""
        rules = rules_of(self._settings.now)
        step = judge(half.born_at, half.stored_at, half.properties, self._clock.now_ms(), began_ms, rules)
        if step is Step.STOP:
            return True
        try:
            self._carry_out(step, half)
        except Refusal as refusal:
            if refusal.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            try:
                self._ask_once(half, refusal)
            except Refusal as second:
                if second.code != ResponseCode.MESSAGE_ILLEGAL:
                    raise
                raise CorruptRecord(f"it can be stored nowhere: {second.remark}") from second
        return False

    def _carry_out(self, step: Step, half: StoredMessage) -> None:
        if step is Step.DISCARD:
            self._discard(half)
        elif step is Step.KEEP:
            self._move(half)
        else:
            self._ask(half)

    def _move(self, half: StoredMessage) -> None:
        """To the end of the queue, with no check counted."""
        origin = half.properties.get(names.PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        appended = self._intake.append_own([again(half, **{names.PREPARED_QUEUE_OFFSET: origin})])
        self._ended.follow(half.queue_offset, appended.queue_offsets[0])

    def _ask_once(self, half: StoredMessage, refusal: Refusal) -> None:
        """There cannot be a copy, for its properties have no room: ask about it where it lies, and be done with it."""
        log.error("a half message cannot be asked about again: %s", refusal.remark)
        self._discard(half)
        group, topic = (half.properties.get(name, "") for name in (names.PRODUCER_GROUP, names.REAL_TOPIC))
        session = self._members.producer(group, topic)
        place = real_place(half.properties)
        if session is not None and place is not None:
            self._questions.append((session, question(half, place, self._settings.now.name)))

    def _discard(self, half: StoredMessage) -> None:
        self._topics.ensure(CHECK_EXHAUSTED_TOPIC, 1)
        appended = self._intake.append_own([discarded(half)])
        self._ended.discard(half.queue_offset)
        if self._ended.is_held_up(half.queue_offset):  # or each start would give it up again, as long as it is
            self._operations.add([half.queue_offset])
        log.error(
            "transaction given up: it was not decided id=%s topic=%s group=%s checks=%d; it lies in %s at %d",
            half.unique_id,
            half.properties.get(names.REAL_TOPIC),
            half.properties.get(names.PRODUCER_GROUP),
            check_count(half.properties),
            *(CHECK_EXHAUSTED_TOPIC, appended.queue_offsets[0]),
        )

    def _ask(self, half: StoredMessage) -> None:
        """Ask one producer of the group, any, how the transaction ended; its answer is an END_TRANSACTION."""
        group = half.properties.get(names.PRODUCER_GROUP, "")
        session = self._members.producer(group, half.properties.get(names.REAL_TOPIC, ""))
        if session is None and group:
            self._leave(half, group)
            return
        counted = {names.TRANSACTION_CHECK_TIMES: str(check_count(half.properties) + 1)}
        appended = self._intake.append_own([again(half, **counted)])
        self._ended.follow(half.queue_offset, appended.queue_offsets[0])
        place = real_place(half.properties)
        if session is None or place is None:
            log.warning(
                "a half message that nobody can be asked about: it names no group or no topic id=%s", half.unique_id
            )
            return
        copy = replace(
            half,
            properties={**half.properties, **counted},
            queue_offset=QueueOffset(appended.queue_offsets[0]),
            physical_offset=PhysicalOffset(appended.physical_offsets[0]),
        )
        self._questions.append((session, question(copy, place, self._settings.now.name)))

    async def _put_questions(self) -> None:
        """Send what is to be asked once an answer finds its copy: until disk and replicas have it, nobody sees it."""
        questions, self._questions = self._questions, []
        end = self._store.log_end
        if questions and self._store.visible_end < end:
            await self._store.durable(end, _SLOW_DISK_LIMIT_S)
            replicated = self._safety.wait(end) if self._safety.policy.needs_replicas else None
            if replicated is not None:
                await asyncio.wait([replicated], timeout=_SLOW_DISK_LIMIT_S)
        for session, command in questions:
            session.send(command)
            await _taken(session)

    def _leave(self, half: StoredMessage, group: str) -> None:
        """Nobody of the group is here: it stays where it is, unless many wait behind it."""
        if half.queue_offset < self._moves_below:
            self._move(half)
            return
        self._ended.wait(half.queue_offset)
        # A clock that is ahead would keep those behind it from becoming too old.
        if self._absent.add(group, half.queue_offset, min(half.born_at, self._clock.now_ms())):
            log.warning("nobody of producer group %s is here to be asked: its transactions wait", group)


def question(half: StoredMessage, place: tuple[str, int], broker_name: str) -> Command:
    """39: the half message as it would be delivered, and where its newest copy lies."""
    header = CheckTransactionRequest(
        topic=half.topic,
        half_queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        message_id=half.unique_id,
        transaction_id=half.unique_id,
        offset_message_id=half.offset_id,
        addressed_broker=broker_name,
    )
    body = encode_record(replace(half, topic=place[0], queue_id=place[1]))
    return Command(RequestCode.CHECK_TRANSACTION_STATE, flag=ONEWAY_FLAG, fields=header.encode(), body=body)


async def _taken(session: Session) -> None:
    """A producer that takes questions slowly is given a moment; one that takes none is no reason to stop."""
    if session.is_writable:
        return
    try:
        async with asyncio.timeout(_SLOW_PRODUCER_LIMIT_S):
            await session.writable()
    except TimeoutError:
        log.warning("a producer takes no questions about transactions peer=%s", session.peer)
