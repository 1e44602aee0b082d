"""The controller's page: RocketMQ's names, which have no prefix, for what a controller here has too.

It has no DLedger, so what tells of one is absent.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bolide.clock import Clock
from bolide.controller.register import Node
from bolide.metrics.page import Family, Page, Sample, labels
from bolide.metrics.values import Histogram
from bolide.protocol.codes import ResponseCode
from bolide.remoting.health import show_metrics
from bolide.remoting.owner import Request
from bolide.remoting.pages import PageServer
from bolide.remoting.request_times import code_name, known_code

if TYPE_CHECKING:
    from bolide.controller.server import Controller

_STEPS = [step * 10**power for power in range(7) for step in (1, 3, 5)]
US_BOUNDS = (*_STEPS, 10_000_000)
ROLE = Family("role", "gauge", "1 for the controller that leads, 2 for one that follows.")
ACTIVE = Family("active_broker_num", "gauge", "Brokers that are heard.")
REQUESTS = Family("request_total", "counter", "Requests by what was asked and how it went.")
LATENCY = Family("request_latency_microseconds", "histogram", "How long requests took.", US_BOUNDS)
ELECTIONS = Family("election_total", "counter", "Elections by their result.")
LEADER, FOLLOWER = 1, 2


class ControllerMeter:
    """What a controller counts where its metrics are shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.requests: dict[tuple[int, bool], Histogram] = {}
        self.elections: dict[tuple[str, str, str], int] = {}  # cluster, name, result

    def answered(self, request: Request, answer: int) -> None:
        key = known_code(request.command.code), answer == ResponseCode.SUCCESS
        took_us = (self._clock.monotonic_s() - request.arrived_s) * 1e6
        self.requests.setdefault(key, Histogram(US_BOUNDS)).add(int(took_us))

    def elected(self, cluster: str, name: str, result: str) -> None:
        key = cluster, name, result
        self.elections[key] = self.elections.get(key, 0) + 1


@asynccontextmanager
async def show(controller: "Controller", node: Node, clock: Clock) -> AsyncIterator[PageServer | None]:
    """The controller's pages as long as the block lasts; where its settings ask for none, nothing."""
    config, meter = controller.settings.now, controller.meter
    if meter is None:
        yield None
        return

    def page() -> Page:
        yield ROLE, [("", LEADER if controller.register.is_leader else FOLLOWER)]
        yield ACTIVE, _active(controller)
        yield REQUESTS, ((text, sum(times.counts)) for text, times in _requests(meter))
        yield LATENCY, _requests(meter)
        yield (
            ELECTIONS,
            (
                (labels(cluster=cluster, broker_set=name, election_result=result), count)
                for (cluster, name, result), count in list(meter.elections.items())
            ),
        )

    def problem() -> str:
        return "" if controller.register.leader is not None else "no controller leads"

    of_all = {"address": node.address, "group": config.group, "peer_id": node.id}
    metrics = replace(config.metrics, host=config.metrics.host or config.listen.host)
    async with show_metrics(metrics, page, of_all, problem, clock) as server:
        yield server


def _requests(meter: ControllerMeter) -> Iterator[tuple[str, Histogram]]:
    for (code, is_done), times in list(meter.requests.items()):
        yield labels(request_type=code_name(code), request_handle_status="success" if is_done else "failed"), times


def _active(controller: "Controller") -> Iterator[Sample]:
    for name, group in list(controller.changes.known.items()):
        yield labels(cluster=group.cluster, broker_set=name), len(controller.changes.health(name, group).reports)
