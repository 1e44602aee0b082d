"""How a loop over a consumer was left: its message is done if the code went on from it, and comes again if it did not.

`for message in consumer` says nothing when it ends early, be it by `break` or by an exception; it only lets go of its
iterator. So each loop has an iterator of its own that owns the message it gave out last. The next step acknowledges
that message. When the iterator is let go of, the frame of the loop is looked at: at a `break` or a `return` it stands
on an instruction that does nothing but drop a value, at an exception on the one that raised. An instruction that can
raise tells nothing: a loop inside that fails stands on the same one as a loop that ends. Where nobody can tell (another
interpreter, a slice or another wrapper, an iterator that was kept somewhere else) the message counts as not done, for
then it comes once more and is not lost.
"""

import opcode
import sys

from bolide.client.consuming.hand import Hand
from bolide.client.consuming.received import Received

_DROPPING = ("POP_TOP", "POP_ITER")
_CALM = frozenset(opcode.opmap[name] for name in _DROPPING if name in opcode.opmap)
_frame = getattr(sys, "_getframe", None)


class Loop:
    """One loop; the iterators of both faces are made of it, in their consumer's `__iter__` or `__aiter__`."""

    __slots__ = ("__weakref__", "_frame_id", "_hand", "current", "owner")

    def __init__(self, hand: Hand, owner: object) -> None:
        """`owner` is the thread or the task that goes through the loop."""
        self._hand = hand
        self.owner = owner
        self.current: Received | None = None
        hand.begin(self)
        # The frame of the loop: above it stand the consumer's, the iterator's and this function.
        self._frame_id = 0 if _frame is None else id(_frame(3))

    def __del__(self) -> None:
        if self.current is not None:
            self._put_down(is_done=self._is_left_calmly())

    def _is_left_calmly(self) -> bool:
        """Asked while the iterator is let go of: the frame two calls up is the one that does it."""
        if _frame is None:
            return False
        frame = _frame(2)
        return id(frame) == self._frame_id and frame.f_code.co_code[frame.f_lasti] in _CALM

    def _enter_again(self) -> None:
        """A loop over an iterator that somebody kept: how the loop before was left is not known."""
        self._put_down(is_done=False)
        self._hand.settle()

    def _put_down(self, *, is_done: bool) -> None:
        message, self.current = self.current, None
        if message is not None and message.verdict is None:
            self._hand.put_down(message, is_done=is_done)
