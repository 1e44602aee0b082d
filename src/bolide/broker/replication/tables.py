"""A slave's tables follow its master's: offsets, delay progress, the timer's check, and the catalog.

RocketMQ's slave asks for each of them every 10 s (4.9) or 60 s (5.x). Ours asks for all every 10 s, and every 3 s for
what a promotion would otherwise repeat: how far delay levels and the timer have delivered. Each step fails alone, and
what a master of 4.9 does not know is passed over.

The rule: progress is believed only when our log has what it speaks of. A master tells how far it has delivered and
committed; if our log lacked the last of it, a promotion would pass over messages that only the old master had. So the
tables are asked for first, then where the master's log ends (request 28, which every release answers), and they are
taken over when ours has come that far. RocketMQ takes them at once.

What is asked of one master is dropped if the role has changed by the time the answer comes.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from bolide.broker.later.delay import Delays
from bolide.broker.later.delay import parse as parse_delays
from bolide.broker.later.timer_files import parse_counts
from bolide.broker.later.timers import Timers
from bolide.broker.replication.catalog_copy import CatalogCopy, Step, TakeOver, ask
from bolide.broker.role import RoleState
from bolide.broker.state import BrokerState
from bolide.broker.tables.offsets import parse as parse_offsets
from bolide.errors import BolideError, ClientError
from bolide.protocol.bodies.routes import KVTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.store.dispatch import Arrival
from bolide.store.timercheck import parse_check

ALL_EVERY_S = 10.0
PROGRESS_EVERY_S = 3.0
RETRY_S = 1.0
NEW_TOPIC_SPACING_S = 0.1  # a burst of new topics is asked for together
REQUEST_LIMIT_S = 3.0
CATCH_UP_LIMIT_S = 30.0
_LOOK_EVERY_S = 0.02
log = logging.getLogger(__name__)


class _RoleChanged(Exception):
    """Another master is asked from now on, or none."""


class SlaveTables:
    """Asks the master for its tables as long as this broker is a slave."""

    def __init__(
        self, state: BrokerState, client: Client, delays: Delays, timers: Timers | None, catalog: CatalogCopy
    ) -> None:
        self._state = state
        self._store = state.store
        self._client = client
        self._delays = delays
        self._timers = timers
        self._catalog = catalog
        self._woken = asyncio.Event()
        self._lacks_topic = False
        self._troubles: set[str] = set()
        self.synced_s: float | None = None  # when everything was last taken over
        state.role.listen(lambda old, new: self._woken.set())

    def on_arrival(self, arrival: Arrival) -> None:
        """A copied message: if we were not told of its topic, the tables are asked for at once. We may lead soon."""
        if arrival.topic not in self._state.topics.table and not self._lacks_topic:
            self._lacks_topic = True
            self._woken.set()

    async def run_forever(self) -> None:
        """Follow the master, whichever it is, until cancelled."""
        all_due_s, asked = 0.0, ""
        while True:
            self._woken.clear()
            role = self._state.role.now
            wait_s: float | None = None
            if role.is_following:
                now_s = self._state.clock.monotonic_s()
                is_all = now_s >= all_due_s or asked != role.master_address or self._lacks_topic
                self._lacks_topic = False
                is_done = await self._sync_or_tell(role, is_all)
                wait_s = PROGRESS_EVERY_S if is_done else RETRY_S
                if is_done and is_all:
                    asked, all_due_s, self.synced_s = role.master_address, now_s + ALL_EVERY_S, now_s
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            if self._lacks_topic:
                await asyncio.sleep(NEW_TOPIC_SPACING_S)

    async def _sync_or_tell(self, role: RoleState, is_all: bool) -> bool:
        try:
            return await self.sync(role, is_all)
        except _RoleChanged:
            return False
        except (BolideError, OSError, ValueError) as problem:  # what it answers may be anything
            self._tell("where its log ends", problem)
            return False

    async def sync(self, role: RoleState, is_all: bool = True) -> bool:
        """Ask once for everything, or for progress alone; false where something could not be had."""
        master = role.master_address
        progress: list[tuple[str, Step]] = [("delay progress", self._delay_offsets)]
        if self._timers is not None:
            progress.append(("timer check", self._timer_check))
        if is_all:
            progress.append(("consumer offsets", self._offsets))
        if is_all and self._timers is not None:
            progress.append(("timer counts", self._timer_counts))
        is_done, taken = True, list[TakeOver]()
        if is_all:
            async with self._catalog.taking:
                is_done = await self._each(role, self._catalog.steps, None)
        is_done &= await self._each(role, progress, taken)
        if taken:
            await self._caught_up(role, await self._master_end(master))
            for take_over in taken:
                take_over()
        return is_done

    async def _each(self, role: RoleState, steps: Sequence[tuple[str, Step]], later: list[TakeOver] | None) -> bool:
        """Ask for each of the tables; taken over at once, or gathered."""
        is_done = True
        for what, step in steps:
            try:
                take_over = await step(role.master_address)
                self._check(role)
                if take_over is not None and later is None:
                    take_over()
                elif take_over is not None and later is not None:
                    later.append(take_over)
                self._troubles.discard(what)
            except (BolideError, OSError, ValueError) as problem:
                is_done = False
                self._tell(what, problem)
        return is_done

    def _check(self, role: RoleState) -> None:
        if self._state.role.now is not role:
            raise _RoleChanged

    def _tell(self, what: str, problem: Exception) -> None:
        """Once, until it works again."""
        level = logging.DEBUG if what in self._troubles else logging.WARNING
        self._troubles.add(what)
        address = self._state.role.now.master_address
        log.log(level, "not copied from the master, trying on: %s master=%s problem=%s", what, address, problem)

    async def _caught_up(self, role: RoleState, end: int) -> None:
        """Wait until our log has what the master's had when it told its tables, and for good."""
        try:
            async with asyncio.timeout(CATCH_UP_LIMIT_S):
                while self._store.log_end < end:
                    await asyncio.sleep(_LOOK_EVERY_S)
                    self._check(role)
        except TimeoutError:
            behind = end - self._store.log_end
            raise ClientError(f"our log is {behind} bytes behind, and does not catch up") from None
        await self._store.durable()
        self._check(role)

    async def _master_end(self, master: str) -> int:
        answer = await ask(self._client, master, Command(RequestCode.GET_BROKER_RUNTIME_INFO), REQUEST_LIMIT_S)
        return 0 if answer is None else int(KVTable.decode(answer.body).table["commitLogMaxOffset"])

    # The tables, one by one

    async def _offsets(self, master: str) -> TakeOver | None:
        answer = await ask(self._client, master, Command(RequestCode.GET_ALL_CONSUMER_OFFSET), REQUEST_LIMIT_S)
        if answer is None:
            return None
        offsets = parse_offsets(answer.body.decode())
        return lambda: self._state.offsets.adopt(offsets)

    async def _delay_offsets(self, master: str) -> TakeOver | None:
        answer = await ask(self._client, master, Command(RequestCode.GET_ALL_DELAY_OFFSET), REQUEST_LIMIT_S)
        if answer is None or not answer.body:
            return None
        offsets = parse_delays(answer.body.decode())
        return lambda: self._delays.adopt(offsets)

    async def _timer_check(self, master: str) -> TakeOver | None:
        timers = self._timers
        answer = await self._ask_timer(master, RequestCode.GET_TIMER_CHECK_POINT)
        if answer is None or timers is None:
            return None
        check = parse_check(answer.body)
        return lambda: timers.files.adopt(check)

    async def _timer_counts(self, master: str) -> TakeOver | None:
        timers = self._timers
        answer = await self._ask_timer(master, RequestCode.GET_TIMER_METRICS)
        if answer is None or timers is None:
            return None
        counts = parse_counts(answer.body.decode())
        return lambda: timers.files.counts.adopt(counts)

    async def _ask_timer(self, master: str, code: int) -> Command | None:
        """A master without a timer has nothing to tell of it, and says so with an error."""
        answer = await self._client.request(master, Command(code), REQUEST_LIMIT_S)
        return answer if answer.code == ResponseCode.SUCCESS and answer.body else None
