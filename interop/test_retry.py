"""What fails comes again and then lies with the dead: Java's consumers at our broker, ours at Java's, and stores that
change hands while messages wait for their next attempt.

The delay levels are a second each, so that sixteen retries need not take five hours.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import bolide
from bolide.admin.deadletters import DeadLetter
from bolide.testing.clusters import SMALL_FILES
from interop.clients import IMPATIENT, JavaAgent, java_agent
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
from interop.test_broker_consuming import Scene
from interop.test_client_java import reader

TIMEOUT_S = 60.0
LEVELS = {"messageDelayLevel": " ".join(["1s"] * 18)}
# The first retry waits for long enough to stop one broker and start another.
SLOW_LEVELS = {"messageDelayLevel": " ".join(["1s", "1s", "8s", *["1s"] * 15])}
STORE_NAME = {"brokerName": "broker-x", "brokerClusterName": "InteropCluster"}

short = pytest.mark.short
releases = pytest.mark.parametrize("release", SERVER_RELEASES)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with bolide_up(tmp_path_factory.mktemp("retry"), LEVELS) as station:
        yield station


@pytest.fixture(scope="module", params=CLIENT_RELEASES)
def java(
    request: pytest.FixtureRequest, ours: Station, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    with java_agent(tmp_path_factory.mktemp("agent"), request.param, ours.name_servers, **IMPATIENT) as agent:
        yield agent


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    directory, release = tmp_path_factory.mktemp(f"apache-{request.param}"), request.param
    with (
        java_name_server(directory, release) as server,
        java_broker(directory, release, server.endpoint, LEVELS) as broker,
    ):
        broker.await_route(server)
        yield Station(broker.program, broker.name, broker.cluster, broker.endpoint, server.endpoint)


def dead_letters(name_servers: str, group: str, count: int) -> list[DeadLetter]:
    """The dead letters of a group, once there are so many."""

    def look() -> list[DeadLetter] | None:
        with bolide.Admin(name_servers) as admin:
            found = list(admin.dead_letters(group))
        return found if len(found) >= count else None

    return await_that(f"{count} dead letters of {group}", look, TIMEOUT_S)


def times_of(agent: JavaAgent, consumer: str) -> dict[str, list[int]]:
    """How often each message had failed when it was delivered, delivery by delivery."""
    found = defaultdict(list)
    for event in agent.received(consumer):
        found[event["body"]].append(event["times"])
    return found


# Java's consumers at our broker


@short
@pytest.mark.feature("F242", "F246", "F248")
def test_a_concurrent_listener_gets_what_it_refuses_again_until_it_is_dead(java: JavaAgent, ours: Station) -> None:
    scene = Scene(java, ours, "Refused")
    bad, good = scene.send("bad", 3), scene.send("good", 3)
    consumer = scene.push("refusing", bad="bad", maxTimes=2)
    letters = dead_letters(ours.name_servers, scene.group, 3)
    scene.await_bodies(consumer, good)
    scene.stop()
    assert {letter.message.body.decode().split(" ")[0] for letter in letters} == bad
    assert {(letter.origin_topic, letter.failure_count) for letter in letters} == {(scene.topic, 3)}
    seen = times_of(java, consumer)
    assert seen == {**{body: [0, 1, 2] for body in bad}, **{body: [0] for body in good}}
    assert {event["topic"] for event in java.received(consumer)} == {scene.topic}
    topic = f"%DLQ%{scene.group}"
    assert "3" in java.admin("topicStatus", "-t", topic)
    shown = java.admin("queryMsgByUniqueKey", "-t", topic, "-i", letters[0].id)
    assert letters[0].id in shown


def test_a_listener_that_throws_or_gives_up_at_once_is_understood(java: JavaAgent, ours: Station) -> None:
    throwing, giving_up = Scene(java, ours, "Thrown"), Scene(java, ours, "GivenUp")
    throwing.send("bad", 2)
    giving_up.send("bad", 2)
    thrower = throwing.push("throwing", bad="bad", maxTimes=1, throw=True)
    quitter = giving_up.push("quitting", bad="bad", level=-1)
    for scene, consumer, times in ((throwing, thrower, [0, 1]), (giving_up, quitter, [0])):
        letters = dead_letters(ours.name_servers, scene.group, 2)
        assert {letter.failure_count for letter in letters} == {len(times)}
        scene.stop()
        assert list(times_of(java, consumer).values()) == [times, times]


@pytest.mark.feature("F243")
def test_without_a_limit_of_its_own_a_message_is_delivered_17_times(java: JavaAgent, ours: Station) -> None:
    scene = Scene(java, ours, "Sixteen", 1)
    scene.send("bad", 1)
    consumer = scene.push("refusing", bad="bad")
    (letter,) = dead_letters(ours.name_servers, scene.group, 1)
    scene.stop()
    assert letter.failure_count == 17
    assert times_of(java, consumer) == {"bad-0": list(range(17))}


@short
def test_an_orderly_listener_tries_at_home_and_then_gives_to_the_dead(java: JavaAgent, ours: Station) -> None:
    scene = Scene(java, ours, "OrderlyDead", 1)
    bodies = scene.send("bad", 1) | scene.send("good", 3)
    consumer = scene.push("orderly", bad="bad", orderly=True, maxTimes=2)
    scene.await_bodies(consumer, bodies)
    (letter,) = dead_letters(ours.name_servers, scene.group, 1)
    scene.stop()
    assert (letter.message.body.decode().split(" ")[0], letter.origin_topic) == ("bad-0", scene.topic)
    assert [event["body"] for event in java.received(consumer)] == ["bad-0"] * 3 + [f"good-{n}" for n in range(3)]


# Our consumer at Java's broker


@short
@pytest.mark.feature("F242", "F253")
def test_our_consumer_is_retried_by_a_java_broker_and_its_dead_are_sent_again(apache: Station) -> None:
    topic, group = apache.make_topic("PyRetried", 2), "py-retried"
    attempts: dict[bytes, list[int]] = defaultdict(list)

    def judge(message: bolide.Received) -> None:
        attempts[message.body].append(message.attempt)
        if message.body == b"bad":
            message.nack(delay=1)
        elif message.body == b"hopeless":
            message.dead_letter("no such account: 7")

    with bolide.Producer("py-producers", apache.name_servers) as producer:
        for body in (b"bad", b"hopeless", b"good"):
            producer.send(topic, body, tags="A", keys=["k"])
    with reader(apache, group, topic, act=judge, retry_count_max=2):
        letters = dead_letters(apache.name_servers, group, 2)
    assert attempts == {b"bad": [1, 2, 3], b"hopeless": [1], b"good": [1]}
    told = {letter.message.body: (letter.origin_topic, letter.failure_count, letter.reason) for letter in letters}
    assert told == {b"bad": (topic, 3, ""), b"hopeless": (topic, 1, "no such account: 7")}
    with bolide.Admin(apache.name_servers) as admin:
        assert admin.resend_dead_letters(group).sent_count == 2
    with reader(apache, group, topic) as again:
        again.await_bodies({"bad", "hopeless"})
    resent = [message for message in again.taken if message.body in (b"bad", b"hopeless")]
    assert {(m.attempt, m.tags, m.properties["BOLIDE_RESENT_FROM"]) for m in resent} == {(1, "A", f"%DLQ%{group}")}


def test_our_ordered_consumer_gives_to_the_dead_of_a_java_broker(apache: Station) -> None:
    topic, group = apache.make_topic("PyOrderedDead", 1), "py-ordered-dead"
    with bolide.Producer("py-producers", apache.name_servers) as producer:
        for body in (b"bad", b"1", b"2"):
            producer.send(topic, body, shard="one")

    def judge(message: bolide.Received) -> None:
        if message.body == b"bad":
            message.nack(delay=0.1, reason="out of order")

    with reader(apache, group, topic, act=judge, ordered=True, retry_count_max=2) as member:
        member.await_bodies({"1", "2"})
        (letter,) = dead_letters(apache.name_servers, group, 1)
    assert member.bodies == ["bad", "bad", "bad", "1", "2"]
    assert (letter.message.body, letter.reason) == (b"bad", "out of order")


# Stores that change hands


def java_settings(store: Path) -> dict[str, object]:
    """A Java broker on a store with files of our size; 4.9 spells it otherwise."""
    paths = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    queue_size = SMALL_FILES["mappedFileSizeConsumeQueue"]
    sizes = {name: SMALL_FILES[name] for name in ("maxHashSlotNum", "maxIndexNum")}
    sizes |= {"mapedFileSizeConsumeQueue": queue_size, "mappedFileSizeConsumeQueue": queue_size}
    return {**SLOW_LEVELS, **STORE_NAME, **sizes, **paths}


def fail_once(name_servers: str, topic: str, group: str) -> None:
    """Two messages: one waits for its next attempt now, one is dead."""
    station = Station(None, "", "", "", name_servers)  # type: ignore[arg-type]
    with bolide.Producer("py-producers", name_servers) as producer:
        for body in (b"later", b"never"):
            producer.send(topic, body, keys=["k"])

    def judge(message: bolide.Received) -> None:
        if message.body == b"never":
            message.dead_letter("cannot be done")
        else:
            message.nack()

    with reader(station, group, topic, act=judge) as member:
        member.await_bodies({"later", "never"})
    dead_letters(name_servers, group, 1)


def goes_on(name_servers: str, topic: str, group: str) -> None:
    """What waited comes again once, and what was dead is still there."""
    station = Station(None, "", "", "", name_servers)  # type: ignore[arg-type]
    with reader(station, group, topic) as member:
        member.await_bodies({"later"})
    assert [(m.body, m.attempt, m.topic) for m in member.taken] == [(b"later", 2, topic)]
    (letter,) = dead_letters(name_servers, group, 1)
    assert (letter.message.body, letter.reason, letter.origin_topic) == (b"never", "cannot be done", topic)


@releases
def test_a_java_broker_goes_on_with_what_we_took_back(tmp_path: Path, release: str) -> None:
    with bolide_name_server(tmp_path) as server:
        with bolide_broker(tmp_path, server.endpoint, {**SLOW_LEVELS, **STORE_NAME}) as broker:
            store = next(tmp_path.glob("bolide-broker-*")) / "store"
            topic = broker.make_topic("Moved")
            fail_once(server.endpoint, topic, "movers")
            broker.program.stop()
        settings = java_settings(store)
        with java_broker(tmp_path, release, server.endpoint, settings) as broker:
            broker.await_route(server)
            goes_on(server.endpoint, topic, "movers")


@releases
def test_we_go_on_with_what_a_java_broker_took_back(tmp_path: Path, release: str) -> None:
    with bolide_name_server(tmp_path) as server:
        home = tmp_path / "bolide-broker-0"
        store = home / "store"
        settings = java_settings(store)
        with java_broker(tmp_path, release, server.endpoint, settings) as broker:
            broker.await_route(server)
            station = Station(broker.program, broker.name, broker.cluster, broker.endpoint, server.endpoint)
            topic = station.make_topic("Moved")
            fail_once(server.endpoint, topic, "movers")
            broker.program.stop()
        port = _free_port_for(home)
        with bolide_broker(tmp_path, server.endpoint, {**SLOW_LEVELS, **STORE_NAME}, port=port):
            goes_on(server.endpoint, topic, "movers")


def _free_port_for(home: Path) -> int:
    """A port for a broker that finds the store under its own home."""
    port = free_port(-2)
    home.rename(home.with_name(f"bolide-broker-{port}"))
    return port
