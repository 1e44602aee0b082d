"""`/groups` and `/groups/{g}`: who consumes, how far they are behind, and what differs between members."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from bolide.admin.admin import GroupRow, ProgressRow
from bolide.admin.calls import gathered
from bolide.admin.membership import MemberRow
from bolide.admin.reach import SilentBroker
from bolide.admin.rows import config_cells, group_cells, member_cells, progress_cells
from bolide.dashboard.history import SPANS_S, Trend
from bolide.dashboard.page import Action, Answer, Form, Page, Problem, Visit, problem_of
from bolide.dashboard.paging import Slice, sliced
from bolide.dashboard.walk import GroupLook, Walk
from bolide.errors import ClientError
from bolide.model.names import group_problem
from bolide.model.queue import MessageQueue
from bolide.model.topics import dead_letter_topic
from bolide.protocol.bodies import ConsumerConnections, GroupConfig, QueueTimeSpan
from bolide.protocol.bodies.clients import ConsumeType, MessageModel
from bolide.protocol.codes import ResponseCode

_KINDS = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_FAR_BEHIND = 10  # times as much as its mates
_FAR_BEHIND_MIN = 100


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group of the list. None is what is not known; a broadcasting group keeps its offsets at its members."""

    row: GroupRow
    lag_ms: int | None
    out_rate: float | None
    dead_count: int | None
    kind: str
    is_broadcast: bool
    trend: Trend
    problem: str = ""

    @property
    def is_online(self) -> bool:
        return self.row.member_count > 0


@dataclass(frozen=True, slots=True)
class GroupsView:
    """The list."""

    lines: list[GroupLine]
    slice: Slice
    wanted: str
    order: str
    silent: tuple[SilentBroker, ...]
    problem: str
    seen_ms: int


async def load_list(visit: Visit) -> Answer:
    snapshot = await visit.seen()
    wanted, order = visit.asked("q"), visit.asked("order", "worst")
    matching = [group for group in snapshot.groups.values() if wanted.lower() in group.group.lower()]
    part = sliced(visit, ordered(matching, order))
    lines = await lines_of(visit, [group.group for group in part.items])
    view = GroupsView(lines, part, wanted, order, snapshot.silent, snapshot.problem, snapshot.at_ms)
    return Answer("groups.html", view, [group_cells(line.row) for line in lines])


def ordered(groups: Iterable[GroupLook], order: str) -> list[GroupLook]:
    """In the order that was asked for; the worst first where none was."""
    if order == "name":
        return sorted(groups, key=lambda group: group.group)
    if order == "behind":
        return sorted(groups, key=lambda group: (-group.behind, group.group))
    return worst_first(groups)


def worst_first(groups: Iterable[GroupLook]) -> list[GroupLook]:
    """By how long messages wait, then by how many."""
    return sorted(groups, key=lambda group: (-(group.lag_ms or 0), -group.behind, group.group))


async def lines_of(visit: Visit, names: list[str]) -> list[GroupLine]:
    """The details of some groups: what the walk knows, and who is in them."""
    walk, snapshot = visit.desk.walk, visit.desk.walk.snapshot
    members = await gathered({name: visit.admin.members(name) for name in names})
    lines = []
    for name in names:
        look, found = snapshot.groups[name], members[name]
        online = found if isinstance(found, ConsumerConnections) else None
        dead = dead_count(walk, name)
        is_broadcast = online is not None and online.message_model is MessageModel.BROADCASTING
        row = GroupRow(
            group=name,
            member_count=0 if online is None else len(online.connection_set),
            behind=look.behind,
            has_conflict=online is not None and bool(online.bolide_conflicts),
            retry_behind=look.retry_behind,
            dead_count=dead or 0,
        )
        kind = "" if online is None else "broadcasting" if is_broadcast else _KINDS[online.consume_type]
        problem = str(found) if isinstance(found, BaseException) else ""
        trend = visit.desk.history.trend("group", name, visit.now_ms / 1000)
        lines.append(GroupLine(row, look.lag_ms, look.out_rate, dead, kind, is_broadcast, trend, problem))
    return lines


