"""Another broker becomes master, by a kill or on purpose: nobody who sends or consumes has to know."""

import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from bolide import aio
from bolide.testing import AsyncCluster, Cluster, cluster
from tests.client.scenes import collecting, numbers, on_uvloop, send_all, stage
from tests.client.sends import LIMIT_S, all_sends, failures_in_threads_while, failures_while, order_is_kept
from tests.remoting.loops import eventually

Switch = Callable[[AsyncCluster], Awaitable[None]]


async def killed(rocket: AsyncCluster) -> None:
    """The master dies, another leads, and the first is back as its slave."""
    old = await rocket.master()
    await old.kill()
    await rocket.master()
    await old.start()


async def promoted(rocket: AsyncCluster) -> None:
    old = await rocket.master()
    await rocket.promote(next(node for node in rocket.brokers if node is not old))


SWITCHES = pytest.mark.parametrize("switch", [killed, promoted])


@SWITCHES
@pytest.mark.feature("X05")
def test_no_send_of_any_kind_fails_while_another_becomes_master(switch: Switch) -> None:
    @on_uvloop
    async def play() -> None:
        def checker(message: aio.StoredMessage) -> aio.Outcome:
            return aio.Outcome.COMMIT

        async with (
            stage(queue_count=4, replicas=3, processes=True) as rocket,
            aio.TransactionProducer("pg", rocket.namesrv, checker=checker, timeout_s=LIMIT_S) as producer,
            aio.Producer("lingering", rocket.namesrv, linger_ms=2, timeout_s=LIMIT_S) as lingering,
        ):
            await rocket.create_topic("Order", 2)
            await producer.send("Order", b"-1", shard="s")
            failed = await failures_while(all_sends(producer, lingering), switch(rocket))
            assert not failed
            await order_is_kept(producer, rocket.namesrv)

    play()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "promoted"])
def test_in_threads_no_send_of_any_kind_fails_either(is_killed: bool) -> None:
    with cluster(replicas=3, processes=True) as rocket:
        rocket.create_topic("T", 4)

        def change(ended: threading.Event) -> None:
            switch_in_threads(rocket, is_killed)

        assert not failures_in_threads_while(rocket.namesrv, change)


def switch_in_threads(rocket: Cluster, is_killed: bool) -> None:
    old = rocket.master()
    if is_killed:
        old.kill()
        rocket.master()
        old.start()
    else:
        rocket.promote(next(node for node in rocket.brokers if node.name != old.name))


@SWITCHES
@pytest.mark.parametrize("ordered", [False, True])
def test_consumers_go_on_and_get_everything(switch: Switch, ordered: bool) -> None:
    @on_uvloop
    async def play() -> None:
        async with (
            stage(queue_count=4, replicas=3, processes=True) as rocket,
            aio.Producer("pg", rocket.namesrv, timeout_s=LIMIT_S) as producer,
            collecting("g", "T", rocket.namesrv, ordered=ordered) as member,
        ):
            await send_all(producer, "T", numbers(0, 100), keys="k")
            await eventually(lambda: len(member.counts) == 100)
            sent = 100

            async def numbered(_: int) -> None:
                nonlocal sent
                await producer.send("T", b"%d" % sent)
                sent += 1

            assert not await failures_while({"send": numbered}, switch(rocket))
            await send_all(producer, "T", numbers(sent, sent + 100))
            await eventually(lambda: set(member.bodies) >= set(numbers(0, sent + 100)), LIMIT_S)
            assert not ordered or in_order(member.taken)

    play()


def in_order(taken: list[aio.Received]) -> bool:
    """What came for the first time came in the order of its queue."""
    ends: defaultdict[int, list[int]] = defaultdict(list)
    for message in taken:
        offsets = ends[message.queue.queue_id]
        if message.queue_offset not in offsets:
            offsets.append(message.queue_offset)
    return all(offsets == sorted(offsets) for offsets in ends.values())


@SWITCHES
def test_a_transaction_that_is_open_while_another_becomes_master_ends_as_it_was_to(switch: Switch) -> None:
    @on_uvloop
    async def play() -> None:
        def checker(message: aio.StoredMessage) -> aio.Outcome:
            return aio.Outcome.COMMIT if message.body == b"yes" else aio.Outcome.ROLLBACK

        quick = {"transactionTimeOut": 1000, "transactionCheckInterval": 500}
        async with (
            stage(queue_count=2, replicas=3, processes=True, settings=quick) as rocket,
            aio.TransactionProducer("pg", rocket.namesrv, checker=checker, timeout_s=LIMIT_S) as producer,
            collecting("g", "T", rocket.namesrv) as member,
        ):
            async with producer.transaction("T", b"yes"):
                await switch(rocket)
            async with producer.transaction("T", b"no") as transaction:
                await transaction.rollback()
                await switch(rocket)
            await producer.send("T", b"end")
            await eventually(lambda: {b"yes", b"end"} <= set(member.bodies), LIMIT_S)
            assert b"no" not in member.bodies

    play()
