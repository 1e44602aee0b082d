"""Messages inside an asyncio web application: requests send, a consumer runs beside them, both end together.

python examples/web_application.py --port 8080 &
curl -d 'two teas' http://127.0.0.1:8080/orders      # what was ordered is sent
curl http://127.0.0.1:8080/orders                    # what was consumed, as JSON

The server is the smallest that answers; with a framework the two `async with` blocks go where it opens and closes.
"""

import argparse
import asyncio
import json
import os
import signal

from bolide import aio

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


class Shop:
    """What the application knows."""

    def __init__(self, producer: aio.Producer) -> None:
        self._producer = producer
        self.orders: list[str] = []

    async def consume(self, consumer: aio.Consumer) -> None:
        async for message in consumer:
            self.orders.append(message.body.decode())

    async def answer(self, method: str, body: bytes) -> tuple[int, object]:
        if method == "GET":
            return 200, self.orders
        if not body:
            return 400, {"problem": "an order needs some text"}
        receipt = await self._producer.send("WebOrders", body)
        return 202, {"id": receipt.msg_id}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method = head.split(" ", 1)[0]
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, told = await self.answer(method, body)
            text = json.dumps(told).encode()
            writer.write(f"HTTP/1.1 {status} OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
        finally:
            writer.close()


async def main(port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with (
        asyncio.TaskGroup() as tasks,
        aio.Producer("web", NAMESRV) as producer,
        aio.Consumer("kitchen", "WebOrders", NAMESRV, start_from=aio.StartFrom.oldest()) as consumer,
    ):
        shop = Shop(producer)
        tasks.create_task(shop.consume(consumer))  # ends when the consumer closes, with the block
        async with await asyncio.start_server(shop.talk, "127.0.0.1", port) as server:
            host, bound = server.sockets[0].getsockname()[:2]
            print(f"http://{host}:{bound}/orders", flush=True)
            await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    asyncio.run(main(parser.parse_args().port))
