"""The way of messages that must lie in their queue and could not be sent at once: one after the other, in their order.

While a queue has a detour everything for it goes there, so nothing overtakes; the detour ends when all of it is sent.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol

from bolide.client.sending.receipt import Receipt
from bolide.client.sending.shipment import Shipment
from bolide.model.queue import MessageQueue
from bolide.remoting.isolated_tasks import IsolatedTasks

Sending = Coroutine[Any, Any, list[Receipt]]


class Sender(Protocol):
    """What sends them, and settles their futures: a pipeline."""

    def send_again(self, shipment: Shipment, deadline_s: float) -> Sending: ...

    async def finish(self, futures: Sequence[asyncio.Future[Receipt]], sending: Sending, weight: int) -> None: ...

    def drop(self, futures: Sequence[asyncio.Future[Receipt]], weight: int) -> None: ...


class Again:
    """Messages that could not be sent at once: one, or a batch. With a queue they must lie there."""

    def __init__(
        self, sender: Sender, shipment: Shipment, futures: Sequence[asyncio.Future[Receipt]], deadline_s: float
    ) -> None:
        self._sender = sender
        self._shipment = shipment
        self._futures = futures
        self._deadline_s = deadline_s

    async def go(self) -> None:
        """Send them now; what becomes of them their futures tell."""
        sending = self._sender.send_again(self._shipment, self._deadline_s)
        await self._sender.finish(self._futures, sending, len(self._futures))

    def give_up(self) -> None:
        """Nobody will send them."""
        self._sender.drop(self._futures, len(self._futures))


class Detours:
    """Those of one producer, by queue."""

    def __init__(self, guests: IsolatedTasks) -> None:
        self._guests = guests
        self._steps: dict[MessageQueue, deque[Again]] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    def isdisjoint(self, queues: Iterable[MessageQueue]) -> bool:
        return self._steps.keys().isdisjoint(queues)

    def add(self, queue: MessageQueue, step: Again) -> None:
        """Send this after all that wait for the queue."""
        steps = self._steps.get(queue)
        if steps is None:
            steps = self._steps[queue] = deque()
            self._guests.start(self._walk(queue, steps), name="producer.detour")
        steps.append(step)

    async def _walk(self, queue: MessageQueue, steps: deque[Again]) -> None:
        try:
            while steps:
                await steps.popleft().go()
        finally:
            del self._steps[queue]
            for step in steps:  # the producer was closed
                step.give_up()
