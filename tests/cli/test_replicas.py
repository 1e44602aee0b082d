"""`bolide up --replicas 3` as processes: the master is killed, another leads, and the ready file follows."""

import argparse
import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from bolide import Producer
from bolide.cli import grpc_port
from bolide.cli.replicas import Plan, unit
from bolide.errors import ConfigError
from bolide.proxy import messages as m
from tests.cli.processes import bolide, wait_for
from tests.e2e.up import ANY_DISK, FREE_PORTS, running
from tests.proxy.peer import connected
from tests.proxy.serving import message, send


@pytest.mark.feature("X05")
def test_when_the_master_is_killed_a_send_works_again_and_the_ready_file_follows(tmp_path: Path) -> None:
    # A route is good for an hour to the proxy, unless the broker it leads to is gone.
    grpc = ("--grpc-port", "0", "--set", "topicRouteServiceCacheRefreshSeconds=3600")
    with running(tmp_path, "up", "--replicas", "3", *FREE_PORTS, *grpc, *ANY_DISK) as up:

        def brokers() -> dict[str, Any]:
            return {row["address"]: row for row in json.loads(up.ready_path.read_text())["brokers"]}

        assert ":" in up.ready["controller"]
        assert sorted(row["id"] for row in brokers().values()) == [1, 2, 3]
        old = brokers()[up.broker]
        assert set(old) == {"name", "id", "address", "pid"}
        with Producer("p", up.namesrv, timeout_s=20) as producer:
            assert producer.send("T", b"before").is_ok
            assert asyncio.run(sent_by_grpc(up.ready["grpc"], "T")) == m.Code.OK
            os.kill(old["pid"], signal.SIGKILL)
            assert producer.send("T", b"after").is_ok
        wait_for(lambda: asyncio.run(sent_by_grpc(up.ready["grpc"], "T")) == m.Code.OK)
        wait_for(lambda: json.loads(up.ready_path.read_text())["broker"] not in ("", old["address"]))
        wait_for(lambda: brokers()[old["address"]]["pid"] not in (0, old["pid"]))
        assert up.stop()[0] == 0


async def sent_by_grpc(address: str, topic: str) -> int:
    """A message of RocketMQ 5's own clients; returns the status."""
    async with connected(int(address.rpartition(":")[2])) as peer:
        return int((await send(peer, message(topic))).status.code)


def replica(data: Path, number: int) -> None:
    """What a replica leaves behind."""
    (data / f"replica-{number}").mkdir(parents=True)
    (data / f"replica-{number}" / "brokerIdentity").write_text(f"c#b#{number}")


def refused(tmp_path: Path, *arguments: str) -> str:
    done = bolide(tmp_path, "up", "--data", str(tmp_path / "data"), *FREE_PORTS, *arguments)
    assert done.returncode == 2
    return done.stderr


@pytest.mark.parametrize("count", ["0", "10"])
def test_a_number_of_replicas_that_is_no_group_is_refused(tmp_path: Path, count: str) -> None:
    assert "must be 2 to 9" in refused(tmp_path, "--replicas", count)


def test_messages_of_one_broker_are_not_left_behind_by_a_group(tmp_path: Path) -> None:
    (tmp_path / "data" / "commitlog").mkdir(parents=True)
    assert "one broker has kept messages here" in refused(tmp_path, "--replicas", "3")


def test_messages_of_a_group_are_not_left_behind_by_one_broker_nor_by_a_smaller_group(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        replica(tmp_path / "data", number)
    assert "say --replicas 3" in refused(tmp_path)
    assert "say --replicas 3" in refused(tmp_path, "--replicas", "2")


def test_a_grpc_port_that_is_taken_is_left_out_unless_somebody_asked_for_it(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(grpc_port, "PORT", port)
        assert grpc_port.planned_port({"bindAddress": "127.0.0.1"}) is None
        with pytest.raises(ConfigError, match="--grpc-port 0 for a free one"):
            grpc_port.planned_port({"bindAddress": "127.0.0.1", "grpcServerPort": str(port)})
    assert grpc_port.planned_port({"bindAddress": "127.0.0.1", "grpcServerPort": "0"})
    assert grpc_port.planned_port({"grpcServerPort": "off"}) is None


def test_each_replica_has_a_page_of_metrics_of_its_own(tmp_path: Path) -> None:
    options = argparse.Namespace(log_level="info", log_format="text", file=None)
    planned = Plan("127.0.0.1", tmp_path, "b", 1, 2, (3, 4, 5))
    brokers = unit(planned, options, {"bolideAdminFrom": "local", "metricsPromExporterPort": "5557"}).brokers
    pages = [[word for word in child.arguments if word.startswith("metricsPromExporterPort=")][-1] for child in brokers]
    assert pages == [f"metricsPromExporterPort={port}" for port in (5557, 5567, 5577)]
