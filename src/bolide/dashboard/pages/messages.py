"""`/messages`: one form for all that messages are found by, and what the search did is said."""

from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import quote, urlencode

from bolide.admin.rows import message_cells
from bolide.admin.searching import EVER_MS, Place, SearchLimits, SearchResult, Wanted, holding, search
from bolide.admin.walking import TOOLS_GROUP
from bolide.dashboard.asked import expression_of, time_ms
from bolide.dashboard.page import Answer, Page, Visit
from bolide.dashboard.pages.finding import find
from bolide.errors import BolideError, ClientError
from bolide.filter.sql import compile_sql
from bolide.filter.tags import parse_tags
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode

COUNT = 50
SHOWN_BODY = 120
KEYED_MAX = 200
_WIDER = (("-1h", "the last hour"), ("-6h", "six hours"), ("-1d", "a day"), ("-7d", "a week"), ("", "ever"))


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One message of a list."""

    message: StoredMessage
    place: str
    body: str
    address: str


@dataclass(frozen=True, slots=True)
class MessagesView:
    """The form, and what was found."""

    topic: str
    id: str
    key: str
    tag: str
    sql: str
    text: str
    begin: str
    end: str
    lines: list[MessageLine]
    is_asked: bool
    did: str
    older: str
    problem: str
    near: list[str]
    wider: list[tuple[str, str]]
    kept_ms: tuple[int, int] | None  # when the oldest and newest message were stored, where nothing was found
    topics: list[str]
    hides_bodies: bool


async def load(visit: Visit) -> Answer:
    topic, wanted = visit.asked("topic"), visit.asked("id")
    snapshot = await visit.seen()
    lines: list[MessageLine] = []
    did = older = problem = ""
    near: list[str] = []
    rows: object = []
    kept_ms = None
    if topic and topic not in snapshot.configs and not await visit.admin.topic_shapes(topic):
        near = get_close_matches(topic, await visit.admin.topics(), 5, 0.5)
        problem = f"There is no topic {topic}."
    elif topic or wanted:
        try:
            places, did, older = await _searched(visit, topic, wanted)
        except ClientError as absent:
            if absent.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            places, problem = [], f"There is no message {wanted}: {absent}"
        lines = [line_of(place, visit.config.hides_bodies) for place in places]
        rows = [shown_cells(place.message, visit.config.hides_bodies) for place in places]
        kept_ms = await _kept_ms(visit, topic) if topic and not places else None
    view = MessagesView(
        topic=topic,
        id=wanted,
        key=visit.asked("key"),
        tag=visit.asked("tag"),
        sql=visit.asked("sql"),
        text=visit.asked("text"),
        begin=visit.asked("from", "-1h"),
        end=visit.asked("to"),
        lines=lines,
        is_asked=bool(topic or wanted),
        did=did,
        older=older,
        problem=problem,
        near=near,
        wider=[(visit.address_with(**{"from": text or "0", "before": ""}), words) for text, words in _WIDER],
        kept_ms=kept_ms,
        topics=sorted(snapshot.topic_names)[:2000],
        hides_bodies=visit.config.hides_bodies,
    )
    return Answer("messages.html", view, rows)


async def _kept_ms(visit: Visit, topic: str) -> tuple[int, int] | None:
    """When the oldest and the newest message of a topic were stored; None of an empty one, and where nobody says."""
    try:
        spans = list((await visit.admin.time_spans(TOOLS_GROUP, topic)).values())
    except BolideError:
        return None
    oldest = min((span.min_time_stamp for span in spans if span.min_time_stamp > 0), default=0)
    newest = max((span.max_time_stamp for span in spans), default=0)
    return (oldest, newest) if 0 < oldest <= newest else None


def shown_cells(message: StoredMessage, hides_bodies: bool) -> dict[str, object]:
    """The row of a message, without what is in it where that is hidden."""
    cells = message_cells(message)
    return cells | {"body": None} if hides_bodies else cells


def _times(visit: Visit) -> tuple[int, int]:
    now_ms = visit.now_ms
    begin = time_ms(visit.asked("from", "-1h"), now_ms, 0)
    return begin, time_ms(visit.asked("to"), now_ms, EVER_MS)


async def _searched(visit: Visit, topic: str, wanted: str) -> tuple[list[Place], str, str]:
    """What was found, what was done for it, and where older ones are."""
    if wanted:
        return await _by_id(visit, wanted)
    return await (_by_key(visit, topic) if visit.asked("key") else _by_time(visit, topic))


async def _by_id(visit: Visit, wanted: str) -> tuple[list[Place], str, str]:
    """One message by its id, whenever it was stored; then all other fields."""
    found, _ = await find(visit, wanted)
    key = visit.asked("key")
    places = [_placed(message) for message in _fitting(visit, found) if not key or key in message.keys]
    return places, f"by id, at any time: {len(found):,} with this id, {len(places):,} shown", ""


async def _by_key(visit: Visit, topic: str) -> tuple[list[Place], str, str]:
    """The broker's index by key, then all other fields."""
    begin, end = _times(visit)
    found = await visit.admin.messages_by_key(
        topic, visit.asked("key"), count_max=KEYED_MAX, begin_ms=begin, end_ms=end
    )
    places = [_placed(message) for message in _fitting(visit, found[::-1])]
    did = f"the index of keys {_said(begin, end)}: {len(found):,} with this key, {len(places):,} shown"
    if len(found) >= KEYED_MAX:
        did += f"; the index gives {KEYED_MAX} at most, so narrow the time for older ones"
    return places, did, ""


