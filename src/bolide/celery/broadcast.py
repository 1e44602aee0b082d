"""Exchanges that everybody hears: one topic with one queue, which each listener reads by itself, from where it began.

No group is joined and no offset kept. A listener that is away misses what is said meanwhile, as with any such exchange.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from bolide.admin.admin import Admin
from bolide.celery.place import Place
from bolide.client.config import client_config
from bolide.client.instance import Instance, open_instance
from bolide.client.life import Opened
from bolide.client.pulling.puller import PullConsumer
from bolide.clock import SystemClock
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue

_WAIT_S = 15.0
_PAUSE_S = 0.5
_COUNT_MAX = 32
log = logging.getLogger(__name__)

Offsets = dict[MessageQueue, int]


class Listener(Opened):
    """Reads the topics of exchanges for one connection of kombu's."""

    def __init__(self, place: Place, admin: Admin, name: str) -> None:
        options = place.options()
        self._config = client_config(place.namesrv, instance_name=name, **options)
        self._puller = PullConsumer(place.group, place.namesrv, instance_name=name, **options)
        self._admin = admin
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None
        self._reading: dict[str, list[asyncio.Task[None]]] = {}

    async def start(self) -> None:
        self._instance = await self._stack.enter_async_context(open_instance(self._config, SystemClock()))
        await self._stack.enter_async_context(self._puller)

    async def close(self) -> None:
        for name in list(self._reading):
            await self.leave(name)
        await self._stack.aclose()

    async def now(self, topic: str) -> Offsets:
        """Where a listener that comes now begins; a topic that is not there is made."""
        if not await self._admin.topic_shapes(topic):
            await self._admin.create_topic(topic, 1)
        return {queue: await self._puller.max_offset(queue) for queue in await self._puller.queues(topic)}

    async def backlog(self, topic: str) -> int:
        """How many messages of a topic the group was not given yet."""
        count = 0
        for queue in await self._puller.queues(topic):
            begun = await self._puller.committed(queue)
            if begun is None:
                begun = await self._puller.min_offset(queue)
            count += await self._puller.max_offset(queue) - begun
        return count

    async def listen(self, name: str, begins: Offsets, hear: Callable[[StoredMessage], None]) -> None:
        """Read on from there, until `leave`."""
        assert self._instance is not None, "it was started"
        tasks = self._reading.setdefault(name, [])
        for queue, offset in begins.items():
            reading = self._read(queue, offset, hear)
            tasks.append(self._instance.errands.start(reading, name=f"celery.listen.{queue.topic}"))

    async def leave(self, name: str) -> None:
        for task in self._reading.pop(name, ()):
            task.cancel()

    async def _read(self, queue: MessageQueue, offset: int, hear: Callable[[StoredMessage], None]) -> None:
        is_away = False
        while True:
            try:
                pulled = await self._puller.pull(queue, offset, _COUNT_MAX, wait_s=_WAIT_S)
            except BolideError as problem:
                if not is_away:
                    log.warning("not heard for a while topic=%s: %s", queue.topic, problem)
                is_away = True
                await asyncio.sleep(_PAUSE_S)
                continue
            is_away = False
            offset = pulled.next_offset
            for message in pulled.messages:
                hear(message.stored)
