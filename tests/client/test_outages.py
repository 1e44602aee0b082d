"""A broker that is away for a moment costs time and no send: a real process is killed, stopped and started again."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.errors import BolideError, ConnectError
from bolide.testing import AsyncCluster, Cluster, cluster
from tests.client.scenes import OLDEST, client_clock, collecting, numbers, on_uvloop, send_all, stage
from tests.remoting.loops import POLL_INTERVAL_S, both_loops, eventually, virtual_time

Send = Callable[[int], Awaitable[object]]
LIMIT_S = 20.0  # of a send, where a process is started meanwhile: that may take seconds on a busy machine


async def away(rocket: AsyncCluster, seconds: float, *, is_killed: bool) -> None:
    """The only broker is gone, and back after so many seconds."""
    (broker,) = rocket.brokers
    await (broker.kill() if is_killed else broker.stop())
    begun_s = time.monotonic()
    await eventually(lambda: time.monotonic() - begun_s >= seconds)
    await broker.start()


async def failures_while(sends: dict[str, Send], change: Awaitable[None]) -> Counter[str]:
    """Send in every way, each again and again, while something happens and for a second more; who failed."""
    failed: Counter[str] = Counter()
    ended = asyncio.Event()

    async def keep_on(name: str, send: Send) -> None:
        number = 0
        while not ended.is_set():
            try:
                await send(number)
            except BolideError as problem:
                failed[f"{name}: {problem!r}"] += 1
            number += 1
            await asyncio.sleep(POLL_INTERVAL_S)

    async with asyncio.TaskGroup() as tasks:
        for name, send in sends.items():
            tasks.create_task(keep_on(name, send), name=name)
        await change
        ended.set()
    return failed


async def committed_transaction(producer: aio.TransactionProducer, number: int) -> None:
    async with producer.transaction("T", b"half-%d" % number):
        pass


async def submitted(producer: aio.Producer, number: int) -> None:
    futures = [await producer.submit("Order", b"%d" % (10 * number + step), shard="s") for step in range(10)]
    await asyncio.gather(*futures)


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
            sends: dict[str, Send] = {
                "send": lambda number: producer.send("T", b"%d" % number),
                "with a limit": lambda number: producer.send("T", b"x", timeout_s=LIMIT_S),
                "shard": lambda number: producer.send("T", b"x", shard="s"),
                "batch": lambda number: producer.send_batch([aio.Message("T", b"a"), aio.Message("T", b"b")]),
                "linger": lambda number: asyncio.gather(*(lingering.send("T", b"x") for _ in range(5))),
                "many": lambda number: asyncio.gather(*(producer.send("T", b"x") for _ in range(20))),
                "oneway": lambda number: producer.send_oneway("T", b"x"),
                "half": partial(committed_transaction, producer),
                "submit": partial(submitted, producer),
            }
            assert not await failures_while(sends, away(rocket, seconds, is_killed=is_killed))
            async with collecting("g", "Order", rocket.namesrv) as member:
                last = await producer.send("Order", b"end", shard="s")
                await eventually(lambda: b"end" in member.bodies, 20)
            bodies = [int(body) for body in member.bodies if body != b"end"]
            firsts = list(dict.fromkeys(bodies))
            assert firsts == sorted(firsts)  # what was in doubt may lie there twice, but nothing overtook
            assert len(firsts) == firsts[-1] + 2
            assert last.is_ok

    play()


@pytest.fixture
def rocket() -> Iterator[Cluster]:
    with cluster(processes=True) as running:
        running.create_topic("T", 4)
        yield running


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_in_threads_no_send_of_any_kind_fails_either(rocket: Cluster, seconds: float) -> None:
    failed: list[str] = []
    ended = threading.Event()
    (broker,) = rocket.brokers
    checker = lambda message: bolide.Outcome.COMMIT  # noqa: E731
    with bolide.TransactionProducer("pg", rocket.namesrv, checker=checker, timeout_s=LIMIT_S) as producer:

        def half() -> None:
            with producer.transaction("T", b"x"):
                pass

        sends: dict[str, Callable[[], object]] = {
            "send": lambda: producer.send("T", b"x"),
            "keys": lambda: producer.send("T", b"x", keys="k", timeout_s=LIMIT_S),
            "shard": lambda: producer.send("T", b"x", shard="s"),
            "batch": lambda: producer.send_batch([bolide.Message("T", b"a")]),
            "oneway": lambda: producer.send_oneway("T", b"x"),
            "submit": lambda: producer.submit("T", b"x").result(LIMIT_S),
            "half": half,
        }

        def keep_on(name: str, send: Callable[[], object]) -> None:
            while not ended.is_set():
                try:
                    send()
                except BolideError as problem:
                    failed.append(f"{name}: {problem!r}")
                ended.wait(0.01)

        for send in sends.values():
            send()
        threads = [threading.Thread(target=keep_on, args=item) for item in sends.items()]
        for thread in threads:
            thread.start()
        broker.kill()
        ended.wait(seconds)
        broker.start()
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []


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
