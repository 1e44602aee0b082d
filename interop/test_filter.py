"""SQL92 filters: RocketMQ's consumers at our broker, our consumer at its broker, and the file that both keep."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.errors import ClientError
from bolide.filter.bloom import bloom_positions, bloom_size
from bolide.testing.clusters import SMALL_FILES
from interop import wire
from interop.clients import JavaAgent, java_agent
from interop.cluster import (
    Station,
    bolide_broker,
    bolide_name_server,
    bolide_up,
    java_broker,
    java_name_server,
)
from interop.process import await_that, free_port
from interop.release import CLIENT_RELEASES, SERVER_RELEASES
from interop.test_client_java import Reader

TIMEOUT_S = 45.0
SET_REQUEST_MODE = 401
ON = {"enablePropertyFilter": True}
EXPRESSION = "a > 5 AND (region IN ('north', 'south') OR note IS NOT NULL) AND path NOT CONTAINS '/test/'"
EXPRESSION_4 = "a > 5 AND (region IN ('north', 'south') OR note IS NOT NULL) AND NOT (path = '/test/')"
OLDEST = bolide.StartFrom.oldest()


def messages(prefix: str) -> dict[str, dict[str, str]]:
    """Body → properties of messages of all kinds."""
    return {
        f"{prefix}-{number}": {
            "a": ("many" if number == 13 else str(number)),
            "region": ("north", "east")[number % 2],
            "path": ("/live/", "/test/", "/live/")[number % 3],
            **({"note": "x"} if number % 5 == 0 else {}),
        }
        for number in range(40)
    }


def wanted(sent: dict[str, dict[str, str]]) -> set[str]:
    """Those that satisfy the expressions, worked out by hand."""
    return {
        body
        for body, properties in sent.items()
        if properties["a"].isdecimal()
        and int(properties["a"]) > 5
        and (properties["region"] == "north" or "note" in properties)
        and properties["path"] != "/test/"
    }


def send(name_servers: str, topic: str, prefix: str) -> set[str]:
    """Send messages of all kinds; those that are wanted are returned."""
    sent = messages(prefix)
    with bolide.Producer("filter-producers", name_servers) as producer:
        for body, properties in sent.items():
            producer.send(topic, body.encode(), properties=properties)
    return wanted(sent)


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with bolide_up(tmp_path_factory.mktemp("bolide"), ON) as broker:
        yield broker


@pytest.fixture(scope="module", params=CLIENT_RELEASES)
def agent(
    request: pytest.FixtureRequest, station: Station, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    with java_agent(tmp_path_factory.mktemp("agent"), request.param, station.name_servers) as running:
        yield running


def await_bodies(agent: JavaAgent, consumer: str, bodies: set[str]) -> None:
    claim = f"{len(bodies)} bodies at {consumer} in {agent.program.log}"
    await_that(claim, lambda: bodies <= {event["body"] for event in agent.received(consumer)}, TIMEOUT_S)
    assert {event["body"] for event in agent.received(consumer)} == bodies


@pytest.mark.short
@pytest.mark.feature("F267", "F268", "X32")
def test_a_java_push_consumer_gets_what_satisfies_its_expression(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(f"SqlPush-{agent.release.replace('.', '-')}")
    before = send(station.name_servers, topic, "before")
    agent.do("push", name=topic, group=f"of-{topic}", topic=topic, sql=EXPRESSION)
    await_bodies(agent, topic, before)
    during = send(station.name_servers, topic, "during")
    await_bodies(agent, topic, before | during)
    agent.do("stop", name=topic)


@pytest.mark.feature("F269")
def test_a_java_lite_pull_consumer_gets_what_satisfies_its_expression(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(f"SqlLite-{agent.release.replace('.', '-')}")
    bodies = send(station.name_servers, topic, "lite")
    agent.do("lite", name=topic, group=f"of-{topic}", topic=topic, sql=EXPRESSION)
    agent.do("poll", name=topic, count=len(bodies), limitMs=30_000)
    assert {event["body"] for event in agent.received(topic)} == bodies


@pytest.mark.feature("F270")
def test_an_expression_that_is_none_stops_a_java_consumer_at_its_start(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(f"SqlBad-{agent.release.replace('.', '-')}")
    send(station.name_servers, topic, "bad")
    with pytest.raises(AssertionError, match="problem"):
        agent.do("push", name=topic, group=f"of-{topic}", topic=topic, sql="a > 5 AND (")


def test_a_java_consumer_that_pops_gets_what_satisfies_its_expression(agent: JavaAgent, station: Station) -> None:
    if agent.release != "5.5.0":
        pytest.skip("4.9 does not pop")
    topic = station.make_topic("SqlPop")
    mode = {"consumerGroup": f"of-{topic}", "mode": "POP", "popShareQueueNum": 0, "topic": topic}
    assert wire.call(station.address, SET_REQUEST_MODE, body=json.dumps(mode).encode()).code == 0
    before = send(station.name_servers, topic, "before")
    agent.do("push", name=topic, group=f"of-{topic}", topic=topic, sql=EXPRESSION, pop=True)
    await_bodies(agent, topic, before)
    during = send(station.name_servers, topic, "during")
    await_bodies(agent, topic, before | during)
    agent.do("stop", name=topic)


@contextmanager
def java_at(directory: Path, release: str, store: Path, **settings: Any) -> Iterator[Station]:
    files = {**SMALL_FILES, "mappedFileSizeCommitLog": 16 << 20}
    files |= {key.replace("mapped", "maped"): value for key, value in files.items() if "mapped" in key}  # 4.9's names
    kept = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog", **files, **ON, **settings}
    with (
        java_name_server(directory, release) as server,
        java_broker(directory, release, server.endpoint, kept) as broker,
    ):
        broker.await_route(server)
        yield Station(broker.program, broker.name, broker.cluster, broker.endpoint, server.endpoint)


@contextmanager
def bolide_at(directory: Path, store: Path, **settings: Any) -> Iterator[Station]:
    port = free_port(-2)
    home = directory / f"bolide-broker-{port}"
    home.mkdir(parents=True)
    store.mkdir(exist_ok=True)
    (home / "store").symlink_to(store)  # where the scenario's broker keeps its data
    kept = {"brokerName": "broker-a", **ON, **settings}
    with (
        bolide_name_server(directory) as server,
        bolide_broker(directory, server.endpoint, kept, port) as broker,
    ):
        yield broker


def expression_for(release: str) -> str:
    """4.9 has no CONTAINS."""
    return EXPRESSION if release.startswith("5") else EXPRESSION_4


@pytest.mark.parametrize("release", [SERVER_RELEASES[0], pytest.param(SERVER_RELEASES[1], marks=pytest.mark.short)])
def test_our_consumer_gets_the_same_from_a_java_broker_and_its_filters_stay_with_ours(
    tmp_path: Path, release: str
) -> None:
    store, expression = tmp_path / "store", expression_for(release)
    with java_at(tmp_path / "java", release, store) as java:
        topic = java.make_topic("Sql")
        bodies = send(java.name_servers, topic, "x")
        consumer = bolide.Consumer("py", {topic: bolide.Sql(expression)}, java.name_servers, start_from=OLDEST)
        with Reader(consumer) as reader:
            reader.await_bodies(bodies)
            assert set(reader.bodies) == bodies
        with bolide.PullConsumer("walker", java.name_servers) as walker:
            found = {
                message.body.decode()
                for queue in walker.queues(topic)
                for message in walker.pull(queue, 0, expression=bolide.Sql(expression)).messages
            }
            assert found == bodies
        bad = bolide.Consumer("bad", {topic: bolide.Sql("a = 99999999999")}, java.name_servers)
        bad.start()
        bad.close()
        java.program.stop()
    kept = filters_of(store)["Sql"]["py"]
    assert (kept["expression"], kept["bloomFilterData"]["bitNum"]) == (expression, bloom_size(20, 32).bit_count)
    assert kept["bloomFilterData"]["bitPos"] == bloom_positions("py#Sql", bloom_size(20, 32))
    with bolide_at(tmp_path / "ours", store) as ours:
        later = send(ours.name_servers, topic, "y")
        consumer = bolide.Consumer("py", {topic: bolide.Sql(expression)}, ours.name_servers)
        with Reader(consumer) as reader:
            reader.await_bodies(later)
            assert set(reader.bodies) == later
        ours.program.stop()
    again = filters_of(store)["Sql"]["py"]
    assert again["bornTime"] == kept["bornTime"], "it was taken over, not made anew"
    assert again["clientVersion"] > kept["clientVersion"]


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_filters_that_we_kept_are_taken_over_by_a_java_broker(tmp_path: Path, release: str) -> None:
    store, expression = tmp_path / "store", expression_for(release)
    with bolide_at(tmp_path / "ours", store) as ours:
        topic = ours.make_topic("Sql")
        bodies = send(ours.name_servers, topic, "x")
        consumer = bolide.Consumer("py", {topic: bolide.Sql(expression)}, ours.name_servers, start_from=OLDEST)
        with Reader(consumer) as reader:
            reader.await_bodies(bodies)
        ours.program.stop()
    kept = filters_of(store)["Sql"]["py"]
    with java_at(tmp_path / "java", release, store) as java:
        later = send(java.name_servers, topic, "y")
        consumer = bolide.Consumer("py", {topic: bolide.Sql(expression)}, java.name_servers)
        with Reader(consumer) as reader:
            reader.await_bodies(later)
        java.program.stop()
    again = filters_of(store)["Sql"]["py"]
    assert (again["bornTime"], again["bloomFilterData"]) == (kept["bornTime"], kept["bloomFilterData"])
    assert again["clientVersion"] > kept["clientVersion"]


def filters_of(store: Path) -> dict[str, dict[str, Any]]:
    """What consumerFilter.json says: topic → group → filter."""
    document = json.loads((store / "config" / "consumerFilter.json").read_text())
    return {topic: kept["groupFilterData"] for topic, kept in document["filterDataByTopic"].items()}


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_java_broker_that_does_not_filter_says_so_to_our_consumer(tmp_path: Path, release: str) -> None:
    with java_at(tmp_path, release, tmp_path / "store", enablePropertyFilter=False) as java:
        topic = java.make_topic("Sql")
        consumer = bolide.Consumer("py", {topic: bolide.Sql("a > 1")}, java.name_servers)
        with pytest.raises(ClientError, match="does not support"):
            consumer.start()
