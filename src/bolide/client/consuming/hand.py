"""Messages between a consumer and its user: taken ahead, given out to be settled by hand, and put down by a loop.

The rule: a message is acknowledged when the code that was given it went on from it, or said so; never because somebody
asked for the next. What iterates asks for many at once and gives them out one by one; whoever asks in another way
(`receive`, `next`) gets what was taken ahead first, so each queue's order is kept and nothing lies unseen.

Any thread may put a message down, since that happens wherever an iterator is let go of; the rest is one thread's.
"""

from collections import deque
from collections.abc import Iterable

from bolide.client.consuming.received import Received, Verdict

_LEFT = "the loop was left while it was being worked on"
_GIVEN_KEPT_MIN = 1024


class Hand:
    """Those of one consumer."""

    def __init__(self) -> None:
        self.ahead: deque[Received] = deque()
        self._given: list[Received] = []
        self._given_kept_max = _GIVEN_KEPT_MIN
        self._is_each_acked = False  # the user acknowledges message by message
        self._put_down: deque[tuple[Received, bool]] = deque()

    def give(self, messages: Iterable[Received]) -> None:
        """They are with the user, who will settle each of them, or all with `commit`."""
        given = self._given
        given.extend(messages)
        if len(given) > self._given_kept_max:  # those that got a verdict of their own need not be kept in mind
            self._note_acks()
            self._given = [message for message in given if _is_open(message)]
            self._given_kept_max = max(2 * len(self._given), _GIVEN_KEPT_MIN)

    def ack_given(self) -> None:
        """The user is done with all that were given out; but who acknowledges one by one left some out on purpose."""
        self._note_acks()
        if self._is_each_acked:
            return
        given, self._given = self._given, []
        for message in given:
            if _is_open(message):
                message.ack()

    def _note_acks(self) -> None:
        self._is_each_acked = self._is_each_acked or any(message.verdict is Verdict.ACK for message in self._given)

    def put_down(self, message: Received, *, is_done: bool) -> None:
        """A loop ended with it; any thread may call this."""
        self._put_down.append((message, is_done))

    def settle(self) -> None:
        """Acknowledge what loops were done with; have the rest delivered again."""
        while self._put_down:
            message, is_done = self._put_down.popleft()
            if message.verdict is None:
                if is_done:
                    message.ack()
                else:
                    message.nack(reason=_LEFT)

    def settle_done(self) -> None:
        """The same at the end: what is not done stays unsettled, and whoever has its queue next begins with it."""
        while self._put_down:
            message, is_done = self._put_down.popleft()
            if is_done and message.verdict is None:
                message.ack()

    def of_queue(self, message: Received) -> list[Received]:
        """Take out a message's queue: it, and all that lie behind it, in order."""
        home = message.home
        taken = [message, *(other for other in self.ahead if other.home is home)]
        others = [other for other in self.ahead if other.home is not home]
        self.ahead.clear()
        self.ahead.extend(others)
        return taken


def _is_open(message: Received) -> bool:
    return message.verdict is None and not message.home.is_dropped
