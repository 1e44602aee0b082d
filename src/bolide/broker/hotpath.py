"""The fast path: the sends, pulls and ends of transactions of one turn of the loop, in few calls of the kernel.

A request is on the fast path if the kernel can answer it with what it is given: the header is one of those that clients
send in numbers, the topic is open, and no rule asks for more. For the sends of a turn the kernel reads the headers and
lays out records, entries, keys and answers; the store writes the records at once, and only when that succeeded are
queues fed and answers sent. What is left goes the general path, where every rule is: one request at a time, by the
processor of its code. If the store refuses (disk full, too slow, failed), all sends go there: each is judged alone and
hears its own code. So they do if the kernel itself fails.

Half messages are answered before the ends of transactions that came with them are carried out: nobody sees them yet.
Any other send is stored behind what such an end commits, so that anyone who commits and then sends finds it in that
order.

Nothing here runs for each message, and little for each read: a broker with a thousand slow producers reads one frame at
a time, and then the cost of a read is the cost of a message.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from bolide import kernel
from bolide.broker.intake import Intake
from bolide.broker.metrics.meter import QUICK_S, TOLD_MAX
from bolide.broker.pulling.pull import Pulls
from bolide.broker.sending.send import broker_properties, pack_peer
from bolide.broker.state import BrokerState
from bolide.broker.tables.open_topics import OpenTopics
from bolide.broker.transactions.outcomes import Outcomes
from bolide.errors import Refusal
from bolide.kernel.layout import Read as SendsRead
from bolide.kernel.layout import SendRules, Sent
from bolide.model.topics import HALF_TOPIC
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import BINARY_CODEC, VERSION, Command
from bolide.protocol.headers.send import RefusedSendAnswer
from bolide.protocol.properties import encode_properties
from bolide.remoting.owner import Answered, Read
from bolide.remoting.session import Session
from bolide.store.store import Encode, Encoded

log = logging.getLogger(__name__)

_SILENT_S = 10.0
_NOT_PULLED: Answered = b"", []  # of a sender: its pulls come behind its sends
_EXT_AT = 8 + 21  # of a binary frame: two words, and the header before its ext entries


class HotPath:
    """Stands before the handlers: what it leaves, they serve."""

    def __init__(
        self,
        state: BrokerState,
        intake: Intake,
        open_topics: OpenTopics,
        pulls: Pulls | None = None,
        transactions: Outcomes | None = None,
    ) -> None:
        self._answer_pulls = _leave_all if pulls is None else pulls.answer_read
        self._transactions = transactions
        self._topics = open_topics
        self._intake = intake
        self._state = state
        self._store = state.store
        self._safety = state.safety
        self._settings = state.settings
        self._stats = state.stats
        self._clock = state.clock
        self._meter = state.meter
        self._senders: dict[Session, bytes] = {}  # with the address that records hold
        self._enders: set[Session] = set()  # a connection that has sent half messages is looked at for ends first
        self._silent_until_s = 0.0
        self._role = state.role
        self._configure()

    def _configure(self) -> None:
        """The settings or our address changed: make ready what follows from them."""
        config, store = self._settings.now, self._store
        self._config = config
        self._accepts_from_ms = config.accepts_sends_from_ms
        self._store_host = store.store_host
        self._needs_replicas = self._safety.policy.needs_replicas
        self._is_sync = self._intake.is_sync
        self._topics.follow_all()
        json_head, binary_head = answer_heads(config.region, config.is_traced)
        self._rules = SendRules(
            store_host=store.store_host,
            added=encode_properties(broker_properties(config)),
            json_head=json_head,
            binary_head=binary_head,
            version=VERSION,
            body_size_max=store.config.body_size_max,
            is_sync=self._is_sync,
            half=None if config.refuses_transactions else (HALF_TOPIC, 1),
        )

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        """Answer what is on the fast path; for each read the answers and the bounds of what is left.

        A connection that has never sent is treated as a consumer's: its pulls are answered first, and mostly nothing is
        left. Under synchronous flush the answers to sends are written later.
        """
        if (
            self._config is not self._settings.now
            or self._store_host is not self._store.store_host
            or self._needs_replicas is not self._safety.policy.needs_replicas
        ):
            self._configure()
        senders, sender_count, is_left = self._senders, 0, False
        pulled: list[Answered] = []
        for read in reads:
            if read[0] in senders:
                sender_count += 1
                pulled.append(_NOT_PULLED)
                continue
            try:
                answered = self._answer_pulls(read)
            except Exception as problem:
                answered = self._failed(read, problem)
            pulled.append(answered)
            if answered[1]:
                is_left = True
        if sender_count or is_left:
            pulled = self._answer_senders(reads, pulled, sender_count)
        if (meter := self._meter) is not None:  # here and not in a call: a lone request would feel that
            took_s, told_count = self._clock.monotonic_s() - reads[0][0].frame_began_s, len(meter.told)
            if took_s < QUICK_S and told_count < TOLD_MAX:
                meter.told_before = told_count
            else:
                meter.count_turn(took_s)
        return pulled

    def left(self, session: Session) -> None:
        """The connection is gone."""
        self._senders.pop(session, None)
        self._enders.discard(session)

    def _answer_senders(self, reads: Sequence[Read], pulled: list[Answered], sender_count: int) -> list[Answered]:
        """Answer the sends, then what is behind them; `pulled` has what is answered before, of consumers."""
        if sender_count < len(reads):
            reads = [
                read if answered is _NOT_PULLED else read._replace(bounds=answered[1])
                for read, answered in zip(reads, pulled, strict=True)
            ]
        if self._enders:
            reads = [self._without_ends(read) for read in reads]
        answered = self._store_sends(reads)
        has_rest = False
        for i, (answers, left) in enumerate(answered):
            before = pulled[i]
            if before is not _NOT_PULLED:
                if len(left) < len(before[1]):
                    session = reads[i].session
                    self._senders[session] = pack_peer(session.peer)
                answers = before[0] + answers
            elif not left:
                continue
            if left:
                more, left = self._answer_rest(reads[i]._replace(bounds=left), is_pulled=before is not _NOT_PULLED)
                answers += more
                has_rest = has_rest or bool(left)
            answered[i] = answers, left
        if has_rest and self._transactions is not None and self._transactions.due:
            self._transactions.finish()  # what is served one by one may be a send too
        return answered

    def _store_sends(self, reads: Sequence[Read]) -> list[Answered]:
        if not self._role.is_leading or (self._accepts_from_ms and self._clock.now_ms() < self._accepts_from_ms):
            return [(b"", read.bounds) for read in reads]
        senders = self._senders
        given: list[SendsRead] = []
        for session, stream, bounds in reads:
            given.append((stream, bounds, senders.get(session) or pack_peer(session.peer)))
        try:
            answered, tallies = self._append(partial(_encode, given, self._topics.table, self._rules))
        except (Refusal, _NotEncoded) as problem:
            if isinstance(problem, _NotEncoded):
                self._tell(problem)
            return [(b"", read.bounds) for read in reads]
        stored_count = self._stats.put_all(tallies)
        if (meter := self._meter) is not None:
            if self._is_sync:
                meter.stored_in_turn(tallies)
            else:
                meter.told += tallies
        for tally in tallies:
            if tally[0] == HALF_TOPIC:
                self._enders.update(read.session for read in reads)
        if self._is_sync:
            code = tallies[0][4] if tallies else RequestCode.SEND_MESSAGE_V2
            answered = self._confirm(reads, answered, code)
        elif stored_count:
            self._stats.took(stored_count, int(self._store.took_s * 1000))
        return answered

    def _append(self, encode: Encode[Sent]) -> Sent:
        """Store what is laid out, behind the ends that are due if it is more than half messages."""
        if self._transactions is not None and self._transactions.due:
            sent = self._intake.append_encoded(partial(_only_halves, encode))
            if sent is not None:
                return sent
            self._transactions.finish()
        return self._intake.append_encoded(encode)

    def _confirm(self, reads: Sequence[Read], answered: Sequence[Answered], code: int) -> list[Answered]:
        """Have the answers written later. `code` is that of the first send of the turn; hardly any turn has another."""
        later: list[tuple[Session, bytes, int]] = []
        for read, (answers, left) in zip(reads, answered, strict=True):
            if sent_count := (len(read.bounds) - len(left)) // 2:
                later.append((read.session, answers, sent_count))
        if later:
            self._intake.push_when_safe(later, code)
        return [(b"", left) for _, left in answered]

    def _without_ends(self, read: Read) -> Read:
        if self._transactions is None or read.session not in self._enders or not read.bounds:
            return read
        try:
            return read._replace(bounds=self._transactions.collect(read.stream, read.bounds))
        except Exception as problem:
            return read._replace(bounds=self._failed(read, problem)[1])

    def _answer_rest(self, read: Read, *, is_pulled: bool) -> Answered:
        """Collect the ends that a read has behind its sends, and answer its pulls."""
        try:
            if self._transactions is not None:
                read = read._replace(bounds=self._transactions.collect(read.stream, read.bounds))
            return (b"", read.bounds) if is_pulled or not read.bounds else self._answer_pulls(read)
        except Exception as problem:
            return self._failed(read, problem)

    def _failed(self, read: Read, problem: Exception) -> Answered:
        read.session.abort("failed")  # half of it may have been carried out; the others have no part in it
        self._tell(problem)
        return b"", []

    def _tell(self, problem: Exception) -> None:
        """Say that something is wrong here, not more often than somebody reads it: who caused it can do so again."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._silent_until_s:
            self._silent_until_s = now_s + _SILENT_S
            log.error("sends and pulls are served one by one: the kernel failed", exc_info=problem)


