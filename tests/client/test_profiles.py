"""Where a client learns of its cluster and of itself: the caller, the environment, a profile."""

from pathlib import Path

import pytest

from bolide.client import profiles
from bolide.client.config import Credentials, client_config
from bolide.errors import ClientError, ConfigError
from bolide.remoting.config import ConnectConfig

NAMESRV = "10.0.0.1:9876;10.0.0.2:9876"
KEYS = {"namesrvAddr": NAMESRV, "accessKey": "ada", "secretKey": "of the profile", "useTLS": "true"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*profiles.VARIABLES.values(), profiles.PROFILE_VARIABLE, profiles.SECRET_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "bolide"


def test_a_client_that_is_told_nothing_takes_the_default_profile(home: Path) -> None:
    profiles.write_profile(home / "default.conf", KEYS)
    config = client_config(None)
    assert config.namesrv == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert config.credentials == Credentials(access_key="ada", secret_key="of the profile")
    assert config.connect == ConnectConfig(is_tls=True)


def test_without_a_profile_and_a_variable_nothing_is_known() -> None:
    with pytest.raises(ClientError, match="bolide login"):
        client_config(None)
    assert client_config("a:1").credentials is None
    assert client_config("a:1").connect == ConnectConfig()


def test_an_argument_wins_over_the_environment_and_the_environment_over_the_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_profile(home / "default.conf", KEYS)
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "bob")
    monkeypatch.setenv("BOLIDE_SECRET_KEY", "of the environment")
    monkeypatch.setenv("BOLIDE_TLS", "false")
    config = client_config(None)
    assert config.credentials == Credentials(access_key="bob", secret_key="of the environment")
    assert not config.connect.is_tls
    own = Credentials(access_key="cyd", secret_key="of the caller")
    config = client_config(None, credentials=own, connect=ConnectConfig(is_tls=True))
    assert config.credentials == own
    assert config.connect.is_tls
    assert client_config(None, over={"useTLS": "true"}).connect.is_tls


def test_a_name_and_its_secret_come_from_one_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write_profile(home / "default.conf", KEYS)
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "bob")
    with pytest.raises(ConfigError, match="go together"):
        client_config(None)


@pytest.mark.parametrize("namesrv", ["10.0.0.3:9876", "10.0.0.1:9876;10.0.0.3:9876"])
def test_the_key_of_the_default_profile_is_not_shown_to_another_cluster(
    home: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_profile(home / "default.conf", KEYS)
    assert client_config(namesrv).credentials is None
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    assert client_config(None).credentials is None


@pytest.mark.parametrize("namesrv", ["10.0.0.1:9876", "10.0.0.2:9876, http://10.0.0.1:9876/"])
def test_the_profiles_own_name_servers_may_be_named(home: Path, namesrv: str) -> None:
    profiles.write_profile(home / "default.conf", KEYS)
    assert client_config(namesrv).credentials is not None


def test_localhost_is_this_machine_by_either_name(home: Path) -> None:
    profiles.write_profile(home / "default.conf", {**KEYS, "namesrvAddr": "127.0.0.1:9876"})
    assert client_config("localhost:9876").credentials is not None


def test_a_profile_that_is_asked_for_counts_for_any_name_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write_profile(home / "work.conf", KEYS)
    monkeypatch.setenv("BOLIDE_PROFILE", "work")
    assert client_config("10.0.0.3:9876").credentials is not None
    monkeypatch.setenv("BOLIDE_PROFILE", str(home / "work.conf"))
    assert client_config(None).credentials is not None
    monkeypatch.setenv("BOLIDE_PROFILE", "")
    with pytest.raises(ClientError, match="no name server is known"):
        client_config(None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_profile_that_others_can_read_is_refused_with_what_to_do(home: Path, mode: int) -> None:
    path = home / "default.conf"
    profiles.write_profile(path, KEYS)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        client_config(None)


def test_a_profile_is_written_for_its_owner_alone(home: Path) -> None:
    path = home / "default.conf"
    profiles.write_profile(path, KEYS)
    profiles.write_profile(path, {**KEYS, "secretKey": "newer"})
    assert (path.stat().st_mode & 0o777, home.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [found.name for found in home.iterdir()] == ["default.conf"]
    assert profiles.read_profile(path)["secretKey"] == "newer"


def test_a_profile_that_is_not_there_or_says_something_unknown_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_profile(home / "odd.conf", {"acessKey": "ada"})
    monkeypatch.setenv("BOLIDE_PROFILE", "odd")
    with pytest.raises(ConfigError, match=r"acessKey = .*odd.conf.* a profile has accessKey"):
        client_config(None)
    monkeypatch.setenv("BOLIDE_PROFILE", "away")
    with pytest.raises(ConfigError, match=r"away.conf.* cannot be read .*bolide login"):
        client_config(None)
    monkeypatch.setenv("BOLIDE_PROFILE", ".hidden")
    with pytest.raises(ConfigError, match="neither a name"):
        client_config(None)


def test_files_of_a_profile_are_meant_from_where_it_lies_and_an_authority_means_tls(home: Path) -> None:
    profiles.write_profile(home / "default.conf", {"namesrvAddr": NAMESRV, "tls.client.trustCertPath": "ca.pem"})
    connect = client_config(None).connect
    assert (connect.is_tls, connect.tls_verify, connect.tls_trust_path) == (True, True, str(home / "ca.pem"))


def test_a_secret_may_come_from_a_file_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    secret.chmod(0o600)
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "bob")
    monkeypatch.setenv("BOLIDE_SECRET_FILE", str(secret))
    credentials = client_config("a:1").credentials
    assert credentials == Credentials(access_key="bob", secret_key="from a file")
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        client_config("a:1")


def test_no_error_shows_a_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLIDE_SECRET_KEY", "hush-hush")
    with pytest.raises(ConfigError) as caught:
        client_config("a:1")
    assert "hush-hush" not in str(caught.value)
