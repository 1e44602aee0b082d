"""A broker's sending side with the timer beside it, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.broker.arrivals import Arrivals
from bolide.broker.intake import Intake
from bolide.broker.later.delay import Delays
from bolide.broker.later.outlet import Outlet
from bolide.broker.later.requests import LaterRequests
from bolide.broker.later.routing import DelayRouter, Timing
from bolide.broker.later.timer_files import TimerFiles
from bolide.broker.later.timers import Timers
from bolide.broker.sending.send import Sends
from bolide.model.message import StoredMessage
from bolide.model.topics import TIMER_TOPIC
from bolide.protocol.command import Command
from bolide.protocol.headers.send import RecallMessageRequest
from bolide.protocol.properties import join_properties
from bolide.remoting.handlers import Handlers
from bolide.remoting.session import Request
from bolide.testing import VirtualClock
from tests.broker.senders import Peer, Sending, message, sending

START_MS = 1_700_000_000_000
STEP_S = 1.0


async def pass_s(seconds: float) -> None:
    await asyncio.sleep(seconds)  # virtual


@dataclass
class Timed:
    sending: Sending
    timers: Timers
    waits: LaterRequests
    clock: VirtualClock

    async def send(
        self, body: bytes = b"later", *, topic: str = "Orders", key: str = "u1", **properties: str
    ) -> Command:
        given = {"UNIQ_KEY": key, **properties}
        return await self.sending.sent(message(body, topic=topic, properties=join_properties(given)))

    async def delay(self, seconds: float, body: bytes = b"later", key: str = "u1", **more: str) -> Command:
        answer = await self.send(body, key=key, TIMER_DELAY_MS=str(int(seconds * 1000)), **more)
        assert answer.code == 0, answer.remark
        return answer

    def recall(self, handle: str, topic: str = "Orders") -> Command:
        header = RecallMessageRequest(producer_group="pg", topic=topic, recall_handle=handle)
        session: Any = Peer()
        request = Request(Command(370, fields=header.encode()), session, self.clock.monotonic_s())
        answer = Handlers(self.waits.handlers()).serve(request)
        assert isinstance(answer, Command)
        return answer

    def come(self, topic: str = "Orders") -> list[StoredMessage]:
        return self.sending.messages(topic)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.come()]

    @property
    def passed_s(self) -> float:
        return (self.clock.now_ms() - START_MS) / 1000


class Killed(Exception):
    """The process is gone: nothing more is written."""


@asynccontextmanager
async def timing(root: Path, clock: VirtualClock | None = None, **settings: Any) -> AsyncIterator[Timed]:
    """Files and delivers by itself while the block lasts, and stops as a broker does; `Killed` is a kill."""
    clock = clock or VirtualClock(START_MS)
    settings = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": "8192", **settings}
    async with sending(root, clock=clock, **settings) as side, asyncio.TaskGroup() as group:
        kept, store = side.tables, side.store
        state = side.state
        files = TimerFiles(kept.settings.now.store, store, kept.table_writer, clock)
        timing = Timing(kept.settings, clock, files.load_at)
        intake = Intake(state, DelayRouter(store.config.delay_levels, timing))
        outlet = Outlet(state, intake)
        timers = Timers(state, outlet, files)
        side.sends = Sends(state, intake, side.open_topics, side.locks)
        waits = LaterRequests(state, intake, Delays(state, outlet, kept.table_writer), timers)
        Arrivals(state, (), {TIMER_TOPIC: timers.on_arrival}, lambda _: None)
        tasks = [
            group.create_task(timers.run_forever(), name="timers"),
            group.create_task(timers.save_forever(), name="timercheck"),
        ]
        try:
            yield Timed(side, timers, waits, clock)
        except Killed:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        else:
            await timers.stop()
            await kept.table_writer.flush()
            for task in tasks:
                task.cancel()
        finally:
            timers.close()