class _NotEncoded(Exception):
    """The kernel raised, and nothing was stored."""


def _encode(
    given: list[SendsRead],
    topics: dict[bytes, tuple[str, int]],
    rules: SendRules,
    at: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> Encoded[Sent]:
    """What the kernel lays out. If it cannot, one frame or one setting is to blame, and not all who sent something."""
    try:
        return kernel.encode_sends(given, topics, rules, at, store_ms, next_offsets)
    except Exception as problem:
        raise _NotEncoded(str(problem)) from problem


def _leave_all(read: Read) -> Answered:
    return b"", read.bounds


def _only_halves(
    encode: Encode[Sent], at: int, store_ms: int, next_offsets: Mapping[tuple[str, int], int]
) -> Encoded[Sent | None]:
    """Encode nothing where a message would be among it that can be seen at once."""
    records, runs, keys, sent = encode(at, store_ms, next_offsets)
    if any(tally[0] != HALF_TOPIC for tally in sent[1]):
        return b"", [], b"", None
    return records, runs, keys, sent


def answer_heads(region: str, is_traced: bool) -> tuple[bytes, bytes]:
    """How an answer to a send begins, in each codec: all that comes before the message's id."""
    fields = RefusedSendAnswer(region=region, is_traced=is_traced).encode()
    answer = Command(0, flag=1, fields=fields | {"msgId": ""}).encode()
    json_head = answer[8 : answer.rindex(b'"msgId":"') + len(b'"msgId":"')]
    return json_head, Command(0, flag=1, fields=fields, codec=BINARY_CODEC).encode()[_EXT_AT:]
