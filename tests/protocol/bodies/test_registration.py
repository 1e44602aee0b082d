"""A registration in its forms: JSON, compressed, the bare table; from Java, from strangers, and very large."""

import json
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide import kernel
from bolide.errors import Refusal
from bolide.protocol.bodies import (
    DataVersion,
    Registration,
    TopicConfig,
    TopicTable,
    decode_registration,
    encode_registration,
    registration,
)
from bolide.protocol.command import FRAME_SIZE_MAX, Command, read_commands
from tests.protocol.body_samples import TOPIC_TABLE, VERSION

RECORDINGS = Path(__file__).parents[2] / "wire" / "recordings"
V4, V5, V_OLDEST = 409, 479, 30
MAPPING = b'{"bname":"broker-a","currIdMap":{"0":1},"topic":"S1","totalQueues":2}'


def table(*topics: TopicConfig, **members: object) -> Registration:
    entries = {topic.topic_name: topic for topic in topics}
    version = DataVersion(counter=7, timestamp=1_700_000_000_000)
    return Registration(
        topic_config_serialize_wrapper=TopicTable(data_version=version, topic_config_table=entries, **members)  # type: ignore[arg-type]
    )


def recorded(name: str) -> Command:
    """The registration a Java broker sent."""
    lines = (json.loads(line) for line in (RECORDINGS / f"broker-{name}.jsonl").read_text("utf-8").splitlines())
    frame = next(line["request"] for line in lines if line["name"] == "register").encode("latin-1")
    bounds, _, problem = kernel.cut_frames(frame, len(frame), FRAME_SIZE_MAX)
    assert problem is None
    (command,) = read_commands(frame, bounds)
    return command


# Java's own

ALL_RECORDINGS = ["4.9.7", "4.9.7-compressed", "5.5.0", "5.5.0-compressed"]


