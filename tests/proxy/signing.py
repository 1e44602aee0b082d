"""The header by which gRPC clients say who they are, and what they are told of topics and groups then."""

import hmac

from bolide.proxy import messages as m
from tests.proxy.peer import Peer
from tests.proxy.serving import Talk, consumer_settings, resource

# What users with some rights are told: the route, the queues of a group, how often the group tries a message.
_NO, _OK = m.Code.FORBIDDEN, m.Code.OK
KNOWING: dict[tuple[tuple[str, str], ...], tuple[int, int, int | None]] = {
    (): (_NO, _NO, None),
    (("Topic:Other", "All"), ("Group:Other", "All")): (_NO, _NO, None),
    (("Topic:Normal", "Pub"),): (_OK, _NO, None),
    (("Topic:Normal", "Sub"),): (_OK, _NO, None),
    (("Group:G", "Sub"),): (_NO, _NO, 8),
    (("Topic:Normal", "Sub"), ("Group:G", "Sub")): (_OK, _OK, 8),
}


def signed(name: str = "admin", secret: str = "a-long-secret", at: str = "20261117T080000Z") -> dict[str, str]:
    signature = hmac.digest(secret.encode(), at.encode(), "sha1").hex().upper()
    told = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": told, "x-mq-date-time": at}


async def known_of(peer: Peer, topic: str, group: str, headers: dict[str, str]) -> tuple[int, int, int | None]:
    """How a route and an assignment are answered, and the attempts of a group; None where they are not told."""
    route = m.QueryRouteRequest(topic=resource(topic))
    routed = await peer.call("QueryRoute", route, m.QueryRouteResponse, **headers)
    assignment = m.QueryAssignmentRequest(topic=resource(topic), group=resource(group))
    assigned = await peer.call("QueryAssignment", assignment, m.QueryAssignmentResponse, **headers)
    assert bool(routed.message_queues) == (routed.status.code == m.Code.OK)
    assert bool(assigned.assignments) == (assigned.status.code == m.Code.OK)
    talk = Talk(peer, peer.begin("Telemetry", **headers))
    talk.say(m.TelemetryCommand(settings=consumer_settings(group, topic)))
    answer = await talk.hear(1)
    if answer.status.code != m.Code.OK:
        assert (answer.status.code, answer.HasField("settings")) == (m.Code.FORBIDDEN, False)
        return routed.status.code, assigned.status.code, None
    return routed.status.code, assigned.status.code, answer.settings.backoff_policy.max_attempts
