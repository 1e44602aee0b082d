"""The released mqadmin against the name server: every command that speaks to it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from interop import wire
from interop.clients import java_agent
from interop.cluster import NameServer
from interop.conftest import Cluster, StartNameServer
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES
from interop.tools import QuickTool, Tool

TIMEOUT_S = 20.0
PUT_KV_CONFIG = 100
UPDATE_TOPIC = 17
GET_ALL_TOPIC_CONFIG = 21
UPDATE_NAMESRV_CONFIG, GET_NAMESRV_CONFIG = 318, 319
WRITE = 2


@pytest.fixture(scope="module")
def quick_tool(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], QuickTool]]:
    """mqadmin of a release in a JVM that all scenarios share."""
    with ExitStack() as stack:

        @cache
        def start(release: str) -> QuickTool:
            home = tmp_path_factory.mktemp("mqadmin")
            return QuickTool(stack.enter_context(java_agent(home, release, cluster.server.endpoint)))

        yield start


@pytest.fixture(params=[pytest.param("of the same series", marks=pytest.mark.short), "of the other series"])
def tool(request: pytest.FixtureRequest, cluster: Cluster, quick_tool: Callable[[str], QuickTool]) -> QuickTool:
    """mqadmin, once of the broker's own series and once of the other."""
    same = SERVER_RELEASES.index(cluster.broker.release)
    return quick_tool(CLIENT_RELEASES[same if request.param == "of the same series" else 1 - same])


