"""The store's kernel: the vectors of a JVM, and two kernels that never differ."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.kernel import layout, plain_records
from tests.kernel.twins import both, compiled

kernels = both(plain_records)

VECTOR = bytes.fromhex(
    "000000c4daa320a7088ee84500000003000000000000000000000007000000000000100000000000"
    "0000018bcfe56800c0a801090000c8220000018bcfe568640a00000500002a9f000000000000000000000000"
    "0000000c48656c6c6f20426f6c69646509546f7069635465737400545"
    "54e49515f4b45590137463030303030313030303031384234414143323030303030303030303002"
    "544147530154616741024b455953014b31204b3202434c55535445520144656661756c74436c757374657202"
)
PROPERTIES = VECTOR[112:]
BORN_HOST = bytes((192, 168, 1, 9)) + (51234).to_bytes(4, "big")
STORE_HOST = bytes((10, 0, 0, 5)) + (10911).to_bytes(4, "big")
DRAFT = ("TopicTest", 3, b"Hello Bolide", PROPERTIES, 0, 0, 1700000000000, BORN_HOST, 0, 0)
DELAYS_MS = (1000, 5000, 10000)
BODY_MAX = 1 << 22


def lay(kernel, drafts, at=0, next_offsets=None, store_host=STORE_HOST, store_ms=1700000000100):
    return kernel.encode_records(drafts, at, store_ms, store_host, next_offsets or {}, DELAYS_MS, BODY_MAX)


@kernels
@pytest.mark.feature("F170", "F153")
def test_the_vector_of_a_jvm_is_laid_out_to_the_byte(kernel):
    records, places, queue_offsets, runs, keys = lay(kernel, [DRAFT], at=4096, next_offsets={("TopicTest", 3): 7})
    assert records == VECTOR
    assert (places.tolist(), queue_offsets.tolist()) == ([4096], [7])
    assert runs == [("TopicTest", 3, 7, bytes.fromhex("0000000000001000000000c4000000000027a807"))]
    hashes = [hashed for hashed, at, stored in struct.iter_unpack(">iqq", keys)]
    assert hashes == [813318982, 2745032, plain_records.key_hash("TopicTest", "K2")]


@kernels
def test_body_crc_loses_its_top_bit(kernel):
    assert zlib.crc32(b"Hello Bolide") == 0x888EE845
    assert kernel.body_crc(b"Hello Bolide") == 143583301


def test_a_key_whose_hash_has_no_positive_twin_is_filed_under_zero():
    assert plain_records.java_hash("polygenelubricants") == -(2**31)
    # No topic#key with that hash is at hand, so the rule is asked of the function that both kernels share.
    text = "polygenelubricants"
    assert abs(plain_records.java_hash(text)) > 0x7FFF_FFFF


@kernels
def test_crc_agrees_with_zlib_at_every_length_around_the_folds(kernel):
    source = bytes(i * 31 % 251 for i in range(1100))
    for size in [*range(300), 1023, 1024, 1025, 1099]:
        assert kernel.body_crc(source[:size]) == zlib.crc32(source[:size]) & 0x7FFF_FFFF


@kernels
@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        (("t" * 128, *DRAFT[1:]), "topic of 128"),
        (("", *DRAFT[1:]), "topic of 0"),
        (("%RETRY%" + "g" * 249, *DRAFT[1:]), "topic of 256"),
        ((*DRAFT[:2], bytes(BODY_MAX + 1), *DRAFT[3:]), "body of"),
        ((*DRAFT[:3], bytes(32768), *DRAFT[4:]), "properties of 32768"),
        ((*DRAFT[:3], b"TAGS\x01\x00\x02", *DRAFT[4:]), "zero byte"),
        (("a\x00b", *DRAFT[1:]), "zero byte"),
        ((*DRAFT[:5], 0x80, *DRAFT[6:]), "inner batch"),
        ((*DRAFT[:7], b"1234", *DRAFT[8:]), "host of 4"),
    ],
)
@pytest.mark.feature("F161", "F162")
def test_what_may_not_be_stored_is_refused_with_its_limit(kernel, draft, sentence):
    with pytest.raises(ValueError, match=sentence):
        lay(kernel, [DRAFT, draft])


@kernels
def test_a_long_retry_topic_becomes_a_record_of_the_second_version(kernel):
    topic = "%RETRY%" + "g" * 200
    records, *_ = lay(kernel, [(topic, *DRAFT[1:])])
    assert records[4:8] == bytes.fromhex("daa320ab")
    columns, end, reason = kernel.scan_records(records, 0, len(records), 0, True)
    at, size = columns[14][0], columns[15][0]
    assert records[at : at + size].decode() == topic
    assert (end, reason) == (len(records), layout.AT_END)


@kernels
@pytest.mark.feature("F154")
def test_prepared_and_rolled_back_records_reach_no_queue(kernel):
    drafts = [(*DRAFT[:5], kind, *DRAFT[6:]) for kind in (0x0, 0x4, 0x8, 0xC)]
    records, _, queue_offsets, runs, keys = lay(kernel, drafts)
    assert queue_offsets.tolist() == [0, 0, 1, 0]
    assert [len(entries) // 20 for *_, entries in runs] == [2]
    assert len(keys) // 20 == 9  # the rolled back one is not indexed either
    walked_runs, walked_keys, count, *_ = kernel.walk_records(records, 0, len(records), 0, True, DELAYS_MS)
    assert (walked_runs, walked_keys, count) == (runs, keys, 4)


@kernels
def test_an_entry_of_the_delay_topic_holds_the_time_it_is_due(kernel):
    draft = ("SCHEDULE_TOPIC_XXXX", 1, b"", b"DELAY\x012\x02TAGS\x01TagA\x02", *DRAFT[4:])
    *_, runs, _ = lay(kernel, [draft], store_ms=1700000000100)
    assert struct.unpack(">qiq", runs[0][3])[2] == 1700000000100 + 5000


@kernels
@pytest.mark.parametrize("torn_at", range(len(VECTOR)))
def test_a_record_torn_at_any_byte_ends_the_walk(kernel, torn_at):
    whole = VECTOR
    log = bytes(4096) + whole[:torn_at] + bytes(len(whole) - torn_at)
    *_, count, _, end, reason = kernel.walk_records(log, 4096, len(log), 0, True, ())
    if log[4096:] == whole:  # the bytes cut off were zeros already
        assert count == 1
    else:
        assert (count, end, reason) == (0, 4096, layout.AT_INVALID)


@kernels
@pytest.mark.parametrize("at", range(len(VECTOR)))
def test_no_flipped_byte_makes_the_walk_leave_its_buffer(kernel, at):
    log = bytearray(VECTOR)
    log[at] ^= 0xFF
    columns, end, _ = kernel.scan_records(bytes(4096) + log, 4096, 4096 + len(log), 0, True)
    assert end in (4096, 4096 + len(log))
    assert len(columns[0]) == (end - 4096) // len(log)


@kernels
def test_a_record_that_lies_elsewhere_than_it_says_is_stale(kernel):
    assert kernel.scan_records(VECTOR, 0, len(VECTOR), 4096, True)[1:] == (len(VECTOR), layout.AT_END)
    assert kernel.scan_records(VECTOR, 0, len(VECTOR), 8192, True)[1:] == (0, layout.AT_INVALID)


@kernels
def test_counting_stops_at_the_first_entry_that_is_empty_out_of_order_or_beyond(kernel):
    def entries(*places):
        return b"".join(struct.pack(">qiq", at, size, 0) for at, size in places)

    blank = (0, 0x7FFF_FFFF)
    assert kernel.count_entries(entries(blank, blank, (500, 100), (600, 100)), 1 << 40) == 4
    assert kernel.count_entries(entries((0, 100), (100, 100), (0, 0), (300, 100)), 1 << 40) == 2
    assert kernel.count_entries(entries((0, 100), (100, 100), (150, 100)), 1 << 40) == 2
    assert kernel.count_entries(entries((0, 100), (100, 100), (200, 100)), 200) == 2
    assert kernel.count_entries(entries((0, 100), (-1, 100)), 200) == 1


@kernels
def test_entries_fit_up_to_the_first_that_is_not_what_its_record_makes_of_it(kernel):
    log, _, _, runs, _ = lay(kernel, [DRAFT] * 4, at=4096, next_offsets={("TopicTest", 3): 7})
    entries, blank = runs[0][3], layout.PRE_BLANK
    queue = (4096, b"TopicTest", 3, 7, True)
    assert kernel.fitting_entries(entries, log, *queue) == 4
    assert kernel.fitting_entries(entries[:20] + blank * 2 + entries[60:], log, *queue) == 4
    for at in range(20, 40):
        for bit in range(8):
            flipped = bytearray(entries)
            flipped[at] ^= 1 << bit
            far = at == 32 and bit == 7  # the tag is the address of one
            assert kernel.fitting_entries(flipped, log, *queue) == (4 if far else 1), (at, bit)
            assert kernel.fitting_entries(flipped, log, *queue[:4], False) == (4 if at >= 32 else 1)
    assert kernel.fitting_entries(entries, log[:-1], *queue) == 3
    assert kernel.fitting_entries(entries, log[196:], 4096 + 196, *queue[1:]) == 0
    assert kernel.fitting_entries(entries, log, 4096, b"TopicTesu", 3, 7, True) == 0
    assert kernel.fitting_entries(entries, log, 4096, b"TopicTest", 2, 7, True) == 0
    assert kernel.fitting_entries(entries, log, 4096, b"TopicTest", 3, 6, True) == 0
    prepared = lay(kernel, [(*DRAFT[:5], 4, *DRAFT[6:])], at=4096, next_offsets={("TopicTest", 3): 0})[0]
    assert kernel.fitting_entries(entries, prepared, 4096, b"TopicTest", 3, 0, True) == 0


@kernels
def test_chosen_records_count_up_to_the_first_place_where_none_begins(kernel):
    log, places, *_ = lay(kernel, [DRAFT] * 3, at=4096)
    chosen = [number for place in places for number in (place, 196)]
    assert kernel.heading_records(log, 4096, chosen) == 3
    assert kernel.heading_records(log[:-1], 4096, chosen) == 2
    assert kernel.heading_records(log, 4096, [*chosen[:3], 195, *chosen[4:]]) == 1
    for at in (0, 3, 4, 28, 35):
        assert kernel.heading_records(log[: 196 + at] + b"\x7f" + log[197 + at :], 4096, chosen) == 1
    assert kernel.heading_records(log, 4096, [2**63 - 1, 2**63 - 1, *chosen]) == 0
    assert kernel.heading_records(log, 4096, [-(2**63), 196]) == kernel.heading_records(b"", 0, [0, 0]) == 0


@kernels
def test_a_seal_has_its_digits_backwards_and_covers_the_whole_record(kernel):
    drafts = [(*DRAFT[:3], b"A\x01b\x02" + layout.BLANK_CHECKSUM, *DRAFT[4:]) for _ in range(3)]
    records, places, *_ = lay(kernel, drafts)
    sealed = kernel.seal_records(records)
    assert len(kernel.scan_records(sealed, 0, len(sealed), 0, 2)[0][0]) == 3
    assert kernel.scan_records(records, 0, len(records), 0, 2)[1:] == (0, layout.AT_INVALID)
    assert len(kernel.scan_records(records, 0, len(records), 0, 1)[0][0]) == 3
    first = sealed[: places[1]]
    assert int(first[-11:-1][::-1]) == zlib.crc32(first[:-20]) & 0x7FFF_FFFF
    assert first[-20:-11] == b"__CRC32#\x01"
    for at in (16, 40, len(first) - 5):
        damaged = bytearray(first)
        damaged[at] ^= 1
        assert kernel.scan_records(damaged, 0, len(damaged), 0, 2)[1] == 0


@kernels
def test_the_next_record_is_found_by_what_it_says_of_its_place(kernel):
    records, places, *_ = lay(kernel, [DRAFT, DRAFT, DRAFT], at=4096)
    log = b"\xda" * 50 + records + bytes(100)
    base = 4096 - 50
    firsts = [place - base for place in places]
    assert [kernel.find_record(log, at, len(log), base) for at in (0, 50, 51)] == [firsts[0], firsts[0], firsts[1]]
    assert kernel.find_record(log, firsts[1] + 1, len(log), base) == firsts[2]
    assert kernel.find_record(log, firsts[2] + 1, len(log), base) == -1
    assert kernel.find_record(log, 0, len(log), base + 1) == -1
    assert kernel.find_record(log, 0, firsts[0] + 35, base) == -1  # its head is cut off
    assert kernel.find_record(log, 0, firsts[0] + 36, base) == firsts[0]
    assert kernel.find_record(b"", 0, 100, 0) == -1


@kernels
def test_a_pull_takes_what_its_tags_and_limits_allow(kernel):
    entries = b"".join(struct.pack(">qiq", 100 * i, 100, i % 3 - 1) for i in range(40))

    def select(tags, count, size=1 << 27, log_min=0, near_from=0, near=(262144, 32), far=(65536, 8)):
        return kernel.select_entries(entries, tags, log_min, near_from, count, size, near, far)

    assert select(None, 2) == ([0, 100, 100, 100], 2)
    assert select(frozenset([-1]), 3) == ([0, 100, 300, 100, 600, 100], 7)
    assert len(select(None, 64)[0]) == 64  # 32 near ones
    assert len(select(None, 64, near_from=1 << 40)[0]) == 16  # 8 far ones
    assert select(None, 64, size=250) == ([0, 100, 100, 100], 2)
    assert select(None, 64, size=1) == ([0, 100], 1)  # the first whatever its size
    assert select(frozenset([77]), 32) == ([], 40)
    assert select(None, 1, log_min=350) == ([400, 100], 5)
    address = struct.pack(">qiq", 0, 100, -(2**63) + 40)
    assert kernel.select_entries(address, frozenset([5]), 0, 0, 1, 1000, (1000, 1), (1000, 1)) == ([0, 100], 1)


@kernels
@pytest.mark.feature("F157")
def test_keys_of_one_slot_form_a_chain_newest_first(kernel):
    slots, room = 4, 6
    index = bytearray(40 + slots * 4 + room * 20)
    struct.pack_into(">i", index, 36, 1)
    keys = b"".join(
        struct.pack(">iqq", hashed, 1000 + i, 50_000 + 1500 * i) for i, hashed in enumerate([3, 7, 3, 2, 11])
    )
    assert kernel.put_keys(index, keys + keys, slots, room) == 5
    assert struct.unpack_from(">qqqqii", index) == (50_000, 56_000, 1000, 1004, 2, 6)
    entries = [struct.unpack_from(">iqii", index, 40 + slots * 4 + n * 20) for n in range(1, 6)]
    assert entries == [(3, 1000, 0, 0), (7, 1001, 1, 1), (3, 1002, 3, 2), (2, 1003, 4, 0), (11, 1004, 6, 3)]
    assert struct.unpack_from(">4i", index, 40) == (0, 0, 4, 5)


@kernels
@pytest.mark.parametrize("number", [-1, -3, -1000, -(2**31), -(2**31) + 1, 8, 2**31 - 1])
def test_an_index_file_whose_count_left_its_bounds_is_refused_and_stays_as_it_is(kernel, number):
    slots, room = 4, 7
    index = bytearray(40 + slots * 4 + room * 20)
    struct.pack_into(">i", index, 36, number)
    before = bytes(index)
    with pytest.raises(ValueError, match=f"damaged index file: it says that entry {number} comes next, and has 7"):
        kernel.put_keys(index, struct.pack(">iqq", 3, 1000, 50_000), slots, room)
    assert index == before


@kernels
@pytest.mark.parametrize(("size", "slots", "room"), [(0, 4, 7), (39, 4, 7), (195, 4, 7), (196, 0, 7), (196, 4, -1)])
def test_an_index_file_that_cannot_hold_its_entries_is_refused(kernel, size, slots, room):
    with pytest.raises(ValueError, match="too short for"):
        kernel.put_keys(bytearray(size), struct.pack(">iqq", 3, 1000, 50_000), slots, room)


@kernels
def test_an_index_file_that_says_zero_has_its_first_entry_where_java_puts_it(kernel):
    files = [bytearray(40 + 4 * 4 + 7 * 20) for _ in range(2)]
    struct.pack_into(">i", files[1], 36, 1)
    for index in files:
        assert kernel.put_keys(index, struct.pack(">iqq", 3, 1000, 50_000), 4, 7) == 1
    assert files[0] == files[1]


@kernels
def test_entries_at_the_end_of_all_numbers_are_counted_without_a_wrap(kernel):
    entries = b"".join(struct.pack(">qiq", 2**63 - 9 + i, 8, 0) for i in (0, 8, 8))
    assert kernel.count_entries(entries, 2**63 - 1) == 1
    assert kernel.count_entries(struct.pack(">qiq", 2**63 - 9, 2**31 - 2, 0) * 2, 2**63 - 1) == 1


texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00\x01\x02"), max_size=8)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "", "a"])
properties = st.lists(st.tuples(names, st.one_of(texts, st.sampled_from(["K1 K2", " a  b ", "3", "99"])))).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
)
topics = st.sampled_from(["T", "TopicTest", "订单", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 150])
hosts = st.sampled_from([BORN_HOST, bytes(range(20))])
int32s = st.integers(-(2**31), 2**31 - 1)
times = st.integers(1_600_000_000_000, 1_900_000_000_000)
drafts = st.tuples(
    topics,
    st.integers(0, 3),
    st.one_of(st.binary(max_size=200), st.binary(max_size=30).map(lambda content: memoryview(content))),
    st.one_of(properties, st.binary(max_size=40).map(lambda text: text.replace(b"\0", b"0"))),
    int32s,
    st.sampled_from([0, 1, 0x4, 0x8, 0xC, 0x30, 0x301]),
    times,
    hosts,
    st.integers(0, 20),
    st.integers(0, 2**40),
)


@pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
@given(
    batch=st.lists(drafts, max_size=12),
    at=st.integers(0, 2**45),
    host=hosts,
    stored=times,
    table=st.dictionaries(st.tuples(topics, st.integers(0, 3)), st.integers(0, 2**40)),
    damage=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=2),
)
@settings(deadline=None)
def test_both_kernels_encode_and_read_back_the_same(batch, at, host, stored, table, damage):
    plain = lay(plain_records, batch, at, table, host, stored)
    assert lay(compiled, batch, at, table, host, stored) == plain
    records, _, _, runs, keys = plain
    walked = plain_records.walk_records(records, 0, len(records), at, True, DELAYS_MS)
    assert walked[2:] == (len(batch), stored if batch else -1, len(records), layout.AT_END)
    assert (walked[0], walked[1]) == (runs, keys)
    log = bytearray(records)
    for position, value in damage:
        if position < len(log):
            log[position] = value
    for check in (True, False):
        walks = [k.walk_records(log, 0, len(log), at, check, DELAYS_MS) for k in (plain_records, compiled)]
        assert walks[0] == walks[1]
        scans = [k.scan_records(log, 0, len(log), at, check) for k in (plain_records, compiled)]
        assert scans[0] == scans[1]


entry_rows = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3000), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.integers(-1, 300), st.just(0x7FFF_FFFF)),
        st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    ),
    max_size=30,
).map(lambda rows: b"".join(struct.pack(">qiq", *row) for row in rows))


@pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
@given(
    entries=entry_rows,
    tags=st.one_of(st.none(), st.frozensets(st.integers(-3, 3), max_size=3)),
    log_min=st.integers(0, 2000),
    near=st.integers(0, 3000),
    limits=st.tuples(*[st.integers(1, 900)] * 6),
)
@settings(deadline=None)
def test_both_kernels_count_and_select_the_same_entries(entries, tags, log_min, near, limits):
    arguments = (entries, tags, log_min, near, limits[0] % 40, limits[1], limits[2:4], limits[4:6])
    assert compiled.select_entries(*arguments) == plain_records.select_entries(*arguments)
    assert compiled.count_entries(entries, near) == plain_records.count_entries(entries, near)


@pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**40), times), max_size=5), max_size=4
    )
)
@settings(deadline=None)
def test_both_kernels_file_keys_the_same(batches):
    files = [bytearray(40 + 8 * 4 + 10 * 20) for _ in range(2)]
    for file in files:
        struct.pack_into(">i", file, 36, 1)
    for batch in batches:
        keys = b"".join(struct.pack(">iqq", *key) for key in batch)
        taken = [k.put_keys(f, keys, 8, 10) for k, f in zip((plain_records, compiled), files, strict=True)]
        assert taken[0] == taken[1]
        assert files[0] == files[1]
