"""The name server's page. RocketMQ's has none, so but for the times of requests the names are ours."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bolide.clock import Clock
from bolide.metrics.page import Family, Page
from bolide.remoting.health import show_metrics
from bolide.remoting.pages import PageServer

if TYPE_CHECKING:
    from bolide.namesrv.server import NameServer

BROKERS = Family("bolide_namesrv_brokers", "gauge", "Brokers that are registered, slaves included.")
TOPICS = Family("bolide_namesrv_topics", "gauge", "Topics that have a route.")
READY_ANSWERS = Family("bolide_namesrv_ready_answers_total", "counter", "Look-ups answered with what lay ready.")
COMMON = {"node_type": "nameserver", "otel_scope_name": "namesrv-meter"}


@asynccontextmanager
async def show(namesrv: "NameServer", clock: Clock) -> AsyncIterator[PageServer | None]:
    """The name server's pages as long as the block lasts; where its settings ask for none, nothing."""
    config = namesrv.settings.now
    times = namesrv.times
    if times is None:
        yield None
        return

    def page() -> Page:
        yield from times.families()
        yield BROKERS, [("", len(namesrv.tables.live))]
        yield TOPICS, [("", len(namesrv.tables.topics))]
        yield READY_ANSWERS, [("", namesrv.ready_count)]

    metrics = replace(config.metrics, host=config.metrics.host or config.listen.host)
    async with show_metrics(metrics, page, COMMON, str, clock) as server:
        yield server
