"""Both streams to the byte, as unmodified Apache brokers sent them, and under every cut."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError
from bolide.ha.frames import (
    EPOCHS_MAX,
    Body,
    Epoch,
    Greeting,
    Head,
    PlainReports,
    Reports,
    Transfers,
    Welcome,
    greeting,
    head,
    plain_head,
    plain_report,
    report,
    welcome,
)

T = TypeVar("T")
OFFSETS = st.integers(0, (1 << 63) - 1)


def test_the_plain_stream_is_rocketmqs() -> None:
    assert plain_head(Head(0, 219)) == bytes.fromhex("0000000000000000 000000db")
    assert plain_head(Head(875, 0)) == bytes.fromhex("000000000000036b 00000000")
    assert plain_report(875) == bytes.fromhex("000000000000036b")


def test_the_autoswitch_stream_is_rocketmqs() -> None:
    assert greeting(Greeting(2)) == bytes.fromhex("00000001 0000 0000 0000000000000002")
    assert greeting(Greeting(3, True, True)) == bytes.fromhex("00000001 0001 0001 0000000000000003")
    told = bytes.fromhex("00000001 0000000c 0000000000000291 00000001 00000001 0000000000000000")
    assert welcome(0x291, [Epoch(1, 0)]) == told
    assert report(0x601) == bytes.fromhex("00000002 0000000000000601")
    transfer = bytes.fromhex("00000002 000000db 0000000000000291 00000001 0000000000000000 0000000000000291")
    assert head(Head(0x291, 0xDB, 1, 0, 0x291)) == transfer


def cut(stream: bytes, places: Iterable[int]) -> Iterator[bytes]:
    ends = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return (stream[start:end] for start, end in pairwise(ends))


def read(feed: Callable[[memoryview], Iterable[T]], pieces: Iterable[bytes]) -> list[T]:
    """What a reader finds; views are made lasting, for the reader's buffer is filled again."""
    found: list[T] = []
    for piece in pieces:
        for each in feed(memoryview(piece)):
            if isinstance(each, Body) and found and isinstance(before := found[-1], Body):
                found[-1] = Body(before.offset, memoryview(bytes(before.content) + each.content))  # type: ignore[assignment]
            else:
                found.append(each)
    return found


FRAMES = st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=60)), max_size=6)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=40)


@given(FRAMES, CUTS)
def test_the_plain_streams_frames_survive_any_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(plain_head(Head(offset, len(body))) + body for offset, body in frames)
    wanted = [each for offset, body in frames for each in parts(Head(offset, len(body)), body)]
    assert read(Transfers(is_plain=True).feed, cut(stream, cuts)) == wanted


@given(FRAMES, st.lists(OFFSETS, max_size=4), CUTS)
def test_the_autoswitch_streams_frames_survive_any_cut(
    frames: list[tuple[int, bytes]], starts: list[int], cuts: list[int]
) -> None:
    epochs = tuple(Epoch(number, start) for number, start in enumerate(sorted(starts)))
    heads = [Head(offset, len(body), 7, 11, offset) for offset, body in frames]
    stream = welcome(5, epochs) + b"".join(head(each) + body for each, (_, body) in zip(heads, frames, strict=True))
    wanted = [each for given, (_, body) in zip(heads, frames, strict=True) for each in parts(given, body)]
    assert read(Transfers(is_plain=False).feed, cut(stream, cuts)) == [Welcome(5, epochs), *wanted]


def parts(given: Head, body: bytes) -> list[Head | Body]:
    return [given, Body(given.offset, memoryview(body))] if body else [given]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=10), CUTS)
def test_reports_of_the_plain_stream_survive_any_cut(ends: list[int], cuts: list[int]) -> None:
    reader = PlainReports()
    pieces = cut(b"".join(map(plain_report, ends)), cuts)
    assert [end for piece in pieces for end in reader.feed(piece)] == ends


GREETINGS = st.builds(Greeting, st.integers(0, 1 << 40), st.booleans(), st.booleans())


