"""Before a broker opens: who else has its name, and what did they hear while it was away?

Two masters of one name would share the route and write two different logs; a slave of another cluster, or with another
slave's id, would push somebody out of it. RocketMQ starts them all. Here such a start is refused with a sentence. Only
a broker that answers counts: at its own old address nobody does, for this one does not listen yet. Name servers that
cannot be reached delay a start by a moment and stop nothing.

While a master is away, groups commit to its slaves. In RocketMQ its return undoes that: slaves copy its old offsets,
and groups that restart read again. Here a master asks its slaves before it opens (`Offsets.bring_home`). Where a slave
may act for it (`acting.py`), it asks besides how far delay levels and the timer have come, as RocketMQ's does: what was
delivered elsewhere meanwhile does not come again.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from bolide.broker.config import BrokerConfig
from bolide.broker.later.delay import Delays
from bolide.broker.later.delay import parse as parse_delays
from bolide.broker.later.timer_files import Metrics, parse_counts
from bolide.broker.later.timers import Timers
from bolide.broker.registration import name_servers
from bolide.broker.role import RoleState
from bolide.broker.state import BrokerState
from bolide.broker.tables.offsets import parse as parse_offsets
from bolide.errors import BolideError, ClientError, ConfigError
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.queues import ConsumerOffsets, DelayOffsets
from bolide.protocol.bodies.routes import BrokerRoute, Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.store.timercheck import TimerCheck, parse_check

T = TypeVar("T")
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


class Told(NamedTuple):
    """What one slave knows; None of what it was not asked for, or did not answer."""

    offsets: ConsumerOffsets | None
    delays: DelayOffsets | None
    check: TimerCheck | None
    counts: Metrics | None


class Neighbours:
    """Asks name servers and brokers of our name, once, at a start."""

    def __init__(self, state: BrokerState, client: Client) -> None:
        self._state = state
        self._config = state.settings.now
        self._client = client

    async def look(self, role: RoleState) -> list[Told]:
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
        return [await self._told(address) for address in sorted(slaves)]

    def bring_home(self, told: list[Told], delays: Delays, timers: Timers | None) -> None:
        """Take over what groups committed and what was delivered elsewhere; the queues are known by now."""
        store = self._state.store

        def end_of(topic: str, queue_id: int) -> int:
            return store.max_offset(QueueKey(topic, queue_id))

        for offsets, delay_offsets, check, counts in told:
            moved = 0 if offsets is None else self._state.offsets.bring_home(offsets, end_of)
            levels = 0 if delay_offsets is None else delays.bring_home(delay_offsets)
            if moved or levels:
                log.info("brought home offsets=%d levels=%d", moved, levels)
            if timers is not None and check is not None and timers.bring_home(check):
                log.info("timed messages were delivered elsewhere up to=%d", check.read_ms)
                if counts is not None:
                    timers.files.counts.adopt(counts)

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

    async def _told(self, address: str) -> Told:
        offsets = await self._table(
            address, RequestCode.GET_ALL_CONSUMER_OFFSET, lambda body: parse_offsets(body.decode())
        )
        if not self._config.replication.stands_in:
            return Told(offsets, None, None, None)
        delays = await self._table(address, RequestCode.GET_ALL_DELAY_OFFSET, lambda body: parse_delays(body.decode()))
        if not self._config.store.timer_enabled:
            return Told(offsets, delays, None, None)
        check = await self._table(address, RequestCode.GET_TIMER_CHECK_POINT, parse_check)
        counts = await self._table(address, RequestCode.GET_TIMER_METRICS, lambda body: parse_counts(body.decode()))
        return Told(offsets, delays, check, counts)

    async def _table(self, address: str, code: RequestCode, parse: Callable[[bytes], T]) -> T | None:
        try:
            return parse((await self._ask(address, code)).body)
        except (BolideError, ValueError, TimeoutError) as problem:
            log.warning("slave not asked code=%s address=%s problem=%s", code.name, address, problem)
            return None

    async def _ask(self, address: str, code: int) -> Command:
        async with asyncio.timeout(LIMIT_S):
            answer = await self._client.request(address, Command(code), LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"it answered {answer.code}: {answer.remark}", answer.code)
        return answer
