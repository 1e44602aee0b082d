"""Where a handler's answers go: a topic, or the one who asked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand, PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from bolide.client.consuming.received import Received
from bolide.client.sending.receipt import Receipt
from bolide.faststream.messages import BolideMessage, BolidePublishCommand, when_of


@dataclass(kw_only=True)
class PublisherDescription(PublisherSpecificationConfig):
    """What the document of an application says of a publisher."""

    topic: str


class BolidePublisherSpecification(PublisherSpecification):
    """A publisher in AsyncAPI; the standard has no bindings for RocketMQ."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        operation = Operation(message=message, bindings=None)
        described = self.config.description_
        return {self.name: PublisherSpec(address=self.topic, description=described, operation=operation, bindings=None)}


class BolidePublisher(PublisherUsecase):
    """Sends to one topic; as a decorator, whatever the function returns."""

    def __init__(
        self,
        config: PublisherUsecaseConfig,
        specification: BolidePublisherSpecification,
        *,
        headers: Mapping[str, str] | None,
        tags: str | None,
    ) -> None:
        super().__init__(config, specification)
        self.headers = dict(headers or {})
        self.tags = tags

    @property
    def topic(self) -> str:
        return str(self.specification.topic)

    async def publish(
        self,
        message: Any,
        topic: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
    ) -> Receipt:
        """Send a message to this publisher's topic, or to another."""
        command = BolidePublishCommand(
            message,
            topic=topic or self.topic,
            headers=self.headers | dict(headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            tags=tags or self.tags,
            keys=keys,
            shard=shard,
            when=when_of(delay, deliver_at),
            _publish_type=PublishType.PUBLISH,
        )
        sending = self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=())
        receipt: Receipt = await sending
        return receipt

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        """What a handler returned."""
        command = BolidePublishCommand.from_cmd(cmd)
        command.destination = self.topic
        command.tags = command.tags or self.tags
        command.add_headers(self.headers, override=False)
        producer = self._outer_config.producer
        await self._basic_publish(command, producer=producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,
    ) -> BolideMessage:
        """Send a request to this publisher's topic and wait for the reply."""
        command = BolidePublishCommand(
            message,
            topic=topic or self.topic,
            headers=self.headers | dict(headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            tags=self.tags,
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: BolideMessage = await self._basic_request(command, producer=self._outer_config.producer)
        return reply


class Answer(FakePublisher):
    """Sends what a handler returned to the topic that a message named, or to the one who waits for a reply."""

    def __init__(self, producer: Any, message: BolideMessage) -> None:
        super().__init__(producer=producer)
        self._message = message

    def patch_command(self, cmd: PublishCommand) -> BolidePublishCommand:
        command = BolidePublishCommand.from_cmd(super().patch_command(cmd))
        raw = self._message.raw_message
        if isinstance(raw, Received) and raw.is_request:
            command.answers = raw
        else:
            command.destination = self._message.reply_to
        return command
