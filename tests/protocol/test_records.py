"""Stored records: Java's bytes, every kind of address, and every way to be wrong."""

import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError, Refusal
from bolide.kernel import body_crc, java_hash
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol import sysflags
from bolide.protocol.codes import ResponseCode
from bolide.protocol.compression import Compression, compress, with_compression
from bolide.protocol.records import (
    MAGIC_V1,
    MAGIC_V2,
    decode_record,
    decode_records,
    encode_record,
    inflate,
)
from tests.protocol.record_samples import HELLO

HELLO_BYTES = bytes.fromhex(
    "00000074DAA320A73610A686000000020000000000000000000000070000000000001000000000000000018BCFE56800"
    "0A000009000013880000018BCFE568010A00000100002A9F0000000000000000000000000000000568656C6C6F025431"
    "00124B455953016B310254414753015461674102"
)
BOLIDE_BYTES = bytes.fromhex(
    "000000c4 daa320a7 088ee845 00000003 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 c0a801090000c822 0000018bcfe56864 0a00000500002a9f 00000000 0000000000000000"
    "0000000c 48656c6c6f20426f6c696465 09 546f70696354657374 0054"
    "554e49515f4b45590137463030303030313030303031384234414143323030303030303030303002"
    "544147530154616741024b455953014b31204b3202434c55535445520144656661756c74436c757374657202"
)
IPV6 = Host("2001:db8::1", 10911)
SYS_FLAG_POSITION = 36


def as_read(message: StoredMessage, record: bytes) -> StoredMessage:
    """What a reader adds to a message that had no size and no checksum yet."""
    return replace(message, store_size=len(record), body_crc=body_crc(message.body))


def test_a_record_is_byte_for_byte_java_s() -> None:
    assert encode_record(HELLO) == HELLO_BYTES
    assert len(HELLO_BYTES) == 116
    assert decode_records(HELLO_BYTES, checks_crc=True) == [as_read(HELLO, HELLO_BYTES)]


def test_a_record_of_a_java_log_is_read_and_written_again() -> None:
    (message,) = decode_records(BOLIDE_BYTES, checks_crc=True)
    assert (message.topic, message.body, message.queue_id, message.queue_offset) == ("TopicTest", b"Hello Bolide", 3, 7)
    assert (message.born_host, message.store_host) == (("192.168.1.9", 51234), ("10.0.0.5", 10911))
    assert (message.born_at, message.stored_at) == (1_700_000_000_000, 1_700_000_000_100)
    assert (message.tags, message.keys, message.store_size) == ("TagA", ["K1", "K2"], 196)
    assert message.offset_id == "0A00000500002A9F0000000000001000"
    assert message.message_id == "7F000001000018B4AAC20000000000"
    assert encode_record(message) == BOLIDE_BYTES


def test_gotcha_44_checksums_have_31_bits() -> None:
    assert body_crc(b"hello") == 907060870 == 0x3610A686
    assert body_crc(b"Hello Bolide") == 143583301 == 0x888EE845 & 0x7FFFFFFF
    assert body_crc(b"") == 0


def test_tags_hash_as_in_java() -> None:
    assert [java_hash(tag) for tag in ("TagA", "TagB", "中文")] == [2598919, 2598920, 646394]


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ips = st.ip_addresses().filter(lambda ip: not getattr(ip, "ipv4_mapped", None))
hosts = st.builds(lambda ip, port: Host(str(ip), port), ips, st.integers(0, 0xFFFF))
messages = st.builds(
    StoredMessage,
    topic=st.text("abcXYZ_-%|", max_size=127),
    body=st.binary(max_size=40),
    queue_id=int32s,
    queue_offset=int64s.map(QueueOffset),
    physical_offset=int64s.map(PhysicalOffset),
    born_at=int64s,
    born_host=hosts,
    stored_at=int64s,
    store_host=hosts,
    properties=st.dictionaries(texts, texts, max_size=3),
    flag=int32s,
    sys_flag=int32s,
    reconsume_times=int32s,
    prepared_transaction_offset=int64s,
)


def address_bits(message: StoredMessage) -> int:
    return (0x10 if ":" in message.born_host.ip else 0) | (0x20 if ":" in message.store_host.ip else 0)


@given(st.lists(messages, max_size=4), st.sampled_from([MAGIC_V1, MAGIC_V2]), st.sampled_from([bytes, memoryview]))
def test_records_survive_being_written_one_after_the_other(
    made: list[StoredMessage], magic: int, form: type[bytes]
) -> None:
    records = [encode_record(message, magic) for message in made]
    expected = [
        replace(as_read(message, record), sys_flag=message.sys_flag & ~sysflags.HOSTS_MASK | address_bits(message))
        for message, record in zip(made, records, strict=True)
    ]
    assert decode_records(form(b"".join(records)), checks_crc=True) == expected


