"""Asking the brokers of a cluster, and knowing which of them did not answer.

A list that leaves a broker out looks like a list of everything: a backlog seems to shrink while its broker is down. So
an operation that a broker does not answer fails, unless the administrator was opened for partial answers; then the
broker is noted in `silent`, and anyone who shows the answer says so. Brokers that left are noted too, as far as the
name server remembers them: ours tells it beside the list of brokers, Apache's does not.

Anyone who asks about fifty groups needs the list of brokers once, not fifty times: `one_look` gives an administrator
that keeps it for a moment.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable
from itertools import starmap
from typing import Self

import msgspec

from bolide.client.access import failure_of
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID
from bolide.errors import AccessRefused, ClientError, ConnectError, NoAnswer
from bolide.protocol.bodies.clients import Heartbeat
from bolide.protocol.bodies.routes import Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.routes import DEPARTED_FIELD
from bolide.remoting.client import Client

LOOK_S = 2.0
log = logging.getLogger(__name__)


class SilentBroker(msgspec.Struct, frozen=True):
    """A broker whose part of an answer is missing, and why."""

    name: str
    address: str
    why: str

    def __str__(self) -> str:
        return f"broker {self.name} ({self.address}) {self.why}"


class _Look:
    """The name server's answer of a moment ago; many who want it at once ask for it once."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.answer: Command | None = None
        self.asked_s = 0.0


class Reach:
    """The part of an administrator that asks."""

    _instance: Instance | None
    _timeout_s: float
    _is_partial: bool

    def __init__(self) -> None:
        self.silent: dict[str, SilentBroker] = {}
        self._look: _Look | None = None

    def one_look(self) -> Self:
        """The same administrator on the same connections, with its own `silent`, that keeps the list of brokers."""
        one = copy.copy(self)
        one.silent = {}
        one._look = _Look()
        return one

    async def clusters(self) -> Clusters:
        """All brokers by cluster, as the name server knows them."""
        answer = await self._listed()
        for departed in _departed(answer.fields.get(DEPARTED_FIELD)):
            self.silent.setdefault(departed.name, departed)
        return Clusters.decode(answer.body)

    async def _listed(self) -> Command:
        look, command = self._look, Command(RequestCode.GET_BROKER_CLUSTER_INFO)
        if look is None:
            return await self._namesrv(command)
        async with look.lock:
            now_s = self._opened().clock.monotonic_s()
            if look.answer is None or now_s - look.asked_s > LOOK_S:
                look.answer, look.asked_s = await self._namesrv(command), now_s
            return look.answer

    async def _masters_by_name(self, cluster: str | None = None) -> dict[str, str]:
        known = await self.clusters()
        found = {
            data.broker_name: data.broker_addrs[MASTER_ID]
            for data in known.broker_addr_table.values()
            if MASTER_ID in data.broker_addrs and cluster in (None, data.cluster)
        }
        if not found:
            where = f"in cluster {cluster}" if cluster else f"at {', '.join(self._opened().namesrv.addresses)}"
            left = "".join(f"; {broker}" for broker in self.silent.values())
            advice = "`bolide up` or `bolide broker -n ...` starts one"
            raise ConnectError(f"no broker is registered {where}{left}; {advice}")
        return found

    async def check_brokers_left(self) -> None:
        """Where brokers were and all of them left, nobody can tell what they have: that is an error, not nothing."""
        if not (await self.clusters()).broker_addr_table and self.silent:
            await self._masters_by_name()

    async def _masters(self, cluster: str | None = None) -> list[str]:
        return list((await self._masters_by_name(cluster)).values())

    async def master_addresses(self) -> list[str]:
        """Where the masters are; that there is none is an error."""
        return await self._masters()

    async def check_access(self) -> list[str]:
        """Where the masters are, all of which take who we are; one that does not raises AccessRefused."""
        instance, addresses = self._opened(), await self._masters()
        for address in addresses:
            await instance.greet(address)
        return addresses

    async def is_access_checked(self) -> bool:
        """Whether a broker turns away one who does not say who he is."""
        instance, addresses = self._opened(), await self._masters()
        command = Command(RequestCode.HEART_BEAT, body=Heartbeat(client_id=instance.client_id).encode())
        async with Client(instance.config.connect, instance.clock) as nobody:
            answer = await nobody.request(addresses[0], command, self._timeout_s)
        return isinstance(failure_of(answer), AccessRefused)

    async def _from_masters(self, command: Command) -> list[Command]:
        """The answers of all masters, or of those that answer."""
        return await self._from_each(await self._masters_by_name(), command)

    async def _from_each(self, addresses: dict[str, str], command: Command) -> list[Command]:
        """The answers of some brokers, given by name; if none answers, that is an error."""

        async def asked(name: str, address: str) -> Command | None:
            # The call is made here, not by who starts the task: one that is cancelled at once has begun nothing.
            return await self._noting(name, address, self._ask(address, command))

        answers = [answer for answer in await asyncio.gather(*starmap(asked, addresses.items())) if answer is not None]
        if addresses and not answers:
            raise ConnectError("; ".join(str(self.silent[name]) for name in addresses))
        return answers

    async def _noting(self, name: str, address: str, asking: Awaitable[Command]) -> Command | None:
        """A broker's answer; none from one that is silent, where others may answer without it."""
        try:
            return await asking
        except NoAnswer as problem:
            if not self._is_partial:
                raise
            self.silent[name] = SilentBroker(name, address, f"does not answer: {problem}")
            return None

    async def _namesrv(self, command: Command) -> Command:
        answer = await self._opened().namesrv.ask(command)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer, who="name server")
        return answer

    async def ask(self, address: str, command: Command) -> Command:
        """The answer of one server to any request; a refusal is an error."""
        return await self._ask(address, command)

    async def _ask(self, address: str, command: Command) -> Command:
        return await self._opened().ask(address, command, self._timeout_s)

    def _opened(self) -> Instance:
        if self._instance is None:
            raise ClientError("the administrator is not open: use it inside its `async with` block, or call start()")
        return self._instance


def _departed(text: str | None) -> list[SilentBroker]:
    if text is None:
        return []
    try:
        rows = msgspec.json.decode(text, type=list[tuple[str, str, str]])
    except msgspec.DecodeError as problem:
        log.debug("departed brokers not understood problem=%s", problem)
        return []
    return [SilentBroker(*row) for row in rows]
