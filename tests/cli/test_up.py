"""`bolide up` as a process: how it starts, where it is found, what it says, how it ends."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bolide import kernel
from bolide.cli.start import ReadyFile
from bolide.protocol.bodies.routes import Clusters
from bolide.protocol.command import Command
from bolide.settings import read_properties
from bolide.store.disk import Disk
from tests.cli.processes import bolide, own_address, route
from tests.e2e.up import ANY_DISK, FREE_PORTS, LIMIT_S, SMALL, ask, ask_on, begin, bodies, running, send

FIRST_MESSAGE_LIMIT_S = 1.0
# The same where all programs are slow, because others use the caches and the other half of the core: so many times what
# a Python takes that loads nothing but asyncio. On an idle machine that is a second, too.
BARE_STARTS_MAX = 18
IDLE_SIZE_MAX = 100 << 20


def test_sql_recalls_and_the_trace_topic_are_on_unless_they_are_set_off(tmp_path: Path) -> None:
    def settings(*arguments: str) -> dict[str, str]:
        with running(tmp_path, "up", *FREE_PORTS, *SMALL, *arguments) as up:
            return read_properties(ask(up.broker, Command(26)).body.decode())

    keys = ("enablePropertyFilter", "recallMessageEnable", "traceTopicEnable")
    assert [settings()[key] for key in keys] == ["true"] * 3
    assert settings("--set", "enablePropertyFilter=false")["enablePropertyFilter"] == "false"


@pytest.mark.feature("F001", "F005")
def test_the_ready_file_names_both_and_the_first_message_is_taken_and_given_back(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        assert up.ready == {"pid": up.process.pid, "namesrv": up.namesrv, "broker": up.broker}
        assert route(up.namesrv, "TBW102") == [up.broker]  # registered when the file is there
        assert send(up.broker, "Hello", b"first").code == 0
        assert bodies(up.broker, "Hello") == [b"first"]


def test_it_accepts_the_first_message_within_a_second_of_the_command_and_stays_small(tmp_path: Path) -> None:
    """The best of three starts, without the time in which it was ready to run and others had the processor."""
    took_s, bare_s = [], []
    for number in range(3):
        bare_s.append(bare_start_s())
        home = tmp_path / str(number)
        home.mkdir()
        with running(home, "up", *FREE_PORTS, *ANY_DISK) as up:
            took_s.append(up.ready_s - up.queued_s())
            assert send(up.broker, "Hello", b"first").code == 0
            assert up.status("RssAnon") < IDLE_SIZE_MAX
    assert min(took_s) < max(FIRST_MESSAGE_LIMIT_S, BARE_STARTS_MAX * min(bare_s))


def bare_start_s() -> float:
    """The processor's time of a Python that loads asyncio and ends."""
    started = os.posix_spawn(sys.executable, [sys.executable, "-c", "import asyncio"], os.environ)
    _, status, used = os.wait4(started, 0)
    assert status == 0
    return float(used.ru_utime + used.ru_stime)


