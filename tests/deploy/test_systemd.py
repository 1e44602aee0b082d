"""The unit is read by systemd's own checker, and servers speak its protocol: the test is the one who listens."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.cli.processes import until_held
from tests.e2e.up import LIMIT_S, begin
from tests.tidy.source import ROOT

UNIT = ROOT / "deploy" / "systemd" / "bolide@.service"
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
EXPOSURE_MAX = 1.5  # systemd's word for it: 10 is an unguarded service


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze here (on Debian: apt-get install systemd)")
    return found


@pytest.mark.parametrize("server", ["broker", "namesrv", "controller", "proxy"])
def test_systemd_finds_nothing_wrong_with_the_unit(analyze: str, tmp_path: Path, server: str) -> None:
    unit = tmp_path / f"bolide@{server}.service"
    unit.write_text(UNIT.read_text().replace("/opt/bolide/bin/bolide", shutil.which("true") or "/bin/true"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_is_guarded(analyze: str) -> None:
    done = subprocess.run(
        [analyze, "security", "--offline=true", str(UNIT)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    (level,) = [line for line in done.stdout.splitlines() if "Overall exposure level" in line]
    assert float(level.split(":")[1].split()[0]) <= EXPOSURE_MAX


def no_new_code() -> None:
    """What MemoryDenyWriteExecute=yes asks of the kernel, where it can be asked."""
    ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_server_says_that_it_answers_lives_and_stops(
    tmp_path: Path, is_abstract: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"@bolide-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, preexec_fn=no_new_code))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(address.replace("@", "\0") if is_abstract else address)
        notified.settimeout(LIMIT_S)

        def heard() -> str:
            return notified.recv(4096).decode()

        words = ("broker", "--host", "127.0.0.1", "--port", "0", "--data", "data")
        server = begin(tmp_path, *words, environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"})
        try:
            said = [heard()]
            while not said[-1].startswith("READY=1"):
                said.append(heard())
            assert set(said[:-1]) <= {"WATCHDOG=1"}
            assert said[-1] == f"READY=1\nSTATUS=serving at {server.wait_until_ready().broker}"
            assert [heard(), heard()] == ["WATCHDOG=1"] * 2

            os.kill(server.process.pid, signal.SIGSTOP)  # a loop that does not turn tells nothing
            until_held(server.process.pid)
            notified.setblocking(False)
            drained(notified)
            notified.settimeout(0.5)
            with pytest.raises(TimeoutError):
                heard()
            os.kill(server.process.pid, signal.SIGCONT)

            notified.settimeout(LIMIT_S)
            assert server.stop()[0] == 0
            assert "STOPPING=1" in drained(notified)
        finally:
            server.kill()


def drained(notified: socket.socket) -> list[str]:
    notified.setblocking(False)
    found = []
    while True:
        try:
            found.append(notified.recv(4096).decode())
        except BlockingIOError:
            return found


def test_what_a_server_starts_is_not_who_systemd_asked(tmp_path: Path) -> None:
    """Two instances: the one that was started says READY once, its brokers say nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        words = ("broker", "--instances", "2", "--host", "127.0.0.1", "--port", "0", "--data", "data")
        unit = begin(tmp_path, *words, environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        try:
            unit.wait_until_ready()
            assert unit.stop()[0] == 0
        finally:
            unit.kill()
        said = drained(notified)
        assert [line.split("\n")[0] for line in said if not line.startswith("STOPPING")] == ["READY=1"]
