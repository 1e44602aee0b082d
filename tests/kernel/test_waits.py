"""Messages that are due, in both kernels: laid out where they belong, stamped, rolled, recalled, or passed over."""

import importlib
import inspect
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.kernel import plain_waits
from bolide.kernel.plain_records import PRE_BLANK, Draft, lay_records, scan_records, tag_hash

BASE, STORED_MS, HOST = 4096, 1_700_000_000_000, bytes([10, 0, 0, 5, 0, 0, 42, 159])
HOME = b"REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
ENTRY = struct.Struct(">qiq")
NOBODY: frozenset[bytes] = frozenset()


@pytest.fixture(params=["plain", "compiled"])
def waits(request: pytest.FixtureRequest, compiled: Any) -> Any:
    return importlib.import_module(f"bolide.kernel.{request.param}_waits")


@pytest.fixture(scope="session")
def twin(compiled: Any) -> Any:
    return importlib.import_module("bolide.kernel.compiled_waits")


def draft(properties: bytes = HOME, body: bytes = b"body", topic: str = "SCHEDULE_TOPIC_XXXX", **how: Any) -> Draft:
    born = how.get("born_host", bytes([192, 168, 1, 9, 0, 0, 200, 34]))
    return topic, how.get("queue_id", 2), body, properties, 9, how.get("sys_flag", 0), 1_699_999_999_000, born, 2, 77


def logged(drafts: list[Draft], host: bytes = HOST) -> tuple[bytes, bytes]:
    """A stretch of log from BASE on with these messages in it, and entries that point at them."""
    log, places, _, _, _ = lay_records(drafts, BASE, STORED_MS, host, {}, (), 1 << 22)
    ends = [*places, BASE + len(log)][1:]
    return log, b"".join(ENTRY.pack(at, end - at, 5) for at, end in zip(places, ends, strict=True))


def relaid(waits: Any, log: bytes, entries: bytes, **how: Any) -> Any:
    return waits.relay_records(
        log,
        BASE,
        entries,
        how.get("host", HOST),
        how.get("stamp_ms", -1),
        how.get("rolls", False),
        how.get("recalled", NOBODY),
        1 << 20,
        STORED_MS + 9000,
        how.get("next_offsets", {("Orders", 3): 40}),
    )


def rows(records: bytes) -> list[dict[str, Any]]:
    columns, _, _ = scan_records(records, 0, len(records), 1 << 20, 1)
    found = []
    for i in range(len(columns[0])):
        body, topic, properties = (records[columns[n][i] : columns[n][i] + columns[n + 1][i]] for n in (12, 14, 16))
        names = ("queue_id", "flag", "queue_offset", "sys_flag", "born_ms", "store_ms", "reconsume_times", "prepared")
        found.append(
            dict(zip(names, (columns[n][i] for n in range(2, 10)), strict=True))
            | {"body": body, "topic": topic.decode(), "properties": properties}
        )
    return found


def test_both_have_the_same_functions_and_parameters(twin: Any) -> None:
    for name in ("relay_records",):
        function, other = getattr(plain_waits, name), getattr(twin, name)
        assert list(inspect.signature(function).parameters) == list(inspect.signature(other).parameters)


