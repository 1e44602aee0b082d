"""Messages between a consumer and its user: taken ahead, given out to be settled by hand, and put down by a loop.

The rule: a message is acknowledged when the code that was given it went on from it, or said so; never because somebody
asked for the next. What iterates asks for many at once and gives them out one by one; anyone who asks in another way
(`receive`, `next`) gets what was taken ahead first, so each queue's order is kept and nothing lies unseen.

Any thread may put a message down, since that happens wherever an iterator is let go of. The subscriber's thread takes
out messages that nobody has yet when their queue goes to another member, so the user's thread takes a message first and
looks at it then. The rest is the user's thread's.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol
from weakref import ref

from bolide.client.consuming.received import Home, Received, Verdict

_LEFT = "the loop was left while it was being worked on"
_GIVEN_KEPT_MIN = 1024


class Holder(Protocol):
    """A loop, as far as a hand knows it: whose it is, and the message it is at."""

    owner: object
    current: Received | None


class Hand:
    """Those of one consumer."""

    def __init__(self) -> None:
        self._loop: ref[Holder] | None = None
        self._closed_by: object = None
        self.ahead: deque[Received] = deque()
        self._given: list[Received] = []
        self._given_kept_max = _GIVEN_KEPT_MIN
        self._is_each_acked = False  # the user acknowledges message by message
        self._put_down: deque[tuple[Received, bool]] = deque()

    def pop(self) -> Received | None:
        """The next of those that were taken ahead."""
        try:
            return self.ahead.popleft()
        except IndexError:
            return None

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
        """The same at the end: what is not done stays unsettled, and anyone who has its queue next begins with it."""
        while self._put_down:
            message, is_done = self._put_down.popleft()
            if is_done and message.verdict is None:
                message.ack()

    def begin(self, loop: Holder) -> None:
        """A loop begins; one is at work at a time."""
        self._loop = ref(loop)

    def close(self, owner: object) -> None:
        """The consumer is closed, by this thread or task. It is done with all that it has; a loop elsewhere is not."""
        self._closed_by = owner

    def let_go(self, home: Home) -> list[Received]:
        """Take out the messages of a queue that no code of the user's works on; the subscriber's thread calls this."""
        found = []
        for message in list(self.ahead):
            if message.home is home:
                try:
                    self.ahead.remove(message)
                except ValueError:
                    continue  # the user's thread was faster
                found.append(message)
        return found + self._left_behind(home) if self._closed_by is not None else found

    def _left_behind(self, home: Home) -> list[Received]:
        """Anyone who closes a consumer has no more use for what it gave him."""
        left = [*self._given, *(message for message, _ in list(self._put_down))]
        loop = self._loop() if self._loop is not None else None
        if loop is not None and loop.current is not None and loop.owner == self._closed_by:
            left.append(loop.current)
        return [message for message in left if message.home is home and message.verdict is None]

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
