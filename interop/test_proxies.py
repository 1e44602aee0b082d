"""Both proxies before both clusters: `bolide proxy` before RocketMQ 5.5.0, and RocketMQ's proxy before Bolide.

The programs are those of `test_grpc.py`, with RocketMQ 5's own clients. And what a killed proxy may cost: nothing that
was acknowledged, in either direction.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop import wire
from interop.clients import IMPATIENT, JavaClient, java_client, java_consumer, send_messages
from interop.cluster import Station, bolide_up, java_broker, java_name_server
from interop.grpc_flows import CLAIMS, LIMIT_S, SETTINGS, claims, held, prepare, program
from interop.process import await_that, free_port
from interop.proxies import APACHE_RELEASE, Proxy, apache_proxy, bolide_proxy
from interop.release import CLIENT_RELEASES, grpc_go, grpc_java, grpc_node, grpc_python

COMMANDS: dict[str, Callable[[], list[str]]] = {
    "python": grpc_python,
    "java": grpc_java,
    "go": grpc_go,
    "node": grpc_node,
}
TOOLS = {"go": "go", "node": "npm"}
APACHE_SETTINGS = {**SETTINGS, "recallMessageEnable": True, "enablePropertyFilter": True}
SET_MODE = 401


@pytest.fixture(scope="module", params=["bolide before apache", "apache before bolide"])
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Proxy]]:
    directory = tmp_path_factory.mktemp("proxies")
    if request.param == "bolide before apache":
        with (
            java_name_server(directory, APACHE_RELEASE) as names,
            java_broker(directory, APACHE_RELEASE, names.endpoint, APACHE_SETTINGS) as broker,
        ):
            broker.await_route(names)
            prepare(names.endpoint)
            with bolide_proxy(directory, names.endpoint) as ours:
                yield request.param, ours
        return
    with bolide_up(directory, SETTINGS) as up:
        prepare(up.name_servers)
        with apache_proxy(directory, up.name_servers, cluster=up.cluster) as theirs:
            yield request.param, theirs


@pytest.mark.parametrize("language", COMMANDS)
@pytest.mark.feature("X08")
def test_the_flows_of_each_client(proxy: tuple[str, Proxy], language: str, tmp_path: Path) -> None:
    if (tool := TOOLS.get(language)) and shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    words = ["tls"] if language == "java" else []
    assert claims(tmp_path, *COMMANDS[language](), proxy[1].endpoint, *words) == held(*CLAIMS[language])


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with bolide_up(tmp_path_factory.mktemp("up"), SETTINGS) as station:
        prepare(station.name_servers)
        yield station


@pytest.mark.parametrize("killed", ["proxy", "broker"])
def test_a_kill_under_load_costs_nothing_that_was_acknowledged(tmp_path: Path, killed: str) -> None:
    ports, port, python = (free_port(), free_port(-2)), free_port(), grpc_python()
    address = f"127.0.0.1:{port}"
    with ExitStack() as stack:
        up = stack.enter_context(bolide_up(tmp_path, SETTINGS, ports))
        prepare(up.name_servers)
        proxy = stack.enter_context(bolide_proxy(tmp_path, up.name_servers, port=port))
        sending, settling = (*python, address, "load"), (*python, address, "settle", str(10**9))
        sender = stack.enter_context(program(tmp_path / "sender", "load", *sending))
        settler = stack.enter_context(program(tmp_path / "settler", "settle", *settling))
        sender.await_events("sent", 100, LIMIT_S)
        settler.await_events("acked", 30, LIMIT_S)
        if killed == "proxy":
            proxy.program.kill()
            stack.enter_context(bolide_proxy(tmp_path / "again", up.name_servers, port=port))
        else:
            up.program.kill()
            stack.enter_context(bolide_up(tmp_path, SETTINGS, ports))
        count = len(sender.events("sent"))
        sender.await_events("sent", count + 50, LIMIT_S)
        sender.program.kill()
        sent = {event["body"] for event in sender.events("sent")}
        _until(lambda: sent <= {event["body"] for event in settler.events("acked")}, settler)
        assert _come_after_their_ack(settler) == []


def _come_after_their_ack(client: JavaClient) -> list[str]:
    """Bodies that were received once more after their acknowledgement was answered."""
    done, again = set(), []
    for line in client.program.lines():
        event = json.loads(line) if line.startswith('{"event"') else {}
        if event.get("event") == "acked":
            done.add(event["body"])
        elif event.get("event") == "received" and event["body"] in done:
            again.append(event["body"])
    return again


def _until(condition: Callable[[], bool], client: JavaClient) -> None:
    await_that(f"all that was acknowledged is received: {client.program.log}", condition, LIMIT_S)


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_messages_cross_to_and_from_javas_remoting_clients(up: Station, tmp_path: Path, release: str) -> None:
    with bolide_proxy(tmp_path, up.name_servers) as proxy:
        python, group = [*grpc_python(), proxy.endpoint], f"cross-{release.replace('.', '-')}"
        topic = up.make_topic(f"Cross{release.replace('.', '')}")
        send_messages(tmp_path, release, namesrv=up.name_servers, topic=topic, count=20)
        with program(tmp_path, "settle", *python, "settle", "20", topic, group) as client:
            client.await_events("done", 1, LIMIT_S)
            assert client.bodies() == {f"message {number}" for number in range(20)}
        named = {"namesrv": up.name_servers, "topic": topic, "group": f"{group}-java", **IMPATIENT}
        with java_consumer(tmp_path, release, **named) as consumer:
            with program(tmp_path / "sender", "load", *python, "load", topic) as sender:
                sender.await_events("sent", 20, LIMIT_S)
            sent = {event["body"] for event in sender.events("sent")}
            _until(lambda: sent <= consumer.bodies(), consumer)


def test_a_group_mixes_grpc_and_remoting_members_that_pop_and_each_message_goes_to_one_of_them(
    up: Station, tmp_path: Path
) -> None:
    topic, group = up.make_topic("Mixed"), "mixed"
    mode = {"consumerGroup": group, "mode": "POP", "popShareQueueNum": 0, "topic": topic}
    assert wire.call(up.address, SET_MODE, body=json.dumps(mode).encode()).code == 0
    named = {"namesrv": up.name_servers, "topic": topic, "group": group, "instance": "java", "slowMs": 20}
    with (
        bolide_proxy(tmp_path, up.name_servers) as proxy,
        java_client(tmp_path, "5.5.0", "PopConsume", named) as java,
        program(tmp_path, "settle", *grpc_python(), proxy.endpoint, "settle", str(10**9), topic, group) as python,
    ):
        java.program.await_output('"started"', LIMIT_S)
        send_messages(tmp_path, "5.5.0", namesrv=up.name_servers, topic=topic, count=200)
        wanted = {f"message {number}" for number in range(200)}
        _until(lambda: wanted <= java.bodies() | python.bodies(), java)
        seen = Counter(event["body"] for member in (java, python) for event in member.events("received"))
        assert set(seen.values()) == {1}
        assert java.bodies()
        assert python.bodies()
