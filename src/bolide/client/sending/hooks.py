"""Hooks of the user: told of each send and each consumption; what one raises is logged and goes no further."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from bolide.client.sending.receipt import Receipt
from bolide.errors import BolideError
from bolide.model.message import Message
from bolide.model.queue import MessageQueue

log = logging.getLogger(__name__)


class SendHook(Protocol):
    """Sees each attempt to send a message (of a batch, the first message)."""

    def before_send(self, message: Message, queue: MessageQueue) -> None:
        """It is about to go to this queue."""

    def after_send(
        self, message: Message, queue: MessageQueue, receipt: Receipt | None, problem: BolideError | None
    ) -> None:
        """It is stored, and there is a receipt; or it is not known to be, and there is a problem."""


class SendHooks:
    """All hooks of a producer."""

    def __init__(self, hooks: Iterable[SendHook]) -> None:
        self._hooks = list(hooks)

    def before(self, message: Message, queue: MessageQueue) -> None:
        if self._hooks:
            tell(partial(hook.before_send, message, queue) for hook in self._hooks)

    def after(
        self, message: Message, queue: MessageQueue, receipt: Receipt | None, problem: BolideError | None
    ) -> None:
        if self._hooks:
            tell(partial(hook.after_send, message, queue, receipt, problem) for hook in self._hooks)


def tell(calls: Iterable[Callable[[], None]]) -> None:
    """Call them all, whatever one does."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("a hook failed")
