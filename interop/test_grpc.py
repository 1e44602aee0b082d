"""RocketMQ 5's own clients (gRPC: Java 5.2.0, Go 5.1.4, Python 5.1.2, Node 1.0.8) at `bolide up`.

The flows are in `grpc/`, one program for each language, and each says of every claim whether it held. Java and Go begin
with TLS, Python and Node without, all at one port. Without Go or Node theirs are skipped.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bolide
from interop.clients import JavaClient, java_agent
from interop.cluster import Station, bolide_up
from interop.grpc_flows import CLAIMS, LIMIT_S, SETTINGS, claims, held, prepare, program
from interop.process import await_that, free_port
from interop.release import grpc_go, grpc_java, grpc_node, grpc_python, h2spec


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Station, str]]:
    directory = tmp_path_factory.mktemp("grpc")
    with bolide_up(directory, {**SETTINGS, "grpcServerPort": 0}) as up:
        prepare(up.name_servers)
        yield up, grpc_endpoint(directory, up)


def grpc_endpoint(directory: Path, up: Station) -> str:
    ready = json.loads((directory / f"bolide-up-{up.address[1]}" / "ready").read_text("utf-8"))
    return str(ready["grpc"])


@pytest.mark.short
@pytest.mark.feature("X08")
def test_python(endpoint: tuple[Station, str], tmp_path: Path) -> None:
    assert claims(tmp_path, *grpc_python(), endpoint[1]) == held(*CLAIMS["python"])


@pytest.mark.feature("X08")
def test_java(endpoint: tuple[Station, str], tmp_path: Path) -> None:
    assert claims(tmp_path, *grpc_java(), endpoint[1], "tls") == held(*CLAIMS["java"])


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here: install golang")
def test_go(endpoint: tuple[Station, str], tmp_path: Path) -> None:
    assert claims(tmp_path, *grpc_go(), endpoint[1]) == held(*CLAIMS["go"])


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here: install nodejs and npm")
def test_node(endpoint: tuple[Station, str], tmp_path: Path) -> None:
    assert claims(tmp_path, *grpc_node(), endpoint[1]) == held(*CLAIMS["node"])


def test_what_was_acknowledged_survives_a_kill_and_what_was_done_does_not_come_again(tmp_path: Path) -> None:
    ports, grpc_port = (free_port(), free_port(-2)), free_port()
    settings = {**SETTINGS, "grpcServerPort": grpc_port}
    python, address = grpc_python(), f"127.0.0.1:{grpc_port}"
    with bolide_up(tmp_path, settings, ports) as up:
        prepare(up.name_servers)
        with program(tmp_path / "sender", "load", *python, address, "load") as sender:
            sender.await_events("sent", 200, LIMIT_S)
            with program(tmp_path / "early", "settle", *python, address, "settle", "100") as early:
                early.await_events("done", 1, LIMIT_S)
                done = {event["body"] for event in early.events("acked")}
            up.program.kill()
            with bolide_up(tmp_path, settings, ports):
                count = len(sender.events("sent"))
                sender.await_events("sent", count + 50, LIMIT_S)
                sender.program.kill()
                sent = {event["body"] for event in sender.events("sent")}
                with program(tmp_path / "late", "settle", *python, address, "settle", str(10**9)) as late:
                    _until(lambda: sent <= done | late.bodies(), late)
                    assert not done & late.bodies()


def _until(condition: Callable[[], bool], client: JavaClient) -> None:
    await_that(f"all that was acknowledged is received: {client.program.log}", condition, LIMIT_S)


def test_messages_cross_to_and_from_remoting_clients(endpoint: tuple[Station, str], tmp_path: Path) -> None:
    station, address = endpoint
    with bolide.Producer("cross-pg", namesrv=station.name_servers) as producer:
        for number in range(20):
            producer.send("PLoad", f"remoting-{number}".encode())
    with program(tmp_path, "settle", *grpc_python(), address, "settle", "20") as client:
        client.await_events("done", 1, LIMIT_S)
        assert client.bodies() == {f"remoting-{number}" for number in range(20)}
    with program(tmp_path / "sender", "load", *grpc_python(), address, "load") as sender:
        sender.await_events("sent", 20, LIMIT_S)
    with bolide.Consumer(
        "cross-cg", topics={"PLoad": "*"}, namesrv=station.name_servers, start_from=bolide.StartFrom.oldest()
    ) as consumer:
        found = set()
        for message in consumer:
            found.add(message.body.decode())
            message.ack()
            if {event["body"] for event in sender.events("sent")} <= found:
                break


def taken_kinds(directory: Path, address: str, topic: str) -> set[str]:
    with program(directory, "offer", *grpc_python(), address, "offer", topic) as client:
        client.await_events("done", 1, LIMIT_S)
        return {event["kind"] for event in client.events("offered") if event["taken"]}


def test_types_that_mqadmin_gives_a_topic_are_those_that_clients_may_send(
    endpoint: tuple[Station, str], tmp_path: Path
) -> None:
    station, address = endpoint
    with java_agent(tmp_path, "5.5.0", station.name_servers) as agent:
        for topic, kind in (("Untyped", None), ("Ordered", "FIFO"), ("Later", "DELAY")):
            typed = ["-a", f"+message.type={kind}"] if kind else []
            assert "success" in agent.admin("updateTopic", "-c", station.cluster, "-t", topic, *typed)
            assert taken_kinds(tmp_path / topic, address, topic) == {kind or "NORMAL"}


@pytest.mark.feature("X08")
def test_every_case_of_h2spec_passes(endpoint: tuple[Station, str]) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go here")
    host, _, port = endpoint[1].rpartition(":")
    command = [str(h2spec()), "-h", host, "-p", port, "-o", "10"]
    told = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL
    )
    assert re.search(r"(\d+) tests, \1 passed, 0 skipped, 0 failed", told.stdout), told.stdout[-4000:]
