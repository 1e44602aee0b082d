"""The pages of every server: its metrics, whether it lives, and whether it takes requests.

`/healthz` is answered by a loop that turns, and says no more: a process that answers it need not be killed. `/readyz`
asks the server whether it can do its work now, and has 503 and the reason where it cannot: then others should not send
to it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import chain

from bolide import kernel
from bolide.clock import Clock
from bolide.metrics.config import MetricsConfig
from bolide.metrics.page import CONTENT_TYPE, Family, Page, labels, pieces
from bolide.metrics.values import Histogram
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.pages import Answer, PageServer, serve_pages
from bolide.remoting.pushing import push_forever

METRICS, HEALTH, READINESS = "/metrics", "/healthz", "/readyz"
BUILD = Family("bolide_build_info", "gauge", "Which Bolide this is, and which kernel it runs; always 1.")
TARGET = Family("target_info", "gauge", "What is asked; always 1.")
_DELAY_S_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LOOP_DELAY = Family(
    "bolide_loop_delay_seconds", "histogram", "By how much a timer of the event loop was late.", _DELAY_S_BOUNDS
)
_LOOK_S = 1.0


@asynccontextmanager
async def show_metrics(
    config: MetricsConfig,
    page: Callable[[], Page],
    of_all: Mapping[str, str],
    problem: Callable[[], str],
    clock: Clock,
) -> AsyncIterator[PageServer | None]:
    """Serve a server's pages as long as the block lasts, if its settings say so.

    Labels `of_all` are on every series; `problem` says why requests cannot be served now, or is empty.
    """
    own_labels = {**of_all, **config.own_labels}
    if config.is_pushed:
        async with IsolatedTasks() as tasks:
            pushing = tasks.start(push_forever(config, page, own_labels, clock), name="metrics.push")
            yield None
            pushing.cancel()
        return
    if not config.has_page:
        yield None
        return
    delays = Histogram(_DELAY_S_BOUNDS)

    def metrics() -> Answer:
        is_plain = config.names == "plain"
        text = pieces(chain(_about(delays), page()), own_labels, config.series_max, is_plain=is_plain)
        return Answer(text, content_type=CONTENT_TYPE)

    pages = {METRICS: metrics, HEALTH: alive, READINESS: lambda: readiness(problem())}
    async with serve_pages(config.host, config.port, pages, clock) as server, asyncio.TaskGroup() as group:
        looking = group.create_task(_watch_loop(delays), name="metrics.loop")
        try:
            yield server
        finally:
            looking.cancel()


def alive() -> Answer:
    """The page of a loop that turns."""
    return Answer(iter(["alive\n"]))


def readiness(problem: str) -> Answer:
    """The page of one that can do its work, or of one that says why not."""
    return Answer(iter([f"{problem or 'ready'}\n"]), 503 if problem else 200)


async def _watch_loop(delays: Histogram) -> None:
    """How late the loop comes to what it has to do: what everybody waits who asks it."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LOOK_S
        await asyncio.sleep(_LOOK_S)
        delays.add(max(0.0, loop.time() - due_s))


def _about(delays: Histogram) -> Page:
    from bolide import __version__

    yield TARGET, [(labels(service_name="bolide", telemetry_sdk_language="python"), 1)]
    yield BUILD, [(labels(version=__version__, kernel=kernel.NAME), 1)]
    yield LOOP_DELAY, [("", delays)] if any(delays.counts) else []
