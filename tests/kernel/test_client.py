"""The client's kernel, both twins: what is written is what others read, and what is read is what records hold."""

import inspect
import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.kernel import layout, plain, plain_client
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.batch import split_batch
from bolide.protocol.records import MAGIC_V1, MAGIC_V2, decode_records, encode_record
from tests.kernel.twins import kernel_of

FUNCTIONS = ("encode_items", "read_receipts", "unique_ids", "write_outcomes", "write_sends")
HEAD = b'{"code":310,"extFields":{"a":"G","b":"T","e":"'
TAIL = b',"serializeTypeCurrentRPC":"JSON","version":479}'
# Pairs as users give them, with what JSON has to escape; text beyond ASCII too.
VALUES = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
) | st.sampled_from(['"', "\\", "\b\t\n\f\r\x0b\x1f\x7f", "é主", "sixteen plain ones"])
EXTRAS = st.lists(st.tuples(VALUES, VALUES), max_size=4).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
ITEMS = st.lists(st.tuples(st.binary(max_size=40), EXTRAS, st.integers(-(2**31), 2**31 - 1)), max_size=5)


@pytest.fixture(params=["plain", "compiled"])
def client(request: pytest.FixtureRequest, compiled: Any) -> Any:
    return kernel_of(request.param, "client")


@pytest.fixture(scope="session")
def twin(compiled: Any) -> Any:
    return compiled


def ids_of(count: int) -> list[str]:
    return plain_client.unique_ids("7F00000100010A0B0C0D", 0x1234, 0, count)


def bounds_of(stream: bytes) -> list[int]:
    return plain.cut_frames(stream, len(stream), 1 << 24)[0]


def record_of(body: bytes = b"body", magic: int = MAGIC_V1, **changes: Any) -> bytes:
    host = Host("10.1.2.3", 10911)
    whole: dict[str, Any] = {
        "topic": "T",
        "body": body,
        "queue_id": 1,
        "queue_offset": QueueOffset(5),
        "physical_offset": PhysicalOffset(77),
        "born_at": 1_700_000_000_000,
        "born_host": host,
        "stored_at": 1_700_000_000_001,
        "store_host": host,
        "properties": {"TAGS": "A"},
    }
    return encode_record(StoredMessage(**whole | changes), magic)


def test_both_have_the_same_functions_and_parameters(twin: Any) -> None:
    for name in FUNCTIONS:
        function, other = getattr(plain_client, name), getattr(twin, name)
        assert list(inspect.signature(function).parameters) == list(inspect.signature(other).parameters), name


# Ids


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**40), st.integers(0, 70))
def test_ids_agree_for_any_time_and_counter(twin: Any, at_ms: int, first: int, count: int) -> None:
    arguments = ("7F00000100010A0B0C0D", at_ms, first, count)
    assert twin.unique_ids(*arguments) == plain_client.unique_ids(*arguments)


def test_ids_count_on_and_wrap_at_16_bits(client: Any) -> None:
    assert client.unique_ids("P", 0xABC, 0xFFFF, 2) == ["P00000ABCFFFF", "P00000ABC0000"]


# Sends


@given(ITEMS, st.integers(0, 2**30), st.integers(0, 2**42))
def test_sends_are_the_frames_that_anybody_would_write(twin: Any, items: Any, opaque: int, born_ms: int) -> None:
    queue_ids = list(range(len(items)))
    arguments = (HEAD, TAIL, born_ms, opaque, queue_ids, items, ids_of(len(items)))
    written = plain_client.write_sends(*arguments)
    assert twin.write_sends(*arguments) == written
    frames: list[layout.Frame] = [
        (
            0,
            310,
            layout.LANGUAGES.index("PYTHON"),
            479,
            opaque + i,
            0,
            None,
            {
                "a": "G",
                "b": "T",
                "e": str(i),
                "g": str(born_ms),
                "h": str(flag),
                "i": f"{extra.decode()}UNIQ_KEY\x01{unique_id}\x02",
            },
            body,
        )
        for i, ((body, extra, flag), unique_id) in enumerate(zip(items, ids_of(len(items)), strict=True))
    ]
    assert written == plain.write_frames(frames)


ENDS = st.lists(
    st.tuples(
        st.sampled_from([0, 8, 12]),
        st.integers(0, 2**62),
        st.integers(0, 2**63 - 1).map(lambda place: f"0A01020300002A9F{place:016X}") | st.just("7fffFFFFffffFFFF"),
        VALUES | st.just(""),
    ),
    max_size=5,
)


