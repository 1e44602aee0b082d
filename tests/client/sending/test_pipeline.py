"""Many messages as few requests: each sender gets his own receipt, order holds, failures are tried elsewhere."""

import asyncio

import pytest

from bolide import aio
from bolide.client.sending import pipeline as room
from bolide.client.sending.message import SHORT_SIZE_MAX
from bolide.client.sending.outbox import Flight, Outbox
from bolide.errors import ClientError, ConnectionLost, RequestTimeout
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.pending import PendingRequests
from bolide.testing import open_link
from tests.client.scenes import client_clock, collecting, numbers, reach_through, stage, stored
from tests.remoting.loops import both_loops, eventually, virtual_time


@pytest.mark.feature("F096")
@both_loops
@pytest.mark.parametrize("linger_ms", [0.0, 2.0])
async def test_every_sender_gets_the_receipt_of_his_own_message(linger_ms: float) -> None:
    async with stage(queue_count=3) as rocket, aio.Producer("pg", rocket.namesrv, linger_ms=linger_ms) as producer:
        await producer.send("T", b"first")
        receipts = await asyncio.gather(*(producer.send("T", body, tags="A") for body in numbers(0, 200)))
        found = await stored(rocket, "T", 201)
        bodies = {(m.queue, m.queue_offset, m.msg_id, m.offset_id): m.body for ms in found.values() for m in ms}
        assert [bodies[r.queue, r.queue_offset, r.msg_id, r.offset_id] for r in receipts] == numbers(0, 200)
        assert len({receipt.msg_id for receipt in receipts}) == 200
        assert {m.tags for ms in found.values() for m in ms} == {None, "A"}


@both_loops
async def test_labels_and_text_beyond_ascii_arrive_as_they_were_given() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.queues("T")
        await producer.send("T", b"x", tags='T"\\é', keys=["k1", "主题"], properties={"colour": "\tred\n"}, flag=-7)
        ((message,),) = (await stored(rocket, "T", 1)).values()
        assert (message.tags, message.keys, message.flag) == ('T"\\é', ["k1", "主题"], -7)
        assert message.properties["colour"] == "\tred\n"


@both_loops
async def test_messages_of_a_turn_leave_in_one_write_and_without_a_task_each(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    post = Outbox.post

    def noted(outbox: Outbox, run: Flight, timeout_s: float) -> None:
        runs.append(len(run.items))
        post(outbox, run, timeout_s)

    monkeypatch.setattr(Outbox, "post", noted)
    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.queues("T")
        futures = [await producer.submit("T", body) for body in numbers(0, 50)]
        task_count = len(asyncio.all_tasks())
        await asyncio.wait(futures)
        assert runs == [50]
        assert len(asyncio.all_tasks()) <= task_count


@pytest.mark.feature("F117")
@virtual_time
async def test_lingering_messages_leave_as_one_batch_when_the_time_is_over() -> None:
    clock = client_clock()
    async with (
        stage(queue_count=4) as rocket,
        aio.Producer("pg", rocket.namesrv, linger_ms=500, clock=clock) as producer,
    ):
        await producer.queues("T")
        started_s = clock.monotonic_s()
        futures = [await producer.submit("T", body) for body in numbers(0, 10)]
        receipts = await asyncio.gather(*futures)
        assert 0.5 <= clock.monotonic_s() - started_s < 0.6
        assert len({receipt.queue for receipt in receipts}) == 1
        first = receipts[0].queue_offset
        assert [receipt.queue_offset for receipt in receipts] == list(range(first, first + 10))


@virtual_time
async def test_a_batch_that_is_full_does_not_linger() -> None:
    clock = client_clock()
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv, linger_ms=60_000, clock=clock) as producer,
    ):
        await producer.queues("T")
        started_s = clock.monotonic_s()
        many = [await producer.submit("T", b"x") for _ in range(room.BATCH_COUNT_MAX)]
        large = [await producer.submit("T", b"x" * 3000) for _ in range(room.BATCH_SIZE_MAX // 3000 + 1)]
        await asyncio.gather(*many, *large)
        assert clock.monotonic_s() - started_s < 1


@virtual_time
async def test_flush_and_close_send_what_lingers() -> None:
    clock = client_clock()
    async with stage(queue_count=1) as rocket:
        async with aio.Producer("pg", rocket.namesrv, linger_ms=60_000, clock=clock) as producer:
            await producer.queues("T")
            started_s = clock.monotonic_s()
            flushed = await producer.submit("T", b"0")
            await producer.flush()
            assert flushed.result().queue_offset == 0
            closed = await producer.submit("T", b"1")
        assert closed.result().queue_offset == 1
        assert clock.monotonic_s() - started_s < 1


@pytest.mark.feature("F098", "F281")
@both_loops
@pytest.mark.parametrize("linger_ms", [0.0, 1.0])
async def test_what_one_task_submits_for_a_shard_keeps_its_order_whatever_way_it_goes(linger_ms: float) -> None:
    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv, linger_ms=linger_ms) as producer:
        bodies = numbers(0, 300)
        for number, body in enumerate(bodies):
            # Every 50th is long: it is compressed, and takes the long way.
            await producer.submit("T", body + (b" " * 5000 if number % 50 == 7 else b""), shard="user-7")
        await producer.flush()
        (messages,) = (await stored(rocket, "T", 300)).values()
        assert [message.body.strip() for message in messages] == bodies


@both_loops
async def test_memory_is_bounded_who_brings_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HELD_COUNT_MAX", 20)
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, linger_ms=1) as producer:
        held = 0
        for body in numbers(0, 500):
            await producer.submit("T", body)
            held = max(held, producer.pipeline.held_count)
        await producer.flush()
        assert held <= 20
        assert producer.pipeline.held_count == 0
        assert sum(map(len, (await stored(rocket, "T", 500)).values())) == 500


