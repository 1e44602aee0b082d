"""A FastStream application as users write them, for workers that tests start."""

import asyncio
import os
from pathlib import Path

from faststream import FastStream
from faststream.exceptions import NackMessage

from bolide import StartFrom
from bolide.faststream import BolideBroker

DIRECTORY = Path(os.environ.get("SHOP_DIRECTORY", "."))
broker = BolideBroker()
app = FastStream(broker)


@broker.subscriber("Orders", group="shop", start_from=StartFrom.oldest())
async def on_order(number: int) -> None:
    """A mark on the disk for each order. The first worker that gets number 5 never ends, and is killed with it."""
    began = DIRECTORY / "began"
    if number == 5 and not began.exists():
        began.touch()
        await asyncio.Event().wait()
    refused = DIRECTORY / f"refused-{number}"
    if number == 7 and not refused.exists():
        refused.touch()
        raise NackMessage(delay=1)
    (DIRECTORY / f"done-{number}").touch()