def test_a_due_message_is_laid_out_where_it_belongs_with_everything_it_had(waits: Any) -> None:
    properties = HOME + b"DELAY\x013\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02"
    log, entries = logged([draft(properties, b"one"), draft(properties, b"two")])
    records, runs, keys, (seen, tallies, unreadable) = relaid(waits, log, entries)
    first, second = rows(records)
    assert first == {
        "queue_id": 3,
        "flag": 9,
        "queue_offset": 40,
        "sys_flag": 0,
        "born_ms": 1_699_999_999_000,
        "store_ms": STORED_MS + 9000,
        "reconsume_times": 2,
        "prepared": 0,
        "body": b"one",
        "topic": "Orders",
        "properties": properties,
    }
    assert (second["queue_offset"], second["body"]) == (41, b"two")
    half = len(records) // 2
    tag = tag_hash("Orders", properties, 0, ())
    assert runs == [("Orders", 3, 40, ENTRY.pack(1 << 20, half, tag) + ENTRY.pack((1 << 20) + half, half, tag))]
    assert len(keys) == 2 * 3 * 20
    assert (seen, tallies, unreadable) == (2, [("Orders", 2, len(records), 0)], [])


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"REAL_TOPIC\x01Orders\x02",
        b"REAL_QID\x013\x02",
        b"REAL_TOPIC\x01Orders\x02REAL_QID\x01-3\x02",
        b"REAL_TOPIC\x01Orders\x02REAL_QID\x019999999999\x02",
        b"REAL_TOPIC\x01" + b"x" * 128 + b"\x02REAL_QID\x013\x02",
        b"REAL_TOPIC\x01Bestell\xc3\xbcng\x02REAL_QID\x013\x02",
        b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x013\x02",
    ],
)
def test_a_message_without_a_home_is_named_and_passed_over(waits: Any, properties: bytes) -> None:
    log, entries = logged([draft(properties), draft()])
    records, _, _, (seen, _, unreadable) = relaid(waits, log, entries)
    assert (len(rows(records)), seen, unreadable) == (1, 2, [BASE])


def test_a_retry_topic_may_be_long(waits: Any) -> None:
    topic = "%RETRY%" + "g" * 140
    log, entries = logged([draft(b"REAL_TOPIC\x01" + topic.encode() + b"\x02REAL_QID\x010\x02")])
    (row,) = rows(relaid(waits, log, entries)[0])
    assert row["topic"] == topic


def test_damaged_records_wrong_sizes_and_blanks_are_not_laid_out(waits: Any) -> None:
    log, entries = logged([draft(body=b"damaged"), draft(body=b"good")])
    log = log.replace(b"damaged", b"DAMAGED")
    wrong_size = ENTRY.pack(BASE, 91, 0)
    at, size, _ = ENTRY.unpack(entries[20:])
    beyond = ENTRY.pack(at, size + 1, 0)
    lone_blank = PRE_BLANK.replace(bytes(8), BASE.to_bytes(8, "big"), 1)
    records, _, _, (seen, _, unreadable) = relaid(waits, log, lone_blank + wrong_size + beyond + entries)
    assert [row["body"] for row in rows(records)] == [b"good"]
    assert (seen, unreadable) == (5, [BASE, at, BASE])


@pytest.mark.parametrize("elsewhere", [0, BASE - 1, 1 << 40])
def test_an_entry_that_points_elsewhere_ends_the_batch(waits: Any, elsewhere: int) -> None:
    log, entries = logged([draft(), draft()])
    cut = entries[:20] + ENTRY.pack(elsewhere, 100, 0) + entries[20:]
    records, _, _, (seen, _, _) = relaid(waits, log, cut)
    assert (len(rows(records)), seen) == (1, 1)
    assert relaid(waits, log, b"")[0] == b""


def test_hosts_of_both_kinds_are_kept_and_replaced(waits: Any) -> None:
    born = bytes(range(20))
    log, entries = logged([draft(born_host=born)], host=bytes(20))
    records = relaid(waits, log, entries)[0]
    assert rows(records)[0]["sys_flag"] == 0x10
    assert records[48:68] == born
    assert records[76:84] == HOST
    assert rows(relaid(waits, log, entries, host=bytes(20))[0])[0]["sys_flag"] == 0x30


def test_the_timer_stamps_what_it_delivers(waits: Any) -> None:
    log, entries = logged([draft(HOME + b"TIMER_DEQUEUE_MS\x017\x02own\x01x", topic="rmq_sys_wheel_timer")])
    (row,) = rows(relaid(waits, log, entries, stamp_ms=999)[0])
    assert row["properties"] == HOME + b"own\x01x\x02TIMER_ENQUEUE_MS\x015\x02TIMER_DEQUEUE_MS\x01999\x02"
    assert row["topic"] == "Orders"


