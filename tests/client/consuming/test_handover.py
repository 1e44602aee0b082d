"""An ordered queue changes hands when no message of it is in a user's hand, and not before."""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.client.consuming.handlers import Handler, listening
from bolide.client.consuming.locks import QueueLocks
from bolide.model.queue import MessageQueue
from tests.client.scenes import OLDEST, client_clock, collecting, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time

SOON_S = 8.0  # to hear of a change, to share anew, and to ask for a lock that was not free at first
BROKER_LOCK_LIFE_S = 60.0
WAIT_S = 60.0


def member(namesrv: str, name: str) -> aio.Consumer:
    """One of the group; of two, the first by name gets the only queue."""
    return aio.Consumer("g", "T", namesrv, ordered=True, start_from=OLDEST, instance_name=name, clock=client_clock())


class Slow:
    """A member that is at a message until it is told to go on."""

    def __init__(self, consumer: aio.Consumer) -> None:
        self.consumer = consumer
        self.taken: list[aio.Received] = []
        self.may_go_on = asyncio.Event()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.taken]

    async def run(self) -> None:
        async for message in self.consumer:
            self.taken.append(message)
            await self.may_go_on.wait()


@virtual_time
async def test_a_queue_stays_with_its_member_until_the_message_in_hand_is_settled() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with member(rocket.namesrv, "z") as consumer, asyncio.TaskGroup() as tasks:
            slow = Slow(consumer)
            task = tasks.create_task(slow.run(), name="slow")
            await eventually(lambda: slow.bodies == [b"0"])
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await eventually(lambda: not is_owned(consumer), SOON_S)
                await asyncio.sleep(SOON_S)  # virtual: the other asks for it again and again
                assert (slow.bodies, other.bodies) == ([b"0"], [])
                slow.may_go_on.set()
                await eventually(lambda: other.bodies == [b"1", b"2"], SOON_S)
                assert slow.bodies == [b"0"]
                task.cancel()


@virtual_time
async def test_a_message_in_hand_for_longer_than_the_lock_lives_has_lost_its_queue() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with member(rocket.namesrv, "z") as consumer, asyncio.TaskGroup() as tasks:
            slow = Slow(consumer)
            task = tasks.create_task(slow.run(), name="slow")
            await eventually(lambda: slow.bodies == [b"0"])
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await eventually(lambda: other.bodies == numbers(0, 3), BROKER_LOCK_LIFE_S + SOON_S)
                slow.taken[0].ack()  # late: it moves nothing
                await asyncio.sleep(SOON_S)  # virtual
                async with aio.PullConsumer("g", rocket.namesrv, clock=client_clock()) as walker:
                    (queue,) = await walker.queues("T")
                    assert await walker.committed(queue) == 3
                task.cancel()


@virtual_time
async def test_a_message_that_failed_while_its_queue_leaves_is_the_first_of_the_next_member() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        async with member(rocket.namesrv, "z") as consumer:
            (message,) = await consumer.receive()
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await eventually(lambda: not is_owned(consumer), SOON_S)
                message.nack(delay=300)
                await eventually(lambda: other.bodies == [b"0", b"1"], SOON_S)


@virtual_time
async def test_a_message_that_rests_before_its_retry_holds_up_no_other_member() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        async with member(rocket.namesrv, "z") as consumer:
            (message,) = await consumer.receive()
            message.nack(delay=300)
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await eventually(lambda: other.bodies == [b"0", b"1"], SOON_S)


@virtual_time
async def test_a_queue_whose_message_was_only_taken_ahead_goes_at_once() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        for queue in await producer.queues("T"):
            await send_all(producer, "T", numbers(0, 2), queue=queue)
        async with member(rocket.namesrv, "a") as consumer, asyncio.TaskGroup() as tasks:
            await eventually(lambda: sum(at.waiting_count for at in consumer.subscriber.owned.values()) == 4)
            slow = Slow(consumer)
            task = tasks.create_task(slow.run(), name="slow")
            await eventually(lambda: len(slow.taken) == 1)
            names = ("0", "z") if slow.taken[0].queue.queue_id == 1 else ("z", "0")  # who gets the other queue
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name=names[0]) as other:
                await eventually(lambda: other.bodies == [b"0", b"1"], SOON_S)
                assert {message.queue for message in other.taken}.isdisjoint({slow.taken[0].queue})
            task.cancel()


