"""RocketMQ's Go client (github.com/apache/rocketmq-client-go, 2.1.2) at our broker, straight and otherwise.

The flows are in `go/main.go`, a process each; delay levels are short, so that nothing takes long. Without Go they are
skipped: Java is what this directory cannot do without.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bolide
from interop.clients import JavaClient
from interop.cluster import Station, bolide_up
from interop.process import running
from interop.release import go_program
from interop.test_retry import dead_letters
from interop.test_trace import wanted_trace

LIMIT_S = 90.0
SETTINGS: dict[str, object] = {
    "enablePropertyFilter": True,
    "messageDelayLevel": " ".join(["1s", "2s", *["1s"] * 16]),
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
}

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here: install golang")


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with bolide_up(tmp_path_factory.mktemp("go"), SETTINGS) as up:
        yield up


@contextmanager
def flowing(station: Station, directory: Path, name: str) -> Iterator[JavaClient]:
    """A flow that went through; its program still runs."""
    command = [str(go_program()), station.name_servers, name]
    with running(name, command, directory, {"HOME": str(directory)}) as program:
        program.await_output('"done"', LIMIT_S)
        client = JavaClient(program)
        assert all(event["status"] for event in client.events("sent"))
        yield client


def flow(station: Station, directory: Path, name: str) -> JavaClient:
    """What the client told of a flow that went through."""
    with flowing(station, directory, name) as client:
        return client


def bodies(client: JavaClient) -> list[str]:
    return [event["body"] for event in client.events("received")]


def test_every_way_to_send_arrives(station: Station, tmp_path: Path) -> None:
    client = flow(station, tmp_path, "sending")
    assert sorted(bodies(client)) == sorted(
        ["alone", "batch-0", "batch-1", "batch-2", "async", "oneway", "large" * 2000]
    )
    assert {(event["tags"], event["keys"]) for event in client.events("received")} >= {("TagA", "key-alone")}


@pytest.mark.feature("F088")
def test_delay_levels_are_waited_for(station: Station, tmp_path: Path) -> None:
    client = flow(station, tmp_path, "delay")
    waited = {event["body"]: event["waited"] // 1000 for event in client.events("received")}
    assert (waited["now"], waited["level-1"], waited["level-2"]) == (0, 1, 2)


@pytest.mark.feature("F242", "F248")
def test_what_is_refused_comes_again_and_then_lies_with_the_dead(station: Station, tmp_path: Path) -> None:
    client = flow(station, tmp_path, "retry")
    times = [(event["body"], event["times"], event["topic"]) for event in client.events("received")]
    assert sorted(times) == [("bad", n, "GoRetry") for n in range(3)] + [("good", 0, "GoRetry")]
    (letter,) = dead_letters(station.name_servers, "go-retry", 1)
    assert (letter.message.body, letter.origin_topic, letter.failure_count) == (b"bad", "GoRetry", 3)


def test_a_queue_in_order_waits_for_the_message_that_is_put_off(station: Station, tmp_path: Path) -> None:
    assert bodies(flow(station, tmp_path, "ordered")) == ["0", "1", "2", "2", "3", "4"]


@pytest.mark.feature("F292", "F294")
def test_transactions_are_committed_rolled_back_and_asked_for(station: Station, tmp_path: Path) -> None:
    station.make_topic("GoTransaction")  # this client looks for its route and makes none
    client = flow(station, tmp_path, "transaction")
    assert sorted(bodies(client)) == ["commit-x", "unknown-commit"]
    asked = client.events("checked")
    assert {event["body"] for event in asked} == {"unknown-commit", "unknown-rollback"}
    assert {event["topic"] for event in asked} == {"GoTransaction"}
    assert all(event["id"] for event in asked)


@pytest.mark.feature("F267")
def test_an_expression_chooses(station: Station, tmp_path: Path) -> None:
    assert sorted(bodies(flow(station, tmp_path, "sql"))) == ["4", "6", "8"]


@pytest.mark.feature("X16")
def test_a_request_is_answered_or_given_up(station: Station, tmp_path: Path) -> None:
    client = flow(station, tmp_path, "request")
    assert [event["body"] for event in client.events("answered")] == ["TEA"]
    (unanswered,) = client.events("unanswered")
    assert "timeout" in unanswered["problem"]


@pytest.mark.feature("X17")
def test_its_traces_are_read(station: Station, tmp_path: Path) -> None:
    with flowing(station, tmp_path, "trace") as client, bolide.Admin(station.name_servers) as admin:
        (told,) = client.events("traced")
        found = wanted_trace(admin, told["id"], "RMQ_SYS_TRACE_TOPIC", 2)
    assert (found.topic, found.keys) == ("GoTrace", ["key-traced"])
    assert [(step.what, step.group, step.status) for step in found.steps] == [
        ("sent", "go-trace", "success"),
        ("consumed", "go-trace", "success"),
    ]
