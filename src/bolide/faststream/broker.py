"""A broker of FastStream: one producer, and for each subscriber a member of its consumer group.

Everything to build on is in `faststream._internal`, which any minor release may change: the extra is held to one.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Unpack

from fast_depends import Provider, dependency_provider
from faststream import ContextRepo
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response import PublishType
from faststream.specification.schema import BrokerSpec

from bolide.client.options import ClientOptions
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt
from bolide.errors import BolideError
from bolide.faststream.messages import BolideMessage, BolidePublishCommand, when_of
from bolide.faststream.producer import BolideProducer
from bolide.faststream.registrator import BolideBrokerConfig, BolideRegistrator
from bolide.faststream.subscriber import log_context
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command

_REQUEST_TIMEOUT_S = 3.0
_MESSAGE_ID_WIDTH = 10
_PROTOCOL = "rocketmq"


class BolideBroker(BolideRegistrator, BrokerUsecase):
    """A cluster of Bolide or RocketMQ, for `FastStream(broker)`."""

    _connection: Producer | None

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        producer_group: str = "faststream-producers",
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[BolideRegistrator] = (),
        id_generator: Any = gen_cor_id,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        description: str | None = None,
        tags: Iterable[Any] = (),
        **options: Unpack[ClientOptions],
    ) -> None:
        """Without `namesrv` NAMESRV_ADDR is used. The options are those of every client: `credentials`, `connect`."""
        self._producer_group = producer_group
        config = BolideBrokerConfig(
            namesrv=namesrv,
            options=options,
            producer=BolideProducer(parser, decoder),
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            broker_dependencies=dependencies,
            ack_policy=ack_policy,
            graceful_timeout=graceful_timeout,
            id_generator=id_generator,
            logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_Lines),
            fd_config=FastDependsConfig(
                use_fastdepends=apply_types,
                serializer=serializer,
                provider=provider or dependency_provider,
                context=context or ContextRepo(),
            ),
            extra_context={"broker": self},
        )
        specification = BrokerSpec(
            url=[namesrv or "$NAMESRV_ADDR"],
            protocol=_PROTOCOL,
            protocol_version=None,
            description=description,
            tags=tags,
            security=None,
        )
        super().__init__(config=config, specification=specification, routers=routers)

    async def _connect(self) -> Producer:
        config = self.config.broker_config
        producer = Producer(self._producer_group, config.namesrv, **config.options)
        await producer.start()
        config.producer.connect(producer, config.fd_config._serializer, config.broker_codec)
        return producer

    async def start(self) -> None:
        """Connect, and have the handlers called."""
        self._check_groups()
        await self.connect()
        self.config.logger.log("Connection established", logging.INFO, log_context())
        await super().start()

    def _check_groups(self) -> None:
        """Members of a group share queues whatever each wants, so with two wishes each would miss messages."""
        wishes: dict[str, tuple[object, ...]] = {}
        for subscriber in self.subscribers:
            if wishes.setdefault(subscriber.group, subscriber.wish) != subscriber.wish:
                raise SetupError(
                    f"two subscribers of group {subscriber.group} want different topics or tags, and would miss some: "
                    "give each a group of its own, or one subscriber all topics"
                )

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Let the handlers finish, leave the groups, and let go of the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        producer, self._connection = self._connection, None
        if producer is not None:
            await producer.close()
        self.config.broker_config.producer.disconnect()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._connection.instance.namesrv.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        except (BolideError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Send a message, and wait until a broker has stored it.

        Headers become properties. Messages of one `shard` keep their order; one with a `delay` (seconds) or a time to
        `deliver_at` waits at the broker. What a handler returns for a message with `reply_to` goes to that topic.
        """
        command = BolidePublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            tags=tags,
            keys=keys,
            shard=shard,
            timeout_s=timeout,
            when=when_of(delay, deliver_at),
            _publish_type=PublishType.PUBLISH,
        )
        receipt: Receipt = await self._basic_publish(command, producer=self.config.producer)
        return receipt

    async def publish_batch(
        self,
        *messages: Any,
        topic: str,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
        shard: str | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Send messages in one request: stored together, in one queue, in their order."""
        command = BolidePublishCommand(
            *messages,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            tags=tags,
            shard=shard,
            timeout_s=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        receipts: list[Receipt] = await self._basic_publish_batch(command, producer=self.config.producer)
        return receipts

    async def request(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
        timeout: float = _REQUEST_TIMEOUT_S,
    ) -> BolideMessage:
        """Send a request and wait for what its handler returns; ReplyTimeout if nothing came in time."""
        command = BolidePublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            tags=tags,
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: BolideMessage = await self._basic_request(command, producer=self.config.producer)
        return reply


class BolideRouter(BolideRegistrator, BrokerRouter):
    """Subscribers and publishers that a broker takes in: `broker.include_router(router)`."""

    def __init__(
        self,
        prefix: str = "",
        *,
        ack_policy: AckPolicy = EMPTY,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[BolideRegistrator] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """`prefix` stands before the names of its topics, not of its groups."""
        config = BolideBrokerConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=(), routers=routers)


class _Lines(DefaultLoggerStorage):
    """FastStream's log, with topic and group in columns."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 4, "group": 4}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> Any:
        logger = self._get_logger_ref()
        if logger is None:
            columns = " | ".join(f"%({name})-{width}s" for name, width in self._widths.items())
            logger = get_broker_logger(
                name="bolide",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=_MESSAGE_ID_WIDTH,
                fmt=f"%(asctime)s %(levelname)-8s - {columns} | %(message_id)-{_MESSAGE_ID_WIDTH}s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger
