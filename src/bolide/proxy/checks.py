"""What a client may name and send, in the order in which Apache's proxy looks at it."""

import unicodedata
from functools import lru_cache
from typing import Any

from bolide.model import properties as names
from bolide.model.names import group_problem, topic_problem
from bolide.model.topics import SYSTEM_GROUP_PREFIX, is_system_topic
from bolide.proxy import messages as m
from bolide.proxy.config import ProxyConfig
from bolide.proxy.statuses import Denied

_C = m.Code
# A user may set these like properties of his own.
_OPEN_NAMES = {names.SHARDING_KEY, names.TRANSACTION_ID, names.TRACE_CONTEXT}
RESERVED_NAMES = names.RESERVED_NAMES - _OPEN_NAMES


def topic_name(resource: m.Resource) -> str:
    """The name of a topic; raises Denied."""
    return checked_topic(resource.name)


@lru_cache(maxsize=1_000)  # of names that are good: what is raised is not kept
def checked_topic(topic: str) -> str:
    """The same of a name by itself."""
    if problem := topic_problem(topic):
        raise Denied(_C.ILLEGAL_TOPIC, problem)
    if is_system_topic(topic):
        raise Denied(_C.ILLEGAL_TOPIC, f"topic {topic!r} is RocketMQ's own; use another")
    return topic


def group_name(resource: m.Resource) -> str:
    """The name of a consumer group; raises Denied."""
    return checked_group(resource.name)


@lru_cache(maxsize=1_000)
def checked_group(group: str) -> str:
    """The same of a name by itself."""
    if problem := group_problem(group):
        raise Denied(_C.ILLEGAL_CONSUMER_GROUP, problem)
    if group.startswith(SYSTEM_GROUP_PREFIX):
        raise Denied(_C.ILLEGAL_CONSUMER_GROUP, f"group {group!r} is RocketMQ's own; use another")
    return group


def check_message(message: m.Message, config: ProxyConfig, now_ms: int) -> None:
    """Raises Denied for a message that cannot be sent."""
    system, size = message.system_properties, len(message.body)
    if not size and config.checks_empty:
        raise Denied(_C.MESSAGE_BODY_EMPTY, "the body of a message is empty")
    if size > config.body_size_max > 0:
        text = f"a body of {size} bytes, it may have {config.body_size_max} (maxMessageSize)"
        raise Denied(_C.MESSAGE_BODY_TOO_LARGE, text)
    _check_properties(message, config)
    if system.HasField("tag") and (not system.tag.strip() or "|" in system.tag or _has_control(system.tag)):
        raise Denied(_C.ILLEGAL_MESSAGE_TAG, f"tag {system.tag[:80]!r} is blank, or holds | or a control character")
    for key in system.keys:
        if not key.strip() or _has_control(key):
            raise Denied(_C.ILLEGAL_MESSAGE_KEY, f"key {key[:80]!r} is blank or holds a control character")
    if not system.message_id.strip():
        raise Denied(_C.ILLEGAL_MESSAGE_ID, "the message has no id")
    if system.HasField("message_group"):
        group, limit = system.message_group, config.group_size_max
        if not group.strip() or _has_control(group) or (0 < limit <= len(group.encode())):
            text = f"message group {group[:80]!r} is blank, holds a control character or takes {limit} bytes or more"
            raise Denied(_C.ILLEGAL_MESSAGE_GROUP, text)
    if system.HasField("lite_topic"):
        raise Denied(_C.ILLEGAL_LITE_TOPIC, "there are no lite topics here; send to a topic of its own")
    if system.HasField("delivery_timestamp"):
        ahead_ms = millis(system.delivery_timestamp) - now_ms
        if ahead_ms > config.delay_max_ms > 0:
            text = f"delivery in {ahead_ms} ms, at most {config.delay_max_ms} ms ahead (maxDelayTimeMills)"
            raise Denied(_C.ILLEGAL_DELIVERY_TIME, text)
    if 0 < config.recovery_max_s < system.orphaned_transaction_recovery_duration.seconds:
        text = f"recovery of a transaction after more than {config.recovery_max_s} s (maxTransactionRecoverySecond)"
        raise Denied(_C.BAD_REQUEST, text)


def _check_properties(message: m.Message, config: ProxyConfig) -> None:
    properties, system = message.user_properties, message.system_properties
    if len(properties) > config.properties_count_max > 0:
        text = f"{len(properties)} properties, at most {config.properties_count_max} (userPropertyMaxNum)"
        raise Denied(_C.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if name in RESERVED_NAMES:
            raise Denied(_C.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} is RocketMQ's own; choose another name")
        if not name or _has_control(name) or _has_control(value):
            text = f"property {name[:80]!r} is empty or holds a control character"
            raise Denied(_C.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size += len(name.encode()) + len(value.encode())
    if size > config.properties_size_max > 0:
        text = f"properties, tag and keys take {size} bytes, at most {config.properties_size_max} (maxUserPropertySize)"
        raise Denied(_C.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(unicodedata.category(each) == "Cc" for each in text)


def millis(time: Any) -> int:
    """A Timestamp or a Duration in milliseconds."""
    return int(time.seconds * 1000 + time.nanos // 1_000_000)
