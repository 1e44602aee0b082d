"""Before a broker opens: who else has its name, and what did they hear while it was away?

Two masters of one name would share the route and write two different logs; a slave of another cluster, or with another
slave's id, would push somebody out of it. RocketMQ starts them all. Here such a start is refused with a sentence. Only
a broker that answers counts: at its own old address nobody does, for this one does not listen yet. Name servers that
cannot be reached delay a start by a moment and stop nothing.

While a master is away, groups commit to its slaves. In RocketMQ its return undoes that: slaves copy its old offsets,
and groups that restart read again. Here a master asks its slaves before it opens (`Offsets.bring_home`).
"""

import asyncio
import logging
import re

from bolide.broker.config import BrokerConfig
from bolide.broker.registration import name_servers
from bolide.broker.role import RoleState
from bolide.broker.state import BrokerState
from bolide.broker.tables.offsets import parse as parse_offsets
from bolide.errors import BolideError, ClientError, ConfigError
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.queues import ConsumerOffsets
from bolide.protocol.bodies.routes import BrokerRoute, Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client

LIMIT_S = 3.0
_MEMBER_TOPIC = re.compile(r'"rmq_sys_SYNC_BROKER_MEMBER_([^"]+)"\s*:')
log = logging.getLogger(__name__)


def check_directory(config: BrokerConfig) -> None:
    """Raises ConfigError for a directory that another broker has written; nothing in it is touched.

    Brokers of 5.x and ours have a topic with their name in it, so that the table of topics tells whose it is.
    """
    path = config.directory / "topics.json"
    try:
        owners = set(_MEMBER_TOPIC.findall(path.read_text("utf-8", "replace")))
    except FileNotFoundError:
        return
    if owners and config.name not in owners:
        owner = min(owners)
        why = f"it is the directory of broker {owner!r}, and brokerName is {config.name!r}: give each broker its own"
        renamed = f"if it was renamed, take the topic rmq_sys_SYNC_BROKER_MEMBER_{owner} out of {path}"
        raise ConfigError("storePathRootDir", str(config.store.root), f"{why}; {renamed}")


class Neighbours:
    """Asks name servers and brokers of our name, once, at a start."""

    def __init__(self, state: BrokerState, client: Client) -> None:
        self._state = state
        self._config = state.settings.now
        self._client = client

    async def look(self, role: RoleState) -> list[ConsumerOffsets]:
        """What the slaves of a master know; raises ConfigError where this broker would be one too many."""
        routes = [route for server in name_servers(self._config.namesrv) if (route := await self._route(server))]
        for route in routes:
            if route.cluster and route.cluster != self._config.cluster:
                why = f"broker {self._config.name!r} is in cluster {route.cluster!r} at a name server"
                raise ConfigError("brokerClusterName", self._config.cluster, f"{why}; set that, or another brokerName")
            address = route.broker_addrs.get(role.broker_id)
            if address and await self._answers(address):
                what = "a master" if role.broker_id == 0 else f"a slave with id {role.broker_id}"
                why = f"{what} of this name runs at {address}; stop it, or give this one another name or id"
                raise ConfigError("brokerName" if role.broker_id == 0 else "brokerId", self._config.name, why)
        if not role.is_leading:
            return []
        slaves = {address for route in routes for id_, address in route.broker_addrs.items() if id_ > 0}
        return [offsets for address in sorted(slaves) if (offsets := await self._offsets(address)) is not None]

    def bring_home(self, told: list[ConsumerOffsets]) -> None:
        """Take over what groups committed elsewhere; the queues are known by now."""
        store = self._state.store
        for offsets in told:
            moved = self._state.offsets.bring_home(offsets, lambda topic, id_: store.max_offset(QueueKey(topic, id_)))
            if moved:
                log.info("offsets brought home count=%d", moved)

    async def _route(self, namesrv: str) -> BrokerRoute | None:
        try:
            answer = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            return Clusters.decode(answer.body).broker_addr_table.get(self._config.name)
        except (BolideError, ValueError, TimeoutError) as problem:
            log.debug("name server not asked for our name namesrv=%s problem=%s", namesrv, problem)
            return None

    async def _answers(self, address: str) -> bool:
        try:
            await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except (BolideError, TimeoutError):
            return False
        return True

    async def _offsets(self, address: str) -> ConsumerOffsets | None:
        try:
            answer = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
            return parse_offsets(answer.body.decode())
        except (BolideError, ValueError, TimeoutError) as problem:
            log.warning("slave not asked for offsets address=%s problem=%s", address, problem)
            return None

    async def _ask(self, address: str, code: int) -> Command:
        async with asyncio.timeout(LIMIT_S):
            answer = await self._client.request(address, Command(code), LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"it answered {answer.code}: {answer.remark}", answer.code)
        return answer
