"""Producers and a reader with our client, in a process of their own: what they ask and hear becomes a history.

    python -m tests.replication.workload NAMESRV TOPIC FILE --producers 4

Each producer sends a few messages at a time and waits for all of them. Every second one leaves retries to the client,
as users do; the others make one attempt, so their answer is the broker's. It ends at SIGTERM, when what was begun has
its answer. `read_queues` is what a survivor is asked for in the end.
"""

import argparse
import asyncio
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from bolide.aio import MessageQueue, Producer, PullConsumer, Receipt
from bolide.errors import BolideError, NoAnswer
from tests.replication.history import Fate, Queues, Send, Sighting, line_of

SEND_LIMIT_S = 3.0
PULL_LIMIT_S = 3.0
RETRY_COUNT = 10
BURST_MAX = 6
BURST_PAUSE_S = 0.01
FAILURE_PAUSE_S = 0.05
LARGE_SHARE, LARGE_SIZE = 0.02, 70_000  # more than two frames of the stream
# A broker that answers so has not stored the message (replication.md 1.5, 3).
NOT_STORED = ("in-sync replicas not enough", "[REJECTREQUEST]")
OPEN = "it may be stored or not"  # the leader lost its lead meanwhile: this refusal promises nothing
STORED_CODES = {10, 11, 12}


class Workload:
    """What runs against one topic until it is told to stop."""

    def __init__(self, namesrv: str, topic: str, file: TextIO) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._file = file
        self.stopping = asyncio.Event()

    def _note(self, event: Send | Sighting) -> None:
        self._file.write(f"{line_of(event)}\n")
        self._file.flush()

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), pause_s)

    async def produce(self, name: str, *, is_retried: bool) -> None:
        chance, number = random.Random(name), 0
        retry_count = RETRY_COUNT if is_retried else 0
        async with Producer(
            name, self._namesrv, timeout_s=SEND_LIMIT_S, retry_count=retry_count, compress_over=4 << 20
        ) as producer:
            while not self.stopping.is_set():
                burst = range(number, number + chance.randint(1, BURST_MAX))
                number = burst.stop
                sizes = [LARGE_SIZE if chance.random() < LARGE_SHARE else 100 for _ in burst]
                sends = [
                    self._send(producer, name, each, size, is_retried=is_retried)
                    for each, size in zip(burst, sizes, strict=True)
                ]
                fates = await asyncio.gather(*sends)
                is_bad = any(fate in (Fate.REFUSED, Fate.UNKNOWN) for fate in fates)
                await self._pause(FAILURE_PAUSE_S if is_bad else BURST_PAUSE_S)

    async def _send(self, producer: Producer, name: str, number: int, size: int, *, is_retried: bool) -> Fate:
        begun_s = time.monotonic()
        body = f"{name}/{number} ".ljust(size, ".").encode()
        try:
            receipt = await producer.send(self._topic, body)
        except BolideError as problem:
            remark = str(problem)
            is_open = isinstance(problem, NoAnswer) or OPEN in remark
            is_refused = not is_open and any(word in remark for word in NOT_STORED)
            fate = Fate.REFUSED if is_refused else Fate.UNKNOWN
            send = Send(name, number, begun_s, time.monotonic(), fate, problem.code, remark, is_retried=is_retried)
        else:
            send = _send_of(receipt, name, number, begun_s, is_retried=is_retried)
        self._note(send)
        return send.fate

    async def read(self) -> None:
        """Walk all queues; what a broker gives out it has promised to keep."""
        async with PullConsumer("readers", self._namesrv, timeout_s=PULL_LIMIT_S) as consumer:
            offsets: dict[MessageQueue, int] = {}
            while not self.stopping.is_set():
                try:
                    for queue in await consumer.queues(self._topic):
                        await self._read_some(consumer, queue, offsets)
                except BolideError:
                    await self._pause(FAILURE_PAUSE_S)
                await self._pause(BURST_PAUSE_S)

    async def _read_some(self, consumer: PullConsumer, queue: MessageQueue, offsets: dict[MessageQueue, int]) -> None:
        pulled = await consumer.pull(queue, offsets.get(queue, 0))
        for message in pulled.messages:
            self._note(Sighting(name_of(queue), message.queue_offset, _body_of(message.body), time.monotonic()))
            offsets[queue] = message.queue_offset + 1


def _send_of(receipt: Receipt, name: str, number: int, begun_s: float, *, is_retried: bool) -> Send:
    fate = Fate.OPEN if receipt.status.value in STORED_CODES else Fate.ACKNOWLEDGED
    queue, offset = name_of(receipt.queue), receipt.queue_offset
    return Send(
        name, number, begun_s, time.monotonic(), fate, receipt.status.value, "", queue, offset, is_retried=is_retried
    )


def name_of(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


def _body_of(body: bytes) -> str:
    return body.partition(b" ")[0].decode()


async def read_queues(namesrv: str, topic: str) -> Queues:
    """Everything that the queues of a topic hold, read from the broker that the route names."""
    found: dict[str, list[tuple[int, str]]] = {}
    async with PullConsumer("auditors", namesrv) as consumer:
        for queue in await consumer.queues(topic):
            held = found.setdefault(name_of(queue), [])
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                pulled = await consumer.pull(queue, offset, count_max=1000)
                held += [(message.queue_offset, _body_of(message.body)) for message in pulled.messages]
                assert pulled.next_offset > offset, f"{queue} says nothing at {offset} of {end}: {pulled.status}"
                offset = pulled.next_offset
    return found


async def run(namesrv: str, topic: str, path: Path, producer_count: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        workload = Workload(namesrv, topic, file)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, workload.stopping.set)
        async with asyncio.TaskGroup() as tasks:
            for number in range(producer_count):
                work = workload.produce(f"p{number}", is_retried=number % 2 == 1)
                tasks.create_task(work, name=f"produce.{number}")
            tasks.create_task(workload.read(), name="read")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("file", type=Path)
    parser.add_argument("--producers", type=int, default=4)
    given = parser.parse_args()
    asyncio.run(run(given.namesrv, given.topic, given.file, given.producers))
