"""Messages that come later, between ours and Apache's: levels and timers, recalls, and stores that change hands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.testing.clusters import SMALL_FILES
from interop.clients import java_agent
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


@contextmanager
def either(kind: str, directory: Path, name_servers: str, port: int) -> Iterator[Station | Broker]:
    """A broker, ours or Java's, on the same store."""
    if kind == "bolide":
        with bolide_broker(directory, name_servers, SETTINGS, port) as station:
            yield station
        return
    root = directory / f"bolide-broker-{port}" / "store"
    settings: dict[str, Any] = {**SMALL_FILES, **SETTINGS, "brokerName": "broker-b"}
    settings |= {"storePathRootDir": root, "storePathCommitLog": root / "commitlog"}
    settings |= {"mappedFileSizeCommitLog": 16 << 20}
    with java_broker(directory, kind, name_servers, settings) as broker:
        yield broker


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
            bodies = {message.body for message in consumed(server.endpoint, {"level", "timer"})}
            assert bodies <= {b"now", b"level", b"timer"}
