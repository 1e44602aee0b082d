"""The filter server's page: times of requests, and the filters it runs. RocketMQ's had none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bolide.clock import Clock
from bolide.metrics.page import Family, Page
from bolide.remoting.health import show_metrics
from bolide.remoting.pages import PageServer

if TYPE_CHECKING:
    from bolide.filtersrv.server import FilterServer

FILTERS = Family("bolide_filtersrv_filters", "gauge", "Filters that were uploaded and are kept.")
COMMON = {"node_type": "filterserver", "otel_scope_name": "filtersrv-meter"}


@asynccontextmanager
async def show(owner: "FilterServer", clock: Clock) -> AsyncIterator[PageServer | None]:
    """The filter server's pages as long as the block lasts; where its settings ask for none, nothing."""
    config, times = owner.config, owner.times
    if times is None:
        yield None
        return

    def page() -> Page:
        yield from times.families()
        yield FILTERS, [("", len(owner.filters))]

    metrics = replace(config.metrics, host=config.metrics.host or config.listen.host)
    async with show_metrics(metrics, page, COMMON, str, clock) as server:
        yield server