@virtual_time
async def test_a_queue_that_comes_back_while_its_message_is_in_hand_gives_it_once() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        taken: list[bytes] = []
        may_go_on = asyncio.Event()

        async def work(message: aio.Received) -> None:
            taken.append(message.body)
            await may_go_on.wait()

        handler = Handler(function=work, group="g", topics={"T": "*"}, ordered=True, start_from=OLDEST, concurrency=4)
        async with listening(rocket.namesrv, [handler], clock=client_clock()) as (subscriber,):
            await eventually(lambda: taken == [b"0"])
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="0") as other:
                await eventually(lambda: not any(queue.topic == "T" for queue in subscriber.owned), SOON_S)
                await asyncio.sleep(1)  # virtual
                assert other.bodies == []
            await asyncio.sleep(SOON_S)  # virtual: the queue is wanted back
            assert taken == [b"0"]
            may_go_on.set()
            await eventually(lambda: taken == [b"0", b"1"], SOON_S)


@virtual_time
async def test_a_message_after_a_break_is_in_hand_until_its_user_goes_on() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        async with member(rocket.namesrv, "z") as consumer:
            async for message in consumer:
                taken = message
                break
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await eventually(lambda: not is_owned(consumer), SOON_S)
                await asyncio.sleep(SOON_S)  # virtual
                assert (taken.body, other.bodies) == (b"0", [])
                assert await consumer.receive(timeout_s=0.1) == []
                await eventually(lambda: other.bodies == [b"1"], SOON_S)


@virtual_time
async def test_a_consumer_that_another_task_closes_keeps_the_queue_that_its_loop_is_at() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        consumer = member(rocket.namesrv, "z")
        await consumer.start()
        slow = Slow(consumer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(slow.run(), name="slow")
            await eventually(lambda: slow.bodies == [b"0"])
            await consumer.close()
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
                await asyncio.sleep(SOON_S)  # virtual
                assert other.bodies == []
                slow.may_go_on.set()
                await eventually(lambda: other.bodies == [b"0", b"1"], BROKER_LOCK_LIFE_S)


@pytest.mark.parametrize("end", ["failure", "cancelled", "closed inside", "received"])
@virtual_time
async def test_a_user_who_is_done_with_the_consumer_leaves_its_queues_to_others_at_once(end: str) -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 2))
        is_at_it = asyncio.Event()

        async def use() -> None:
            async with member(rocket.namesrv, "z") as consumer:
                if end == "received":
                    assert await consumer.receive()
                    return
                async for _ in consumer:
                    is_at_it.set()
                    if end == "closed inside":
                        await consumer.close()
                        return
                    if end == "failure":
                        raise ValueError("not this one")
                    await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            with suppress(ValueError, asyncio.CancelledError):
                if end == "cancelled":
                    task = tasks.create_task(use(), name="use")
                    await is_at_it.wait()
                    task.cancel()
                    await task
                else:
                    await use()
        async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
            await eventually(lambda: other.bodies == [b"0", b"1"], SOON_S)


class Refusals:
    """Locks that a member asked for and did not get."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = QueueLocks.ask

        async def ask(locks: QueueLocks, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
            granted, refused = await real(locks, queues)
            self.count += any(queue.topic == "T" for queue in refused)
            return granted, refused

        patch.setattr(QueueLocks, "ask", ask)


@both_loops
async def test_a_handler_finishes_its_message_before_another_member_gets_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 2))
        refusals, at_work, may_go_on = Refusals(monkeypatch), threading.Event(), threading.Event()

        def work(message: aio.Received) -> None:
            at_work.set()
            may_go_on.wait(WAIT_S)

        handler = Handler(function=work, group="g", topics={"T": "*"}, ordered=True, start_from=OLDEST)
        async with listening(rocket.namesrv, [handler]):
            await eventually(at_work.is_set)
            async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="0") as other:
                await eventually(lambda: refusals.count >= 2 or bool(other.taken), WAIT_S)
                assert other.bodies == []
                may_go_on.set()
                await eventually(lambda: other.bodies == [b"1"], WAIT_S)


@both_loops
async def test_a_thread_finishes_its_message_before_another_member_gets_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 2))
        refusals, at_work, may_go_on = Refusals(monkeypatch), threading.Event(), threading.Event()
        taken = []

        def iterate() -> None:
            options: Any = {"ordered": True, "start_from": OLDEST, "instance_name": "z"}
            with bolide.Consumer("g", "T", rocket.namesrv, **options) as consumer:
                for message in consumer:
                    taken.append(message.body)
                    at_work.set()
                    may_go_on.wait(WAIT_S)
                    break

        iterating = asyncio.create_task(asyncio.to_thread(iterate), name="iterate")
        await eventually(at_work.is_set)
        async with collecting("g", "T", rocket.namesrv, ordered=True, instance_name="a") as other:
            await eventually(lambda: refusals.count >= 2 or bool(other.taken), WAIT_S)
            assert other.bodies == []
            may_go_on.set()
            await eventually(lambda: other.bodies == [b"1"], WAIT_S)
        await iterating
        assert taken == [b"0"]


def is_owned(consumer: aio.Consumer) -> bool:
    return any(queue.topic == "T" for queue in consumer.queues)
