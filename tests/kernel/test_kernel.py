"""What the kernel means, settled by bytes that came from Java."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

LIMIT = 16 * 1024 * 1024
JSON_REQUEST = (
    b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
BINARY_REQUEST = bytes.fromhex(
    "00000026 01000022 0069 00 0199 00000007 00000000 00000000 0000000D 0005 746F706963 00000002 5431"
)
BINARY_ANSWER = bytes.fromhex("00000021 0100001D 0011 00 0199 00000007 00000001 00000008 6E6F20726F757465 00000000")
ROUTE = b'{"brokerDatas":[]}'


def test_java_hash_matches_values_printed_by_a_jvm(kernel: ModuleType) -> None:
    assert kernel.java_hash("TagA") == 2598919
    assert kernel.java_hash("TagB") == 2598920
    assert kernel.java_hash("hello") == 99162322
    assert kernel.java_hash("中文") == 646394
    assert kernel.java_hash("") == 0
    assert kernel.java_hash("polygenelubricants") == -(2**31)


def test_the_json_request_is_written_as_java_writes_it(kernel: ModuleType) -> None:
    frame = kernel.write_frames([(0, 105, 0, 409, 7, 0, None, {"topic": "T1"}, b"")])
    assert frame == bytes.fromhex("00000080 0000007C") + JSON_REQUEST


def test_the_binary_frames_are_written_as_java_writes_them(kernel: ModuleType) -> None:
    assert kernel.write_frames([(1, 105, 0, 409, 7, 0, None, {"topic": "T1"}, b"")]) == BINARY_REQUEST
    assert kernel.write_frames([(1, 17, 0, 409, 7, 1, "no route", None, b"")]) == BINARY_ANSWER


def test_the_binary_frames_of_java_are_read(kernel: ModuleType) -> None:
    stream = BINARY_REQUEST + BINARY_ANSWER
    bounds, consumed, fault = kernel.cut_frames(stream, len(stream), LIMIT)
    assert (consumed, fault) == (len(stream), None)
    assert kernel.read_headers(stream, bounds) == [
        (1, 105, 0, 409, 7, 0, None, {"topic": "T1"}, len(BINARY_REQUEST)),
        (1, 17, 0, 409, 7, 1, "no route", {}, len(stream)),
    ]


def test_a_request_always_has_ext_fields_and_an_answer_only_when_there_are_some(kernel: ModuleType) -> None:
    assert b'"extFields":{}' in kernel.write_frames([(0, 34, 3, 479, 1, 0, None, {}, b"")])
    assert b"extFields" not in kernel.write_frames([(0, 0, 3, 479, 1, 1, None, {}, b"")])


def test_numbers_and_booleans_among_the_ext_fields_become_text(kernel: ModuleType) -> None:
    header = b'{"code":11,"extFields":{"queueId":3,"order":true,"unit":false,"gone":null,"min":-1},"language":"CPP"}'
    stream = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    ((_, code, language, _, _, _, _, fields, _),) = kernel.read_headers(stream, [4, len(stream)])
    assert (code, language) == (11, 1)
    assert fields == {"queueId": "3", "order": "true", "unit": "false", "min": "-1"}


def test_an_empty_value_does_not_survive_the_binary_codec(kernel: ModuleType) -> None:
    stream = kernel.write_frames([(1, 10, 3, 479, 1, 0, None, {"empty": "", "full": "x"}, b"")])
    assert kernel.read_headers(stream, [4, len(stream)])[0][7] == {"full": "x"}


def test_a_code_above_16_bits_is_cut_in_the_binary_codec_as_in_java(kernel: ModuleType) -> None:
    stream = kernel.write_frames([(1, 200050, 0, 479, 1, 0, None, {}, b"")])
    assert kernel.read_headers(stream, [4, len(stream)])[0][1] == 3442


def test_a_negative_answer_code_keeps_its_sign_in_the_binary_codec(kernel: ModuleType) -> None:
    stream = kernel.write_frames([(1, -1000, 0, 479, 1, 1, None, {}, b"")])
    assert kernel.read_headers(stream, [4, len(stream)])[0][1] == -1000


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        ("00000003", "3 bytes long"),
        ("FFFFFFFF", "-1 bytes long"),
        ("01000000", "16777216 bytes long"),
        ("47455420", "1195725856 bytes long"),  # GET
        ("00000008 02000000", "codec 2"),
        ("00000008 00000005", "a header of 5 bytes does not fit its frame of 8"),
    ],
)
def test_a_false_length_is_reported_before_its_bytes_arrive(kernel: ModuleType, stream: str, fault: str) -> None:
    found = bytes.fromhex(stream)
    bounds, consumed, said = kernel.cut_frames(BINARY_REQUEST + found, len(BINARY_REQUEST + found), LIMIT)
    assert (bounds, consumed) == ([4, len(BINARY_REQUEST)], len(BINARY_REQUEST))
    assert fault in said


def test_the_frame_limit_counts_the_length_bytes(kernel: ModuleType) -> None:
    largest = (LIMIT - 4).to_bytes(4, "big")
    assert kernel.cut_frames(largest, 4, LIMIT) == ([], 0, None)
    assert kernel.cut_frames((LIMIT - 3).to_bytes(4, "big"), 4, LIMIT)[2] is not None


@given(bodies=st.lists(st.binary(max_size=40), max_size=8), cut=st.integers(0, 60))
def test_only_whole_frames_are_cut(kernel: ModuleType, bodies: list[bytes], cut: int) -> None:
    whole = [kernel.write_frames([(0, 1, 3, 479, i, 0, None, None, body)]) for i, body in enumerate(bodies)]
    stream = b"".join(whole)
    end = max(0, len(stream) - cut)
    bounds, consumed, fault = kernel.cut_frames(stream, end, LIMIT)
    assert fault is None
    assert stream[:consumed] == b"".join(whole[: len(bounds) // 2])
    assert consumed <= end
    assert end - consumed < (len(whole[len(bounds) // 2]) if len(bounds) < 2 * len(whole) else 1)


def look_up(version: int, **fields: str) -> tuple[object, ...]:
    return (0, 105, 0, version, 7, 0, None, fields, b"")


@pytest.mark.parametrize(
    ("version", "fields", "body"),
    [
        (409, {}, b"quoted"),
        (401, {}, b"quoted"),
        (400, {}, b"bare"),
        (317, {}, b"bare"),
        (317, {"acceptStandardJsonOnly": "true"}, b"quoted"),
        (317, {"acceptStandardJsonOnly": "True"}, b"quoted"),
        (317, {"acceptStandardJsonOnly": "false"}, b"bare"),
        (409, {"acceptStandardJsonOnly": "false"}, b"quoted"),
    ],
)
def test_a_look_up_is_answered_in_the_form_its_client_reads(
    kernel: ModuleType, version: int, fields: dict[str, str], body: bytes
) -> None:
    stream = kernel.write_frames([look_up(version, topic="T1", **fields)])
    answer, left = kernel.answer_routes(stream, [4, len(stream)], {b"T1": b"quoted"}, {b"T1": b"bare"}, 479)
    assert left == []
    header = b'{"code":0,"flag":1,"language":"PYTHON","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'
    assert answer[8:] == header + body
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4


def test_a_binary_look_up_gets_a_binary_answer(kernel: ModuleType) -> None:
    answer, left = kernel.answer_routes(BINARY_REQUEST, [4, len(BINARY_REQUEST)], {b"T1": ROUTE}, {}, 479)
    assert left == []
    ((codec, code, _, _, opaque, flag, _, _, body_at),) = kernel.read_headers(answer, [4, len(answer)])
    assert (codec, code, opaque, flag, answer[body_at:]) == (1, 0, 7, 1, ROUTE)


def test_what_is_no_look_up_of_a_known_topic_is_left_for_its_owner(kernel: ModuleType) -> None:
    known = look_up(409, topic="T1")
    others = [
        look_up(409, topic="T2"),
        look_up(409),
        look_up(409, topic="T1", __ZONE_MODE="true"),
        (0, 106, 0, 409, 7, 0, None, {"topic": "T1"}, b""),
        (0, 105, 0, 409, 7, 1, None, {"topic": "T1"}, b""),
        (0, 105, 0, 409, 7, 2, None, {"topic": "T1"}, b""),
    ]
    stream = kernel.write_frames([known, *others, known])
    bounds, _, _ = kernel.cut_frames(stream, len(stream), LIMIT)
    answer, left = kernel.answer_routes(stream, bounds, {b"T1": ROUTE}, {b"T1": ROUTE}, 479)
    assert left == bounds[2:-2]
    assert answer.count(ROUTE) == 2
