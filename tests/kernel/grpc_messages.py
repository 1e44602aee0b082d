"""Messages of the gRPC protocol, and what the general path makes of one: what the kernel's reader is held to."""

from bolide.protocol.properties import join_properties
from bolide.proxy import messages as m
from bolide.proxy.checks import check_message, millis
from bolide.proxy.config import ProxyConfig
from bolide.proxy.translation import kind_of, stored_body, stored_properties

CONFIG = ProxyConfig()
NORMAL = m.MessageType.NORMAL


def plain_message() -> m.Message:
    message = m.Message(body=b"body")
    message.topic.name = "Orders"
    system = message.system_properties
    system.message_id, system.body_encoding, system.message_type = "01AB", m.Encoding.IDENTITY, NORMAL
    system.born_timestamp.seconds, system.born_timestamp.nanos, system.born_host = 1_700_000_000, 5_999_999, "here"
    return message


def as_above(message: m.Message) -> tuple[object, ...]:
    """What the path above makes of a message; raises Denied."""
    check_message(message, CONFIG, 0)
    properties = stored_properties(message, message.topic.name)
    assert kind_of(properties) == "NORMAL"
    born_ms = millis(message.system_properties.born_timestamp)
    body = stored_body(message, 1 << 20)
    return message.topic.name, message.system_properties.message_id, join_properties(properties), body, born_ms
