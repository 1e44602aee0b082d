"""The limits of connections as RocketMQ's keys set them."""

from pathlib import Path

import pytest

from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.settings import build, dump


def test_a_port_is_described_by_rocketmqs_keys() -> None:
    config = build(
        ListenConfig,
        {
            "listenPort": "9876",
            "bindAddress": "127.0.0.1",
            "serverSocketBacklog": "7",
            "serverChannelMaxIdleTimeSeconds": "60",
            "tls.server.mode": "enforcing",
        },
    )
    found = (config.port, config.host, config.backlog, config.idle_max_s, config.tls_mode)
    assert found == (9876, "127.0.0.1", 7, 60, "enforcing")


def test_the_connecting_side_is_described_by_rocketmqs_keys() -> None:
    config = build(
        ConnectConfig,
        {"connectTimeoutMillis": "10", "clientChannelMaxIdleTimeSeconds": "5", "useTLS": "true"},
    )
    assert (config.connect_timeout_ms, config.idle_max_s, config.is_tls) == (10, 5, True)


def test_the_defaults_are_rocketmqs() -> None:
    port, peer = ListenConfig(), ConnectConfig()
    assert (port.frame_size_max, port.idle_max_s, port.backlog, port.tls_mode) == (1 << 24, 120, 1024, "permissive")
    assert (peer.connect_timeout_ms, peer.idle_max_s, peer.is_tls, peer.tls_verify) == (3000, 120, False, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tls.server.mode", "maybe"),
        ("tls.server.need.client.auth", "please"),
        ("listenPort", "65536"),
        ("listenPort", "-1"),
        ("serverChannelMaxIdleTimeSeconds", "0"),
        ("com.rocketmq.remoting.frameMaxLength", str(0x1600_0000)),  # such a length would begin like a TLS handshake
        ("writeBufferHighWaterMark", str(1 << 40)),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_when_it_is_read(key: str, value: str) -> None:
    with pytest.raises(ConfigError):
        build(ListenConfig, {key: value})


def test_a_back_off_cannot_end_before_it_began() -> None:
    with pytest.raises(ConfigError):
        ConnectConfig(backoff_first_ms=200, backoff_max_ms=100)


@pytest.mark.parametrize("key", ["tls.server.keyPassword", "tls.client.keyPassword"])
def test_the_password_of_a_key_is_used_but_never_shown(key: str) -> None:
    room: type[ListenConfig] | type[ConnectConfig] = ListenConfig if "server" in key else ConnectConfig
    config = build(room, {key: "open sesame"})
    assert config.tls_key_password == "open sesame"
    assert "open sesame" not in repr(config) + repr(dump(config))
    assert key not in dump(config)


def test_a_tls_properties_file_is_read_and_what_stands_beside_it_is_stronger(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(
        "# RocketMQ's\ntls.server.mode=enforcing\ntls.server.keyPassword=open sesame\ntls.test.mode.enable=false"
    )
    found = with_tls_file({"tls.config.file": str(path), "tls.server.mode": "permissive", "listenPort": "1"})
    config = build(ListenConfig, found)
    assert (config.tls_mode, config.tls_key_password, config.tls_test_mode) == ("permissive", "open sesame", False)
    assert with_tls_file({"listenPort": "1"}) == {"listenPort": "1"}


@pytest.mark.parametrize(
    ("text", "why"),
    [("listenPort=1", "listenPort"), ("tls.config.file=x", "tls.config.file"), (None, "cannot be read")],
)
def test_a_tls_properties_file_that_is_none_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "tls.properties"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"tls.properties.*{why}"):
        with_tls_file({"tls.config.file": str(path)})
