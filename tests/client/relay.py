"""A broker's door of glass: passes requests on, keeps what it saw of them, and hangs up on those it is told to lose."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bolide.clock import Clock
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner, Reply, Request
from bolide.remoting.server import listen
from bolide.remoting.session import Session

LIMIT_S = 60


class Relay(Owner):
    """`asked` and `answered` are in the order in which they passed."""

    def __init__(self, broker: str, client: Client) -> None:
        self.address = ""
        self.asked: list[Command] = []
        self.answered: list[tuple[Command, Command]] = []
        self.is_lost: Callable[[Command], bool] = lambda command: False
        self._broker = broker
        self._client = client

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        command = request.command
        self.asked.append(command)
        if self.is_lost(command):
            request.session.close("it is lost")
            return None
        return self._passed_on(command)

    async def _passed_on(self, command: Command) -> Command:
        question = Command(command.code, fields=command.fields, body=command.body)
        answer = await self._client.request(self._broker, question, LIMIT_S)
        self.answered.append((command, answer))
        return command.answer(answer.code, remark=answer.remark, fields=answer.fields, body=answer.body)

    def closed(self, session: Session, why: str) -> None:
        pass

    def of(self, *codes: int) -> list[Command]:
        """What was asked with one of these codes."""
        return [command for command in self.asked if command.code in codes]


@asynccontextmanager
async def relaying(broker: str, clock: Clock) -> AsyncIterator[Relay]:
    """Stands before a broker while the block lasts."""
    async with Client(ConnectConfig(), clock) as client:
        relay = Relay(broker, client)
        async with listen(ListenConfig(host="127.0.0.1", port=0), relay, clock) as server:
            relay.address = f"127.0.0.1:{server.port}"
            yield relay
