"""Where the master of each broker name is, and the search for one that is gone: another may lead by now."""

import asyncio

from bolide.client.nameservers import NameServers
from bolide.client.routes import MASTER_ID
from bolide.clock import Clock
from bolide.errors import ClientError, NoAnswer
from bolide.protocol.bodies.routes import BrokerRoute, Clusters
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command

LOOK_INTERVAL_S = 0.1


class Masters:
    """Addresses by broker name."""

    def __init__(self, name_servers: NameServers, clock: Clock) -> None:
        self.addresses: dict[str, str] = {}
        self._name_servers = name_servers
        self._clock = clock
        self._looking: asyncio.Future[frozenset[str]] | None = None

    def learn(self, data: BrokerRoute) -> None:
        """What a route or the list of clusters says of a broker name."""
        if MASTER_ID in data.broker_addrs:
            self.addresses[data.broker_name] = data.broker_addrs[MASTER_ID]

    def forget(self, broker: str, address: str) -> bool:
        """Nobody leads there any more; says whether that is news."""
        is_news = self.addresses.get(broker) == address
        if is_news:
            del self.addresses[broker]
        return is_news

    def name_at(self, address: str) -> str:
        """The broker at an address."""
        return next((name for name, each in self.addresses.items() if each == address), "")

    async def find(self, broker: str, limit_s: float) -> str:
        """The master's address; one that is not there is waited for. Raises ClientError for a name that nobody has."""
        deadline_s = self._clock.monotonic_s() + limit_s
        while broker not in self.addresses:
            names = await self.look()
            if broker in self.addresses:
                break
            if broker not in names:
                raise ClientError(f"broker {broker!r} is not known here")
            if self._clock.monotonic_s() + LOOK_INTERVAL_S > deadline_s:
                raise NoAnswer(f"broker {broker!r} has no master at the moment")
            await asyncio.sleep(LOOK_INTERVAL_S)
        return self.addresses[broker]

    async def look(self) -> frozenset[str]:
        """Ask a name server for all masters, once for everybody who waits; returns the names that it has."""
        if self._looking is not None:
            return await asyncio.shield(self._looking)
        looking: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._looking = looking
        try:
            answer = await self._name_servers.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
            table = Clusters.decode(answer.body).broker_addr_table.values()
        except BaseException as problem:
            looking.set_exception(problem if isinstance(problem, Exception) else NoAnswer("the search was given up"))
            looking.exception()  # nobody else may wait for it
            raise
        finally:
            self._looking = None
        for data in table:
            self.learn(data)
        looking.set_result(frozenset(data.broker_name for data in table))
        return looking.result()