def dead_count(walk: Walk, group: str) -> int | None:
    """How many letters a group gave up; None where that was not looked at yet, and 0 where it has no topic for them."""
    topic = dead_letter_topic(group)
    if topic in walk.topics:
        return walk.topics[topic].kept
    return None if topic in walk.snapshot.configs else 0


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue of a group."""

    row: ProgressRow
    waits_ms: int | None
    owner: str
    is_far_behind: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group; a part that could not be asked is None, and `problems` says why."""

    group: str
    queues: list[QueueLine] | None
    members: list[MemberRow] | None
    config: GroupConfig | None
    delays: str
    topics: list[str]
    behind: int
    dead_count: int | None
    is_broadcast: bool
    span: str
    spans: tuple[str, ...]
    is_cloned: bool
    problems: dict[str, Problem]
    silent: tuple[SilentBroker, ...]

    @property
    def has_conflict(self) -> bool:
        return any(member.differences for member in self.members or ())


async def load_group(visit: Visit) -> Answer:
    group, admin, walk = visit.named("group"), visit.admin, visit.desk.walk
    found = await gathered(
        {
            "progress": admin.group_progress(group),
            "members": admin.member_rows(group),
            "settings": admin.group_config(group),
            "connections": admin.members(group),
        }
    )
    settings, progress, members = found["settings"], found["progress"], found["members"]
    if (
        isinstance(settings, ClientError)
        and settings.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        and not progress
    ):
        raise settings
    if all(isinstance(each, BaseException) for each in found.values()):
        raise settings if isinstance(settings, BaseException) else ClientError("nothing is known of the group")
    rows = progress if isinstance(progress, list) else []
    online = found["connections"]
    view = GroupView(
        group=group,
        queues=await _queue_lines(visit, group, rows, members) if isinstance(progress, list) else None,
        members=members if isinstance(members, list) else None,
        config=settings if isinstance(settings, GroupConfig) else None,
        delays=str(config_cells(settings)["delays"]) if isinstance(settings, GroupConfig) else "",
        topics=sorted({row.queue.topic for row in rows}),
        behind=sum(row.behind for row in rows),
        dead_count=dead_count(walk, group),
        is_broadcast=isinstance(online, ConsumerConnections) and online.message_model is MessageModel.BROADCASTING,
        span=visit.asked("span") if visit.asked("span") in SPANS_S else "1h",
        spans=tuple(SPANS_S),
        is_cloned=visit.asked("cloned") == "1",
        problems={part: problem_of(each) for part, each in found.items() if isinstance(each, BaseException)},
        silent=tuple(admin.silent.values()),
    )
    told = {
        "progress": [progress_cells(row) for row in rows],
        "members": [member_cells(row) for row in view.members or ()],
        "settings": config_cells(view.config) if view.config is not None else None,
    }
    return Answer("group.html", view, told, title=group)


async def _queue_lines(visit: Visit, group: str, rows: list[ProgressRow], members: object) -> list[QueueLine]:
    topics = sorted({row.queue.topic for row in rows if row.behind > 0})
    spans = await gathered({topic: visit.admin.time_spans(group, topic) for topic in topics[:64]})
    waits: dict[MessageQueue, QueueTimeSpan] = {}
    for told in spans.values():
        waits |= told if isinstance(told, dict) else {}
    owners = (
        {queue: member.client_id for member in members or () for queue in member.queues}
        if isinstance(members, list)
        else {}
    )
    usual = {topic: median(row.behind for row in rows if row.queue.topic == topic) for topic in topics}
    lines = []
    for row in rows:
        span = waits.get(row.queue)
        waits_ms = span.delay_time if span is not None and row.behind > 0 else 0 if row.behind <= 0 else None
        far = max(_FAR_BEHIND_MIN, _FAR_BEHIND * usual.get(row.queue.topic, 0))
        lines.append(QueueLine(row, waits_ms, owners.get(row.queue, ""), row.behind > far))
    return lines


async def clone(visit: Visit, form: Form) -> str:
    """Let another group be where this one is."""
    source, destination = visit.named("group"), form.text("to").strip()
    if (problem := group_problem(destination)) is not None:
        raise ClientError(problem)
    if source == destination:
        raise ClientError("a group is where it is: name another one")
    await visit.admin.clone_group(source, destination)
    visit.note("clone group", source, after=destination)
    return f"/groups/{quote(destination, safe='')}?cloned=1"


PAGES = [
    Page("/groups", "Groups", load_list, refresh_s=15),
    Page("/groups/{group:path}", "{group}", load_group, refresh_s=5),
]
ACTIONS = [Action("/groups/{group:path}/clone", clone)]
