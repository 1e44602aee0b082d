"""A name server that answers anything, for tests of what brokers tell it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bolide.clock import Clock
from bolide.protocol.bodies.registration import decode_registration
from bolide.protocol.bodies.topics import TopicTable
from bolide.protocol.command import Command
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Request, Session


class Noting(Owner):
    """A name server that notes what it is asked and answers as it is told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard: list[tuple[float, Command]] = []
        self.answer: Callable[[Command], Command | None] = lambda command: command.answer(0)
        self.server: Server

    def serve(self, request: Request) -> Command | None:
        self.heard.append((self._clock.monotonic_s(), request.command))
        return self.answer(request.command)

    def closed(self, session: Session, why: str) -> None:
        pass

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def codes(self) -> list[int]:
        return [command.code for _, command in self.heard]

    def tables(self) -> list[TopicTable]:
        """What the registrations held, one after the other."""
        return [topics_of(command) for _, command in self.heard if command.code == 103]


def topics_of(command: Command) -> TopicTable:
    compressed = command.fields["compressed"] == "true"
    return decode_registration(command.body, compressed, command.version).topics


@asynccontextmanager
async def noting(clock: Clock) -> AsyncIterator[Noting]:
    owner = Noting(clock)
    async with listen(ListenConfig(host="127.0.0.1"), owner, clock) as server:
        owner.server = server
        yield owner
