"""The reads of one turn of the event loop, given to their owner in one call.

A server with a thousand slow clients reads one frame at a time, and then the cost of a read is the cost of a request.
So the reads that the loop delivers in one turn are gathered, and answered together when the turn ends; none waits for
what has not come. The buffer of a read stays as it is until then. A turn ends early when many reads or a large one are
gathered, or when a connection needs its buffer back.

To gather costs a call of the loop, which a consumer feels that is alone: a fifth of the cost of a pull. So after some
turns that brought one read each, the next few reads are answered as they come, and then it is tried again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from bolide.remoting.owner import Answered, Owner, Read
from bolide.remoting.sparse import Sparse

log = logging.getLogger(__name__)
log.addFilter(Sparse())

READS_MAX = 64  # each holds a buffer, and as many are spare
LARGE_SIZE = 256 * 1024  # a read with more is not gathered: its owner may need as much again
ALONE_TURNS = 4  # in a row, before reads are answered as they come
AT_ONCE_READS = 32


class Solitude:
    """Whether it pays to gather: after some turns that brought one thing each, the next few do not wait."""

    __slots__ = ("_at_once_count", "_turn_count")

    def __init__(self) -> None:
        self._turn_count = 0  # in a row with one thing
        self._at_once_count = 0  # to come that are not gathered

    def take(self) -> bool:
        """Something comes, and nothing is gathered: whether it is served at once."""
        if not self._at_once_count:
            return False
        self._at_once_count -= 1
        return True

    def end_turn(self, count: int) -> None:
        """So many were gathered."""
        self._turn_count = self._turn_count + 1 if count == 1 else 0
        self._at_once_count = AT_ONCE_READS if self._turn_count >= ALONE_TURNS else 0


class LoopTurn:
    """Gathers reads; one for all connections of an owner."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._reads: list[Read] = []
        self._answered_count = 0  # of reads in this turn, before its end
        self._is_end_due = False
        self._solitude = Solitude()

    def add(self, read: Read) -> None:
        """Have a read answered when this turn of the loop ends: then its session hears of it (`read_answered`)."""
        if not self._is_end_due and self._solitude.take():
            self.answer([read])
            return
        if not self._is_end_due:
            self._is_end_due = True
            asyncio.get_running_loop().call_soon(self._end_in_time)
        elif len(self._reads) >= READS_MAX:
            self.end()
        self._reads.append(read)
        if read[2][-1] > LARGE_SIZE:
            self.end()

    def end(self) -> None:
        """Have what is gathered answered now."""
        reads, self._reads = self._reads, []
        if reads:
            self._answered_count += len(reads)
            self.answer(reads)

    def _end_in_time(self) -> None:
        self._is_end_due = False
        self.end()
        self._solitude.end_turn(self._answered_count)
        self._answered_count = 0

    def answer(self, reads: list[Read]) -> None:
        """Have these answered now, whatever is gathered."""
        try:
            answered = self.owner.handle_turn(reads)
            assert len(answered) == len(reads), "each read has its answers"
        except Exception:
            log.exception("a turn of %d reads failed", len(reads))
            for read in reads:
                read.session.abort("failed")  # half of it may have been carried out: it must not be served again
            answered = [(b"", [])] * len(reads)
        for (session, _, _), (replies, left) in zip(reads, answered, strict=True):
            try:
                session.read_answered(replies, left)
            except Exception:
                log.exception("a read of frames failed peer=%s", session.peer)
                session.abort("failed")


def answer_each(reads: Sequence[Read], answer: Callable[[Read], Answered]) -> list[Answered]:
    """Answer reads that have nothing to do with each other: a failure costs the connection of that read alone."""
    answered: list[Answered] = []
    for read in reads:
        try:
            answered.append(answer(read))
        except Exception:
            log.exception("a read of frames failed peer=%s", read.session.peer)
            read.session.abort("failed")  # half of it may have been carried out: it must not be served again
            answered.append((b"", []))
    return answered
