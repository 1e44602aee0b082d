"""The broker in this process, behind the gRPC face: what Apache calls local mode.

A client is a session of the broker without a socket, so nothing is encoded but sends, which take the broker's fast path
together; and a receive that waits is parked where the pops of remoting clients are.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from bolide.broker.broker import Broker
from bolide.broker.config import BrokerConfig
from bolide.errors import ClientError
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.pop import RequestMode
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.command import Command
from bolide.proxy.back import NORMAL, BrokerQueues, Done, Hear, SentDone, TopicRoute
from bolide.remoting.inside import InsideSession, InsideTurn
from bolide.remoting.owner import Request
from bolide.remoting.session import Session


class LocalLine:
    """One client's session."""

    def __init__(self, broker: Broker, turn: InsideTurn, tasks: asyncio.TaskGroup, peer: str, hear: Hear) -> None:
        self._broker = broker
        self._name = broker.state.settings.now.name
        self._session = InsideSession(turn, broker.state.clock, tasks, peer, partial(hear, self._name))

    @property
    def session(self) -> Session:
        return self._session

    @property
    def is_open(self) -> bool:
        return self._session.is_open

    def ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> Callable[[], None]:
        if broker != self._name:
            done(ClientError(f"broker {broker!r} is not here, this is {self._name!r}"))
            return _nothing
        request = self._session.ask(command, done)
        return lambda: self._give_up(request)

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        if broker == self._name:
            self._session.post(command, done)
        else:
            self.ask(broker, command, timeout_s, done)

    def _give_up(self, request: Request) -> None:
        self._session.forget(request)
        self._broker.pop.give_up(request)

    def close(self) -> None:
        self._session.end("the client is gone")


class LocalBack:
    """What the broker's own tables say."""

    def __init__(self, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._state = broker.state
        self._turn = InsideTurn(broker)
        self._tasks = tasks
        self._routes: dict[str, tuple[TopicConfig, BrokerConfig, TopicRoute]] = {}

    def prepare(self, topic: str | None, group: str | None) -> None:
        return None

    def route(self, topic: str) -> TopicRoute | None:
        config, settings = self._state.topics.find(topic), self._state.settings.now
        if config is None:
            self._routes.pop(topic, None)
            return None
        known = self._routes.get(topic)
        if known is not None and known[0] is config and known[1] is settings:
            return known[2]
        kind = config.attributes.get("message.type", NORMAL)
        perm = config.perm & settings.permission
        queues = BrokerQueues(settings.name, 0, config.read_queue_nums, config.write_queue_nums, perm)
        route = TopicRoute(topic, kind, (queues,))
        self._routes[topic] = config, settings, route
        return route

    def group(self, name: str) -> GroupConfig | None:
        return self._state.groups.find(name)

    def brokers(self) -> list[str]:
        return [self._state.settings.now.name]

    def pulling_mates(self, group: str, topics: Iterable[str]) -> list[str]:
        members, modes = self._state.members.consumers(group), self._broker.pop.modes
        if members is None or all(modes.find(group, topic).mode is RequestMode.POP for topic in topics):
            return []
        return [
            member.client_id for session, member in members.channels.items() if not isinstance(session, InsideSession)
        ]

    def line(self, client_id: str, peer: str, hear: Hear) -> LocalLine:
        return LocalLine(self._broker, self._turn, self._tasks, peer, hear)


def _nothing() -> None:
    return None