@pytest.mark.parametrize("name", ALL_RECORDINGS)
def test_what_a_java_broker_sends_is_understood(name: str) -> None:
    command = recorded(name)
    compressed = command.fields["compressed"] == "true"
    registration_ = decode_registration(command.body, compressed, command.version)
    topics = registration_.topics.topic_config_table
    assert topics["TBW102"] == TopicConfig(topic_name="TBW102", perm=7, read_queue_nums=8, write_queue_nums=8)
    assert {"broker-a", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"} <= set(topics)
    assert registration_.topics.data_version.timestamp > 1_700_000_000_000
    assert registration_.filter_server_list == []


@pytest.mark.parametrize("name", ALL_RECORDINGS)
def test_our_checksum_is_javas(name: str) -> None:
    command = recorded(name)
    assert kernel.body_crc(command.body) == int(command.fields["bodyCrc32"])


def test_a_registration_of_java_5_comes_back_to_the_byte() -> None:
    command = recorded("5.5.0")
    assert encode_registration(decode_registration(command.body, False, command.version), False, V5) == command.body


@pytest.mark.parametrize("name", ["4.9.7-compressed", "5.5.0-compressed"])
def test_a_compressed_registration_of_java_comes_back_unfolded_to_the_byte(name: str) -> None:
    command = recorded(name)
    back = encode_registration(decode_registration(command.body, True, command.version), True, command.version)
    # The version alone may differ: that of 4.9 has no stateVersion.
    assert without_version(zlib.decompress(back)) == without_version(zlib.decompress(command.body))


def without_version(unfolded: bytes) -> bytes:
    return unfolded[4 + int.from_bytes(unfolded[:4], "big") :]


def test_a_compressed_body_that_says_it_is_not_is_understood() -> None:
    command = recorded("5.5.0-compressed")
    assert command.fields["compressed"] == "false"
    assert "TBW102" in decode_registration(command.body, False, command.version).topics.topic_config_table


# the forms


def part(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def test_the_compressed_form_is_laid_out_as_java_does() -> None:
    attributes = {"+message.type": "FIFO"}
    body = table(TopicConfig(topic_name="T1", read_queue_nums=4, write_queue_nums=5, attributes=attributes))
    head = part(VERSION.encode()) + number(1)
    assert zlib.decompress(encode_registration(body, True, V4)) == head + part(b"T1 4 5 6 SINGLE_TAG") + part(b"[]")
    line = part(b'T1 4 5 6 SINGLE_TAG {"+message.type":"FIFO"}')
    assert zlib.decompress(encode_registration(body, True, V5)) == head + line + part(b"[]") + number(0)


def test_the_stream_is_deflated_at_the_highest_level() -> None:
    assert encode_registration(table(), True, V5)[:2] == b"\x78\xda"


def test_a_topic_of_five_words_has_no_attributes_and_one_of_six_has() -> None:
    lines = [b"A 4 5 6 SINGLE_TAG", b"B 1 2 4 MULTI_TAG {}", b'C 8 8 2 SINGLE_TAG {"a":"b c"}']
    text = part(VERSION.encode()) + number(3) + b"".join(map(part, lines)) + part(b'["f:1"]') + number(0)
    body = decode_registration(zlib.compress(text), True, V5)
    assert body.filter_server_list == ["f:1"]
    assert list(body.topics.topic_config_table.values()) == [
        TopicConfig(topic_name="A", read_queue_nums=4, write_queue_nums=5),
        TopicConfig(topic_name="B", read_queue_nums=1, write_queue_nums=2, perm=4, topic_filter_type="MULTI_TAG"),
        TopicConfig(topic_name="C", read_queue_nums=8, write_queue_nums=8, perm=2, attributes={"a": "b c"}),
    ]


def test_mappings_follow_only_since_5() -> None:
    # Java writes the inner keys bare.
    mapping = MAPPING.replace(b'"0"', b"0")
    text = part(VERSION.encode()) + number(0) + part(b"[]") + number(1) + part(mapping)
    kept = decode_registration(zlib.compress(text), True, V5).topics.topic_queue_mapping_info_map
    assert kept == {"S1": msgspec.Raw(MAPPING)}
    assert decode_registration(zlib.compress(text), True, V4).topics.topic_queue_mapping_info_map is None


@pytest.mark.parametrize("compressed", [True, False])
def test_mappings_survive(compressed: bool) -> None:
    body = table(topic_queue_mapping_info_map={"S1": msgspec.Raw(MAPPING)})
    assert decode_registration(encode_registration(body, compressed, V5), compressed, V5) == body


def test_a_kept_mapping_does_not_keep_the_body() -> None:
    topics = [TopicConfig(topic_name=f"T{i}") for i in range(100)]
    body = encode_registration(table(*topics, topic_queue_mapping_info_map={"S1": msgspec.Raw(MAPPING)}), False, V5)
    (mapping,) = (decode_registration(body, False, V5).topics.topic_queue_mapping_info_map or {}).values()
    view = memoryview(mapping)
    assert len(view.obj) == len(MAPPING)  # type: ignore[arg-type]


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("version", [V_OLDEST, V4, V5])
def test_no_body_is_an_empty_table(compressed: bool, version: int) -> None:
    body = decode_registration(b"", compressed, version)
    assert body.topics.topic_config_table == {}
    assert body.topics.data_version == DataVersion(counter=0, timestamp=0)
    assert body.filter_server_list == []


def test_the_oldest_brokers_send_the_table_alone() -> None:
    body = decode_registration(TOPIC_TABLE.encode(), False, 36)
    assert body.topics.encode().decode() == TOPIC_TABLE
    assert encode_registration(body, False, 36).decode() == TOPIC_TABLE
    assert decode_registration(TOPIC_TABLE.encode(), False, 37).topics.topic_config_table == {}


@pytest.mark.parametrize("crc", [0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])
def test_the_checksum_has_31_bits(crc: int) -> None:
    data = next(data for data in (b"%d" % i for i in range(100)) if zlib.crc32(data) >> 31 == crc >> 31)
    assert kernel.body_crc(data) == zlib.crc32(data) % 2**31


# strangers

WHOLE = (
    part(VERSION.encode())
    + number(2)
    + part(b"A 4 4 6 SINGLE_TAG {}")
    + part(b"B 4 4 6 SINGLE_TAG")
    + part(b"[]")
    + number(0)
)


@pytest.mark.parametrize(
    ("unfolded", "why"),
    [
        (b"", "missing|ends"),
        (b"\0\0", "a part that ends at"),
        (part(b"{}")[:-1], "a part that ends at"),
        (number(-1) + b"{}", "a part that ends at"),
        (part(b"{}"), "parts, but 0 bytes are left"),
        (part(b"{}") + number(-1), "4294967295 parts"),
        (part(b"{}") + number(2**31 - 1) + part(b"x"), "2147483647 parts"),
        (part(b"{}") + number(1000) + bytes(4000), "1000 parts, but 4004 bytes are left"),
        (part(b"{}") + number(1000) + part(b"A 4 4 6 X") * 999 + bytes(12), "1000 parts, but 13003 bytes are left"),
        (part(b"{}") + number(0) + part(b"[]") + number(1000) + bytes(4000), "1000 parts, but 4004 bytes are left"),
        (part(b"{}") + number(1) + part(b"Orders 4 4 6"), "five words"),
        (part(b"{}") + number(1) + part(b"A 4 four 6 SINGLE_TAG"), "four"),
        (part(b"{}") + number(1) + part(b"A 4 4 6 SINGLE_TAG {oops"), "expected"),
        (part(b"{}") + number(1) + part(b"\xff 4 4 6 SINGLE_TAG"), "utf-8"),
        (part(b"7") + number(0) + part(b"[]"), "Expected `object`"),
        (part(b"{}") + number(0) + part(b"{}"), "Expected `array`"),
        (part(b"{}") + number(0) + part(b"[]") + number(1) + part(b'{"bname":"b"}'), "topic"),
        (part(b"{}") + number(0) + part(b"[]") + number(1) + part(b"7777777777"), "Expected `object`"),
    ],
)
def test_inner_lengths_and_texts_are_checked(unfolded: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=f"the RegisterBrokerBody in the body cannot be read: .*({why})") as caught:
        decode_registration(zlib.compress(unfolded), True, V5)
    assert caught.value.code == 1


@pytest.mark.parametrize("body", [b"{}", b"\x78\xda", b"\x78\xda\xff\xff", zlib.compress(WHOLE)[:-1], b"\0" * 9])
def test_what_is_no_zlib_stream_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="zlib stream"):
        decode_registration(body, True, V5)


def test_a_stream_does_not_unfold_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "UNFOLDED_SIZE_MAX", len(WHOLE))
    decode_registration(zlib.compress(WHOLE), True, V5)
    for bomb in (zlib.compress(WHOLE + b"\0"), zlib.compress(bytes(10_000_000), 9)):
        with pytest.raises(Refusal, match=f"unfolds to more than {len(WHOLE)} bytes"):
            decode_registration(bomb, True, V5)


