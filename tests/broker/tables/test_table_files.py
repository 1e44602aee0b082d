"""Tables reach their files: joined, in order, and heard of when they cannot."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bolide.broker.tables.table_files import Pace, TableWriter
from bolide.errors import StoreError
from bolide.testing import VirtualClock, run


@asynccontextmanager
async def table_writer(busy_until: threading.Event | None = None) -> AsyncIterator[TableWriter]:
    with ThreadPoolExecutor(1) as file_thread:
        if busy_until is not None:
            file_thread.submit(busy_until.wait)
        made = TableWriter(file_thread)
        async with asyncio.TaskGroup() as background:
            task = background.create_task(made.run_forever(), name="test.tables")
            yield made
            task.cancel()


def test_who_waits_finds_the_newest_text_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        async with table_writer() as kept:
            for number in range(3):
                kept.save(tmp_path / "t.json", partial(str, number))
            await kept.flush()
            assert (tmp_path / "t.json").read_text() == "2"

    asyncio.run(run())


def test_many_saves_in_one_turn_make_the_text_once(tmp_path: Path) -> None:
    made = []

    def text() -> str:
        made.append(1)
        return "x"

    async def run() -> None:
        async with table_writer() as kept:
            for _ in range(1000):
                kept.save(tmp_path / "t.json", text)
            await kept.flush()

    asyncio.run(run())
    assert len(made) == 1


def test_a_file_that_cannot_be_written_is_told_to_who_waits_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where a directory should be")

    async def run() -> None:
        async with table_writer() as kept:
            kept.save(tmp_path / "config" / "t.json", lambda: "x")
            with pytest.raises(StoreError, match=r"t\.json"):
                await kept.flush()
            (tmp_path / "config").unlink()
            await kept.flush()
            assert (tmp_path / "config" / "t.json").read_text() == "x"

    asyncio.run(run())


def test_a_wait_that_begins_during_a_write_ends_with_the_write_after_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with table_writer() as kept:
            kept.save(tmp_path / "t.json", lambda: "old")
            first = asyncio.ensure_future(kept.flush())
            await asyncio.sleep(0)
            kept.save(tmp_path / "t.json", lambda: "new")
            await kept.flush()
            assert (tmp_path / "t.json").read_text() == "new"
            await first

    asyncio.run(run())


def test_a_write_under_way_is_waited_for(tmp_path: Path) -> None:
    busy_until = threading.Event()

    async def run() -> None:
        async with table_writer(busy_until) as kept:
            kept.save(tmp_path / "t.json", lambda: "x")
            for _ in range(3):
                await asyncio.sleep(0)  # the write is handed to the thread, which is busy
            waiting = asyncio.ensure_future(kept.flush())
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()
            busy_until.set()
            await waiting
            assert (tmp_path / "t.json").read_text() == "x"

    asyncio.run(run())


def test_a_small_table_is_written_soon_and_a_large_one_no_more_often_than_asked_for() -> None:
    async def scenario() -> None:
        pace = Pace(VirtualClock(), 1.0)
        assert pace.pause_s(5.0) == 1.0
        assert pace.pause_s(0.2) == 0.2  # who wants it sooner has it sooner
        with pace.timed():
            await asyncio.sleep(0.1)  # virtual
        assert pace.pause_s(5.0) == pytest.approx(2.0)
        with pace.timed():
            await asyncio.sleep(10)  # virtual
        assert pace.pause_s(5.0) == 5.0

    run(scenario())
