"""A sending side whose delayed messages are delivered, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.broker.arrivals import Arrivals
from bolide.broker.later.delay import Delays
from bolide.broker.later.outlet import Outlet
from bolide.model.message import StoredMessage
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.protocol.properties import join_properties
from bolide.testing import VirtualClock
from tests.broker.senders import Sending, message, sending

START_MS = 1_700_000_000_000


@dataclass
class Delaying:
    """A sending side with the delays beside it."""

    sending: Sending
    delays: Delays
    clock: VirtualClock

    async def send(self, level: int, body: bytes = b"later", **more: str) -> None:
        properties = {"UNIQ_KEY": "7F0000010001", "DELAY": str(level), **more}
        answer = await self.sending.sent(message(body, properties=join_properties(properties)))
        assert answer.code == 0, answer.remark

    def come(self, topic: str = "Orders") -> list[StoredMessage]:
        return self.sending.messages(topic)

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.come()]


@asynccontextmanager
async def delaying(root: Path, clock: VirtualClock | None = None, **settings: Any) -> AsyncIterator[Delaying]:
    """Delivers by itself while the block lasts, and stops as a broker does."""
    clock = clock or VirtualClock(START_MS)
    async with sending(root, clock=clock, **settings) as side, asyncio.TaskGroup() as group:
        delays = Delays(side.state, Outlet(side.state, side.intake), side.tables.table_writer)
        Arrivals(side.state, (), {SCHEDULE_TOPIC: delays.on_arrival}, lambda _: None)
        tasks = [
            group.create_task(delays.deliver_forever(), name="deliver"),
            group.create_task(delays.save_forever(lambda: 10.0), name="save"),
        ]
        try:
            yield Delaying(side, delays, clock)
        finally:
            await delays.stop()
            await side.tables.table_writer.flush()
            for task in tasks:
                task.cancel()
