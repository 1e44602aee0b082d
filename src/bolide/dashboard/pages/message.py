"""`/messages/{id}`: one message, who consumed it, its trace, and its bytes."""

import json
from dataclasses import asdict, dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bolide.admin.calls import gathered
from bolide.admin.searching import SearchLimits, Wanted, search
from bolide.admin.traces import MessageTrace
from bolide.admin.walking import TOOLS_GROUP
from bolide.dashboard.page import Action, Answer, Form, Page, Visit, dashboard_of, enter
from bolide.dashboard.pages.finding import find
from bolide.dashboard.pages.messages import shown_cells
from bolide.dashboard.shown import counted
from bolide.errors import BolideError
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.topics import TIMER_TOPIC, TRACE_TOPIC, dead_letter_topic, retry_topic
from bolide.protocol.ids import RecallHandle, encode_recall_handle

SHOWN_SIZE = 256 << 10
GROUPS_MAX = 50
_TRACE_SPAN_MS = 60_000
_STEP_WIDTH_MIN = 8  # of 1000: what took no time is seen all the same
_MEANINGS = {
    names.KEYS: "the keys it is found by, a space between two",
    names.TAGS: "the tag that consumers filter by",
    names.SHARDING_KEY: "messages with the same one keep their order",
    names.UNIQUE_KEY: "the id its producer gave",
    names.WAIT: "whether the sender waited until it was on disk",
    names.DELAY: "the level of its delay",
    names.PRODUCER_GROUP: "the group of its producer",
    names.REAL_TOPIC: "the topic it is for",
    names.REAL_QUEUE_ID: "the queue it is for",
    names.RETRY_TOPIC: "the topic it failed in",
    names.ORIGIN_MESSAGE_ID: "the broker's id of the first copy",
    names.DEAD_LETTER_ORIGIN_TOPIC: "the topic it was sent to",
    names.DEAD_LETTER_REASON: "why its consumer gave it up",
    names.CLUSTER: "the cluster it was sent to",
    names.REGION: "the region of its broker",
    names.TRACE_ON: "whether its broker allows traces",
    names.TIMER_DELIVER_AT: "when it is to be delivered",
}


_COPIED = (names.KEYS, names.UNIQUE_KEY, names.ORIGIN_MESSAGE_ID, names.SHARDING_KEY)


