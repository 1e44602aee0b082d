"""Frames that have begun: what they take together, how long each may last, and who is hung up on."""

import asyncio
import gc
import logging
import socket
import tracemalloc

import pytest

from bolide.protocol.frames import READ_SIZE
from bolide.remoting.dozing import DOZING_MAX
from bolide.remoting.server import Server
from bolide.remoting.sparse import BURST_COUNT, Sparse
from bolide.remoting.unfinished import LOOSE_COUNT_MAX, Unfinished
from bolide.testing.loop import VirtualClock
from tests.remoting.ends import Peer, Table, request_of, served
from tests.remoting.loops import both_loops, eventually, virtual_time

FRAME_SIZE_MAX = 1 << 20
OURS = [tracemalloc.Filter(False, each) for each in (__file__, tracemalloc.__file__)]


def beginning(size: int, announced: int = FRAME_SIZE_MAX - 4) -> bytes:
    """So many bytes of a frame that is said to be longer."""
    return (announced.to_bytes(4, "big") + (10).to_bytes(4, "big")).ljust(size, b"x")[:size]


def unfinished_of(server: Server) -> Unfinished:
    assert server.shared.unfinished is not None
    return server.shared.unfinished


@both_loops
async def test_hundreds_of_beginnings_of_twenty_bytes_take_little_more_than_that() -> None:
    count = LOOSE_COUNT_MAX + DOZING_MAX
    async with served(Table()) as server:
        peers = [await Peer.connect(server.port) for _ in range(count)]
        for peer in peers:
            peer.send(beginning(20))
        await eventually(
            lambda: len(server.sessions) == count and all(s.reader.held_size == 20 for s in server.sessions)
        )
        expected = DOZING_MAX * 20 + LOOSE_COUNT_MAX * READ_SIZE
        await eventually(lambda: sum(session.held_size for session in server.sessions) == expected)  # the rest dozes
        assert unfinished_of(server).size == expected
        for peer in peers:
            peer.leave()
        await eventually(lambda: unfinished_of(server).size == 0)


@both_loops
async def test_a_connection_that_says_little_is_few_objects() -> None:
    """Seen: 5.0 KB with uvloop. As long as each had a group of tasks and functions of its own it was 8."""
    count = 100
    peers = []

    async def taken_with_more(server: Server) -> int:
        for _ in range(count):
            peers.append(socket.create_connection(("127.0.0.1", server.port)))
            peers[-1].sendall(beginning(20))
            await asyncio.sleep(0)  # it is accepted
        await eventually(lambda: sum(s.reader.held_size == 20 for s in server.sessions) == len(peers))
        gc.collect()
        return sum(each.size for each in tracemalloc.take_snapshot().filter_traces(OURS).traces)

    tracemalloc.start()
    try:
        async with served(Table()) as server:
            first = await taken_with_more(server)  # with what all of them share
            size = (await taken_with_more(server) - first) / count
            assert size < 6_000
    finally:
        tracemalloc.stop()
        for peer in peers:
            peer.close()


@both_loops
async def test_when_the_room_for_unfinished_frames_is_spent_the_largest_is_hung_up_on() -> None:
    settings = {"frame_size_max": FRAME_SIZE_MAX, "unfinished_size_max": FRAME_SIZE_MAX + READ_SIZE}
    async with served(Table(), **settings) as server:
        small, large, last = [await Peer.connect(server.port) for _ in range(3)]
        small.send(beginning(100))
        large.send(beginning(700_000))
        await eventually(lambda: sum(session.reader.held_size for session in server.sessions) == 700_100)
        last.send(beginning(200_000))
        await large.end()
        await eventually(lambda: sum(session.reader.held_size for session in server.sessions) == 200_100)
        assert unfinished_of(server).size <= settings["unfinished_size_max"]
        for peer in (small, last):
            peer.leave()


@virtual_time
async def test_a_frame_that_hardly_comes_is_hung_up_on_and_a_slow_one_is_not() -> None:
    table = Table()
    async with served(table, VirtualClock(), frame_free_s=10, frame_rate_min=1_000) as server:
        trickling, slow = await Peer.connect(server.port), await Peer.connect(server.port)
        whole = request_of(1, bytes(60_000)).encode()
        for at in range(0, len(whole), 3_000):
            slow.send(whole[at : at + 3_000])
            trickling.send(b"\0" if at else beginning(9))
            await asyncio.sleep(2)  # virtual
        assert (await slow.answers(1))[0].body == bytes(60_000)
        assert await trickling.end() == b""
        assert [why for _, why in table.gone] == ["an unfinished frame"]


@virtual_time
async def test_frames_that_follow_each_other_have_their_time_each() -> None:
    async with served(Table(), VirtualClock(), frame_free_s=10, frame_rate_min=1_000) as server:
        peer = await Peer.connect(server.port)
        whole = request_of(1).encode()
        for number in range(20):  # each read ends one frame and begins the next
            peer.send(whole[-9:] if number else b"", whole[:-9])
            await asyncio.sleep(4)  # virtual
        peer.send(whole[-9:])
        assert len(await peer.answers(20)) == 20


@both_loops
async def test_a_header_beyond_its_bound_ends_the_connection_before_it_has_come() -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        announced = 14 << 20
        peer.send((announced + 4).to_bytes(4, "big"), announced.to_bytes(4, "big"), bytes(READ_SIZE))
        assert await peer.end() == b""
        assert unfinished_of(server).size == 0


def line(text: str, at_s: float, *values: object) -> logging.LogRecord:
    record = logging.LogRecord("a", logging.WARNING, "a.py", 1, text, values, None)
    record.created = at_s
    return record


def test_lines_that_a_flood_causes_are_few_and_the_next_says_how_many_were_left_out() -> None:
    sparse = Sparse()
    assert sum(sparse.filter(line("closed %s", 1.0, n)) for n in range(10_000)) == BURST_COUNT
    assert sparse.filter(line("another kind", 1.0))
    later = line("closed %s", 3.0, "x")
    assert sparse.filter(later)
    assert later.getMessage() == "closed x (and 9900 such lines before it that were left out)"
    assert sum(sparse.filter(line("closed %s", 3.0, n)) for n in range(10)) == 3


@pytest.mark.parametrize("steps_back", [0.0, 5.0])
def test_a_clock_that_is_set_back_silences_nothing(steps_back: float) -> None:
    sparse = Sparse()
    assert sparse.filter(line("closed", 100.0))
    assert all(sparse.filter(line("closed", 100.0 - steps_back)) for _ in range(BURST_COUNT - 1))


@both_loops
async def test_a_flood_of_nonsense_writes_less_log_than_it_sends(caplog: pytest.LogCaptureFixture) -> None:
    sent = 0
    with caplog.at_level(logging.INFO, "bolide.remoting"):
        async with served(Table()) as server:
            for _ in range(1_000):
                peer = await Peer.connect(server.port)
                peer.send(b"nonsense" * 4)
                sent += 32
                assert await peer.end() == b""
    assert sum(len(record.getMessage()) for record in caplog.records) < sent
