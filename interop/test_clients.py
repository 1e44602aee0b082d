"""Java producers and consumers find their Java broker through the name server."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from interop import wire
from interop.clients import java_consumer, send_messages
from interop.conftest import Cluster
from interop.process import await_that
from interop.release import CLIENT_RELEASES
from interop.tap import tapped

OLDER, NEWER = CLIENT_RELEASES
PAIRS = [
    pytest.param(OLDER, NEWER, marks=pytest.mark.short),
    pytest.param(NEWER, OLDER, marks=pytest.mark.short),
    (OLDER, OLDER),
    (NEWER, NEWER),
]
COUNT = 20
RECEIVE_TIMEOUT_S = 60.0
# By chance, one of three is left out by thirty clients once in sixty thousand runs.
CLIENT_STARTS_MAX = 30
BODIES = {f"message {number}" for number in range(COUNT)}


@pytest.mark.feature("F027", "F028", "F055")
@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_messages_to_a_topic_nobody_made_reach_a_consumer_through_polled_routes(
    sender: str, receiver: str, cluster: Cluster, tmp_path: Path
) -> None:
    topic = f"From-{sender}-to-{receiver}".replace(".", "-")
    assert wire.route(cluster.server.address, topic) is None
    with tapped(cluster.server.address) as tap:
        sent = send_messages(tmp_path, sender, namesrv=tap.endpoint, topic=topic, count=COUNT)
        assert {event["status"] for event in sent} == {"SEND_OK"}
        assert {event["broker"] for event in sent} == {cluster.broker.name}
        asked = [request.fields["topic"] for request in tap.requests(wire.GET_ROUTE)]
        assert {topic, "TBW102"} <= set(asked), "an unknown topic is asked for, then the one that lends its queues"
        await_that("the topic is routed", lambda: wire.route(cluster.server.address, topic), 20)
        arguments = {"namesrv": tap.endpoint, "topic": topic, "group": f"group-{topic}", "pollMs": 1000}
        with java_consumer(tmp_path, receiver, **arguments) as consumer:
            consumer.await_events("received", COUNT, RECEIVE_TIMEOUT_S)
            assert consumer.bodies() == BODIES
            heard = len([request for request in tap.requests(wire.GET_ROUTE) if request.fields["topic"] == topic])
            await_that(
                "it polls the route again",
                lambda: sum(request.fields["topic"] == topic for request in tap.requests(wire.GET_ROUTE)) > heard + 1,
                10,
            )
        assert tap.requests(from_client=False) == [], "a name server starts no talk"
        assert {request.code for request in tap.requests()} == {wire.GET_ROUTE}, "clients ask and report nothing"


@pytest.mark.feature("F054")
def test_a_client_uses_one_of_three_name_servers_and_many_clients_use_all(cluster: Cluster, tmp_path: Path) -> None:
    # Of the 4.9 client: a 5.x client connects to every name server to see which of them answer.
    with ExitStack() as stack:
        taps = [stack.enter_context(tapped(cluster.server.address)) for _ in range(3)]
        line = {"namesrv": ";".join(tap.endpoint for tap in taps), "topic": "Chosen", "count": 1}
        for _ in range(CLIENT_STARTS_MAX):
            before = [tap.connection_count for tap in taps]
            send_messages(tmp_path, "4.9.8", **line)
            new = [tap.connection_count - count for tap, count in zip(taps, before, strict=True)]
            assert sorted(new) == [0, 0, 1]
            if all(tap.connection_count for tap in taps):
                return
        raise AssertionError(f"{CLIENT_STARTS_MAX} clients left a name server out: {new}")
