"""Who has acknowledged how much, and who is told of it."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError
from bolide.ha.acks import Acks, Count, Members
from tests.remoting.loops import virtual_time


@dataclass(eq=False)
class Slave:
    host: str = "10.0.0.1"
    slave_id: int | None = None
    is_learner: bool = False


def acks_of(own_end: int = 1_000, *slaves: Slave) -> Acks:
    acks = Acks(lambda: own_end)
    for slave in slaves:
        acks.joined(slave)
    return acks


@pytest.mark.feature("F197")
@virtual_time
async def test_a_waiter_is_told_when_enough_slaves_have_the_log_so_far_and_not_before() -> None:
    first, second = Slave("10.0.0.1"), Slave("10.0.0.2")
    acks = acks_of(1_000, first, second)
    acks.policy = Count(2)
    waiter = acks.wait(500)
    acks.reported(first, 1_000)
    acks.reported(second, 499)
    assert not waiter.done()
    assert acks.reached == 499
    acks.reported(second, 500)
    assert waiter.done()
    assert acks.wait(500).done()
    assert not acks.wait(501).done()


@virtual_time
async def test_nobody_is_waited_for_where_the_policy_asks_for_none() -> None:
    acks = acks_of(1_000)
    assert acks.wait(1_000).done()
    acks.policy = Members(frozenset())
    assert acks.wait(1_000).done()
    assert acks.reached == 1_000


@virtual_time
async def test_all_members_are_waited_for_and_others_count_for_nothing() -> None:
    two, three, four = Slave(slave_id=2), Slave(slave_id=3), Slave(slave_id=4)
    acks = acks_of(1_000, two, four)
    acks.policy = Members(frozenset({2, 3}))
    waiter = acks.wait(10)
    acks.reported(two, 10)
    acks.reported(four, 10)
    assert not waiter.done()
    assert acks.reached == 0
    acks.joined(three)
    acks.reported(three, 10)
    assert waiter.done()
    assert acks.reached == 10


@virtual_time
async def test_another_policy_looks_again_at_those_who_wait_and_takes_nothing_back() -> None:
    slave = Slave(slave_id=2)
    acks = acks_of(1_000, slave)
    acks.policy = Count(2)
    acks.reported(slave, 300)
    waiter, far = acks.wait(300), acks.wait(301)
    assert not waiter.done()
    acks.policy = Count(1)
    assert waiter.done()
    assert not far.done()
    acks.policy = Members(frozenset({2, 3}))
    assert acks.reached == 300
    assert not acks.wait(300).done(), "a stricter policy holds for all who wait"


@virtual_time
async def test_what_was_reached_stays_when_a_slave_goes() -> None:
    slave = Slave(slave_id=2)
    acks = acks_of(1_000, slave)
    acks.policy = Members(frozenset({2}))
    acks.reported(slave, 300)
    acks.left(slave)
    assert acks.reached == 300
    assert acks.ends == []
    assert acks.end_of(2) is None


@pytest.mark.parametrize("end", [1_001, 10**15, (1 << 63) - 1, -1, -(1 << 63)])
@virtual_time
async def test_a_report_of_what_we_do_not_have_is_refused_and_counts_nothing(end: int) -> None:
    slave = Slave()
    acks = acks_of(1_000, slave)
    acks.policy = Count(1)
    acks.reported(slave, 5)
    waiter = acks.wait(6)
    with pytest.raises(ProtocolError, match="ours ends at 1000"):
        acks.reported(slave, end)
    assert not waiter.done()
    assert (acks.reached, acks.ends) == (5, [5])


@virtual_time
async def test_a_slave_with_an_id_that_connects_twice_replaces_its_older_connection() -> None:
    old, new = Slave(slave_id=2), Slave(slave_id=2)
    acks = acks_of(1_000, old)
    acks.policy = Count(2)
    acks.reported(old, 10)
    assert acks.joined(new) == [old]
    acks.reported(new, 10)
    acks.reported(old, 10)  # bytes of its that were still on the way
    assert acks.ends == [10]
    acks.left(old)
    assert acks.ends == [10]


@virtual_time
async def test_a_half_open_connection_from_the_same_host_does_not_count_beside_its_successor() -> None:
    stale, new = Slave(), Slave()
    acks = acks_of(1_000, stale)
    acks.policy = Count(2)
    acks.reported(stale, 10)
    waiter = acks.wait(10)
    assert acks.joined(new) == []
    acks.reported(new, 10)
    assert not waiter.done(), "it is one slave"
    acks.reported(stale, 10)
    assert waiter.done(), "who reports again is another slave of that host"


@virtual_time
async def test_learners_are_never_waited_for() -> None:
    learner = Slave(slave_id=5, is_learner=True)
    acks = acks_of(1_000, learner)
    acks.policy = Count(1)
    waiter = acks.wait(10)
    acks.reported(learner, 10)
    assert not waiter.done()
    assert acks.in_sync_count(1 << 28) == 0


@virtual_time
async def test_slaves_near_the_end_are_in_sync() -> None:
    near, far = Slave("a"), Slave("b")
    acks = acks_of(1_000, near, far)
    acks.reported(near, 901)
    acks.reported(far, 900)
    assert (acks.in_sync_count(100), acks.in_sync_count(101), acks.in_sync_count(0)) == (1, 2, 0)


@virtual_time
async def test_losing_the_role_cancels_all_who_wait() -> None:
    slave = Slave()
    acks = acks_of(1_000, slave)
    acks.policy = Count(1)
    acks.reported(slave, 5)
    waiters = [acks.wait(end) for end in (9, 7, 8)]
    acks.fail_all()
    assert all(waiter.cancelled() for waiter in waiters)
    assert acks.reached == 5, "of the slaves that are still there"
    acks.left(slave)
    acks.fail_all()
    assert acks.reached == 0


@virtual_time
async def test_named_slaves_are_waited_for_whatever_the_policy_and_judged_by_who_is_named_then() -> None:
    first, second = Slave(slave_id=2), Slave(slave_id=3)
    acks = acks_of(1_000, first, second)
    named = frozenset({2})
    waiter, lost = acks.wait_for(lambda: named, 500), acks.wait_for(lambda: frozenset({4}), 1)
    named = frozenset({2, 3})
    acks.reported(first, 500)
    assert not waiter.done()
    acks.reported(second, 499)
    assert not waiter.done()
    acks.reported(second, 500)
    assert waiter.done()
    assert acks.wait_for(lambda: named, 500).done()
    assert not lost.done()
    acks.fail_all()
    assert lost.cancelled()


@virtual_time
async def test_waiters_whose_time_ran_out_do_not_pile_up() -> None:
    acks = acks_of(1_000_000)
    acks.policy = Count(1)
    for end in range(1_000):
        acks.wait(end).cancel()
    assert len(acks._waiters) <= 1


@virtual_time
async def test_each_change_is_told() -> None:
    told: list[int] = []
    slave = Slave()
    acks = acks_of(1_000)
    acks.listen(lambda: told.append(acks.reached))
    acks.policy = Count(1)
    acks.joined(slave)
    acks.reported(slave, 7)
    acks.left(slave)
    acks.left(slave)
    assert told == [0, 0, 7, 7]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=40), st.integers(1, 4))
def test_a_waiter_is_done_if_and_only_if_so_many_slaves_had_it_at_once(
    reports: list[tuple[int, int]], wanted_count: int
) -> None:
    async def body() -> None:
        slaves = [Slave(str(number)) for number in range(4)]
        acks = acks_of(100, *slaves)
        acks.policy = Count(wanted_count)
        waiters = {end: acks.wait(end) for end in range(1, 101)}
        had, reached = [-1] * 4, 0
        for number, end in reports:
            acks.reported(slaves[number], end)
            had[number] = end
            reached = max(reached, sorted(had)[-wanted_count])
            assert acks.reached == reached
        assert [end for end, waiter in waiters.items() if waiter.done()] == list(range(1, reached + 1))

    asyncio.run(body())
