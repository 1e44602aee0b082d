"""The names RocketMQ gives a meaning: properties and topics."""

import pytest

from bolide.model import properties
from bolide.model.topics import CLOSED_TOPICS, dead_letter_topic, is_system_topic, reply_topic, retry_topic


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "TTL", "TIMER_DELIVER_MS", "DUP_INFO", "__CRC32#"])
def test_a_user_may_not_take_a_reserved_name(name: str) -> None:
    assert name in properties.RESERVED_NAMES


@pytest.mark.parametrize("name", ["__SHARDINGKEY", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INNER_MULTI_DISPATCH", "colour"])
def test_a_user_may_set_what_only_users_set(name: str) -> None:
    assert name not in properties.RESERVED_NAMES


@pytest.mark.parametrize(
    "topic", [*sorted(CLOSED_TOPICS), "TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything"]
)
def test_system_topics_are_known(topic: str) -> None:
    assert is_system_topic(topic)


@pytest.mark.parametrize("topic", ["Orders", "%RETRY%group", "%DLQ%group", "RMQ_SYS_OTHER", "xrmq_sys_"])
def test_other_topics_are_the_users(topic: str) -> None:
    assert not is_system_topic(topic)


def test_topics_are_derived_from_groups_and_clusters() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dead_letter_topic("g") == "%DLQ%g"
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"