@dataclass(frozen=True, slots=True)
class Body:
    """A body for the eye: how it is shown, and whether it was cut."""

    view: str
    views: tuple[str, ...]
    text: str
    tree: object
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Consumption:
    """One group and this message."""

    group: str
    verdict: str
    detail: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One step on the common axis; places are of 1000."""

    what: str
    group: str
    client: str
    status: str
    at_ms: int
    cost_ms: int | None
    attempt: int | None
    left: int
    width: int


@dataclass(frozen=True, slots=True)
class MessageView:
    """The page."""

    message: StoredMessage
    broker: str
    tab: str
    body: Body | None
    own: list[tuple[str, str]]
    theirs: list[tuple[str, str, str]]
    consumptions: list[Consumption] | None = None
    trace: list[TraceRow] | None = None
    untraced: str = ""
    raw: str = ""
    copies: int = 1
    send_again: str = ""
    download: str = ""
    online: list[tuple[str, str]] = field(default_factory=list)  # group and client that may be given it by hand
    recall_handle: str = ""  # of a timed message that waits
    copied: tuple[str, ...] = _COPIED  # properties that are ids or keys


async def load(visit: Visit) -> Answer:
    found, broker = await find(visit, visit.named("id"))
    message, tab = found[0], visit.asked("tab", "message")
    hides = visit.config.hides_bodies
    reserved = [name for name in message.properties if name in names.RESERVED_NAMES]
    own = sorted((name, value) for name, value in message.properties.items() if name not in names.RESERVED_NAMES)
    place = {"topic": message.topic} | {key: visit.asked(key) for key in ("queue", "offset") if visit.asked(key)}
    consumptions = trace = None
    traces: list[MessageTrace] = []
    untraced = ""
    online: list[tuple[str, str]] = []
    if tab == "consumption":
        consumptions, online = await _consumptions(visit, message, broker)
    elif tab == "trace":
        traces, untraced = await _traces(visit, message)
        trace = rows_of(traces[0]) if traces else []
    view = MessageView(
        message=message,
        broker=broker,
        tab=tab,
        body=None if hides else body_of(message.body, visit.asked("view")),
        own=own,
        theirs=[(name, message.properties[name], _MEANINGS.get(name, "")) for name in sorted(reserved)],
        consumptions=consumptions,
        trace=trace,
        untraced=untraced,
        raw=json.dumps(shown_cells(message, hides), indent=2, ensure_ascii=False, default=str) if tab == "raw" else "",
        copies=len(found),
        send_again=f"/send?{urlencode({'from': message.message_id, **place})}",
        download=f"/body/{visit.named('id')}?{urlencode(place)}",
        online=online,
        recall_handle=_recall_handle(message, broker, visit.now_ms),
    )
    rows: object = [asdict(each) for each in traces] if tab == "trace" else [shown_cells(each, hides) for each in found]
    return Answer("message.html", view, rows, title=message.message_id)


def body_of(body: bytes, wanted: str) -> Body:
    """How a body is best shown, judged by its bytes, unless somebody chose."""
    cut = body[:SHOWN_SIZE]
    is_text = _is_text(cut)
    tree: object = None
    if is_text and len(body) <= SHOWN_SIZE and body.lstrip()[:1] in (b"{", b"["):
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            tree = None
    views = (*(("json",) if tree is not None else ()), "text", "hex")
    view = wanted if wanted in views else views[0] if tree is not None or is_text else "hex"
    text = (
        _hex(cut)
        if view == "hex"
        else json.dumps(tree, indent=2, ensure_ascii=False)
        if view == "json"
        else cut.decode("utf-8", "backslashreplace")
    )
    return Body(view, views, text, tree, len(body), len(body) > SHOWN_SIZE)


def _is_text(body: bytes) -> bool:
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        if problem.start < len(body) - 4:
            return False
        text = body[: problem.start].decode()
    return sum(not (each.isprintable() or each in "\r\n\t") for each in text) <= len(text) // 20


def _hex(body: bytes) -> str:
    lines = []
    for at in range(0, len(body), 16):
        row = body[at : at + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


async def _consumptions(
    visit: Visit, message: StoredMessage, broker: str
) -> tuple[list[Consumption], list[tuple[str, str]]]:
    """What each group of the topic made of it, as far as brokers know."""
    admin = visit.admin
    groups = (await admin.topic_groups(message.topic))[:GROUPS_MAX]
    progress = await gathered({group: admin.group_progress(group) for group in groups})
    members = await gathered({group: admin.members(group) for group in groups})
    configs = visit.desk.walk.snapshot.configs
    retried = await gathered(
        {g: admin.messages_by_id(retry_topic(g), message.message_id) for g in groups if retry_topic(g) in configs}
    )
    died = await gathered(
        {
            g: admin.messages_by_id(dead_letter_topic(g), message.message_id)
            for g in groups
            if dead_letter_topic(g) in configs
        }
    )
    online = [
        (group, each.client_id)
        for group, found in members.items()
        if found is not None and not isinstance(found, BolideError | TimeoutError)
        for each in found.connection_set
    ]
    told = [
        _consumption(group, progress[group], message, broker, retried.get(group), died.get(group)) for group in groups
    ]
    return told, online


def _consumption(
    group: str, rows: object, message: StoredMessage, broker: str, retried: object, died: object
) -> Consumption:
    if isinstance(died, list) and died:
        reason = died[-1].properties.get(names.DEAD_LETTER_REASON, "")
        return Consumption(group, "dead", f"given up after {died[-1].reconsume_times} tries {reason}", True)
    if not isinstance(rows, list):
        return Consumption(group, "not known", str(rows), True)
    here = [
        row
        for row in rows
        if row.queue.topic == message.topic
        and row.queue.queue_id == message.queue_id
        and broker in ("", row.queue.broker_name)
    ]
    if isinstance(retried, list) and retried:
        return Consumption(group, "retried", f"sent back {len(retried)} times")
    if len(here) != 1:
        return Consumption(group, "not known", "several brokers have this queue; open the message from a list")
    distance = here[0].consumer_offset - message.queue_offset
    if distance > 0:
        return Consumption(group, "passed", f"the group is {distance} after it")
    return Consumption(group, "not yet", f"{counted(-distance, 'message')} before it")


def _recall_handle(message: StoredMessage, broker: str, now_ms: int) -> str:
    """What takes a timed message back that waits in the timer's topic; the broker keeps it a moment before its time."""
    properties = message.properties
    topic, out_ms = properties.get(names.REAL_TOPIC, ""), properties.get(names.TIMER_OUT_AT, "")
    if message.topic != TIMER_TOPIC or not (broker and topic and out_ms.isdigit()) or int(out_ms) <= now_ms:
        return ""
    return encode_recall_handle(RecallHandle(topic, broker, int(out_ms) + 1, message.message_id))


