"""`/dead` and `/dead/{g}`: what groups gave up, why, and sending it again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bolide.admin.calls import gathered
from bolide.admin.deadletters import EVER_MS, DeadGroupRow, DeadLetter, DeadLetterFilter, Resent, as_row, group_of
from bolide.admin.rows import dead_group_cells
from bolide.admin.walking import TOOLS_GROUP
from bolide.client.pulling.puller import PullConsumer
from bolide.dashboard.asked import time_ms
from bolide.dashboard.jobs import Job
from bolide.dashboard.page import Action, Answer, Form, Page, Visit, dashboard_of, enter
from bolide.dashboard.streams import data, named
from bolide.errors import BolideError, ClientError
from bolide.model.texts import json_text
from bolide.model.topics import dead_letter_topic

SHOWN = 50
COUNTED_MAX = 20_000
_READ_FOR_REASON = 32
_DRAW_INTERVAL_S = 0.3
_LASTS_S = 3600.0
FIELDS = ("since", "until", "reason", "topic", "key", "text")


@dataclass(frozen=True, slots=True)
class DeadGroupLine:
    """A group that gave messages up."""

    row: DeadGroupRow
    new_count: int | None
    oldest_ms: int | None
    reason: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeadView:
    """The list."""

    lines: list[DeadGroupLine]


async def load_list(visit: Visit) -> Answer:
    snapshot = await visit.seen()
    topics = [name for name in snapshot.configs if group_of(name) is not None]
    failed = await visit.desk.walk.look_at(topics[:500])
    looks = visit.desk.walk.topics
    rows = [
        DeadGroupRow(topic.removeprefix("%DLQ%"), looks[topic].kept or 0, looks[topic].last_ms or 0)
        for topic in sorted(topics)
        if topic in looks and looks[topic].kept
    ]
    async with visit.admin.puller(TOOLS_GROUP) as consumer:
        details = await gathered({row.group: _detail(visit, consumer, row) for row in rows[:SHOWN]})
    lines = []
    for row in rows:
        found = details.get(row.group)
        if isinstance(found, DeadGroupLine):
            lines.append(found)
        else:
            lines.append(DeadGroupLine(row, None, None, "", failed.get(dead_letter_topic(row.group), str(found or ""))))
    lines.sort(key=lambda line: (-line.row.last_ms, line.row.group))
    return Answer("dead.html", DeadView(lines), [dead_group_cells(row) for row in rows])


async def _detail(visit: Visit, consumer: PullConsumer, row: DeadGroupRow) -> DeadGroupLine:
    """How many are new since midnight, how old the oldest is, and what most of the newest failed with."""
    today = datetime.fromtimestamp(visit.now_ms / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    new, oldest, reasons = 0, [], Counter[str]()
    for queue in await consumer.queues(dead_letter_topic(row.group)):
        first, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        if end <= first:
            continue
        new += end - max(first, await consumer.offset_at(queue, int(today.timestamp() * 1000)))
        oldest += [each.stored_at for each in (await consumer.pull(queue, first, 1)).messages]
        newest = await consumer.pull(queue, max(first, end - _READ_FOR_REASON), _READ_FOR_REASON)
        reasons.update(DeadLetter(row.group, queue, each.stored).reason for each in newest.messages)
    reason = reasons.most_common(1)[0][0] if reasons else ""
    return DeadGroupLine(row, max(0, new), min(oldest, default=None), reason)


@dataclass(frozen=True, slots=True)
class LetterLine:
    """One dead letter."""

    letter: DeadLetter
    body: str
    was_resent: bool
    address: str


@dataclass(frozen=True, slots=True)
class LettersView:
    """The letters of a group that fit the filter."""

    group: str
    fields: dict[str, str]
    lines: list[LetterLine]
    matching: int
    is_counted: bool
    hides_bodies: bool
    export: str


def filter_of(fields: dict[str, str], now_ms: int, ids: tuple[str, ...] = ()) -> DeadLetterFilter:
    """What was asked for, as the administrator takes it."""
    return DeadLetterFilter(
        ids=ids,
        topic=fields.get("topic") or None,
        reason=fields.get("reason") or None,
        since_ms=time_ms(fields.get("since", ""), now_ms, 0),
        until_ms=time_ms(fields.get("until", ""), now_ms, EVER_MS),
        key=fields.get("key") or None,
        text=fields.get("text") or None,
    )


async def load_group(visit: Visit) -> Answer:
    group = visit.named("group")
    fields = {name: visit.asked(name) for name in FIELDS}
    newest: list[DeadLetter] = []
    count = 0
    async with visit.dashboard.searches:
        async for letter in visit.admin.dead_letters(group, filter_of(fields, visit.now_ms)):
            count += 1
            newest.append(letter)
            if len(newest) > 2 * SHOWN:
                newest = newest[-SHOWN:]
            if count >= COUNTED_MAX:
                break
    newest = sorted(newest, key=lambda letter: -letter.died_ms)[:SHOWN]
    asked = urlencode({name: value for name, value in fields.items() if value})
    view = LettersView(
        group=group,
        fields=fields,
        lines=[_letter_line(visit, letter) for letter in newest],
        matching=count,
        is_counted=count < COUNTED_MAX,
        hides_bodies=visit.config.hides_bodies,
        export=f"/dead-export/{quote(group, safe='')}?{asked}",
    )
    return Answer(
        "dead_group.html", view, [_cells(visit, letter) for letter in newest], title=f"Dead letters of {group}"
    )


def _cells(visit: Visit, letter: DeadLetter) -> dict[str, object]:
    cells = dict(as_row(letter))
    return {**cells, "body": None} if visit.config.hides_bodies else cells


def _letter_line(visit: Visit, letter: DeadLetter) -> LetterLine:
    body = "" if visit.config.hides_bodies else letter.message.body[:480].decode("utf-8", "backslashreplace")[:120]
    place = {"topic": letter.message.topic, "queue": f"{letter.queue.broker_name}:{letter.queue.queue_id}"}
    address = f"/messages/{quote(letter.id, safe='')}?{urlencode({**place, 'offset': letter.message.queue_offset})}"
    return LetterLine(letter, body, visit.dashboard.jobs.was_resent(letter.message.offset_id), address)


@dataclass(frozen=True, slots=True)
class DryView:
    """What a resending would do."""

    group: str
    ids: list[str]
    fields: dict[str, str]
    is_for_group: bool
    rate: int
    told: Resent
    first: list[LetterLine]


async def try_dry(visit: Visit, form: Form) -> Answer:
    """Count what would be sent, and show the first three."""
    group = visit.named("group")
    fields, ids, is_for_group, rate = _chosen(form)
    wanted = filter_of(fields, visit.now_ms, tuple(ids))
    async with visit.dashboard.searches:
        told = await visit.admin.resend_dead_letters(group, wanted, is_dry=True, is_for_group=is_for_group)
        first = []
        async for letter in visit.admin.dead_letters(group, wanted):
            first.append(_letter_line(visit, letter))
            if len(first) == 3:
                break
    view = DryView(group, ids, fields, is_for_group, rate, told, first)
    return Answer("dead_dry.html", view, {"would_send": told.sent_count}, title="Dry run")


def _chosen(form: Form) -> tuple[dict[str, str], list[str], bool, int]:
    ids = form.texts("id")
    if form.text("which") == "chosen" and not ids:
        raise ClientError("no letter was chosen: mark some, or choose all that match")
    fields = {name: form.text(name) for name in FIELDS}
    return (
        fields,
        ids if form.text("which") != "all" else [],
        form.text("to") == "group",
        min(form.number("rate") or 0, 100_000),
    )


async def resend(visit: Visit, form: Form) -> str:
    """Begin to send; the page of the job tells how it goes."""
    group = visit.named("group")
    fields, ids, is_for_group, rate = _chosen(form)
    wanted = filter_of(fields, visit.now_ms, tuple(ids))
    jobs, where = visit.dashboard.jobs, "its group" if is_for_group else "its topics"

    async def work(job: Job) -> None:
        def progress(told: Resent) -> None:
            job.told = told

        try:
            job.told = await visit.admin.resend_dead_letters(
                group,
                wanted,
                is_for_group=is_for_group,
                on_progress=progress,
                rate_max=rate or None,
                on_sent=jobs.note_resent,
            )
            job.state = "done"
        except (BolideError, TimeoutError) as problem:
            job.state = f"failed: {problem}"
        finally:
            told = f"{job.told.sent_count} sent, {job.told.failed_count} failed, {job.state}"
            visit.note("resend dead letters", group, after=where, result=told)

    total = form.number("total") or 0
    job = jobs.begin(group, total, lambda job: visit.desk.start(work(job), "dashboard.resend"))
    return f"/dead/{quote(group, safe='')}/jobs/{job.id}"


@dataclass(frozen=True, slots=True)
class JobView:
    """A resending, as it goes."""

    job: Job
    events: str


async def load_job(visit: Visit) -> Answer:
    job = visit.dashboard.jobs.find(visit.named("job"), visit.named("group"))
    events = f"/dead-jobs/{quote(job.group, safe='')}/{job.id}" if job.is_running else ""
    rows = {
        "state": job.state,
        "sent": job.told.sent_count,
        "failed": job.told.failed_count,
        "failures": job.told.failures,
    }
    return Answer("dead_job.html", JobView(job, events), rows, title="Resending")


async def stop(visit: Visit, form: Form) -> str:
    job = visit.dashboard.jobs.find(visit.named("job"), visit.named("group"))
    visit.dashboard.jobs.stop(job)
    return f"/dead/{quote(job.group, safe='')}/jobs/{job.id}"


async def events(request: Request) -> Response:
    """How far a resending is, again and again."""
    entered = await enter(dashboard_of(request), request, is_told=True)
    if isinstance(entered, Response):
        return entered
    try:
        job = entered.dashboard.jobs.find(entered.named("job"), entered.named("group"))
    except ClientError as problem:
        return Response(f"{problem}\n", 404, media_type="text/plain")
    return entered.dashboard.streams.respond(_progress(entered, job), _LASTS_S)


async def _progress(visit: Visit, job: Job) -> AsyncIterator[str]:
    template = visit.dashboard.templates.get_template("dead_progress.html")
    while True:
        yield data(template.render(job=job))
        if not job.is_running:
            break
        await asyncio.sleep(_DRAW_INTERVAL_S)
    yield named("done", job.state.replace("\n", " "))


async def export(request: Request) -> Response:
    """All that match, as lines of JSON."""
    dashboard = dashboard_of(request)
    entered = await enter(dashboard, request, is_told=False)
    if isinstance(entered, Response):
        return entered
    if dashboard.config.hides_bodies:
        return Response("bodies are hidden here\n", 403, media_type="text/plain")
    visit = entered
    wanted = filter_of({name: visit.asked(name) for name in FIELDS}, visit.now_ms)

    async def lines() -> AsyncIterator[bytes]:
        async for letter in visit.admin.dead_letters(visit.named("group"), wanted):
            yield (json_text(as_row(letter)) + "\n").encode()

    headers = {"Content-Disposition": 'attachment; filename="dead-letters.jsonl"'}
    return StreamingResponse(lines(), media_type="application/octet-stream", headers=headers)


PAGES = [
    Page("/dead", "Dead letters", load_list, refresh_s=15),
    Page("/dead/{group:path}/jobs/{job}", "Resending", load_job),
    Page("/dead/{group:path}", "Dead letters of {group}", load_group),
]
ACTIONS = [
    Action("/dead/{group:path}/dry", try_dry),
    Action("/dead/{group:path}/resend", resend),
    Action("/dead/{group:path}/jobs/{job}/stop", stop),
]
ROUTES = [
    Route("/dead-jobs/{group:path}/{job}", events, methods=["GET"]),
    Route("/dead-export/{group:path}", export, methods=["GET"]),
]
