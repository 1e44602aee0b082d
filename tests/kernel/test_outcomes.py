"""Ends of transactions out of reads, half messages out of the log: both kernels say the same, and believe no length."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.broker.later.routing import Destination
from bolide.broker.transactions.halves import committed, read_half, real_place
from bolide.kernel import plain
from bolide.kernel.layout import ENTRY, Draft
from bolide.kernel.plain_records import encode_records
from bolide.protocol.command import read_commands
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.properties import encode_properties
from tests.kernel.twins import compiled

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled kernel was not built; run make build")
kernels = pytest.mark.parametrize("kernel", [compiled], ids=["compiled"])

HOST = bytes([10, 0, 0, 5, 0, 0, 0x2A, 0x9F])
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
USUAL = {
    "producerGroup": "pg",
    "tranStateTableOffset": "17",
    "commitLogOffset": "4096",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "7F00",
    "transactionId": "7F00",
    "topic": "Orders",
}
PLACE = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u", "REAL_TOPIC": "Orders", "REAL_QID": "3"}
BASE = 1 << 20
NEXT = {("Orders", 3): 41}


def frame(code: int = 37, flag: int = 2, codec: int = 0, remark: str | None = None, **changes: str) -> bytes:
    fields = {name: text for name, text in (USUAL | changes).items() if text != "-"}
    return plain.write_frames([(codec, code, 3, 479, 9, flag, remark, fields, b"")])


def read(kernel: Any, stream: bytes) -> Any:
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    return kernel.read_outcomes(stream, bounds)


@kernels
def test_one_way_ends_are_taken_and_all_else_is_left(kernel: Any) -> None:
    others = (frame(flag=0), frame(code=310), frame(flag=3), frame(commitOrRollback="0"), frame(commitLogOffset="-1"))
    wrong = (frame(msgId="-"), frame(producerGroup="-"), frame(fromTransactionCheck="maybe"), frame(topic="Käse"))
    taken = (frame(), frame(commitOrRollback="12", fromTransactionCheck="true"), frame(fromTransactionCheck="-"))
    stream = b"".join((*taken, *others, *wrong))
    ends, left = read(kernel, stream)
    assert ends == [(4096, 17, 8, False, b"pg"), (4096, 17, 12, True, b"pg"), (4096, 17, 8, False, b"pg")]
    assert len(left) == 2 * len(others + wrong)


@given(
    st.lists(
        st.builds(
            lambda code, flag, codec, remark, changes: frame(code, flag, codec, remark, **changes),
            st.sampled_from([37, 37, 37, 310]),
            st.sampled_from([2, 2, 0, 1]),
            st.sampled_from([0, 0, 1]),
            st.sampled_from([None, None, "why"]),
            st.dictionaries(
                st.sampled_from([*USUAL, "x"]), st.sampled_from(["8", "12", "true", "", "é", 'a"', "9" * 19, "-"])
            ),
        ),
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
)
def test_what_is_taken_says_what_its_request_says(frames: list[bytes], wrong: list[tuple[int, int]]) -> None:
    stream = bytearray(b"".join(frames))
    for at, byte in wrong:
        if stream:
            stream[at % len(stream)] = byte
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    ends, left = compiled.read_outcomes(bytes(stream), bounds)
    gone = set(left)
    kept = [place for i in range(0, len(bounds), 2) if bounds[i] not in gone for place in bounds[i : i + 2]]
    commands = read_commands(bytes(stream), kept)
    assert [(command.code, command.is_oneway) for command in commands] == [(37, True)] * len(ends)
    headers = [EndTransactionRequest.decode(command.fields) for command in commands]
    assert ends == [
        (
            header.physical_offset,
            header.half_queue_offset,
            header.commit_or_rollback,
            header.is_from_check,
            header.producer_group.encode(),
        )
        for header in headers
    ]
    assert all(end[2] in (8, 12) for end in ends)


def log_of(*halves: dict[str, str] | bytes, topic: str = HALF, body: bytes = b"pay") -> tuple[bytes, list[int]]:
    texts = [each if isinstance(each, bytes) else encode_properties(each) for each in halves]
    drafts = [(topic, 0, body, text, 7, 0x301, 5, HOST, 2, 0) for text in texts]
    records, places, *_ = encode_records(drafts, BASE, 1_700_000_000_000, HOST, {(topic, 0): 17}, (), 4096)
    return records, list(places)


def entries_of(log: bytes, places: list[int]) -> bytes:
    sizes = [end - start for start, end in zip(places, [*places[1:], BASE + len(log)], strict=True)]
    return b"".join(ENTRY.pack(place, size, 0) for place, size in zip(places, sizes, strict=True))


def lay(
    kernel: Any,
    log: bytes,
    entries: bytes,
    *ends: tuple[int, int, int, bool, bytes],
    marks: bytes = b"",
    first_mark: int = 17,
    log_end: int | None = None,
    size_max: int = 1 << 20,
) -> Any:
    log_end = BASE + len(log) if log_end is None else log_end
    places = (log, BASE, log_end, entries, 17, marks, first_mark)
    return kernel.encode_outcomes(list(ends), *places, size_max, HOST, 5 << 20, 1_700_000_000_009, NEXT)


@kernels
@pytest.mark.parametrize(
    ("stored", "left"),
    [
        (b"PGROUP\x01pg\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02", b"PGROUP\x01pg\x02"),
        (b"REAL_QID\x013\x02REAL_TOPIC\x01Orders\x02PGROUP\x01pg\x02", b"PGROUP\x01pg\x02"),
        (b"PGROUP\x01pg\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013", b"PGROUP\x01pg"),
        (b"REAL_QID\x013\x02REAL_TOPIC\x01Orders\x02PGROUP\x01pg", b"PGROUP\x01pg"),
        (
            b"REAL_TOPIC\x01Old\x02REAL_TOPIC\x01O\x02\x02REAL_QID\x013\x02PGROUP\x01pg\x02REAL_QIDS\x01x\x02",
            b"\x02PGROUP\x01pg\x02REAL_QIDS\x01x\x02",
        ),
    ],
)
def test_what_is_committed_says_no_more_where_it_belongs(kernel: Any, stored: bytes, left: bytes) -> None:
    log, places = log_of(stored)
    records, *_ = lay(kernel, log, entries_of(log, places), (places[0], 17, 8, False, b"pg"))
    assert records.endswith(len(left).to_bytes(2, "big") + left)


@kernels
def test_what_is_committed_is_laid_out_as_a_draft_of_it_would_be_and_all_of_it_is_decided(kernel: Any) -> None:
    log, places = log_of(PLACE, PLACE | {"TAGS": "A", "KEYS": "k1 k2"}, PLACE | {"REAL_TOPIC": "Paid"}, PLACE)
    ends = [(place, 17 + i, 12 if i == 3 else 8, i == 2, b"pg") for i, place in enumerate(places)]
    records, runs, keys, (seen, decided, tallies, left) = lay(kernel, log, entries_of(log, places), *reversed(ends))
    home = {name: value for name, value in PLACE.items() if not name.startswith("REAL_")}
    labelled = encode_properties(home | {"TAGS": "A", "KEYS": "k1 k2"})
    drafts: list[Draft] = [
        ("Paid", 3, b"pay", encode_properties(home), 7, 0x309, 5, HOST, 2, places[2]),
        ("Orders", 3, b"pay", labelled, 7, 0x309, 5, HOST, 2, places[1]),
        ("Orders", 3, b"pay", encode_properties(home), 7, 0x309, 5, HOST, 2, places[0]),
    ]
    wanted, starts, _, *derived = encode_records(drafts, 5 << 20, 1_700_000_000_009, HOST, NEXT, (), 4096)
    assert (records, runs, keys) == (wanted, *derived)
    assert (seen, decided, left) == (4, {20: 12, 19: 8, 18: 8, 17: 8}, [])
    assert tallies == [("Paid", 1, starts[1] - starts[0]), ("Orders", 2, (5 << 20) + len(records) - starts[1])]


@kernels
@pytest.mark.parametrize(
    "own",
    [
        PLACE | {"DELAY": "3"},
        PLACE | {"TIMER_DELAY_SEC": "3"},
        PLACE | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"},
        PLACE | {"PGROUP": "another"},
        PLACE | {"REAL_QID": "-1"},
        PLACE | {"REAL_TOPIC": "Bestände"},
        PLACE | {"REAL_TOPIC": "../elsewhere"},
        PLACE | {"REAL_TOPIC": ".."},
        *(PLACE | {"REAL_TOPIC": f"Or{letter}ders"} for letter in " ./:@[`{~\x7f"),
        PLACE | {"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX"},
        {"PGROUP": "pg"},
    ],
)
def test_the_end_of_a_half_message_that_needs_thought_is_left(kernel: Any, own: dict[str, str]) -> None:
    log, places = log_of(own)
    end = (places[0], 17, 8, False, b"pg")
    assert lay(kernel, log, entries_of(log, places), end) == (b"", [], b"", (1, {}, [], [end]))


@kernels
@pytest.mark.parametrize("end", [(BASE, 18), (BASE + 1, 17), (BASE - 1, 17), (BASE + 200, 17), (0, 17), (1 << 60, 17)])
def test_an_end_that_points_elsewhere_is_left(kernel: Any, end: tuple[int, int]) -> None:
    log, places = log_of(PLACE)
    whole = (*end, 8, False, b"pg")
    assert lay(kernel, log, entries_of(log, places), whole)[3] == (1, {}, [], [whole])
    claimed = ENTRY.pack(end[0], 100, 0)  # even if the half queue said so
    assert lay(kernel, log, claimed, whole)[3] == (1, {}, [], [whole])


@kernels
def test_a_damaged_one_a_foreign_one_and_one_behind_the_end_are_left(kernel: Any) -> None:
    log, places = log_of(PLACE)
    entries, end = entries_of(log, places), (places[0], 17, 8, False, b"pg")
    damaged = log.replace(b"pay", b"nay")
    assert lay(kernel, damaged, entries, end)[3] == (1, {}, [], [end])
    assert lay(kernel, log, entries, end, log_end=BASE + len(log) - 1)[3] == (1, {}, [], [end])
    foreign, _ = log_of(PLACE, topic="Orders")
    assert lay(kernel, foreign, entries, end)[3] == (1, {}, [], [end])
    assert lay(kernel, log, entries[:19], end)[3] == (1, {}, [], [end])


@kernels
def test_only_a_half_message_of_which_nothing_became_is_ended_and_only_once(kernel: Any) -> None:
    log, places = log_of(PLACE, PLACE, PLACE, PLACE)
    entries = entries_of(log, places)
    ends = [(place, 17 + i, 8, False, b"pg") for i, place in enumerate(places)]
    again = (places[3], 20, 12, False, b"pg")
    _, _, _, (seen, decided, _, left) = lay(kernel, log, entries, *ends, again, marks=bytes([1, 2, 8]))
    assert (seen, decided, left) == (5, {18: 8, 20: 8}, [ends[0], ends[2], again])
    _, _, _, (_, decided, _, left) = lay(kernel, log, entries, *ends, marks=b"\x00", first_mark=19)
    assert (decided, left) == ({19: 8, 20: 8}, ends[:2])


@kernels
def test_a_batch_ends_before_the_commit_that_would_make_it_too_long(kernel: Any) -> None:
    log, places = log_of(PLACE, PLACE, PLACE)
    ends = [(place, 17 + i, 8, False, b"pg") for i, place in enumerate(places)]
    size = len(log) // 3
    for size_max, count in ((2 * size, 2), (2 * size - 1, 1), (1, 1)):
        _, _, _, (seen, decided, _, left) = lay(kernel, log, entries_of(log, places), *ends, size_max=size_max)
        assert (seen, list(decided), left) == (count, [17, 18, 19][:count], [])


@given(
    st.binary(max_size=400),
    st.integers(-5, 400),
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255))),
    st.binary(max_size=4),
    st.integers(15, 19),
)
def test_whatever_the_log_holds_what_is_committed_is_the_draft_of_the_general_path(
    noise: bytes, at: int, wrong: list[tuple[int, int]], marks: bytes, first_mark: int
) -> None:
    log, places = log_of(PLACE, PLACE)
    damaged = bytearray(log + noise)
    for position, byte in wrong:
        damaged[position % len(damaged)] = byte
    entries = entries_of(log, places) + ENTRY.pack(BASE + at, 100, 0)
    ends = [(places[0], 17, 8, False, b"pg"), (places[1], 18, 8, False, b"pg"), (BASE + at, 19, 8, False, b"pg")]
    found = lay(compiled, bytes(damaged), entries, *ends, marks=marks, first_mark=first_mark)
    seen, decided, tallies, left = found[3]
    taken = [end for end in ends if end not in left]
    assert (seen, decided) == (3, {end[1]: end[2] for end in taken})
    drafts = [draft_of(bytes(damaged), end) for end in taken]
    meant = encode_records(drafts, 5 << 20, 1_700_000_000_009, HOST, NEXT, (), 1 << 31)
    assert found[:3] == (meant[0], meant[3], meant[4])
    assert (sum(tally[1] for tally in tallies), sum(tally[2] for tally in tallies)) == (len(taken), len(found[0]))


def draft_of(log: bytes, end: tuple[int, int, int, bool, bytes]) -> Draft:
    """What the general path stores for a commit of the half message there, which must be a good one."""
    position = end[0] - BASE
    half = read_half(memoryview(log)[position : position + int.from_bytes(log[position : position + 4], "big")])
    assert half is not None
    assert (half.physical_offset, half.queue_offset, half.properties["PGROUP"].encode()) == (*end[:2], end[4])
    place = real_place(half.properties)
    assert place is not None
    return committed(half, Destination(*place, half.properties))
