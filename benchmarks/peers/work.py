"""What each client does, in a process of its own: `python -m benchmarks.peers.work CLIENT TASK ADDRESS COUNT`.

Tasks: `send`, one message at a time, each acknowledged before the next; `threads`, the same from 16 threads;
`inflight`, 64 asyncio tasks of which each waits for its own; `batch`, as fast as the client's own batching goes;
`read`, a backlog that was written before; `latency`, 1,000 messages a second to a handler that waits for them. Messages
have 128 bytes. One JSON line comes out: seconds, processor seconds of this process, and for `latency` the percentiles.
"""

import asyncio
import json
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

BODY = b"x" * 128
FLIGHTS = 64
THREADS = 16
RATE_PER_S = 1000
TOPIC = "bench"


class Timed:
    """Seconds of the clock and of the processor between `start` and `stop`."""

    def __init__(self) -> None:
        self.elapsed_s = self.cpu_s = 0.0
        self.delays_s: list[float] = []

    def start(self) -> None:
        self._started_s, self._cpu_s = time.perf_counter(), self._used_s()

    def stop(self) -> None:
        self.elapsed_s, self.cpu_s = time.perf_counter() - self._started_s, self._used_s() - self._cpu_s

    def _used_s(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


def stamp() -> bytes:
    """A body that says when it was sent."""
    return b"%.9f" % time.time() + BODY[:100]


def age_s(body: bytes) -> float:
    return time.time() - float(body.partition(b"x")[0])


async def in_flight(send: Callable[[], Awaitable[Any]], count: int, timed: Timed) -> None:
    async def work() -> None:
        for _ in range(count // FLIGHTS):
            await send()

    await send()
    timed.start()
    await asyncio.gather(*(work() for _ in range(FLIGHTS)))
    timed.stop()


async def paced(send: Callable[[bytes], Awaitable[Any]], count: int) -> None:
    """So many a second, each at its own moment; one that is late is sent at once."""
    started_s = time.perf_counter()
    for number in range(count):
        pause_s = started_s + number / RATE_PER_S - time.perf_counter()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        await send(stamp())


# Bolide, on our broker and on Apache's


def bolide_send(address: str, count: int, timed: Timed, threads: int = 1) -> None:
    import bolide

    with bolide.Producer("bench", address) as producer:
        for _ in range(20):
            producer.send(TOPIC, BODY)

        def work() -> None:
            for _ in range(count // threads):
                producer.send(TOPIC, BODY)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        timed.start()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        timed.stop()


def bolide_threads(address: str, count: int, timed: Timed) -> None:
    bolide_send(address, count, timed, THREADS)


async def bolide_inflight(address: str, count: int, timed: Timed) -> None:
    from bolide import aio

    async with aio.Producer("bench", address) as producer:
        await in_flight(lambda: producer.send(TOPIC, BODY), count, timed)


async def bolide_batch(address: str, count: int, timed: Timed) -> None:
    from bolide import aio

    async with aio.Producer("bench", address, linger_ms=5) as producer:
        await producer.send(TOPIC, BODY)
        timed.start()
        for _ in range(count):
            await producer.submit(TOPIC, BODY)
        await producer.flush()
        timed.stop()


async def bolide_read(address: str, count: int, timed: Timed) -> None:
    from bolide import aio

    topic = f"read{time.time_ns()}"
    async with aio.Producer("bench", address, linger_ms=5) as producer:
        for _ in range(count):
            await producer.submit(topic, BODY)
        await producer.flush()
    consumer = aio.Consumer(topic, topic, address, start_from=aio.StartFrom.oldest())
    timed.start()
    async with consumer:
        taken = 0
        async for message in consumer:
            taken += len(message.body) == len(BODY)
            if taken == count:
                break
        timed.stop()


async def bolide_latency(address: str, count: int, timed: Timed) -> None:
    from bolide import aio

    topic = f"late{time.time_ns()}"
    async with aio.Producer("bench", address) as producer:
        await producer.send(topic, stamp())
        async with aio.Consumer(topic, topic, address, start_from=aio.StartFrom.oldest()) as consumer:
            await anext(consumer)

            async def take() -> None:
                async for message in consumer:
                    timed.delays_s.append(age_s(message.body))
                    if len(timed.delays_s) == count:
                        break

            timed.start()
            await asyncio.gather(take(), paced(lambda body: producer.send(topic, body), count))
            timed.stop()


# Redis Streams


def _redis(address: str, kind: Any) -> Any:
    host, _, port = address.partition(":")
    return kind(host=host, port=int(port))


def redis_send(address: str, count: int, timed: Timed, threads: int = 1) -> None:
    import redis

    client = _redis(address, redis.Redis)
    client.xadd(TOPIC, {"b": BODY})

    def work() -> None:
        for _ in range(count // threads):
            client.xadd(TOPIC, {"b": BODY})

    workers = [threading.Thread(target=work) for _ in range(threads)]
    timed.start()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    timed.stop()


def redis_threads(address: str, count: int, timed: Timed) -> None:
    redis_send(address, count, timed, THREADS)


async def redis_inflight(address: str, count: int, timed: Timed) -> None:
    import redis.asyncio

    client = _redis(address, redis.asyncio.Redis)
    await in_flight(lambda: client.xadd(TOPIC, {"b": BODY}), count, timed)
    await client.aclose()


def redis_batch(address: str, count: int, timed: Timed, topic: str = TOPIC) -> None:
    import redis

    client = _redis(address, redis.Redis)
    timed.start()
    for _ in range(count // FLIGHTS):
        pipeline = client.pipeline(transaction=False)
        for _ in range(FLIGHTS):
            pipeline.xadd(topic, {"b": BODY})
        pipeline.execute()
    timed.stop()


def redis_read(address: str, count: int, timed: Timed) -> None:
    import redis

    topic = f"read{time.time_ns()}"
    count = count // FLIGHTS * FLIGHTS
    redis_batch(address, count, timed, topic)
    client = _redis(address, redis.Redis)
    client.xgroup_create(topic, "g", "0")
    timed.start()
    taken = 0
    while taken < count:
        ((_, entries),) = client.xreadgroup("g", "c", {topic: ">"}, count=256)
        taken += sum(len(fields[b"b"]) == len(BODY) for _, fields in entries)
        client.xack(topic, "g", *(number for number, _ in entries))
    timed.stop()


async def redis_latency(address: str, count: int, timed: Timed) -> None:
    import redis.asyncio

    client, reader = _redis(address, redis.asyncio.Redis), _redis(address, redis.asyncio.Redis)
    topic = f"late{time.time_ns()}"
    await client.xgroup_create(topic, "g", "0", mkstream=True)

    async def take() -> None:
        while len(timed.delays_s) < count:
            for _, entries in await reader.xreadgroup("g", "c", {topic: ">"}, count=64, block=5000):
                for number, fields in entries:
                    timed.delays_s.append(age_s(fields[b"b"]))
                    await reader.xack(topic, "g", number)

    timed.start()
    await asyncio.gather(take(), paced(lambda body: client.xadd(topic, {"b": body}), count))
    timed.stop()
    await client.aclose()
    await reader.aclose()


# Kafka


def confluent_send(address: str, count: int, timed: Timed) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0})
    producer.produce(TOPIC, BODY)
    producer.flush()
    timed.start()
    for _ in range(count):
        producer.produce(TOPIC, BODY)
        producer.flush()
    timed.stop()


def confluent_batch(address: str, count: int, timed: Timed, topic: str = TOPIC) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": "1"})
    producer.produce(topic, BODY)
    producer.flush()
    timed.start()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, BODY)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    timed.stop()


def confluent_read(address: str, count: int, timed: Timed) -> None:
    from confluent_kafka import Consumer

    topic = f"read{time.time_ns()}"
    confluent_batch(address, count - 1, timed, topic)
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    timed.start()
    taken = 0
    while taken < count:
        taken += sum(message.value() == BODY for message in consumer.consume(256, 10))
    timed.stop()
    consumer.close()


async def aiokafka_send(address: str, count: int, timed: Timed) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, acks=1) as producer:
        await producer.send_and_wait(TOPIC, BODY)
        timed.start()
        for _ in range(count):
            await producer.send_and_wait(TOPIC, BODY)
        timed.stop()


async def aiokafka_inflight(address: str, count: int, timed: Timed) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, acks=1) as producer:
        await in_flight(lambda: producer.send_and_wait(TOPIC, BODY), count, timed)


