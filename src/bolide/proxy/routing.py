"""QueryRoute and QueryAssignment: where clients send, and from where they receive.

The address in each answer is the one the client asked at, host and port as it wrote them: it reached us by that, be
there a container, a tunnel or a mapped port between.
"""

from collections.abc import Awaitable

from bolide.proxy import messages as m
from bolide.proxy.back import MIXED, NORMAL, PERM_READ, PERM_WRITE, BrokerQueues, TopicRoute
from bolide.proxy.calls import Call
from bolide.proxy.checks import group_name, topic_name
from bolide.proxy.clients import client_id_of
from bolide.proxy.methods import Handler, Needs
from bolide.proxy.rights import Rights, told
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, ok
from bolide.remoting.address import split_address

ANY_QUEUE = -1
_MIXED_KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class Routing:
    """Answers both."""

    def __init__(self, state: ProxyState, rights: Rights) -> None:
        self._state = state
        self._rights = rights

    def handlers(self) -> dict[str, Handler]:
        return {
            "QueryRoute": Handler(m.QueryRouteRequest, m.QueryRouteResponse, self.route, _topic),
            "QueryAssignment": Handler(
                m.QueryAssignmentRequest, m.QueryAssignmentResponse, self.assignment, _topic_and_group
            ),
        }

    def route(self, call: Call, request: m.QueryRouteRequest) -> m.QueryRouteResponse | Awaitable[m.QueryRouteResponse]:
        """Every queue of a topic, for whom it is something."""
        client = self._state.clients.find(client_id_of(call))
        checking = self._rights.check(client, topic_name(request.topic), None)
        return told(checking, lambda: self._route(call, request))

    def _route(self, call: Call, request: m.QueryRouteRequest) -> m.QueryRouteResponse:
        route = self._state.route(topic_name(request.topic))
        endpoints = _reached(call, request.endpoints)
        queues = [queue for each in route.brokers for queue in _queues(request.topic, route, each, endpoints)]
        return m.QueryRouteResponse(status=ok(), message_queues=queues)

    def assignment(
        self, call: Call, request: m.QueryAssignmentRequest
    ) -> m.QueryAssignmentResponse | Awaitable[m.QueryAssignmentResponse]:
        """Every member of a group has everything: any queue of each broker, or in an ordered group each queue."""
        client = self._state.clients.find(client_id_of(call))
        checking = self._rights.check(client, topic_name(request.topic), group_name(request.group))
        return told(checking, lambda: self._assignment(call, request))

    def _assignment(self, call: Call, request: m.QueryAssignmentRequest) -> m.QueryAssignmentResponse:
        route, group = self._state.route(topic_name(request.topic)), self._state.back.group(group_name(request.group))
        if not route.readable:
            raise Denied(m.Code.FORBIDDEN, f"topic {route.topic!r} has no queue that may be read")
        endpoints = _reached(call, request.endpoints)
        assignments = [
            m.Assignment(message_queue=_queue(request.topic, route, each, endpoints, queue_id, each.perm))
            for each in route.readable
            for queue_id in (range(each.read_count) if group and group.consume_message_orderly else [ANY_QUEUE])
        ]
        return m.QueryAssignmentResponse(status=ok(), assignments=assignments)


def _topic(request: m.QueryRouteRequest) -> Needs:
    return request.topic.name, None


def _topic_and_group(request: m.QueryAssignmentRequest) -> Needs:
    return request.topic.name, request.group.name


def accepted_kinds(kind: str) -> list[str]:
    """The types of messages that a topic takes."""
    if kind == MIXED:
        return list(_MIXED_KINDS)
    return [kind if kind in _MIXED_KINDS else NORMAL]


def _reached(call: Call, asked: m.Endpoints) -> m.Endpoints:
    if asked.addresses:
        return asked
    host, port = split_address(call.carrier.local)
    scheme = m.AddressScheme.IPv6 if ":" in host else m.AddressScheme.IPv4
    return m.Endpoints(scheme=scheme, addresses=[m.Address(host=host, port=port)])


def _queues(topic: m.Resource, route: TopicRoute, each: BrokerQueues, endpoints: m.Endpoints) -> list[m.MessageQueue]:
    """As Apache numbers them: those that can only be read, those that can only be written, those for both."""
    may_read, may_write = bool(each.perm & PERM_READ), bool(each.perm & PERM_WRITE)
    if may_read and may_write:
        both = min(each.read_count, each.write_count)
        perms = [PERM_READ] * (each.read_count - both) + [PERM_WRITE] * (each.write_count - both)
        perms += [PERM_READ | PERM_WRITE] * both
    elif may_read or may_write:
        perms = [each.perm] * (each.read_count if may_read else each.write_count)
    else:
        perms = [0] * max(each.read_count, each.write_count, 1)
    return [_queue(topic, route, each, endpoints, number, perm) for number, perm in enumerate(perms)]


def _queue(
    topic: m.Resource, route: TopicRoute, each: BrokerQueues, endpoints: m.Endpoints, queue_id: int, perm: int
) -> m.MessageQueue:
    return m.MessageQueue(
        topic=topic,
        id=queue_id,
        permission=_PERMISSIONS[perm & (PERM_READ | PERM_WRITE)],
        broker=m.Broker(name=each.broker, id=each.broker_id, endpoints=endpoints),
        accept_message_types=accepted_kinds(route.kind),
    )


_PERMISSIONS = {
    0: m.Permission.NONE,
    PERM_READ: m.Permission.READ,
    PERM_WRITE: m.Permission.WRITE,
    PERM_READ | PERM_WRITE: m.Permission.READ_WRITE,
}
