"""Every way to send, again and again, while something happens to the brokers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import bolide
from bolide import aio
from bolide.errors import BolideError
from tests.client.scenes import collecting
from tests.remoting.loops import POLL_INTERVAL_S, eventually

Send = Callable[[int], Awaitable[object]]
LIMIT_S = 40.0  # of a send, where a process is started meanwhile: that may take seconds on a busy machine


def all_sends(producer: aio.TransactionProducer, lingering: aio.Producer) -> dict[str, Send]:
    """Topics `T` and `Order`; `Order` gets numbers in order, from 0 on."""
    return {
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


async def order_is_kept(producer: aio.Producer, namesrv: str) -> None:
    """What was in doubt may lie there twice, but nothing overtook, and nothing is missing."""
    async with collecting("order-is-kept", "Order", namesrv) as member:
        assert (await producer.send("Order", b"end", shard="s")).is_ok
        await eventually(lambda: b"end" in member.bodies, 20)
    bodies = [int(body) for body in member.bodies if body != b"end"]
    firsts = list(dict.fromkeys(bodies))
    assert firsts == sorted(firsts)
    assert len(firsts) == firsts[-1] + 2


def failures_in_threads_while(namesrv: str, change: Callable[[threading.Event], None]) -> list[str]:
    """The same without a loop, a thread for each way; `change` is given an event to wait on."""
    failed: list[str] = []
    ended = threading.Event()
    checker = lambda message: bolide.Outcome.COMMIT  # noqa: E731
    with bolide.TransactionProducer("pg", namesrv, checker=checker, timeout_s=LIMIT_S) as producer:

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
        try:
            change(ended)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    return failed