@virtual_time
async def test_a_broker_that_is_silent_is_told_within_the_limit_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = client_clock()
    async with stage(queue_count=1) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        async with aio.Producer("pg", rocket.namesrv, timeout_s=4, clock=clock) as producer:
            await producer.send("T", b"0")
            link.freeze()
            started_s = clock.monotonic_s()
            with pytest.raises(RequestTimeout, match="did not answer a send within 4 s"):
                await producer.send("T", b"1")
            assert 4 <= clock.monotonic_s() - started_s <= 4.6
            assert producer.pipeline.held_count == 0
            link.cut()


@virtual_time
async def test_the_shortest_limit_of_a_connection_decides_how_often_late_answers_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = client_clock()
    async with stage(queue_count=1) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        shared = {"instance_name": "one", "retry_count": 0, "clock": clock}
        async with (
            aio.Producer("patient", rocket.namesrv, timeout_s=80, **shared) as patient,
            aio.Producer("hasty", rocket.namesrv, timeout_s=0.8, **shared) as hasty,
        ):
            await patient.send("T", b"0")
            await hasty.send("T", b"0")
            link.freeze()
            waiting = await patient.submit("T", b"1")
            started_s = clock.monotonic_s()
            with pytest.raises(RequestTimeout, match=r"within 0\.8 s"):
                await hasty.send("T", b"2")
            assert clock.monotonic_s() - started_s < 1
            with pytest.raises(ConnectionLost):  # nothing was read since: the connection was half-open
                await waiting
            link.cut()


@both_loops
async def test_long_bodies_count_by_their_size() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.submit("T", b"x" * (3 * SHORT_SIZE_MAX))
        assert producer.pipeline.held_count == 4
        await producer.flush()
        assert producer.pipeline.held_count == 0


@both_loops
@pytest.mark.parametrize("linger_ms", [0.0, 1.0])
async def test_what_a_lost_connection_left_in_doubt_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, linger_ms: float
) -> None:
    async with stage(queue_count=2) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        async with aio.Producer("pg", rocket.namesrv, linger_ms=linger_ms) as producer:
            await producer.send("T", b"first")
            link.freeze()
            futures = [await producer.submit("T", body) for body in numbers(0, 30)]
            await eventually(lambda: any(each.pending.bulk for each in producer.instance.client.sessions()))
            link.heal()
            link.cut()
            receipts = await asyncio.gather(*futures)
        monkeypatch.undo()
        wanted = {receipt.msg_id: body for receipt, body in zip(receipts, numbers(0, 30), strict=True)}
        async with collecting("reader", "T", rocket.namesrv) as member:
            # What was in doubt may lie there twice, under one id.
            await eventually(lambda: wanted.keys() <= {message.msg_id for message in member.taken})
        found = {message.msg_id: message.body for message in member.taken}
        assert {msg_id: found[msg_id] for msg_id in wanted} == wanted


@both_loops
async def test_a_refusal_reaches_who_sent() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        (queue,) = await producer.queues("T")
        absent = aio.MessageQueue(queue.topic, queue.broker_name, 9)
        with pytest.raises(ClientError, match="queue 9"):
            await producer.send("T", b"x", queue=absent)
        assert (await producer.send("T", b"x")).queue_offset == 0


# Numbers


class _Posted(set[int]):
    def take(self, stream: memoryview, bounds: list[int]) -> list[int]:
        return bounds

    def settle(self, answer: Command) -> bool:
        return answer.opaque in self


@both_loops
async def test_numbers_in_a_row_miss_all_that_are_in_flight_and_wrap_around() -> None:
    asked = PendingRequests(10)
    asked.bulk = _Posted({3, 7})
    first, _ = asked.add(0)
    assert (first, asked.numbers(2), asked.numbers(3)) == (0, 1, 4)
    assert asked.numbers(2) == 8
    asked.last_opaque = 0x7FFF_FFFD
    assert asked.numbers(2) == 0x7FFF_FFFE
    assert asked.numbers(2) == -0x8000_0000
    asked.last_opaque = 0x7FFF_FFFD
    assert asked.numbers(5) == -0x8000_0000
    assert asked.settle(Command(RequestCode.SEND_MESSAGE_V2, opaque=7, flag=1))
    assert not asked.settle(Command(RequestCode.SEND_MESSAGE_V2, opaque=8, flag=1))
