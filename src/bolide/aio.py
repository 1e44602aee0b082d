"""The client for asyncio: producers, consumers, an administrator, and what they give and take."""

from bolide.admin.admin import Admin
from bolide.admin.deadletters import DeadLetter, DeadLetterFilter
from bolide.client.config import Credentials
from bolide.client.consuming.consumer import Consumer
from bolide.client.consuming.handlers import App, Handler, handler, listening, run_until_stopped
from bolide.client.consuming.listener import ConsumeHook
from bolide.client.consuming.received import Received
from bolide.client.consuming.rules import PullRules
from bolide.client.consuming.start_from import StartFrom
from bolide.client.consuming.subscriptions import ClassFilter, Sql
from bolide.client.pulling.puller import PullConsumer, Pulled, PullStatus
from bolide.client.sending.hooks import SendHook
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt, SendStatus
from bolide.client.serializers import Json, MessagePack, Serializer
from bolide.client.telemetry import instrument, span_of, uninstrument
from bolide.client.transactions.checker import Outcome
from bolide.client.transactions.producer import Transaction, TransactionProducer
from bolide.errors import (
    AccessRefused,
    BolideError,
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
    "by_machine_room",
    "fixed",
    "handler",
    "instrument",
    "listening",
    "nearby",
    "run_until_stopped",
    "span_of",
    "uninstrument",
]
