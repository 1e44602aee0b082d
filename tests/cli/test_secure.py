"""`bolide up --secure`: what it makes, what it keeps, who gets in, and what nobody sees."""

import argparse
import asyncio
import contextlib
import os
import shutil
import ssl
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import bolide
from bolide.cli import secure
from bolide.cli.replicas import Plan, unit
from bolide.client import profiles
from bolide.errors import ConfigError
from bolide.proxy import messages as m
from tests.cli.inside import run
from tests.e2e.up import FREE_PORTS, SMALL, Up, running
from tests.proxy.peer import connected
from tests.proxy.serving import message
from tests.proxy.signing import signed


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Profiles of the one who starts it, and of those who ask."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BOLIDE_PROFILE", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return tmp_path / "config" / "bolide"


@contextlib.contextmanager
def secured(home: Path, *more: str) -> Iterator[Up]:
    with running(
        home, "up", "--secure", *FREE_PORTS, "--grpc-port", "0", *SMALL, *more, environment={**os.environ}
    ) as up:
        yield up


@pytest.mark.feature("X09", "X10", "X21")
def test_it_opens_to_its_profile_alone_and_says_its_secret_once(
    tmp_path: Path, config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(tmp_path) as up:
        own = profiles.read_profile(config_home / "default.conf")
        assert own["namesrvAddr"] == up.namesrv
        secret = own["secretKey"]
        assert len(secret) == 32
        # Whoever has the profile needs no option.
        assert run("", "topic", "create", "Hello", "--queues", "1").exit_code == 0
        assert run("", "send", "Hello", "one").exit_code == 0
        with bolide.Producer("p") as producer:
            assert producer.send("Hello", b"two").is_ok
        with bolide.Consumer("g", "Hello", start_from=bolide.StartFrom.oldest()) as consumer:
            assert {consumer.receive(1, timeout_s=30)[0].body for _ in range(2)} == {b"one", b"two"}
        # Without it nobody gets in, and is told what to do: no TLS, TLS without a name, a wrong secret.
        monkeypatch.setenv("BOLIDE_PROFILE", "")
        for words, wanted in (
            ((), "--tls-ca FILE"),
            (("--tls",), "`bolide login`"),
            (("--tls", "--access-key", "admin"), "check signature failed"),
        ):
            if "--access-key" in words:
                monkeypatch.setenv("BOLIDE_SECRET_KEY", "wrong")
            done = run(up.namesrv, "topic", "list", *words)
            assert (done.exit_code > 1, wanted in done.stderr) == (True, True), (words, done.stderr)
        monkeypatch.delenv("BOLIDE_SECRET_KEY")
        monkeypatch.delenv("BOLIDE_PROFILE")
        asyncio.run(grpc_opens_to_the_same_users(up.ready["grpc"], own))
        first = up.stop()
    assert first[1].count(secret) == 1
    assert secret not in first[2]
    private = [path for path in (tmp_path / "bolide-data" / "secure").iterdir() if path.name != "tls.crt"]
    private += [config_home / "default.conf", tmp_path / "bolide-data" / "config" / "users.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert stat.S_IMODE((tmp_path / "bolide-data").stat().st_mode) == 0o700
    certificate = (tmp_path / "bolide-data" / "secure" / "tls.crt").read_bytes()
    with secured(tmp_path) as up:
        assert "Hello" in run("", "topic", "list").stdout
        second = up.stop()
    assert secret not in second[1] + second[2]
    assert (tmp_path / "bolide-data" / "secure" / "tls.crt").read_bytes() == certificate
    assert profiles.read_profile(config_home / "default.conf") == {**own, "namesrvAddr": up.namesrv}


async def grpc_opens_to_the_same_users(address: str, own: Mapping[str, str]) -> None:
    port = int(address.rpartition(":")[2])
    trusted = ssl.create_default_context(cafile=own[profiles.TRUST])
    trusted.check_hostname = False  # the certificate vouches for itself
    request = m.SendMessageRequest(messages=[message("Hello")])
    async with connected(port, ssl=trusted) as peer:
        for headers, code in ((signed(secret=own["secretKey"]), m.Code.OK), ({}, m.Code.UNAUTHORIZED)):
            assert (await peer.call("SendMessage", request, m.SendMessageResponse, **headers)).status.code == code
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""  # without TLS: a hang-up
    writer.close()


def test_a_profile_of_another_cluster_is_left_alone(tmp_path: Path, config_home: Path) -> None:
    mine = {"namesrvAddr": "10.0.0.1:9876", "accessKey": "ada", "secretKey": "of another cluster"}
    profiles.write_profile(config_home / "default.conf", mine)
    kept = secure.prepared(tmp_path)
    opened = secure.open_to_user(kept, "127.0.0.1:1", os.environ)
    assert profiles.read_profile(config_home / "default.conf") == mine
    assert opened.option == f" --profile {kept.client_file}"
    assert profiles.read_profile(kept.client_file)["namesrvAddr"] == "127.0.0.1:1"


def test_a_secret_that_its_owner_changed_stays_and_a_lost_profile_comes_back(tmp_path: Path, config_home: Path) -> None:
    kept = secure.prepared(tmp_path)
    path = secure.open_to_user(kept, "127.0.0.1:1", os.environ).path
    profiles.write_profile(path, {**profiles.read_profile(path), "secretKey": "changed"})
    again = secure.open_to_user(secure.prepared(tmp_path), "127.0.0.1:2", os.environ)
    found = profiles.read_profile(path)
    assert (found["secretKey"], found["namesrvAddr"]) == ("changed", "127.0.0.1:2")
    assert not any("secret changed" in line for line in again.lines)
    path.unlink()
    secure.open_to_user(secure.prepared(tmp_path), "127.0.0.1:3", os.environ)
    assert profiles.read_profile(path)["accessKey"] == "admin"


def test_a_directory_that_was_deleted_leaves_no_wrong_secret_and_a_start_that_failed_none_unsaid(
    tmp_path: Path, config_home: Path
) -> None:
    data = tmp_path / "data"
    path = secure.open_to_user(secure.prepared(data), "127.0.0.1:1", os.environ).path
    before = profiles.read_profile(path)["secretKey"]
    shutil.rmtree(data)
    secure.prepared(data)  # of a start that found its port taken
    lines = secure.open_to_user(secure.prepared(data), "127.0.0.1:1", os.environ).lines
    secret = profiles.read_profile(path)["secretKey"]
    assert secret != before
    assert any(secret in line for line in lines)
    assert not any(secret in line for line in secure.open_to_user(secure.prepared(data), "", os.environ).lines)


def test_a_named_profile_is_written_where_the_variable_says(tmp_path: Path, config_home: Path) -> None:
    kept = secure.prepared(tmp_path)
    opened = secure.open_to_user(kept, "127.0.0.1:1", {**os.environ, "BOLIDE_PROFILE": "work"})
    assert (opened.path, opened.option) == (config_home / "work.conf", " --profile work")


def test_processes_of_replicas_have_no_secret_on_their_command_lines(tmp_path: Path) -> None:
    kept = secure.prepared(tmp_path)
    options = argparse.Namespace(log_level="info", log_format="text", file=None)
    planned = Plan("127.0.0.1", tmp_path, "b", 1, 2, (3, 4, 5), grpc_port=6)
    processes = unit(planned, options, {"bolideAdminFrom": "anywhere"}, kept)
    words = [word for part in processes for child in part for word in child.arguments]
    assert words.count(f"@{kept.settings_file}") == 6
    servers = kept.settings()
    hidden = [kept.as_server()[0].secret_key, profiles.read_profile(kept.client_file)["secretKey"]]
    assert all(secret in "".join(servers.values()) for secret in hidden)
    assert not any(secret in word for word in words for secret in hidden)


@pytest.mark.parametrize("has_openssl", [True, False])
def test_without_the_library_openssl_makes_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_openssl: bool
) -> None:
    def missing(clock: object) -> bytes:
        raise ImportError

    monkeypatch.setattr("bolide.remoting.tls.self_signed_pem", missing)
    if not has_openssl:
        monkeypatch.setattr("shutil.which", lambda name: None)
        with pytest.raises(ConfigError, match=r"install bolide\[tls\], or the program openssl"):
            secure.prepared(tmp_path)
        assert not (tmp_path / "secure" / "servers.conf").exists()
        return
    kept = secure.prepared(tmp_path)
    told = subprocess.run(
        ["openssl", "x509", "-in", str(kept.certificate), "-noout", "-subject"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "localhost" in told.stdout
    assert stat.S_IMODE((kept.directory / "tls.key").stat().st_mode) == 0o600