def test_what_rolls_stays_in_its_topic_and_counts(waits: Any) -> None:
    mark = b"TIMER_DEL_UNIQKEY\x01u1\x02"
    log, entries = logged([draft(HOME + mark, topic="rmq_sys_wheel_timer"), draft(HOME + b"TIMER_ROLL_TIMES\x014\x02")])
    first, second = rows(relaid(waits, log, entries, stamp_ms=999, rolls=True)[0])
    assert (first["topic"], first["queue_id"]) == ("rmq_sys_wheel_timer", 2)
    assert b"TIMER_ROLL_TIMES\x011\x02" in first["properties"]
    assert b"TIMER_ROLL_TIMES\x015\x02" in second["properties"]


def test_properties_that_would_grow_too_long_stay_as_they_are(waits: Any) -> None:
    properties = HOME + b"own\x01" + b"x" * (0x7FFF - len(HOME) - 10) + b"\x02"
    log, entries = logged([draft(properties)])
    (row,) = rows(relaid(waits, log, entries, stamp_ms=999)[0])
    assert row["properties"] == properties


@pytest.mark.parametrize("recalled", [b"u2", b"Orders+u2"])
def test_a_recalled_message_and_the_mark_itself_are_left_out(waits: Any, recalled: bytes) -> None:
    mark = draft(HOME + b"UNIQ_KEY\x01u2\x02TIMER_DEL_UNIQKEY\x01u2\x02")
    messages = [draft(HOME + b"UNIQ_KEY\x01u%d\x02" % n, b"%d" % n) for n in range(4)]
    log, entries = logged([*messages, mark])
    records, _, _, (seen, tallies, _) = relaid(waits, log, entries, stamp_ms=1, recalled=frozenset([recalled]))
    assert [row["body"] for row in rows(records)] == [b"0", b"1", b"3"]
    assert (seen, tallies) == (5, [("Orders", 3, len(records), 1)])


NAMES = st.sampled_from(
    b"REAL_TOPIC REAL_QID TAGS KEYS UNIQ_KEY DELAY TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS "
    b"TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY own ".split(b" ")
)
VALUES = st.sampled_from(
    [b"Orders", b"%RETRY%g", b"3", b"0", b"a b", b"\xc3\xa9", b"u1", b"", b"\x01x", b"12345678901"]
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=7).map(
    lambda pairs: b"\x02".join(name + b"\x01" + value for name, value in pairs)
)
TEXTS = st.one_of(
    st.tuples(st.just(HOME), PAIRS, st.sampled_from([b"", b"\x02", b"\x02\x02", b"\x02lone"])).map(b"".join), PAIRS
)
DRAFTS = st.lists(
    st.builds(
        draft,
        TEXTS,
        st.binary(max_size=20),
        st.sampled_from(["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%" + "r" * 150]),
        sys_flag=st.sampled_from([0, 1, 8, 0xC, 0x4, 0x300]),
        born_host=st.sampled_from([bytes(8), bytes(range(20))]),
        queue_id=st.sampled_from([0, 2, -1]),
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(
    DRAFTS,
    st.sampled_from([-1, 0, 1_700_000_009_000]),
    st.booleans(),
    st.sampled_from([NOBODY, frozenset([b"u1"]), frozenset([b"Orders+u1"])]),
    st.sampled_from([HOST, bytes(20)]),
    st.integers(0, 200),
)
def test_both_kernels_lay_out_the_same_bytes(
    twin: Any, drafts: list[Draft], stamp_ms: int, rolls: bool, recalled: frozenset[bytes], host: bytes, damage: int
) -> None:
    log, entries = logged(drafts, host)
    if damage < len(log):
        log = log[:damage] + bytes([log[damage] ^ 1]) + log[damage + 1 :]
    how = {"stamp_ms": stamp_ms, "rolls": rolls, "recalled": recalled, "host": HOST}
    assert relaid(twin, log, entries, **how) == relaid(plain_waits, log, entries, **how)
