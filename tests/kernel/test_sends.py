"""All sends of one read: both kernels lay out the same bytes, and neither believes a length."""

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.kernel import layout, plain
from bolide.kernel.layout import SendRules
from bolide.kernel.plain_records import scan_records, walk_records
from bolide.protocol.records import decode_records
from tests.kernel.send_frames import READS, bounds_of, encoded, sends
from tests.kernel.twins import compiled

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled kernel was not built; run make build")
kernels = pytest.mark.parametrize("kernel", [compiled], ids=["compiled"])

HOST = bytes([10, 0, 0, 5, 0, 0, 0x2A, 0x9F])
RULES = SendRules(
    store_host=HOST,
    added=b"MSG_REGION\x01R\x02CLUSTER\x01C\x02",
    json_head=b'{"code":0,"extFields":{"MSG_REGION":"R","msgId":"',
    binary_head=b"\0\x0aMSG_REGION\0\0\0\x01R",
    version=479,
    body_size_max=4096,
    is_sync=False,
    half=("RMQ_SYS_TRANS_HALF_TOPIC", 1),
)
TOPICS = {b"Orders": ("Orders", 4), b"Other": ("Other", 2)}
NEXT = {("Orders", 1): 7, ("Other", 0): 2**40}
BORN = bytes([127, 0, 0, 1, 0, 0, 0, 9])


def lay(kernel: Any, stream: bytes, bounds: list[int] | None = None, rules: SendRules = RULES) -> Any:
    bounds = bounds_of(stream) if bounds is None else bounds
    reads = [(stream, bounds, BORN)]
    *laid, ([(answers, left)], tallies) = kernel.encode_sends(reads, TOPICS, rules, 4096, 1_700_000_000_000, NEXT)
    return *laid, (answers, left, tallies)


def usual(topic: str = "Orders", queue: int = 0, *, code: int = 310, **changes: str) -> dict[str, str]:
    names = layout.LONG_NAMES if code == 10 else layout.SHORT_NAMES
    texts = ["pg", topic, "TBW102", "4", str(queue), "0", "1700000000000", "0", "UNIQ_KEY\x01u\x02TAGS\x01TagA\x02"]
    return dict(zip(names, texts, strict=False)) | changes


def frame(
    way: str = "json", code: int = 310, opaque: int = 1, flag: int = 0, body: bytes = b"hello", **how: Any
) -> bytes:
    return encoded(way, code, opaque, flag, usual(code=code, **how), body)


def check_derived(laid: Any) -> None:
    """Entries, keys and counts are those that a walk over the records finds, and every record is whole."""
    records, runs, keys, (_, _, tallies) = laid
    found, found_keys, count, _, end, _ = walk_records(bytes(4096) + records, 4096, 4096 + len(records), 0, 1, ())
    assert (runs, keys, end) == (found, found_keys, 4096 + len(records))
    assert (count, len(records)) == (sum(tally[1] for tally in tallies), sum(tally[2] for tally in tallies))


@example(frames=[encoded("odd", 34, 1, 0, usual(i="\ud83d"), b"x"), frame()], is_sync=False, is_ipv6=False)
@given(frames=READS, is_sync=st.booleans(), is_ipv6=st.booleans())
def test_what_is_taken_is_what_the_log_says_of_it(frames: list[bytes], is_sync: bool, is_ipv6: bool) -> None:
    rules = RULES._replace(is_sync=is_sync, store_host=bytes(16) + HOST[4:] if is_ipv6 else HOST)
    check_derived(lay(compiled, b"".join(frames), rules=rules))


@given(st.lists(sends(), max_size=4), st.data())
def test_no_cut_and_no_wrong_byte_makes_a_record_that_is_not_whole(frames: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(b"".join(frames))
    if not stream:
        return
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=6)):
        stream[at] = data.draw(st.integers(0, 255))
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    check_derived(lay(compiled, bytes(stream), bounds))


