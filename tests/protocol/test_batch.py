"""Batches: Java's bytes, the limits, and every length that may lie."""

import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError, Refusal
from bolide.model.message import Message
from bolide.model.topics import retry_topic
from bolide.protocol import sysflags
from bolide.protocol.batch import BATCH_SIZE_MAX, BatchItem, encode_batch, split_batch, unwrap
from bolide.protocol.codes import ResponseCode
from bolide.protocol.properties import encode_properties
from tests.protocol.record_samples import HELLO

HI = Message("T1", b"hi", properties={"KEYS": "k1", "WAIT": "true", "TAGS": "TagA"})
HI_BYTES = bytes.fromhex(
    "00000034000000000000000000000000000000026869001C4B455953016B31025741495401747275650254414753015461674102"
)

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
property_maps = st.dictionaries(texts.filter(lambda name: name not in ("DELAY", "WAIT")), texts, max_size=3)
messages = st.builds(
    Message,
    st.just("T1"),
    st.binary(max_size=40),
    properties=property_maps,
    flag=st.integers(-(2**31), 2**31 - 1),
)


def test_an_item_is_byte_for_byte_java_s() -> None:
    assert encode_batch([HI]) == HI_BYTES
    assert split_batch(HI_BYTES) == [BatchItem(0, b"hi", HI_BYTES[24:])]
    assert split_batch(HI_BYTES)[0].properties == HI.properties


@pytest.mark.feature("F090")
@given(messages)
def test_an_item_takes_22_bytes_and_its_body_and_its_properties(message: Message) -> None:
    assert len(encode_batch([message])) == 22 + len(message.body) + len(encode_properties(message.properties))


@given(st.lists(messages, min_size=1, max_size=5), st.sampled_from([bytes, memoryview]))
def test_messages_survive_their_batch_in_order(made: list[Message], form: type[bytes]) -> None:
    items = split_batch(form(encode_batch(made)))
    assert [(item.flag, item.body, item.properties) for item in items] == [
        (message.flag, message.body, message.properties) for message in made
    ]


def test_gotcha_40_each_message_keeps_its_own_id() -> None:
    made = [Message("T1", b"x", properties={"UNIQ_KEY": f"ID{i}"}) for i in range(3)]
    assert [item.properties["UNIQ_KEY"] for item in split_batch(encode_batch(made))] == ["ID0", "ID1", "ID2"]


def test_a_batch_is_limited_as_a_whole() -> None:
    half = Message("T1", bytes(BATCH_SIZE_MAX // 2 - 22))
    assert len(encode_batch([half, half])) == BATCH_SIZE_MAX
    with pytest.raises(Refusal, match=f"at most {BATCH_SIZE_MAX}") as refused:
        encode_batch([half, Message("T1", half.body + b"x")])
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    with pytest.raises(Refusal, match="at most 51"):
        encode_batch([HI], size_max=51)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ([], "without messages"),
        ([HI, replace(HI, topic="T2")], "topics 'T1' and 'T2'"),
        ([Message(retry_topic("g"), b"x")], "takes no batches"),
        ([HI, Message("T1", b"x", delay_level=1)], "delayed"),
        ([HI, Message("T1", b"x", waits_for_store=False)], "wait for the store"),
        ([Message("T1", b"x", flag=2**31)], "does not fit"),
        ([Message("T1", b"x", properties={"a": "\x02"})], "U\\+0001"),
    ],
    ids=["none", "topics", "retry", "delay", "wait", "flag", "properties"],
)
def test_what_cannot_share_a_request_is_refused(made: list[Message], why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        encode_batch(made)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def patched(position: int, layout: str, value: int) -> bytes:
    item = bytearray(HI_BYTES)
    struct.pack_into(layout, item, position, value)
    return bytes(item)


BAD_ITEMS = [
    (patched(0, ">i", 0), "total size: 0"),
    (patched(0, ">i", -1), "total size: -1"),
    (patched(0, ">i", 21), "total size: 21"),
    (patched(0, ">i", 53), "total size: 53"),
    (patched(0, ">i", 51), "properties length: 28, the item has 27"),
    (patched(16, ">i", -1), "body length: -1"),
    (patched(16, ">i", 31), "body length: 31, the item has 30"),
    (patched(16, ">i", 0x7FFFFFFF), "body length: 2147483647"),
    (patched(22, ">h", -1), "properties length: -1"),
    (patched(22, ">h", 27), "properties length: 27"),
    (patched(22, ">h", 29), "properties length: 29"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_ITEMS, ids=[why for _, why in BAD_ITEMS])
def test_a_bad_item_is_named_by_place_and_field(bad: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"batch item at byte 52: {why}"):
        split_batch(HI_BYTES + bad)


@pytest.mark.parametrize("size", range(1, len(HI_BYTES)))
def test_a_batch_torn_at_any_byte_is_an_error(size: int) -> None:
    with pytest.raises(ProtocolError, match="batch item at byte 52"):
        split_batch(HI_BYTES + HI_BYTES[:size])


@pytest.mark.parametrize("position", range(len(HI_BYTES)))
def test_any_byte_may_be_anything_without_another_error_than_ours(position: int) -> None:
    item = bytearray(HI_BYTES)
    for value in range(256):
        item[position] = value
        with suppress(ProtocolError):
            (read,) = split_batch(bytes(item))
            assert len(read.body) + len(read.encoded_properties) == len(item) - 22


@given(st.binary(max_size=80))
def test_garbage_is_an_error_and_nothing_else(noise: bytes) -> None:
    with suppress(ProtocolError):
        assert sum(22 + len(item.body) + len(item.encoded_properties) for item in split_batch(noise)) == len(noise)


def test_no_bytes_are_no_messages() -> None:
    assert split_batch(b"") == []


INNER = replace(
    HELLO,
    body=encode_batch([HI, replace(HI, body=b"ho", flag=9)]),
    sys_flag=sysflags.INNER_BATCH | sysflags.NEEDS_UNWRAP | sysflags.COMMITTED,
    properties={"INNER_NUM": "2"},
)


def test_an_inner_batch_becomes_its_messages_with_consecutive_offsets() -> None:
    first, second = unwrap(INNER)
    assert first == replace(HELLO, body=b"hi", properties=HI.properties, sys_flag=sysflags.COMMITTED)
    assert (second.body, second.flag, second.queue_offset) == (b"ho", 9, INNER.queue_offset + 1)
    assert unwrap(second) == [second]


@pytest.mark.parametrize("sys_flag", [0, sysflags.INNER_BATCH, sysflags.NEEDS_UNWRAP])
def test_only_both_bits_together_ask_for_unwrapping(sys_flag: int) -> None:
    message = replace(INNER, sys_flag=sys_flag)
    assert unwrap(message) == [message]
