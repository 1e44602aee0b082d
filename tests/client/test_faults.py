"""Nothing is lost: brokers are killed, name servers vanish, links break, consumers throw, hang and are slow."""

import asyncio
from collections import Counter

import pytest

from bolide import aio
from bolide.client.consuming.handlers import Handler, listening
from bolide.errors import BolideError
from bolide.testing import open_link
from tests.client.scenes import OLDEST, client_clock, collecting, numbers, on_uvloop, reach_through, send_all, stage
from tests.remoting.loops import POLL_INTERVAL_S, both_loops, eventually, virtual_time


async def send_surely(producer: aio.Producer, topic: str, bodies: list[bytes]) -> int:
    """Send each until it is acknowledged, as an application does; returns how many attempts were in doubt."""
    doubted = 0
    for body in bodies:
        while True:
            try:
                await producer.send(topic, body, keys=body.decode())
                break
            except BolideError:
                doubted += 1
                await asyncio.sleep(POLL_INTERVAL_S)
    return doubted


@pytest.mark.feature("F235")
@on_uvloop
async def test_a_broker_killed_and_restarted_under_load_loses_nothing() -> None:
    expected = numbers(0, 600)
    async with (
        stage(queue_count=4, processes=True) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        collecting("g", "T", rocket.namesrv) as member,
        asyncio.TaskGroup() as tasks,
    ):
        sending = tasks.create_task(send_surely(producer, "T", expected), name="send")
        (broker,) = rocket.brokers
        await eventually(lambda: len(member.taken) > 50)
        await broker.kill()
        await broker.start()
        doubted = await sending
        await eventually(lambda: set(member.bodies) == set(expected), 30)
        # In doubt was at most the send under way and those that met no broker; delivered twice at most what lay
        # unsettled, or settled and not yet told, when the broker died.
        repeated = sum(count - 1 for count in member.counts.values())
        assert repeated <= doubted + len(expected) // 2