def test_what_a_server_is_made_of_is_not_searched_for_garbage_again() -> None:
    try:
        ReadyFile(None).write()
        assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_once(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        host, _, port = up.broker.rpartition(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as connection:
            assert ask_on(connection, Command(105, fields={"topic": "x"})).code == 3
            assert send(up.broker, "Hello", b"first").code == 0
            up.process.send_signal(number)
            up.process.send_signal(number)
            code, stdout, stderr = up.stop(number)
    assert code == 0
    assert stderr.count(f"stopping signal={number.name}") == 1
    assert "Traceback" not in stderr
    assert f"is up ({kernel.NAME} kernel)" in stdout
    assert not up.ready_path.exists()
    data = tmp_path / "bolide-data"
    assert not (data / "abort").exists()
    assert (data / "config" / "topics.json").exists()


def test_the_data_directory_is_rocketmqs_store_root_and_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    sent = [f"message {number}".encode() for number in range(50)]
    with running(tmp_path, "up", "--data", str(data), *FREE_PORTS, *SMALL) as up:
        for body in sent:
            assert send(up.broker, "Hello", body).code == 0
        up.kill()
    assert {path.name for path in data.iterdir()} >= {"commitlog", "consumequeue", "config", "abort"}
    with running(tmp_path, "up", "--data", str(data), *FREE_PORTS, *SMALL) as up:
        assert bodies(up.broker, "Hello") == sent
    assert not (tmp_path / "bolide-data").exists()


def test_by_default_it_listens_on_loopback_only(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        for address in (up.namesrv, up.broker):
            host, _, port = address.rpartition(":")
            assert host == "127.0.0.1"
            with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", int(port)), LIMIT_S):
                pass


def test_on_all_addresses_each_asker_is_told_the_one_it_came_by(tmp_path: Path) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", *filter(None, [own_address()])]
    with running(tmp_path, "up", "--host", "0.0.0.0", *FREE_PORTS, *SMALL) as up:
        assert up.namesrv.startswith("127.0.0.1:")
        assert up.broker.startswith("127.0.0.1:")
        namesrv_port, broker_port = up.namesrv.split(":")[1], up.broker.split(":")[1]
        for host in hosts:
            namesrv = f"{host}:{namesrv_port}"
            assert route(namesrv, "TBW102") == [f"{host}:{broker_port}"]
            clusters = Clusters.decode(ask(namesrv, Command(106)).body).broker_addr_table.values()
            assert [broker.broker_addrs for broker in clusters] == [{0: f"{host}:{broker_port}"}]
            assert send(f"{host}:{broker_port}", "Hello", host.encode()).code == 0


@pytest.mark.parametrize("option", ["--set", "-c"])
def test_an_address_that_was_named_is_told_to_everybody(tmp_path: Path, option: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerIP1=127.0.0.3\n")
    given = ("-c", str(file)) if option == "-c" else ("--set", "brokerIP1=127.0.0.3")
    with running(tmp_path, "up", "--host", "0.0.0.0", *given, *FREE_PORTS, *SMALL) as up:
        port = up.broker.split(":")[1]
        for host in ("127.0.0.1", "127.0.0.2"):
            assert route(f"{host}:{up.namesrv.split(':')[1]}", "TBW102") == [f"127.0.0.3:{port}"]


def test_a_rocketmq_file_is_honoured_and_later_settings_win(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerName=broker-x\nbrokerClusterName=C9\nlistenPort=1\nstorePathRootDir=/no/such/place\n"
        "storePathCommitLog=/no/such/place/commitlog\nautoCreateTopicEnable=false\nnamesrvAddr=10.0.0.1:9876\n"
        "sendMessageThreadPoolNums=4\norderMessageEnable=true\n"
    )
    options = ("-c", str(file), "--set", "autoCreateTopicEnable=true", "--data", "kept")
    with running(tmp_path, "up", *options, *FREE_PORTS, *SMALL) as up:
        clusters = Clusters.decode(ask(up.namesrv, Command(106)).body)
        assert clusters.cluster_addr_table == {"C9": ["broker-x"]}
        assert send(up.broker, "Hello", b"x").code == 0
        texts = read_properties(ask(up.namesrv, Command(319)).body.decode())
        assert texts["orderMessageEnable"] == "true"  # a key of the name server reaches it
        assert texts["kvConfigPath"] == str(tmp_path / "kept" / "namesrv" / "kvConfig.json")
        _, _, stderr = up.stop()
    assert stderr.count("settings without effect here: sendMessageThreadPoolNums") == 1
    assert stderr.count("namesrvAddr is set aside") == 1
    assert (tmp_path / "kept" / "commitlog").is_dir()


def test_with_tls_alone_the_broker_still_finds_its_name_server(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, "--set", "tls.server.mode=enforcing") as up:
        with pytest.raises((AssertionError, ConnectionResetError)):  # the connection is closed without an answer
            ask(up.namesrv, Command(206))
        code, stdout, stderr = up.stop()
    assert code == 0
    assert f"bolide send -n {up.namesrv} --tls Hello" in stdout
    assert f"registered namesrv={up.namesrv} address={up.broker}" in stderr


def test_what_the_banner_says_is_true(tmp_path: Path) -> None:
    with running(tmp_path, "up", "--host", "0.0.0.0", *FREE_PORTS, *SMALL) as up:
        assert send(up.broker, "Hello", b"x").code == 0
        _, stdout, _ = up.stop()
    said = {line[2:20].strip(): line[20:] for line in stdout.splitlines()[1:]}
    assert said["name server"] == up.namesrv.replace("127.0.0.1", "0.0.0.0")
    assert said["broker"].startswith(up.broker.replace("127.0.0.1", "0.0.0.0"))
    assert said["messages"] == str(tmp_path / "bolide-data")
    assert said["clients"] == f"export NAMESRV_ADDR={up.namesrv}"
    assert f"port {up.namesrv.split(':')[1]}" in said["other machines"]
    program, *arguments = said["look at the log"].split()
    assert program == "bolide"
    assert bolide(tmp_path, *arguments).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "brokrName=x"], "brokrName = 'x': no such setting; did you mean brokerName?"),
        (["--set", "autoCreateTopicEnable=perhaps"], "autoCreateTopicEnable = 'perhaps': must be true or false"),
        (["--set", "autoCreateTopicEnable"], "must be name=value"),
        (["--port", "many"], "listenPort = 'many': must be a number"),
        (["--namesrv-port", "many"], "listenPort = 'many': must be a number"),
        (["-c", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--host", "256.0.0.1"], "256.0.0.1"),
        (["--set", "brokerIP1=nowhere.invalid"], "nowhere.invalid"),
        (["--data", "/dev/null/store"], "/dev/null/store"),
        (["--ready-file", "/no/such/place/ready"], "/no/such/place/ready"),
    ],
)
def test_a_mistake_of_the_user_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = bolide(tmp_path, "up", *FREE_PORTS, *SMALL, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sentence in error


@pytest.mark.parametrize("option", ["--port", "--namesrv-port"])
def test_a_port_in_use_is_named_with_the_option_that_helps(tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = bolide(tmp_path, "up", *FREE_PORTS, *SMALL, option, str(port))
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert f"choose another port with {option}, or {option} 0 for a free one" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_of_them_do_not_share_a_directory(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL):
        done = bolide(tmp_path, "up", *FREE_PORTS, *SMALL)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "bolide-data") in done.stderr


def test_a_disk_that_is_too_full_for_messages_is_said_at_the_start(tmp_path: Path) -> None:
    if Disk().used_percent(tmp_path) <= 10:
        pytest.skip(f"the disk of {tmp_path} is too empty: the ratio cannot be set below it")
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, "--set", "diskSpaceWarningLevelRatio=10") as up:
        assert send(up.broker, "Hello", b"x").code == 14
        _, _, stderr = up.stop()
    assert stderr.count("diskSpaceWarningLevelRatio=10") >= 1


def test_a_ready_file_of_an_earlier_life_is_gone_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text('{"pid": 1}')
    up = begin(tmp_path, "up", *FREE_PORTS, *SMALL, "--set", "brokerIP1=nowhere.invalid")
    with contextlib.suppress(subprocess.TimeoutExpired):
        up.process.communicate(timeout=LIMIT_S)
    assert up.process.returncode == 2
    assert not up.ready_path.exists()