@pytest.fixture(params=CLIENT_RELEASES)
def any_tool(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Tool:
    """mqadmin of either release, for what is left to the long form."""
    return Tool(request.param, cluster.server.endpoint, tmp_path)


def make_topic(cluster: Cluster, topic: str, queue_count: int = 4) -> None:
    """Have the broker make a topic, and wait until it is routed."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queue_count),
        "writeQueueNums": str(queue_count),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = wire.call(cluster.broker.address, UPDATE_TOPIC, fields)
    assert answer.code == 0, answer
    await_that(f"{topic} is routed", lambda: wire.route(cluster.server.address, topic), TIMEOUT_S)


def put_key(server: NameServer, namespace: str, key: str, value: str) -> None:
    answer = wire.call(server.address, PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})
    assert answer.code == 0, answer


def keys(server: NameServer, namespace: str) -> dict[str, str]:
    answer = wire.call(server.address, wire.GET_KV_LIST, {"namespace": namespace})
    table: dict[str, str] = json.loads(answer.body)["table"] if answer.code == 0 else {}
    return table


def words(text: str) -> set[str]:
    return set(text.split())


def test_lists_show_the_broker_its_topics_and_their_route(tool: QuickTool, cluster: Cluster) -> None:
    address, broker = cluster.server.address, cluster.broker
    commands = [
        ["topicList"],
        ["topicList", "-c"],
        ["topicRoute", "-t", "TBW102"],
        ["topicClusterList", "-t", "TBW102"],
        ["clusterList"],
    ]
    if (tool.release, broker.release) == ("4.9.8", "5.5.0"):
        del commands[-1]  # the older tool fails on what a 5.x broker tells about itself, whatever is between
    topics, by_cluster, route, cluster_of_topic, *clusters = tool.run_together(*commands)
    assert wire.topics(address) <= words(topics)
    assert {broker.cluster, "TBW102"} <= words(by_cluster)
    shown = wire.parse(re.sub(r"\s", "", route).encode())
    assert shown["brokerDatas"][0]["brokerAddrs"] == {"0": broker.endpoint}
    assert shown["queueDatas"] == (wire.route(address, "TBW102") or {})["queueDatas"]
    assert broker.cluster in words(cluster_of_topic)
    version = f"V{broker.release.replace('.', '_')}"
    for text in clusters:
        assert {broker.cluster, broker.name, broker.endpoint, version} <= words(text)


def test_keys_are_put_and_deleted(tool: QuickTool, cluster: Cluster) -> None:
    namespace = f"of-{tool.release}"
    put_key(cluster.server, namespace, "shape", "round")
    tool.run_together(
        ["updateKvConfig", "-s", namespace, "-k", "colour", "-v", "blue"],
        ["deleteKvConfig", "-s", namespace, "-k", "shape"],
    )
    assert keys(cluster.server, namespace) == {"colour": "blue"}


def test_write_permission_is_wiped_and_added_in_every_topic_of_a_broker(tool: QuickTool, cluster: Cluster) -> None:
    address, name = cluster.server.address, cluster.broker.name
    cluster.broker.register_now()  # a changed table that is still to be told would give the permission back
    count = len([topic for topic in wire.topics(address) if name in wire.queue_counts(address, topic)])
    wiped = tool.run("wipeWritePerm", "-b", name)
    assert re.search(rf"OK, {count}\b", wiped), wiped
    assert wire.queue_counts(address, "TBW102")[name][2] & WRITE == 0
    added = tool.run("addWritePerm", "-b", name)
    assert re.search(rf"OK, {count}\b", added), added
    assert wire.queue_counts(address, "TBW102")[name][2] & WRITE


def test_name_server_settings_are_shown_and_changed(any_tool: Tool, cluster: Cluster) -> None:
    address = cluster.server.address
    assert wire.call(address, UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=false\n").code == 0
    assert re.search(r"^orderMessageEnable\s*=\s*false", any_tool.run("getNamesrvConfig"), re.MULTILINE)
    any_tool.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert b"orderMessageEnable=true" in wire.call(address, GET_NAMESRV_CONFIG).body


@pytest.mark.feature("F021")
def test_a_changed_topic_changes_its_route_and_a_deleted_one_loses_it(tool: QuickTool, cluster: Cluster) -> None:
    address, name = cluster.server.address, cluster.broker.cluster
    grows, goes = (f"{what}-{tool.release.replace('.', '-')}" for what in ("Grows", "Goes"))
    make_topic(cluster, grows)
    make_topic(cluster, goes)
    tool.run_together(
        ["updateTopic", "-c", name, "-t", grows, "-r", "6", "-w", "5"], ["deleteTopic", "-c", name, "-t", goes]
    )
    grown = {cluster.broker.name: (6, 5, 6)}
    await_that("new counts", lambda: wire.queue_counts(address, grows) == grown, TIMEOUT_S)
    assert wire.route(address, goes) is None


def test_an_order_configuration_is_put_read_and_deleted_and_the_broker_hears_of_it(
    any_tool: Tool, cluster: Cluster
) -> None:
    topic = f"Ordered-{any_tool.release.replace('.', '-')}"
    make_topic(cluster, topic)
    order = f"{cluster.broker.name}:4"
    any_tool.run("updateOrderConf", "-t", topic, "-m", "put", "-v", order)
    assert order in any_tool.run("updateOrderConf", "-t", topic, "-m", "get")
    cluster.broker.register_now()
    await_that("the broker marks its topic", lambda: is_ordered_at_broker(cluster, topic), TIMEOUT_S)
    any_tool.run("updateOrderConf", "-t", topic, "-m", "delete")
    assert topic not in keys(cluster.server, "ORDER_TOPIC_CONFIG")


def is_ordered_at_broker(cluster: Cluster, topic: str) -> bool:
    answer = wire.call(cluster.broker.address, GET_ALL_TOPIC_CONFIG)
    config = wire.parse(answer.body)["topicConfigTable"][topic]
    return bool(config["order"])


@pytest.mark.feature("F033")
def test_a_key_survives_a_restart(start_name_server: StartNameServer, tmp_path: Path) -> None:
    first = start_name_server()
    Tool("5.5.0", first.endpoint, tmp_path).run("updateKvConfig", "-s", "shop", "-k", "colour", "-v", "blue")
    first.program.stop()
    second = start_name_server(port=first.address[1])
    assert keys(second, "shop") == {"colour": "blue"}