@given(ENDS, st.integers(-(2**31), 2**31 - 6))
def test_ends_are_the_frames_that_anybody_would_write(twin: Any, rows: Any, opaque: int) -> None:
    head = b'{"code":37,"extFields":{"producerGroup":"G",'
    written = plain_client.write_outcomes(head, TAIL, opaque, rows)
    assert twin.write_outcomes(head, TAIL, opaque, rows) == written
    frames: list[layout.Frame] = []
    for i, (decision, queue_offset, offset_id, unique_id) in enumerate(rows):
        fields = {"producerGroup": "G", "commitOrRollback": str(decision), "tranStateTableOffset": str(queue_offset)}
        fields |= {"commitLogOffset": str(int(offset_id[-16:], 16)), "msgId": unique_id, "transactionId": unique_id}
        frames.append((0, 37, layout.LANGUAGES.index("PYTHON"), 479, opaque + i, 2, None, fields, b""))
    assert written == plain.write_frames(frames)


@pytest.mark.parametrize(
    "offset_id", ["", "0" * 15, "8" + "0" * 15, "0A" * 8 + "0" * 15 + "g", "0" * 16 + "é", "+" * 16]
)
def test_an_end_whose_half_message_lies_nowhere_is_refused(client: Any, offset_id: str) -> None:
    with pytest.raises(ValueError, match="does not end in an offset"):
        client.write_outcomes(b"{", TAIL, 1, [(8, 0, offset_id, "7F00")])


@given(ITEMS)
def test_a_batch_is_read_as_it_was_given(twin: Any, items: Any) -> None:
    ids = ids_of(len(items))
    laid = plain_client.encode_items(items, ids)
    assert twin.encode_items(items, ids) == laid
    expected = [
        (flag, body, extra + f"UNIQ_KEY\x01{unique_id}\x02".encode())
        for (body, extra, flag), unique_id in zip(items, ids, strict=True)
    ]
    assert [tuple(item) for item in split_batch(laid)] == expected


def test_properties_that_no_record_holds_are_refused(client: Any) -> None:
    item = (b"x", b"a\x01" + b"b" * 32760 + b"\x02", 0)
    with pytest.raises(ValueError, match="at most 32767"):
        client.write_sends(HEAD, TAIL, 1, 1, [0], [item], ids_of(1))
    with pytest.raises(ValueError, match="at most 32767"):
        client.encode_items([item], ids_of(1))


# Receipts

FIELDS = {"msgId": "0A01020300002A9F0000000000000000", "queueId": "3", "queueOffset": "123456789012"}


def answer_of(fields: dict[str, str], code: int = 0, flag: int = 1, codec: int = 0, remark: str | None = None) -> bytes:
    return plain.write_frames([(codec, code, 0, 479, -7, flag, remark, fields, b"")])


@pytest.mark.parametrize("codec", [0, 1])
def test_a_receipt_is_read_in_either_codec_and_others_are_left(client: Any, codec: int) -> None:
    first, other = answer_of(FIELDS, codec=codec), answer_of({"nextBeginOffset": "7"}, codec=codec)
    stream = first + other + first
    rows, left = client.read_receipts(stream, bounds_of(stream), {-7})
    assert rows == [(-7, 3, 123456789012, FIELDS["msgId"])] * 2
    assert left == bounds_of(stream)[2:4]


def test_a_receipt_that_another_expects_is_left_to_him(client: Any) -> None:
    frame = answer_of(FIELDS)
    assert client.read_receipts(frame, bounds_of(frame), {7}) == ([], bounds_of(frame))


@pytest.mark.parametrize(
    "frame",
    [
        answer_of(FIELDS, code=10),
        answer_of(FIELDS, flag=0),
        answer_of(FIELDS | {"queueId": "-1"}),
        answer_of(FIELDS | {"queueId": "1234567890"}),
        answer_of(FIELDS | {"queueOffset": "1e3"}),
        answer_of(FIELDS | {"msgId": ""}),
        answer_of(FIELDS | {"msgId": "é"}),
        *(answer_of({key: text for key, text in FIELDS.items() if key != missing}) for missing in FIELDS),
    ],
)
def test_what_is_no_plain_receipt_is_left(client: Any, frame: bytes) -> None:
    assert client.read_receipts(frame, bounds_of(frame), {-7}) == ([], bounds_of(frame))


