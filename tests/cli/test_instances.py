"""`bolide broker --instances N` as processes: one unit, whose members clients find by routes alone."""

import asyncio
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bolide import Producer
from bolide.admin.admin import Admin
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.ports import BROKER_NEIGHBOURS, free_port
from tests.cli.processes import bolide, route, run, wait_for
from tests.e2e.up import SMALL, Up, ask, bodies, running

PLACE = ("--host", "127.0.0.1", "--data", "data", "--set", "brokerName=b", *SMALL)
NAME_SERVER = ("--host", "127.0.0.1", "--port", "0")


def rows(up: Up) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(up.ready_path.read_text())["brokers"]
    return found


def page(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "unit").mkdir()
    (tmp_path / "namesrv").mkdir()
    return tmp_path


def test_one_that_is_killed_comes_again_while_the_others_serve_and_all_stop_together(home: Path) -> None:
    with (
        running(home / "namesrv", "namesrv", *NAME_SERVER) as namesrv,
        running(
            home / "unit",
            *("broker", "--instances", "2", "-n", namesrv.namesrv, "--port", "0", "--metrics", "0", *PLACE),
            *("--log-format", "json"),
        ) as unit,
    ):
        first, second = rows(unit)
        assert [first["name"], second["name"]] == ["b-1", "b-2"]
        assert {first["data"], second["data"]} == {str(home / "unit" / "data" / name) for name in ("b-1", "b-2")}
        assert run(namesrv.namesrv, "topic", "create", "T", "--queues", "2").returncode == 0
        wait_for(lambda: len(route(namesrv.namesrv, "T")) == 2)
        with Producer("p", namesrv.namesrv, timeout_s=20) as producer:
            names = Counter(producer.send("T", b"%d" % i).queue.broker_name for i in range(8))
            assert names == {"b-1": 4, "b-2": 4}

            status, text = page(unit.ready["metrics"])
            assert status == 200
            heads = [line for line in text.splitlines() if line.startswith("# TYPE ")]
            assert len(heads) == len(set(heads))
            labels = 'cluster="DefaultCluster",node_type="broker"'
            for name in names:
                assert f'bolide_instance_up{{node_id="{name}",{labels}}} 1.0' in text
            for name in names:
                counted = [line for line in text.splitlines() if f'node_id="{name}"' in line and "messages_in" in line]
                assert sum(float(line.split()[-1]) for line in counted if 'topic="T"' in line) == 4

            os.kill(first["pid"], signal.SIGKILL)
            assert producer.send("T", b"meanwhile").is_ok
        wait_for(lambda: rows(unit)[0]["pid"] not in (0, first["pid"]))
        again = rows(unit)[0]
        assert again["address"] == first["address"]
        wait_for(lambda: sorted(route(namesrv.namesrv, "T")) == sorted([again["address"], second["address"]]))
        assert sum(len(bodies(address, "T", queue)) for address in route(namesrv.namesrv, "T") for queue in (0, 1)) == 9
        wait_for(lambda: page(unit.ready["metrics"].replace("metrics", "readyz"))[0] == 200)
        assert (
            'bolide_instance_starts_total{node_id="b-1",cluster="DefaultCluster",node_type="broker"} 2.0'
            in page(unit.ready["metrics"])[1]
        )

        code, _, log = unit.stop()
        assert code == 0, log
        assert not unit.ready_path.exists()
        assert not any(is_alive(row["pid"]) for row in (again, second))
        # One log: each line is an object that says who wrote it, and both ended as they should.
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        stopped = {line["server"] for line in lines if line["event"] == "stopping"}
        assert stopped == {"", "b-1", "b-2"}
        assert not list((home / "unit" / "data").glob("b-*/abort"))


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    port = free_port(*BROKER_NEIGHBOURS)
    with socket.create_server(("127.0.0.1", port + 10)):
        done = bolide(tmp_path, "broker", "--instances", "2", "--port", str(port), *PLACE)
    assert done.returncode == 2
    assert f"{port + 10}" in done.stderr
    assert "of instance b-2 is taken; choose another port with --port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_one_that_cannot_start_says_why_and_ends_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b-2").write_text("a file")
    done = bolide(tmp_path, "broker", "--instances", "2", "--port", "0", *PLACE)
    assert done.returncode == 2
    assert "b-2 ended with 2:" in done.stderr
    assert "is a file" in done.stderr


def test_run_time_changes_are_each_instances_own_and_survive_a_start(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerPermission=6\n# mine\n")
    arguments = ("broker", "--instances", "2", "--port", "0", "-c", "broker.conf", *PLACE)
    with running(tmp_path, *arguments) as unit:
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert ask(rows(unit)[0]["address"], change).code == 0
        assert unit.stop()[0] == 0
    assert conf.read_text() == "brokerPermission=6\n# mine\n"
    with running(tmp_path, *arguments) as unit:
        settings = [ask(row["address"], Command(RequestCode.GET_BROKER_CONFIG)).body for row in rows(unit)]
        assert [b"brokerPermission=4" in text for text in settings] == [True, False]


def test_with_a_controller_instances_of_one_number_are_replicas_of_each_other(home: Path) -> None:
    places = [home / name for name in ("controller", "here", "there")]
    for place in places:
        place.mkdir()
    with running(places[0], "controller", *NAME_SERVER, "--data", "state") as controller, ExitStack() as stack:
        address = controller.ready["controller"]
        for place in places[1:]:  # as two machines would
            unit = ("broker", "--instances", "2", "--port", "0", "--controller", address, *PLACE)
            stack.enter_context(running(place, *unit))

        def groups() -> dict[str, list[int]]:
            async def ask_controller() -> dict[str, list[int]]:
                async with Admin(address) as admin:
                    table = await admin.sync_state(address, ["b-1", "b-2"])
                return {name: sorted(one.broker_id for one in group.in_sync_replicas) for name, group in table.items()}

            return asyncio.run(ask_controller())

        wait_for(lambda: groups() == {"b-1": [1, 2], "b-2": [1, 2]})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--instances", "0"), "must be 1 to 64"),
        (("--instances", "2", "--set", "storePathCommitLog=/x"), "would be one place for all instances"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = bolide(tmp_path, "broker", "--port", "0", *PLACE, *words)
    assert done.returncode == 2
    assert why in done.stderr
