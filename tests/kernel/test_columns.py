"""Records become columns: what a column says is what the record said, on both kernels and for any bytes."""

import inspect
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_columns, plain_records
from bolide.kernel.layout import AT_BLANK, AT_END, AT_INNER_BATCH, AT_INVALID, MAGIC_BLANK, UNPLACED
from bolide.kernel.plain_columns import SPREAD
from tests.kernel.twins import both, compiled

kernels = both(plain_columns)

IPV4, IPV6 = bytes([10, 0, 0, 1]) + struct.pack(">i", 10911), bytes(range(16)) + struct.pack(">i", 10911)
EVER = 1 << 62
START_MS = 1_700_000_000_000


def record(
    topic="T",
    queue_id=0,
    body=b"body",
    properties=b"",
    flag=0,
    sys_flag=0,
    born_ms=START_MS,
    born_host=IPV4,
    reconsume_times=0,
    prepared_offset=0,
):
    """One draft, in the order in which encode_records takes its parts."""
    return topic, queue_id, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, prepared_offset


def laid(*drafts, physical_offset=0, store_ms=START_MS + 5, store_host=IPV4):
    return plain_records.encode_records(list(drafts), physical_offset, store_ms, store_host, {}, [], 1 << 24)[0]


def spread(kernel, log, wanted=SPREAD, **changes):
    given = {
        "position": 0,
        "end": len(log),
        "physical_base": 0,
        "check": 1,
        "row_count_max": 1 << 20,
        "size_max": 1 << 30,
        "topics": None,
        "tags": None,
        "from_ms": -EVER,
        "until_ms": EVER,
    }
    return kernel.spread_records(log, wanted=tuple(wanted), **(given | changes))


def texts(column):
    valid, offsets, values = column
    places = array("i", offsets)
    count = len(places) - 1
    is_there = [valid is None or bool(valid[i >> 3] >> (i & 7) & 1) for i in range(count)]
    return [values[places[i] : places[i + 1]] if is_there[i] else None for i in range(count)]


def maps(column):
    rows, names, name_bytes, values, value_bytes = column
    rows, names, values = array("i", rows), array("i", names), array("i", values)
    pairs = [
        (name_bytes[names[i] : names[i + 1]], value_bytes[values[i] : values[i + 1]]) for i in range(len(names) - 1)
    ]
    return [pairs[rows[i] : rows[i + 1]] for i in range(len(rows) - 1)]


def rows_of(kernel, log, wanted=SPREAD, **changes):
    """Each row as a dict of plain values."""
    columns, count, *_ = spread(kernel, log, wanted, **changes)
    read = {}
    for name, column in zip(wanted, columns, strict=True):
        if name == "properties":
            read[name] = maps(column)
        elif isinstance(column, tuple):
            read[name] = texts(column)
        else:
            read[name] = list(array("i" if len(column) == 4 * count else "q", column))
        assert len(read[name]) == count
    return [dict(zip(read, values, strict=True)) for values in zip(*read.values(), strict=True)]


@kernels
def test_a_row_says_what_the_record_said(kernel):
    properties = b"KEYS\x01a b\x02TAGS\x01red\x02UNIQ_KEY\x010A00\x02"
    log = laid(record("Orders", 3, b"tea", properties, 7, 0, START_MS, IPV4, 2), physical_offset=4096)
    (row,) = rows_of(kernel, log, physical_base=4096)
    assert row == {
        "topic": b"Orders",
        "queue_id": 3,
        "queue_offset": 0,
        "physical_offset": 4096,
        "msg_id": b"0A00",
        "keys": b"a b",
        "tags": b"red",
        "properties": [(b"KEYS", b"a b"), (b"TAGS", b"red"), (b"UNIQ_KEY", b"0A00")],
        "born_us": START_MS * 1000,
        "store_us": (START_MS + 5) * 1000,
        "flag": 7,
        "sys_flag": 0,
        "reconsume_times": 2,
        "body": b"tea",
        "body_size": 3,
    }


@kernels
def test_hosts_of_both_families_and_long_topics_are_read(kernel):
    drafts = [record("%RETRY%" + "g" * 200, born_host=IPV6, body=b"long"), record(body=b"next")]
    log = laid(*drafts, store_host=IPV6)
    first, second = rows_of(kernel, log)
    assert (len(first["topic"]), first["body"], second["body"]) == (207, b"long", b"next")
    # Without a producer's id the message is called by where it lies: host, port, offset.
    assert second["msg_id"] == (IPV6 + second["physical_offset"].to_bytes(8, "big")).hex().upper().encode()


