"""The pull consumer for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from typing import Unpack

from bolide.client.blocking.loop import Blocking, forward
from bolide.client.options import PullConsumerOptions
from bolide.client.pulling import puller


class PullConsumer(Blocking[puller.PullConsumer]):
    """Reads queues wherever the application wants to. Threads may share it."""

    def __init__(self, group: str, namesrv: str | None = None, **options: Unpack[PullConsumerOptions]) -> None:
        """`group` is the name under which offsets may be kept. Without `namesrv` NAMESRV_ADDR is used.

        The options are those of `PullConsumerOptions`; `help(bolide.aio.PullConsumer)` shows the defaults.
        """
        super().__init__(puller.PullConsumer(group, namesrv, **options))
        self.group = group

    queues = forward(puller.PullConsumer.queues)
    min_offset = forward(puller.PullConsumer.min_offset)
    max_offset = forward(puller.PullConsumer.max_offset)
    offset_at = forward(puller.PullConsumer.offset_at)
    committed = forward(puller.PullConsumer.committed)
    commit = forward(puller.PullConsumer.commit)
    pull = forward(puller.PullConsumer.pull)
