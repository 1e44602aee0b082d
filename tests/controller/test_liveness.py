"""Who is alive: heartbeats, connections, time-outs, and the patience of a controller that cannot know yet."""

import asyncio
from typing import Any, cast

from bolide.controller.elections import Health, Report
from bolide.controller.liveness import Liveness
from bolide.remoting.session import Session
from bolide.testing import VirtualClock
from tests.remoting.loops import virtual_time


class Line:
    """A connection, of which only its identity matters here."""

    peer = "127.0.0.1:1"

    def __lt__(self, other: object) -> bool:
        return False


def line() -> Session:
    return cast(Session, Line())


class Watched:
    """A table of lives, and who died in it."""

    def __init__(self, clock: Any) -> None:
        self.dead: list[tuple[str, int]] = []
        self.table = Liveness(clock, lambda name, member: self.dead.append((name, member)))

    def heard(self, member: int, session: Session, *report: int, timeout_ms: int | None = None) -> bool:
        return self.table.heard("g", member, Report(*report), timeout_ms, session)

    def health(self, *members: int) -> Health:
        return self.table.health("g", members)


@virtual_time
async def test_a_broker_dies_with_the_last_connection_that_carried_a_heartbeat() -> None:
    watched, first, second = Watched(VirtualClock()), line(), line()
    assert watched.heard(1, first, 1, 5)
    assert not watched.heard(1, second, 1, 6)
    watched.table.ended(first)
    assert watched.dead == []
    assert watched.health(1).reports == {1: Report(1, 6)}
    watched.table.ended(line())
    watched.table.ended(second)
    assert watched.dead == [("g", 1)]
    assert watched.health(1) == Health()
    assert watched.heard(1, line(), 0, 1)
    assert watched.health(1).reports == {1: Report(0, 1)}


@virtual_time
async def test_a_silent_broker_dies_by_its_own_time_out_and_not_before() -> None:
    clock = VirtualClock()
    watched = Watched(clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watched.table.expire_forever(), name="expire")
        watched.heard(1, line(), timeout_ms=2000)
        watched.heard(2, line())
        await asyncio.sleep(1.9)  # virtual
        assert watched.dead == []
        await asyncio.sleep(0.3)  # virtual
        assert watched.dead == [("g", 1)]
        await asyncio.sleep(7.7)  # virtual
        assert watched.dead == [("g", 1)]
        await asyncio.sleep(0.3)  # virtual
        assert watched.dead == [("g", 1), ("g", 2)]
        task.cancel()


@virtual_time
async def test_what_a_broker_says_of_its_log_moves_forward_until_it_begins_again() -> None:
    watched, session = Watched(VirtualClock()), line()
    watched.heard(1, session, 4, 90, 7)
    watched.heard(1, session, 4, 80, 6)
    watched.heard(1, session, 3, 99, 5)
    assert watched.health(1).reports == {1: Report(4, 90, 5)}
    watched.table.forget("g", 1)
    assert watched.health(1) == Health()
    watched.table.ended(session)
    assert watched.dead == []
    watched.heard(1, line(), 4, 10)
    assert watched.health(1).reports == {1: Report(4, 10)}


@virtual_time
async def test_a_controller_that_takes_over_misses_nobody_before_a_time_out_but_knows_who_hung_up() -> None:
    watched, session = Watched(VirtualClock()), line()
    watched.heard(1, session, 1, 1)
    watched.heard(2, line(), 1, 1)
    watched.table.ended(session)
    watched.table.be_patient()
    assert watched.health(1, 2, 3) == Health({2: Report(1, 1)}, frozenset({3}))
    await asyncio.sleep(10.1)  # virtual
    assert watched.health(1, 2, 3) == Health()


class JumpingClock(VirtualClock):
    """A clock that can leap, as it does for a process that was stopped."""

    leap_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.leap_s


@virtual_time
async def test_a_controller_that_stood_still_gives_everybody_another_time_out() -> None:
    clock = JumpingClock()
    watched = Watched(clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watched.table.expire_forever(), name="expire")
        session = line()
        watched.heard(1, session)
        await asyncio.sleep(1)  # virtual
        clock.leap_s = 3600.0
        await asyncio.sleep(1)  # virtual
        assert watched.dead == []
        assert 1 in watched.health(1).reports
        await asyncio.sleep(9.5)  # virtual
        assert watched.dead == [("g", 1)]
        task.cancel()


@virtual_time
async def test_a_time_out_without_end_and_connections_without_end_are_bounded() -> None:
    watched = Watched(VirtualClock())
    sessions = [line() for _ in range(50)]
    for session in sessions:
        watched.heard(1, session, timeout_ms=2**63 - 1)
    life = watched.table._lives["g", 1]
    assert (len(life.sessions), life.timeout_s) == (4, 600)
    assert len(watched.table._by_session) == 4
    watched.heard(1, sessions[-1], timeout_ms=-5)
    assert life.timeout_s == 0.1
    watched.table.drop("g", [1, 2])
    assert (watched.table._lives, watched.table._by_session) == ({}, {})
