"""`@broker.subscriber` and `@broker.publisher`, of brokers and of routers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from faststream._internal.broker.registrator import Registrator
from faststream._internal.configs import BrokerConfig, PublisherUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

from bolide.client.consuming.subscriptions import Expression
from bolide.client.options import ClientOptions, ConsumerOptions
from bolide.faststream.publisher import BolidePublisher, BolidePublisherSpecification, PublisherDescription
from bolide.faststream.subscriber import (
    BolideSubscriber,
    BolideSubscriberSpecification,
    SubscriberConfig,
    SubscriberDescription,
)


@dataclass(kw_only=True)
class BolideBrokerConfig(BrokerConfig):
    """Where the cluster is, and how it is reached; a router has neither and asks its broker."""

    namesrv: str | None = None
    options: ClientOptions = field(default_factory=lambda: ClientOptions())


class BolideRegistrator(Registrator):
    """What a broker and a router have in common."""

    def subscriber(
        self,
        *topics: str,
        group: str,
        expression: Expression = "*",
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> BolideSubscriber:
        """Have a function called for messages of these topics, which a consumer group shares among its members.

        `expression` names tags, `"paid || sent"`, or is an `Sql`. `max_workers` is how many calls are under way at a
        time, and with more than one they overlap also within a queue unless the group is `ordered`. The options are
        those of `bolide.aio.Consumer`: `start_from`, `ordered`, `broadcasting`, `retry_count_max` and more.
        """
        if not topics:
            raise SetupError("a subscriber needs a topic")
        if max_workers < 1:
            raise SetupError(f"max_workers is {max_workers}; a subscriber needs one at least")
        config = SubscriberConfig(
            topics=topics,
            group=group,
            expression=expression,
            max_workers=max_workers,
            options=options,
            no_reply=no_reply,
            _outer_config=self.config,
            _ack_policy=ack_policy,
        )
        calls = CallsCollection()
        described = SubscriberDescription(
            topics=topics, title_=title, description_=description, include_in_schema=include_in_schema
        )
        subscriber = BolideSubscriber(config, BolideSubscriberSpecification(self.config, described, calls), calls)
        super().subscriber(subscriber, persistent=persistent)
        subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )
        return subscriber

    def publisher(
        self,
        topic: str,
        *,
        headers: Mapping[str, str] | None = None,
        tags: str | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> BolidePublisher:
        """Send what a function returns to a topic; or a thing with `publish` and `request` of its own."""
        described = PublisherDescription(
            topic=topic, schema_=schema, title_=title, description_=description, include_in_schema=include_in_schema
        )
        publisher = BolidePublisher(
            PublisherUsecaseConfig(_outer_config=self.config),
            BolidePublisherSpecification(self.config, described),
            headers=headers,
            tags=tags,
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

    def include_router(self, router: Any, **options: Any) -> None:
        """Take in the subscribers and publishers of a router, under a `prefix` of their topics if one is given."""
        if not isinstance(router, BolideRegistrator):
            raise SetupError(f"a router of Bolide is wanted here, and {type(router).__name__} is none")
        super().include_router(router, **options)
