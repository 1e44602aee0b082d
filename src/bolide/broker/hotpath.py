"""All reads of one turn at once: the sends that need no thought, in one call of the kernel and one write to the log.

The kernel reads the headers, lays out records, entries, keys and answers; the store writes the records, and only when
that succeeded are queues fed and answers sent. What the kernel leaves goes on to the plain path, one request at a time.
If the store refuses (disk full, too slow, failed), all frames go there: each is judged alone and hears its own code. So
they do if the kernel itself fails.

Half messages are answered before the ends of transactions that came with them are carried out: nobody sees them yet.
Any other send is stored behind what such an end commits, so that whoever commits and then sends finds it in that order.

Nothing here runs for each message, and little for each read: a broker with a thousand slow producers reads one frame at
a time, and then the cost of a read is the cost of a message. So the reads that the loop delivers in one turn are kept
to its end, where they are answered together; none waits for what has not come.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, cast

from bolide import kernel
from bolide.broker.intake import Intake
from bolide.broker.sending.send import broker_properties, pack_peer
from bolide.broker.state import BrokerState
from bolide.broker.tables.open_topics import OpenTopics
from bolide.errors import Refusal
from bolide.kernel.layout import Read, SendRules, Sent
from bolide.model.topics import HALF_TOPIC
from bolide.protocol.command import BINARY_CODEC, VERSION, Command
from bolide.protocol.headers.send import RefusedSendAnswer
from bolide.protocol.properties import encode_properties
from bolide.remoting.owner import Taken
from bolide.remoting.session import Session
from bolide.store.store import Laid, Lay

log = logging.getLogger(__name__)

Behind = Callable[[Session, memoryview, list[int]], tuple[bytes, list[int]]]

_SILENT_S = 10.0
_READS_MAX = 64  # each keeps its buffer, and so many are spare

_EXT_AT = 8 + 21  # of a binary frame: two words, and the header before its ext entries


class Ends(Protocol):
    """How transactions end (`transactions.outcomes`)."""

    @property
    def is_due(self) -> bool: ...

    def take(self, stream: memoryview, bounds: list[int]) -> list[int]: ...

    def finish(self) -> None: ...


class HotPath:
    """Stands before the handlers: what it does not take, they serve."""

    def __init__(
        self,
        state: BrokerState,
        intake: Intake,
        open_topics: OpenTopics,
        behind: Behind | None = None,
        ends: Ends | None = None,
    ) -> None:
        """`behind` is given what is left of a read after the sends: the pulls, where they have such a path.

        `ends` take theirs before it: senders end transactions, and nobody else does so in numbers.
        """
        self._behind = behind
        self._ends = ends
        self._topics = open_topics
        self._intake = intake
        self._state = state
        self._store = state.store
        self._settings = state.settings
        self._stats = state.stats
        self._clock = state.clock
        self._sessions: list[Session] = []  # whose reads are kept
        self._reads: list[Read] = []
        self._is_end_due = False
        self._senders: set[Session] = set()
        self._enders: set[Session] = set()  # who has sent half messages is looked at for ends first
        self._silent_until_s = 0.0
        self._configure()

    def _configure(self) -> None:
        """The settings or our address changed: make ready what follows from them."""
        config, store = self._settings.now, self._store
        self._config = config
        self._accepts_from_ms = config.accepts_sends_from_ms
        self._is_sync = store.config.is_sync
        self._is_closed = self._state.is_slave
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

    def take(self, session: Session, stream: memoryview, bounds: list[int]) -> Taken:
        """Keep a read to the end of this turn of the loop, or until there are many, or somebody calls what is given.

        Who has never sent is a consumer: his pulls wait for nobody, and no send is looked for among them.
        """
        if session not in self._senders and self._behind is not None:
            answers, bounds = self._behind(session, stream, bounds)
            if not bounds:
                return answers, bounds
            if answers:
                session.push(answers)
        if not self._is_end_due:
            self._is_end_due = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        elif len(self._reads) >= _READS_MAX:
            self._end()
        self._sessions.append(session)
        self._reads.append((stream, bounds, pack_peer(session.peer)))
        return self._end

    def left(self, session: Session) -> None:
        """The connection is gone."""
        self._senders.discard(session)
        self._enders.discard(session)

    def _end_turn(self) -> None:
        self._is_end_due = False
        self._end()

    def _end(self) -> None:
        sessions, reads = self._sessions, self._reads
        self._sessions, self._reads = [], []
        answered: list[tuple[bytes, list[int]]] = [(b"", [])] * len(sessions)
        try:
            answered = self.answer(sessions, reads)
        except Exception:
            for session in sessions:
                session.abort("failed")  # half of it may have been carried out: it must not be served again
            raise
        finally:
            for session, (answers, left) in zip(sessions, answered, strict=True):
                if answers:
                    self._senders.add(session)
                session.taken(answers, left)

    def answer(self, sessions: list[Session], reads: list[Read]) -> list[tuple[bytes, list[int]]]:
        """Answer what can be answered at once; for each read the answers and the bounds of what is left.

        Under synchronous flush the answers to sends are written later.
        """
        store = self._store
        if self._config is not self._settings.now or self._rules.store_host is not store.store_host:
            self._configure()
        if self._is_closed or (self._accepts_from_ms and self._clock.now_ms() < self._accepts_from_ms):
            return self._go_on(sessions, reads, [(b"", bounds) for _, bounds, _ in reads])
        if self._enders:
            reads = [self._without_ends(*each) for each in zip(sessions, reads, strict=True)]
        lay = partial(kernel.lay_sends, reads, self._topics.table, self._rules)
        try:
            answered, tallies = self._append(partial(_guarded, lay))
        except (Refusal, _Unlaid) as problem:
            if isinstance(problem, _Unlaid):
                self._tell(problem)
            return self._go_on(sessions, reads, [(b"", bounds) for _, bounds, _ in reads])
        stored_count = self._intake.count(tallies)
        for topic, _, _ in tallies:
            if topic == HALF_TOPIC:
                self._enders.update(sessions)
        if self._is_sync:
            answered = [self._confirm(*each) for each in zip(sessions, reads, answered, strict=True)]
        elif stored_count:
            self._stats.took(stored_count, int(store.took_s * 1000))
        return self._go_on(sessions, reads, answered)

    def _tell(self, problem: Exception) -> None:
        """Say that something is wrong here, not more often than somebody reads it: who caused it can do so again."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._silent_until_s:
            self._silent_until_s = now_s + _SILENT_S
            log.error("sends and pulls are served one by one: the kernel failed", exc_info=problem)

    def _without_ends(self, session: Session, read: Read) -> Read:
        if session not in self._enders or self._ends is None:
            return read
        stream, bounds, peer = read
        return stream, self._ends.take(cast(memoryview, stream), bounds), peer

    def _append(self, lay: Lay[Sent]) -> Sent:
        """Store what is laid out, behind the ends that are due if it is more than half messages."""
        if self._ends is not None and self._ends.is_due:
            sent = self._intake.append_laid(partial(_only_halves, lay))
            if sent is not None:
                return sent
            self._ends.finish()
        return self._intake.append_laid(lay)

    def _confirm(self, session: Session, read: Read, answered: tuple[bytes, list[int]]) -> tuple[bytes, list[int]]:
        answers, left = answered
        if taken_count := (len(read[1]) - len(left)) // 2:
            self._intake.push_when_safe(session, answers, taken_count)
        return b"", left

    def _go_on(
        self, sessions: list[Session], reads: list[Read], answered: list[tuple[bytes, list[int]]]
    ) -> list[tuple[bytes, list[int]]]:
        """Give what is left to the path behind, where there is one."""
        for i, (answers, left) in enumerate(answered):
            stream = cast(memoryview, reads[i][0])
            try:
                if left and self._ends is not None:
                    left = self._ends.take(stream, left)
                if left and self._behind is not None:
                    more, left = self._behind(sessions[i], stream, left)
                    answers += more
            except Exception as problem:
                sessions[i].abort("failed")  # half of it may have been carried out; the others have no part in it
                self._tell(problem)
                left = []
            answered[i] = answers, left
        if self._ends is not None and self._ends.is_due and any(left for _, left in answered):
            self._ends.finish()  # what is served one by one may be a send too
        return answered


