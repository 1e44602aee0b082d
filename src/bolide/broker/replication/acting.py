"""A slave acts for its master while that is away (`enableSlaveActingMaster`, off by default).

Nobody takes the master's place: its log is written by nobody until it is back. But somebody must hold the locks of
ordered groups, keep their offsets and see to it that what is due comes, and that is the slave with the smallest id of
those that live. What is due is stored by the masters of other names, where `enableRemoteEscape` allows it: delays and
timers (`later/outlet.py`), popped messages that nobody acknowledged (`pop/revivals.py`), and half messages that nobody
decided (`transactions/escaping.py`). How far that went the master asks when it comes back (`neighbours.py`).

Here it is decided, once a second. Every broker of the name tells the name servers that it lives, so that they forget
one that is silent for ten seconds, and not for two minutes. A slave then asks them who does, and acts if nobody before
it is left: no name server that answers knows one, and its own link to the master's log is down too. RocketMQ goes by
the name servers alone, and after their restart two brokers act for one name until the master is heard again. Without an
answer nobody acts. A name server that tells of a change by itself (905) is a reason to ask, for anybody could tell
that.

When the acting ends, the works end first, then the role is a plain slave's again, and only then is the master followed:
its tables take the place of ours, and must not meet anyone who still moves them.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from bolide.broker.later.delay import Delays
from bolide.broker.later.escape import Escape
from bolide.broker.later.timers import Timers
from bolide.broker.registration import Desk, Registration
from bolide.broker.replication.change import Memories, RoleWork, Work
from bolide.broker.state import BrokerState
from bolide.errors import BolideError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Request

ASK_LIMIT_S = 1.0
log = logging.getLogger(__name__)


def deliveries(delays: Delays, timers: Timers | None) -> dict[str, Work]:
    """What runs as long as a broker delivers what is due, as a master or in its stead."""
    works: dict[str, Work] = {"broker.delays": delays.deliver_forever}
    if timers is not None:
        works |= {"broker.timers": timers.run_forever, "broker.timercheck": timers.save_forever}
    return works


class Escapes:
    """What an acting slave does by itself: it goes on where the master's tables and the log say."""

    def __init__(self, state: BrokerState, memories: Memories, escape: Escape) -> None:
        self._memories = memories
        works: dict[str, Work] = {
            "broker.escapes.pop": partial(memories.pop.revive_forever, escape),
            "broker.escapes.transactions": partial(memories.transactions.escape_forever, escape),
            **deliveries(memories.delays, memories.timers),
        }
        self.work = RoleWork(state, works)

    async def begin(self) -> None:
        await self._memories.load_to_escape()
        self.work.start()

    async def end(self) -> None:
        """Returns when nothing of it runs any more, and how far it went is written."""
        await self.work.stop()
        await self._memories.delays.save()
        if self._memories.timers is not None:
            await self._memories.timers.save()

    def forget(self) -> None:
        """The master knows all of it better."""
        self._memories.forget_escaped()


class Acting:
    """Decides whether this broker acts for its master."""

    def __init__(
        self, state: BrokerState, registration: Registration, escapes: Escapes, is_copying: Callable[[], bool]
    ) -> None:
        """`is_copying` tells whether the master's log comes: then it lives, whatever name servers say."""
        self._state = state
        self._role = state.role
        self._registration = registration
        self._escapes = escapes
        self._is_copying = is_copying
        self._woken = asyncio.Event()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.hear}

    def hear(self, request: Request) -> Command:
        """905: the smallest id of our name is another's now."""
        self._woken.set()
        return request.command.answer(ResponseCode.SUCCESS)

    async def run_forever(self) -> None:
        """Tell that we live, ask who else does, and act or not, until cancelled."""
        while True:
            self._woken.clear()
            await self._decide(await self._living())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._state.settings.now.replication.heartbeat_interval_ms / 1000):
                    await self._woken.wait()

    async def _living(self) -> set[int]:
        """The ids that any name server knows; none where none answers."""
        told = await asyncio.gather(*map(self._told, self._registration.known_at))
        return set[int]().union(*told)

    async def _told(self, desk: Desk) -> set[int]:
        try:
            await self._registration.beat(desk, ASK_LIMIT_S)
            return set() if self._role.is_leading else set(await self._registration.members(desk, ASK_LIMIT_S))
        except (BolideError, ValueError) as problem:  # what it answers may be anything
            log.debug("name server not asked who lives namesrv=%s problem=%s", desk.namesrv, problem)
            return set()

    async def _decide(self, living: set[int]) -> None:
        role = self._role.now
        is_due = role.is_first_of(living) and not self._is_copying()
        if is_due and not role.is_acting:
            escapes = self._state.settings.now.replication.escapes
            log.warning("the master is away, this slave acts for it living=%s escapes=%s", sorted(living), escapes)
            self._role.become(replace(role, master_address="", is_acting=True, is_escaping=escapes))
            if escapes:
                await self._escapes.begin()
        elif role.is_acting and not is_due:
            await self._escapes.end()
            log.warning("this slave acts no more living=%s", sorted(living))
            self._role.become(replace(self._role.now, is_acting=False, is_escaping=False))
            if role.is_escaping:
                self._escapes.forget()
