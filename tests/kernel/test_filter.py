"""Filter programs in both kernels: the same choice as the predicate they were made from, and bounds that hold."""

import inspect
import mmap
import struct
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.filter.sql import Predicate, SqlError, compile_sql
from bolide.kernel import filter_layout, plain_filter
from tests.kernel.programs import check_program
from tests.kernel.twins import compiled, kernel_of

BASE = 1000
NAMES = ["a", "b", "c", "TAGS", "missing"]
VALUES = st.one_of(
    st.sampled_from(
        ["5", "-5", "+5", "05", "5.5", " 5", "5.", ".5", "-0", "0", "0.0", "", "x", "true", "TRUE", "tRue"]
    ),
    st.sampled_from(
        ["NaN", "-Infinity", "1e3", "5d", "2147483647", "2147483648", "-2147483648", "9223372036854775807"]
    ),
    st.sampled_from(
        ["9223372036854775808", "0" * 19 + "7", "123456789012345.6", "0.1234567890123456", "北京", "北", "京"]
    ),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False).map(str),
    st.text(max_size=6).map(lambda text: text.replace("\x01", "").replace("\x02", "")),
)
NUMBERS = st.sampled_from(
    ["5", "-5", "0", "7L", "5.5", "-.5", "1e3", "2147483648", "-2147483648", "9223372036854775807"]
)
LITERALS = st.sampled_from(["'x'", "'5'", "'it''s'", "'北'", "''", "'true'", "'\ufffd'", "'tr'"])
WORDS = st.sampled_from(NAMES)


def conditions() -> st.SearchStrategy[str]:
    orderings = st.sampled_from([">", ">=", "<", "<="])
    operands = WORDS | NUMBERS | WORDS.map("- {}".format)
    leaves = st.one_of(
        st.tuples(operands, orderings, operands).map(" ".join),
        st.tuples(operands | LITERALS | st.just("TRUE"), st.sampled_from(["=", "<>"]), operands | LITERALS).map(
            " ".join
        ),
        st.tuples(WORDS, st.sampled_from(["= TRUE", "= FALSE", "IS NULL", "IS NOT NULL", ""])).map(" ".join),
        st.tuples(WORDS, st.sampled_from(["", "NOT "]), LITERALS, LITERALS).map(
            lambda part: f"{part[0]} {part[1]}IN ({part[2]}, {part[3]})"
        ),
        st.tuples(
            WORDS, st.sampled_from(["", "NOT "]), st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), LITERALS
        ).map(lambda part: f"{part[0]} {part[1]}{part[2]} {part[3]}"),
        st.tuples(WORDS, st.sampled_from(["", "NOT "]), NUMBERS, NUMBERS).map(
            lambda part: f"{part[0]} {part[1]}BETWEEN {part[2]} AND {part[3]}"
        ),
        st.sampled_from(["TRUE", "FALSE", "NULL", "5 > 3", "'a' = 'a'"]),
    )

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.lists(inner, min_size=2, max_size=4)
        return st.one_of(
            joined.map(lambda parts: " AND ".join(f"({part})" for part in parts)),
            joined.map(lambda parts: " OR ".join(f"({part})" for part in parts)),
            inner.map("NOT ({})".format),
            st.tuples(inner, st.sampled_from(["= TRUE", "= FALSE", "= a", "= 'true'", "IS NULL"])).map(
                lambda part: f"({part[0]}) {part[1]}"
            ),
            st.tuples(WORDS, inner).map(lambda part: f"{part[0]} = ({part[1]})"),
        )

    return st.recursive(leaves, grown, max_leaves=8)


