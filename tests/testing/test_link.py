"""The link between two ends: what it delivers, holds back, delays and breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.remoting.address import split_address
from bolide.testing import Link, open_link, run
from tests.remoting.loops import both_loops, eventually, virtual_time


class End:
    """One end of a connection, which keeps what it heard."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def is_reset(self) -> bool:
        try:
            return await self.reader.read() is None
        except ConnectionResetError:
            return True


@asynccontextmanager
async def both_ends() -> AsyncIterator[tuple[Link, End, End]]:
    """A link, the end that connected through it and the end that was reached."""
    reached: asyncio.Queue[End] = asyncio.Queue()
    server = await asyncio.start_server(lambda r, w: reached.put_nowait(End(r, w)), "127.0.0.1", 0)
    async with open_link("{}:{}".format(*server.sockets[0].getsockname())) as link:
        near = End(*await asyncio.open_connection(*split_address(link.address)))
        far = await reached.get()
        yield link, near, far
        for end in (near, far):
            end.writer.close()
    server.close()
    while not reached.empty():
        reached.get_nowait().writer.close()


@both_loops
async def test_bytes_pass_in_both_directions_and_so_does_the_end() -> None:
    async with both_ends() as (link, near, far):
        near.writer.write(b"ping")
        assert await far.reader.readexactly(4) == b"ping"
        far.writer.write(b"x" * 1_000_000)
        assert await near.reader.readexactly(1_000_000) == b"x" * 1_000_000
        assert link.connection_count == 1
        near.writer.write_eof()
        assert await far.reader.read() == b""
        far.writer.write(b"still")
        assert await near.reader.readexactly(5) == b"still"
        far.writer.close()
        assert await near.reader.read() == b""
        await eventually(lambda: link.connection_count == 0)


@virtual_time
async def test_a_delay_holds_every_byte_for_its_time_and_keeps_the_order() -> None:
    async with both_ends() as (link, near, far):
        loop = asyncio.get_running_loop()
        link.delay_s = 2
        for n in range(3):
            near.writer.write(b"%d" % n)
            await asyncio.sleep(1)  # virtual
        arrivals = [(await far.reader.readexactly(1), loop.time()) for _ in range(3)]
        assert [byte for byte, _ in arrivals] == [b"0", b"1", b"2"]
        assert [at_s for _, at_s in arrivals] == pytest.approx([3, 3, 4])


@virtual_time
async def test_a_throttled_link_takes_its_time() -> None:
    async with both_ends() as (link, near, far):
        link.bytes_per_s = 1_000
        near.writer.write(bytes(5_000))
        await far.reader.readexactly(5_000)
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)


@virtual_time
async def test_a_halved_link_delivers_half_and_then_nothing_until_it_heals() -> None:
    async with both_ends() as (link, near, far):
        link.halve()
        near.writer.write(b"12345678")
        assert await far.reader.readexactly(4) == b"1234"
        near.writer.write(b"9")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_000):
                await far.reader.read(1)
        link.heal()
        assert await far.reader.readexactly(5) == b"56789"


@virtual_time
async def test_a_frozen_link_tells_nobody_not_even_of_the_end() -> None:
    async with both_ends() as (link, near, far):
        link.freeze()
        near.writer.write(b"unheard")
        near.writer.close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_000):
                await far.reader.read(1)
        link.heal()
        assert await far.reader.read() == b"unheard"


@both_loops
async def test_a_cut_reaches_both_ends_also_through_a_frozen_link() -> None:
    for freeze in (False, True):
        async with both_ends() as (link, near, far):
            near.writer.write(b"x")
            await far.reader.readexactly(1)
            if freeze:
                link.freeze()
                near.writer.write(b"never arrives")
            link.cut()
            assert await near.is_reset()
            assert await far.is_reset()
            await eventually(lambda: link.connection_count == 0)


@both_loops
async def test_who_connects_after_a_cut_is_carried_and_while_down_turned_away() -> None:
    async with both_ends() as (link, near, far):
        near.writer.write(b"x")
        await far.reader.readexactly(1)
        link.cut()
        assert await far.is_reset()
        again = End(*await asyncio.open_connection(*split_address(link.address)))
        await eventually(lambda: link.connection_count == 1)
        link.is_down = True
        refused = End(*await asyncio.open_connection(*split_address(link.address)))
        assert await refused.is_reset()
        link.heal()
        assert not link.is_down
        for end in (again, refused):
            end.writer.close()


@both_loops
async def test_a_link_to_nowhere_resets_who_connects() -> None:
    async with open_link("127.0.0.1:1") as link:
        end = End(*await asyncio.open_connection(*split_address(link.address)))
        assert await end.is_reset()
        end.writer.close()


@settings(max_examples=20, deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=3_000), max_size=8), at=st.integers(0, 8))
def test_no_byte_is_lost_or_moved_by_faults_that_heal(chunks: list[bytes], at: int) -> None:
    async def scenario() -> None:
        async with both_ends() as (link, near, far):
            for n, chunk in enumerate(chunks):
                if n == at:
                    link.halve()
                near.writer.write(chunk)
                await asyncio.sleep(0.1)  # virtual
            link.delay_s, link.bytes_per_s = 0.3, 5_000
            link.heal()
            near.writer.write_eof()
            assert await far.reader.read() == b"".join(chunks)

    run(scenario())
