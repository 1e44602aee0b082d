"""Queue locks: who holds what, and for how long."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker.members.locks import FILE_NAME, LIFE_S, Locks
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import ConsumerList, LockAnswer, LockRequest, QueueName, UnlockRequest
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, consumer, meeting
from tests.broker.open_tables import tables

Q0, Q1 = QueueKey("T", 0), QueueKey("T", 1)


def name(queue_id: int, topic: str = "T") -> QueueName:
    return QueueName(topic=topic, broker_name="broker-a", queue_id=queue_id)


async def lock(guest: Guest, client_id: str, *names: QueueName, group: str = "g") -> list[int]:
    wanted = LockRequest(client_id=client_id, consumer_group=group, mq_set=list(names))
    answer = await guest.ask(41, body=wanted.encode())
    assert answer.code == 0
    held = LockAnswer.decode(answer.body).lock_ok_mq_set
    assert all(each in names for each in held), "queues come back as they were named"
    return [each.queue_id for each in held]


async def unlock(guest: Guest, client_id: str, *names: QueueName, group: str = "g") -> int:
    given = UnlockRequest(client_id=client_id, consumer_group=group, mq_set=list(names))
    return (await guest.ask(42, body=given.encode())).code


@pytest.mark.feature("F282", "F287")
def test_a_queue_is_held_by_one_client_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            broker.topic("T")
            assert await lock(one, "c1", name(0), name(1)) == [0, 1]
            assert await lock(two, "c2", name(1), name(2)) == [2]
            assert await lock(two, "c2", name(1), group="other") == [1], "each group locks for itself"

    run(scenario())


@pytest.mark.feature("F288", "F290")
def test_a_lock_lives_60_s_unless_it_is_renewed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            broker.topic("T")
            await lock(one, "c1", name(0), name(1))
            for _ in range(3):
                await asyncio.sleep(20)  # virtual
                assert await lock(one, "c1", name(0)) == [0]
            assert await lock(two, "c2", name(0), name(1)) == []
            await asyncio.sleep(1)  # virtual
            assert await lock(two, "c2", name(0), name(1)) == [1], "the one that was not renewed for 61 s"
            await asyncio.sleep(61)  # virtual
            assert await lock(two, "c2", name(0)) == [0]
            assert await lock(one, "c1", name(0)) == []

    run(scenario())


@pytest.mark.feature("F290")
def test_the_life_of_a_lock_can_be_set(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"rocketmq.broker.rebalance.lockMaxLiveTime": "5000"}
        async with meeting(tmp_path, VirtualClock(), **settings) as broker, broker.guest() as guest:
            broker.topic("T")
            await lock(guest, "c1", name(0))
            await asyncio.sleep(4)  # virtual
            assert await lock(guest, "c2", name(0)) == []
            await asyncio.sleep(2)  # virtual
            assert await lock(guest, "c2", name(0)) == [0]

    run(scenario())


@pytest.mark.feature("F289")
def test_the_old_holder_of_a_lock_that_was_taken_is_told_with_its_next_renewal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            broker.topic("T")
            await lock(one, "c1", name(0), name(1))
            await asyncio.sleep(61)  # virtual
            await lock(two, "c2", name(0))
            assert await lock(one, "c1", name(0), name(1)) == [1]

    run(scenario())


def test_only_the_holder_gives_a_lock_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            broker.topic("T")
            await lock(one, "c1", name(0))
            assert await unlock(two, "c2", name(0)) == 0
            assert await lock(two, "c2", name(0)) == []
            assert await unlock(one, "c1", name(0), name(3)) == 0
            assert await lock(two, "c2", name(0)) == [0]

    run(scenario())


def test_a_dead_connection_keeps_its_locks_until_they_expire(tmp_path: Path) -> None:
    """Its client may go on consuming for as long as it trusts its lock."""

    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as two:
            broker.topic("T")
            async with broker.guest() as one:
                await lock(one, "c1", name(0))
            assert await lock(two, "c2", name(0)) == []
            await asyncio.sleep(61)  # virtual
            assert await lock(two, "c2", name(0)) == [0]

    run(scenario())


def test_queues_that_are_not_here_are_not_granted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            broker.topic("T", 2)
            assert await lock(guest, "c1", name(-1), name(1), name(2), name(0, "U")) == [1]
            assert list(broker.locks.table["g"]) == [Q1]

    run(scenario())


def test_a_group_that_may_not_be_made_locks_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), autoCreateSubscriptionGroup="false") as broker,
            broker.guest() as guest,
        ):
            broker.topic("T")
            wanted = LockRequest(client_id="c1", consumer_group="nobody", mq_set=[name(0)])
            assert (await guest.ask(41, body=wanted.encode())).code == 26
            assert not broker.locks.table

    run(scenario())


@pytest.mark.feature("F291")
def test_the_table_shows_who_holds_what(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        locks = Locks(clock)
        locks.lock("g", "c1", [Q0])
        locks.lock("g", "c2", [Q0, Q1])
        assert {queue: lock.client_id for queue, lock in locks.table["g"].items()} == {Q0: "c1", Q1: "c2"}
        assert locks.holder("g", Q0) == "c1"
        await asyncio.sleep(61)  # virtual
        assert locks.holder("g", Q0) is None

    run(scenario())


def test_expired_locks_of_dead_groups_are_swept() -> None:
    async def scenario() -> None:
        locks = Locks(VirtualClock())
        for n in range(100):
            locks.lock(f"dead{n}", "c1", [Q0])
        await asyncio.sleep(61)  # virtual
        locks.lock("alive", "c1", [Q0])
        assert list(locks.table) == ["alive"]

    run(scenario())


# After the broker died


async def held_before(root: Path, clock: VirtualClock) -> None:
    """A life in which c1 held queue 0 and c2 queue 1 of T, and in the end neither was let go."""
    async with tables(root, clock) as kept:
        locks = Locks(clock, LIFE_S, root, kept.table_writer)
        assert locks.lock("g", "c1", [Q0]) == [Q0]
        assert locks.lock("g", "c2", [Q1]) == [Q1]
        assert not locks.is_kept
        await locks.kept()
        assert locks.is_kept


def test_after_a_start_a_queue_is_still_its_holders_whoever_asks_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        await held_before(tmp_path, clock)
        async with tables(tmp_path, clock) as kept:
            locks = Locks(clock, LIFE_S, tmp_path, kept.table_writer)
            assert locks.lock("g", "c2", [Q0, Q1]) == [Q1]
            await asyncio.sleep(20)  # virtual
            assert locks.lock("g", "c1", [Q0, Q1]) == [Q0]
            await asyncio.sleep(LIFE_S - 19)  # virtual
            assert locks.lock("g", "c1", [Q0, Q1]) == [Q0, Q1]  # c2 has not come for a life

    run(scenario())


async def members(guest: Guest) -> list[str]:
    return ConsumerList.decode((await guest.ask(38, {"consumerGroup": "g"})).body).consumer_id_list


def test_after_a_start_those_who_held_queues_are_members_until_they_are_back_or_their_locks_are_over(
    tmp_path: Path,
) -> None:
    """Else the first ones to be back share among themselves, and give up queues that will be theirs again."""

    async def scenario() -> None:
        clock = VirtualClock()
        async with meeting(tmp_path, clock) as broker, broker.guest() as guest:
            broker.topic("T")
            for number, client_id in enumerate(("c1", "c2", "c3")):
                await guest.beat(client_id, consumer("g", "T"))
                assert await lock(guest, client_id, name(number)) == [number]
        async with meeting(tmp_path, clock) as broker, broker.guest() as one, broker.guest() as two:
            await one.beat("c2", consumer("g", "T"))
            assert await members(one) == ["c2", "c1", "c3"]
            await two.beat("c1", consumer("g", "T"))
            assert await members(one) == ["c2", "c1", "c3"]
            assert await lock(two, "c1", name(0)) == [0]
            await two.ask(35, {"clientID": "c1", "consumerGroup": "g"})
            assert await members(one) == ["c2", "c3"], "one that was back and left is no member"
            await asyncio.sleep(LIFE_S + 1)  # virtual
            assert await members(one) == ["c2"], "c3 never came, and its queue is free"

    run(scenario())


def test_a_lock_that_was_given_back_or_grew_old_is_nobodys_after_a_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        await held_before(tmp_path, clock)
        async with tables(tmp_path, clock) as kept:
            Locks(clock, LIFE_S, tmp_path, kept.table_writer).unlock("g", "c1", [Q0])
            await kept.table_writer.flush()
        async with tables(tmp_path, clock) as kept:
            assert Locks(clock, LIFE_S, tmp_path, kept.table_writer).lock("g", "c3", [Q0, Q1]) == [Q0]
        await asyncio.sleep(LIFE_S + 1)  # virtual
        async with tables(tmp_path, clock) as kept:
            assert Locks(clock, LIFE_S, tmp_path, kept.table_writer).lock("g", "c3", [Q0, Q1]) == [Q0, Q1]

    run(scenario())


def test_a_file_of_locks_stays_young_while_somebody_renews_and_ends_with_the_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with tables(tmp_path, clock) as kept, asyncio.TaskGroup() as group:
            locks = Locks(clock, LIFE_S, tmp_path, kept.table_writer)
            saving = group.create_task(locks.save_forever(), name="saving")
            for _ in range(20):
                locks.lock("g", "c1", [Q0])
                await asyncio.sleep(20)  # virtual
            assert Locks(clock, LIFE_S, tmp_path).holder("g", Q0) == "c1"
            await asyncio.sleep(3 * LIFE_S)  # virtual
            assert Locks(clock, LIFE_S, tmp_path).table == {}
            written = (tmp_path / FILE_NAME).stat().st_mtime_ns
            await asyncio.sleep(10 * LIFE_S)  # virtual
            assert (tmp_path / FILE_NAME).stat().st_mtime_ns == written  # and nothing more is written for nobody
            saving.cancel()

    run(scenario())


def test_a_broken_file_of_locks_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / FILE_NAME).write_text('{"holders":{"g":7}}')
        assert Locks(VirtualClock(), LIFE_S, tmp_path).table == {}

    run(scenario())