@kernels
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (b"a\x01b\x01c\x02", [(b"a", b"b\x01c")]),
        (b"a\x011\x02b\x012\x02a\x013\x02", [(b"a", b"3"), (b"b", b"2")]),
        (b"a\x01\x02\x01b\x02c\x02d\x014", [(b"d", b"4")]),
        (b"a\x01\xff\x02", [(b"a", "\ufffd".encode())]),
        ("名\x01茶\x02".encode(), [("名".encode(), "茶".encode())]),
        (b"", []),
    ],
)
def test_properties_are_read_as_every_client_reads_them(kernel, given, wanted):
    log = laid(record(properties=given))
    assert rows_of(kernel, log, ["properties"], check=0)[0]["properties"] == wanted


@kernels
def test_only_wanted_columns_are_built_and_nulls_are_marked(kernel):
    log = laid(record(), record(properties=b"TAGS\x01x\x02"), record(properties=b"KEYS\x01k\x02"))
    assert rows_of(kernel, log, ["tags", "body_size"]) == [
        {"tags": None, "body_size": 4},
        {"tags": b"x", "body_size": 4},
        {"tags": None, "body_size": 4},
    ]
    assert spread(kernel, log, ["topic"])[0][0][0] is None
    assert spread(kernel, log, [])[:2] == ([], 3)


@kernels
def test_rows_are_chosen_by_topic_tag_and_time(kernel):
    early = laid(record("A", body=b"1", properties=b"TAGS\x01x\x02"), record("B", body=b"2"))
    late = laid(record("A", body=b"3"), physical_offset=len(early), store_ms=START_MS + 100)
    log = early + late

    def bodies(**choice):
        return [row["body"] for row in rows_of(kernel, log, ["body"], **choice)]

    assert bodies(topics=frozenset([b"A"])) == [b"1", b"3"]
    assert bodies(topics=frozenset([b"C"])) == []
    assert bodies(tags=frozenset([b"x", b"y"])) == [b"1"]
    assert bodies(from_ms=START_MS + 100) == [b"3"]
    assert bodies(until_ms=START_MS + 100) == [b"1", b"2"]
    assert spread(kernel, log, ["topic"], topics=frozenset([b"B"]))[3] == 3  # seen, though not taken


@kernels
def test_what_is_in_no_queue_is_no_row_of_the_log(kernel):
    log = laid(*(record(body=bytes([kind]), sys_flag=kind) for kind in (0x0, 0x4, 0x8, 0xC)))
    assert [row["body"] for row in rows_of(kernel, log, ["body"])] == [b"\x00", b"\x08"]
    assert len(rows_of(kernel, log, ["body"], physical_base=UNPLACED)) == 4


@kernels
def test_a_batch_ends_at_its_limits_and_goes_on_from_there(kernel):
    log = laid(*(record(body=b"%d" % i) for i in range(10)))
    first = spread(kernel, log, ["body"], row_count_max=4)
    assert (first[1], first[5]) == (4, AT_END)
    assert texts(spread(kernel, log, ["body"], position=first[4])[0][0]) == [b"%d" % i for i in range(4, 10)]
    assert spread(kernel, log, [], size_max=100)[1] == 2
    # A record belongs to the stretch it begins in.
    assert spread(kernel, log, [], end=first[4] - 1)[1] == 4
    assert spread(kernel, log, [], end=first[4] + 1)[1] == 5


@kernels
def test_the_end_of_the_log_is_told_by_its_kind(kernel):
    log = laid(record())
    blank = struct.pack(">iI", 64, MAGIC_BLANK) + bytes(56)
    assert spread(kernel, log)[1:] == (1, [], 1, len(log), AT_END)
    assert spread(kernel, log + blank)[4:] == (len(log), AT_BLANK)
    assert spread(kernel, log + bytes(200))[4:] == (len(log), AT_INVALID)
    assert spread(kernel, log + log[:50])[4:] == (len(log), AT_INVALID)
    assert spread(kernel, log + log)[4:] == (len(log), AT_INVALID)  # the second says that it lies elsewhere
    assert spread(kernel, log + log, physical_base=UNPLACED)[1] == 2
    batch = bytearray(log)
    batch[39] |= 0x80
    assert spread(kernel, bytes(batch))[5] == AT_INNER_BATCH


