"""The broker in this process, behind the gRPC face: what Apache calls local mode.

A client is a session of the broker without a socket, so nothing is encoded but sends, which take the broker's fast path
together. What clients acknowledge in one turn of the loop is stored together too, without requests. A receive that
waits is parked where the pops of remoting clients are.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from bolide.broker.broker import Broker
from bolide.broker.config import BrokerConfig
from bolide.broker.pop.lanes import Lane
from bolide.errors import BolideError, ClientError
from bolide.filter.tags import is_tag_type
from bolide.model.names import LABEL
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.pop import RequestMode
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.poptext import PopHandle
from bolide.protocol.popped import ack_command, marked_topic
from bolide.proxy.back import NORMAL, BrokerQueues, Done, Hear, Pop, SentDone, TopicRoute
from bolide.proxy.translation import PRIORITY_KIND
from bolide.remoting.inside import InsideSession, InsideTurn
from bolide.remoting.loop_turn import Solitude
from bolide.remoting.owner import Request
from bolide.remoting.session import Session

_DONE = Command(RequestCode.ACK_MESSAGE).answer(ResponseCode.SUCCESS)


class _Ack(NamedTuple):
    """One acknowledgement, and who hears how it went."""

    line: "LocalLine"
    group: str
    topic: str
    handle: PopHandle
    timeout_s: float
    done: Done

    @property
    def lane(self) -> Lane:
        return Lane(self.group, marked_topic(self.group, self.topic, self.handle.mark), self.handle.queue_id)

    def ask(self) -> None:
        """As a request of its own."""
        command = ack_command(self.group, self.topic, self.handle)
        self.line.ask(self.handle.broker_name, command, self.timeout_s, self.done)


class _AckTurn:
    """What all clients acknowledge in one turn of the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._acks: list[_Ack] = []
        self._solitude = Solitude()

    def add(self, ack: _Ack) -> None:
        if not self._acks:
            if self._solitude.take():
                self._settle([ack])
                return
            asyncio.get_running_loop().call_soon(self._end)
        self._acks.append(ack)

    def _end(self) -> None:
        acks, self._acks = self._acks, []
        self._solitude.end_turn(len(acks))
        self._settle(acks)

    def _settle(self, acks: list[_Ack]) -> None:
        try:
            found = self._broker.pop.ack_turn([(ack.lane, ack.handle) for ack in acks])
        except BolideError:
            found = None  # each hears by itself what it was
        for number, ack in enumerate(acks):
            refusal = None if found is None else found[number]
            if found is None:
                ack.ask()
            else:
                ack.done(_DONE if refusal is None else _DONE.answer(refusal.code, remark=refusal.remark))


class _Turns(NamedTuple):
    """What the lines of a broker share."""

    posts: InsideTurn
    acks: _AckTurn


class LocalLine:
    """One client's session."""

    def __init__(self, broker: Broker, turns: _Turns, tasks: asyncio.TaskGroup, peer: str, hear: Hear) -> None:
        turn, self._ack_turn = turns
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
        return partial(self._give_up, request)

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        if broker == self._name:
            self._session.post(command, done)
        else:
            self.ask(broker, command, timeout_s, done)

    def pop(self, broker: str, asked: Pop, timeout_s: float, done: Done) -> Callable[[], None]:
        header, language = asked
        is_plain = broker == self._name and self._broker.admission.door is None and is_tag_type(header.expression_type)
        if not is_plain or not _is_label(header.attempt_id):
            return self.ask(broker, asked.command(), timeout_s, done)
        command = Command(RequestCode.POP_MESSAGE, language=language)
        request = self._session.ask(command, done, lambda request: self._broker.pop.take(request, header))
        return partial(self._give_up, request)

    def ack(self, group: str, topic: str, handle: PopHandle, timeout_s: float, done: Done) -> None:
        ack = _Ack(self, group, topic, handle, timeout_s, done)
        if handle.broker_name == self._name and self.is_open and self._broker.admission.door is None:
            self._ack_turn.add(ack)
        else:
            ack.ask()

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
        self._turns = _Turns(InsideTurn(broker), _AckTurn(broker))
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
        if kind == PRIORITY_KIND:  # of a table that came from Apache's broker: here it is a topic like any other
            kind = NORMAL
        perm = config.perm & settings.permission
        queues = BrokerQueues(settings.name, 0, config.read_queue_nums, config.write_queue_nums, perm)
        route = TopicRoute(topic, kind, (queues,))
        self._routes[topic] = config, settings, route
        return route

    def group(self, name: str) -> GroupConfig | None:
        return self._state.groups.look_up(name)

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
        return LocalLine(self._broker, self._turns, self._tasks, peer, hear)


def _is_label(text: str | None) -> bool:
    """What a broker takes for a name; topic and group were looked at before."""
    return text is None or LABEL.problem(text) is None


def _nothing() -> None:
    return None
