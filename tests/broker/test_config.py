"""A Java broker.conf works as it is; what may change while the broker runs, and what stops its start."""

import dataclasses
from pathlib import Path

import pytest

from bolide.broker.config import (
    RULES,
    USED_KEYS,
    BrokerConfig,
    LiveConfig,
    read_config,
    shown,
    updated,
)
from bolide.broker.settings.ignored import WITHOUT_EFFECT
from bolide.errors import ConfigError, Refusal
from bolide.protocol.codes import ResponseCode
from bolide.settings import read_properties

# As RocketMQ ships it in conf/2m-noslave, and the keys that guides tell people to add.
SHIPPED = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
mapedFileSizeCommitLog=16777216
storePathConsumeQueue=/data/consumequeue
sendMessageThreadPoolNums=128
"""


def test_a_shipped_file_is_read_and_old_spellings_count() -> None:
    config = read_config(read_properties(SHIPPED))
    assert (config.name, config.store.keep_hours, config.store.segment_size) == ("broker-a", 48, 16 << 20)
    assert set(config.ignored) == {"storePathConsumeQueue", "sendMessageThreadPoolNums"}


def test_the_right_spelling_wins_over_the_old_one() -> None:
    config = read_config({"mappedFileSizeCommitLog": "4096", "mapedFileSizeCommitLog": "8192"})
    assert config.store.segment_size == 4096


def test_no_key_is_both_used_and_without_effect() -> None:
    assert not USED_KEYS & WITHOUT_EFFECT.keys()


def test_what_may_change_is_used() -> None:
    assert RULES.changeable <= USED_KEYS


def test_an_unknown_key_stops_the_start_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean sendMessageThreadPoolNums"):
        read_config({"sendMessageTreadPoolNums": "4"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerRole", "MASTER"),
        ("enableDLegerCommitLog", "true"),
        ("authorizationEnabled", "true"),
        ("inSyncReplicas", "2000"),
        ("storeType", "defaultRocksDB"),
        ("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore"),
        ("readOnlyCommitLogStorePaths", "/old/commitlog"),
        ("fetchNamesrvAddrByAddressServer", "true"),
        ("brokerPermission", "9"),
    ],
)
def test_what_cannot_be_had_and_would_be_missed_stops_the_start(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_config({key: value})
    assert (refused.value.key, str(refused.value.value).lower()) == (key, value.lower())
    assert len(refused.value.why) > 10


@pytest.mark.feature("F137")
def test_a_slave_needs_an_id_above_zero_and_a_master_is_number_zero_whatever_is_set() -> None:
    for broker_id in ("0", "-1"):
        with pytest.raises(ConfigError) as refused:
            read_config({"brokerRole": "SLAVE", "brokerId": broker_id})
        assert refused.value.key == "brokerId"
    assert read_config({"brokerRole": "SLAVE", "brokerId": "2"}).broker_id == 2
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        assert read_config({"brokerRole": role, "brokerId": "2"}).broker_id == 0


def test_safe_replication_is_one_word_and_takes_no_weaker_key_beside_it() -> None:
    safe = {"bolideReplication": "safe", "controllerAddr": "c1:9878;c2:9878;c1:9878"}
    rules = read_config(safe).replication
    assert (rules.is_controlled, rules.all_ack, rules.in_sync_min) == (True, True, 2)
    assert rules.controller_addresses == ("c1:9878", "c2:9878")
    assert read_config(safe | {"minInSyncReplicas": "3"}).replication.in_sync_min == 3
    weaker = {"minInSyncReplicas": "1", "allAckInSyncStateSet": "false", "enableControllerMode": "false"}
    for key, value in weaker.items():
        with pytest.raises(ConfigError, match="safe needs") as refused:
            read_config(safe | {key: value})
        assert refused.value.key == key
    with pytest.raises(ConfigError, match="controllers"):
        read_config({"bolideReplication": "safe"})


@pytest.mark.parametrize(
    ("key", "value"), [("brokerRole", "ASYNC_MASTER"), ("aclEnable", "false"), ("inSyncReplicas", "1")]
)
def test_the_same_keys_asking_for_nothing_are_fine(key: str, value: str) -> None:
    assert shown(read_config({key: value}))[key] == value


INNER = '{"accessKey":"a","secretKey":"hush"}'


def test_every_key_is_shown_but_secrets_are_not() -> None:
    config = read_config({"innerClientAuthenticationCredentials": INNER, "tls.server.keyPassword": "hush"})
    texts = shown(config)
    assert USED_KEYS | WITHOUT_EFFECT.keys() == texts.keys()
    assert texts["innerClientAuthenticationCredentials"] == texts["tls.server.keyPassword"] == "******"
    assert texts["tls.client.keyPassword"] == ""
    assert "hush" not in " ".join(texts.values())


def test_a_change_reaches_broker_and_store_and_leaves_the_rest() -> None:
    config = read_config({"listenPort": "0", "maxOffsetMapSize": "7"})
    changed = updated(config, {"autoCreateTopicEnable": "false", "fileReservedTime": "5"})
    assert (changed.creates_topics, changed.store.keep_hours) == (False, 5)
    assert dataclasses.replace(changed, creates_topics=True, store=config.store) == config


@pytest.mark.parametrize(
    ("key", "value", "code", "why"),
    [
        ("brokerConfigPath", "/x", ResponseCode.NO_PERMISSION, "configBlackList"),
        ("listenPort", "1", ResponseCode.NO_PERMISSION, "read at the start only"),
        ("flushDiskType", "SYNC_FLUSH", ResponseCode.NO_PERMISSION, "read at the start only"),
        ("sendMessageThreadPoolNums", "1", ResponseCode.SYSTEM_ERROR, "no effect in this broker"),
        ("nonsense", "1", ResponseCode.SYSTEM_ERROR, "no such setting"),
        ("brokerPermission", "8", ResponseCode.SYSTEM_ERROR, "must be 0 to 7"),
        ("autoCreateTopicEnable", "maybe", ResponseCode.SYSTEM_ERROR, "true or false"),
        ("diskMaxUsedSpaceRatio", "5", ResponseCode.SYSTEM_ERROR, "10 to 100"),
    ],
)
def test_a_refused_change_says_why(key: str, value: str, code: int, why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        updated(BrokerConfig(), {"traceOn": "false", key: value})
    assert refused.value.code == code


def test_a_master_is_number_0_whatever_the_file_says() -> None:
    assert read_config({"brokerId": "3"}).broker_id == 0
    with pytest.raises(ConfigError, match="0 for a master"):
        read_config({"brokerId": "-1"})


def test_who_keeps_something_made_of_a_setting_is_told() -> None:
    settings = LiveConfig(BrokerConfig())
    heard = []
    settings.listen(lambda: heard.append(settings.now.permission))
    settings.replace(updated(settings.now, {"brokerPermission": "4"}))
    assert heard == [4]


def test_changes_are_kept_in_the_given_file_or_beside_the_tables(tmp_path: Path) -> None:
    assert read_config({"brokerConfigPath": str(tmp_path / "b.conf")}).changes_path == tmp_path / "b.conf"
    config = read_config({"storePathRootDir": str(tmp_path)})
    assert config.changes_path == tmp_path / "config" / "broker.properties"
