"""What stands behind the gRPC face: brokers that are asked in RocketMQ's own requests, and what is known of topics.

The methods are written once, over requests of the remoting protocol. There are two ways to carry these: to the broker
in this process (`local.py`), and to any cluster (`cluster.py`). So a message, a handle, an offset or a member of a
group is the same thing, whichever protocol its client speaks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from bolide.errors import BolideError
from bolide.kernel.layout import ReceiptRow
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import PopMessageRequest
from bolide.protocol.headers.poptext import PopHandle
from bolide.remoting.session import Session

PERM_READ, PERM_WRITE = 4, 2
MIXED = "MIXED"
NORMAL = "NORMAL"

Answer = Command | BolideError
Done = Callable[[Answer], None]
SentDone = Callable[[Answer | ReceiptRow], None]
Hear = Callable[[str, Command], Awaitable[Command] | None]  # a broker's name, and what it tells a client


class Pop(NamedTuple):
    """A pop that a client asks for, in its language."""

    header: PopMessageRequest
    language: int

    def command(self) -> Command:
        """As a request."""
        return Command(RequestCode.POP_MESSAGE, fields=self.header.encode(), language=self.language)


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """The queues of a topic in one broker."""

    broker: str
    broker_id: int
    read_count: int
    write_count: int
    perm: int


@dataclass(frozen=True)
class TopicRoute:
    """Where a topic is, and which kind of messages it takes (the attribute message.type)."""

    topic: str
    kind: str
    brokers: tuple[BrokerQueues, ...]

    @cached_property
    def writable(self) -> list[tuple[str, int]]:
        """Broker and number of each queue that messages may be sent to, in one order for everybody."""
        return [
            (each.broker, queue_id)
            for each in sorted(self.brokers, key=lambda one: one.broker)
            if each.broker_id == 0 and each.perm & PERM_WRITE
            for queue_id in range(each.write_count)
        ]

    @property
    def readable(self) -> list[BrokerQueues]:
        return [each for each in self.brokers if each.broker_id == 0 and each.perm & PERM_READ and each.read_count]


class Line(Protocol):
    """What one client asks brokers through."""

    @property
    def session(self) -> Session | None:
        """The connection, where the broker is in this process."""
        ...

    @property
    def is_open(self) -> bool:
        """Brokers still know it; one that was silent for too long is closed by them."""
        ...

    def ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> Callable[[], None]:
        """Ask a broker; `done` is called once. What is returned gives the question up, and then it is not called."""
        ...

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        """The same for a message, whose answer may be no more than its receipt."""
        ...

    def pop(self, broker: str, asked: Pop, timeout_s: float, done: Done) -> Callable[[], None]:
        """The same for a pop, whose header may go as it is."""
        ...

    def ack(self, group: str, topic: str, handle: PopHandle, timeout_s: float, done: Done) -> None:
        """The same for an acknowledgement; many of one turn of the loop may go together."""
        ...

    def close(self) -> None:
        """The client is gone: brokers see that."""
        ...


class Back(Protocol):
    """Topics, groups, and lines for clients."""

    def prepare(self, topic: str | None, group: str | None) -> Awaitable[None] | None:
        """Have at hand what `route` and `group` tell of these; None if it is."""
        ...

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic is; None if there is no such topic."""
        ...

    def group(self, name: str) -> GroupConfig | None:
        """How a group is configured; None if there is none and none may be made."""
        ...

    def brokers(self) -> list[str]:
        """The names of all brokers that are known."""
        ...

    def pulling_mates(self, group: str, topics: Iterable[str]) -> list[str]:
        """The ids of members that read queues of a topic by themselves, as far as it is known here."""
        ...

    def line(self, client_id: str, peer: str, hear: Hear) -> Line:
        """A line for a client; `hear` is told what brokers tell it."""
        ...


class Asking(Protocol):
    """Who asks brokers: a client, by its line."""

    def ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> Callable[[], None]: ...


async def asked(line: Asking, broker: str, command: Command, timeout_s: float) -> Command:
    """Ask and wait for the answer; raises what kept it from coming."""
    answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def settle(found: Answer) -> None:
        if answer.done():
            return
        if isinstance(found, Command):
            answer.set_result(found)
        else:
            answer.set_exception(found)

    give_up = line.ask(broker, command, timeout_s, settle)
    try:
        return await answer
    finally:
        if not answer.done():
            give_up()
