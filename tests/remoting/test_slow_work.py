"""SlowWork: long work goes round the connections, has a bounded share of the loop, and a bounded queue."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import pytest

from bolide.clock import SystemClock
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.remoting import slow_work as slow_work_module
from bolide.remoting.slow_work import TURN_S, SlowWork
from bolide.testing import VirtualClock
from tests.remoting.loops import both_loops, eventually, virtual_time


@dataclass(eq=False)
class Guest:
    name: str = ""
    origin: str = "10.0.0.1"
    has_hung_up: bool = False


class WorkClock(VirtualClock):
    """Virtual time in which work takes what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.worked_s = 0.0
        self.done: list[str] = []

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.worked_s

    async def work(self, turns: SlowWork, guest: Guest, piece_count: int, piece_s: float = TURN_S) -> None:
        with turns.place(guest) as place:
            for _ in range(piece_count):
                await place.turn()
                self.worked_s += piece_s
                self.done.append(guest.name)


@virtual_time
async def test_work_alone_begins_at_once() -> None:
    clock = WorkClock()
    turns = SlowWork(clock)
    began_s = asyncio.get_running_loop().time()
    await clock.work(turns, Guest("a"), 1)
    assert asyncio.get_running_loop().time() == began_s
    assert turns.count == 0


@virtual_time
async def test_turns_go_round_the_connections_whatever_each_has() -> None:
    clock = WorkClock()
    turns = SlowWork(clock)
    many, one = Guest("many"), Guest("one")
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(clock.work(turns, many, 4))
        await asyncio.sleep(0)
        group.create_task(clock.work(turns, one, 4))
    last = max(at for at, name in enumerate(clock.done) if name == "one")
    assert len(clock.done) == 204
    assert last <= 10


@virtual_time
async def test_an_address_with_many_connections_has_no_more_turns_than_one_with_one() -> None:
    clock = WorkClock()
    turns = SlowWork(clock)
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(clock.work(turns, Guest("crowd"), 4))
        await asyncio.sleep(0)
        group.create_task(clock.work(turns, Guest("alone", "10.0.0.2"), 4))
    assert max(at for at, name in enumerate(clock.done) if name == "alone") <= 10


@virtual_time
async def test_all_of_it_together_has_a_fifth_of_the_time() -> None:
    clock = WorkClock()
    turns = SlowWork(clock)
    began_s = clock.monotonic_s()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(clock.work(turns, Guest(), 10))
    assert 100 * TURN_S * 4.5 <= clock.monotonic_s() - began_s <= 100 * TURN_S * 6


@virtual_time
async def test_beyond_its_share_a_connection_is_told_that_we_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_work_module, "PLACES_BY_CONNECTION_MAX", 2)
    turns, guest = SlowWork(WorkClock()), Guest()
    with turns.place(guest), turns.place(guest), pytest.raises(Refusal) as refused:
        turns.place(guest)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert turns.count == 0


@virtual_time
async def test_when_all_places_are_taken_the_newest_of_the_largest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_work_module, "PLACES_MAX", 8)
    monkeypatch.setattr(slow_work_module, "PLACES_BY_CONNECTION_MAX", 8)
    clock = WorkClock()
    turns, many, one = SlowWork(clock), Guest("many"), Guest("one")
    tasks = [asyncio.ensure_future(clock.work(turns, many, 4)) for _ in range(8)]
    await asyncio.sleep(0)
    await clock.work(turns, one, 4)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, Refusal)]
    assert refused
    assert ends[0] is None
    assert isinstance(ends[-1], Refusal)
    assert turns.count == 0


@virtual_time
async def test_one_that_is_cancelled_while_it_waits_or_works_leaves_its_place() -> None:
    clock = WorkClock()
    turns = SlowWork(clock)
    working, waiting, last = (asyncio.ensure_future(clock.work(turns, Guest(), 100)) for _ in range(3))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    working.cancel()
    await last
    assert turns.count == 0
    assert clock.done.count("") >= 100


