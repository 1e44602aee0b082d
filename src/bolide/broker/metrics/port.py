"""Where the broker shows its metrics, and whether it is ready: a port beside the one for clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from bolide.broker.metrics.page import BrokerPage, Shown
from bolide.broker.state import BrokerState
from bolide.remoting.health import show_metrics
from bolide.remoting.pages import PageServer


class MetricsPort:
    """The broker's pages; `server` is there while they are served."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.server: PageServer | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve them as long as the block lasts; where the settings ask for none, nothing."""
        state = self.shown.state
        config, meter = state.settings.now, state.meter
        if meter is None:
            yield
            return
        of_all = {
            "cluster": config.cluster,
            "node_id": config.name,
            "node_type": "broker",
            "otel_scope_name": "broker-meter",
        }
        metrics = replace(config.metrics, host=config.metrics.host or config.listen.host)
        page = BrokerPage(self.shown, meter)
        async with show_metrics(metrics, page.families, of_all, lambda: problem_of(state), state.clock) as self.server:
            yield
        self.server = None


def problem_of(state: BrokerState) -> str:
    """Why this broker cannot do its work now; empty where it can."""
    if state.store.is_failed:
        return "the disk failed to keep the log: nothing more is taken until a restart"
    if state.store.is_disk_full:
        return f"the disk is {state.store.disk_percent} % full, and takes no more messages"
    if state.role.now.is_fenced:
        return "it is not decided whether this broker leads or follows"
    return ""
