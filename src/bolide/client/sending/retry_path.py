"""What gathering asks of the producer when a message cannot take the short way."""

from collections.abc import Sequence
from typing import Protocol

from bolide.client.routes import Route
from bolide.client.sending.receipt import Receipt
from bolide.errors import ClientError
from bolide.model.message import Message
from bolide.model.queue import MessageQueue


class RetryPath(Protocol):
    """Who sends any message: the producer."""

    def choose(self, route: Route, shard: str | None, last_broker: str | None) -> MessageQueue: ...

    def is_tried_again(self, failure: ClientError, *, is_bound: bool) -> bool: ...

    async def send_prepared(
        self,
        message: Message,
        *,
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None = None,
    ) -> Receipt: ...

    async def send_together(
        self,
        prepared: Sequence[Message],
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None = None,
    ) -> list[Receipt]: ...
