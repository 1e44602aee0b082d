"""Ordered consumption: one message of a queue at a time, by one member at a time, also when locks are lost."""

import asyncio
from typing import Any

import pytest

from bolide import aio
from bolide.client.consuming.handlers import Handler, listening
from bolide.protocol.bodies import LockRequest, QueueName
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from tests.client.scenes import OLDEST, client_clock, collecting, is_shared, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time


@pytest.mark.feature("F280", "F282")
@virtual_time
async def test_order_is_kept_while_members_come_and_go() -> None:
    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        seen: dict[int, list[int]] = {number: [] for number in range(4)}

        def note(message: aio.Received) -> None:
            seen[message.queue.queue_id].append(message.queue_offset)

        options: dict[str, Any] = {"ordered": True, "act": note}
        async with collecting("g", "T", rocket.namesrv, **options) as a:
            await send_all(producer, "T", numbers(0, 40))
            async with collecting("g", "T", rocket.namesrv, **options) as b:
                await send_all(producer, "T", numbers(40, 80))
                await eventually(lambda: is_shared(4, a, b), 70)
                await send_all(producer, "T", numbers(80, 120))
                await eventually(lambda: set(a.bodies) | set(b.bodies) == set(numbers(0, 120)), 70)
            await send_all(producer, "T", numbers(120, 160))
            await eventually(lambda: set(a.bodies) | set(b.bodies) == set(numbers(0, 160)), 70)
    for offsets in seen.values():
        firsts = list(dict.fromkeys(offsets))
        assert firsts == list(range(40))  # what came twice came after a hand-over; nothing came before its turn
        assert len(offsets) <= 42


@pytest.mark.feature("F280")
@both_loops
async def test_a_failing_message_holds_up_its_queue_and_no_other() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        first, second = await producer.queues("T")
        await send_all(producer, "T", numbers(0, 3), queue=first)
        await send_all(producer, "T", numbers(10, 13), queue=second)
        attempts = []

        def refuse(message: aio.Received) -> None:
            if message.body == b"0" and message.attempt < 3:
                attempts.append(message.attempt)
                message.nack(delay=0.2)

        async with collecting("g", "T", rocket.namesrv, ordered=True, act=refuse) as member:
            await eventually(lambda: len(member.taken) == 8)
            assert attempts == [1, 2]
            assert [body for body in member.bodies if len(body) == 1] == [b"0", b"0", b"0", b"1", b"2"]
            assert member.bodies.index(b"12") < member.bodies.index(b"1")


@pytest.mark.feature("F283", "F284")
@virtual_time
async def test_a_queue_whose_lock_another_holds_is_neither_pulled_nor_handed_out_until_it_is_free() -> None:
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        aio.PullConsumer("walk", rocket.namesrv, clock=client_clock()) as walker,
    ):
        (queue,) = await walker.queues("T")
        await walker.pull(queue, 0)
        names = [QueueName.of(queue)]
        request = LockRequest(client_id="somebody@else", consumer_group="g", mq_set=names).encode()
        address = rocket.brokers[0].address
        await producer.send("T", b"0")
        await producer.instance.ask(address, Command(RequestCode.LOCK_BATCH_MQ, body=request))
        async with collecting("g", "T", rocket.namesrv, ordered=True) as member:
            await asyncio.sleep(30)  # virtual: half of the other's minute
            assert (member.bodies, [queue for queue in member.consumer.queues if queue.topic == "T"]) == ([], [])
            await producer.instance.ask(address, Command(RequestCode.UNLOCK_BATCH_MQ, body=request))
            began_s = asyncio.get_running_loop().time()
            await eventually(lambda: member.bodies == [b"0"], 30)
            assert asyncio.get_running_loop().time() - began_s < 5