def test_a_remark_of_a_java_broker_does_not_hide_a_receipt(client: Any) -> None:
    frame = answer_of(FIELDS | {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}, remark='said "é"')
    assert client.read_receipts(frame, bounds_of(frame), {-7})[0] == [(-7, 3, 123456789012, FIELDS["msgId"])]


@given(
    st.dictionaries(st.sampled_from([*FIELDS, "x", "transactionId"]), st.text(max_size=12) | st.just("12"), max_size=5),
    st.sampled_from([0, 1, 10]),
    st.integers(0, 3),
    st.booleans(),
)
def test_reading_receipts_agrees_on_any_answer(
    twin: Any, fields: dict[str, str], code: int, flag: int, ascii_only: bool
) -> None:
    document = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": 3, "version": 401}
    header = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    stream = struct.pack(">ii", 4 + len(header), len(header)) + header
    bounds = [4, len(stream)]
    assert twin.read_receipts(stream, bounds, {1, 3}) == plain_client.read_receipts(stream, bounds, {1, 3})


@given(st.binary(max_size=60))
@example(b'{"code":0,"code":0,"flag":1,"opaque":1,"extFields":{"msgId":"a","queueId":"1","queueOffset":"1"}}')
@example(b'{"code":0,"flag":1,"opaque":1,"extFields":{"msgId":"a","msgId":"b","queueId":"1","queueOffset":"1"}}')
@example(b'{"flag":1,"opaque":1,"extFields":{"msgId":"a","queueId":1,"queueOffset":1}}')
def test_reading_receipts_agrees_on_any_header(twin: Any, header: bytes) -> None:
    stream = struct.pack(">ii", 4 + len(header), len(header)) + header
    bounds = [4, len(stream)]
    assert twin.read_receipts(stream, bounds, {1, 3}) == plain_client.read_receipts(stream, bounds, {1, 3})


@pytest.mark.parametrize("bounds", [[-1, 8], [0, 3], [4, 999], [6, 4]])
def test_bounds_outside_the_stream_are_refused(client: Any, bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="is outside a stream of 8 bytes"):
        client.read_receipts(b"12345678", bounds, {})


# Records


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(0, 2**62), st.booleans()), max_size=6))
def test_cutting_finds_what_decoding_finds(twin: Any, parts: list[tuple[bytes, int, bool]]) -> None:
    buffer = b"".join(
        record_of(body, queue_offset=offset, properties={"UNIQ_KEY": "é"} if is_keyed else {})
        for body, offset, is_keyed in parts
    )
    rows = twin.cut_records(buffer)
    assert rows is not None
    decoded = decode_records(buffer)
    assert [(offset, body) for _, offset, body in rows] == [(each.queue_offset, each.body) for each in decoded]
    sizes = [each.store_size for each in decoded]
    assert [position for position, _, _ in rows] == [sum(sizes[:i]) for i in range(len(sizes))]


@pytest.mark.parametrize(
    "odd",
    [
        record_of(magic=MAGIC_V2),
        record_of(sys_flag=0x1),
        record_of(sys_flag=0xC0),
        record_of(born_host=Host("2001:db8::1", 1)),
        record_of(store_host=Host("2001:db8::1", 1)),
        record_of(topic="主题"),
    ],
    ids=["V2", "compressed", "inner batch", "born on IPv6", "stored on IPv6", "topic beyond ASCII"],
)
def test_records_that_are_not_everyday_are_left_to_the_full_reader(twin: Any, odd: bytes) -> None:
    assert twin.cut_records(record_of() + odd) is None
    assert len(decode_records(record_of() + odd)) == 2


@given(st.binary(max_size=12), st.integers(0, 110))
def test_cutting_agrees_with_decoding_on_damaged_records(twin: Any, patch: bytes, at: int) -> None:
    whole = record_of() + record_of(b"two")
    damaged = whole[:at] + patch + whole[at + len(patch) :]
    rows = twin.cut_records(damaged)
    if rows is not None:
        assert [(o, b) for _, o, b in rows] == [(each.queue_offset, each.body) for each in decode_records(damaged)]


@pytest.mark.parametrize("missing_size", range(1, 120))
def test_a_torn_answer_is_left_to_who_says_what_is_wrong(twin: Any, missing_size: int) -> None:
    whole = record_of()
    if missing_size < len(whole):
        assert twin.cut_records(whole[:-missing_size]) is None
