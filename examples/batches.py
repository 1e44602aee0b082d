"""Many small messages: several in one request, stored together; or as many as come, joined by the producer.

python examples/batches.py
"""

import asyncio
import os

import bolide
from bolide import aio

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def send_together() -> None:
    """All or none, in one queue, in this order: readings that belong together."""
    with bolide.Producer("sensors", NAMESRV) as producer:
        readings = [bolide.Message("Readings", f"{number} degrees".encode(), tags="hall") for number in range(100)]
        receipts = producer.send_batch(readings)
        print(f"{len(receipts)} messages in one request, offsets {receipts[0].queue_offset} and on")


async def send_many() -> None:
    """Each has its own receipt; those sent within a few milliseconds share a request."""
    async with aio.Producer("meters", NAMESRV, linger_ms=5) as producer:
        sends = (producer.send("Readings", f"{number} kWh".encode(), tags="meter") for number in range(1000))
        receipts = await asyncio.gather(*sends)
        print(f"{len(receipts)} messages, each acknowledged")


def count() -> int:
    found = 0
    with bolide.Consumer("statistics", "Readings", NAMESRV, start_from=bolide.StartFrom.oldest()) as consumer:
        while found < 1100:
            for message in consumer.receive(256):
                found += 1
                message.ack()
    return found


def main() -> None:
    send_together()
    asyncio.run(send_many())
    print(f"{count()} messages read")


if __name__ == "__main__":
    main()
