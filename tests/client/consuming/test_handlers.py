"""Functions called for messages: both kinds, so many at a time, in order where asked, again after a failure."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.client.consuming.handlers import Handler, listening
from bolide.client.consuming.inflight import InFlight
from bolide.protocol.bodies import ConsumeResult, DirectConsumption
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.testing import AsyncCluster, cluster
from bolide.testing.nodes import free_port
from tests.cli.processes import wait_for

WAIT_S = 60.0


def scenario(play: Callable[[AsyncCluster, aio.Producer], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WAIT_S), cluster() as rocket, aio.Producer("pg", rocket.namesrv) as producer:
            await rocket.create_topic("T")  # a topic made by a send has a route a moment later only
            await play(rocket, producer)

    asyncio.run(run())


def handler_of(function: Callable[[aio.Received], Any], **options: Any) -> Handler:
    return Handler(
        function=function,
        group="cg",
        topics={"T": "*"},
        start_from=aio.StartFrom.oldest(),
        **{"concurrency": 4, **options},
    )


@pytest.mark.feature("F201", "F230")
def test_an_ordinary_function_is_called_in_threads() -> None:
    calls: list[tuple[bytes, str]] = []

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_message(message: aio.Received) -> None:
            calls.append((message.body, threading.current_thread().name))
            if len(calls) == 8:
                loop.call_soon_threadsafe(done.set)

        for number in range(8):
            await producer.send("T", b"%d" % number)
        async with listening(rocket.namesrv, [handler_of(on_message)]):
            await done.wait()

    scenario(play)
    assert sorted(body for body, _ in calls) == [b"%d" % number for number in range(8)]
    assert all(name.startswith("consumer.cg") for _, name in calls)


@pytest.mark.feature("F225")
def test_an_async_function_is_called_at_most_so_many_times_at_once() -> None:
    running, most, finished = 0, 0, 0

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        done = asyncio.Event()

        async def on_message(message: aio.Received) -> None:
            nonlocal running, most, finished
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1
            finished += 1
            if finished == 40:
                done.set()

        for number in range(40):
            await producer.send("T", b"%d" % number)
        async with listening(rocket.namesrv, [handler_of(on_message, concurrency=3)]):
            await done.wait()

    scenario(play)
    assert 1 < most <= 3


@pytest.mark.feature("F222")
def test_what_was_pulled_lies_in_its_queue_until_a_call_is_free_and_until_that_is_done() -> None:
    seen: list[tuple[bytes, int, int]] = []  # the message; of its queue, those not settled and those not handed out

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        await rocket.create_topic("One", 1)
        done = asyncio.Event()

        async def on_message(message: aio.Received) -> None:
            home = message.home
            assert isinstance(home, InFlight)
            seen.append((message.body, len(home), home.waiting_count))
            if len(seen) == 4:
                done.set()

        await producer.send_batch([aio.Message("One", b"%d" % number) for number in range(4)])
        handler = replace(handler_of(on_message, concurrency=1), topics={"One": "*"})
        async with listening(rocket.namesrv, [handler]):
            await done.wait()

    scenario(play)
    assert seen == [(b"0", 4, 3), (b"1", 3, 2), (b"2", 2, 1), (b"3", 1, 0)]


@pytest.mark.feature("F253", "F252")
def test_a_message_whose_function_raised_comes_again() -> None:
    attempts: list[int] = []

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        done = asyncio.Event()

        async def on_message(message: aio.Received) -> None:
            attempts.append(message.attempt)
            if len(attempts) == 1:
                message.nack(delay=0.01)
                raise ValueError("not today")
            done.set()

        await producer.send("T", b"x")
        async with listening(rocket.namesrv, [handler_of(on_message)]):
            await done.wait()

    scenario(play)
    assert attempts == [1, 2]


@pytest.mark.feature("F280", "F282", "F289")
def test_an_ordered_group_sees_each_queue_in_order_through_failures() -> None:
    seen: list[bytes] = []

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        done = asyncio.Event()

        async def on_message(message: aio.Received) -> None:
            if message.body == b"3" and message.attempt == 1:
                message.nack(delay=0.05)
                return
            seen.append(message.body)
            if len(seen) == 10:
                done.set()

        for number in range(10):
            await producer.send("T", b"%d" % number, shard="one")
        async with listening(rocket.namesrv, [handler_of(on_message, ordered=True)]):
            await done.wait()

    scenario(play)
    assert seen == [b"%d" % number for number in range(10)]


def test_a_call_that_takes_too_long_counts_as_failed() -> None:
    attempts: list[int] = []

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        failed = asyncio.Event()

        class Hook:
            def before_consume(self, message: aio.Received) -> None:
                attempts.append(message.attempt)

            def after_consume(self, message: aio.Received, problem: BaseException | None) -> None:
                if isinstance(problem, TimeoutError):
                    failed.set()

        async def on_message(message: aio.Received) -> None:
            await asyncio.Event().wait()

        await producer.send("T", b"x")
        async with listening(rocket.namesrv, [handler_of(on_message, timeout_s=0.05, hooks=(Hook(),))]):
            await failed.wait()

    scenario(play)
    assert attempts == [1]


@pytest.mark.feature("F228", "F231", "F233")
def test_hooks_see_each_call_and_how_it_went_and_what_they_raise_changes_nothing() -> None:
    seen: list[tuple[str, bytes]] = []

    class Hook:
        def before_consume(self, message: aio.Received) -> None:
            seen.append(("before", message.body))
            raise RuntimeError("a hook that fails")

        def after_consume(self, message: aio.Received, problem: BaseException | None) -> None:
            seen.append((type(problem).__name__, message.body))

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        done = asyncio.Event()

        async def on_message(message: aio.Received) -> None:
            if message.body == b"bad" and message.attempt == 1:
                message.nack(delay=0.05)
                raise ValueError("bad")
            if message.attempt == 2:
                done.set()

        await producer.send("T", b"bad")
        async with listening(rocket.namesrv, [handler_of(on_message, hooks=(Hook(),))]):
            await done.wait()

    scenario(play)
    assert seen == [("before", b"bad"), ("ValueError", b"bad"), ("before", b"bad"), ("NoneType", b"bad")]


def test_an_administrator_gives_one_message_by_hand_and_hears_how_it_went() -> None:
    results: list[tuple[object, str | None]] = []

    async def play(rocket: AsyncCluster, producer: aio.Producer) -> None:
        async def on_message(message: aio.Received) -> None:
            if message.body == b"worse":
                raise ValueError("worse")
            if message.body == b"later":
                message.nack()

        receipts = [await producer.send("T", body) for body in (b"fine", b"later", b"worse")]
        broker = rocket.brokers[0].address
        # The group begins behind them, so that only the administrator gives them.
        walker = aio.PullConsumer("cg", rocket.namesrv)
        async with walker:
            for queue in await walker.queues("T"):
                await walker.commit(queue, await walker.max_offset(queue))
        async with listening(rocket.namesrv, [handler_of(on_message)]) as (subscriber,):
            before = subscriber.progress("T")
            for receipt in receipts:
                fields = {"consumerGroup": "cg", "clientId": subscriber.client_id, "msgId": receipt.offset_id}
                command = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields=fields)
                told = DirectConsumption.decode((await producer.instance.ask(broker, command)).body)
                results.append((told.consume_result, told.remark))
            assert subscriber.progress("T") == before

    scenario(play)
    assert results == [
        (ConsumeResult.CR_SUCCESS, None),
        (ConsumeResult.CR_LATER, None),
        (ConsumeResult.CR_THROW_EXCEPTION, "ValueError: worse"),
    ]


def test_handlers_run_in_the_background_of_a_program_without_a_loop() -> None:
    taken: list[bytes] = []
    with cluster() as rocket, bolide.Producer("pg", rocket.namesrv) as producer:
        handler = handler_of(lambda message: taken.append(message.body))
        with bolide.listening(rocket.namesrv, [handler]):
            for number in range(20):
                producer.send("T", b"%d" % number)
            wait_for(lambda: len(taken) == 20)
        with pytest.raises(bolide.BolideError), bolide.listening(f"127.0.0.1:{free_port()}", [handler]):
            pass
    assert sorted(taken) == sorted(b"%d" % number for number in range(20))
