"""A broker of Taskiq: one topic, one group, and a popper that gives each task to one worker.

A task is acknowledged when Taskiq acknowledges it, which by default is after its result was saved. Until then the
broker hides it from others for `visibility_s`, renewed while the worker lives; what a dead one held comes to others.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Unpack

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from bolide.client.options import ClientOptions
from bolide.client.popping.popped import Popped
from bolide.client.popping.popper import Popper
from bolide.client.sending.producer import Producer
from bolide.errors import ClientError
from bolide.model.message import KEY_SEPARATOR

_LIMIT = 100
_DELAY = "delay"


class BolideBroker(AsyncBroker):
    """Sends tasks to a topic, and takes them from it in workers."""

    def __init__(
        self,
        namesrv: str | None = None,
        topic: str = "taskiq",
        group: str = "taskiq-workers",
        *,
        visibility_s: float = 60.0,
        limit: int = _LIMIT,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Without `namesrv` NAMESRV_ADDR is used. `limit` is how many tasks one worker holds at a time."""
        super().__init__()
        self.topic = topic
        self._arrived: asyncio.Queue[Popped] = asyncio.Queue(limit)
        self._producer = Producer("taskiq-producers", namesrv, **options)
        self._popper = Popper(
            group, self._arrived.put_nowait, namesrv, limit=limit, invisible_s=visibility_s, **options
        )

    async def startup(self) -> None:
        """Open what this process needs: a worker takes tasks and may send more."""
        await self._producer.start()
        if self.is_worker_process:
            await self._popper.start()
            self._popper.subscribe(self.topic)
        await super().startup()

    async def shutdown(self) -> None:
        """Give back what was not begun, and leave."""
        await super().shutdown()
        await self._popper.close()
        await self._producer.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. Its id is a key, its name a tag; the label `delay` (seconds) has it wait at the broker."""
        if message.labels.get("priority") not in (None, 0, "0"):
            raise ClientError(
                "a task with a priority was sent, and a topic has no priorities: give urgent tasks a broker with a "
                "topic of its own"
            )
        keys = [message.task_id] if KEY_SEPARATOR not in message.task_id else []
        tags = message.task_name if "|" not in message.task_name else None
        delay = message.labels.get(_DELAY)
        if delay is None:
            await self._producer.send(self.topic, message.message, keys=keys, tags=tags)
        else:
            await self._producer.send(self.topic, message.message, keys=keys, tags=tags, delay=float(delay))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks, as they come."""
        while True:
            popped = await self._arrived.get()
            yield AckableMessage(data=popped.message.body, ack=lambda popped=popped: self._popper.ack(popped))
