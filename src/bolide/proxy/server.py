"""The gRPC port: its methods, its connections, and the order in which it all stops."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bolide.access.door import Door
from bolide.access.signing import signers
from bolide.access.sources import open_source
from bolide.broker.broker import Broker
from bolide.clock import Clock
from bolide.errors import ConfigError
from bolide.proxy.back import Back
from bolide.proxy.call_times import CallTimes
from bolide.proxy.clients import Clients
from bolide.proxy.cluster import ClusterBack
from bolide.proxy.config import ProxyConfig
from bolide.proxy.http2 import Http2Connection
from bolide.proxy.local import LocalBack
from bolide.proxy.methods import Methods
from bolide.proxy.offsets import Offsets
from bolide.proxy.port import Method, Port, Unwhole
from bolide.proxy.receiving import Receiving
from bolide.proxy.rights import Rights
from bolide.proxy.routing import Routing
from bolide.proxy.sending import Sending
from bolide.proxy.settling import Settling
from bolide.proxy.signatures import Signatures
from bolide.proxy.state import ProxyState
from bolide.proxy.telemetry import Telemetry, hearing
from bolide.remoting.client import Client
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.server import Server, listen_for
from bolide.remoting.shared import Shared

log = logging.getLogger(__name__)


class Proxy:
    """The service over one back."""

    def __init__(
        self, config: ProxyConfig, clock: Clock, back: Back, door: Door | None = None, *, is_counting: bool = False
    ) -> None:
        """`door` is that of the broker, where it has one; `is_counting` where metrics are shown."""
        self.clients = Clients(config, clock, back, lambda client: hearing(lambda: self.state, client))
        self.state = state = ProxyState(config, clock, back, self.clients)
        self.settling = Settling(state)
        self.renewals = self.settling.renewals
        gate = None if door is None else Signatures(door, self.clients).enter
        rights = Rights(back)
        telemetry = Telemetry(state, rights, gate)
        parts = (
            Routing(state, rights),
            Sending(state),
            Receiving(state, self.settling, self.renewals),
            self.settling,
            telemetry,
            Offsets(state),
        )
        methods = Methods(back, gate)
        self.methods: dict[str, Method] = telemetry.methods()
        for part in parts:
            self.methods |= methods.table(part.handlers())
        self.times = CallTimes(self.methods.keys()) if is_counting else None
        self.clients.listen(lambda client: self.renewals.release(client.client_id))


@asynccontextmanager
async def serve(
    config: ProxyConfig, clock: Clock, back: Back, door: Door | None = None, *, is_counting: bool = False
) -> AsyncIterator[tuple[Proxy, Server]]:
    """Serve gRPC over a back as long as the block lasts."""
    proxy = Proxy(config, clock, back, door, is_counting=is_counting)
    port = Port(config.port, proxy.methods, Unwhole(config.port.unwhole_size_max), clock, proxy.times)
    listening, shared = config.port.listen, Shared.of_server(config.port.listen, clock)
    async with listen_for(listening, lambda opening: Http2Connection(port, opening), clock, shared) as server:
        async with asyncio.TaskGroup() as background:
            works = [
                background.create_task(proxy.clients.scan_forever(), name="proxy.clients"),
                background.create_task(proxy.renewals.run_forever(), name="proxy.renewals"),
            ]
            try:
                yield proxy, server
            finally:
                for work in works:
                    work.cancel()
        proxy.clients.leave_all()


@asynccontextmanager
async def serve_beside(broker: Broker, config: ProxyConfig, clock: Clock) -> AsyncIterator[tuple[Proxy, Server]]:
    """Serve gRPC over the broker in this process."""
    door, meter = broker.admission.door, broker.meter
    async with IsolatedTasks() as tasks:
        back, is_counting = LocalBack(broker, tasks.group), meter is not None
        async with serve(config, clock, back, door, is_counting=is_counting) as (proxy, server):
            if meter is not None and proxy.times is not None:
                meter.beside = proxy.times.families
            yield proxy, server


@asynccontextmanager
async def serve_before(config: ProxyConfig, clock: Clock) -> AsyncIterator[tuple[Proxy, Server]]:
    """Serve gRPC over the cluster that `namesrvAddr` names."""
    if not config.namesrv:
        raise ConfigError("namesrvAddr", "", "names no name server; give one with -n, as 127.0.0.1:9876")
    door = _door_of(config, clock)
    async with IsolatedTasks() as tasks, Client(config.connect, clock, hooks=signers(config.access)) as client:
        back = ClusterBack(config, clock, client, lambda work, name: tasks.start(work, name=name))
        async with serve(config, clock, back, door, is_counting=config.metrics.is_on) as served:
            following = None if door is None else tasks.start(door.refresh_forever(), name="proxy.access")
            try:
                yield served
            finally:
                if following is not None:
                    following.cancel()


def _door_of(config: ProxyConfig, clock: Clock) -> Door | None:
    """Knows clients by their signatures; what they may do is for the brokers to say, who are asked in their names."""
    source = open_source(config.access, Path())
    if source is not None:
        return Door(config.access, source, clock, config.cluster)
    if config.access.inner_pair is not None:
        name = config.access.inner_pair.access_key
        log.warning("every client here has the rights of %s; authenticationEnabled=true tells them apart", name)
    return None
