"""Every worker hears of a change: broadcasting gives each message to each member of the group.

python examples/broadcast.py

A member keeps its progress in a file under its own instance_name and goes on there after a restart.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from bolide import aio

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def worker(name: str, directory: Path) -> list[str]:
    heard: list[str] = []
    member = aio.Consumer(
        "price-watchers",
        "Prices",
        NAMESRV,
        broadcasting=True,
        instance_name=name,
        start_from=aio.StartFrom.oldest(),
        offsets_directory=directory,
    )
    async with member as consumer:
        async for message in consumer:
            heard.append(message.body.decode())
            print(f"{name} heard {heard[-1]}")
            if len(heard) == 3:
                break
    return heard


async def main() -> None:
    async with aio.Producer("price-office", NAMESRV) as producer:
        for text in ("bread 3", "milk 2", "tea 5"):
            await producer.send("Prices", text.encode())
    with tempfile.TemporaryDirectory() as directory:
        async with asyncio.TaskGroup() as workers:
            tasks = [workers.create_task(worker(name, Path(directory))) for name in ("till-1", "till-2")]
    assert {tuple(sorted(task.result())) for task in tasks} == {("bread 3", "milk 2", "tea 5")}
    print("both heard everything")


if __name__ == "__main__":
    asyncio.run(main())
