"""Messages that come later, between ours and Apache's: levels and timers, recalls, and stores that change hands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.testing.clusters import SMALL_FILES
from interop.clients import java_agent, java_client
from interop.cluster import Broker, Station, bolide_broker, bolide_name_server, bolide_up, java_broker, java_name_server
from interop.process import await_that, free_port
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

TIMEOUT_S = 60.0
TOPIC = "Later"
OLDEST = bolide.StartFrom.oldest()
SETTINGS: dict[str, object] = {"recallMessageEnable": "true"}


def consumed(name_servers: str, wanted: set[str]) -> list[bolide.Received]:
    """What came until all the wanted were there; a group that changed brokers may see others again."""
    taken: list[bolide.Received] = []
    with bolide.Consumer("later-cg", TOPIC, name_servers, start_from=OLDEST) as consumer:

        def probe() -> bool:
            for message in consumer.receive(32, timeout_s=0.5):
                taken.append(message)
                message.ack()
            return wanted <= {message.body.decode() for message in taken}

        await_that(f"{wanted} come", probe, TIMEOUT_S)
    return taken


def stored_count(name_servers: str) -> int:
    """How many messages the topic has, whoever has seen them: one that came a second time counts twice."""
    with bolide.Admin(name_servers) as admin:
        return sum(row.max_offset for row in admin.topic_queues(TOPIC))


def send_later(producer: bolide.Producer, has_timer: bool) -> set[str]:
    producer.send(TOPIC, b"level", tags="a", delay_level=2)
    if not has_timer:
        return {"level"}
    gone = producer.send(TOPIC, b"gone", delay=8)
    producer.send(TOPIC, b"timer", tags="a", delay=8)
    assert gone.recall_handle is not None
    assert producer.recall(gone.recall_handle) == gone.msg_id
    return {"level", "timer"}


@pytest.mark.feature("F088", "X02", "X03")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_apaches_broker_delivers_what_our_client_sends_for_later(tmp_path: Path, release: str) -> None:
    """What its consumers see of a level is what ours show: the three properties are still there."""
    with (
        java_name_server(tmp_path, release) as server,
        java_broker(tmp_path, release, server.endpoint, SETTINGS) as broker,
    ):
        broker.await_route(server)
        with bolide.Producer("later-pg", server.endpoint) as producer:
            wanted = send_later(producer, has_timer=release.startswith("5"))
        taken = {message.body.decode(): message for message in consumed(server.endpoint, wanted)}
        assert taken.keys() == wanted
        assert taken["level"].properties.items() >= {"DELAY": "2", "REAL_TOPIC": TOPIC}.items()
        if "timer" in wanted:
            assert {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_QID"} <= taken[
                "timer"
            ].properties.keys()


@pytest.mark.short
@pytest.mark.feature("F088", "F254")
@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_our_broker_delivers_what_javas_client_delays_by_a_level(tmp_path: Path, release: str) -> None:
    with bolide_up(tmp_path) as station, java_agent(tmp_path, release, station.name_servers) as agent:
        station.make_topic(TOPIC)
        agent.do("send", topic=TOPIC, count=3, prefix="late", level=2)
        taken = consumed(station.name_servers, {"late-0", "late-1", "late-2"})
        assert all(message.stored_at - message.born_at >= 5000 for message in taken)


@pytest.mark.short
@pytest.mark.feature("X02")
@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_apaches_tools_show_what_waits_in_our_timer(tmp_path: Path, release: str) -> None:
    with bolide_up(tmp_path) as station, java_agent(tmp_path, release, station.name_servers) as agent:
        station.make_topic(TOPIC)
        with bolide.Producer("later-pg", station.name_servers) as producer:
            for _ in range(3):
                producer.send(TOPIC, b"much later", delay=600)

        def probe() -> dict[str, str] | None:
            lines = agent.admin("brokerStatus", "-b", station.endpoint).splitlines()
            table = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
            return table if table["timerCongestNum"] == "3" else None

        table = await_that("three wait", probe, TIMEOUT_S)
        assert (table["timerReadBehind"], table["timerOffsetBehind"], table["timerDequeueTps"]) == ("0", "0", "0.0")
        assert float(table["timerEnqueueTps"]) > 0


@pytest.mark.short
@pytest.mark.feature("X02", "X03")
def test_our_broker_delivers_what_javas_client_times_and_nothing_it_takes_back(tmp_path: Path) -> None:
    """Four fall due together, so that the one that was taken back would have been there with the others."""
    with bolide_up(tmp_path, SETTINGS) as station:
        station.make_topic(TOPIC)
        station.make_topic(f"{TOPIC}Not")
        with java_client(tmp_path, "5.5.0", "Later", {"namesrv": station.name_servers, "topic": TOPIC}) as client:
            client.program.await_output('"done"', TIMEOUT_S)
        sent = {event["body"]: event for event in client.events("sent")}
        assert [event["id"] for event in client.events("recalled")] == [sent["gone"]["id"]] * 2
        elsewhere, too_late = client.events("refused")
        assert (elsewhere["topic"], too_late["topic"]) == (f"{TOPIC}Not", TOPIC)
        assert "topic not match" in elsewhere["problem"]
        assert "timestamp invalid" in too_late["problem"]
        taken = consumed(station.name_servers, {"delayMs", "delaySec", "deliverMs", "early"})
        assert sorted(message.body for message in taken) == [b"delayMs", b"delaySec", b"deliverMs", b"early"]
        assert stored_count(station.name_servers) == 4
        for message in taken:
            event = sent[message.body.decode()]
            assert message.msg_id == event["id"]
            assert message.stored_at >= event["due"]


@contextmanager
def either(kind: str, directory: Path, name_servers: str, port: int) -> Iterator[Station | Broker]:
    """A broker, ours or Java's, on the same store; it is stopped at the end, so that what it did is all on disk."""
    if kind == "bolide":
        with bolide_broker(directory, name_servers, SETTINGS, port) as station:
            yield station
            station.program.stop()
        return
    root = directory / f"bolide-broker-{port}" / "store"
    settings: dict[str, Any] = {**SMALL_FILES, **SETTINGS, "brokerName": "broker-b"}
    settings |= {"storePathRootDir": root, "storePathCommitLog": root / "commitlog"}
    settings |= {"mappedFileSizeCommitLog": 16 << 20}
    with java_broker(directory, kind, name_servers, settings) as broker:
        yield broker
        broker.program.stop()


@pytest.mark.feature("X02", "F256")
@pytest.mark.parametrize("kinds", [("bolide", "5.5.0"), ("5.5.0", "bolide")], ids=["to Java", "to ours"])
def test_waiting_messages_of_a_store_that_changes_hands_are_delivered(tmp_path: Path, kinds: tuple[str, str]) -> None:
    port = free_port(-2, 1)
    with bolide_name_server(tmp_path) as server:
        with (
            either(kinds[0], tmp_path, server.endpoint, port),
            bolide.Producer("later-pg", server.endpoint) as producer,
        ):
            producer.send(TOPIC, b"now")
            producer.send(TOPIC, b"level", delay_level=4)
            producer.send(TOPIC, b"timer", delay=30)
            assert {message.body for message in consumed(server.endpoint, {"now"})} == {b"now"}
        with either(kinds[1], tmp_path, server.endpoint, port):
            bodies = [message.body for message in consumed(server.endpoint, {"level", "timer"})]
            assert sorted(bodies) == [b"level", b"timer"]
            assert stored_count(server.endpoint) == 3