@given(st.lists(st.one_of(OFFSETS, GREETINGS), max_size=10), CUTS)
def test_reports_and_greetings_of_the_autoswitch_stream_survive_any_cut(
    said: list[int | Greeting], cuts: list[int]
) -> None:
    reader = Reports()
    stream = b"".join(report(each) if isinstance(each, int) else greeting(each) for each in said)
    assert [each for piece in cut(stream, cuts) for each in reader.feed(piece)] == said


@given(st.booleans(), st.binary(max_size=200), CUTS)
def test_bytes_of_chance_are_read_or_refused_and_break_nothing(is_plain: bool, noise: bytes, cuts: list[int]) -> None:
    master = PlainReports() if is_plain else Reports()
    feeds: list[Callable[[memoryview], Iterable[object]]] = [
        Transfers(is_plain).feed,
        lambda piece: master.feed(bytes(piece)),
    ]
    for feed in feeds:
        try:
            found = read(feed, cut(noise, cuts))
        except ProtocolError:
            continue
        assert len(found) <= len(noise)


@pytest.mark.parametrize("size", [-1, -(1 << 31)])
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_frame_of_negative_size_is_refused(size: int, is_plain: bool) -> None:
    stream = plain_head(Head(0, size)) if is_plain else welcome(0, []) + head(Head(0, size, 1, 0, 0))
    with pytest.raises(ProtocolError, match="bytes at offset"):
        read(Transfers(is_plain).feed, [stream])


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_frame_of_any_size_is_passed_on_in_the_pieces_in_which_it_comes(is_plain: bool) -> None:
    size = (1 << 31) - 1
    opening = plain_head(Head(0, size)) if is_plain else welcome(0, []) + head(Head(0, size, 1, 0, 0))
    reader = Transfers(is_plain)
    read(reader.feed, [opening])
    for offset in (0, 3):
        assert list(reader.feed(memoryview(b"abc"))) == [Body(offset, memoryview(b"abc"))]


def test_a_heartbeat_may_have_no_offset_but_log_may_not() -> None:
    reader = Transfers(is_plain=False)
    heartbeat = Head(-1, 0, 1, 0, -1)
    assert read(reader.feed, [welcome(0, []), head(heartbeat)]) == [Welcome(0, ()), heartbeat]
    with pytest.raises(ProtocolError):
        read(reader.feed, [head(Head(-1, 4, 1, 0, 0))])


@pytest.mark.parametrize(
    "stream",
    [
        head(Head(0, 0, 1, 0, 0)),  # log before the epochs
        welcome(0, []) + welcome(0, []).ljust(36, b"\0"),  # epochs twice
        welcome(0, [])[:4] + (13).to_bytes(4, "big") + bytes(12),  # no whole number of epochs
        welcome(0, [])[:4] + (12 * (EPOCHS_MAX + 1)).to_bytes(4, "big") + bytes(12),
        welcome(0, [])[:4] + b"\xff\xff\xff\xf4" + bytes(12),
        welcome(0, [Epoch(2, 5), Epoch(1, 9)]),  # epochs that fall
        welcome(0, [Epoch(1, 9), Epoch(2, 5)]),  # and such that begin before the one before them
        welcome(-1, []),
        (9).to_bytes(4, "big") + bytes(32),
    ],
)
def test_a_master_that_leaves_the_order_of_the_stream_is_refused(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(Transfers(is_plain=False).feed, [stream])


@pytest.mark.parametrize("state", [0, 3, 4, 5, -1, 0x50524F58])
def test_a_slave_in_an_unknown_state_is_refused(state: int) -> None:
    with pytest.raises(ProtocolError, match=f"state {state}"):
        list(Reports().feed(state.to_bytes(4, "big", signed=True) + bytes(12)))


def test_of_many_epochs_the_newest_are_told() -> None:
    epochs = [Epoch(number, number) for number in range(EPOCHS_MAX + 5)]
    (found,) = read(Transfers(is_plain=False).feed, [welcome(9, epochs)])
    assert found == Welcome(9, tuple(epochs[5:]))
