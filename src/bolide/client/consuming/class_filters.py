"""Filters of one's own: uploaded to the filter servers of a topic's route, and pulled through.

After RocketMQ 4.2: the source goes to every filter server beside a broker of the topic, at the start, after each
heartbeat interval and whenever the route changes, for one that was started again has forgotten it. A pull goes to any
of those beside the broker that has the queue.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from bolide import kernel
from bolide.client.consuming.subscriptions import ClassFilter, Expression, check_sql
from bolide.client.instance import Instance
from bolide.errors import BolideError, ClientError
from bolide.protocol.bodies.clients import Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.filters import RegisterFilterClassRequest

UPLOAD_INTERVAL_S = 30.0
_UPLOAD_LIMIT_S = 25.0
log = logging.getLogger(__name__)


class ClassFilters:
    """The filters of one member, by topic; empty for most."""

    def __init__(self, group: str, topics: Mapping[str, Expression]) -> None:
        self._group = group
        self._filters = {topic: wanted for topic, wanted in topics.items() if isinstance(wanted, ClassFilter)}
        self._woken = asyncio.Event()

    async def start(self, instance: Instance, subscriptions: Iterable[Subscription]) -> None:
        """Make sure that what is wanted can be had: brokers filter by SQL, filter servers have their filters."""
        self._instance = instance
        await check_sql(instance, self._group, subscriptions)
        await self.upload()

    def route_changed(self) -> None:
        self._woken.set()

    async def upload_forever(self) -> None:
        """Upload again and again, if there is anything; what fails is said and tried again."""
        while self._filters:
            try:
                async with asyncio.timeout(UPLOAD_INTERVAL_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self.upload()
            except BolideError as problem:
                log.warning("filter not uploaded group=%s problem=%s", self._group, problem)

    async def upload(self) -> None:
        """Give every filter server its filter; raises ClientError where one refuses."""
        for topic, wanted in self._filters.items():
            route = self._instance.known_route(topic)
            servers = {server for each in (route.filter_servers.values() if route else ()) for server in each}
            for server in sorted(servers):
                await self._give(server, topic, wanted)

    async def _give(self, server: str, topic: str, wanted: ClassFilter) -> None:
        source = wanted.source.encode()
        header = RegisterFilterClassRequest(
            consumer_group=self._group, topic=topic, class_name=wanted.name, crc=kernel.body_crc(source)
        )
        command = Command(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, fields=header.encode(), body=source)
        answer = await self._instance.request(server, command, _UPLOAD_LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"filter server {server}: {answer.remark}", answer.code)

    async def server_for(self, topic: str, broker_address: str) -> str:
        """A filter server beside a broker, any of them."""
        route = self._instance.known_route(topic)
        servers = route.filter_servers.get(broker_address) if route is not None else None
        if not servers:
            await self._instance.doubt(topic)
            raise ClientError(
                f"no filter server is beside the broker at {broker_address}, and {topic} is filtered by a class; "
                f"start one there: bolide filtersrv -b {broker_address}"
            )
        return self._instance.chance.choice(servers)