@both_loops
async def test_work_in_a_thread_runs_in_turns_too() -> None:
    turns, other = SlowWork(SystemClock()), Guest("other")
    steps: list[int] = []
    seen: list[int] = []

    async def read(number: int) -> None:
        with turns.place(Guest()) as place:
            breathe = place.breather()

            def work() -> None:
                for _ in range(20_000):
                    steps.append(number)
                    breathe()

            await place.in_thread(work)

    async def look() -> None:
        with turns.place(other) as place:
            while len(steps) < 40_000:
                await place.turn()
                seen.append(len(steps))

    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(read(number))
        group.create_task(look())
    assert {*steps[:39_000]} == {0, 1}
    assert len(set(seen)) > 2
    await eventually(lambda: turns.count == 0)


@virtual_time
async def test_a_large_body_takes_as_many_places_as_it_is_heavy() -> None:
    turns = SlowWork(WorkClock())
    guest = Guest()
    with turns.place(guest, 1 << 20) as first:
        assert turns.count == first.weight == 33
        with pytest.raises(Refusal) as refused:
            turns.place(guest, 1 << 20)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        with turns.place(guest):
            assert turns.count == 34
    assert turns.count == 0


@virtual_time
async def test_large_bodies_of_many_connections_are_bounded_in_all_and_who_came_last_is_not_refused() -> None:
    turns = SlowWork(WorkClock())
    heavy = [Guest(f"{n}") for n in range(100)]

    async def wait(guest: Guest) -> None:
        with turns.place(guest, 2_000_000) as place:
            await place.turn()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_refused(wait(guest))) for guest in heavy]
        await asyncio.sleep(0)
        assert turns.count <= slow_work_module.PLACES_MAX
        with turns.place(Guest("late")):
            assert turns.count <= slow_work_module.PLACES_MAX
        for task in tasks:
            task.cancel()


async def _refused(work: Coroutine[None, None, None]) -> None:
    with contextlib.suppress(Refusal):
        await work


async def _in_thread(turns: SlowWork, guest: Guest, work: Callable[[Callable[[], None]], None]) -> None:
    with turns.place(guest) as place:
        breathe = place.breather()
        await place.in_thread(lambda: work(breathe))


@both_loops
async def test_more_work_than_there_are_threads_is_all_done() -> None:
    turns = SlowWork(SystemClock())
    done: list[None] = []

    def work(breathe: Callable[[], None]) -> None:
        for _ in range(30_000):
            breathe()
        done.append(None)

    async with asyncio.TaskGroup() as group:  # `both_loops` has the limit
        for _ in range(3 * slow_work_module.THREADS_MAX):
            group.create_task(_in_thread(turns, Guest(), work))
    assert len(done) == 3 * slow_work_module.THREADS_MAX
    assert turns.count == 0


@both_loops
async def test_work_in_a_thread_ends_when_its_connection_has_left() -> None:
    turns, begun, ended = SlowWork(SystemClock()), threading.Event(), threading.Event()

    def endless(breathe: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                breathe()
        finally:
            ended.set()

    tasks = [asyncio.ensure_future(_in_thread(turns, Guest(f"{n}"), endless)) for n in range(2)]
    await eventually(begun.is_set)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await eventually(ended.is_set)
    await asyncio.to_thread(turns.threads.shutdown)  # waits for them all
    assert turns.count == 0


@virtual_time
async def test_work_of_a_peer_that_has_hung_up_ends_at_its_next_turn() -> None:
    clock = WorkClock()
    turns, guest = SlowWork(clock), Guest()
    work = asyncio.ensure_future(clock.work(turns, guest, 100))
    await eventually(lambda: len(clock.done) > 3)
    done_count, guest.has_hung_up = len(clock.done), True
    with pytest.raises(Refusal):
        await work
    assert len(clock.done) <= done_count + 1 < 100
    assert turns.count == 0


@both_loops
async def test_an_address_does_not_have_all_threads() -> None:
    turns, may_end = SlowWork(SystemClock()), threading.Event()
    begun: list[None] = []

    def hold(breathe: Callable[[], None]) -> None:
        begun.append(None)
        while not may_end.is_set():
            breathe()

    tasks = [asyncio.ensure_future(_in_thread(turns, Guest(), hold)) for _ in range(2 * slow_work_module.THREADS_MAX)]
    await eventually(lambda: len(begun) == slow_work_module.THREADS_BY_ADDRESS_MAX)
    async with asyncio.timeout(20):
        await _in_thread(turns, Guest(origin="10.0.0.2"), lambda breathe: breathe())
    assert len(begun) == slow_work_module.THREADS_BY_ADDRESS_MAX
    may_end.set()
    await asyncio.gather(*tasks)
