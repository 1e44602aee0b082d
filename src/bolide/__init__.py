"""Bolide: a message broker, a name server, a client and a Spark pipeline that speak Apache RocketMQ's protocol.

    import bolide

    with bolide.Producer("orders-pg", "127.0.0.1:9876") as producer:
        producer.send("Orders", b"...", tags="TagA", keys=["o-1"], shard="user-7")

    with bolide.Consumer("orders-cg", {"Orders": "TagA || TagB"}, "127.0.0.1:9876") as consumer:
        for message in consumer:
            handle(message.body)

`bolide.aio` has the same names for asyncio. What is named here is loaded when it is first used: servers are made
of the same package and stay for months.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bolide.errors import BolideError

if TYPE_CHECKING:
    from bolide.client.blocking import Consumer, Producer
    from bolide.client.config import Credentials
    from bolide.client.handlers import handler, run
    from bolide.client.hooks import SendHook
    from bolide.client.pulling import PullRules
    from bolide.client.receipt import Receipt, SendStatus
    from bolide.client.received import Received
    from bolide.client.starting import StartFrom
    from bolide.errors import ClientError
    from bolide.model.message import Message
    from bolide.model.queue import MessageQueue

_HOMES = {
    "ClientError": "bolide.errors",
    "Consumer": "bolide.client.blocking",
    "Credentials": "bolide.client.config",
    "Message": "bolide.model.message",
    "MessageQueue": "bolide.model.queue",
    "Producer": "bolide.client.blocking",
    "PullRules": "bolide.client.pulling",
    "Receipt": "bolide.client.receipt",
    "Received": "bolide.client.received",
    "SendHook": "bolide.client.hooks",
    "SendStatus": "bolide.client.receipt",
    "StartFrom": "bolide.client.starting",
    "handler": "bolide.client.handlers",
    "run": "bolide.client.handlers",
}

__all__ = [
    "BolideError",
    "ClientError",
    "Consumer",
    "Credentials",
    "Message",
    "MessageQueue",
    "Producer",
    "PullRules",
    "Receipt",
    "Received",
    "SendHook",
    "SendStatus",
    "StartFrom",
    "__version__",
    "handler",
    "run",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bolide' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
