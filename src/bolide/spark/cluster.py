"""The cluster as a query sees it: which queues a subscription has, where their brokers are, where the queues end.

Everything here blocks and belongs to one thread. Questions about many queues go out together, one exchange a broker. A
name server that fails is followed by the next; a broker that fails is asked once more over a new connection.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from bolide.client.access import failure_of
from bolide.client.blocking.connection import Answer, Connection
from bolide.client.nameservers import advice_on
from bolide.client.routes import MASTER_ID, Route, route_of, route_to_create
from bolide.client.signing import Signing
from bolide.errors import ClientError, ConnectError, ConnectionLost, NoAnswer
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.model.topics import AUTO_CREATE_TOPIC, DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from bolide.protocol.bodies import Clusters, TopicList, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from bolide.protocol.headers.routes import GetRouteRequest
from bolide.remoting.tls import connecting_context
from bolide.spark.options import ClusterOptions, Subscription

T = TypeVar("T")


class Cluster:
    """Routes, addresses and connections; close it, or leave its `with` block."""

    def __init__(self, options: ClusterOptions, addresses: Mapping[str, str] | None = None) -> None:
        """`addresses` are those of brokers already known, by name: a task need not ask for them."""
        self._options = options
        self._name_servers = list(options.namesrv)
        self._connections: dict[str, Connection] = {}
        self.addresses: dict[str, str] = dict(addresses or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Connections

    def connection(self, address: str) -> Connection:
        """The connection to an address, made when it is first needed."""
        found = self._connections.get(address)
        if found is None:
            options = self._options
            found = self._connections[address] = Connection(
                address,
                options.request_timeout_s,
                connect_timeout_s=options.connect.connect_timeout_ms / 1000,
                context=connecting_context(options.connect),
                signing=None if options.credentials is None else Signing(options.credentials),
            )
        return found

    def forget(self, address: str) -> None:
        """The connection failed: the next one asked for is new."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def of_broker(self, broker_name: str, topic: str) -> Connection:
        """The connection to a broker by name; a name not known yet is looked for in the route of the topic."""
        if broker_name not in self.addresses:
            self.route(topic)
        address = self.addresses.get(broker_name)
        if address is None:
            raise ConnectError(f"broker {broker_name} is not in the route of {topic}: it is down, or gone")
        return self.connection(address)

    def forget_broker(self, broker_name: str) -> None:
        """The broker failed: look it up again, for it may have come back elsewhere."""
        address = self.addresses.pop(broker_name, None)
        if address is not None:
            self.forget(address)

    # The name servers

    def _ask_names(self, command: Callable[[], Command]) -> Answer:
        problems: list[str] = []
        was_lost = False
        for address in list(self._name_servers):
            for _ in range(2):  # a connection that rested may have been closed by the other side
                is_new = address not in self._connections
                try:
                    return self.connection(address).ask(command())
                except NoAnswer as problem:
                    self.forget(address)
                    if is_new:
                        problems.append(str(problem))
                        was_lost |= isinstance(problem, ConnectionLost)
                        break
            self._name_servers.append(self._name_servers.pop(0))
        tried = "; ".join(problems)
        advice = advice_on(tried, self._options.connect.is_tls, was_lost)
        raise ConnectError(f"no name server answers: {tried}. {advice}")

    def route(self, topic: str) -> Route | None:
        """Where a topic is; None when no broker has it."""
        found = self._raw_route(topic)
        if found is None:
            return None
        route = route_of(topic, found)
        for name, ids in route.addresses.items():
            if ids:
                self.addresses[name] = ids.get(MASTER_ID) or ids[min(ids)]
        return route

    def route_to_send(self, topic: str, queue_count: int = 4) -> Route:
        """Where a topic is or will be made by the first message."""
        route = self.route(topic)
        if route is None:
            example = self._raw_route(AUTO_CREATE_TOPIC)
            if example is None:
                raise ClientError(
                    f"topic {topic!r} does not exist, and no broker makes it by itself: `bolide topic create {topic}`",
                    ResponseCode.TOPIC_NOT_EXIST,
                )
            route = route_to_create(topic, example, queue_count)
            self.addresses |= {name: ids[MASTER_ID] for name, ids in route.addresses.items() if MASTER_ID in ids}
        return route

    def _raw_route(self, topic: str) -> TopicRoute | None:
        fields = GetRouteRequest(topic=topic, is_standard_json=True).encode()
        answer = self._ask_names(lambda: Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=dict(fields)))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicRoute.decode(bytes(demand(answer, f"the route of {topic}").body))

    def broker_names(self) -> set[str]:
        """All brokers that the name server knows."""
        answer = demand(self._ask_names(lambda: Command(RequestCode.GET_BROKER_CLUSTER_INFO)), "the brokers")
        return set(Clusters.decode(bytes(answer.body)).broker_addr_table)

    def topics(self, pattern: str) -> list[str]:
        """The topics whose whole name a pattern matches; RocketMQ's own only where the pattern begins like theirs."""
        answer = self._ask_names(lambda: Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        names = TopicList.decode(bytes(demand(answer, "the list of topics").body)).topic_list
        matches = re.compile(pattern).fullmatch
        return sorted(name for name in names if matches(name) and (pattern[:1] == "%" or not _is_ours_alone(name)))

    def queues(self, subscription: Subscription) -> list[MessageQueue]:
        """The readable queues of a subscription now, sorted. A topic that was named and is not there is an error."""
        if subscription.pattern is not None:
            topics: Iterable[str] = self.topics(subscription.pattern)
        else:
            topics = subscription.assigned.topics if subscription.assigned is not None else subscription.topics
        found: list[MessageQueue] = []
        for topic in topics:
            route = self.route(topic)
            if route is None and subscription.pattern is None:
                raise ClientError(
                    f"topic {topic!r} is not known to the name server; create it or check the spelling",
                    ResponseCode.TOPIC_NOT_EXIST,
                )
            if route is not None:
                found += [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.subscribe]
        if subscription.assigned is not None:
            found = [queue for queue in found if subscription.assigned.has(queue)]
        return sorted(found)

    # The brokers

    def ask_queues(
        self,
        queues: Iterable[MessageQueue],
        command: Callable[[MessageQueue], Command],
        read: Callable[[MessageQueue, Answer], T],
    ) -> dict[MessageQueue, T]:
        """One question for each queue, all of a broker's at once; a lost connection is tried once more."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        found: dict[MessageQueue, T] = {}
        for broker_name, its_queues in by_broker.items():
            try:
                answers = self._exchange(broker_name, its_queues, command)
            except NoAnswer:
                self.forget_broker(broker_name)
                answers = self._exchange(broker_name, its_queues, command)
            found |= {queue: read(queue, answer) for queue, answer in zip(its_queues, answers, strict=True)}
        return found

    def _exchange(
        self, broker_name: str, queues: list[MessageQueue], command: Callable[[MessageQueue], Command]
    ) -> list[Answer]:
        connection = self.of_broker(broker_name, queues[0].topic)
        return connection.ask_all([command(queue) for queue in queues])

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self.ask_queues(queues, _min_offset, _offset)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self.ask_queues(queues, _max_offset, _offset)

    def offsets_near(self, queues: Iterable[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """About where each queue was at a time: 4.9 gives the nearest message, 5.x the first one not before."""
        return self.ask_queues(queues, lambda queue: _search(queue, time_ms), _offset)

    def tell_progress(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Show a group's operators how far it is; nothing relies on it."""
        self.ask_queues(offsets, lambda queue: _progress(group, queue, offsets[queue]), lambda queue, answer: None)


def demand(answer: Answer, what: str) -> Answer:
    """The answer if it is a success."""
    if answer.code != ResponseCode.SUCCESS:
        raise failure_of(answer, f"{what} was refused with code {answer.code}")
    return answer


def _is_ours_alone(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def _offset(queue: MessageQueue, answer: Answer) -> int:
    return int(demand(answer, f"an offset of queue {queue.queue_id} of {queue.topic}").fields["offset"])


def _min_offset(queue: MessageQueue) -> Command:
    fields = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).encode()
    return Command(RequestCode.GET_MIN_OFFSET, fields=fields)


def _max_offset(queue: MessageQueue) -> Command:
    fields = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).encode()
    return Command(RequestCode.GET_MAX_OFFSET, fields=fields)


def _search(queue: MessageQueue, time_ms: int) -> Command:
    fields = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=time_ms).encode()
    return Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields=fields)


def _progress(group: str, queue: MessageQueue, offset: int) -> Command:
    fields = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=QueueOffset(offset)
    ).encode()
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)