@pytest.mark.feature("F289", "F285")
@virtual_time
async def test_a_lost_lock_stops_the_queue_and_the_next_owner_is_not_set_back() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 3))
        address = rocket.brokers[0].address
        async with collecting("g", "T", rocket.namesrv, ordered=True) as member:
            await eventually(lambda: member.bodies == numbers(0, 3))
            own = member.consumer.subscriber
            (queue,) = (queue for queue in own.owned if queue.topic == "T")
            names = [QueueName.of(queue)]
            mine = LockRequest(client_id=own.client_id, consumer_group="g", mq_set=names).encode()
            other = LockRequest(client_id="somebody@else", consumer_group="g", mq_set=names).encode()
            await producer.instance.ask(address, Command(RequestCode.UNLOCK_BATCH_MQ, body=mine))
            await producer.instance.ask(address, Command(RequestCode.LOCK_BATCH_MQ, body=other))
            await eventually(lambda: not own.owned[queue].is_locked, 25)
            await send_all(producer, "T", numbers(3, 6))
            async with aio.PullConsumer("g", rocket.namesrv, clock=client_clock()) as somebody:
                await somebody.commit(queue, 5)  # has done two of them meanwhile
                await asyncio.sleep(15)  # virtual: the first owner must not tell its 3
                assert await somebody.committed(queue) == 5
            await producer.instance.ask(address, Command(RequestCode.UNLOCK_BATCH_MQ, body=other))
            await eventually(lambda: len(member.taken) == 4, 60)
            assert member.bodies == [*numbers(0, 3), b"5"]


@both_loops
async def test_an_ordered_message_is_given_up_after_so_many_retries_where_the_broker_takes_it() -> None:
    """Our broker does not take messages back yet: until then the message is tried on, and nothing is lost."""
    attempts = []

    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 2))

        def refuse(message: aio.Received) -> None:
            if message.body == b"0":
                attempts.append(message.attempt)
                message.nack(delay=0.01)

        async with collecting("g", "T", rocket.namesrv, ordered=True, retry_count_max=2, act=refuse) as member:
            await eventually(lambda: len(attempts) >= 3 or b"1" in member.bodies)
    assert attempts[:3] == [1, 2, 3]


@both_loops
async def test_handlers_of_an_ordered_group_never_overlap_in_a_queue() -> None:
    running: dict[int, int] = {}
    order: dict[int, list[bytes]] = {}

    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        done = asyncio.Event()

        async def work(message: aio.Received) -> None:
            queue_id = message.queue.queue_id
            running[queue_id] = running.get(queue_id, 0) + 1
            assert running[queue_id] == 1
            await asyncio.sleep(0)
            order.setdefault(queue_id, []).append(message.body)
            running[queue_id] -= 1
            if sum(map(len, order.values())) == 80:
                done.set()

        for queue in await producer.queues("T"):
            await send_all(producer, "T", numbers(0, 20), queue=queue)
        handler = Handler(function=work, group="g", topics={"T": "*"}, ordered=True, start_from=OLDEST, concurrency=8)
        async with listening(rocket.namesrv, [handler]):
            await done.wait()
    assert order == {number: numbers(0, 20) for number in range(4)}


@pytest.mark.feature("F286", "F287", "F288")
@virtual_time
async def test_locks_are_asked_for_at_each_master_in_one_request_and_renewed_every_20_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(queue_count=4, brokers=2) as rocket, collecting("g", "T", rocket.namesrv, ordered=True) as member:
        await eventually(lambda: len([queue for queue in member.consumer.queues if queue.topic == "T"]) == 8)
        client = member.consumer.subscriber.instance.client
        real = client.request
        asked: list[tuple[float, str, int]] = []

        async def request(address: str, command: Command, timeout_s: float) -> Command:
            if command.code == RequestCode.LOCK_BATCH_MQ:
                names = [row for row in LockRequest.decode(command.body).mq_set if row.topic == "T"]
                asked.append((asyncio.get_running_loop().time(), address, len(names)))
            return await real(address, command, timeout_s)

        monkeypatch.setattr(client, "request", request)
        await asyncio.sleep(45)  # virtual: two renewals
        rounds = [row for row in asked if row[2]]
        assert sorted(address for _, address, _ in rounds) == sorted(2 * [node.address for node in rocket.brokers])
        assert {count for _, _, count in rounds} == {4}
        assert 19 < rounds[-1][0] - rounds[0][0] < 22
