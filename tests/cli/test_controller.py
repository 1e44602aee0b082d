"""`bolide controller` as a process: how it starts, what it says, how it ends."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bolide.protocol.command import Command
from tests.cli.processes import LIMIT_S, bolide, environment, wait_for
from tests.controller.etcds import etcds, needs_etcd
from tests.e2e.up import ask


@contextmanager
def controller(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `bolide controller`, and its address."""
    ready = home / "controller.ready"
    words = ["controller", "--host", "127.0.0.1", "--port", "0", "--ready-file", str(ready), *arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", "bolide.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
    )
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        yield process, json.loads(ready.read_text())["controller"]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_it_greets_answers_and_stops_cleanly(tmp_path: Path) -> None:
    with controller(tmp_path, "--data", str(tmp_path / "data")) as (process, address):
        answer = ask(address, Command(1005))
        assert answer.fields["controllerLeaderAddress"] == address
        second = bolide(tmp_path, "controller", "--data", str(tmp_path / "data"), "--port", "0")
        assert second.returncode == 2
        assert f"process {process.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert f"listens on {address}" in stdout
    assert f"controllerAddr={address}" in stdout
    assert stderr.count("controller stopped") == 1
    assert "Traceback" not in stderr


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, sentence in (
            (["--port", port, "--host", "127.0.0.1"], "--port 0 for a free one"),
            (["--set", "controllerTyp=x"], "did you mean controllerType"),
            (["--data", "x", "--set", "bolideEtcdEndpoints=http://127.0.0.1:1"], "goes with no etcd"),
        ):
            done = bolide(tmp_path, "controller", *words)
            assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
            assert sentence in done.stderr


@needs_etcd
@pytest.mark.feature("X05")
def test_a_frozen_leader_is_followed_by_another_and_finds_itself_deposed(tmp_path: Path) -> None:
    with etcds(tmp_path) as nodes, ExitStack() as stack:
        homes = [tmp_path / name for name in "ab"]
        for home in homes:
            home.mkdir()
        up = [stack.enter_context(controller(home, "--etcd", nodes.endpoints)) for home in homes]
        (first, at_first), (_, at_second) = up
        wait_for(lambda: ask(at_second, Command(1005)).fields.get("peers", "").count(";") == 2)
        assert ask(at_second, Command(1005)).fields["controllerLeaderAddress"] == at_first
        apply = Command(1013, fields={"clusterName": "c", "brokerName": "g", "appliedBrokerId": "1"})
        apply.fields["registerCheckCode"] = "h:1;1"
        assert ask(at_first, apply).code == 0
        assert ask(at_second, apply).code == 2007
        first.send_signal(signal.SIGSTOP)
        wait_for(lambda: ask(at_second, Command(1005)).fields["isLeader"] == "true")
        assert ask(at_second, apply).code == 0
        first.send_signal(signal.SIGCONT)
        assert ask(at_first, apply).code == 2007
        wait_for(lambda: ask(at_first, Command(1005)).fields["controllerLeaderAddress"] == at_second)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text("{")
    done = bolide(tmp_path, "controller", "--data", str(tmp_path), "--port", "0")
    assert done.returncode == 2
    assert "g.json holds no group of brokers" in done.stderr
