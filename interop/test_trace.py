"""Traces that Java's clients write, read by ours; ours, read by mqadmin; on our broker and on Apache's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import bolide
from bolide.admin.traces import MessageTrace
from bolide.cli.app import app
from interop.clients import JavaAgent, java_agent
from interop.cluster import Station, java_station
from interop.process import await_that
from interop.release import CLIENT_RELEASES

TIMEOUT_S = 40.0
OLDEST = bolide.StartFrom.oldest()


def wanted_trace(admin: bolide.Admin, wanted: str, topic: str, step_count: int) -> MessageTrace:
    """A trace once it has so many steps that have ended: records leave in the clients' own time."""

    def probe() -> MessageTrace | None:
        try:
            found = admin.trace(wanted, topic)
        except bolide.ClientError:
            return None  # nobody has told anything yet, so there is no such topic
        ended = [step for trace in found for step in trace.steps if step.status != "not ended yet"]
        return found[0] if len(ended) >= step_count else None

    return await_that(f"a trace of {wanted} with {step_count} steps", probe, TIMEOUT_S)


def write_and_read(agent: JavaAgent, station: Station, name: str) -> None:
    """Java tells, we read; we tell, mqadmin reads."""
    topic, traces = station.make_topic(f"{name}-T"), station.make_topic(f"{name}-Traces", 1)
    with bolide.Admin(station.name_servers) as admin:
        consumer = f"{name}-consumer"
        agent.do("tracedPush", name=consumer, group=f"{name}-javas", topic=topic, trace=traces)
        key = f"{name}-key"
        msg_id = agent.do(
            "tracedSend", group=f"{name}-senders", topic=topic, trace=traces, key=key, body="tea", tag="A"
        )
        for wanted in (msg_id, key):
            found = wanted_trace(admin, wanted, traces, 2)
            assert (found.message_id, found.topic, found.tags, found.keys) == (msg_id, topic, "A", [key])
            assert [(step.what, step.group, step.status) for step in found.steps] == [
                ("sent", f"{name}-senders", "success"),
                ("consumed", f"{name}-javas", "success"),
            ]
            assert found.steps[0].where == station.endpoint
            assert found.steps[1].attempt == 1
        agent.do("quit", name=consumer)
        agent.do("quit", name=f"{name}-senders")
        with bolide.Producer(f"{name}-py", station.name_servers, trace=traces) as producer:
            receipt = producer.send(topic, b"cake", keys=f"{name}-ours", tags="B")
        with bolide.Consumer(
            f"{name}-pys", {topic: "B"}, station.name_servers, start_from=OLDEST, trace=traces
        ) as reader:
            next(iter(reader)).ack()
        wanted_trace(admin, receipt.msg_id, traces, 2)
    printed = agent.admin("queryMsgTraceById", "-i", receipt.msg_id, "-t", traces)
    rows = [line.split() for line in printed.splitlines()]
    assert any(row[:2] == ["Pub", f"{name}-py"] and row[-1] == "success" for row in rows), printed
    assert any(row[:2] == ["Sub", f"{name}-pys"] and row[-1] == "success" for row in rows), printed
    words = ["admin", "queryMsgTraceById", "-i", receipt.msg_id, "-t", traces, "-n", station.name_servers, "-o", "json"]
    (trace,) = json.loads(CliRunner().invoke(app, words).stdout)
    kinds = {"Pub": "sent", "Sub": "consumed"}
    assert {(step["what"], step["group"], f"{step['cost_ms']}ms", step["status"]) for step in trace["steps"]} == {
        (kinds[row[0]], row[1], *row[-2:]) for row in rows if row and row[0] in kinds
    }


@pytest.mark.short
@pytest.mark.feature("X17")
def test_traces_are_written_and_read_by_both_sides_at_our_broker(agent: JavaAgent, station: Station) -> None:
    write_and_read(agent, station, f"Traced-{agent.release.replace('.', '-')}")


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp("traces"), "5.5.0") as running:
        yield running


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_traces_are_written_and_read_by_both_sides_at_apaches_broker(
    apache: Station, release: str, tmp_path: Path
) -> None:
    with java_agent(tmp_path, release, apache.name_servers) as agent:
        write_and_read(agent, apache, f"Traced-{release.replace('.', '-')}")
