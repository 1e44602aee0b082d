"""The other end of a connection of kombu's: a producer, an administrator and a listener, opened when first needed.

All of it belongs to the process that opened it. Celery's pool forks: a child has connections of its own, and what it
inherited it neither uses nor closes.
"""

import os
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, TypeVar

from bolide.admin.admin import Admin
from bolide.celery.broadcast import Listener
from bolide.celery.place import Place
from bolide.client.blocking.loop import background_loop, keep_of_parent
from bolide.client.blocking.producer import Producer
from bolide.client.config import client_config
from bolide.client.instance import open_instance
from bolide.client.popping.popped import COUNT_MAX, PopRequests
from bolide.clock import SystemClock
from bolide.errors import ClientError, ConnectError
from bolide.model.message import KEY_SEPARATOR
from bolide.protocol.codes import ResponseCode

T = TypeVar("T")
_PRODUCER_GROUP = "celery-producers"
_SOON_S = 1.0
_PURGE_INVISIBLE_S = 30.0
_TIMER_REFUSED = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)


class Line:
    """To one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.process_id = os.getpid()
        self._clock = SystemClock()
        self._background = background_loop()
        self._stack = AsyncExitStack()
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._listener: Listener | None = None
        self._known_topics: set[str] = set()
        self._calls: deque[Callable[[], object]] = deque()  # on their way to the loop
        self._is_crossing = False

    @property
    def is_of_parent(self) -> bool:
        return self.process_id != os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for something that happens in the loop."""
        return self._background.run(coroutine)

    def in_loop(self, call: Callable[[], object]) -> None:
        """Have something done there, and wait for nothing. Many calls cross together: each crossing wakes a thread."""
        self._calls.append(call)
        if not self._is_crossing:
            self._is_crossing = True
            self._background.loop.call_soon_threadsafe(self._cross)

    def _cross(self) -> None:
        """In the loop. The mark goes first: what is added from here on is seen below, or crosses by itself."""
        self._is_crossing = False
        while self._calls:
            self._background.loop.call_soon(self._calls.popleft())

    def close(self) -> None:
        if self.is_of_parent:
            keep_of_parent(self)
            return
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
        self.run(self._stack.aclose())

    # Asking

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            admin = Admin(self.place.namesrv, **self.place.options())
            self.run(self._stack.enter_async_context(admin))
            self._admin = admin
        return self._admin

    @property
    def listener(self) -> Listener:
        if self._listener is None:
            listener = Listener(self.place, self.admin, f"celery-{os.getpid()}-{uuid.uuid4().hex[:8]}")
            self.run(self._stack.enter_async_context(listener))
            self._listener = listener
        return self._listener

    def check(self) -> None:
        """Raise if nobody is there, or nobody takes us."""
        if not self.run(self.admin.brokers()):
            raise ConnectError(f"no broker is registered at {self.place.namesrv}; `bolide cluster` shows who runs")

    def ensure_topic(self, topic: str) -> None:
        """Make it, unless it is there."""
        if topic not in self._known_topics:
            if not self.run(self.admin.topic_shapes(topic)):
                self.run(self.admin.create_topic(topic, self.place.queue_count))
            self._known_topics.add(topic)

    def purge(self, topic: str) -> int:
        """Take and acknowledge what is there; returns how many messages it was."""
        return self.run(self._purge(topic))

    async def _purge(self, topic: str) -> int:
        config = client_config(self.place.namesrv, **self.place.options())
        count = 0
        async with open_instance(config, self._clock) as instance:
            requests = PopRequests(instance, self.place.group, _PURGE_INVISIBLE_S)
            route = await instance.route(topic)
            for name in sorted({queue.broker_name for queue in route.subscribe}):
                while await requests.wait(topic, name, 0):
                    found = await requests.pop(topic, name, COUNT_MAX)
                    for popped in found:
                        await requests.ack(popped)
                    count += len(found)
        return count

    # Sending

    def send(self, topic: str, body: bytes, headers: dict[str, Any]) -> None:
        """One task or event. One with an `eta` waits at the broker; its id is a key, by which it is found again."""
        task_id, task = headers.get("id"), headers.get("task")
        keys = [task_id] if isinstance(task_id, str) and task_id and KEY_SEPARATOR not in task_id else []
        tags = task if isinstance(task, str) and task.isprintable() and "|" not in task else None
        producer = self._opened_producer()
        at_s = self._eta_s(headers)
        if at_s is None:
            producer.send(topic, body, keys=keys, tags=tags)
            return
        try:
            producer.send(topic, body, keys=keys, tags=tags, deliver_at=at_s)
        except ClientError as problem:
            if problem.code not in _TIMER_REFUSED:
                raise
            # A broker whose timer is off, or does not reach so far: then the worker waits, as Celery's workers can.
            producer.send(topic, body, keys=keys, tags=tags)

    def _eta_s(self, headers: dict[str, Any]) -> float | None:
        text = headers.get("eta")
        if not isinstance(text, str):
            return None
        try:
            eta = datetime.fromisoformat(text)
        except ValueError:
            return None  # the worker says what it thinks of it
        at_s = eta.replace(tzinfo=eta.tzinfo or UTC).timestamp()
        return at_s if at_s > self._clock.now_ms() / 1000 + _SOON_S else None

    def _opened_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(_PRODUCER_GROUP, self.place.namesrv, **self.place.options())
            producer.start()
            self._producer = producer
        return self._producer
