"""Trace bodies: Java's field order, its older forms, and what cannot be read."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError
from bolide.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
    encode_trace,
    parse_trace,
    trace_keys,
)

AT = 1_700_000_000_000
LINES: list[tuple[TraceRecord, str]] = [
    (
        Published(AT, "R", "pg", "T", "ID", "TagA", "k1 k2", "10.0.0.1:10911", 5, 12, 3, "OID", True),
        f"Pub|{AT}|R|pg|T|ID|TagA|k1 k2|10.0.0.1:10911|5|12|3|OID|true",
    ),
    (ConsumeBegun(AT, "R", "cg", "REQ", "ID", 2, "k1"), f"SubBefore|{AT}|R|cg|REQ|ID|2|k1"),
    (ConsumeEnded("REQ", "ID", 7, False, "k1", 4, AT, "cg"), f"SubAfter|REQ|ID|7|false|k1|4|{AT}|cg"),
    (
        TransactionEnded(AT, "R", "pg", "T", "ID", "TagA", "k1", "h:1", 2, "TX", "COMMIT_MESSAGE", True),
        f"EndTransaction|{AT}|R|pg|T|ID|TagA|k1|h:1|2|TX|COMMIT_MESSAGE|true",
    ),
    (Recalled(AT, "R", "pg", "T", "ID", False), f"Recall|{AT}|R|pg|T|ID|false"),
]


def body_of(*lines: str) -> bytes:
    return "".join(line.replace("|", "\x01") + "\x02" for line in lines).encode()


@pytest.mark.parametrize(("record", "line"), LINES)
def test_fields_stand_in_java_s_order(record: TraceRecord, line: str) -> None:
    assert encode_trace([record]) == body_of(line)
    assert parse_trace(body_of(line)) == [record]


def test_many_records_make_one_body() -> None:
    records = [record for record, _ in LINES]
    assert parse_trace(encode_trace(records)) == records
    assert parse_trace(b"") == []


words = st.none() | st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text != "null"
)
ids = st.text("0123456789ABCDEF", min_size=1)
numbers = st.integers(-(2**63), 2**63 - 1)
records = st.one_of(
    st.builds(Published, numbers, *[words] * 3, ids, *[words] * 3, *[numbers] * 3, words, st.booleans()),
    st.builds(ConsumeBegun, numbers, words, words, ids, ids, numbers, words),
    st.builds(ConsumeEnded, ids, ids, numbers, st.booleans(), words, numbers, numbers, words),
    st.builds(TransactionEnded, numbers, *[words] * 3, ids, *[words] * 3, numbers, words, ids, st.booleans()),
    st.builds(Recalled, numbers, *[words] * 3, ids, st.booleans()),
)


@given(st.lists(records, max_size=4))
def test_records_survive_their_body(made: list[TraceRecord]) -> None:
    assert parse_trace(encode_trace(made)) == made


def test_text_that_is_not_there_is_java_s_null_so_that_no_last_field_is_empty() -> None:
    begun = ConsumeBegun(AT, "", "cg", "REQ", "ID", 0, None)
    assert encode_trace([begun]) == body_of(f"SubBefore|{AT}|null|cg|REQ|ID|0|null")
    assert parse_trace(encode_trace([begun])) == [ConsumeBegun(AT, None, "cg", "REQ", "ID", 0, None)]


def test_a_separator_in_a_value_does_not_shift_the_others() -> None:
    (read,) = parse_trace(encode_trace([Recalled(AT, "R", "p\x01g", "T\x02", "ID", True)]))
    assert read == Recalled(AT, "R", "p g", "T ", "ID", True)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (f"Pub|{AT}|R|pg|T|ID|A|k|h|5|12|0", Published(AT, "R", "pg", "T", "ID", "A", "k", "h", 5, 12, 0)),
        (
            f"Pub|{AT}|R|pg|T|ID|A|k|h|5|12|0|false",
            Published(AT, "R", "pg", "T", "ID", "A", "k", "h", 5, 12, 0, None, False),
        ),
        (
            f"Pub|{AT}|R|pg|T|ID|A|k|h|5|12|0|OID|false|client",
            Published(AT, "R", "pg", "T", "ID", "A", "k", "h", 5, 12, 0, "OID", False),
        ),
        ("SubAfter|REQ|ID|7|true|k", ConsumeEnded("REQ", "ID", 7, True, "k")),
        ("SubAfter|REQ|ID|7|true|k|0|", ConsumeEnded("REQ", "ID", 7, True, "k", 0)),
        (f"SubAfter|REQ|ID|7|true|k|0|{AT}", ConsumeEnded("REQ", "ID", 7, True, "k", 0, AT)),
        (f"SubBefore|{AT}|R|cg|REQ|ID|2", ConsumeBegun(AT, "R", "cg", "REQ", "ID", 2)),
    ],
)
def test_older_and_newer_forms_are_read(line: str, record: TraceRecord) -> None:
    assert parse_trace(body_of(line)) == [record]


def test_kinds_nobody_knows_are_left_out() -> None:
    assert parse_trace(body_of("New|1|2", LINES[4][1], "")) == [LINES[4][0]]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Pub|1|R", "group is missing"),
        ("Recall|x|R|pg|T|ID|true", "at 'x' is not a number"),
        ("SubAfter|REQ|ID||true", "cost_ms '' is not a number"),
        ("Recall|9223372036854775808|R|pg|T|ID|true", "is not a number"),
    ],
)
def test_a_record_we_know_must_be_whole_or_is_left_out(line: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        parse_trace(body_of(line))
    assert parse_trace(body_of(line, LINES[4][1]), is_strict=False) == [LINES[4][0]]


@given(st.text("PubSAfter\x01\x021null", max_size=60))
def test_garbage_is_records_or_an_error(text: str) -> None:
    with suppress(ProtocolError):
        assert all(record.message_id is not None for record in parse_trace(text.encode()))


def test_a_trace_message_is_found_by_every_id_and_key_in_it() -> None:
    assert trace_keys([record for record, _ in LINES]) == ["ID", "k1", "k2"]
