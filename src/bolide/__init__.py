"""Bolide: a message broker, a name server, a client and a Spark pipeline that speak Apache RocketMQ's protocol.

    import bolide

    with bolide.Producer("orders-pg", "127.0.0.1:9876") as producer:
        producer.send("Orders", b"...", tags="TagA", keys=["o-1"], shard="user-7")

    with bolide.Consumer("orders-cg", {"Orders": "TagA || TagB"}, "127.0.0.1:9876") as consumer:
        for message in consumer:
            handle(message.body)

Messages wait (`delay=`, `deliver_at=`), hang on a decision (`TransactionProducer`), are chosen (`Sql`, `ClassFilter`),
answered (`request`, `reply`), refused (`nack`, `dead_letter`) and traced (`trace=True`); `Admin` looks after topics and
groups, `@handler` with `run` makes a service, `bolide.spark` has the data, `bolide.testing` a cluster for tests.

`bolide.aio` has the same names for asyncio. What is named here is loaded when it is first used: servers are made
of the same package and stay for months.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bolide.errors import BolideError

if TYPE_CHECKING:
    from bolide.admin.blocking import Admin
    from bolide.admin.deadletters import DeadLetter, DeadLetterFilter
    from bolide.client.blocking.consumer import Consumer
    from bolide.client.blocking.producer import Producer
    from bolide.client.blocking.puller import PullConsumer
    from bolide.client.blocking.transactions import Transaction, TransactionProducer
    from bolide.client.config import Credentials
    from bolide.client.consuming.handlers import App, Handler, handler, run
    from bolide.client.consuming.handlers import listening_in_background as listening
    from bolide.client.consuming.listener import ConsumeHook
    from bolide.client.consuming.received import Received
    from bolide.client.consuming.rules import PullRules
    from bolide.client.consuming.start_from import StartFrom
    from bolide.client.consuming.subscriptions import ClassFilter, Sql
    from bolide.client.pulling.puller import Pulled, PullStatus
    from bolide.client.sending.hooks import SendHook
    from bolide.client.sending.receipt import Receipt, SendStatus
    from bolide.client.serializers import Json, MessagePack, Serializer
    from bolide.client.telemetry import instrument, span_of, uninstrument
    from bolide.client.transactions.checker import Outcome
    from bolide.errors import (
        AccessRefused,
        ClientError,
        ConfigError,
        ConnectError,
        ConnectionLost,
        NoAnswer,
        ProtocolError,
        Refusal,
        ReplyTimeout,
        RequestTimeout,
    )
    from bolide.model.allocation import STRATEGIES, by_machine_room, fixed, nearby
    from bolide.model.message import Message, StoredMessage
    from bolide.model.queue import MessageQueue
    from bolide.remoting.config import ConnectConfig

_HOMES = {
    "AccessRefused": "bolide.errors",
    "Admin": "bolide.admin.blocking",
    "App": "bolide.client.consuming.handlers",
    "ClassFilter": "bolide.client.consuming.subscriptions",
    "ClientError": "bolide.errors",
    "ConfigError": "bolide.errors",
    "ConnectConfig": "bolide.remoting.config",
    "ConnectError": "bolide.errors",
    "ConnectionLost": "bolide.errors",
    "ConsumeHook": "bolide.client.consuming.listener",
    "Consumer": "bolide.client.blocking.consumer",
    "Credentials": "bolide.client.config",
    "DeadLetter": "bolide.admin.deadletters",
    "DeadLetterFilter": "bolide.admin.deadletters",
    "Handler": "bolide.client.consuming.handlers",
    "Json": "bolide.client.serializers",
    "Message": "bolide.model.message",
    "MessagePack": "bolide.client.serializers",
    "MessageQueue": "bolide.model.queue",
    "NoAnswer": "bolide.errors",
    "Outcome": "bolide.client.transactions.checker",
    "Producer": "bolide.client.blocking.producer",
    "ProtocolError": "bolide.errors",
    "PullConsumer": "bolide.client.blocking.puller",
    "PullRules": "bolide.client.consuming.pulling",
    "PullStatus": "bolide.client.pulling.puller",
    "Pulled": "bolide.client.pulling.puller",
    "Receipt": "bolide.client.sending.receipt",
    "Received": "bolide.client.consuming.received",
    "Refusal": "bolide.errors",
    "ReplyTimeout": "bolide.errors",
    "RequestTimeout": "bolide.errors",
    "STRATEGIES": "bolide.model.allocation",
    "SendHook": "bolide.client.sending.hooks",
    "SendStatus": "bolide.client.sending.receipt",
    "Serializer": "bolide.client.serializers",
    "Sql": "bolide.client.consuming.subscriptions",
    "StartFrom": "bolide.client.consuming.start_from",
    "StoredMessage": "bolide.model.message",
    "Transaction": "bolide.client.blocking.transactions",
    "TransactionProducer": "bolide.client.blocking.transactions",
    "by_machine_room": "bolide.model.allocation",
    "fixed": "bolide.model.allocation",
    "handler": "bolide.client.consuming.handlers",
    "instrument": "bolide.client.telemetry",
    "nearby": "bolide.model.allocation",
    "run": "bolide.client.consuming.handlers",
    "span_of": "bolide.client.telemetry",
    "uninstrument": "bolide.client.telemetry",
}
# The name of the asyncio face stands for something else there.
_RENAMED = {"listening": ("bolide.client.consuming.handlers", "listening_in_background")}

__all__ = [
    "STRATEGIES",
    "AccessRefused",
    "Admin",
    "App",
    "BolideError",
    "ClassFilter",
    "ClientError",
    "ConfigError",
    "ConnectConfig",
    "ConnectError",
    "ConnectionLost",
    "ConsumeHook",
    "Consumer",
    "Credentials",
    "DeadLetter",
    "DeadLetterFilter",
    "Handler",
    "Json",
    "Message",
    "MessagePack",
    "MessageQueue",
    "NoAnswer",
    "Outcome",
    "Producer",
    "ProtocolError",
    "PullConsumer",
    "PullRules",
    "PullStatus",
    "Pulled",
    "Receipt",
    "Received",
    "Refusal",
    "ReplyTimeout",
    "RequestTimeout",
    "SendHook",
    "SendStatus",
    "Serializer",
    "Sql",
    "StartFrom",
    "StoredMessage",
    "Transaction",
    "TransactionProducer",
    "__version__",
    "by_machine_room",
    "fixed",
    "handler",
    "instrument",
    "listening",
    "nearby",
    "run",
    "span_of",
    "uninstrument",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # for a type checker every name would be there, and it would miss those that are not

    def __getattr__(name: str) -> object:
        home, own_name = _RENAMED.get(name) or (_HOMES.get(name), name)
        if home is None:
            raise AttributeError(f"module 'bolide' has no attribute {name!r}")
        return getattr(import_module(home), own_name)
