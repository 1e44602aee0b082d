"""What sends for a broker: bodies are encoded by FastStream's codec, headers become properties."""

from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState

from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt
from bolide.faststream.messages import BolidePublishCommand, decode, parse
from bolide.model.message import Message

_JSON = "application/json"
_NULL = b"null"


class BolideProducer(ProducerProto):
    """The producer of a broker, while that is connected."""

    def __init__(self, parser: Any, decoder: Any) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: Any = DefaultCodec()
        self.serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: Any, codec: Any) -> None:
        self._producer, self.serializer = producer, serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        self._producer = None

    async def publish(self, cmd: BolidePublishCommand) -> Receipt:
        """Send one message; a reply goes to the one who asked."""
        body, properties = await self.encoded(cmd, cmd.body)
        if cmd.answers is not None:
            return await cmd.answers.reply(body, tags=cmd.tags, keys=cmd.keys, properties=properties)
        return await self._open().send(
            cmd.destination,
            body,
            tags=cmd.tags,
            keys=cmd.keys,
            properties=properties,
            shard=cmd.shard,
            timeout_s=cmd.timeout_s,
            **cmd.when,
        )

    async def publish_batch(self, cmd: BolidePublishCommand) -> list[Receipt]:
        """Send several as one: stored together, in one queue."""
        messages = []
        for each in cmd.batch_bodies:
            body, properties = await self.encoded(cmd, each)
            messages.append(Message(cmd.destination, body, tags=cmd.tags, keys=cmd.keys, properties=properties))
        return await self._open().send_batch(messages, shard=cmd.shard, timeout_s=cmd.timeout_s)

    async def request(self, cmd: BolidePublishCommand) -> Message:
        """Send a request and wait for the reply to it."""
        body, properties = await self.encoded(cmd, cmd.body)
        return await self._open().request(
            cmd.destination,
            body,
            tags=cmd.tags,
            keys=cmd.keys,
            properties=properties,
            shard=cmd.shard,
            timeout_s=cmd.timeout_s,
        )

    async def encoded(self, cmd: BolidePublishCommand, value: Any) -> tuple[bytes, dict[str, str]]:
        """A body and its properties. RocketMQ keeps no empty body, so None is what JSON says for it."""
        if value is None:
            return _NULL, cmd.properties(_JSON)
        body, content_type = await self.codec.encode(value, self.serializer)
        return body, cmd.properties(content_type)

    def _open(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("the broker is not connected: use it inside `async with broker`, or start it")
        return self._producer