def record_of(properties: bytes, *, body: bytes = b"body", magic: int = 0xDAA320A7, sys_flag: int = 0) -> bytes:
    born, stored = (16 if sys_flag & 0x10 else 4), (16 if sys_flag & 0x20 else 4)
    head = struct.pack(f">IIIiqqi q{born + 4}s q{stored + 4}s iq", magic, 0, 0, 0, 0, 0, sys_flag, 0, b"", 0, b"", 0, 0)
    topic = b"T" * 3
    lengths = ">i%dsB%dsH%ds" if magic == 0xDAA320A7 else ">i%dsH%dsH%ds"
    tail = struct.pack(
        lengths % (len(body), 3, len(properties)), len(body), body, 3, topic, len(properties), properties
    )
    return struct.pack(">i", 4 + len(head) + len(tail)) + head + tail


def encoded(properties: Mapping[str, str], ends: bool = True) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()) + ("\x02" if ends else "")
    return text.encode("utf-8", "surrogatepass")


def stretch_of(records: list[bytes]) -> tuple[bytes, bytes]:
    entries, at = [], BASE
    for record in records:
        entries.append(struct.pack(">qiq", at, len(record), 0))
        at += len(record)
    return b"".join(entries), b"".join(records)


def matched(module: Any, predicate: Predicate, records: list[bytes], **changes: Any) -> tuple[list[int], int, bool]:
    """Which of the records are chosen, by number; how many were seen; whether the limits were reached."""
    entries, log = stretch_of(records)
    arguments: dict[str, Any] = {
        "entries": entries,
        "program": predicate.program,
        "ask": predicate.passes,
        "is_over": None,
        "stalled": {},
        "log_min": 0,
        "near_from": 0,
        "count_max": 1000,
        "size_max": 1 << 30,
        "near_limits": (1 << 30, 1000),
        "far_limits": (1 << 30, 1000),
        "log": log,
        "log_base": BASE,
        "count": 0,
        "size": 0,
    }
    chosen, seen, is_full = module.match_entries(**arguments | changes)
    starts = [int.from_bytes(entries[i : i + 8], "big") for i in range(0, len(entries), 20)]
    assert [len(records[starts.index(at)]) for at in chosen[::2]] == chosen[1::2]
    return [starts.index(at) for at in chosen[::2]], seen, is_full


@pytest.fixture(params=["plain", "compiled"])
def filters(request: pytest.FixtureRequest, compiled: Any) -> Any:
    return kernel_of(request.param, "filter")


def test_both_have_the_same_function_and_parameters(compiled: Any) -> None:
    twin = compiled
    assert list(inspect.signature(twin.match_entries).parameters) == list(
        inspect.signature(plain_filter.match_entries).parameters
    )


def test_a_part_that_nearly_fits_everywhere_is_looked_for_once(compiled: Any) -> None:
    predicate = compile_sql(f"a CONTAINS '{'x' * 8_000}y' OR a CONTAINS '{'x' * 8_000}z'")
    records = [record_of(encoded({"a": "x" * 30_000})) for _ in range(100)]
    records.append(record_of(encoded({"a": "x" * 8_001 + "z" + "x" * 8_000})))
    started_s = time.process_time()
    assert matched(compiled, predicate, records) == ([100], 101, False)
    assert time.process_time() - started_s < 1  # each place of each text was compared with the whole part before


@given(
    conditions(),
    st.lists(st.dictionaries(st.sampled_from(NAMES[:4]), VALUES, max_size=4), min_size=1, max_size=5),
    st.booleans(),
)
def test_predicate_plain_and_compiled_choose_the_same(
    expression: str, messages: list[dict[str, str]], ends: bool
) -> None:
    try:
        predicate = compile_sql(expression)
    except SqlError:
        return
    texts = [encoded(properties, ends) for properties in messages]
    expected = [i for i, text in enumerate(texts) if predicate.passes(text)]
    records = [record_of(text) for text in texts]
    assert matched(plain_filter, predicate, records)[0] == expected
    assert matched(compiled, predicate, records)[0] == expected