@pytest.mark.feature("F086")
@pytest.mark.parametrize("flag", [0, 1, -1, 0x7FFFFFFF, -0x80000000])
def test_the_user_s_flag_passes_untouched_and_changes_nothing_else(flag: int) -> None:
    record = encode_record(replace(HELLO, flag=flag))
    assert decode_record(record) == replace(as_read(HELLO, record), flag=flag)
    assert record[:16] + record[20:] == HELLO_BYTES[:16] + HELLO_BYTES[20:]


@pytest.mark.feature("F094")
@pytest.mark.parametrize("sys_flag", [sysflags.COMPRESSED, sysflags.PREPARED, sysflags.COMMITTED, 0x301])
def test_system_flags_are_on_the_wire_as_rocketmq_numbers_them(sys_flag: int) -> None:
    record = encode_record(replace(HELLO, sys_flag=sys_flag))
    assert struct.unpack_from(">i", record, SYS_FLAG_POSITION) == (sys_flag,)
    assert decode_record(record).sys_flag == sys_flag


@pytest.mark.feature("F094")
def test_transaction_bits_are_one_field_of_the_flags() -> None:
    assert (sysflags.COMPRESSED, sysflags.PREPARED, sysflags.COMMITTED, sysflags.ROLLED_BACK) == (1, 4, 8, 12)
    prepared = sysflags.with_transaction(0x301, sysflags.PREPARED)
    assert prepared == 0x305
    assert sysflags.transaction_of(prepared) == sysflags.PREPARED
    assert sysflags.with_transaction(prepared, sysflags.COMMITTED) == 0x309
    assert sysflags.transaction_of(0x301) == 0


@pytest.mark.parametrize(
    ("born", "store", "bits", "more"),
    [
        (HELLO.born_host, HELLO.store_host, 0x00, 0),
        (IPV6, HELLO.store_host, 0x10, 12),
        (HELLO.born_host, IPV6, 0x20, 12),
        (IPV6, IPV6, 0x30, 24),
    ],
)
def test_gotcha_35_address_bits_follow_from_the_addresses_alone(born: Host, store: Host, bits: int, more: int) -> None:
    for claimed in (0x00, 0x10, 0x20, 0x30):
        record = encode_record(replace(HELLO, born_host=born, store_host=store, sys_flag=claimed | 0x1))
        message = decode_record(record)
        assert len(record) == message.store_size == len(HELLO_BYTES) + more
        assert message.sys_flag == bits | 0x1
        assert (message.born_host, message.store_host) == (born, store)


def test_gotcha_35_ipv4_peers_of_an_ipv6_socket_are_stored_as_ipv4() -> None:
    mapped = replace(HELLO, born_host=Host("::ffff:10.0.0.9", 5000), store_host=Host("::ffff:10.0.0.1", 10911))
    assert encode_record(mapped) == HELLO_BYTES


def test_ipv6_hosts_stand_where_the_layout_says() -> None:
    record = encode_record(replace(HELLO, born_host=IPV6, store_host=Host("2001:db8::2", 1)))
    assert record[48:68].hex() == "20010db800000000000000000000000100002a9f"
    assert record[76:96].hex() == "20010db800000000000000000000000200000001"


def test_gotcha_34_a_long_topic_needs_v2_and_v1_refuses_it() -> None:
    assert decode_record(encode_record(replace(HELLO, topic="t" * 127))).topic == "t" * 127
    for topic in ("t" * 128, "é" * 64):
        with pytest.raises(Refusal, match="128 bytes, at most 127") as refused:
            encode_record(replace(HELLO, topic=topic))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert decode_record(encode_record(replace(HELLO, topic=topic), MAGIC_V2)).topic == topic


def test_v2_differs_in_magic_and_one_byte_of_topic_length() -> None:
    v2 = encode_record(HELLO, MAGIC_V2)
    topic_length_position = 88 + len(HELLO.body)
    expected = bytearray(HELLO_BYTES)
    expected[0:8] = bytes.fromhex("00000075DAA320AB")
    expected[topic_length_position:topic_length_position] = b"\x00"
    assert v2 == expected
    assert decode_record(v2) == as_read(HELLO, v2)


@pytest.mark.parametrize(
    "change",
    [
        {"flag": 2**31},
        {"queue_offset": 2**63},
        {"topic": "\ud800"},
        {"properties": {"a": "\x01"}},
        {"properties": {"a": "x" * 32767}},
    ],
    ids=str,
)
def test_what_no_record_can_hold_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(Refusal) as refused:
        encode_record(replace(HELLO, **change))  # type: ignore[arg-type]
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def patched(position: int, layout: str, value: int) -> bytes:
    record = bytearray(HELLO_BYTES)
    struct.pack_into(layout, record, position, value)
    return bytes(record)


