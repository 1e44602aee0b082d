"""Tables over real files, with somebody who writes them, for as long as a block lasts."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from bolide.broker.config import LiveConfig, read_config
from bolide.broker.intake import Intake
from bolide.broker.later.routing import DelayRouter
from bolide.broker.members.members import Members
from bolide.broker.metrics.meter import Meter
from bolide.broker.state import BrokerState
from bolide.broker.stats import Stats
from bolide.broker.tables.groups import Groups
from bolide.broker.tables.offsets import Offsets
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import Topics
from bolide.clock import Clock, SystemClock
from bolide.store.store import Store


class Tables:
    """Topics and groups of a broker called broker-a in cluster C1."""

    def __init__(self, root: Path, file_thread: ThreadPoolExecutor, clock: Clock, settings: dict[str, str]) -> None:
        named = {"storePathRootDir": str(root), "brokerName": "broker-a", "brokerClusterName": "C1"}
        self._settings = named | {"listenPort": "0", "bindAddress": "127.0.0.1"} | settings
        self.settings = LiveConfig(read_config(self._settings))
        self.clock = clock
        self.file_thread = file_thread
        self.table_writer = TableWriter(file_thread)
        self.topics = Topics(self.settings, self.table_writer, clock)
        self.groups = Groups(self.settings, self.table_writer, clock)

    def state(self, store: Store) -> BrokerState:
        """The tables and what else a broker knows, beside a store."""
        return BrokerState(
            self.settings,
            self.clock,
            store,
            Stats(self.clock),
            self.topics,
            self.groups,
            Offsets(self.settings.now.directory, self.table_writer, self.clock),
            Members(self.settings, self.groups, self.topics, self.clock),
            meter=Meter(self.clock.monotonic_s) if self.settings.now.metrics.is_on else None,
        )

    def set(self, **settings: str) -> None:
        """Another configuration in its place, as request 25 does."""
        self._settings |= settings
        self.settings.now = read_config(self._settings)


def intake_of(state: BrokerState) -> Intake:
    """The door of a broker without a timer."""
    return Intake(state, DelayRouter(state.store.config.delay_levels))


@asynccontextmanager
async def tables(root: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Tables]:
    """What a broker would have read from `root`; what changed is on disk when the block ends."""
    with ThreadPoolExecutor(1) as file_thread:
        kept = Tables(root, file_thread, clock or SystemClock(), settings)
        async with asyncio.TaskGroup() as background:
            writing = background.create_task(kept.table_writer.run_forever(), name="test.tables")
            yield kept
            await kept.table_writer.flush()
            writing.cancel()