async def _traces(visit: Visit, message: StoredMessage) -> tuple[list[MessageTrace], str]:
    """What was told of it; or why nothing was."""
    if TRACE_TOPIC not in await visit.admin.topics(with_system=True):
        return [], f"The trace topic {TRACE_TOPIC} is missing: no broker has it, so nobody can tell of this message."
    found = await visit.admin.trace(message.message_id)
    if found:
        return found, ""
    around = Wanted(
        topic=TRACE_TOPIC,
        begin_ms=message.born_at - _TRACE_SPAN_MS,
        end_ms=message.born_at + _TRACE_SPAN_MS,
        holds=lambda record: record.born_host.ip == message.born_host.ip,
    )
    async with visit.dashboard.searches, visit.admin.puller(TOOLS_GROUP) as consumer:
        others = await search(consumer, around, 1, SearchLimits(time_s=3.0, record_count=5_000), visit.dashboard.clock)
    if others.found:
        return (
            [],
            "No record of this message was found, though its host told of others then; it may have expired.",
        )
    return (
        [],
        f"Tracing is off for this producer: {message.born_host.ip} told nothing around then. Make it with trace=True.",
    )


def rows_of(trace: MessageTrace) -> list[TraceRow]:
    """Each step with its place between the first and the last."""
    begin = min(step.at_ms for step in trace.steps)
    end = max(step.at_ms + (step.cost_ms or 0) for step in trace.steps)
    whole = max(end - begin, 1)
    widths = {step: max((step.cost_ms or 0) * 1000 // whole, _STEP_WIDTH_MIN) for step in trace.steps}
    return [
        TraceRow(
            step.what,
            step.group,
            step.client,
            step.status,
            step.at_ms,
            step.cost_ms,
            step.attempt,
            min((step.at_ms - begin) * 1000 // whole, 1000 - widths[step]),  # a short last step is seen too
            widths[step],
        )
        for step in sorted(trace.steps, key=lambda step: (step.what != "sent", step.at_ms))
    ]


async def give(visit: Visit, form: Form) -> Answer:
    """Have one member consume the message now (309), and tell how it went."""
    group, _, client = form.text("member").partition("\n")
    told = await visit.admin.consume_directly(group.strip(), client.strip(), form.text("topic"), visit.named("id"))
    result = f"{told.consume_result or 'no result'} in {told.spent_time_mills} ms {told.remark or ''}"
    visit.note("consume directly", visit.named("id"), after=f"{group.strip()} {client.strip()}", result=result)
    return Answer("told.html", ("Given by hand", result), {"result": result}, title="Given by hand")


async def download(request: Request) -> Response:
    """The whole body, as bytes to keep."""
    dashboard = dashboard_of(request)
    entered = await enter(dashboard, request, is_told=False)
    if isinstance(entered, Response):
        return entered
    if dashboard.config.hides_bodies:
        return Response("bodies are hidden here\n", 403, media_type="text/plain")
    try:
        found, _ = await find(entered, entered.named("id"))
    except BolideError as problem:
        return Response(f"{problem}\n", 404, media_type="text/plain")
    headers = {"Content-Disposition": 'attachment; filename="message.bin"'}
    return Response(found[0].body, media_type="application/octet-stream", headers=headers)


PAGES = [Page("/messages/{id:path}", "Message", load)]
ACTIONS = [Action("/messages/{id:path}/give", give)]
ROUTES = [Route("/body/{id:path}", download, methods=["GET"])]
