"""The pull consumer for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from typing import Unpack

from bolide.client.blocking.loop import Blocking
from bolide.client.consuming.subscriptions import EVERYTHING, Expression
from bolide.client.options import PullConsumerOptions
from bolide.client.pulling import puller
from bolide.client.pulling.puller import Pulled
from bolide.model.queue import MessageQueue


class PullConsumer(Blocking[puller.PullConsumer]):
    """Reads queues wherever the application wants to. Threads may share it."""

    def __init__(self, group: str, namesrv: str | None = None, **options: Unpack[PullConsumerOptions]) -> None:
        """`group` is the name under which offsets may be kept. Without `namesrv` NAMESRV_ADDR is used.

        The options are those of `PullConsumerOptions`; `help(bolide.aio.PullConsumer)` shows the defaults.
        """
        super().__init__(puller.PullConsumer(group, namesrv, **options))
        self.group = group

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return self._background.run(self._core.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset a queue still has."""
        return self._background.run(self._core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return self._background.run(self._core.max_offset(queue))

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at a time (ms of the epoch) or later."""
        return self._background.run(self._core.offset_at(queue, time_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """What was kept with `commit`, None if nothing was."""
        return self._background.run(self._core.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Keep an offset at the broker, under the group's name."""
        self._background.run(self._core.commit(queue, offset))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count_max: int = 32,
        expression: Expression = EVERYTHING,
        wait_s: float = 0.0,
    ) -> Pulled:
        """Messages of a queue from an offset on; with `wait_s` the broker waits so long for one to come."""
        return self._background.run(self._core.pull(queue, offset, count_max, expression, wait_s))
