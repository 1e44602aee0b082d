"""The proxy's page: that it is up, as Apache's says it, and how many clients it knows, and what calls took."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from bolide.clock import Clock
from bolide.metrics.page import Family, Page
from bolide.proxy.config import ProxyConfig
from bolide.proxy.server import Proxy
from bolide.remoting.health import show_metrics
from bolide.remoting.pages import PageServer

UP = Family("rocketmq_proxy_up", "gauge", "Whether the proxy is up; always 1.")
CLIENTS = Family("bolide_proxy_clients", "gauge", "Clients of RocketMQ 5 that are known here.")


@asynccontextmanager
async def show(proxy: Proxy, config: ProxyConfig, clock: Clock) -> AsyncIterator[PageServer | None]:
    """Its pages as long as the block lasts; where its settings ask for none, nothing."""

    def page() -> Page:
        yield UP, [("", 1)]
        yield CLIENTS, [("", len(proxy.clients))]
        if proxy.times is not None:
            yield from proxy.times.families()

    of_all = {
        "cluster": config.cluster,
        "node_id": socket.gethostname(),
        "node_type": "proxy",
        "proxy_mode": config.mode.lower(),
        "otel_scope_name": "proxy-meter",
    }
    metrics = replace(config.metrics, host=config.metrics.host or config.port.listen.host)
    async with show_metrics(metrics, page, of_all, str, clock) as server:
        yield server
