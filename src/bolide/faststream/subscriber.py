"""A handler's member of a consumer group: takes messages one by one, this many at a time, and has it called.

FastStream's policy says what becomes of a message, and that is a verdict: acknowledged, delivered again, a dead letter.
One without a verdict (`AckPolicy.MANUAL`, a worker that died) is not done: the next member of its queue gets it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from bolide.client.consuming.consumer import Consumer
from bolide.client.consuming.received import Received
from bolide.client.consuming.subscriptions import Expression
from bolide.client.options import ConsumerOptions
from bolide.faststream.messages import BolideMessage, decode, parse
from bolide.faststream.publisher import Answer


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber was declared with."""

    topics: tuple[str, ...]
    group: str
    expression: Expression
    max_workers: int
    options: ConsumerOptions

    @property
    def ack_policy(self) -> AckPolicy:
        """Its own, or the broker's, or: what fails comes again, which ends among the dead letters."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class SubscriberDescription(SubscriberSpecificationConfig):
    """What the document of an application says of a subscriber."""

    topics: tuple[str, ...]


class BolideSubscriberSpecification(SubscriberSpecification):
    """A subscriber in AsyncAPI: one channel for each topic."""

    @property
    def channel_labels(self) -> list[str]:
        return [f"{self._outer_config.prefix}{topic}" for topic in self.config.topics]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        labels = self.channel_labels
        found = {}
        for topic in labels:
            name = self._channel_key(topic, split=len(labels) > 1)
            operation = Operation(message=Message(title=f"{name}:Message", payload=payload), bindings=None)
            described = self.description
            found[name] = SubscriberSpec(address=topic, description=described, operation=operation, bindings=None)
        return found


class BolideSubscriber(TasksMixin, SubscriberUsecase):
    """One group's member for one or several topics."""

    tasks: list[asyncio.Task[Any]]

    def __init__(
        self, config: SubscriberConfig, specification: BolideSubscriberSpecification, calls: CallsCollection
    ) -> None:
        config.parser, config.decoder = parse, decode
        super().__init__(config, specification, calls)
        self.group = config.group
        self._topics = config.topics
        self._expression = config.expression
        self._max_workers = config.max_workers
        self._options = config.options
        self._consumer: Consumer | None = None

    @property
    def topics(self) -> list[str]:
        return [f"{self._outer_config.prefix}{topic}" for topic in self._topics]

    @property
    def wish(self) -> tuple[object, ...]:
        """What every member of its group must want alike."""
        return (frozenset(self.topics), self._expression)

    async def start(self) -> None:
        """Join the group, and take what comes."""
        await super().start()
        outer = self._outer_config
        expressions = dict.fromkeys(self.topics, self._expression)
        self._consumer = Consumer(self.group, expressions, outer.namesrv, **{**outer.options, **self._options})
        await self._consumer.start()
        self._post_start()
        if self.calls:
            for _ in range(self._max_workers):
                self.add_task(self._work)

    async def stop(self) -> None:
        """Let handlers finish for as long as the broker may wait, then leave the group: the rest is for others."""
        await SubscriberUsecase.stop(self)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
        workers, self.tasks = self.tasks, []  # one that is not in this list is not started again when it ends
        for worker in workers:
            if worker is not asyncio.current_task():  # a handler may stop its own subscriber
                worker.cancel()

    async def _work(self) -> None:
        while self.running and (received := await self._open().receive(1)):
            await self.consume(received[0])

    async def get_one(self, *, timeout: float = 5.0) -> BolideMessage | None:
        """The next message, for a subscriber without a handler; its verdict is the caller's."""
        assert not self.calls, "messages of a subscriber with a handler are the handler's"
        received = await self._open().receive(1, timeout_s=timeout)
        return await self._parsed(received[0]) if received else None

    async def __aiter__(self) -> AsyncIterator[BolideMessage]:
        assert not self.calls, "messages of a subscriber with a handler are the handler's"
        while received := await self._open().receive(1):
            yield await self._parsed(received[0])

    async def _parsed(self, raw: Received) -> BolideMessage:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        middlewares = (each(raw, context=context) for each in self._broker_middlewares)
        message: BolideMessage = await process_msg(msg=raw, middlewares=middlewares, parser=parser, decoder=decoder)
        return message

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise IncorrectState(f"the subscriber of {', '.join(self.topics)} is not started")
        return self._consumer

    def _make_response_publisher(self, message: BolideMessage) -> Iterable[Answer]:
        return (Answer(self._outer_config.producer, message),)

    def get_log_context(self, message: Any) -> dict[str, str]:
        return log_context(message, ",".join(self.topics), self.group)


def log_context(message: Any = None, topic: str = "", group: str = "") -> dict[str, str]:
    """What a line of the log says beside its text."""
    return {"topic": topic, "group": group, "message_id": getattr(message, "message_id", "")}
