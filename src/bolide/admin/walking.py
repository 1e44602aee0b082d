"""Reading a queue from an offset to its end, as administrators do: nothing is consumed and no offset moves."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from bolide.model.queue import MessageQueue

if TYPE_CHECKING:
    from bolide.client.pulling.puller import PullConsumer
    from bolide.model.message import StoredMessage

LATEST_MS = -1  # the time of what will come next: the end of a queue
TOOLS_GROUP = "TOOLS_CONSUMER"  # in whose name RocketMQ's tools read, too


async def walk_queue(consumer: "PullConsumer", queue: MessageQueue, start: int = 0) -> "AsyncIterator[StoredMessage]":
    """The messages of a queue that are there now, from an offset on."""
    end = await consumer.max_offset(queue)
    offset = max(start, await consumer.min_offset(queue))
    while offset < end:
        pulled = await consumer.pull(queue, offset)
        for received in pulled.messages:
            if received.queue_offset < end:
                yield received.stored
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