def test_the_limit_of_unfolding_is_32_mebibytes() -> None:
    assert registration.UNFOLDED_SIZE_MAX == 32 << 20


def test_the_shortest_topics_are_read() -> None:
    text = part(b"{}") + number(2) + part(b"A 4 4 6 X") + part(b"B 4 4 6 X") + part(b"[]")
    assert list(decode_registration(zlib.compress(text), True, V4).topics.topic_config_table) == ["A", "B"]


NO_END = number(2**31 - 1) + bytes(40)


@pytest.mark.parametrize(
    ("unfolded", "why"),
    [
        (part(b"{}") + number(2) + part(b"Orders") + NO_END, "five words"),
        (part(b"{}") + number(0) + part(b"[]") + number(2) + part(b"7") + NO_END, "Expected `object`"),
    ],
    ids=["topic", "mapping"],
)
def test_the_first_bad_part_ends_the_reading(unfolded: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        decode_registration(zlib.compress(unfolded), True, V5)


def test_topics_that_refer_to_a_long_one_are_refused() -> None:
    long = '{"attributes":{"a":"%s"},"topicName":"t"}' % ("x" * 200_000)
    path = "$.topicConfigSerializeWrapper.topicConfigTable.t"
    references = ",".join(f'"t{i}":{{"$ref":"{path}"}}' for i in range(2_000))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"t":{long},{references}}}}}}}'
    with pytest.raises(Refusal, match="references that stand for at most"):
        decode_registration(body.encode(), False, V5)


@given(cut=st.integers(0, len(WHOLE) - 1), junk=st.binary(max_size=6), version=st.sampled_from([V4, V5]))
def test_a_damaged_registration_is_read_or_refused(cut: int, junk: bytes, version: int) -> None:
    for unfolded in (WHOLE[:cut] + junk, WHOLE[:cut] + junk + WHOLE[cut + len(junk) :]):
        try:
            decode_registration(zlib.compress(unfolded, 1), True, version)
        except Refusal as caught:
            refusal = caught
        else:
            continue
        assert "RegisterBrokerBody" in refusal.remark


@given(body=st.binary(max_size=40), compressed=st.booleans(), version=st.sampled_from([V_OLDEST, V4, V5]))
def test_any_body_is_a_registration_or_refused(body: bytes, compressed: bool, version: int) -> None:
    try:
        decode_registration(body, compressed, version)
    except Refusal as caught:
        refusal = caught
    else:
        return
    assert refusal.code == 1


# large and small

names = st.text("abcXYZ019_%-", min_size=1, max_size=20)
counts = st.integers(0, 2**31 - 1)
topic_configs = st.builds(
    TopicConfig,
    topic_name=names,
    read_queue_nums=counts,
    write_queue_nums=counts,
    perm=st.integers(0, 7),
    topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    attributes=st.dictionaries(names, st.text(max_size=9), max_size=2),
)


@given(topics=st.lists(topic_configs, max_size=5), compressed=st.booleans())
def test_topics_survive_both_forms(topics: list[TopicConfig], compressed: bool) -> None:
    body = table(*topics)
    assert decode_registration(encode_registration(body, compressed, V5), compressed, V5) == body


@pytest.mark.feature("F056")
@pytest.mark.parametrize("version", [V4, V5])
def test_ten_thousand_topics_are_read_and_shrink_to_a_tenth_when_compressed(version: int) -> None:
    topics = [TopicConfig(topic_name=f"orders-of-region-{i:05}", perm=6 - 2 * (i % 2)) for i in range(10_000)]
    body = table(*topics)
    plain, compressed = (encode_registration(body, form, version) for form in (False, True))
    assert len(plain) > 1_000_000
    assert len(compressed) < len(plain) / 10
    for data, form in ((plain, False), (compressed, True)):
        back = decode_registration(data, form, version)
        assert back == body
        assert len(back.topics.topic_config_table) == 10_000


def test_a_topic_is_small_and_not_tracked_by_the_garbage_collector() -> None:
    assert TopicConfig.__struct_config__.gc is False
    assert TopicConfig().__sizeof__() <= 96