async def aiokafka_batch(address: str, count: int, timed: Timed, topic: str = TOPIC) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, acks=1, linger_ms=5) as producer:
        await producer.send_and_wait(topic, BODY)
        timed.start()
        for _ in range(count):
            await producer.send(topic, BODY)
        await producer.flush()
        timed.stop()


async def aiokafka_read(address: str, count: int, timed: Timed) -> None:
    from aiokafka import AIOKafkaConsumer

    topic = f"read{time.time_ns()}"
    await aiokafka_batch(address, count - 1, timed, topic)
    options = {"bootstrap_servers": address, "group_id": topic, "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(topic, **options)
    timed.start()
    async with consumer:
        taken = 0
        async for message in consumer:
            taken += len(message.value) == len(BODY)
            if taken == count:
                break
        timed.stop()


# NATS JetStream


async def _jetstream(address: str, topic: str) -> Any:
    import nats

    connection = await nats.connect(f"nats://{address}")
    stream = connection.jetstream()
    await stream.add_stream(name=topic, subjects=[topic])
    return connection, stream


async def nats_send(address: str, count: int, timed: Timed) -> None:
    connection, stream = await _jetstream(address, TOPIC)
    timed.start()
    for _ in range(count):
        await stream.publish(TOPIC, BODY)
    timed.stop()
    await connection.close()


async def nats_inflight(address: str, count: int, timed: Timed) -> None:
    connection, stream = await _jetstream(address, TOPIC)
    await in_flight(lambda: stream.publish(TOPIC, BODY), count, timed)
    await connection.close()


async def nats_read(address: str, count: int, timed: Timed) -> None:
    topic = f"read{time.time_ns()}"
    connection, stream = await _jetstream(address, topic)
    count = count // FLIGHTS * FLIGHTS
    await in_flight(lambda: stream.publish(topic, BODY), count - FLIGHTS, timed)
    subscription = await stream.pull_subscribe(topic, "g")
    timed.start()
    taken = 0
    while taken < count - FLIGHTS:
        for message in await subscription.fetch(256, timeout=5):
            taken += len(message.data) == len(BODY)
            await message.ack()
    timed.stop()
    await connection.close()


def main() -> None:
    client, task, address, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    work = globals()[f"{client}_{task}"]
    timed = Timed()
    if asyncio.iscoroutinefunction(work):
        import uvloop

        uvloop.run(work(address, count, timed))
    else:
        work(address, count, timed)
    told: dict[str, Any] = {"elapsed_s": timed.elapsed_s, "cpu_s": timed.cpu_s}
    if timed.delays_s:
        delays = sorted(timed.delays_s)
        told["delays_ms"] = {str(p): 1000 * delays[int(len(delays) * p / 100)] for p in (50, 90, 99)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
