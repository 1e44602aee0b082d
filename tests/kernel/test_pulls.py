"""Pulls in the kernel: what is read, what is left to others, and answers that are the general path's to the byte."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain
from bolide.protocol.command import VERSION
from tests.kernel import general_pulls
from tests.kernel.twins import compiled as pulls

pytestmark = pytest.mark.skipif(pulls is None, reason="the compiled kernel was not built; run make build")

FIELDS = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "123456789012",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "-1",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
}
MORE = {"subscription": "A || B", "expressionType": "TAG", "maxMsgBytes": "262144", "bname": "broker-a", "lo": "false"}
PULL = ("G", "T", 3, 123456789012, 32, 0, 3, -1, 15000, 1700000000000, None, None)


def frame_of(fields: dict[str, str], code: int = 11, codec: int = 0, flag: int = 0, opaque: int = 7) -> bytes:
    return plain.write_frames([(codec, code, 0, 479, opaque, flag, None, fields, b"")])


def bounds_of(stream: bytes) -> list[int]:
    return plain.cut_frames(stream, len(stream), 1 << 24)[0]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("code", [11, 361])
def test_a_pull_is_read_in_either_codec_and_others_are_left(codec: int, code: int) -> None:
    stream = (
        frame_of(FIELDS, 310, codec)
        + frame_of(FIELDS, code, codec, opaque=-5)
        + frame_of({"topic": "T"}, 105, codec)
        + frame_of(FIELDS | MORE, code, codec)
    )
    whole = (*PULL[:5], 262144, *PULL[6:10], "A || B", "TAG")
    assert pulls.read_pulls(stream, bounds_of(stream)) == [None, (codec, code, -5, PULL), None, (codec, code, 7, whole)]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("missing", FIELDS)
def test_a_pull_without_a_required_field_is_left_to_who_can_say_so(codec: int, missing: str) -> None:
    stream = frame_of({key: text for key, text in FIELDS.items() if key != missing}, codec=codec)
    assert pulls.read_pulls(stream, bounds_of(stream)) == [None]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("queueId", "2147483648"),
        ("queueId", "x"),
        ("queueOffset", "9223372036854775808"),
        ("queueOffset", "-"),
        ("queueOffset", "1.0"),
        ("queueOffset", "+5"),
        ("queueOffset", "9223372036854775807"),
        ("queueOffset", "-9223372036854775808"),
        ("sysFlag", "４"),
        ("requestSource", "1"),
    ],
)
def test_a_number_that_is_odd_or_none_and_a_proxys_pull_are_left(codec: int, key: str, text: str) -> None:
    stream = frame_of(FIELDS | {key: text}, codec=codec)
    assert pulls.read_pulls(stream, bounds_of(stream)) == [None]


@pytest.mark.parametrize("flag", [1, 2, 3])
def test_answers_and_one_way_pulls_are_left(flag: int) -> None:
    for codec in (0, 1):
        stream = frame_of(FIELDS, codec=codec, flag=flag)
        assert pulls.read_pulls(stream, bounds_of(stream)) == [None]


def test_what_other_clients_write_is_read_alike() -> None:
    document = {
        "flag": 0,
        "extFields": FIELDS | {"queueId": 3, "queueOffset": 123456789012, "OnsChannel": "", "sysFlag": 3},
        "opaque": 7,
        "remark": "",
        "version": 333,
        "language": "CPP",
        "code": 11,
    }
    for separators in ((",", ":"), (" ,\n", " : ")):
        header = json.dumps(document, separators=separators).encode()
        stream = struct.pack(">ii", 4 + len(header), len(header)) + header
        assert pulls.read_pulls(stream, bounds_of(stream)) == [(0, 11, 7, PULL)]
    for text, number in (("007", 7), ("-5", -5), ("999999999999999999", 10**18 - 1)):
        stream = frame_of(FIELDS | {"queueOffset": text})
        [read] = pulls.read_pulls(stream, bounds_of(stream))
        assert read[3][3] == number


def test_names_in_any_script_and_half_characters_are_treated_alike() -> None:
    stream = frame_of(FIELDS | {"topic": "主题", "subscription": "标签"})
    [read] = pulls.read_pulls(stream, bounds_of(stream))
    assert (read[3][1], read[3][10]) == ("主题", "标签")
    stream = frame_of(FIELDS | {"subscription": 'A"\\'})
    assert pulls.read_pulls(stream, bounds_of(stream)) == [None]
    header = frame_of(FIELDS)[8:].replace(b'"topic":"T"', b'"topic":"\\ud83d"')
    stream = struct.pack(">ii", 4 + len(header), len(header)) + header
    assert pulls.read_pulls(stream, bounds_of(stream)) == [None]


def test_a_pull_with_a_field_said_twice_is_left() -> None:
    header = frame_of(FIELDS)[8:]
    for first in (b'"A"', b'"\xff"'):
        twice = header.replace(b'"topic":"T"', b'"topic":"T","subscription":' + first + b',"subscription":"B"')
        stream = struct.pack(">ii", 4 + len(twice), len(twice)) + twice
        assert pulls.read_pulls(stream, bounds_of(stream)) == [None]


def test_bounds_outside_the_stream_are_an_error() -> None:
    stream = frame_of(FIELDS)
    for bounds in ([4], [4, len(stream) + 1], [-1, 8], [8, 9]):
        with pytest.raises(ValueError, match=r"bounds|outside"):
            pulls.read_pulls(stream, bounds)


values = st.one_of(
    st.sampled_from(
        ["", "1", "-1", "+1", "x", "2147483647", "2147483648", "9" * 18, "9" * 19, "9" * 30, "é", "\ud800"]
    ),
    st.text(max_size=5),
)
keys = st.sampled_from([*FIELDS, *MORE, "requestSource", "other", "ключ", ""])


@given(
    changes=st.dictionaries(keys, values, max_size=4),
    dropped=st.sets(st.sampled_from(list(FIELDS)), max_size=1),
    code=st.sampled_from([11, 361, 310, 0]),
    codec=st.sampled_from([0, 1]),
    cut=st.integers(0, 400),
    noise=st.lists(st.tuples(st.integers(8, 500), st.integers(0, 255)), max_size=2),
)
def test_what_is_read_is_what_the_general_path_reads(changes, dropped, code, codec, cut, noise) -> None:
    fields = {key: text for key, text in (FIELDS | changes).items() if key not in dropped}
    frame = bytearray(frame_of(fields, code, codec))
    for at, byte in noise:
        if at < len(frame):
            frame[at] = byte
    stream = bytes(frame)
    bounds = bounds_of(stream)
    assert not general_pulls.disagreement(stream, bounds, pulls.read_pulls(stream, bounds))


def test_numbers_and_nested_values_in_json_are_read_the_same() -> None:
    odd: list[Any] = [None, 1, -1, 0, 1.5, True, [], {}, "1", 10**18, 10**19, "a\u0001b", "\\", "é"]
    for key in [*FIELDS, *MORE, "requestSource", "other"]:
        for value in odd:
            for outer in ({}, {"remark": value}, {"language": value}, {"version": value}, {"opaque": value}):
                document = {"code": 11, "extFields": FIELDS | {key: value}, "opaque": 1, **outer}
                for text in (json.dumps(document), json.dumps(document, ensure_ascii=False)):
                    header = text.encode()
                    stream = struct.pack(">ii", 4 + len(header), len(header)) + header
                    found = pulls.read_pulls(stream, bounds_of(stream))
                    assert not general_pulls.disagreement(stream, bounds_of(stream), found)


# Answers

entry = struct.Struct(">qiq")
BASE = 1 << 30


TOPIC, QUEUE_ID = b"Tidings", 3


def record_of(offset: int, place: int, body: bytes = b"body", **changes: Any) -> bytes:
    """A record as it lies in the log, of the queue that is pulled unless a change says otherwise."""
    topic, hosts = changes.get("topic", TOPIC), changes.get("hosts", 0)
    told = len(topic).to_bytes(changes.get("width", 1), "big") + topic + b"\0\4TAGS"
    size = 88 + 12 * hosts.bit_count() + len(body) + len(told)
    head = (size, 0xDAA320A7 if changes.get("width", 1) == 1 else 0xDAA320AB, 0, changes.get("queue_id", QUEUE_ID), 0)
    fixed = struct.pack(
        ">iIIiiqqiq", *head, changes.get("own_offset", offset), changes.get("own_place", place), hosts << 4, 7
    )
    between = bytes(36 + 12 * hosts.bit_count()) + struct.pack(">i", changes.get("body_size", len(body)))
    return fixed + between + body + told


def stored(records: list[bytes]) -> tuple[bytes, bytes]:
    """A log of them from BASE on, and the entries of their queue."""
    log, entries = b"", b""
    for record in records:
        entries += entry.pack(BASE + len(log), len(record), 5)
        log += record
    return log, entries


@st.composite
def queues(draw: st.DrawFn, offset: int) -> tuple[bytes, bytes]:
    """Some records from BASE on, and entries that point to them, before them, or nowhere; some bytes are wrong."""
    log, entries = bytearray(), bytearray()
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.integers(0, 12))
        if kind == 0:
            entries += entry.pack(0, 0x7FFF_FFFF, 0)
            continue
        changes = {"hosts": draw(st.integers(0, 3)), "width": draw(st.sampled_from([1, 2]))}
        record = record_of(offset + number, BASE + len(log), draw(st.binary(max_size=20)), **changes)
        at = draw(st.sampled_from([-5, 1000, 2**63 - 1 - BASE, 2**63 - 30 - BASE])) if kind == 1 else len(log)
        size = draw(st.sampled_from([0, -1, 0x7FFF_FFFF, 1, 40])) if kind == 2 else len(record)
        tag = draw(st.sampled_from([0, 1, -1, 5, (1 << 32) + 1, -(1 << 40), 2112]))
        entries += entry.pack(BASE + at, size, tag)
        log += record
    for at, bit in draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 7)), max_size=1)):
        if at < len(log):
            log[at] ^= 1 << bit
    return bytes(log), bytes(entries)


def pull(log: bytes, entries: bytes, offset: int = 40) -> Any:
    limits = (1 << 30, 100)
    place = (0, 7, 479, 0, TOPIC, QUEUE_ID, offset, 0, 99)
    return pulls.answer_pull(*place, entries, None, BASE, 0, 32, 1 << 20, limits, limits, log, BASE)


@pytest.mark.parametrize("hosts", range(4))
@pytest.mark.parametrize("width", [1, 2])
def test_a_record_of_the_queue_is_handed_out_whatever_its_form(hosts: int, width: int) -> None:
    records = [record_of(40, BASE, hosts=hosts, width=width)]
    records.append(record_of(41, BASE + len(records[0]), hosts=hosts, width=width))
    frame, count, size, scanned = pull(*stored(records))
    assert (count, size, scanned) == (2, len(records[0]) * 2, 2)
    assert frame.endswith(records[0] + records[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"Tidingz"},
        {"topic": b"Tiding"},
        {"queue_id": 4},
        {"own_offset": 42},
        {"own_place": BASE},
        {"body_size": -1},
        {"body_size": 5},
        {"body_size": 1 << 30},
    ],
)
def test_a_record_of_another_queue_or_place_is_left_to_who_can_say_so(changes: dict[str, Any]) -> None:
    first = record_of(40, BASE)
    assert pull(*stored([first, record_of(41, BASE + len(first), **changes)])) is None


def test_what_stands_for_nothing_is_passed_over_and_what_is_merely_empty_is_not() -> None:
    log, entries = stored([record_of(42, BASE)])
    blank = entry.pack(0, 0x7FFF_FFFF, 0)
    assert pull(log, blank * 2 + entries)[1:] == (1, len(log), 3)
    for odd in (bytes(20), entry.pack(0, 0x7FFF_FFFF, 1), entry.pack(BASE, 0, 0), entry.pack(BASE - 1, 90, 0)):
        assert pull(log, blank + odd + entries) is None


@pytest.mark.parametrize("place", [2**63 - 1, 2**63 - 20, 2**63 - BASE, 2**62, BASE + 91, BASE + 100, BASE - 1, 0])
@pytest.mark.parametrize("base", [BASE, 1])
def test_an_entry_that_points_outside_the_log_is_left_to_who_can_say_so(place: int, base: int) -> None:
    entries = entry.pack(base, 10, 0) + entry.pack(place, 20, 0)
    limits = (1 << 30, 100)
    arguments = (0, 7, 479, 0, b"T", 0, 5, 0, 99, entries, None, 0, 0, 32, 1 << 20, limits, limits, bytes(100), base)
    assert pulls.answer_pull(*arguments) is None


limits = st.tuples(st.integers(0, 600), st.integers(0, 6))


@given(
    data=st.data(),
    wanted=st.none() | st.frozensets(st.sampled_from([0, 1, -1, 5, 2112])),
    codec=st.sampled_from([0, 1]),
    opaque=st.integers(-(2**31), 2**31 - 1),
    floor=st.sampled_from([-10, -5, 0, 1, 100]),
    near_from=st.integers(0, 400),
    count_max=st.integers(-1, 8),
    size_max=st.integers(0, 900),
    near=limits,
    far=limits,
    offset=st.integers(0, 2**62),
)
def test_an_answer_is_the_general_paths_to_the_byte(
    data, wanted, codec, opaque, floor, near_from, count_max, size_max, near, far, offset
) -> None:
    log, entries = data.draw(queues(offset))
    place = (codec, opaque, VERSION, 1, TOPIC, QUEUE_ID, offset, -1, offset + 99)
    choice = (wanted, BASE + floor, BASE + near_from, count_max, size_max, near, far)
    meant = general_pulls.answer(*place, entries, *choice, log, BASE)
    assert pulls.answer_pull(*place, memoryview(entries), *choice, memoryview(log), BASE) == meant
