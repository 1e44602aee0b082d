"""A broker that is away for a moment costs time and no send: a real process is killed, stopped and started again."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from bolide import aio
from bolide.errors import BolideError, ConnectError
from bolide.testing import AsyncCluster, Cluster, cluster
from tests.client.scenes import OLDEST, client_clock, collecting, numbers, on_uvloop, send_all, stage
from tests.client.sends import LIMIT_S, all_sends, failures_in_threads_while, failures_while, order_is_kept
from tests.remoting.loops import both_loops, eventually, virtual_time


async def away(rocket: AsyncCluster, seconds: float, *, is_killed: bool) -> None:
    """The only broker is gone, and back after so many seconds."""
    (broker,) = rocket.brokers
    await (broker.kill() if is_killed else broker.stop())
    begun_s = time.monotonic()
    await eventually(lambda: time.monotonic() - begun_s >= seconds)
    await broker.start()


@pytest.mark.parametrize(("seconds", "is_killed"), [(0.3, True), (0.3, False), (1.5, True)])
def test_no_send_of_any_kind_fails_while_the_only_broker_is_started_again(seconds: float, is_killed: bool) -> None:
    @on_uvloop
    async def play() -> None:
        def checker(message: aio.StoredMessage) -> aio.Outcome:
            return aio.Outcome.COMMIT

        async with (
            stage(queue_count=4, processes=True) as rocket,
            aio.TransactionProducer("pg", rocket.namesrv, checker=checker, timeout_s=LIMIT_S) as producer,
            aio.Producer("lingering", rocket.namesrv, linger_ms=2, timeout_s=LIMIT_S) as lingering,
        ):
            await rocket.create_topic("Order", 2)
            await send_all(producer, "T", numbers(0, 4))
            await producer.send("Order", b"-1", shard="s")
            await lingering.send("T", b"x")
            assert not await failures_while(all_sends(producer, lingering), away(rocket, seconds, is_killed=is_killed))
            await order_is_kept(producer, rocket.namesrv)

    play()


@pytest.fixture
def rocket() -> Iterator[Cluster]:
    with cluster(processes=True) as running:
        running.create_topic("T", 4)
        yield running


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_in_threads_no_send_of_any_kind_fails_either(rocket: Cluster, seconds: float) -> None:
    (broker,) = rocket.brokers

    def change(ended: threading.Event) -> None:
        broker.kill()
        ended.wait(seconds)
        broker.start()

    assert failures_in_threads_while(rocket.namesrv, change) == []


@on_uvloop
async def test_a_request_waits_for_its_broker_and_is_answered() -> None:
    async with (
        stage(queue_count=2, processes=True) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        collecting("g", "T", rocket.namesrv, act=lambda message: message.reply(b"yes")),
    ):
        assert (await producer.request("T", b"?", timeout_s=10)).body == b"yes"
        async with asyncio.TaskGroup() as tasks:
            (broker,) = rocket.brokers
            await broker.kill()
            asking = tasks.create_task(producer.request("T", b"?", timeout_s=20), name="ask")
            await away(rocket, 0.3, is_killed=False)
        assert asking.result().body == b"yes"


@pytest.mark.parametrize("options", [{}, {"keys": "k"}, {"shard": "s"}, {"timeout_s": 1.0}], ids=str)
def test_a_broker_that_stays_away_is_told_at_the_end_of_the_time_limit(options: dict[str, Any]) -> None:
    @virtual_time
    async def play() -> None:
        async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
            await producer.send("T", b"x")
            await rocket.brokers[0].kill()
            limit_s = options.get("timeout_s", 3.0)
            for _ in range(2):
                begun_s = asyncio.get_running_loop().time()
                with pytest.raises(ConnectError, match="was reached before and is not there now") as caught:
                    await producer.send("T", b"x", **options)
                assert limit_s - 0.2 <= asyncio.get_running_loop().time() - begun_s <= limit_s + 0.5
                assert "brokerIP1" not in str(caught.value)
                assert "next attempt" not in str(caught.value)

    play()


@virtual_time
async def test_every_way_to_send_uses_its_whole_time_limit_and_no_more() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.send("T", b"x")
        await rocket.brokers[0].kill()
        sends: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: producer.send_oneway("T", b"x"),
            lambda: producer.send_batch([aio.Message("T", b"x")]),
            lambda: producer.request("T", b"x"),
            lambda: asyncio.gather(*(producer.send("T", b"x") for _ in range(500))),
        )
        for send in sends:
            begun_s = asyncio.get_running_loop().time()
            with pytest.raises(BolideError):
                await send()
            assert 2.8 <= asyncio.get_running_loop().time() - begun_s <= 3.5


@virtual_time
async def test_without_retries_a_broker_that_is_away_is_told_at_once() -> None:
    options: dict[str, Any] = {"retry_count": 0, "clock": client_clock()}
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, **options) as producer:
        await producer.send("T", b"x")
        await rocket.brokers[0].kill()
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(ConnectError):
            await producer.send("T", b"x")
        assert asyncio.get_running_loop().time() - begun_s < 0.5


@virtual_time
async def test_after_a_long_outage_the_first_send_finds_the_broker() -> None:
    """Connections that failed often rest for seconds; who waits with a message does not."""
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.send("T", b"x")
        (broker,) = rocket.brokers
        await broker.kill()
        for _ in range(10):
            with pytest.raises(ConnectError):
                await producer.send("T", b"x")
        await broker.start()
        begun_s = asyncio.get_running_loop().time()
        assert (await producer.send("T", b"x")).is_ok
        assert asyncio.get_running_loop().time() - begun_s < 0.5


@virtual_time
async def test_a_dead_broker_that_the_name_server_still_knows_costs_nothing_where_others_live() -> None:
    async with stage(brokers=3) as rocket:
        await rocket.brokers[0].kill()
        await rocket.brokers[1].kill()
        async with aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
            begun_s = asyncio.get_running_loop().time()
            receipts = await send_all(producer, "T", numbers(0, 30))
            assert {receipt.queue.broker_name for receipt in receipts} == {rocket.brokers[2].name}
            assert asyncio.get_running_loop().time() - begun_s < 1


@both_loops
async def test_many_sends_of_one_turn_over_a_connection_that_has_ended_all_arrive() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.send("T", b"first")
        cases: tuple[dict[str, Any], ...] = ({}, {"shard": "s"})
        for options in cases:
            producer.instance.client.close(rocket.brokers[0].address)
            receipts = await asyncio.gather(*(producer.send("T", b"x", **options) for _ in range(20)))
            assert len({receipt.msg_id for receipt in receipts}) == 20
            assert all(receipt.is_ok for receipt in receipts)
        assert [receipt.queue_offset for receipt in receipts] == sorted(receipt.queue_offset for receipt in receipts)


@virtual_time
async def test_a_consumer_says_once_that_a_broker_has_gone_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        stage(queue_count=16) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        collecting("g", "T", rocket.namesrv, start_from=OLDEST) as member,
    ):
        await producer.send("T", b"before")
        await eventually(lambda: len(member.taken) == 1)
        (broker,) = rocket.brokers
        caplog.clear()
        await broker.kill()
        await asyncio.sleep(60)  # virtual
        await broker.start()
        await producer.send("T", b"after")
        await eventually(lambda: b"after" in member.bodies, 30)
        said = [record.message for record in caplog.records if record.name.startswith("bolide.client.")]
        of_broker = [text for text in said if broker.address in text]
        gone = [text for text in of_broker if "fails, and is tried until it works" in text]
        back = [text for text in of_broker if "works again after 6" in text]
        # The producer is a client of its own, and its heartbeats say the same.
        assert 1 <= len(gone) <= 2
        assert 1 <= len(back) <= 2
        assert len(said) <= 6