@kernels
@pytest.mark.parametrize("way", ["json", "escaped", "numbers", "binary"])
@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_plain_send_of_any_client_is_taken(kernel: Any, way: str, code: int) -> None:
    stream = frame(way, code) + frame(way, code, opaque=-2, body=b"world")
    records, runs, keys, (answers, left, tallies) = lay(kernel, stream)
    assert left == []
    columns, end, _ = scan_records(bytes(4096) + records, 4096, 4096 + len(records), 0, True)
    assert (end, list(columns[1])) == (4096 + len(records), [len(records) // 2] * 2)
    assert [(topic, queue, first, len(entries)) for topic, queue, first, entries in runs] == [("Orders", 0, 0, 40)]
    assert len(keys) == 2 * 20
    assert tallies == [("Orders", 2, len(records), layout.PLAIN_MESSAGE, code, 0, 2)]
    opaques = [header[4] for header in plain.read_headers(answers, bounds_of(answers)) if header is not None]
    assert opaques == [1, -2]


@kernels
def test_requests_are_counted_by_what_they_send_and_how_large_it_is(kernel: Any) -> None:
    ordered = "UNIQ_KEY\x01u\x02__SHARDINGKEY\x01customer\x02"
    half = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02"
    stream = b"".join(
        [frame(), frame(i=ordered), frame(i=ordered, body=bytes(1024)), frame(code=10), frame(f="4", i=half), frame()]
    )
    _, _, _, (_, left, tallies) = lay(kernel, stream)
    assert left == []
    assert [(topic, count, *how) for topic, count, _, *how in tallies] == [
        ("Orders", 2, layout.PLAIN_MESSAGE, 310, 0, 2),
        ("Orders", 1, layout.ORDERED_MESSAGE, 310, 0, 1),
        ("Orders", 1, layout.ORDERED_MESSAGE, 310, 1, 1),
        ("Orders", 1, layout.PLAIN_MESSAGE, 10, 0, 1),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, layout.HALF_MESSAGE, 310, 0, 1),
    ]


@kernels
@pytest.mark.parametrize("size_class", range(len(layout.SIZE_BOUNDS) + 1))
def test_a_size_is_in_the_class_whose_bound_it_does_not_pass(kernel: Any, size_class: int) -> None:
    rules = RULES._replace(body_size_max=1 << 24)
    overhead = len(lay(kernel, frame(body=b"x"), rules=rules)[0]) - 1
    bounds = (0, *layout.SIZE_BOUNDS, 5 << 20)
    sizes = [max(bounds[size_class] - overhead + 1, 1), bounds[size_class + 1] - overhead]
    stream = b"".join(frame(body=bytes(size)) for size in sizes)
    _, _, _, (_, _, tallies) = lay(kernel, stream, rules=rules)
    assert [tally[5:] for tally in tallies] == [(size_class, 2)]


@kernels
def test_a_half_message_waits_aside_and_says_where_it_belongs(kernel: Any) -> None:
    text = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02"
    stream = frame(queue=3, f="4", i=text) + frame(queue=3, opaque=2)
    records, runs, _, (answers, left, tallies) = lay(kernel, stream)
    assert left == []
    half, _ = decode_records(records)
    assert (half.topic, half.queue_id, half.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    place = {"__transactionId__": "u", "REAL_TOPIC": "Orders", "REAL_QID": "3", "MSG_REGION": "R", "CLUSTER": "C"}
    assert half.properties == {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u", **place}
    assert [run[:3] for run in runs] == [("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0), ("Orders", 3, 0)]
    assert [tally[:2] for tally in tallies] == [("RMQ_SYS_TRANS_HALF_TOPIC", 1), ("Orders", 1)]
    told = [header[7] for header in plain.read_headers(answers, bounds_of(answers)) if header is not None]
    assert [(each["queueId"], each["queueOffset"]) for each in told] == [("3", "0"), ("3", "0")]


@kernels
@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("4", "UNIQ_KEY\x01u\x02"),
        ("8", "TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02"),
        ("4", "TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02REAL_TOPIC\x01Secret\x02"),
        ("4", "TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02DELAY\x013\x02"),
        ("4", "TRAN_MSG\x01true\x02"),
        ("0", "TRAN_MSG\x01maybe\x02UNIQ_KEY\x01u\x02"),
    ],
)
def test_a_half_message_that_needs_thought_is_left(kernel: Any, flag: str, text: str) -> None:
    records, _, _, (_, left, _) = lay(kernel, frame(f=flag, i=text))
    assert (records, len(left)) == (b"", 2)


@kernels
def test_answers_are_what_the_frame_writer_writes(kernel: Any) -> None:
    stream = frame(queue=1) + frame("binary", opaque=5, queue=1)
    records, _, _, (answers, _, _) = lay(kernel, stream)
    fields = {"MSG_REGION": "R", "msgId": f"{HOST.hex().upper()}{4096:016X}", "queueId": "1", "queueOffset": "7"}
    fields["transactionId"] = "u"
    second = fields | {"msgId": f"{HOST.hex().upper()}{4096 + len(records) // 2:016X}", "queueOffset": "8"}
    assert answers == plain.write_frames(
        [(0, 0, 3, 479, 1, 1, None, fields, b""), (1, 0, 3, 479, 5, 1, None, second, b"")]
    )


@kernels
def test_a_send_does_not_overtake_an_earlier_one_of_its_topic_that_was_left(kernel: Any) -> None:
    delayed = frame(opaque=1, i="DELAY\x013\x02UNIQ_KEY\x01u\x02")
    stream = delayed + frame(opaque=2) + frame(opaque=3, topic="Other") + frame(opaque=4)
    bounds = bounds_of(stream)
    *_, (answers, left, _) = lay(kernel, stream)
    assert left == bounds[:4] + bounds[6:]
    assert [header[4] for header in plain.read_headers(answers, bounds_of(answers)) if header is not None] == [3]


@kernels
@pytest.mark.parametrize("bad", [b"{'code':310}", b"{\xff}", b'{"code":310,"extFields":{}}'])
def test_after_a_send_that_names_no_topic_nothing_is_taken_and_before_it_everything(kernel: Any, bad: bytes) -> None:
    odd = struct.pack(">ii", 4 + len(bad), len(bad)) + bad
    stream = frame(opaque=1) + odd + frame(opaque=2, topic="Other")
    *_, (_, left, tallies) = lay(kernel, stream)
    assert left == bounds_of(stream)[2:]
    assert [tally[:2] for tally in tallies] == [("Orders", 1)]


@kernels
def test_other_requests_are_left_and_stop_nobody(kernel: Any) -> None:
    beat = plain.write_frames([(0, 34, 0, 453, 9, 0, None, {"clientID": "客户"}, b"{}")])
    answer = plain.write_frames([(0, 310, 0, 453, 9, 1, None, usual(), b"x")])
    stream = beat + frame(opaque=1) + answer + frame(opaque=2)
    bounds = bounds_of(stream)
    *_, (_, left, tallies) = lay(kernel, stream)
    assert left == bounds[:2] + bounds[4:6]
    assert [tally[:2] for tally in tallies] == [("Orders", 2)]


@kernels
def test_a_one_way_send_is_stored_and_not_answered(kernel: Any) -> None:
    *_, (answers, left, tallies) = lay(kernel, frame(flag=2))
    assert (answers, left, tallies[0][1]) == (b"", [], 1)


@kernels
@pytest.mark.parametrize(
    "changes",
    [
        {"b": "Absent"},
        {"e": "4"},
        {"e": "-1"},
        {"f": "4"},
        {"f": "128"},
        {"g": ""},
        {"h": "2147483648"},
        {"i": "TAGS\x01a\x02"},
        {"i": "UNIQ_KEY\x01u\x02CLUSTER\x01c"},
        {"i": "UNIQ_KEY\x01u\x02POP_CK\x01c"},
        {"i": "UNIQ_KEY\x01u\x02TIMER_DELIVER_MS\x011"},
        {"i": 'UNIQ_KEY\x01"\x02'},
        {"i": "UNIQ_KEY\x01u\x02a\x01\0"},
        {"i": "UNIQ_KEY\x01u\x02a\x01" + "x" * 32740},
        {"m": "true"},
    ],
)
def test_what_needs_thought_is_left(kernel: Any, changes: dict[str, Any]) -> None:
    stream = frame(**changes)
    assert lay(kernel, stream) == (b"", [], b"", (b"", bounds_of(stream), []))


@kernels
@pytest.mark.parametrize("is_sync", [True, False])
def test_who_does_not_wait_for_the_disk_is_left_only_where_others_would(kernel: Any, is_sync: bool) -> None:
    stream = frame(i="UNIQ_KEY\x01u\x02WAIT\x01false\x02")
    *_, (_, left, _) = lay(kernel, stream, rules=RULES._replace(is_sync=is_sync))
    assert bool(left) == is_sync


@kernels
def test_more_left_topics_than_are_remembered_leave_the_rest_too(kernel: Any) -> None:
    stream = b"".join(frame(opaque=i, topic=f"Unknown{i}") for i in range(40)) + frame(opaque=99, topic="Unknown0")
    *_, (_, left, _) = lay(kernel, stream)
    assert left == bounds_of(stream)


@kernels
@pytest.mark.parametrize("bounds", [[-1, 8], [0, 3], [4, 999], [6, 4], [0]])
def test_bounds_outside_the_stream_are_refused(kernel: Any, bounds: list[int]) -> None:
    with pytest.raises(ValueError, match=r"outside a stream of 8 bytes|come in pairs"):
        lay(kernel, b"12345678", bounds)


@kernels
def test_several_reads_are_laid_as_one_after_the_other(kernel: Any) -> None:
    far = bytes(16) + BORN[4:]
    first, second = frame(opaque=1) + frame(opaque=2, queue=1), frame("binary", opaque=3, queue=1) + frame(opaque=4)
    reads = [(first, bounds_of(first), BORN), (second, bounds_of(second), far)]
    records, runs, keys, (answered, tallies) = kernel.encode_sends(reads, TOPICS, RULES, 4096, 1_700_000_000_000, NEXT)
    together = lay(kernel, first + second)
    assert b"".join(answers for answers, _ in answered) != b""
    assert [len(bounds_of(answers)) // 2 for answers, _ in answered] == [2, 2]
    assert [left for _, left in answered] == [[], []]
    assert [(run[:3], len(run[3])) for run in runs] == [(run[:3], len(run[3])) for run in together[1]]
    assert [tally[:2] for tally in tallies] == [("Orders", 4)]
    columns = scan_records(records, 0, len(records), 4096, True)[0]
    assert len(columns[0]) == 4
    assert (records.count(BORN), records.count(far)) == (2, 2)
    one_by_one, next_offsets, at = b"", dict(NEXT), 4096
    for read in reads:
        alone, runs_alone, _, (answered_alone, _) = kernel.encode_sends(
            [read], TOPICS, RULES, at, 1_700_000_000_000, next_offsets
        )
        one_by_one += alone
        at += len(alone)
        next_offsets |= {(run[0], run[1]): run[2] + len(run[3]) // 20 for run in runs_alone}
        assert answered_alone == [answered.pop(0)]
    assert one_by_one == records
    assert len(keys) == len(together[2])


@kernels
def test_what_is_left_of_one_read_holds_up_no_other(kernel: Any) -> None:
    odd, plain_one = frame(opaque=1, topic="Unknown"), frame(opaque=2)
    broken = bytes([0, 0, 0, 8, 0, 0, 0, 4]) + b"{{{{"
    reads = [(stream, bounds_of(stream), BORN) for stream in (broken + plain_one, odd + plain_one, plain_one, b"")]
    *_, (answered, tallies) = kernel.encode_sends(reads, TOPICS, RULES, 4096, 1_700_000_000_000, NEXT)
    assert [left for _, left in answered] == [reads[0][1], reads[1][1][:2], [], []]
    assert [len(bounds_of(answers)) // 2 for answers, _ in answered] == [0, 1, 1, 0]
    assert [tally[:2] for tally in tallies] == [("Orders", 2)]
    with pytest.raises(ValueError, match="a host of 3 bytes"):
        kernel.encode_sends([(plain_one, bounds_of(plain_one), b"abc")], TOPICS, RULES, 4096, 0, NEXT)
