"""Commands on a cluster that takes TLS alone: options, variables and profiles say how to reach it."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bolide.cli import brokers, controllers
from bolide.cli.app import app
from bolide.client import profiles
from bolide.clock import SystemClock
from bolide.remoting.tls import self_signed_pem
from bolide.testing import Cluster, cluster
from tests.cli.inside import run


def commands_in(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands_in(inner, f"{path} {name}".strip())


@pytest.mark.feature("X21")
def test_every_command_that_asks_a_cluster_has_the_options_and_nobody_has_a_secret_as_one() -> None:
    found = {
        path: {spelling for option in command.params for spelling in option.opts}
        for whole in (app, brokers.app, controllers.app)
        for path, command in commands_in(whole)
    }
    asking = {path for path, options in found.items() if options & {"--namesrv", "--address"}}
    assert len(asking) > 30
    wanted = {"--profile", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--access-key", "--secret-file"}
    assert [path for path in asking if not wanted <= found[path]] == []
    assert [path for path, options in found.items() if options & {"--secret", "--secret-key", "--password"}] == []


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(self_signed_pem(SystemClock()))
    return path


@pytest.fixture(scope="module")
def secured(authority: Path) -> Iterator[Cluster]:
    settings = {"tls.server.mode": "enforcing", "tls.server.certPath": authority, "useTLS": True}
    with cluster(settings=settings) as rocket:
        yield rocket


def test_without_tls_a_command_says_how_to_speak_it(secured: Cluster) -> None:
    done = run(secured.namesrv, "topic", "show", "T")
    assert done.exit_code == 6
    assert "--tls-ca FILE" in done.stderr, done.stderr


@pytest.mark.feature("X21")
def test_commands_speak_tls_when_they_are_told(secured: Cluster, authority: Path) -> None:
    tls = ("--tls-ca", str(authority))
    for words in (
        ("topic", "create", "Orders", "--queues", "1", *tls),
        ("send", "Orders", "hello", *tls),
        ("consume", "Orders", "--from-beginning", "--limit", "1", *tls),
        ("tail", "Orders", "--limit", "0", *tls),
        ("group", "list", *tls),
        ("dlq", "list", "--tls"),
        ("transaction", "list", *tls),
        ("cluster", *tls),
        ("bench", "produce", "--topic", "Orders", "--count", "8", *tls),
        ("bench", "produce", "--topic", "Orders", "--count", "8", "--threads", "2", *tls),
    ):
        done = run(secured.namesrv, *words)
        assert done.exit_code == 0, (words, done.output, done.stderr)
        assert "error:" not in done.stderr, (words, done.stderr)
    assert "BOLIDE_TLS_CA" not in os.environ  # an option ends with its command
    assert "BOLIDE_TLS" not in os.environ


def test_a_server_that_the_authority_does_not_vouch_for_is_refused(secured: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(self_signed_pem(SystemClock()))
    done = run(secured.namesrv, "topic", "list", "--tls-ca", str(other))
    assert done.exit_code == 6
    assert "certificate verify failed" in done.stderr.lower(), done.stderr


def test_a_profile_is_found_without_an_option(
    secured: Cluster, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BOLIDE_PROFILE")
    settings = {profiles.NAMESRV: secured.namesrv, profiles.TRUST: str(authority)}
    profiles.write_profile(tmp_path / "bolide" / "default.conf", settings)
    assert run("", "topic", "create", "Found", "--queues", "1").exit_code == 0
    assert "Found" in run("", "topic", "list").stdout
    profiles.write_profile(tmp_path / "bolide" / "work.conf", settings)
    (tmp_path / "bolide" / "default.conf").unlink()
    assert "Found" not in run("", "topic", "list").stdout  # somebody's cluster may be at the usual port, or none
    assert "Found" in run("", "topic", "list", "--profile", "work").stdout


def test_login_tries_the_key_and_keeps_it_for_its_owner_alone(
    secured: Cluster, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = run(secured.namesrv, "login", "--tls-ca", str(authority), given="ada\nhush-hush\n")
    assert done.exit_code == 0, (done.output, done.stderr)
    assert "access control is off" in done.stdout
    assert "hush-hush" not in done.output + done.stderr
    path = tmp_path / "bolide" / "default.conf"
    assert path.stat().st_mode & 0o777 == 0o600
    assert profiles.read_profile(path) == {
        "namesrvAddr": secured.namesrv,
        "accessKey": "ada",
        "secretKey": "hush-hush",
        "useTLS": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority),
    }


def test_login_makes_a_profile_that_is_not_there_and_replaces_one_that_is_wrong(
    secured: Cluster, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BOLIDE_PROFILE")
    wrong = tmp_path / "bolide" / "default.conf"
    profiles.write_profile(wrong, {profiles.NAMESRV: secured.namesrv, profiles.CERTIFICATE: "gone.pem"})
    words = ("login", "--tls-ca", str(authority))
    for name in ("work", "default"):
        more = () if name == "default" else ("--profile", name)
        done = run(secured.namesrv, *words, *more, given="ada\nhush-hush\n")
        assert done.exit_code == 0, (name, done.output, done.stderr)
        kept = profiles.read_profile(tmp_path / "bolide" / f"{name}.conf")
        assert (kept["accessKey"], kept.get(profiles.CERTIFICATE)) == ("ada", None)
        assert run("", "topic", "list", *more).exit_code == 0
    assert "BOLIDE_PROFILE" not in os.environ


def test_login_writes_nothing_where_the_cluster_cannot_be_asked(
    secured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for namesrv in (secured.namesrv, "127.0.0.1:1"):  # one without TLS, one where nobody is
        done = run(namesrv, "login", "--profile", "work", given="ada\nhush-hush\n")
        assert (done.exit_code, "no name server answers" in done.stderr) == (6, True), done.stderr
        assert "hush-hush" not in done.output + done.stderr
    assert run(secured.namesrv, "login", given="").exit_code == 2
    assert not (tmp_path / "bolide").exists()
