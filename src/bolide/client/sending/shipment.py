"""Prepared messages on the general path, and what was said of their way."""

from collections.abc import Sequence
from typing import NamedTuple

from bolide.model.message import Message
from bolide.model.queue import MessageQueue


class Shipment(NamedTuple):
    """Prepared messages that leave together, one or a batch, and what is said of their way."""

    messages: Sequence[Message]
    timeout_s: float
    shard: str | None = None
    queue: MessageQueue | None = None
    last_broker: str | None = None  # one that has failed with it already
    is_batch: bool = False
    is_request: bool = False  # the broker passes a reply on over the connection it came on, so it must know us there

    @property
    def is_bound(self) -> bool:
        """It must lie in one queue."""
        return self.shard is not None or self.queue is not None
