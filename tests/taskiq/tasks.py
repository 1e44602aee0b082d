"""A Taskiq application as users write them, for workers that tests start."""

import os
from pathlib import Path

from bolide.taskiq import BolideBroker

DIRECTORY = Path(os.environ.get("TASKS_DIRECTORY", "."))
broker = BolideBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), visibility_s=2)


@broker.task
async def note(number: int) -> None:
    """A mark on the disk for each task that ran."""
    (DIRECTORY / f"done-{number}").touch()


@broker.task
async def hold(name: str) -> None:
    """Never ends; the worker is killed with it, or it was run before and is done."""
    import asyncio

    with (DIRECTORY / f"{name}.began").open("a") as began:
        began.write(f"{os.getpid()}\n")
    if len((DIRECTORY / f"{name}.began").read_text().split()) == 1:
        await asyncio.Event().wait()