@given(st.sampled_from(["a = b", "a CONTAINS '北'", "a = '北'", "a > b", "a IN ('x', '北')"]), st.binary(), st.binary())
def test_bytes_that_are_no_text_are_taken_as_java_takes_them(expression: str, one: bytes, other: bytes) -> None:
    predicate = compile_sql(expression)
    text = b"a\x01" + one + b"\x02b\x01" + other + b"\x02"
    for module in (plain_filter, compiled):
        assert bool(matched(module, predicate, [record_of(text)])[0]) is predicate.passes(text)


# Names of up to seven bytes, of eight and of more are told apart differently, and 64 bytes are looked at at once.
PIECES = st.sampled_from(
    [b"a", b"a1b2c3d", b"customer", b"longer_than_eight", b"longer_t", b"longer_than_eighty", b"5", b"", b"x" * 61]
)
PAIRS = st.tuples(PIECES, st.just(b"\x01"), PIECES, st.just(b"\x02")).map(b"".join)


@given(
    st.sampled_from(["a", "a1b2c3d", "customer", "longer_than_eight"]),
    st.sampled_from(["IS NOT NULL", "= '5'", "= 5 OR longer_t = '5' OR customer = '5'"]),
    st.lists(PAIRS | PAIRS | PAIRS | PIECES | st.sampled_from([b"\x01", b"\x02"]), max_size=20).map(b"".join),
    st.booleans(),
    st.booleans(),
)
@example("a", "= '5'", b"a\x015", False, False)
def test_a_value_is_found_wherever_it_stands_and_however_long_its_name_is(
    name: str, test: str, text: bytes, has_end: bool, is_last: bool
) -> None:
    text = text if has_end else text.removesuffix(b"\x02")
    predicate = compile_sql(f"{name} {test}")
    expected = [0] if predicate.passes(text) else []
    log = record_of(text) + (b"" if is_last else b"9\x02" * 32)
    assert matched(plain_filter, predicate, [record_of(text)], log=log)[0] == expected
    assert matched(compiled, predicate, [record_of(text)], log=log)[0] == expected


