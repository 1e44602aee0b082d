"""What a message is before it was sent and after it was stored."""

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ClientError
from bolide.model.host import Host
from bolide.model.message import Message, OffsetId, StoredMessage, encode_offset_id, parse_offset_id
from bolide.model.queue import PhysicalOffset, QueueKey, QueueOffset

STORED = StoredMessage(
    topic="Orders",
    body=b"hello",
    queue_id=2,
    queue_offset=QueueOffset(7),
    physical_offset=PhysicalOffset(4096),
    born_at=1_700_000_000_000,
    born_host=Host("10.0.0.9", 5000),
    stored_at=1_700_000_000_001,
    store_host=Host("10.0.0.1", 10911),
    properties={"KEYS": "k1 k2", "TAGS": "TagA"},
)


@pytest.mark.feature("F085", "F089")
def test_what_rocketmq_keeps_in_properties_is_seen_there() -> None:
    message = Message(
        "Orders", b"x", tags="TagA", keys=["o-1", "o-2"], properties={"a": "1"}, delay_level=3, waits_for_store=False
    )
    assert message.properties == {"a": "1", "KEYS": "o-1 o-2", "TAGS": "TagA", "DELAY": "3", "WAIT": "false"}
    assert (message.tags, message.keys, message.delay_level, message.waits_for_store) == (
        "TagA",
        ["o-1", "o-2"],
        3,
        False,
    )


def test_a_plain_message_has_no_property_and_waits_for_the_store() -> None:
    message = Message("Orders", b"x")
    assert message.properties == {}
    assert (message.tags, message.keys, message.unique_id, message.delay_level) == (None, [], None, 0)
    assert message.waits_for_store
    assert message.flag == 0


def test_one_text_of_keys_is_not_taken_letter_by_letter() -> None:
    assert Message("Orders", b"", keys="order-1").keys == ["order-1"]
    assert Message("Orders", b"", keys="k1 k2").keys == ["k1", "k2"]


def test_an_argument_wins_over_the_property_of_the_same_meaning() -> None:
    message = Message("Orders", b"", tags="new", properties={"TAGS": "old", "KEYS": "kept"})
    assert (message.tags, message.keys) == ("new", ["kept"])


def test_a_message_does_not_follow_its_sender_s_map_and_does_not_change() -> None:
    given_map = {"a": "1"}
    message = Message("Orders", b"", properties=given_map)
    given_map["a"] = "2"
    assert message.properties == {"a": "1"}
    with pytest.raises(FrozenInstanceError):
        message.body = b"other"  # type: ignore[misc]


def test_a_message_can_be_varied_and_pickled() -> None:
    message = Message("Orders", b"x", tags="TagA", keys=["k"], flag=5)
    varied = replace(message, body=b"y")
    assert (varied.body, varied.tags, varied.keys, varied.flag) == (b"y", "TagA", ["k"], 5)
    assert pickle.loads(pickle.dumps(STORED)) == STORED


@pytest.mark.parametrize("level", ["", "x", "-1", "9" * 5000, "1.5"])
def test_a_delay_that_is_no_level_is_none(level: str) -> None:
    assert Message("Orders", b"", properties={"DELAY": level}).delay_level == 0


@pytest.mark.parametrize(("text", "waits"), [("true", True), ("True", True), ("false", False), ("no", False)])
def test_waiting_is_read_as_java_reads_a_boolean(text: str, waits: bool) -> None:
    assert Message("Orders", b"", properties={"WAIT": text}).waits_for_store is waits


def test_a_stored_message_knows_its_queue_keys_and_tags() -> None:
    assert STORED.queue == QueueKey("Orders", 2)
    assert (STORED.tags, STORED.keys) == ("TagA", ["k1", "k2"])


def test_the_id_to_show_is_the_producer_s_and_else_the_broker_s() -> None:
    assert STORED.message_id == STORED.offset_id == "0A00000100002A9F0000000000001000"
    assert replace(STORED, properties={"UNIQ_KEY": "AB"}).message_id == "AB"


OFFSET_IDS = [
    (Host("10.0.0.1", 10911), 1234567890123, "0A00000100002A9F0000011F71FB04CB"),
    (Host("2001:db8::1", 10911), 1234567890123, "20010DB800000000000000000000000100002A9F0000011F71FB04CB"),
    (Host("10.0.0.5", 10911), 4096, "0A00000500002A9F0000000000001000"),
]


@pytest.mark.feature("F092")
@pytest.mark.parametrize(("host", "offset", "text"), OFFSET_IDS)
def test_an_offset_id_is_host_and_offset_as_java_writes_them(host: Host, offset: int, text: str) -> None:
    assert encode_offset_id(host, offset) == text
    assert parse_offset_id(text) == OffsetId(host, PhysicalOffset(offset))
    assert parse_offset_id(text.lower()) == OffsetId(host, PhysicalOffset(offset))


@given(st.ip_addresses(), st.integers(0, 0xFFFF), st.integers(0, 2**63 - 1))
def test_offset_ids_decode_to_what_they_were_made_of(ip: object, port: int, offset: int) -> None:
    text = encode_offset_id(Host(str(ip), port), offset)
    parsed = parse_offset_id(text)
    assert parsed is not None
    assert encode_offset_id(*parsed) == text
    assert (parsed.host.port, parsed.physical_offset) == (port, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A00000100002A9F0000011F71FB04C",
        "0A00000100002A9F0000011F71FB04CB00",
        "0A00000100002A9F 000011F71FB04C ",
        "ZZ00000100002A9F0000011F71FB04CB",
        "0A000001FFFFFFFF0000011F71FB04CB",
        "0A00000100002A9F8000000000000000",
    ],
)
def test_what_cannot_be_an_offset_id_is_none(text: str) -> None:
    assert parse_offset_id(text) is None


def test_a_unique_id_of_the_same_length_names_no_broker() -> None:
    assert parse_offset_id("7F000001720930946E094C73DC070000") is None


def test_a_key_in_a_list_is_one_key_and_one_that_nobody_could_find_is_refused() -> None:
    assert Message("T", b"x", keys=["a", "b"]).keys == ["a", "b"]
    assert Message("T", b"x", keys="a b").keys == ["a", "b"]
    with pytest.raises(ClientError, match="'order 7' has a space in it"):
        Message("T", b"x", keys=["order 7"])


def test_a_message_is_shown_by_what_tells_it_apart_and_never_by_a_megabyte() -> None:
    message = Message("Orders", b"x" * 1_000_000, tags="A", keys="o-1")
    assert repr(message) == f"<Message Orders [A] keys=o-1 {b'x' * 40!r}... (1000000 bytes)>"
    assert repr(Message("Orders", b"tea")) == "<Message Orders b'tea'>"
