"""Requests that only read: routes, clusters, lists of topics.

Look-ups whose answers lie ready never come here (`answers.py`); the first one for a topic after a change does, and all
that end in "no route". The server never tells clients of a change, they ask (rule 7 of look-ups).
"""

from collections.abc import Callable

import msgspec

from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.namesrv import views
from bolide.namesrv.absence import Departures, explain
from bolide.namesrv.answers import Answers
from bolide.namesrv.config import LiveConfig
from bolide.namesrv.kv import ORDER_TOPIC_CONFIG, KvConfig
from bolide.namesrv.nearness import Nearness, nearness
from bolide.namesrv.routes import RouteTables
from bolide.protocol.bodies.routes import BrokerMembersAnswer, TopicList
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.registration import GetBrokerMembersRequest
from bolide.protocol.headers.routes import DEPARTED_FIELD, GetRouteRequest, GetTopicsByClusterRequest
from bolide.remoting.session import Request

STANDARD_JSON_VERSION = 401  # 4.9.4: from here on clients read integer keys in quotes
_ZONE_MODE = "__ZONE_MODE"
_ZONE_NAME = "__ZONE_NAME"


class Lookups:
    """Answers to those who ask."""

    def __init__(
        self,
        tables: RouteTables,
        answers: Answers,
        departures: Departures,
        kv: KvConfig,
        settings: LiveConfig,
        clock: Clock,
        own_host: str | None = None,
    ) -> None:
        self._tables = tables
        self._answers = answers
        self._departures = departures
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._own_host = own_host
        self._started_s = clock.monotonic_s()

    def handlers(self) -> dict[int, Callable[[Request], Command]]:
        tables = self._tables
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.members,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._list_of(lambda: views.unit_topics(tables)),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._list_of(lambda: views.unit_subscribed_topics(tables)),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._list_of(
                lambda: views.unit_subscribed_plain_topics(tables)
            ),
        }

    def route(self, request: Request) -> Command:
        """105: where a topic is."""
        command = request.command
        header = GetRouteRequest.decode(command.fields)
        config = self._settings.now
        self._check_ready()
        route = views.route(self._tables, header.topic, acting_master=config.has_acting_masters)
        if route is None:
            now_ms = int(self._clock.monotonic_s() * 1000)
            remark = explain(header.topic, self._tables, self._departures, request.session.local, now_ms)
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if config.has_order_topics:
            route = msgspec.structs.replace(route, order_topic_conf=self._kv.get(ORDER_TOPIC_CONFIG, header.topic))
        is_quoted = command.version >= STANDARD_JSON_VERSION or bool(header.is_standard_json)
        zone = _zone(command)
        near = self._near(request)
        if zone is None and near is None:
            body = self._answers.keep(header.topic, route, is_quoted=is_quoted)
        else:
            seen = near.route(route) if near is not None else route
            seen = views.in_zone(seen, zone) if zone is not None else seen
            body = seen.encode() if is_quoted else seen.encode_bare()
        return command.answer(ResponseCode.SUCCESS, body=body)

    def _near(self, request: Request) -> Nearness | None:
        return nearness(self._own_host, request.session.local)

    def _check_ready(self) -> None:
        """A name server that has just started knows too little; it may be told to say so instead of denying topics."""
        config = self._settings.now
        left_s = self._started_s + config.wait_s - self._clock.monotonic_s()
        if config.waits_for_brokers and left_s > 0:
            remark = f"name server not ready: it waits for brokers to register for another {left_s:.0f} s"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def clusters(self, request: Request) -> Command:
        """106: all brokers."""
        clusters = views.clusters(self._tables)
        near = self._near(request)
        body = (near.clusters(clusters) if near is not None else clusters).encode()
        departed = self._departures.told(int(self._clock.monotonic_s() * 1000))
        # Lists made from the brokers that are there look complete; Java's tools pass over a field they do not know.
        fields = {DEPARTED_FIELD: msgspec.json.encode(departed).decode()} if departed else {}
        return request.command.answer(ResponseCode.SUCCESS, fields=fields, body=body)

    def members(self, request: Request) -> Command:
        """901: who shares a broker name."""
        header = GetBrokerMembersRequest.decode(request.command.fields)
        members = views.members(self._tables, header.cluster_name, header.broker_name)
        near = self._near(request)
        members = near.members(members) if near is not None else members
        body = BrokerMembersAnswer(broker_member_group=members).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def all_topics(self, request: Request) -> Command:
        """206: the names of all topics."""
        if not self._settings.now.lists_all_topics:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the list of all topics is switched off: enableAllTopicList=false")
        return _listed(request, list(self._tables.topics))

    def topics_of_cluster(self, request: Request) -> Command:
        """224: the topics that have a queue in a cluster."""
        self._check_lists()
        header = GetTopicsByClusterRequest.decode(request.command.fields)
        return _listed(request, views.topics_of_cluster(self._tables, header.cluster_name))

    def system_topics(self, request: Request) -> Command:
        """304: the topics named after clusters and brokers, and a broker to ask for the others."""
        topics, address = views.system_topics(self._tables)
        near = self._near(request)
        if near is not None and address is not None:
            address = near.address(address)
        return _listed(request, topics, address)

    def _list_of(self, topics: Callable[[], list[str]]) -> Callable[[Request], Command]:
        """311 to 313: topics by their unit flags."""

        def handle(request: Request) -> Command:
            self._check_lists()
            return _listed(request, topics())

        return handle

    def _check_lists(self) -> None:
        if not self._settings.now.lists_topics:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "lists of topics are switched off: enableTopicList=false")


def _zone(command: Command) -> str | None:
    if command.fields.get(_ZONE_MODE, "").lower() != "true":
        return None
    return command.fields.get(_ZONE_NAME) or None


def _listed(request: Request, topics: list[str], address: str | None = None) -> Command:
    return request.command.answer(ResponseCode.SUCCESS, body=TopicList(topic_list=topics, broker_addr=address).encode())