@pytest.mark.feature("F035", "F034")
@virtual_time
async def test_without_any_name_server_running_clients_go_on_for_a_minute() -> None:
    async with (
        stage(queue_count=2, namesrvs=2) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        await send_all(producer, "T", numbers(0, 10))
        first, second = rocket.namesrvs
        await first.kill()
        async with aio.Producer("new", rocket.namesrv, clock=client_clock()) as newcomer:
            await newcomer.send("T", b"10")
        await second.kill()
        for number in range(11, 41):
            await asyncio.sleep(2)  # virtual
            await producer.send("T", b"%d" % number)
        await eventually(lambda: len(member.taken) == 41)
        assert Counter(member.bodies) == Counter(numbers(0, 41))
        await first.start()
        await asyncio.sleep(65)  # virtual: brokers register, clients ask again
        await producer.send("T", b"41")
        await eventually(lambda: len(member.taken) == 42)


@both_loops
async def test_a_broker_behind_a_link_that_breaks_again_and_again_gets_and_gives_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = numbers(0, 200)
    async with stage(queue_count=2) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        async with (
            aio.Producer("pg", rocket.namesrv) as producer,
            collecting("g", "T", rocket.namesrv) as member,
            asyncio.TaskGroup() as tasks,
        ):
            sending = tasks.create_task(send_surely(producer, "T", expected), name="send")
            for count in (40, 80, 120):
                await eventually(lambda count=count: len(set(member.bodies)) > count, 20)  # type: ignore[misc]
                link.cut()
            doubted = await sending
            await eventually(lambda: set(member.bodies) == set(expected), 20)
            assert sum(count - 1 for count in member.counts.values()) <= doubted + 2 * 3 * 32


@virtual_time
async def test_a_link_that_is_silent_for_ten_seconds_costs_time_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(queue_count=2) as rocket, open_link(rocket.brokers[0].address) as link:
        reach_through(monkeypatch, rocket.brokers[0].address, link.address)
        clock = client_clock()
        async with (
            aio.Producer("pg", rocket.namesrv, clock=clock) as producer,
            collecting("g", "T", rocket.namesrv) as member,
        ):
            await send_all(producer, "T", numbers(0, 10))
            await eventually(lambda: len(member.taken) == 10)
            link.freeze()
            asyncio.get_running_loop().call_later(10, link.heal)
            await send_surely(producer, "T", numbers(10, 20))
            await eventually(lambda: set(member.bodies) == set(numbers(0, 20)), 60)
            assert all(member.counts[body] == 1 for body in numbers(0, 10))


@both_loops
async def test_a_function_that_throws_gets_every_message_until_it_succeeds() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        calls: Counter[bytes] = Counter()
        done: set[bytes] = set()

        async def work(message: aio.Received) -> None:
            calls[message.body] += 1
            if calls[message.body] <= int(message.body) % 3:
                message.nack(delay=0.02)
                raise ValueError("again")
            done.add(message.body)

        await send_all(producer, "T", numbers(0, 30))
        handler = Handler(function=work, group="g", topics={"T": "*"}, start_from=OLDEST, concurrency=4)
        async with listening(rocket.namesrv, [handler]):
            await eventually(lambda: len(done) == 30, 20)
    assert calls == Counter({body: int(body) % 3 + 1 for body in numbers(0, 30)})


@pytest.mark.feature("F242")
@virtual_time
async def test_one_call_that_hangs_holds_up_the_progress_of_its_queue_and_no_message() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        done: list[bytes] = []

        async def work(message: aio.Received) -> None:
            if message.body == b"3" and message.attempt == 1:
                await asyncio.Event().wait()
            done.append(message.body)

        await send_all(producer, "T", numbers(0, 20))
        handler = Handler(function=work, group="g", topics={"T": "*"}, start_from=OLDEST, concurrency=4, timeout_s=60)
        async with listening(rocket.namesrv, [handler], clock=client_clock()) as (subscriber,):
            await eventually(lambda: len(done) == 19)
            assert list(subscriber.progress("T").values()) == [3]
            await eventually(lambda: len(done) == 20, 90)  # the call's minute, and the ten seconds of a first retry
            await eventually(lambda: list(subscriber.progress("T").values()) == [20])
    assert Counter(done) == Counter(numbers(0, 20))


@virtual_time
async def test_a_slow_consumer_gets_everything_once_in_its_own_time() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        done: list[bytes] = []

        async def work(message: aio.Received) -> None:
            await asyncio.sleep(1)  # virtual
            done.append(message.body)

        await send_all(producer, "T", numbers(0, 100))
        handler = Handler(function=work, group="g", topics={"T": "*"}, start_from=OLDEST, concurrency=2)
        async with listening(rocket.namesrv, [handler], clock=client_clock()):
            await eventually(lambda: len(done) >= 100, 100)
        assert Counter(done) == Counter(numbers(0, 100))


async def _nothing_new(topic: str) -> None:
    """A name server that tells no other address."""


@virtual_time
async def test_a_member_that_hangs_loses_its_queues_when_the_broker_has_not_heard_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection is open and silent; after two minutes the broker gives its queues to the others."""
    async with stage(queue_count=4) as rocket, open_link(rocket.brokers[0].address) as link:
        clock = client_clock()
        with monkeypatch.context() as patch:
            reach_through(patch, rocket.brokers[0].address, link.address)
            hanging = aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, clock=clock)
            await hanging.start()
            monkeypatch.setattr(hanging.subscriber.instance.namesrv, "route", _nothing_new)
        async with (
            collecting("g", "T", rocket.namesrv) as healthy,
            aio.Producer("pg", rocket.namesrv, clock=clock) as producer,
        ):
            await eventually(lambda: len([q for q in healthy.consumer.queues if q.topic == "T"]) == 2, 30)
            link.freeze()
            await send_all(producer, "T", numbers(0, 40))
            await eventually(lambda: set(healthy.bodies) == set(numbers(0, 40)), 200)
            assert set(healthy.counts.values()) == {1}
            link.heal()
            await hanging.close()
