"""What a caller may say by keyword, each set written once, for those who only hand it on.

The asyncio classes name their keywords one by one with the defaults, and so does whatever is called for every message.
Everyone else takes `**options: Unpack[...]`, which type checkers hold to these names; anyone who wraps a producer or a
consumer can do the same. A test keeps the sets and the signatures in step.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

from bolide.client.config import Credentials
from bolide.client.consuming.rules import PullRules
from bolide.client.consuming.start_from import StartFrom
from bolide.client.sending.hooks import SendHook
from bolide.client.serializers import Serializer
from bolide.clock import Clock
from bolide.model.allocation import Strategy
from bolide.model.queue import MessageQueue
from bolide.remoting.config import ConnectConfig

# What is opened


class ClientOptions(TypedDict, total=False):
    """Who we are, and how brokers and name servers are reached."""

    instance_name: str
    credentials: Credentials | None
    connect: ConnectConfig | None
    clock: Clock | None


class ProducerOptions(ClientOptions, total=False):
    """The options of a `Producer`; `help(bolide.aio.Producer)` shows their defaults."""

    timeout_s: float
    retry_count: int
    retries_unsafe: bool
    avoids_slow: bool
    compress_over: int
    compression: str
    body_size_max: int
    linger_ms: float
    hooks: Sequence[SendHook]
    trace: bool | str
    serializer: Serializer


class TransactionProducerOptions(ProducerOptions, total=False):
    """The options of a `TransactionProducer`: how it answers for its group, and all of a `Producer`.

    `check_concurrency` is how many questions are answered at a time, 1 if not given; `topics` names topics whose
    brokers may ask. Half messages do not linger.
    """

    check_concurrency: int
    topics: Iterable[str]


class ConsumerOptions(ClientOptions, total=False):
    """The options of a `Consumer`; `help(bolide.aio.Consumer)` shows their defaults."""

    start_from: StartFrom | None
    ordered: bool
    broadcasting: bool
    strategy: Strategy
    pull: PullRules | None
    retry_count_max: int | None
    offsets_directory: Path | None
    trace: bool | str
    serializer: Serializer


class PullConsumerOptions(ClientOptions, total=False):
    """The options of a `PullConsumer`; `help(bolide.aio.PullConsumer)` shows their defaults."""

    timeout_s: float


# What is sent


class MessageOptions(TypedDict, total=False):
    """What a message has beside topic and body, and the queue it goes to: the one of its `shard`, or a named one."""

    json: Any
    value: Any
    tags: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    flag: int
    shard: str | None
    queue: MessageQueue | None


class When(TypedDict, total=False):
    """When a message is to be delivered; at most one of them. Without any, at once."""

    delay: float | timedelta  # seconds from now
    deliver_at: float | datetime  # seconds of the epoch; a datetime without a zone is local time
    delay_level: int  # 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h


class SubmitOptions(MessageOptions, When, total=False):
    """What may be said of a message that is submitted."""

    waits_for_store: bool | None


class RequestOptions(MessageOptions, total=False):
    """What may be said of a request; `timeout_s` covers sending it and the reply."""

    timeout_s: float | None
