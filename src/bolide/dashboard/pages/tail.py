"""`/topics/{t}/tail`: what is sent from now on, without a group; what is not drawn is counted."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bolide.admin.searching import Place, holding
from bolide.admin.walking import TOOLS_GROUP
from bolide.client.pulling.puller import PullConsumer
from bolide.dashboard.asked import expression_of
from bolide.dashboard.page import Answer, Page, Visit, dashboard_of, enter, raw_path
from bolide.dashboard.pages.messages import MessageLine, line_of
from bolide.dashboard.streams import data, named
from bolide.errors import BolideError
from bolide.model.queue import MessageQueue

LASTS_S = 30 * 60.0
DRAWN_A_SECOND = 50
_DRAW_INTERVAL_S = 1.0
_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class TailView:
    """The page; its rows come by events."""

    topic: str
    tag: str
    sql: str
    text: str
    events: str
    hides_bodies: bool


async def load(visit: Visit) -> Answer:
    topic = visit.named("topic")
    await visit.admin.route(topic)
    fields = {name: visit.asked(name) for name in ("tag", "sql", "text") if visit.asked(name)}
    expression_of(fields.get("tag", ""), fields.get("sql", ""))
    events = f"{raw_path(visit.request)}/events?{urlencode(fields)}"
    view = TailView(
        topic, visit.asked("tag"), visit.asked("sql"), visit.asked("text"), events, visit.config.hides_bodies
    )
    return Answer("tail.html", view, {"topic": topic, "events": events}, title=f"Live: {topic}")


@dataclass(slots=True)
class _Gathered:
    """What came since the last drawing; more than is drawn is counted alone."""

    lines: list[MessageLine]
    came: int = 0
    skipped: int = 0

    def take(self, line: MessageLine) -> None:
        self.came += 1
        if len(self.lines) < DRAWN_A_SECOND:
            self.lines.append(line)
        else:
            self.skipped += 1


async def stream(request: Request) -> Response:
    """Rows as they come."""
    entered = await enter(dashboard_of(request), request, is_told=True)
    if isinstance(entered, Response):
        return entered
    return entered.dashboard.streams.respond(events_of(entered), LASTS_S)


async def events_of(visit: Visit) -> AsyncGenerator[str]:
    """Each second the rows that came, as an event."""
    template = visit.dashboard.templates.get_template("tail_rows.html")
    gathering = _Gathered([])
    total = skipped = 0
    try:
        async with visit.admin.puller(TOOLS_GROUP) as consumer, asyncio.TaskGroup() as group:
            queues = await consumer.queues(visit.named("topic"))
            ends = {queue: await consumer.max_offset(queue) for queue in queues}
            followers = [
                group.create_task(_follow(visit, consumer, queue, end, gathering), name="dashboard.tail")
                for queue, end in ends.items()
            ]
            try:
                yield data(template.render(lines=[], total=0, skipped=0, hides_bodies=visit.config.hides_bodies))
                while not any(each.done() for each in followers):
                    await asyncio.sleep(_DRAW_INTERVAL_S)
                    drawn = gathering.lines
                    total, skipped = total + gathering.came, skipped + gathering.skipped
                    gathering.lines, gathering.came, gathering.skipped = [], 0, 0
                    newest_first = sorted(drawn, key=lambda line: -line.message.stored_at)
                    hides = visit.config.hides_bodies
                    yield data(template.render(lines=newest_first, total=total, skipped=skipped, hides_bodies=hides))
            finally:
                for each in followers:
                    each.cancel()
    except* BolideError as problems:
        yield named("done", str(problems.exceptions[0]).replace("\n", " "))


async def _follow(visit: Visit, consumer: PullConsumer, queue: MessageQueue, offset: int, gathering: _Gathered) -> None:
    expression = expression_of(visit.asked("tag"), visit.asked("sql"))
    text = visit.asked("text")
    holds = holding(text) if text else lambda _: True
    while True:
        pulled = await consumer.pull(queue, offset, 64, expression, wait_s=_WAIT_S)
        for received in pulled.messages:
            if holds(received.stored):
                gathering.take(line_of(Place(queue, received.stored), visit.config.hides_bodies))
        offset = max(offset, pulled.next_offset)


PAGES = [Page("/topics/{topic:path}/tail", "Live: {topic}", load)]
ROUTES = [Route("/topics/{topic:path}/tail/events", stream, methods=["GET"])]
