"""Whom a slave copies from: told by a name server, by a controller, or by the settings.

A slave of plain settings hears its master with every registration; without one the tables stand still, and the log is
still asked for where it was, for the master may be back before a name server knows. `haMasterAddress`, where it is set,
is where the log comes from, whatever is heard (4.9; in 5.x it keeps a slave from ever connecting).

A slave of an elected master is told by the controller, which knows no HA address. The name server may not know the new
master yet, so the master itself is asked for it (906), until it answers.
"""

import asyncio
import logging
from dataclasses import replace

from bolide.broker.state import BrokerState
from bolide.errors import BolideError, ClientError, Refusal
from bolide.ha.replication import Replication
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.replication import ExchangeHaStateAnswer
from bolide.remoting.client import Client

ASK_LIMIT_S = 3.0
ASK_EVERY_S = 0.1  # a new master may be asked before it leads, and nothing is copied until it answers
log = logging.getLogger(__name__)


class Following:
    """Keeps the copying at the right address while this broker is a slave."""

    def __init__(self, state: BrokerState, client: Client, copying: Replication) -> None:
        self._state = state
        self._client = client
        self._copying = copying
        self._woken = asyncio.Event()
        self._ha_address: str | None = None
        self.own_address = ""  # as the name servers know it
        self.own_ha_address = ""

    def be_found_at(self, address: str, ha_address: str) -> None:
        """Where others find us, and where slaves copy from."""
        self.own_address, self.own_ha_address = address, ha_address

    def told_by_master(self, master: str | None, master_ha_address: str) -> None:
        """A master told where its log is to be had; only ours is believed."""
        if master and master == self._state.role.now.master_address:
            self._turn_to(master_ha_address)

    def begin(self, master_ha_address: str | None) -> None:
        """The role is that of a slave now; where its master is stands there, as far as anybody knows."""
        self._ha_address = master_ha_address or self._state.settings.now.replication.master_ha_address or None
        self._copying.follow(self._ha_address)
        self._woken.set()

    def end(self) -> None:
        self._ha_address = None
        self._copying.follow(None)

    def is_master_here(self) -> bool:
        """Whether a consumer of a slave can go back to the master: it is known, and its log comes."""
        return bool(self._state.role.now.master_address) and self._copying.following.is_connected

    def heard(self, master: str | None, master_ha_address: str | None, own_address: str) -> None:
        """A name server answered a registration: a slave of plain settings follows whom it names."""
        role, rules = self._state.role.now, self._state.settings.now.replication
        if role.is_leading or role.is_fenced or role.is_acting or master == own_address:
            return  # one that acts ends that first (`acting.py`), and hears of its master again
        if rules.is_controlled:
            if master == role.master_address and master_ha_address:
                self._turn_to(master_ha_address)
            return
        if (master or "") != role.master_address:
            log.info("master heard of address=%s before=%s", master or "none", role.master_address or "none")
            self._state.role.become(replace(role, master_address=master or ""))
        if master_ha_address and not rules.master_ha_address:
            self._turn_to(master_ha_address)

    def _turn_to(self, master_ha_address: str) -> None:
        if master_ha_address != self._ha_address:
            self._ha_address = master_ha_address
            self._copying.follow(master_ha_address)

    async def run_forever(self) -> None:
        """Ask the master where its log is to be had, as long as nobody told, until cancelled."""
        while True:
            role = self._state.role.now
            is_lost = not role.is_leading and not role.is_fenced and self._ha_address is None
            wait_s: float | None = None
            if is_lost and role.master_address:
                wait_s = ASK_EVERY_S
                try:
                    told = await self._ask(role.master_address)
                    if self._state.role.now is role and self._ha_address is None:
                        self._turn_to(told)
                        continue
                except (BolideError, ValueError) as problem:
                    log.debug("master not asked for its HA address master=%s problem=%s", role.master_address, problem)
            self._woken.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _ask(self, master: str) -> str:
        answer = await self._client.request(master, Command(RequestCode.EXCHANGE_BROKER_HA_INFO), ASK_LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise Refusal(answer.code, answer.remark or "")
        told = ExchangeHaStateAnswer.decode(answer.fields).master_ha_address
        if not told:
            raise ClientError("it told no HA address: it is no master yet")
        return told
