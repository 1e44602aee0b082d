"""`bolide namesrv` as a process: how it starts, what it says, how it ends."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bolide import __version__, kernel
from bolide.protocol.command import Command, read_commands
from bolide.remoting.ports import free_port
from bolide.settings import read_properties
from tests.cli.processes import LIMIT_S, bolide, environment, wait_for
from tests.namesrv.brokers import TOPICS
from tests.namesrv.peers import registration_body


class Process:
    """A running `bolide namesrv` and a plain socket to it."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.ready_path = home / "ready.json"
        command = [sys.executable, "-m", "bolide.cli.main", "namesrv", "--ready-file", str(self.ready_path), *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(home)
        )
        self.port = 0

    def wait_until_ready(self) -> "Process":
        wait_for(lambda: self._ready().get("pid") == self.process.pid or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[1]
        ready = self._ready()
        host, _, port = ready["namesrv"].rpartition(":")
        assert host == "127.0.0.1"
        self.port = int(port)
        return self

    def _ready(self) -> dict[str, Any]:
        """What the file says, which after kill -9 may be an earlier process's last word."""
        try:
            return dict(json.loads(self.ready_path.read_text()))
        except FileNotFoundError:
            return {}

    def ask(self, command: Command) -> Command:
        with socket.create_connection(("127.0.0.1", self.port), LIMIT_S) as connection:
            return ask_on(connection, command)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, stdout, stderr


def ask_on(connection: socket.socket, command: Command) -> Command:
    connection.sendall(command.encode())
    stream = b""
    while len(stream) < 4 or len(stream) < 4 + int.from_bytes(stream[:4], "big"):
        received = connection.recv(1 << 16)
        assert received, "the connection was closed"
        stream += received
    return read_commands(stream, [4, len(stream)])[0]


@contextlib.contextmanager
def namesrv(home: Path, *arguments: str) -> Iterator[Process]:
    process = Process(home, *arguments)
    try:
        yield process.wait_until_ready()
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.communicate()


LOCAL = ("--host", "127.0.0.1", "--port", "0")


@pytest.mark.feature("F039")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_once_and_frees_the_port(tmp_path: Path, number: signal.Signals) -> None:
    with namesrv(tmp_path, *LOCAL) as process, socket.create_connection(("127.0.0.1", process.port)) as connection:
        assert ask_on(connection, Command(206)).code == 0
        process.process.send_signal(number)
        process.process.send_signal(number)
        code, stdout, stderr = process.stop(number)
    assert code == 0
    assert stderr.count(f"stopping signal={number.name}") == 1
    assert stderr.count("name server stopped") == 1
    assert "Traceback" not in stderr
    assert f"listens on 127.0.0.1:{process.port} ({kernel.NAME} kernel)" in stdout
    assert f"bolide broker -n 127.0.0.1:{process.port}" in stdout
    assert not process.ready_path.exists()
    with namesrv(tmp_path, "--host", "127.0.0.1", "--port", str(process.port)) as successor:
        assert successor.ask(Command(206)).code == 0


SIGNALLED_TWICE = """
import os, signal, sys
from bolide.cli.start import StopSignal, run_until_done

NUMBER = signal.Signals[sys.argv[1]]

async def main():
    stop = StopSignal()
    os.kill(os.getpid(), NUMBER)
    await stop.wait()

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=NUMBER):
        kill(pid, number)

sys.last = Last()  # goes when the interpreter has given back the signals
run_until_done(main())
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_second_signal_in_the_last_moment_does_not_make_a_clean_stop_a_death(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", SIGNALLED_TWICE, name]
    assert subprocess.run(command, timeout=LIMIT_S, check=False, env=environment(tmp_path)).returncode == 0


@pytest.mark.feature("F032", "F033")
def test_after_kill_9_the_tables_are_empty_and_the_kv_configuration_is_back(tmp_path: Path) -> None:
    broker = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
    key = {"namespace": "ns", "key": "k"}
    with namesrv(tmp_path, *LOCAL) as process:
        with socket.create_connection(("127.0.0.1", process.port), LIMIT_S) as connection:
            assert ask_on(connection, Command(103, fields=broker, body=registration_body(TOPICS))).code == 0
            assert ask_on(connection, Command(105, fields={"topic": "T1"})).code == 0
            assert ask_on(connection, Command(100, fields={**key, "value": "v"})).code == 0
        process.process.kill()
        process.process.communicate()
    assert (tmp_path / "namesrv" / "kvConfig.json").exists()
    with namesrv(tmp_path, *LOCAL) as process:
        assert process.ask(Command(105, fields={"topic": "T1"})).code == 17
        assert process.ask(Command(101, fields=key)).fields == {"value": "v"}


@pytest.mark.feature("F036")
def test_a_rocketmq_file_is_honoured_and_takes_changes_made_at_run_time(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "namesrv.conf"
    file.write_text(f"# mine\nlistenPort={port}\nbindAddress=127.0.0.1\nserverWorkerThreads=8\nclusterTest=false\n")
    with namesrv(tmp_path, "-c", str(file), "-n", "ignored:9876") as process:
        assert process.port == port
        assert process.ask(Command(318, body=b"orderMessageEnable=true")).code == 0
        code, _, stderr = process.stop()
    assert code == 0
    assert stderr.count("settings without effect here: clusterTest, serverWorkerThreads") == 1
    assert file.read_text().startswith(f"# mine\nlistenPort={port}\n")
    with namesrv(tmp_path, "-c", str(file), *LOCAL) as process:
        assert process.port != port  # the command line wins over the file
        texts = read_properties(process.ask(Command(319)).body.decode())
        assert texts["orderMessageEnable"] == "true"


@pytest.mark.feature("F052")
def test_p_prints_every_setting_and_exits(tmp_path: Path) -> None:
    done = bolide(tmp_path, "namesrv", "-p", "--set", "orderMessageEnable=true", "--port", "1234")
    assert done.returncode == 0
    texts = read_properties(done.stdout)
    assert texts["listenPort"] == "1234"
    assert texts["orderMessageEnable"] == "true"
    assert texts["useEpollNativeSelector"] == "false"
    assert texts["kvConfigPath"] == str(tmp_path / "namesrv" / "kvConfig.json")
    assert texts["scanNotActiveBrokerInterval"] == "10000"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "listnPort=1"], "listnPort = '1': no such setting; did you mean listenPort?"),
        (["--set", "orderMessageEnable=perhaps"], "orderMessageEnable = 'perhaps': must be true or false"),
        (["--set", "orderMessageEnable"], "must be name=value"),
        (["--port", "many"], "listenPort = 'many': must be a number"),
        (["--port", "70000"], "must be 0 to 65535"),
        (["-c", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--log-level", "loud"], "must be debug, info, warning or error"),
        (["--host", "256.0.0.1", "--port", "0"], "256.0.0.1"),
        (["--set", "kvConfigPath=/dev/null/kv.json", *LOCAL], "/dev/null/kv.json"),
        (["--ready-file", "/no/such/place/ready", *LOCAL], "/no/such/place/ready"),
    ],
)
def test_a_mistake_of_the_user_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = bolide(tmp_path, "namesrv", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sentence in error


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = bolide(tmp_path, "namesrv", "--host", "127.0.0.1", "--port", str(port))
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kv_file_nobody_can_read_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text("{")
    done = bolide(tmp_path, "namesrv", *LOCAL)
    assert done.returncode == 2
    assert "kvConfig.json cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_ready_file_of_an_earlier_life_is_gone_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text('{"pid": 1, "namesrv": "127.0.0.1:1"}')
    process = Process(tmp_path, *LOCAL, "--set", "kvConfigPath=/dev/null/kv.json")
    process.process.communicate(timeout=LIMIT_S)
    assert not process.ready_path.exists()


def test_it_listens_on_all_addresses_by_default_and_says_how_it_is_reached(tmp_path: Path) -> None:
    with namesrv(tmp_path, "--port", "0") as process:
        assert process.ask(Command(206)).code == 0
        _, stdout, _ = process.stop()
    assert f"listens on 0.0.0.0:{process.port}" in stdout


def test_the_version_and_the_list_of_commands(tmp_path: Path) -> None:
    assert bolide(tmp_path, "--version").stdout == f"bolide {__version__}\n"
    assert "namesrv" in bolide(tmp_path, "--help").stdout
    assert "--ready-file" in bolide(tmp_path, "namesrv", "--help").stdout
    unknown = bolide(tmp_path, "nosuch")
    assert unknown.returncode == 2
    assert "Traceback" not in unknown.stderr


def test_a_server_process_loads_nothing_of_the_commands_for_people(tmp_path: Path) -> None:
    with namesrv(tmp_path, *LOCAL) as process:
        maps = Path(f"/proc/{process.process.pid}/maps").read_text()
        status = Path(f"/proc/{process.process.pid}/status").read_text()
    assert "pydantic" not in maps
    (resident,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident.split()[1]) < 60 * 1024


def test_another_system_than_linux_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bolide.cli import namesrv as command

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as caught:
        command.main([])
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_rocketmq_ships_for_its_controller_starts_with_one_warning(tmp_path: Path) -> None:
    file = tmp_path / "namesrv-n0.conf"
    file.write_text(
        "<!--\n  Licensed to the Apache Software Foundation\n-->\n"
        "enableControllerInNamesrv=true\ncontrollerDLegerGroup = group1\n"
        "controllerDLegerPeers = n0-127.0.0.1:9877\ncontrollerDLegerSelfId = n0\ntls.server.authClient=false\n"
    )
    with namesrv(tmp_path, "-c", str(file), *LOCAL) as process:
        code, _, stderr = process.stop()
    assert code == 0
    assert stderr.count("settings without effect here: controllerDLegerGroup") == 1