def _placed(message: StoredMessage) -> Place:
    return Place(MessageQueue(message.topic, "", message.queue_id), message)


def _fitting(visit: Visit, messages: list[StoredMessage]) -> list[StoredMessage]:
    """Those that fit the tags or the SQL, and the text: what a broker filters by in a search by time."""
    tag, sql, text = visit.asked("tag"), visit.asked("sql"), visit.asked("text")
    expression_of(tag, sql)  # not both
    try:
        tags, predicate = parse_tags(tag), compile_sql(sql) if sql else None
    except ValueError as problem:
        raise ClientError(str(problem)) from problem
    holds = holding(text) if text else None
    return [
        message
        for message in messages
        if (tags is None or message.tags in tags)
        and (predicate is None or predicate.matches(message.properties))
        and (holds is None or holds(message))
    ]


async def _by_time(visit: Visit, topic: str) -> tuple[list[Place], str, str]:
    begin, end = _times(visit)
    text = visit.asked("text")
    wanted = Wanted(
        topic=topic,
        begin_ms=begin,
        end_ms=end,
        expression=expression_of(visit.asked("tag"), visit.asked("sql")),
        holds=holding(text) if text else lambda _: True,
    )
    async with visit.dashboard.searches, visit.admin.puller(TOOLS_GROUP) as consumer:
        cursor = parse_cursor(topic, visit.asked("before"))
        result = await search(consumer, wanted, COUNT, SearchLimits(), visit.dashboard.clock, cursor)
    before = cursor_text(result) if result.stopped_by else ""
    return result.found, _did(result, begin, end), visit.address_with(before=before) if before else ""


def _did(result: SearchResult, begin: int, end: int) -> str:
    why = {
        "": "that is all there is",
        "count": "more there",
        "time": "stopped after 10 s, more may be there",
        "records": "stopped after 200,000 messages, more may be there",
        "size": "stopped after 256 MiB, more may be there",
    }[result.stopped_by]
    queues = f"all {result.queue_count} queues" if result.queue_count != 1 else "the one queue"
    return f"{queues} {_said(begin, end)}: {result.read_count:,} read, {len(result.found):,} shown, {why}"


def _said(begin: int, end: int) -> str:
    from bolide.dashboard.shown import clock

    since = f"from {clock(begin)}" if begin > 0 else "from the oldest"
    return f"{since} to {clock(end)}" if end < EVER_MS else f"{since} to now"


def cursor_text(result: SearchResult) -> str:
    """Where the next search goes on, as a field of an address."""
    return ",".join(f"{queue.broker_name}:{queue.queue_id}:{offset}" for queue, offset in result.cursor.items())


def parse_cursor(topic: str, text: str) -> dict[MessageQueue, int] | None:
    """The same, read back; what is not understood is read from its end."""
    found = {}
    for part in text.split(",") if text else ():
        name, _, rest = part.rpartition(":")
        name, _, number = name.rpartition(":")
        if name and number.isdigit() and rest.isdigit() and len(number) < 9 and len(rest) < 19:
            found[MessageQueue(topic, name, int(number))] = int(rest)
    return found or None


def line_of(place: Place, hides_bodies: bool) -> MessageLine:
    """A message as a line of a list."""
    message = place.message
    body = "" if hides_bodies else message.body[: SHOWN_BODY * 4].decode("utf-8", "backslashreplace")[:SHOWN_BODY]
    fields = {"topic": message.topic}
    if place.queue.broker_name:
        fields |= {"queue": f"{place.queue.broker_name}:{message.queue_id}", "offset": str(message.queue_offset)}
    address = f"/messages/{quote(message.message_id, safe='')}?{urlencode(fields)}"
    where = f"{place.queue.broker_name}:" if place.queue.broker_name else ""
    return MessageLine(message, f"{where}{message.queue_id}@{message.queue_offset}", body, address)


PAGES = [Page("/messages", "Messages", load)]
