"""`bolide broker` as a process of its own, beside name servers in processes of theirs."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide import kernel
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.command import Command
from bolide.remoting.ports import BROKER_NEIGHBOURS, HOST, free_port
from bolide.settings import read_properties
from bolide.testing import Cluster, cluster
from tests.cli.processes import bolide, own_address, wait_for
from tests.e2e.up import LIMIT_S, SMALL, Up, ask, bodies, running, send

LOCAL = ("--host", "127.0.0.1", "--port", "0", *SMALL)


@pytest.fixture(scope="module")
def namesrvs() -> Iterator[Cluster]:
    """Two name servers."""
    with cluster(namesrvs=2, brokers=0) as it:
        yield it


def routes(namesrvs: Cluster, topic: str = "TBW102") -> list[list[str]]:
    """What each name server says: the addresses of the brokers that have a topic."""
    found = []
    for namesrv in namesrvs.namesrvs:
        answer = ask(namesrv.address, Command(105, fields={"topic": topic}))
        data = TopicRoute.decode(answer.body).broker_datas if answer.code == 0 else []
        found.append([address for broker in data for address in broker.broker_addrs.values()])
    return found


@pytest.mark.feature("F017", "F025")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_is_known_to_every_name_server_when_it_is_ready_and_to_none_after_a_signal(
    namesrvs: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL) as broker:
        assert broker.ready == {"pid": broker.process.pid, "broker": broker.broker}
        assert routes(namesrvs) == [[broker.broker], [broker.broker]]
        assert send(broker.broker, "T", b"x").code == 0
        broker.process.send_signal(number)
        code, stdout, stderr = broker.stop(number)
    assert code == 0
    assert "Traceback" not in stderr
    assert stderr.count(f"stopping signal={number.name}") == 1
    assert f"listens on {broker.broker}" in stdout
    assert f"({kernel.NAME} kernel)" in stdout
    assert f"bolide cluster -n '{namesrvs.namesrv}'" in stdout
    assert routes(namesrvs) == [[], []]
    assert not broker.ready_path.exists()
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.feature("F026")
def test_after_kill_9_its_routes_are_gone_and_its_messages_are_not(namesrvs: Cluster, tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(20)]
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL) as broker:
        for body in sent:
            assert send(broker.broker, "T", body).code == 0
        broker.kill()
    wait_for(lambda: routes(namesrvs) == [[], []])  # its connections end with it
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL) as broker:
        assert bodies(broker.broker, "T") == sent


def test_its_store_is_rocketmqs_by_default_and_another_when_told(namesrvs: Cluster, tmp_path: Path) -> None:
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL):
        assert (tmp_path / "store" / "commitlog").is_dir()
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL, "--data", str(tmp_path / "kept")):
        assert (tmp_path / "kept" / "commitlog").is_dir()


def test_the_environment_names_the_name_servers_when_nobody_else_does(namesrvs: Cluster, tmp_path: Path) -> None:
    environment = {"NAMESRV_ADDR": namesrvs.namesrv}
    with running(tmp_path, "broker", *LOCAL, environment=environment) as broker:
        assert routes(namesrvs) == [[broker.broker], [broker.broker]]
    file = tmp_path / "broker.conf"
    file.write_text(f"namesrvAddr={namesrvs.namesrvs[0].address}\n")
    with running(tmp_path, "broker", "-c", str(file), *LOCAL, environment=environment) as broker:
        assert routes(namesrvs) == [[broker.broker], []]
        broker.stop()
    with running(tmp_path, "broker", "-c", str(file), "-n", namesrvs.namesrv, *LOCAL) as broker:
        assert routes(namesrvs) == [[broker.broker], [broker.broker]]


def test_without_a_name_server_it_runs_and_says_that_nobody_finds_it(tmp_path: Path) -> None:
    with running(tmp_path, "broker", *LOCAL) as broker:
        assert send(broker.broker, "T", b"x").code == 0
        _, stdout, _ = broker.stop()
    assert "name servers      none" in stdout


def test_a_name_server_that_does_not_answer_holds_up_neither_the_start_nor_the_stop(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with running(tmp_path, "broker", "-n", address, *LOCAL) as broker:
            assert broker.ready_s < LIMIT_S / 2
            assert send(broker.broker, "T", b"x").code == 0
            code, _, stderr = broker.stop()
    assert code == 0
    assert stderr.count("name server not told, trying on") == 1


@pytest.mark.parametrize("advertised", ["192.0.2.7:4711", "localhost:4711"])
def test_the_advertised_address_is_told_with_its_port(namesrvs: Cluster, tmp_path: Path, advertised: str) -> None:
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, "--advertise", advertised, *LOCAL) as broker:
        assert routes(namesrvs) == [[advertised], [advertised]]
        broker.stop()


def test_by_default_it_tells_its_own_end_of_the_connection_to_the_name_server(tmp_path: Path) -> None:
    host = own_address() or "127.0.0.1"
    with (
        running(tmp_path, "namesrv", "--port", "0") as namesrv,
        running(tmp_path, "broker", "-n", f"{host}:{namesrv.namesrv.split(':')[1]}", "--port", "0", *SMALL) as broker,
    ):
        answer = ask(namesrv.namesrv, Command(105, fields={"topic": "TBW102"}))
        (data,) = TopicRoute.decode(answer.body).broker_datas
        assert data.broker_addrs == {0: f"{host}:{broker.broker.split(':')[1]}"}


def vip_port(broker: Up) -> int:
    return int(broker.broker.split(":")[1]) - 2


def test_the_vip_port_lies_two_below_and_takes_messages(namesrvs: Cluster, tmp_path: Path) -> None:
    with running(tmp_path, "broker", "-n", namesrvs.namesrv, *LOCAL) as broker:
        assert send(f"127.0.0.1:{vip_port(broker)}", "T", b"x").code == 0
        assert bodies(broker.broker, "T") == [b"x"]


def test_a_vip_port_that_is_taken_is_a_warning(tmp_path: Path) -> None:
    port = free_port(*BROKER_NEIGHBOURS)
    with (
        socket.create_server((HOST, port - 2)),
        running(tmp_path, "broker", "--host", HOST, "--port", str(port), *SMALL) as broker,
    ):
        assert send(broker.broker, "T", b"x").code == 0
        _, _, stderr = broker.stop()
    (warning,) = [line for line in stderr.splitlines() if "no VIP port" in line]
    assert str(port - 2) in warning


@pytest.mark.feature("F036")
def test_a_rocketmq_file_is_honoured_and_keys_without_effect_are_named_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\nlistenPort=1\n"
        "pullMessageThreadPoolNums=8\nsendMessageThreadPoolNums=8\n"
    )
    with running(tmp_path, "broker", "-c", str(file), *LOCAL) as broker:
        texts = read_properties(ask(broker.broker, Command(26)).body.decode())
        assert texts["fileReservedTime"] == "48"
        assert texts["brokerName"] == "broker-a"
        assert texts["pullMessageThreadPoolNums"] == "8"
        _, stdout, stderr = broker.stop()
    assert stderr.count("settings without effect here: pullMessageThreadPoolNums, sendMessageThreadPoolNums") == 1
    assert "broker broker-a" in stdout


def test_p_prints_every_setting_and_exits(tmp_path: Path) -> None:
    arguments = ("-n", "a:1;b:2", "--set", "autoCreateTopicEnable=false", "--port", "1234", "--advertise", "h:5")
    done = bolide(tmp_path, "broker", "-p", *arguments)
    assert done.returncode == 0
    texts = read_properties(done.stdout)
    assert texts["namesrvAddr"] == "a:1;b:2"
    assert texts["listenPort"] == "1234"
    assert texts["brokerIP1"] == "h"
    assert texts["autoCreateTopicEnable"] == "false"
    assert texts["storePathRootDir"] == str(tmp_path / "store")
    assert texts["mappedFileSizeCommitLog"] == str(1 << 30)
    assert "pullMessageThreadPoolNums" in texts
    assert not (tmp_path / "store").exists()


def test_safe_is_one_word_for_what_a_group_must_keep(tmp_path: Path) -> None:
    texts = read_properties(bolide(tmp_path, "broker", "-p", "--safe", "--controller", "a:1;b:2").stdout)
    keys = ("enableControllerMode", "controllerAddr", "allAckInSyncStateSet", "minInSyncReplicas")
    assert [texts[key] for key in keys] == ["true", "a:1;b:2", "true", "2"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "brokrName=x"], "brokrName = 'x': no such setting; did you mean brokerName?"),
        (["-n", "nowhere"], "namesrvAddr = 'nowhere': 'nowhere' must be host:port"),
        (["-n", "a:1;b"], "'b' must be host:port"),
        (["--advertise", "host"], "must be host:port"),
        (["--controller", "a:1;b"], "controllerAddr = 'a:1;b': 'b' must be host:port"),
        (["--safe"], "needs the addresses of controllers"),
        (["--set", "brokerPermission=9"], "must be 0 to 7"),
        (["-c", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--host", "256.0.0.1"], "256.0.0.1"),
        (["--data", "/dev/null/store"], "/dev/null/store"),
        (["--data", "/dev/null"], "storePathRootDir = '/dev/null': is a file; choose a directory with --data"),
    ],
)
def test_a_mistake_of_the_user_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = bolide(tmp_path, "broker", *LOCAL, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sentence in error


def test_all_three_servers_are_in_the_list_of_commands(tmp_path: Path) -> None:
    listed = bolide(tmp_path, "--help").stdout
    for command in ("up", "broker", "namesrv"):
        assert f"  {command} " in listed
        assert "--ready-file" in bolide(tmp_path, command, "--help").stdout


@pytest.mark.parametrize("has_file", [True, False])
def test_a_setting_changed_at_run_time_is_still_changed_after_a_restart(tmp_path: Path, has_file: bool) -> None:
    (tmp_path / "b.conf").write_text("# ours\nfileReservedTime=48\n")
    options = ("-c", str(tmp_path / "b.conf"), *LOCAL) if has_file else LOCAL
    with running(tmp_path, "broker", *options) as broker:
        assert ask(broker.broker, Command(25, body=b"autoCreateTopicEnable=false")).code == 0
        broker.stop(signal.SIGTERM)
    with running(tmp_path, "broker", *options) as broker:
        settings = read_properties(ask(broker.broker, Command(26)).body.decode())
    assert settings["autoCreateTopicEnable"] == "false"
    assert settings["fileReservedTime"] == ("48" if has_file else "72")
