"""The cluster as one user sees it: an administrator in that name, the walk behind its pages, and what the doctor says.

Without access control all share one desk. With it everybody who signed in has a desk of their own: what brokers tell
one user is never shown to another. A desk that nobody sits at is cleared after some minutes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from bolide.admin.admin import Admin
from bolide.admin.doctor.checks import examine
from bolide.admin.doctor.findings import Finding
from bolide.admin.doctor.gather import Doctor
from bolide.client.config import Credentials
from bolide.clock import Clock
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.history import History
from bolide.dashboard.login import Door
from bolide.dashboard.walk import Walk
from bolide.errors import BolideError
from bolide.remoting.isolated_tasks import IsolatedTasks

DESKS_MAX = 32
DESK_IDLE_S = 600.0
DOCTOR_INTERVAL_S = 60.0
DOCTOR_LIMIT_S = 30.0
_DOOR_INTERVAL_S = 5.0
_DOOR_LIMIT_S = 3.0
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor said, and when; at the beginning nothing yet."""

    at_ms: int = 0
    findings: tuple[Finding, ...] = ()
    unseen: tuple[str, ...] = ()


class Desk:
    """Opened by `Desks.desk_of`."""

    def __init__(
        self, config: DashboardConfig, credentials: Credentials | None, clock: Clock, tasks: IsolatedTasks
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._clock = clock
        self._tasks = tasks
        self._walking: asyncio.Task[None] | None = None
        self._doctoring: asyncio.Task[None] | None = None
        self._doctored_s = -DOCTOR_INTERVAL_S
        self._admin = Admin(config.namesrv, partial=True, credentials=credentials, clock=clock)
        self.history = History()
        self.diagnosis = Diagnosis()
        self.seen_s = clock.monotonic_s()

    async def open(self) -> None:
        await self._admin.start()
        self.walk = Walk(self.admin(), self.history, self._clock, self._config.walk_interval_s)
        self.keep_walking()

    def keep_walking(self) -> None:
        """Have the walk run; one that broke is begun again."""
        if self._walking is None or self._walking.done():
            self._walking = self._tasks.start(self.walk.run(), name="dashboard.walk")

    async def close(self) -> None:
        for task in (self._walking, self._doctoring):
            if task is not None:
                task.cancel()
        await self._admin.close()

    def admin(self) -> Admin:
        """An administrator for one page: the same connections, and its own list of who did not answer."""
        return self._admin.one_look()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Have something done that outlasts the request that asked for it."""
        return self._tasks.start(work, name=name)

    def look_after(self) -> Diagnosis:
        """What the doctor said last; calls it again when that is some time ago."""
        is_due = self._clock.monotonic_s() - self._doctored_s >= DOCTOR_INTERVAL_S
        if is_due and (self._doctoring is None or self._doctoring.done()):
            self._doctored_s = self._clock.monotonic_s()
            self._doctoring = self._tasks.start(self._call_doctor(), name="dashboard.doctor")
        return self.diagnosis

    async def _call_doctor(self) -> None:
        doctor = Doctor(self._config.namesrv, credentials=self._credentials, clock=self._clock)
        try:
            async with asyncio.timeout(DOCTOR_LIMIT_S):
                facts = await doctor.gather()
            self.diagnosis = Diagnosis(self._clock.now_ms(), tuple(examine(facts)), facts.unseen)
        except (BolideError, TimeoutError) as problem:
            why = str(problem) or f"the cluster did not answer within {DOCTOR_LIMIT_S:g} s"
            self.diagnosis = Diagnosis(self._clock.now_ms(), (), (why,))


class Desks:
    """All desks, and the door before them."""

    def __init__(self, config: DashboardConfig, clock: Clock, tasks: IsolatedTasks) -> None:
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._desks: dict[tuple[str, str], Desk] = {}
        self._lock = asyncio.Lock()
        # Until the cluster has answered, only this machine is let in without a login.
        unknown = Door.OPEN if config.is_loopback else Door.CLUSTER
        self._door = Door.PASSWORDS if config.password_file is not None else unknown
        self._is_door_known = config.password_file is not None
        self._door_asked_s = -_DOOR_INTERVAL_S

    async def door(self) -> Door:
        """Who is let in; asked of the cluster until it answers."""
        now_s = self._clock.monotonic_s()
        if not self._is_door_known and now_s - self._door_asked_s >= _DOOR_INTERVAL_S:
            self._door_asked_s = now_s
            with suppress(BolideError, TimeoutError):
                self._door = Door.CLUSTER if await within(_DOOR_LIMIT_S, self._is_checked()) else Door.OPEN
                self._is_door_known = True
        return self._door

    @property
    def is_door_known(self) -> bool:
        return self._is_door_known

    async def _is_checked(self) -> bool:
        async with Admin(self._config.namesrv, clock=self._clock) as admin:
            return await admin.is_access_checked()

    async def desk_of(self, credentials: Credentials | None) -> Desk:
        """The desk of a user, or the one for all."""
        key = (credentials.access_key, credentials.secret_key) if credentials is not None else ("", "")
        async with self._lock:
            desk = self._desks.pop(key, None)
            if desk is None:
                await self._clear()
                desk = Desk(self._config, credentials, self._clock, self._tasks)
                await desk.open()
            desk.keep_walking()
            desk.seen_s = self._clock.monotonic_s()
            self._desks[key] = desk  # now the newest
            return desk

    async def _clear(self) -> None:
        """Make room: those that are idle go, and the one that is idle for longest where there are too many."""
        now_s = self._clock.monotonic_s()
        for key, desk in list(self._desks.items()):
            is_idle = key != ("", "") and now_s - desk.seen_s > DESK_IDLE_S
            if is_idle or len(self._desks) >= DESKS_MAX:
                del self._desks[key]
                await desk.close()

    async def close(self) -> None:
        for desk in self._desks.values():
            await desk.close()
        self._desks.clear()


@asynccontextmanager
async def open_desks(config: DashboardConfig, clock: Clock) -> AsyncIterator[Desks]:
    """The desks while the dashboard runs."""
    async with IsolatedTasks() as tasks:
        desks = Desks(config, clock, tasks)
        try:
            if await desks.door() is not Door.CLUSTER:
                await desks.desk_of(None)  # its history begins now
            yield desks
        finally:
            await desks.close()


async def within(limit_s: float, asking: Awaitable[T]) -> T:
    async with asyncio.timeout(limit_s):
        return await asking
