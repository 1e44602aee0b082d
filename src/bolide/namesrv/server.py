"""The name server: wiring, timers, and the order in which it all stops.

Nothing is decided here. The nesting of `serve` is the order of the shutdown, read from the inside out: the port closes
first and running answers finish; then the timers end; then the thread that owns the files, after the last change is on
disk. Timers and the one that carries out changes are background tasks: if one fails, the server stops, for a name
server that no longer removes dead brokers is worse than none.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from bolide import kernel
from bolide.access.serving import open_door
from bolide.access.signing import signers
from bolide.clock import Clock
from bolide.namesrv.absence import Departures
from bolide.namesrv.answers import Answers
from bolide.namesrv.config import LiveConfig, NamesrvConfig, shown
from bolide.namesrv.kv import KvConfig
from bolide.namesrv.lookups import Lookups
from bolide.namesrv.metrics import show
from bolide.namesrv.nearness import nearness
from bolide.namesrv.notices import Notices
from bolide.namesrv.operations import Operations
from bolide.namesrv.registrations import Registrations
from bolide.namesrv.routes import RouteTables
from bolide.protocol.command import Command
from bolide.remoting.changes import set_log_level
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handlers
from bolide.remoting.loop_turn import answer_each
from bolide.remoting.operators import LOCAL, demand_local
from bolide.remoting.owner import Answered, Owner, Read
from bolide.remoting.pages import PageServer
from bolide.remoting.request_times import RequestTimes
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session

FIRST_SCAN_S = 5
FIRST_PRINT_S = 60
PRINT_INTERVAL_S = 600
log = logging.getLogger(__name__)


class NameServer(Owner):
    """The owner of all connections: look-ups in one go, everything else one by one."""

    def __init__(
        self, config: NamesrvConfig, clock: Clock, file_thread: ThreadPoolExecutor, own_host: str | None = None
    ) -> None:
        self.own_host = own_host
        self.settings = LiveConfig(config)
        self.answers = Answers()
        self.tables = RouteTables(self.answers.forget)
        self.kv = KvConfig(config.kv_path)
        self.notices = Notices(lambda: self.settings.now.notify_timeout_ms / 1000)
        self.scan_count = 0
        self.times = RequestTimes(clock.monotonic_s) if config.metrics.is_on else None
        self.ready_count = 0  # of look-ups, where metrics are shown
        self.pages: PageServer | None = None  # where they are shown, while it runs
        self.is_stopping = False
        departures = Departures()
        self.registrations = Registrations(
            self.tables, departures, self.kv, self.settings, clock, file_thread, self.notices.tell
        )
        lookups = Lookups(self.tables, self.answers, departures, self.kv, self.settings, clock, own_host)
        operations = Operations(self.kv, self.settings, self.answers, file_thread)
        gate = demand_local if config.admin_from == LOCAL else None
        self.door, access = open_door(config.access, config.kv_path.parent, clock, file_thread, "namesrv")
        tables = (lookups.handlers(), self.registrations.handlers(), operations.handlers(), access)
        self._handlers = Handlers(*tables, gate=gate, door=None if self.door is None else self.door.enter)

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        return answer_each(reads, self._answer)

    def _answer(self, read: Read) -> Answered:
        if self.door is not None:
            return b"", read.bounds  # each is asked who sent it
        if self.own_host is not None and nearness(self.own_host, read.session.local) is not None:
            return b"", read.bounds  # ready answers name our own host, which is no address for this asker
        answers, left = self.answers.answer(read.stream, read.bounds)
        if self.times is not None:
            self.ready_count += (len(read.bounds) - len(left)) // 2
        return answers, left

    def on_answer(self, request: Request, answer: Command) -> None:
        if self.times is not None:
            self.times.answered(request, answer.code)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        if self.door is not None:
            self.door.left(session)
        if not self.is_stopping:  # everybody is sent away then, which is no news of any broker
            self.registrations.disconnected(session)

    async def scan_forever(self) -> None:
        """Look for silent brokers, first after 5 s and then at the configured interval."""
        await asyncio.sleep(FIRST_SCAN_S)
        while True:
            self.scan_count += 1
            expired_count = self.registrations.scan()
            log.debug("scan brokers=%d expired=%d", len(self.tables.live), expired_count)
            await asyncio.sleep(self.settings.now.scan_interval_ms / 1000)

    async def print_forever(self) -> None:
        """Write the KV configuration to the log, first after a minute and then every ten."""
        await asyncio.sleep(FIRST_PRINT_S)
        while True:
            self.kv.print()
            await asyncio.sleep(PRINT_INTERVAL_S)


@asynccontextmanager
async def serve(
    config: NamesrvConfig, clock: Clock, own_host: str | None = None
) -> AsyncIterator[tuple[NameServer, Server]]:
    """A name server that answers as long as the block lasts.

    Brokers that register with `own_host` are shown to each asker under the host by which it reached this server.
    """
    if config.log_level:
        set_log_level(config.log_level)
    log.info("name server starts kernel=%s %s", kernel.NAME, _changed_settings(config))
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    with ThreadPoolExecutor(1, thread_name_prefix="namesrv.files") as file_thread:
        namesrv = NameServer(config, clock, file_thread, own_host)
        async with (
            Client(config.connect, clock, hooks=signers(config.access)) as client,
            asyncio.TaskGroup() as background,
        ):
            tasks = [
                background.create_task(namesrv.registrations.changes.run_forever(), name="namesrv.changes"),
                background.create_task(namesrv.scan_forever(), name="namesrv.scan"),
                background.create_task(namesrv.print_forever(), name="namesrv.print"),
                background.create_task(namesrv.notices.send_forever(client), name="namesrv.notices"),
            ]
            if namesrv.door is not None:
                tasks.append(background.create_task(namesrv.door.refresh_forever(), name="namesrv.access"))
            try:
                async with (
                    listen(config.listen, namesrv, clock) as server,
                    show(namesrv, clock) as namesrv.pages,
                ):
                    try:
                        yield namesrv, server
                    finally:
                        namesrv.is_stopping = True
            finally:
                for task in tasks:
                    task.cancel()
    log.info("name server stopped")


def _changed_settings(config: NamesrvConfig) -> str:
    """What was set to another value than the default, and the port in any case."""
    defaults = shown(NamesrvConfig())
    texts = shown(config)
    return " ".join(
        f"{key}={texts[key]}" for key in sorted(texts) if texts[key] != defaults[key] or key == "listenPort"
    )
