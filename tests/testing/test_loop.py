"""Virtual time: it jumps when all are idle, stands still while they work, and waits for sockets and threads."""

import asyncio
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.testing import NothingLeft, VirtualClock, VirtualLoop, run


def test_an_hour_passes_at_once_and_exactly() -> None:
    async def scenario() -> float:
        await asyncio.sleep(3600)  # virtual
        return asyncio.get_running_loop().time()

    began_s = time.monotonic()
    assert run(scenario()) == 3600
    assert time.monotonic() - began_s < 60


@given(delays=st.lists(st.floats(0, 1e6), max_size=20))
def test_timers_fire_in_their_order_and_at_their_time(delays: list[float]) -> None:
    fired: list[float] = []

    async def wait(delay_s: float) -> None:
        await asyncio.sleep(delay_s)  # virtual
        fired.append(asyncio.get_running_loop().time())

    async def scenario() -> None:
        await asyncio.gather(*(wait(delay_s) for delay_s in delays))

    run(scenario())
    assert fired == pytest.approx(sorted(delays), abs=1e-6)


def test_a_timeout_ends_a_wait_that_nothing_else_would() -> None:
    async def scenario() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(120):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    assert run(scenario()) == 120


def test_time_stands_still_while_sockets_are_at_work() -> None:
    async def scenario() -> tuple[bytes, float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(1):  # a jump would end it
            for _ in range(50):
                writer.write(bytes(20_000))
                await reader.readexactly(20_000)
            writer.write(b"last")
            writer.write_eof()
            last = await reader.read()
        writer.close()
        server.close()
        return last, asyncio.get_running_loop().time()

    assert run(scenario()) == (b"last", 0)


def test_work_in_a_thread_is_waited_for() -> None:
    release = threading.Event()

    async def scenario() -> bool:
        loop = asyncio.get_running_loop()
        threading.Timer(0.05, release.set).start()
        async with asyncio.timeout(1):
            return await loop.run_in_executor(None, release.wait)

    assert run(scenario())


def test_a_wait_for_nothing_is_told_and_not_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.testing.loop._HANG_S", 0.05)

    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingLeft, match="waiting: Task-"):
        run(scenario())


def test_a_call_from_another_thread_wakes_the_loop() -> None:
    async def scenario() -> str:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[str] = loop.create_future()
        threading.Timer(0.02, loop.call_soon_threadsafe, (told.set_result, "hello")).start()
        return await told

    assert run(scenario()) == "hello"


def test_the_clock_reads_the_loop_and_its_wall_can_be_set() -> None:
    async def scenario() -> None:
        clock = VirtualClock(now_ms=1_000_000)
        await asyncio.sleep(2.5)  # virtual
        assert (clock.now_ms(), clock.monotonic_s()) == (1_002_500, 2.5)
        clock.set_wall(500)
        assert (clock.now_ms(), clock.monotonic_s()) == (500, 2.5)
        await asyncio.sleep(1)  # virtual
        assert (clock.now_ms(), clock.monotonic_s()) == (1_500, 3.5)

    run(scenario())


def test_a_clock_can_be_made_before_its_loop_runs() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(5, loop)
    loop.run_until_complete(asyncio.sleep(1))  # virtual
    assert clock.now_ms() == 1_005
    loop.close()


def test_a_socket_that_stays_silent_does_not_stop_time() -> None:
    async def scenario() -> float:
        near, far = socket.socketpair()
        near.setblocking(False)
        with near, far, pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.get_running_loop().sock_recv(near, 1)
        return asyncio.get_running_loop().time()

    assert run(scenario()) == 30
