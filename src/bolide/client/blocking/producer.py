"""`bolide.Producer`, for callers without a loop; every method does what its namesake in `bolide.aio` does.

What waits runs in the process's background loop. A send is first tried on a connection that the calling thread writes
and reads itself (`direct.py`), and only its retries go through the loop.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Unpack

from bolide.client.blocking.direct import DirectSends
from bolide.client.blocking.loop import Blocking, forward, keep_of_parent
from bolide.client.blocking.submissions import Submissions
from bolide.client.careless import WRONG, explained
from bolide.client.options import ProducerOptions, SubmitOptions, When
from bolide.client.sending import producer as asynchronous_producer
from bolide.client.sending.delays import timed
from bolide.client.sending.parts import Given, Parts
from bolide.client.sending.receipt import Receipt
from bolide.client.serializers import NOTHING, body_of
from bolide.clock import Clock, SystemClock
from bolide.model.message import Message
from bolide.model.queue import MessageQueue

_fork_lock = threading.RLock()


class Producer(Blocking[asynchronous_producer.Producer]):
    """A member of a producer group. Threads may share it."""

    def __init__(self, group: str, namesrv: str | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used; options are those of `ProducerOptions`.

        `timeout_s` covers all attempts of one send. With `linger_ms` messages of a topic that were submitted wait so
        long for each other and leave as one batch. `trace` tells of every message in RocketMQ's trace topic, or in the
        one that is named. `help(bolide.aio.Producer)` shows the defaults.
        """
        self._make: Callable[[], asynchronous_producer.Producer]
        self._make = partial(asynchronous_producer.Producer, group, namesrv, **options)
        self._stand_before(self._make(), options.get("clock"))

    def _stand_before(self, core: asynchronous_producer.Producer, clock: Clock | None) -> None:
        super().__init__(core)
        self.group = core.group
        self._clock = clock or SystemClock()
        self._is_open = False
        self._direct = DirectSends(core, self._background, self._clock)
        self._submissions = Submissions(self._background, core)

    def start(self) -> None:
        """Open it; `with` does it."""
        self._follow_fork()
        super().start()
        self._is_open = True

    def close(self) -> None:
        """Leave the group. Messages under way get their answer first, within the time limit of a send.

        In a fork of the process that opened it: nothing, unless it was used there.
        """
        if not self._background.is_of_parent:
            self._submissions.close()
            self._direct.close()
            super().close()
        self._is_open = False

    def _follow_fork(self) -> None:
        """A worker that was forked has a producer of its own: other connections, other ids, nothing under way."""
        if self._background.is_of_parent:
            with _fork_lock:
                if self._background.is_of_parent:
                    keep_of_parent(self._core, self._direct, self._submissions)
                    was_open = self._is_open
                    self._stand_before(self._make(), self._clock)
                    if was_open:
                        self.start()

    def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        json: Any = NOTHING,
        value: Any = NOTHING,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        waits_for_store: bool | None = None,
        timeout_s: float | None = None,
        **when: Unpack[When],
    ) -> Receipt:
        """Send one message and wait until a broker has stored it.

        Messages of one `shard` go to one queue, where they keep their order if one thread sends them. With `delay`,
        `deliver_at` or `delay_level` it is stored now and delivered then. In place of a body of bytes `json` takes
        anything that JSON can say, and `value` what the producer's serializer can.
        """
        if json is not NOTHING or value is not NOTHING:
            body = body_of(body, json, value, self._core.serializer)
        parts: Given = (topic, body, tags, keys, properties, flag, waits_for_store)
        self._follow_fork()
        try:
            if when:
                parts = timed(when, Parts(*parts))
            return self._direct.send(self._core.pipeline, parts, shard, queue, timeout_s)
        except WRONG as problem:
            raise explained(problem, parts, shard, queue, timeout_s) from None

    def submit(self, topic: str | Message, body: bytes = b"", **options: Unpack[SubmitOptions]) -> Future[Receipt]:
        """Hand a message over and go on; waits only while too many are under way. Takes what `SubmitOptions` names.

        The future has the receipt or the problem, and its callbacks run in another thread. Messages of one `shard` that
        one thread submits keep their order. `flush` waits for all of them.
        """
        self._follow_fork()
        return self._submissions.add(self._core.submit(topic, body, **options))

    def flush(self) -> None:
        """Wait until every message that was submitted has its answer; what waits for company leaves now."""
        self._follow_fork()
        self._background.run(self._submissions.flush())

    send_oneway = forward(asynchronous_producer.Producer.send_oneway)
    send_batch = forward(asynchronous_producer.Producer.send_batch)
    request = forward(asynchronous_producer.Producer.request)
    recall = forward(asynchronous_producer.Producer.recall)
    queues = forward(asynchronous_producer.Producer.queues)
