"""Three nodes of etcd on loopback, to be killed and frozen."""

import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bolide.remoting.ports import free_port
from tests.cli.processes import until_held

LIMIT_S = 60
POLL_INTERVAL_S = 0.02
needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None, reason="no etcd here; on Debian: apt-get install etcd-server, as make test does"
)


class Etcds:
    """The nodes of one etcd."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        self._directory = directory
        self.ports, self._peer_ports = ([free_port() for _ in range(count)] for _ in range(2))
        self.processes: list[subprocess.Popen[bytes]] = []
        self._cluster = ",".join(f"e{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._peer_ports))

    @property
    def endpoints(self) -> str:
        return ",".join(f"http://127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int) -> subprocess.Popen[bytes]:
        client, peer = (f"http://127.0.0.1:{ports[number]}" for ports in (self.ports, self._peer_ports))
        words = ["--name", f"e{number}", "--data-dir", str(self._directory / f"e{number}"), "--unsafe-no-fsync"]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client, "--log-level", "error"]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        words += ["--initial-cluster", self._cluster, "--heartbeat-interval", "50", "--election-timeout", "500"]
        if (
            "--unsafe-no-fsync"
            not in subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False).stdout
        ):
            words.remove("--unsafe-no-fsync")
        log = open(self._directory / f"e{number}.log", "ab")  # noqa: SIM115
        return subprocess.Popen(["etcd", *words], stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})

    def wait(self) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not all(self._is_healthy(port) for port in self.ports):
            assert time.monotonic() < deadline_s, (self._directory / "e0.log").read_text()
            time.sleep(POLL_INTERVAL_S)

    def _is_healthy(self, port: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health")
            return b"true" in connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()

    def signal(self, number: int, what: signal.Signals) -> None:
        """Returns when a deadly one has ended the process, or one that stops it holds every thread of it."""
        process = self.processes[number]
        process.send_signal(what)
        if what is signal.SIGKILL:
            process.wait()
        if what is signal.SIGSTOP:
            until_held(process.pid)


@contextmanager
def etcds(directory: Path, count: int = 3) -> Iterator[Etcds]:
    nodes = Etcds(directory, count)
    try:
        nodes.processes = [nodes.start(number) for number in range(count)]
        nodes.wait()
        yield nodes
    finally:
        for process in nodes.processes:
            process.kill()
            process.wait()
