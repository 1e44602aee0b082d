"""The first messages of a topic: they wait for its route together.

Each on its own would ask, connect and send by itself: of thirty thousand at once most were late. What the one that asks
is told holds for all of them, a refusal too.
"""

import asyncio

from bolide.client.sending.message import check_topic
from bolide.client.sending.placement import Placement
from bolide.errors import ClientError, RequestTimeout


class _Opening:
    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        self.problem: ClientError | None = None


class Openings:
    """Those of one producer, by topic."""

    def __init__(self, placement: Placement, timeout_s: float) -> None:
        self._placement = placement
        self._timeout_s = timeout_s
        self._open: dict[str, _Opening] = {}
        self._loop = asyncio.get_running_loop()

    async def route(self, topic: str) -> None:
        """Return when the route is known; the failure if it cannot be had in time."""
        deadline_s = self._loop.time() + self._timeout_s
        while self._placement.known(topic) is None:
            opening = self._open.get(topic)
            if opening is None:
                await self._ask(topic, deadline_s)
                continue
            await opening.is_over.wait()
            problem = opening.problem
            if problem is not None and not (isinstance(problem, RequestTimeout) and self._loop.time() < deadline_s):
                raise problem.with_traceback(None)  # raised by thousands: their frames would all be kept

    async def _ask(self, topic: str, deadline_s: float) -> None:
        check_topic(topic)
        opening = self._open[topic] = _Opening()
        try:
            left_s = max(deadline_s - self._loop.time(), 0.001)
            await asyncio.sleep(0)  # all of this turn stand here before the time runs: they may take longer than it
            await self._placement.route_in_time(topic, left_s)
        except ClientError as problem:
            opening.problem = problem
            raise
        finally:
            del self._open[topic]
            opening.is_over.set()