def test_nothing_behind_the_log_is_looked_at(filters: Any, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb+") as file:
        file.truncate(2 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 0) as log:
            file.truncate(mmap.PAGESIZE)  # from here on, to look at the second page is the end of this process
            for text in (b"a\x015", b"a\x015\x02", b"b\x015\x02a", b"", b"a\x01" + b"5" * 70):
                record = record_of(text)
                log[mmap.PAGESIZE - len(record) : mmap.PAGESIZE] = record
                entry = struct.pack(">qiq", mmap.PAGESIZE - len(record), len(record), 0)
                view = memoryview(log)[: mmap.PAGESIZE]
                limits = (0, 0, 9, 1 << 20, (1 << 20, 9), (1 << 20, 9))
                predicate = compile_sql("a IS NOT NULL")
                given: Any = (entry, predicate.program, predicate.passes, None, {}, *limits, view, 0, 0, 0)
                assert bool(filters.match_entries(*given)[0]) is predicate.passes(text)
                view.release()


def test_a_program_whose_name_no_record_can_have_finds_nothing(compiled: Any) -> None:
    predicate = compile_sql("ab = '5'")
    odd = SimpleNamespace(program=predicate.program.replace(b"ab", b"a\x01"), passes=predicate.passes)
    records = [record_of(b"a\x01\x015\x02"), record_of(b"ab\x015\x02")]
    assert matched(compiled, cast(Predicate, odd), records)[0] == []
    assert matched(compiled, predicate, records)[0] == [1]


@pytest.mark.parametrize("magic", [0xDAA320A7, 0xDAA320AB])
@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_properties_are_found_in_every_form_of_a_record(filters: Any, magic: int, sys_flag: int) -> None:
    records = [record_of(encoded({"a": "5"}), magic=magic, sys_flag=sys_flag, body=b"x" * size) for size in (0, 1, 500)]
    assert matched(filters, compile_sql("a = 5"), records) == ([0, 1, 2], 3, False)
    assert matched(filters, compile_sql("a = 6"), records) == ([], 3, False)


def test_the_later_of_two_pairs_counts_and_an_empty_value_is_none(filters: Any) -> None:
    records = [record_of(b"a\x015\x02a\x016\x02"), record_of(b"a\x015\x02a\x01\x02"), record_of(b"\x015\x02a\x02a\x01")]
    assert matched(filters, compile_sql("a = 6"), records)[0] == [0]
    assert matched(filters, compile_sql("a = 5"), records)[0] == [1]
    assert matched(filters, compile_sql("a IS NULL"), records)[0] == [2]


def test_it_stops_at_the_limits_and_at_the_end_of_the_log_it_was_given(filters: Any) -> None:
    records = [record_of(encoded({"a": str(i % 2)})) for i in range(10)]
    one = compile_sql("a = 1")
    size = len(records[0])
    assert matched(filters, one, records, count_max=2) == ([1, 3], 4, True)
    assert matched(filters, one, records, count_max=2, count=1, size=size) == ([1], 2, True)
    assert matched(filters, one, records, size_max=2 * size) == ([1, 3], 4, True)
    assert matched(filters, one, records, near_limits=(3 * size, 9)) == ([1, 3, 5], 6, True)
    assert matched(filters, one, records, near_from=1 << 40, far_limits=(1 << 30, 1)) == ([1], 2, True)
    assert matched(filters, one, records, size_max=1)[0] == [1]
    assert matched(filters, one, records, log=b"".join(records[:5]) + b"x") == ([1, 3], 5, False)
    assert matched(filters, one, records, log_base=BASE + 1) == ([], 0, False)
    assert matched(filters, one, records, log_min=BASE + 4 * size) == ([5, 7, 9], 10, False)


@pytest.mark.parametrize("place", [2**63 - 1, 2**63 - 200, 2**63 - BASE, 2**62, BASE + 1, 0])
def test_an_entry_that_points_outside_the_log_ends_the_search_before_it(filters: Any, place: int) -> None:
    record = record_of(encoded({"a": "5"}))
    entries = struct.pack(">qiq", BASE, len(record), 0) + struct.pack(">qiq", place, len(record), 0) * 20
    arguments = {"entries": entries, "log": record}
    assert matched(filters, compile_sql("a = 5"), [record], **arguments) == ([0], 1, False)


def test_the_time_is_asked_for_after_some_work_and_ends_the_search(compiled: Any) -> None:
    records = [record_of(encoded({"a": "1"})) for _ in range(2000)]
    one = compile_sql("a = 1")
    many = {"count_max": 2000, "near_limits": (1 << 30, 2000)}
    ends = []
    for lasts in range(3):
        looks = iter([False] * lasts + [True])
        chosen, seen, is_over = matched(compiled, one, records, is_over=looks.__next__, **many)
        assert (chosen, is_over) == (list(range(seen)), True)
        ends.append(seen)
    assert 60 < ends[0] < ends[1] < ends[2] < 2000, "small messages pay for few looks"
    assert matched(compiled, one, records[:8], is_over=iter([]).__next__) == (list(range(8)), 8, False), "nobody asks"


LONG = "ab" * 10_000
HEAVY = compile_sql(" AND ".join(f"a NOT CONTAINS 'abab{i:03}'" for i in range(300)) + " AND b = 'yes'")


def test_the_time_is_asked_for_within_one_message_that_takes_long(compiled: Any) -> None:
    heavy = record_of(encoded({"a": LONG, "b": "yes"}))
    looks = count()
    chosen, seen, is_over = matched(compiled, HEAVY, [heavy], is_over=lambda: next(looks) < 0)
    assert (chosen, seen, is_over) == ([0], 1, False)
    assert next(looks) > 300 * len(LONG) // (2 * filter_layout.WORK_STEP)


@pytest.mark.parametrize("b", ["yes", "no"])
def test_a_search_that_stopped_within_a_message_goes_on_where_it_was(compiled: Any, b: str) -> None:
    records = [record_of(encoded({"a": LONG, "b": b})), record_of(encoded({"a": "x", "b": "yes"}))]
    stalled: dict[int, bytes] = {}
    calls = 0
    while (found := matched(compiled, HEAVY, records, is_over=lambda: True, stalled=stalled)) == ([], 0, True):
        assert list(stalled) == [BASE]
        calls += 1
        assert calls < 1000
    assert calls > 10
    assert stalled == {}
    assert (0 in found[0]) is (b == "yes")
    assert found[1] >= 1


def test_what_stalled_is_bounded_and_of_another_program_it_is_not_believed(compiled: Any) -> None:
    heavy = record_of(encoded({"a": LONG, "b": "yes"}))
    stalled = dict.fromkeys(range(100, 100 + filter_layout.STALLED_MAX), b"")
    assert matched(compiled, HEAVY, [heavy], is_over=lambda: True, stalled=stalled) == ([], 0, True)
    assert list(stalled) == [*range(101, 100 + filter_layout.STALLED_MAX), BASE]
    stalled[BASE] = bytes([1]) * 7
    assert matched(compiled, HEAVY, [heavy], stalled=stalled) == ([0], 1, False)


def test_what_has_to_be_asked_about_is_followed_by_a_look_at_the_time(compiled: Any) -> None:
    odd = record_of(encoded({"a": "5d"}))
    assert matched(compiled, compile_sql("a > 4.5"), [odd] * 5, is_over=lambda: True)[1:] == (1, True)


def test_what_is_no_record_does_not_pass(filters: Any) -> None:
    whole = record_of(encoded({"a": "1"}))
    everything = compile_sql("a IS NULL OR a IS NOT NULL")
    for size in range(1, len(whole)):
        assert matched(filters, everything, [whole[:size]]) == ([], 1, False)
    wild = bytearray(whole)
    wild[84:88] = b"\xff\xff\xff\xff"
    assert matched(filters, everything, [bytes(wild)]) == ([], 1, False)


@given(st.binary(max_size=120), st.data())
def test_bytes_that_are_no_program_are_refused_and_nothing_breaks(noise: bytes, data: st.DataObject) -> None:
    real = bytearray(compile_sql("a > 5 AND b IN ('x', 'y') OR NOT (c CONTAINS 'z')").program)
    for _ in range(data.draw(st.integers(0, 3))):
        real[data.draw(st.integers(0, len(real) - 1))] = data.draw(st.integers(0, 255))
    entries, log = stretch_of([record_of(b"a\x017\x02b\x01x\x02")])
    limits = (0, 0, 9, 1 << 20, (1 << 20, 9), (1 << 20, 9))
    for program in (noise, bytes(real)):
        try:
            check_program(program)
        except ValueError:
            with pytest.raises(ValueError, match="program"):
                compiled.match_entries(entries, program, lambda text: True, None, {}, *limits, log, BASE, 0, 0)
        else:
            chosen, seen, is_full = compiled.match_entries(
                entries, program, lambda text: True, None, {}, *limits, log, BASE, 0, 0
            )
            assert (len(chosen) in (0, 2), seen, is_full) == (True, 1, False)


def test_an_expression_too_large_for_the_kernel_is_left_to_the_predicate(filters: Any) -> None:
    wide = " OR ".join(f"p{i} = 'x'" for i in range(200))
    records = [record_of(encoded({"p199": "x"})), record_of(encoded({"p199": "y"}))]
    assert matched(filters, compile_sql(wide), records)[0] == [0]
    long = "a=1 OR " * 2000 + "a=2"
    records = [record_of(encoded({"a": "2"})), record_of(encoded({"a": "3"}))]
    assert matched(filters, compile_sql(long), records)[0] == [0]
