"""The name server's settings: what a file may say, what may change at run time."""

from pathlib import Path

import pytest

from bolide.errors import ConfigError, Refusal
from bolide.namesrv.config import RULES, WITHOUT_EFFECT, NamesrvConfig, read_config, shown
from bolide.settings import read_properties


def test_defaults_are_rocketmqs_but_for_the_scan() -> None:
    config = read_config({})
    assert config.listen.port == 9876
    assert config.listen.host == "0.0.0.0"
    assert config.listen.idle_max_s == 120
    assert config.scan_interval_ms == 10_000
    assert config.kv_path == Path.home() / "namesrv" / "kvConfig.json"
    assert (config.has_order_topics, config.returns_order_topics, config.waits_for_brokers) == (False, True, False)
    assert config == NamesrvConfig()


@pytest.mark.feature("F036")
def test_one_file_fills_the_server_and_the_network_settings() -> None:
    text = "listenPort=9999\nbindAddress=127.0.0.1\nkvConfigPath=/data/kv.json\nserverChannelMaxIdleTimeSeconds=30\n"
    config = read_config(read_properties(text + "scanNotActiveBrokerInterval=5000\nconnectTimeoutMillis=100"))
    assert (config.listen.port, config.listen.host, config.listen.idle_max_s) == (9999, "127.0.0.1", 30)
    assert (config.kv_path, config.scan_interval_ms) == (Path("/data/kv.json"), 5000)
    assert config.connect.connect_timeout_ms == 100


@pytest.mark.feature("F052")
def test_the_epoll_switch_is_accepted_shown_and_false_by_default() -> None:
    assert shown(read_config({}))["useEpollNativeSelector"] == "false"
    config = read_config({"useEpollNativeSelector": "true"})
    assert shown(config)["useEpollNativeSelector"] == "true"
    assert list(config.ignored) == ["useEpollNativeSelector"]


def test_every_key_is_shown_and_a_password_is_not() -> None:
    texts = shown(read_config({"tls.server.keyPassword": "s3cret", "serverWorkerThreads": "3"}))
    assert texts.keys() >= WITHOUT_EFFECT.keys() | {"listenPort", "kvConfigPath", "connectTimeoutMillis"}
    assert texts["serverWorkerThreads"] == "3"
    assert "s3cret" not in texts.values()
    assert "s3cret" not in repr(read_config({"tls.server.keyPassword": "s3cret"}))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("listenPrt", "1", "did you mean listenPort"),
        ("kvConfigpath", "x", "did you mean kvConfigPath"),
        ("scanNotActiveBrokerInterval", "0", "must be 100 to 3600000"),
        ("waitSecondsForService", "-1", "must be 0 to 86400"),
        ("orderMessageEnable", "yes", "must be true or false"),
        ("listenPort", "70000", "0 to 65535"),
    ],
)
def test_what_cannot_be_honoured_stops_the_start(key: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_config({key: value})


def test_white_listed_keys_change_at_run_time_and_the_rest_stays() -> None:
    config = read_config({"listenPort": "0", "serverWorkerThreads": "9"})
    changed = RULES.updated(config, {"orderMessageEnable": "true", "scanNotActiveBrokerInterval": "500"})
    assert changed.has_order_topics
    assert changed.scan_interval_ms == 500
    assert (changed.listen, changed.ignored) == (config.listen, config.ignored)


@pytest.mark.parametrize(
    ("key", "value", "code", "why"),
    [
        ("kvConfigPath", "/tmp/x", 16, "configBlackList"),
        ("configBlackList", "", 16, "configBlackList"),
        ("configStorePath", "/etc/passwd", 16, "configBlackList"),
        ("rocketmqHome", "/", 16, "configBlackList"),
        ("listenPort", "1", 16, "read at the start only"),
        ("tls.server.mode", "disabled", 16, "read at the start only"),
        ("serverWorkerThreads", "1", 1, "has no effect"),
        ("orderMesageEnable", "true", 1, "did you mean orderMessageEnable"),
        ("orderMessageEnable", "maybe", 1, "must be true or false"),
        ("scanNotActiveBrokerInterval", "0", 1, "must be 100 to 3600000"),
    ],
)
def test_everything_else_is_refused_with_the_reason(key: str, value: str, code: int, why: str) -> None:
    with pytest.raises(Refusal, match=why) as caught:
        RULES.updated(read_config({}), {"enableTopicList": "false", key: value})
    assert caught.value.code == code


def test_an_operator_may_lengthen_the_black_list() -> None:
    config = read_config({"configBlackList": "configBlackList; enableTopicList"})
    with pytest.raises(Refusal) as caught:
        RULES.updated(config, {"enableTopicList": "false"})
    assert caught.value.code == 16


def test_changes_are_noted_under_the_owners_lines_and_win_when_read() -> None:
    text = "# mine\nlistenPort=1\nenableTopicList=true"
    once = RULES.noted(text, {"enableTopicList": "false"})
    twice = RULES.noted(once, {"orderMessageEnable": "true", "enableTopicList": "true"})
    assert twice.startswith("# mine\nlistenPort=1\nenableTopicList=true\n")
    assert twice.count("enableTopicList") == 2
    assert read_properties(once)["enableTopicList"] == "false"
    assert read_properties(twice) == {"listenPort": "1", "enableTopicList": "true", "orderMessageEnable": "true"}
    assert read_properties(RULES.noted("", {"a": "b"})) == {"a": "b"}
