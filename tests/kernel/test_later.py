"""Messages that are due, in both kernels: laid out where they belong, stamped, rolled, recalled, or passed over."""

import inspect
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_later
from bolide.kernel.layout import PRE_BLANK, Draft
from bolide.kernel.plain_records import encode_records, scan_records, tag_hash
from tests.kernel.twins import kernel_of

BASE, STORED_MS, HOST = 4096, 1_700_000_000_000, bytes([10, 0, 0, 5, 0, 0, 42, 159])
HOME = b"REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
ENTRY = struct.Struct(">qiq")
NOBODY: frozenset[bytes] = frozenset()


@pytest.fixture(params=["plain", "compiled"])
def waits(request: pytest.FixtureRequest, compiled: Any) -> Any:
    return kernel_of(request.param, "later")


@pytest.fixture(scope="session")
def twin(compiled: Any) -> Any:
    return compiled


def draft(properties: bytes = HOME, body: bytes = b"body", topic: str = "SCHEDULE_TOPIC_XXXX", **how: Any) -> Draft:
    born = how.get("born_host", bytes([192, 168, 1, 9, 0, 0, 200, 34]))
    return topic, how.get("queue_id", 2), body, properties, 9, how.get("sys_flag", 0), 1_699_999_999_000, born, 2, 77


def logged(drafts: list[Draft], host: bytes = HOST) -> tuple[bytes, bytes]:
    """A stretch of log from BASE on with these messages in it, and entries that point at them."""
    log, places, _, _, _ = encode_records(drafts, BASE, STORED_MS, host, {}, (), 1 << 22)
    ends = [*places, BASE + len(log)][1:]
    return log, b"".join(ENTRY.pack(at, end - at, 5) for at, end in zip(places, ends, strict=True))


def redelivered(waits: Any, log: bytes, entries: bytes, **how: Any) -> Any:
    return waits.redeliver_records(
        log,
        BASE,
        entries,
        how.get("host", HOST),
        how.get("stamp_ms", -1),
        how.get("rolls", False),
        how.get("recalled", NOBODY),
        how.get("size_max", 1 << 20),
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
    for name in ("redeliver_records", "encode_units", "walk_units"):
        function, other = getattr(plain_later, name), getattr(twin, name)
        assert list(inspect.signature(function).parameters) == list(inspect.signature(other).parameters)


def test_a_due_message_is_laid_out_where_it_belongs_with_everything_it_had(waits: Any) -> None:
    properties = HOME + b"DELAY\x013\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02"
    log, entries = logged([draft(properties, b"one"), draft(properties, b"two")])
    records, runs, keys, (seen, tallies, unreadable) = redelivered(waits, log, entries)
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
        b"REAL_TOPIC\x01../../elsewhere\x02REAL_QID\x013\x02",
        b"REAL_TOPIC\x01here/there\x02REAL_QID\x013\x02",
        b"REAL_TOPIC\x01..\x02REAL_QID\x013\x02",
    ],
)
def test_a_message_without_a_home_is_named_and_passed_over(waits: Any, properties: bytes) -> None:
    log, entries = logged([draft(properties), draft()])
    records, _, _, (seen, _, unreadable) = redelivered(waits, log, entries)
    assert (len(rows(records)), seen, unreadable) == (1, 2, [BASE])


def test_a_retry_topic_may_be_long(waits: Any) -> None:
    topic = "%RETRY%" + "g" * 140
    log, entries = logged([draft(b"REAL_TOPIC\x01" + topic.encode() + b"\x02REAL_QID\x010\x02")])
    (row,) = rows(redelivered(waits, log, entries)[0])
    assert row["topic"] == topic


def test_damaged_records_wrong_sizes_and_blanks_are_not_laid_out(waits: Any) -> None:
    log, entries = logged([draft(body=b"damaged"), draft(body=b"good")])
    log = log.replace(b"damaged", b"DAMAGED")
    wrong_size = ENTRY.pack(BASE, 91, 0)
    at, size, _ = ENTRY.unpack(entries[20:])
    beyond = ENTRY.pack(at, size + 1, 0)
    lone_blank = PRE_BLANK.replace(bytes(8), BASE.to_bytes(8, "big"), 1)
    records, _, _, (seen, _, unreadable) = redelivered(waits, log, lone_blank + wrong_size + beyond + entries)
    assert [row["body"] for row in rows(records)] == [b"good"]
    assert (seen, unreadable) == (5, [BASE, at, BASE])