@kernels
def test_a_body_that_changed_is_noticed_where_it_is_checked(kernel):
    log = bytearray(laid(record(body=b"tea for two"), record()))
    at = log.index(b"tea")
    log[at] ^= 1
    assert spread(kernel, bytes(log))[4:] == (0, AT_INVALID)
    assert spread(kernel, bytes(log), check=0)[1] == 2


@kernels
def test_a_body_that_nobody_asked_for_is_not_read(kernel):
    """A log is mostly of other topics; but what decides about a record has to be believed."""
    log = bytearray(laid(record("Other", body=b"tea for two", properties=b"TAGS\x01x\x02"), record(), record()))
    log[log.index(b"tea")] ^= 1
    for passing in ({"topics": {b"T"}}, {"tags": {b"y"}}, {"from_ms": START_MS + 6}, {"until_ms": START_MS}):
        taken = 2 if "topics" in passing else 0
        assert spread(kernel, bytes(log), ["body"], **passing)[1:] == (taken, [], 3, len(log), AT_END), passing
    assert spread(kernel, bytes(log), ["body"], topics={b"Other"})[1:] == (0, [], 0, 0, AT_INVALID)
    log[log.index(b"Other") + 4] = 0
    assert spread(kernel, bytes(log), ["body"], topics={b"T"})[1:] == (0, [], 0, 0, AT_INVALID)


@kernels
def test_compressed_bodies_are_named(kernel):
    log = laid(record(), record(sys_flag=0x301), record(sys_flag=0x1))
    assert spread(kernel, log)[2] == [1, 2]


def test_the_twins_have_the_same_parameters():
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")
    parameters = [list(inspect.signature(kernel.spread_records).parameters) for kernel in (plain_columns, compiled)]
    assert parameters[0] == parameters[1]


LABELS = st.lists(
    st.sampled_from(
        [b"KEYS\x01k", b"TAGS\x01red", b"TAGS\x01blue", b"UNIQ_KEY\x01u", b"a\x01b\x01c", b"a\x01", b"\xff"]
    )
    | st.binary(max_size=12).map(lambda raw: raw.replace(b"\x00", b"\x03")),
    max_size=6,
).map(b"\x02".join)
DRAFTS = st.lists(
    st.builds(
        record,
        topic=st.sampled_from(["T", "Orders", "主题", "%RETRY%" + "g" * 130]),
        queue_id=st.integers(0, 7),
        body=st.binary(max_size=80),
        properties=LABELS,
        flag=st.integers(-(2**31), 2**31 - 1),
        sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8, 0xC, 0x301]),
        born_ms=st.integers(0, 2**45) | st.integers(-(2**63), 2**63 - 1),
        born_host=st.sampled_from([IPV4, IPV6]),
        reconsume_times=st.integers(0, 20),
    ),
    max_size=8,
)


@given(
    drafts=DRAFTS,
    store_host=st.sampled_from([IPV4, IPV6]),
    damage=st.none() | st.tuples(st.integers(0, 2000), st.integers(1, 255)),
    wanted=st.lists(st.sampled_from(SPREAD), unique=True),
    base=st.sampled_from([0, 1 << 30, UNPLACED]),
    check=st.integers(0, 2),
    limits=st.tuples(st.integers(1, 9), st.integers(1, 900)),
    topics=st.none() | st.frozensets(st.sampled_from([b"T", "主题".encode(), b"none"])),
    tags=st.none() | st.frozensets(st.sampled_from([b"red", b"blue"])),
    cut=st.integers(0, 120),
)
def test_both_kernels_spread_any_log_alike(drafts, store_host, damage, wanted, base, check, limits, topics, tags, cut):
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")
    log = bytearray(laid(*drafts, physical_offset=max(base, 0), store_host=store_host))
    if damage is not None and log:
        log[damage[0] % len(log)] ^= damage[1]
    log = log[: max(0, len(log) - cut)] + bytes(cut)
    rows, size = limits
    choice = {"physical_base": base, "check": check, "row_count_max": rows, "size_max": size}
    choice |= {"topics": topics, "tags": tags}
    answers = [spread(kernel, bytes(log), wanted, **choice) for kernel in (plain_columns, compiled)]
    assert answers[0] == answers[1]