BAD_RECORDS = [
    (patched(0, ">i", 0), "total size: 0"),
    (patched(0, ">i", -1), "total size: -1"),
    (patched(0, ">i", 87), "total size: 87"),
    (patched(0, ">i", 88), "body length: 5, the record has 0"),
    (patched(0, ">i", 115), "properties length: 18"),
    (patched(0, ">i", 117), "total size: 117"),
    (patched(0, ">i", 0x7FFFFFFF), "total size: 2147483647"),
    (patched(4, ">I", 0xCBD43194), "magic: 0xcbd43194"),
    (patched(4, ">I", 0), "magic: 0x00000000"),
    (patched(52, ">i", -1), "born host: port -1"),
    (patched(68, ">i", 65536), "store host: port 65536"),
    (patched(84, ">i", -1), "body length: -1"),
    (patched(84, ">i", 29), "body length: 29, the record has 28"),
    (patched(84, ">i", 28), "topic length: lies beyond"),
    (patched(93, ">b", -1), "topic length: -1"),
    (patched(93, ">b", 23), "topic length: 23, the record has 22"),
    (patched(93, ">b", 22), "properties length: lies beyond"),
    (patched(94, ">B", 0xFF), "topic: .* is not UTF-8"),
    (patched(96, ">h", -1), "properties length: -1"),
    (patched(96, ">h", 19), "properties length: 19"),
    (patched(96, ">h", 17), "total size: 116, but its parts take 115"),
    (patched(36, ">i", 0x10), "body length: 1198917"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_RECORDS, ids=[why for _, why in BAD_RECORDS])
def test_gotcha_32_a_bad_record_is_named_by_place_and_field_and_never_skipped(bad: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"record at byte 116: {why}"):
        decode_records(HELLO_BYTES + bad)


def test_the_filler_at_the_end_of_a_log_file_is_no_record() -> None:
    filler = struct.pack(">iI", 64, 0xCBD43194) + bytes(56)
    with pytest.raises(ProtocolError, match="magic"):
        decode_records(HELLO_BYTES + filler)


@pytest.mark.parametrize("size", range(1, len(HELLO_BYTES)))
def test_a_record_torn_at_any_byte_is_an_error_and_not_a_shorter_message(size: int) -> None:
    with pytest.raises(ProtocolError, match="record at byte 116: total size"):
        decode_records(HELLO_BYTES + HELLO_BYTES[:size])


@pytest.mark.parametrize("position", range(len(HELLO_BYTES)))
def test_any_byte_may_be_anything_without_another_error_than_ours(position: int) -> None:
    record = bytearray(HELLO_BYTES)
    for value in range(256):
        record[position] = value
        with suppress(ProtocolError):
            (message,) = decode_records(bytes(record))
            assert message.store_size == len(record)


@given(st.binary(max_size=200))
def test_garbage_is_an_error_and_nothing_else(noise: bytes) -> None:
    for record in (noise, HELLO_BYTES[:8] + noise, HELLO_BYTES[:4] + b"\xda\xa3\x20\xab" + noise):
        with suppress(ProtocolError):
            assert sum(message.store_size for message in decode_records(record)) == len(record)


def test_no_bytes_are_no_records() -> None:
    assert decode_records(b"") == []


def test_a_changed_body_is_noticed_only_by_those_who_ask() -> None:
    changed = HELLO_BYTES.replace(b"hello", b"jello")
    assert decode_records(changed)[0].body == b"jello"
    with pytest.raises(ProtocolError, match="record at byte 0: body CRC: 0x3610a686"):
        decode_records(changed, checks_crc=True)


@pytest.mark.feature("X29")
@pytest.mark.parametrize("compression", list(Compression))
def test_a_consumer_gets_the_body_as_it_was_sent(compression: Compression) -> None:
    plain = b"again and again " * 500
    small = compress(plain, compression)
    stored = replace(HELLO, body=small, sys_flag=with_compression(sysflags.COMMITTED, compression))
    record = encode_record(stored)
    assert decode_record(record).body == small
    assert decode_record(record).body_crc == body_crc(small)
    message = inflate(decode_record(record))
    assert message.body == plain
    assert not message.sys_flag & sysflags.COMPRESSED
    assert message.sys_flag & sysflags.COMMITTED
    assert inflate(message) == message


def test_a_body_of_a_producer_before_types_existed_is_zlib() -> None:
    stored = replace(HELLO, body=compress(b"old", Compression.ZLIB), sys_flag=sysflags.COMPRESSED)
    assert inflate(stored).body == b"old"


def test_a_body_is_not_inflated_beyond_the_limit() -> None:
    stored = replace(HELLO, body=compress(bytes(100_000), Compression.ZLIB), sys_flag=0x301)
    with pytest.raises(ProtocolError, match="more than 99999"):
        inflate(stored, size_max=99_999)


def test_a_message_that_was_not_compressed_is_left_alone() -> None:
    assert inflate(HELLO) is HELLO
