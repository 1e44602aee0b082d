"""Ends of transactions out of reads, half messages out of the log: both kernels say the same, and believe no length."""

import importlib
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.kernel import plain, plain_ends
from bolide.kernel.plain_records import lay_records
from bolide.protocol.properties import encode_properties

compiled_ends: Any
try:
    compiled_ends = importlib.import_module("bolide.kernel.compiled_ends")
except ImportError:
    if os.environ.get("BOLIDE_KERNEL") == "compiled":
        raise
    compiled_ends = None

available = [plain_ends] if compiled_ends is None else [plain_ends, compiled_ends]
kernels = pytest.mark.parametrize("kernel", available, ids=lambda kernel: kernel.__name__.rpartition(".")[2])
twins = pytest.mark.skipif(compiled_ends is None, reason="the compiled kernel was not built; run make build")

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


def frame(code: int = 37, flag: int = 2, codec: int = 0, remark: str | None = None, **changes: str) -> bytes:
    fields = {name: text for name, text in (USUAL | changes).items() if text != "-"}
    return plain.write_frames([(codec, code, 3, 479, 9, flag, remark, fields, b"")])


def read(kernel: Any, stream: bytes) -> Any:
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    return kernel.read_ends(stream, bounds)


@kernels
def test_one_way_ends_are_taken_and_all_else_is_left(kernel: Any) -> None:
    others = (frame(flag=0), frame(code=310), frame(flag=3), frame(commitOrRollback="0"), frame(commitLogOffset="-1"))
    wrong = (frame(msgId="-"), frame(producerGroup="-"), frame(fromTransactionCheck="maybe"), frame(topic="Käse"))
    taken = (frame(), frame(commitOrRollback="12", fromTransactionCheck="true"), frame(fromTransactionCheck="-"))
    stream = b"".join((*taken, *others, *wrong))
    ends, left = read(kernel, stream)
    assert ends == [(4096, 17, 8, False, b"pg"), (4096, 17, 12, True, b"pg"), (4096, 17, 8, False, b"pg")]
    assert len(left) == 2 * len(others + wrong)


@twins
@settings(max_examples=100)
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
def test_what_the_compiled_one_takes_the_plain_one_takes_alike(
    frames: list[bytes], wrong: list[tuple[int, int]]
) -> None:
    stream = bytearray(b"".join(frames))
    for at, byte in wrong:
        if stream:
            stream[at % len(stream)] = byte
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    ends, left = compiled_ends.read_ends(bytes(stream), bounds)
    gone = set(left)
    kept = [place for i in range(0, len(bounds), 2) if bounds[i] not in gone for place in bounds[i : i + 2]]
    assert plain_ends.read_ends(bytes(stream), kept) == (ends, [])
    assert set(plain_ends.read_ends(bytes(stream), bounds)[1]) <= gone


def log_of(*halves: dict[str, str], topic: str = HALF, body: bytes = b"pay") -> tuple[bytes, list[int]]:
    drafts = [(topic, 0, body, encode_properties(each), 7, 0x301, 5, HOST, 2, 0) for each in halves]
    records, places, *_ = lay_records(drafts, BASE, 1_700_000_000_000, HOST, {(topic, 0): 17}, (), 4096)
    return records, list(places)


@kernels
def test_a_half_message_becomes_the_message_it_stands_for(kernel: Any) -> None:
    log, places = log_of(PLACE, PLACE | {"TAGS": "A"})
    ends = [(places[1], 18, 8, False, b"pg"), (places[0], 17, 12, True, b"pg")]
    second, first = kernel.commit_drafts(log, BASE, BASE + len(log), ends)
    assert first == ("Orders", 3, b"pay", encode_properties(PLACE), 7, 0x309, 5, HOST, 2, BASE)
    assert second[3] == encode_properties(PLACE | {"TAGS": "A"})
    assert second[9] == places[1]


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
        {"PGROUP": "pg"},
    ],
)
def test_a_half_message_that_needs_thought_is_none(kernel: Any, own: dict[str, str]) -> None:
    log, places = log_of(own)
    assert kernel.commit_drafts(log, BASE, BASE + len(log), [(places[0], 17, 8, False, b"pg")]) == [None]


@kernels
@pytest.mark.parametrize("end", [(BASE, 18), (BASE + 1, 17), (BASE - 1, 17), (BASE + 200, 17), (0, 17), (1 << 60, 17)])
def test_an_end_that_points_elsewhere_is_none(kernel: Any, end: tuple[int, int]) -> None:
    log, _ = log_of(PLACE)
    assert kernel.commit_drafts(log, BASE, BASE + len(log), [(*end, 8, False, b"pg")]) == [None]


@kernels
def test_a_damaged_one_a_foreign_one_and_one_behind_the_end_are_none(kernel: Any) -> None:
    log, places = log_of(PLACE)
    end = [(places[0], 17, 8, False, b"pg")]
    damaged = log.replace(b"pay", b"nay")
    assert kernel.commit_drafts(damaged, BASE, BASE + len(log), end) == [None]
    assert kernel.commit_drafts(log, BASE, BASE + len(log) - 1, end) == [None]
    foreign, _ = log_of(PLACE, topic="Orders")
    assert kernel.commit_drafts(foreign, BASE, BASE + len(foreign), end) == [None]


@twins
@given(st.binary(max_size=400), st.integers(-5, 400), st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255))))
def test_no_wrong_byte_makes_the_kernels_differ(noise: bytes, at: int, wrong: list[tuple[int, int]]) -> None:
    log, places = log_of(PLACE, PLACE)
    damaged = bytearray(log + noise)
    for position, byte in wrong:
        damaged[position % len(damaged)] = byte
    ends = [(places[0], 17, 8, False, b"pg"), (places[1], 18, 8, False, b"pg"), (BASE + at, 17, 8, False, b"pg")]
    arguments = (bytes(damaged), BASE, BASE + len(damaged), ends)
    assert plain_ends.commit_drafts(*arguments) == compiled_ends.commit_drafts(*arguments)
