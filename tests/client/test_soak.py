"""Members that join and leave for as long as wanted: no message is lost, and nothing is left behind.

`make soak` runs it for ten minutes, every test run for seconds. What is left is counted, not looked at: tasks of the
loop, files of the process, bytes of its memory.
"""

import asyncio
import gc
import logging
import os
import random
from pathlib import Path

import pytest

from bolide import aio
from bolide.testing import AsyncCluster
from tests.client.scenes import Collector, collecting, stage
from tests.remoting.loops import POLL_INTERVAL_S, eventually, run_on

log = logging.getLogger(__name__)
MEMBER_COUNT_MAX = 4
COUNT_MAX = 1 << 20
GROWTH_MAX = 12 << 20


def file_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def memory_size() -> int:
    """What is ours alone, in bytes."""
    gc.collect()
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


class Soak:
    """Sends without a pause while members come and go; keeps counts and no messages, for memory is watched."""

    def __init__(self, rocket: AsyncCluster, seed: int) -> None:
        self.rocket = rocket
        self.chance = random.Random(seed)
        self.counts = bytearray(COUNT_MAX)
        self.taken = 0
        self.sent = 0
        self.visits = 0
        self._is_over = asyncio.Event()

    def _note(self, message: aio.Received) -> None:
        number = int(message.body)
        self.taken += not self.counts[number]
        self.counts[number] += 1

    async def _send(self) -> None:
        async with aio.Producer("pg", self.rocket.namesrv) as producer:
            while not self._is_over.is_set() and self.sent < COUNT_MAX:
                await producer.send("T", b"%d" % self.sent)
                self.sent += 1
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _visit(self) -> None:
        """A member that stays a while, and then leaves: cleanly, or by an exception in its loop."""
        while not self._is_over.is_set():
            stay_s = self.chance.uniform(0.2, 2.0)
            async with collecting("g", "T", self.rocket.namesrv, act=self._note) as member:
                await self._stays(member, stay_s)
            self.visits += 1

    async def _stays(self, member: Collector, stay_s: float) -> None:
        try:
            async with asyncio.timeout(stay_s):
                while not self._is_over.is_set():
                    await asyncio.sleep(POLL_INTERVAL_S)
                    member.taken.clear()
        except TimeoutError:
            pass

    async def run(self, duration_s: float) -> None:
        self._is_over.clear()
        async with collecting("g", "T", self.rocket.namesrv, act=self._note) as resident, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(), name="soak.send")
            for number in range(MEMBER_COUNT_MAX - 1):
                tasks.create_task(self._visit(), name=f"soak.visit.{number}")
            await self._stays(resident, duration_s)
            self._is_over.set()
        async with collecting("g", "T", self.rocket.namesrv, act=self._note):
            await eventually(lambda: self.taken == self.sent, 60)


async def soak(duration_s: float) -> None:
    # The servers are processes of their own: what grows there with the messages is none of the client's.
    async with stage(queue_count=8, processes=True) as rocket:
        play = Soak(rocket, seed=7)
        await play.run(min(duration_s / 4, 30))  # warm: pools, caches and buffers have their size
        before = file_count(), len(asyncio.all_tasks()), memory_size()
        await play.run(duration_s)
        await eventually(lambda: file_count() <= before[0] + 1)
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        assert len(tasks) <= before[1] + 1, tasks
        assert memory_size() - before[2] < GROWTH_MAX
        assert all(play.counts[: play.sent])
        repeated = sum(play.counts) - play.sent
        log.info("%d messages, %d visits, %d delivered twice", play.sent, play.visits, repeated)
        assert play.visits >= duration_s / 4
        assert repeated <= play.visits * 64  # what lay unsettled when a queue changed hands


def test_members_come_and_go_for_a_while_and_leave_nothing_behind() -> None:
    run_on(asyncio.new_event_loop, lambda: soak(8))


@pytest.mark.soak
def test_members_come_and_go_for_ten_minutes_and_leave_nothing_behind() -> None:
    import uvloop

    run_on(uvloop.new_event_loop, lambda: soak(600))