@pytest.mark.parametrize("elsewhere", [0, BASE - 1, 1 << 40])
def test_an_entry_that_points_elsewhere_ends_the_batch(waits: Any, elsewhere: int) -> None:
    log, entries = logged([draft(), draft()])
    cut = entries[:20] + ENTRY.pack(elsewhere, 100, 0) + entries[20:]
    records, _, _, (seen, _, _) = redelivered(waits, log, cut)
    assert (len(rows(records)), seen) == (1, 1)
    assert redelivered(waits, log, b"")[0] == b""


def test_a_batch_ends_before_it_is_too_large_and_has_one_message_at_least(waits: Any) -> None:
    log, entries = logged([draft(), draft(), draft()])
    size = len(log) // 3
    for size_max, count in ((0, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        records, _, _, (seen, _, _) = redelivered(waits, log, entries, size_max=size_max)
        assert (len(rows(records)), seen) == (count, count)


def test_hosts_of_both_kinds_are_kept_and_replaced(waits: Any) -> None:
    born = bytes(range(20))
    log, entries = logged([draft(born_host=born)], host=bytes(20))
    records = redelivered(waits, log, entries)[0]
    assert rows(records)[0]["sys_flag"] == 0x10
    assert records[48:68] == born
    assert records[76:84] == HOST
    assert rows(redelivered(waits, log, entries, host=bytes(20))[0])[0]["sys_flag"] == 0x30


def test_the_timer_stamps_what_it_delivers(waits: Any) -> None:
    log, entries = logged([draft(HOME + b"TIMER_DEQUEUE_MS\x017\x02own\x01x", topic="rmq_sys_wheel_timer")])
    (row,) = rows(redelivered(waits, log, entries, stamp_ms=999)[0])
    assert row["properties"] == HOME + b"own\x01x\x02TIMER_ENQUEUE_MS\x015\x02TIMER_DEQUEUE_MS\x01999\x02"
    assert row["topic"] == "Orders"


def test_what_rolls_stays_in_its_topic_and_counts(waits: Any) -> None:
    mark = b"TIMER_DEL_UNIQKEY\x01u1\x02"
    log, entries = logged([draft(HOME + mark, topic="rmq_sys_wheel_timer"), draft(HOME + b"TIMER_ROLL_TIMES\x014\x02")])
    first, second = rows(redelivered(waits, log, entries, stamp_ms=999, rolls=True)[0])
    assert (first["topic"], first["queue_id"]) == ("rmq_sys_wheel_timer", 2)
    assert b"TIMER_ROLL_TIMES\x011\x02" in first["properties"]
    assert b"TIMER_ROLL_TIMES\x015\x02" in second["properties"]


def test_properties_that_would_grow_too_long_stay_as_they_are(waits: Any) -> None:
    properties = HOME + b"own\x01" + b"x" * (0x7FFF - len(HOME) - 10) + b"\x02"
    log, entries = logged([draft(properties)])
    (row,) = rows(redelivered(waits, log, entries, stamp_ms=999)[0])
    assert row["properties"] == properties


@pytest.mark.parametrize("recalled", [b"u2", b"Orders+u2"])
def test_a_recalled_message_and_the_mark_itself_are_left_out(waits: Any, recalled: bytes) -> None:
    mark = draft(HOME + b"UNIQ_KEY\x01u2\x02TIMER_DEL_UNIQKEY\x01u2\x02")
    messages = [draft(HOME + b"UNIQ_KEY\x01u%d\x02" % n, b"%d" % n) for n in range(4)]
    log, entries = logged([*messages, mark])
    records, _, _, (seen, tallies, _) = redelivered(waits, log, entries, stamp_ms=1, recalled=frozenset([recalled]))
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


@given(
    DRAFTS,
    st.sampled_from([-1, 0, 1_700_000_009_000]),
    st.booleans(),
    st.sampled_from([NOBODY, frozenset([b"u1"]), frozenset([b"Orders+u1"])]),
    st.sampled_from([HOST, bytes(20)]),
    st.integers(0, 200),
)
def test_both_kernels_encode_the_same_bytes(
    twin: Any, drafts: list[Draft], stamp_ms: int, rolls: bool, recalled: frozenset[bytes], host: bytes, damage: int
) -> None:
    log, entries = logged(drafts, host)
    if damage < len(log):
        log = log[:damage] + bytes([log[damage] ^ 1]) + log[damage + 1 :]
    how = {"stamp_ms": stamp_ms, "rolls": rolls, "recalled": recalled, "host": HOST, "size_max": 3 * damage}
    assert redelivered(twin, log, entries, **how) == redelivered(plain_later, log, entries, **how)


STEP_MS, NOW_MS = 1000, 1_700_000_000_000
SLOT_COUNT = 100


def timed(due_ms: int, topic: bytes = b"Orders", more: bytes = b"") -> Draft:
    properties = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01%s\x02REAL_QID\x010\x02" % (due_ms, topic) + more
    return draft(properties, topic="rmq_sys_wheel_timer", queue_id=0)


def filed(
    waits: Any, log: bytes, entries: bytes, wheel: bytes | bytearray, position: int = 0, room: int = 1 << 20
) -> Any:
    return waits.encode_units(log, BASE, entries, wheel, STEP_MS, NOW_MS, 60, position, room)


def apply(wheel: bytearray, changes: bytes) -> None:
    for at in range(0, len(changes), 36):
        number = int.from_bytes(changes[at : at + 4], "big")
        wheel[number * 32 : number * 32 + 32] = changes[at + 4 : at + 36]


def slot(wheel: bytes | bytearray, due_ms: int) -> tuple[int, ...]:
    return struct.unpack_from(">qqqii", wheel, due_ms // STEP_MS % SLOT_COUNT * 32)


def test_units_of_a_slot_are_a_chain_that_is_followed_back(waits: Any) -> None:
    wheel = bytearray(SLOT_COUNT * 32)
    dues_ms = [NOW_MS + 5000, NOW_MS + 7000, NOW_MS + 5000, NOW_MS + 5999]
    log, entries = logged([timed(due_ms) for due_ms in dues_ms])
    units, changes, due, seen, counts, unreadable = filed(waits, log, entries, wheel, position=520)
    assert (len(units), due, seen, counts, unreadable) == (4 * 52, b"", 4, [("Orders", 4)], [])
    apply(wheel, changes)
    assert slot(wheel, NOW_MS + 5000) == ((NOW_MS + 5000) // 1000, 520, 520 + 3 * 52, 3, 0)
    assert slot(wheel, NOW_MS + 7000) == ((NOW_MS + 7000) // 1000, 572, 572, 1, 0)
    padded = bytes(520) + units
    place = [entries[at : at + 12] for at in range(0, len(entries), 20)]
    found, kinds, then = waits.walk_units(padded, 0, 520 + 3 * 52, STEP_MS, NOW_MS + 5000, 10)
    assert [found[at : at + 12] for at in range(0, len(found), 20)] == [place[0], place[2], place[3]]
    assert (kinds, then) == (b"\x01\x01\x01", -1)
    found, kinds, then = waits.walk_units(padded, 0, 520 + 3 * 52, STEP_MS, NOW_MS + 5000, 2)
    assert (len(found) // 20, kinds, then) == (2, b"\x01\x01", 520)
    assert waits.walk_units(padded, 0, 572, STEP_MS, NOW_MS + 5000, 9) == (b"", b"", -2 - 572)  # another slot's
    assert waits.walk_units(padded[400:], 400, 52, STEP_MS, NOW_MS + 5000, 9) == (b"", b"", 52)  # another file's


def test_a_stale_slot_is_begun_anew(waits: Any) -> None:
    wheel = bytearray(SLOT_COUNT * 32)
    struct.pack_into(
        ">qqqii", wheel, (NOW_MS // 1000 + 5) % SLOT_COUNT * 32, NOW_MS // 1000 + 5 - SLOT_COUNT, 0, 52, 2, 0
    )
    log, entries = logged([timed(NOW_MS + 5000)])
    units, changes, *_ = filed(waits, log, entries, wheel, position=104)
    apply(wheel, changes)
    assert slot(wheel, NOW_MS + 5000) == (NOW_MS // 1000 + 5, 104, 104, 1, 0)
    assert units[4:12] == b"\xff" * 8


def test_what_is_due_is_not_filed_and_what_is_far_rolls(waits: Any) -> None:
    wheel = bytearray(SLOT_COUNT * 32)
    dues_ms = [NOW_MS - 1, NOW_MS, NOW_MS + 60_000, NOW_MS + 79_999, NOW_MS + 80_000]
    log, entries = logged([timed(due_ms) for due_ms in dues_ms])
    units, _, due, seen, _, _ = filed(waits, log, entries, wheel)
    assert (due, seen) == (entries[:12] + b"\x7f" + b"\xff" * 7, 5)
    kinds_and_delays = [struct.unpack_from(">12xi8xi", units, at) for at in range(0, len(units), 52)]
    assert kinds_and_delays == [(1, 0), (3, 30_000), (3, 30_000), (3, 60_000)]


def test_marks_count_down_and_nonsense_is_named(waits: Any) -> None:
    wheel = bytearray(SLOT_COUNT * 32)
    log, entries = logged([timed(NOW_MS), timed(NOW_MS, more=b"TIMER_DEL_UNIQKEY\x01u\x02"), draft(HOME)])
    units, changes, _, seen, counts, unreadable = filed(waits, log, entries, wheel)
    apply(wheel, changes)
    assert struct.unpack_from(">12xi", units, 52) == (5,)
    assert (slot(wheel, NOW_MS)[3], counts, seen) == (0, [("Orders", 0)], 3)
    assert unreadable == [int.from_bytes(entries[40:48], "big")]


def test_no_room_ends_the_batch(waits: Any) -> None:
    log, entries = logged([timed(NOW_MS), timed(NOW_MS)])
    units, _, _, seen, _, _ = filed(waits, log, entries, bytes(SLOT_COUNT * 32), room=103)
    assert (len(units), seen) == (52, 1)


@given(
    st.lists(
        st.builds(
            timed,
            st.integers(NOW_MS - 3000, NOW_MS + 200_000) | st.sampled_from([0, 10**17, 10**19]),
            st.sampled_from([b"Orders", b"", b"caf\xc3\xa9", b"bad\xff"]),
            st.sampled_from(
                [
                    b"",
                    b"TIMER_DEL_UNIQKEY\x01u\x02",
                    b"TIMER_OUT_MS\x01\x02",
                    b"TIMER_OUT_MS\x01x\x02",
                    b"TIMER_ROLL_TIMES\x011\x02",
                ]
            ),
        ),
        max_size=8,
    ),
    st.binary(min_size=0, max_size=64),
    st.integers(0, 400),
)
def test_both_kernels_file_the_same_units(twin: Any, drafts: list[Draft], old: bytes, room: int) -> None:
    wheel = (old * (SLOT_COUNT * 32 // max(len(old), 1) + 1))[: SLOT_COUNT * 32].ljust(SLOT_COUNT * 32, b"\0")
    log, entries = logged(drafts)
    ours, theirs = filed(plain_later, log, entries, wheel, 52, room), filed(twin, log, entries, wheel, 52, room)
    assert ours == theirs


@given(
    st.lists(st.tuples(st.integers(-60, 300), st.integers(0, 20), st.integers(-2, 2)), max_size=6), st.integers(0, 5)
)
def test_both_kernels_follow_any_bytes_alike(twin: Any, rows: list[tuple[int, int, int]], count_max: int) -> None:
    units = b"".join(
        struct.pack(">iqiqiqiiq", 52, before, kind, NOW_MS, 1000 * away, 7, 8, 9, 0) for before, kind, away in rows
    )
    for position in (-1, 0, 52, 104, 250, 300):
        arguments = (units, 0, position, STEP_MS, NOW_MS, count_max)
        assert twin.walk_units(*arguments) == plain_later.walk_units(*arguments)
