"""A message as FastStream's handlers see it, and one that is to be sent: headers are properties of the message."""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from faststream.exceptions import HandlerException
from faststream.message import StreamMessage, decode_message
from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response

from bolide.client.consuming.received import Received
from bolide.client.options import When
from bolide.model import properties as names
from bolide.model.message import Message

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
REPLY_TO = "reply_to"
_OURS = frozenset((CONTENT_TYPE, CORRELATION_ID, REPLY_TO))
# A requester is found by its connection and not by a topic; FastStream wants to see some address.
_REQUESTER = "requester"


class BolideMessage(StreamMessage):
    """A message that was delivered, or the reply to a request, which needs no verdict. The first verdict counts."""

    async def ack(self) -> None:
        """Done; it does not come again."""
        if received := self._open():
            received.ack()
        await super().ack()

    async def nack(self, delay: float | timedelta | None = None, reason: str | None = None) -> None:
        """Not done: it comes again, after `delay` seconds or by the plan of its group."""
        if received := self._open():
            received.nack(delay, reason or _raised())
        await super().nack()

    async def reject(self, reason: str | None = None) -> None:
        """It cannot be done, and becomes a dead letter of its group."""
        if received := self._open():
            received.dead_letter(reason or _raised())
        await super().reject()

    def _open(self) -> Received | None:
        raw = self.raw_message
        return raw if isinstance(raw, Received) and raw.verdict is None else None


def _raised() -> str | None:
    """What the handler raised, where that is why we are called: people find it beside the dead letter."""
    problem = sys.exception()
    return None if problem is None or isinstance(problem, HandlerException) else f"{type(problem).__name__}: {problem}"


async def parse(raw: Received | Message) -> BolideMessage:
    """What a consumer was given, or a producer that asked."""
    properties = raw.properties
    if isinstance(raw, Received):
        message_id, is_request = raw.msg_id, raw.is_request
    else:
        message_id, is_request = raw.unique_id or "", False
    return BolideMessage(
        raw_message=raw,
        body=raw.body,
        headers={
            name: text for name, text in properties.items() if name not in _OURS and name not in names.RESERVED_NAMES
        },
        reply_to=_REQUESTER if is_request else properties.get(REPLY_TO, ""),
        content_type=properties.get(CONTENT_TYPE),
        correlation_id=properties.get(CORRELATION_ID),
        message_id=message_id,
    )


async def decode(message: StreamMessage) -> Any:
    """The body by its content type: JSON, text, or bytes."""
    return decode_message(message)


class BolidePublishCommand(BatchPublishCommand):
    """A message, or several of one topic, on the way through the middlewares to the producer."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str = "",
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        timeout_s: float | None = None,
        when: When | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            headers=dict(headers or {}),
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.tags = tags
        self.keys = keys
        self.shard = shard
        self.timeout_s = timeout_s
        self.when: When = when or {}
        self.answers: Received | None = None  # the request that this is the reply to

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "BolidePublishCommand":
        """What a handler returned, which may be anything; a list is several messages for a batch."""
        if isinstance(cmd, BolidePublishCommand):
            return cmd
        body, extra = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *extra,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def properties(self, content_type: str | None) -> dict[str, str]:
        """What goes with the body; RocketMQ keeps no property without a value."""
        own = {CONTENT_TYPE: content_type, CORRELATION_ID: self.correlation_id, REPLY_TO: self.reply_to}
        headers = {name: str(value) for name, value in self.headers.items()}
        return {name: text for name, text in own.items() if text} | headers


class BolideResponse(Response):
    """What a handler may return to say more than a body of what is published."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self._tags = tags
        self._keys = keys
        self._shard = shard
        self._when = when_of(delay, deliver_at)

    def as_publish_command(self) -> BolidePublishCommand:
        return BolidePublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            tags=self._tags,
            keys=self._keys,
            shard=self._shard,
            when=self._when,
            _publish_type=PublishType.PUBLISH,
        )


def when_of(delay: float | timedelta | None, deliver_at: float | datetime | None) -> When:
    """What was said of the time of delivery; whether it makes sense is the producer's to tell."""
    when: When = {}
    if delay is not None:
        when["delay"] = delay
    if deliver_at is not None:
        when["deliver_at"] = deliver_at
    return when
