"""Requests and replies between Java's clients and ours, on our broker and on Apache's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bolide
from interop.clients import JavaAgent, java_agent
from interop.cluster import Station, java_station
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

TIMEOUT_S = 40.0
OLDEST = bolide.StartFrom.oldest()
LARGE = "tea " * 3_000  # beyond the size from which bodies are compressed


@contextmanager
def answering(station: Station, group: str, topic: str) -> Iterator[None]:
    """Our consumer, replying in capitals in a thread."""
    consumer = bolide.Consumer(group, topic, station.name_servers, start_from=OLDEST)

    def serve() -> None:
        for message in consumer:
            message.reply(message.body.upper())

    with consumer:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        consumer.close()
        thread.join(TIMEOUT_S)


def ask_java(agent: JavaAgent, topic: str, body: str) -> str:
    return agent.do("ask", topic=topic, body=body)


@pytest.mark.short
@pytest.mark.feature("X16")
def test_java_asks_and_answers_at_our_broker(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(f"JavaAsks-{agent.release.replace('.', '-')}")
    agent.do("answer", name=topic, group=f"of-{topic}", topic=topic)
    try:
        assert ask_java(agent, topic, "tea") == "TEA"
        assert ask_java(agent, topic, LARGE) == LARGE.upper()
    finally:
        agent.do("quit", name=topic)
    assert agent.events("unreplied") == []


@pytest.mark.short
def test_java_asks_and_we_answer_and_the_other_way_round(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(f"Mixed-{agent.release.replace('.', '-')}")
    with answering(station, f"ours-{topic}", topic):
        assert ask_java(agent, topic, "tea") == "TEA"
        assert ask_java(agent, topic, LARGE) == LARGE.upper()
    topic = station.make_topic(f"Mixed2-{agent.release.replace('.', '-')}")
    agent.do("answer", name=topic, group=f"of-{topic}", topic=topic)
    try:
        with bolide.Producer("py-askers", station.name_servers) as producer:
            assert producer.request(topic, b"cake", timeout_s=TIMEOUT_S).body == b"CAKE"
            large = producer.request(topic, LARGE.encode(), timeout_s=TIMEOUT_S)
            assert large.body == LARGE.upper().encode()
    finally:
        agent.do("quit", name=topic)


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp(f"replies-{request.param}"), request.param) as running:
        yield running


def test_our_clients_ask_and_answer_at_apaches_broker(apache: Station) -> None:
    topic = apache.make_topic("PyAsks")
    with (
        answering(apache, "py-answerers", topic),
        bolide.Producer("py-askers", apache.name_servers) as producer,
    ):
        assert producer.request(topic, b"tea", timeout_s=TIMEOUT_S).body == b"TEA"
        assert producer.request(topic, LARGE.encode(), timeout_s=TIMEOUT_S).body == LARGE.upper().encode()
    with (
        bolide.Producer("py-askers", apache.name_servers) as producer,
        pytest.raises(bolide.ReplyTimeout) as caught,
    ):
        producer.request(topic, b"nobody is left", timeout_s=2)
    assert (caught.value.code, caught.value.is_sent) == (10006, True)


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_java_and_we_answer_each_other_at_apaches_broker(apache: Station, release: str, tmp_path: Path) -> None:
    name = release.replace(".", "-")
    theirs, ours = apache.make_topic(f"TheyAnswer-{name}"), apache.make_topic(f"WeAnswer-{name}")
    with (
        java_agent(tmp_path, release, apache.name_servers) as agent,
        answering(apache, f"py-{name}", ours),
        bolide.Producer("py-askers", apache.name_servers) as producer,
    ):
        agent.do("answer", name=theirs, group=f"of-{theirs}", topic=theirs)
        assert ask_java(agent, ours, "tea") == "TEA"
        assert producer.request(theirs, b"cake", timeout_s=TIMEOUT_S).body == b"CAKE"
        await_that("the answer of the broker", lambda: agent.events("replied"), TIMEOUT_S)
