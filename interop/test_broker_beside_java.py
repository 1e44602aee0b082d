"""Our broker and a Java broker in one cluster, under our name server and under Java's: clients use both alike."""

from collections import Counter
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from interop import wire
from interop.clients import java_agent
from interop.cluster import bolide_broker, java_broker, name_server
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

TOPIC, GROUP = "Both", "of-both"
QUEUE_COUNT = 4
COUNT = 64
TIMEOUT_S = 45.0  # a 5.x client whose heartbeat meets its rebalance is refused until the next, for 30 s
SHORT = ("bolide", "4.9.7", "4.9.8")
BOTH = {"broker-a", "broker-b"}

# Our name server with each Java broker, each Java name server with the broker of its own release.
SERVERS = [("bolide", "4.9.7"), ("bolide", "5.5.0"), *zip(SERVER_RELEASES, SERVER_RELEASES, strict=True)]


@pytest.mark.parametrize(
    ("server_kind", "broker_release", "release"),
    [
        pytest.param(*servers, client, marks=[pytest.mark.short] if (*servers, client) == SHORT else [])
        for servers, client in product(SERVERS, CLIENT_RELEASES)
    ],
)
def test_clients_spread_over_both_brokers_and_outlive_the_loss_of_the_java_one(
    tmp_path: Path, stack: ExitStack, server_kind: str, broker_release: str, release: str
) -> None:
    server = stack.enter_context(name_server(tmp_path, server_kind))
    java = stack.enter_context(java_broker(tmp_path, broker_release, server.endpoint))
    ours = stack.enter_context(bolide_broker(tmp_path, server.endpoint))
    java.await_route(server)
    agent = stack.enter_context(java_agent(tmp_path, release, server.endpoint))
    assert "success" in agent.admin("updateTopic", "-c", java.cluster, "-t", TOPIC, "-r", "4", "-w", "4")
    await_that("both have it", lambda: wire.queue_counts(server.address, TOPIC).keys() == BOTH, TIMEOUT_S)

    agent.do("push", name="all", group=GROUP, topic=TOPIC)
    agent.do("send", topic=TOPIC, count=COUNT, prefix="both")
    events = agent.await_received("all", COUNT, TIMEOUT_S)
    places = Counter((event["broker"], event["queue"]) for event in events)
    assert places == {(broker, queue): COUNT // 8 for broker in BOTH for queue in range(QUEUE_COUNT)}

    for event in agent.events("sent")[:: COUNT // 8]:
        assert agent.do("view", topic=TOPIC, id=event["offsetId"]) == event["body"]
        assert agent.do("view", topic=TOPIC, id=event["id"]) == event["body"]
    if release[0] == broker_release[0]:  # a tool of one series fails at a Java broker of the other
        rows = [line.split() for line in agent.admin("topicStatus", "-t", TOPIC).splitlines()]
        assert {(words[0], words[3]) for words in rows if words and words[0] in BOTH} == {(name, "8") for name in BOTH}
        rows = [line.split() for line in agent.admin("clusterList").splitlines()]
        assert {words[3] for words in rows if words[:1] == [java.cluster]} == {java.endpoint, ours.endpoint}

    java.program.kill()
    agent.do("send", topic=TOPIC, count=COUNT, prefix="ours")
    assert {e["broker"] for e in agent.events("sent") if e["body"].startswith("ours")} == {ours.name}
    bodies = {event["body"] for event in agent.await_received("all", 2 * COUNT, TIMEOUT_S)[COUNT:]}
    assert bodies == {f"ours-{number}" for number in range(COUNT)}
