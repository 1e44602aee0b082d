"""Says when a member gets nothing more because what it was given has no verdict: from outside that looks like silence.

A queue is not pulled further while too much of it lies unsettled (`PullRules`), and an ordered one gives out its next
message when the one before is settled. Both are right while somebody works. They are a mistake where somebody asks for
more, gets nothing, and none of the messages that are out was settled since the last look.
"""

import logging
from collections.abc import Iterable

from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.pulling import is_full
from bolide.client.consuming.rules import PullRules
from bolide.model.queue import MessageQueue

log = logging.getLogger(__name__)


class Standstill:
    """Of one member; looked at every few seconds."""

    def __init__(self, group: str, rules: PullRules, *, is_ordered: bool) -> None:
        self._group = group
        self._rules = rules
        self._is_ordered = is_ordered
        self._before: dict[MessageQueue, tuple[int, int]] = {}
        self._is_told = False

    def look(self, owned: Iterable[InFlight], *, is_asked: bool) -> None:
        """`is_asked` tells that somebody wants messages and gets none."""
        stuck = [inflight for inflight in owned if is_asked and self._is_stuck(inflight)]
        now = {inflight.queue: (inflight.commit_offset, len(inflight)) for inflight in stuck}
        before, self._before = self._before, now
        if not any(before.get(queue) == state for queue, state in now.items()):
            self._is_told = self._is_told and bool(now)
            return
        if not self._is_told:
            self._is_told = True
            log.warning(
                "group=%s stands still: %d messages were given out and have no verdict, so %d queues give no more. "
                "Call ack() or nack() on each message, or commit() of the consumer when all of them are done",
                self._group,
                sum(inflight.undecided_count for inflight in stuck),
                len(stuck),
            )

    def _is_stuck(self, inflight: InFlight) -> bool:
        if inflight.is_dropped or inflight.is_paused or not inflight.is_locked or not inflight.undecided_count:
            return False
        return self._is_ordered or (not inflight.waiting_count and is_full(inflight, self._rules))