class _Unlaid(Exception):
    """The kernel raised, and nothing was stored."""


def _guarded(lay: Lay[Sent], at: int, store_ms: int, next_offsets: Mapping[tuple[str, int], int]) -> Laid[Sent]:
    """What the kernel lays out. If it cannot, one frame or one setting is to blame, and not all who sent something."""
    try:
        return lay(at, store_ms, next_offsets)
    except Exception as problem:
        raise _Unlaid(str(problem)) from problem


def _only_halves(
    lay: Lay[Sent], at: int, store_ms: int, next_offsets: Mapping[tuple[str, int], int]
) -> Laid[Sent | None]:
    """Lay out nothing where a message would be among it that can be seen at once."""
    records, runs, keys, sent = lay(at, store_ms, next_offsets)
    if any(topic != HALF_TOPIC for topic, _, _ in sent[1]):
        return b"", [], b"", None
    return records, runs, keys, sent


def answer_heads(region: str, is_traced: bool) -> tuple[bytes, bytes]:
    """How an answer to a send begins, in each codec: all that comes before the message's id."""
    fields = RefusedSendAnswer(region=region, is_traced=is_traced).encode()
    answer = Command(0, flag=1, fields=fields | {"msgId": ""}).encode()
    json_head = answer[8 : answer.rindex(b'"msgId":"') + len(b'"msgId":"')]
    return json_head, Command(0, flag=1, fields=fields, codec=BINARY_CODEC).encode()[_EXT_AT:]
