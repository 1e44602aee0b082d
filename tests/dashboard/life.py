"""A shop at work, for pages to show: some sell, some bill, one lags behind, and one transaction is undecided."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress

from bolide import aio

_SALE_INTERVAL_S = 0.1
_READY_LIMIT_S = 60
MEMBERS = (
    ("billing-cg", "Payments", "billing-1"),
    ("billing-cg", "Payments", "billing-2"),
    ("mails-cg", "Clicks", "m1"),
)


@contextmanager
def at_work(namesrv: str) -> Iterator[None]:
    """The shop is open inside the block."""
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_work(namesrv, ready, stop),), name="shop")
    thread.start()
    try:
        assert ready.wait(_READY_LIMIT_S), "the shop did not open"
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_READY_LIMIT_S)
        loop.close()


async def _work(namesrv: str, ready: threading.Event, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        producer = await stack.enter_async_context(aio.Producer("web-pg", namesrv))
        banker = aio.TransactionProducer("bank-pg", namesrv, checker=lambda _: aio.Outcome.UNKNOWN)
        transaction = (await stack.enter_async_context(banker)).transaction("Payments", b"who pays?")
        await transaction.start()
        await transaction.unknown()
        tasks = [group.create_task(_sell(producer, stop), name="shop.sell")]
        for name, topic, instance in MEMBERS:
            member = aio.Consumer(name, topic, namesrv, instance_name=instance)
            consumer = await stack.enter_async_context(member)
            tasks.append(group.create_task(_consume(consumer), name="shop.consume"))
        ready.set()
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _sell(producer: aio.Producer, stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        await producer.send("Payments", b"paid again", keys=[f"sale-{number}"])
        await producer.send("Audit", b"sold", tags="eu" if number % 3 else "us")
        number += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(_SALE_INTERVAL_S):
                await stop.wait()


async def _consume(consumer: aio.Consumer) -> None:
    async for message in consumer:
        message.ack()
