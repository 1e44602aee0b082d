"""More messages at once than may be under way: they stand in line, none is late for that, and none is lost."""

import asyncio
import os
from collections import Counter

import pytest
import uvloop

from bolide import aio
from bolide.admin.admin import Admin
from bolide.client.sending import pipeline as room
from bolide.errors import ClientError, NoAnswer, RequestTimeout
from bolide.testing import cluster, open_link
from tests.client.scenes import client_clock, numbers, reach_through, stage, stored
from tests.remoting.loops import both_loops, run_on, virtual_time


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_cold_gather_stores_every_message_and_each_sender_has_his_receipt(count: int) -> None:
    async def send_all(namesrv: str) -> None:
        async with aio.Producer("pg", namesrv) as producer:
            receipts = await asyncio.gather(*(producer.send("T", b"%d" % number) for number in range(count)))
        assert all(receipt.is_ok for receipt in receipts)
        assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == count
        async with Admin(namesrv) as admin:
            assert sum(row.max_offset for row in await admin.topic_queues("T")) == count

    with cluster(processes=True) as rocket:
        rocket.create_topic("T", 8)
        run_on(uvloop.new_event_loop, lambda: send_all(rocket.namesrv))


@both_loops
async def test_the_first_messages_of_a_topic_have_all_their_time_after_a_turn_that_took_longer() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, timeout_s=2) as producer:
        sends = [asyncio.create_task(producer.send("T", body)) for body in numbers(0, 3)]
        asyncio.get_running_loop().call_soon(os.system, "sleep 2.2")  # the loop stands still, as with a crowd of tasks
        assert all(receipt.is_ok for receipt in await asyncio.gather(*sends))


@both_loops
async def test_who_stands_in_line_is_served_in_the_order_of_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HELD_COUNT_MAX", 20)
    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        bodies = numbers(0, 500)
        held_counts: list[int] = []

        async def send(body: bytes) -> None:
            sending = asyncio.ensure_future(producer.send("T", body, shard="user-7"))
            await asyncio.sleep(0)
            held_counts.append(producer.pipeline.held_count)
            await sending

        await asyncio.gather(*map(send, bodies))
        (messages,) = (await stored(rocket, "T", 500)).values()
        assert [message.body for message in messages] == bodies
        assert max(held_counts) <= 20
        assert producer.pipeline.held_count == 0


@both_loops
async def test_who_leaves_the_line_stops_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HELD_COUNT_MAX", 10)
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.queues("T")
        sends = [asyncio.create_task(producer.send("T", body)) for body in numbers(0, 200)]
        await asyncio.sleep(0)
        gone = sends[5:150:2]
        for task in gone:
            task.cancel()
        after = [asyncio.create_task(producer.send("T", body)) for body in numbers(200, 260)]
        for task in (*after[::3],):
            asyncio.get_running_loop().call_soon(task.cancel)  # after its first step: it stands in line
        ends = Counter(type(end).__name__ for end in await asyncio.gather(*sends, *after, return_exceptions=True))
        assert ends == {"Receipt": 260 - len(gone) - 20, "CancelledError": len(gone) + 20}
        assert not producer.pipeline.is_full


@virtual_time
async def test_a_broker_that_falls_silent_fails_the_whole_line_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "HELD_COUNT_MAX", 10)
    clock = client_clock()
    async with stage(queue_count=1) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        async with aio.Producer("pg", rocket.namesrv, timeout_s=4, clock=clock) as producer:
            await producer.send("T", b"0")
            link.freeze()
            started_s = clock.monotonic_s()
            ends = await asyncio.gather(*(producer.send("T", b"1") for _ in range(200)), return_exceptions=True)
            assert all(isinstance(end, NoAnswer) for end in ends)
            assert clock.monotonic_s() - started_s <= 5
            assert not producer.pipeline.is_full
            link.cut()


@virtual_time
async def test_a_producer_that_is_closed_tells_those_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HELD_COUNT_MAX", 10)
    clock = client_clock()
    async with stage(queue_count=1) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        producer = aio.Producer("pg", rocket.namesrv, timeout_s=4, clock=clock)
        await producer.start()
        await producer.send("T", b"0")
        link.freeze()
        first = [asyncio.create_task(producer.send("T", b"1")) for _ in range(10)]
        await asyncio.sleep(1)  # virtual
        last = [asyncio.create_task(producer.send("T", b"2")) for _ in range(10)]
        await asyncio.sleep(2.5)  # virtual
        producer.timeout_s = 0.1
        await producer.close()
        await asyncio.gather(*first, return_exceptions=True)
        ends = await asyncio.gather(*last, return_exceptions=True)
        assert {str(end) for end in ends} == {"producer pg was closed before this message was sent"}
        link.cut()


@virtual_time
async def test_what_one_was_told_of_a_route_holds_for_all_who_asked_with_him() -> None:
    clock = client_clock()
    async with cluster(clock=clock, settings={"autoCreateTopicEnable": "false"}) as rocket:
        async with aio.Producer("pg", rocket.namesrv, clock=clock) as producer:
            ends = await asyncio.gather(*(producer.send("None", b"1") for _ in range(1000)), return_exceptions=True)
        assert all(isinstance(end, ClientError) and not isinstance(end, RequestTimeout) for end in ends)
        assert len(set(map(id, ends))) == 1
