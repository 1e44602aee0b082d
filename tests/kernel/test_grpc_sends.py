"""Sends of the gRPC protocol that need no thought: read by the kernel, or left to the path above, never otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_left
from bolide.proxy import messages as m
from bolide.proxy.sending import Place, encode_receipt, transaction_id
from bolide.proxy.statuses import ok
from tests.kernel.grpc_messages import CONFIG, NORMAL, as_above, plain_message
from tests.kernel.twins import compiled

TEXTS = st.text("abcXYZ019-_", max_size=12) | st.sampled_from(["a b", "ä", "a|b", "\x01", "\x02", " ", "x" * 9000])
KINDS = [NORMAL, NORMAL, NORMAL, m.MessageType.FIFO, m.MessageType.TRANSACTION]
needs_compiled = pytest.mark.skipif(compiled is None, reason="no compiled kernel here")


@st.composite
def messages(draw: st.DrawFn) -> m.Message:
    """Mostly plain ones, with whatever else a message can have."""
    message = plain_message()
    system = message.system_properties
    message.topic.name = draw(st.just("Orders") | TEXTS)
    message.topic.resource_namespace = draw(st.just("") | TEXTS)
    message.body = draw(st.binary(max_size=40))
    system.message_id = draw(st.just("01AB") | TEXTS)
    system.born_host = draw(TEXTS)
    system.keys.extend(draw(st.lists(TEXTS, max_size=10)))
    system.message_type = draw(st.sampled_from(KINDS))
    system.body_encoding = draw(st.sampled_from([m.Encoding.IDENTITY, m.Encoding.GZIP]))
    if draw(st.booleans()):
        system.tag = draw(TEXTS)
    if draw(st.booleans()):
        system.body_digest.type, system.body_digest.checksum = m.DigestType.MD5, draw(TEXTS)
    if draw(st.booleans()):
        system.queue_id = draw(st.integers(-1, 9))
    rare = draw(st.sampled_from(["", "", "", "", "group", "time", "priority", "properties", "born", "lite"]))
    if rare == "group":
        system.message_group = draw(TEXTS)
    elif rare == "time":
        system.delivery_timestamp.seconds = draw(st.integers(0, 1 << 33))
    elif rare == "priority":
        system.priority = 3
    elif rare == "lite":
        system.lite_topic = "lite"
    elif rare == "properties":
        message.user_properties["name"] = "value"
    elif rare == "born":
        system.born_timestamp.seconds = draw(st.integers(-5, 5))
        system.born_timestamp.nanos = draw(st.integers(-5, 1 << 30))
    return message


@needs_compiled
@given(messages())
def test_what_the_kernel_reads_is_what_the_path_above_would_store(message: m.Message) -> None:
    content = m.SendMessageRequest(messages=[message]).SerializeToString()
    found = compiled.read_grpc_send(content, CONFIG.body_size_max, CONFIG.properties_size_max)
    assert found is None or found == as_above(message)


@needs_compiled
def test_a_plain_message_is_read_with_its_tag_and_its_keys() -> None:
    message = plain_message()
    message.system_properties.tag = "red"
    message.system_properties.keys.extend(["one", "two"])
    content = m.SendMessageRequest(messages=[message]).SerializeToString()
    assert compiled.read_grpc_send(content, 4, 9) == as_above(message)
    assert compiled.read_grpc_send(content, 0, 0) == as_above(message)
    assert compiled.read_grpc_send(content, 3, 9) is None, "its body is too large"
    assert compiled.read_grpc_send(content, 4, 8) is None, "its tag and its keys are"
    twice = m.SendMessageRequest(messages=[message, message]).SerializeToString()
    assert compiled.read_grpc_send(twice, 0, 0) is None


@needs_compiled
@given(messages(), st.data())
def test_bytes_that_are_broken_are_left_to_the_path_above_or_read_as_it_reads_them(
    message: m.Message, data: st.DataObject
) -> None:
    content = bytearray(m.SendMessageRequest(messages=[message]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(content[: data.draw(st.integers(0, len(content)))])
    found = compiled.read_grpc_send(broken, CONFIG.body_size_max, CONFIG.properties_size_max)
    if found is not None:
        (read,) = m.SendMessageRequest.FromString(broken).messages
        assert found == as_above(read)


def test_the_plain_kernel_leaves_all_of_them() -> None:
    assert plain_left.read_grpc_send(m.SendMessageRequest(messages=[plain_message()]).SerializeToString(), 0, 0) is None


@given(st.text("0123456789ABCDEF", min_size=1, max_size=200), st.integers(0, 1 << 60), st.integers(0, 1 << 60))
def test_a_receipt_is_encoded_as_protobuf_does(message_id: str, queue_offset: int, physical_offset: int) -> None:
    offset_id = (bytes([127, 0, 0, 1, 0, 0, 42, 159]) + physical_offset.to_bytes(8, "big")).hex().upper()
    answer = m.SendMessageResponse(status=ok())
    entry = answer.entries.add()
    entry.status.CopyFrom(ok())
    entry.message_id, entry.offset = message_id, queue_offset
    entry.transaction_id = transaction_id(Place(message_id, queue_offset, physical_offset, "broker-a"))
    assert encode_receipt(message_id, "broker-a", (1, 2, queue_offset, offset_id)) == answer.SerializeToString()
