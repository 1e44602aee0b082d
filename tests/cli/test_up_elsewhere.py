"""`bolide up` and another machine: a network namespace, which is one as far as sockets go."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bolide.protocol.command import Command
from tests.e2e.up import FREE_PORTS, LIMIT_S, SMALL, Up, ask, bodies, running
from tests.namesrv.brokers import TOPICS
from tests.namesrv.peers import registration_body

# Tests run side by side, and each process needs a network of its own.
_NETWORK = os.getpid() % (1 << 14)
HERE, THERE = (f"10.213.{_NETWORK >> 6}.{(_NETWORK & 63) * 4 + end}" for end in (1, 2))
ASK = """
import json, sys
from bolide.protocol.command import Command
from tests.e2e.up import ask, bodies, send
address, steps = sys.argv[1], json.loads(sys.argv[2])
for step in steps:
    if step == "send":
        answer = send(address, "Hello", b"from there")
    elif step == "read":
        print(json.dumps([0, bodies(address, "Hello")[-1].decode()]))
        continue
    else:
        code, fields, body = step
        answer = ask(address, Command(code, fields=fields, body=body.encode()))
    print(json.dumps([answer.code, answer.remark]))
"""


@dataclass
class Elsewhere:
    """Another machine."""

    name: str

    def ask(self, port: str, *steps: object) -> list[tuple[int, str]]:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, sys.executable, "-c", ASK, f"{HERE}:{port}", json.dumps(steps)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    name = f"bolide{os.getpid()}"
    inside = f"b{os.getpid()}i"
    outside = f"b{os.getpid()}o"
    commands = [
        f"ip netns add {name}",
        f"ip link add {outside} type veth peer name {inside} netns {name}",
        f"ip addr add {HERE}/30 dev {outside}",
        f"ip link set {outside} up",
        f"ip -n {name} addr add {THERE}/30 dev {inside}",
        f"ip -n {name} link set {inside} up",
    ]
    try:
        for command in commands:
            try:
                done = subprocess.run(command.split(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
            except FileNotFoundError:
                pytest.skip("no `ip` here, so no network namespace can be made")
            if done.returncode:
                pytest.skip(f"no network namespace can be made here: {command}: {done.stderr.strip()}")
        yield Elsewhere(name)
    finally:
        for command in (f"ip link del {outside}", f"ip netns del {name}"):
            subprocess.run(command.split(), capture_output=True, timeout=LIMIT_S, check=False)


def ports(up: Up) -> tuple[str, str]:
    return up.namesrv.rpartition(":")[2], up.broker.rpartition(":")[2]


REGISTER = [
    103,
    {"brokerName": "b", "brokerAddr": f"{THERE}:1", "clusterName": "C", "haServerAddr": f"{THERE}:2", "brokerId": "0"},
    registration_body(TOPICS).decode(),
]
SETTING = [25, {}, "traceOn=false"]
DELETE = [215, {"topic": "Hello"}, ""]
KV = [100, {"namespace": "n", "key": "k", "value": "v"}, ""]


def test_other_machines_send_and_read_and_only_this_one_changes(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with running(tmp_path, "up", "--host", "0.0.0.0", *FREE_PORTS, *SMALL) as up:
        namesrv, broker = ports(up)
        sent, read, setting, delete, looked = elsewhere.ask(broker, "send", "read", SETTING, DELETE, [26, {}, ""])
        assert (sent[0], read, looked[0]) == (0, (0, "from there"), 0)  # the topic was made by the first message
        assert (setting[0], delete[0]) == (16, 16)
        assert "request 215 (DELETE_TOPIC_IN_BROKER) changes this server" in delete[1]
        assert THERE in delete[1]
        assert "--admin-from anywhere (bolideAdminFrom=anywhere)" in delete[1]
        found, registered, kept = elsewhere.ask(namesrv, [105, {"topic": "Hello"}, ""], REGISTER, KV)
        assert (found[0], registered[0], kept[0]) == (0, 16, 16)
        for host in ("127.0.0.1", HERE):  # by loopback, and by the address that others use
            assert ask(f"{host}:{broker}", Command(25, body=b"traceOn=false")).code == 0
            assert ask(f"{host}:{namesrv}", Command(100, fields=KV[1])).code == 0  # type: ignore[arg-type]
        assert bodies(up.broker, "Hello") == [b"from there"]
        _, stdout, _ = up.stop()
    assert "from this machine only" in stdout


def test_other_machines_may_change_when_they_are_let(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with running(tmp_path, "up", "--host", "0.0.0.0", "--admin-from", "anywhere", *FREE_PORTS, *SMALL) as up:
        namesrv, broker = ports(up)
        assert [code for code, _ in elsewhere.ask(broker, "send", SETTING, DELETE)] == [0, 0, 0]
        assert [code for code, _ in elsewhere.ask(namesrv, REGISTER, KV)] == [0, 0]


def test_servers_of_their_own_are_open_unless_they_are_told(tmp_path: Path, elsewhere: Elsewhere) -> None:
    for options, code in ((), 0), (("--admin-from", "local"), 16):
        with running(tmp_path, "namesrv", "--port", "0", *options) as up:
            port = up.namesrv.rpartition(":")[2]
            assert [one for one, _ in elsewhere.ask(port, REGISTER)] == [code]
        with running(tmp_path, "broker", "--port", "0", "--data", "kept", *SMALL, *options) as up:
            port = up.broker.rpartition(":")[2]
            assert [one for one, _ in elsewhere.ask(port, SETTING)] == [code]
