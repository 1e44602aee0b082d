"""`/groups/{g}/reset`: where a group would go on, queue by queue, before it does."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from bolide.admin.backtracking import Move, Target
from bolide.admin.rows import move_cells
from bolide.admin.walking import LATEST_MS
from bolide.dashboard.asked import time_ms
from bolide.dashboard.page import Action, Answer, Form, Page, Visit
from bolide.dashboard.shown import counted, span
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue

CHOICES = {"earliest": "the oldest message", "latest": "the newest: skip all", "time": "a time", "offset": "an offset"}


@dataclass(frozen=True, slots=True)
class MoveLine:
    """One queue: what comes again, what is passed over."""

    move: Move

    @property
    def again(self) -> int:
        return max(0, -self.move.distance)

    @property
    def skipped(self) -> int:
        return max(0, self.move.distance)


@dataclass(frozen=True, slots=True)
class ResetView:
    """The form, the preview, or what is there after it was done."""

    group: str
    topic: str
    to: str
    at: str
    offset: str
    queue: str
    topics: list[str]
    queues: list[str]
    choices: dict[str, str]
    lines: list[MoveLine] | None
    words: str
    members: list[str]
    is_done: bool


async def load(visit: Visit) -> Answer:
    group, topic = visit.named("group"), visit.asked("topic")
    progress = await visit.admin.group_progress(group)
    topics = sorted({row.queue.topic for row in progress})
    if not topics:
        await visit.admin.group_config(group)  # says that there is no such group, where there is none
    to = visit.asked("to")
    lines = None
    words = ""
    members = await visit.admin.members(group)
    online = [] if members is None else [each.client_id for each in members.connection_set]
    if topic and to in CHOICES:
        target = _target(topic, to, visit.asked("at"), visit.asked("offset"), visit.asked("queue"), visit.now_ms)
        plan = await visit.admin.plan_reset(group, topic, target.time_ms, offset=target.offset, queue=target.queue)
        lines = [MoveLine(move) for move in plan]
        words = _words(lines, visit, target, len(online))
    view = ResetView(
        group=group,
        topic=topic or (topics[0] if len(topics) == 1 else ""),
        to=to,
        at=visit.asked("at"),
        offset=visit.asked("offset"),
        queue=visit.asked("queue"),
        topics=topics,
        queues=[f"{row.queue.broker_name}:{row.queue.queue_id}" for row in progress if row.queue.topic == topic],
        choices=CHOICES,
        lines=lines,
        words=words,
        members=online,
        is_done=visit.asked("done") == "1",
    )
    return Answer("reset.html", view, [move_cells(line.move) for line in lines or ()], title=f"Reset {group}")


def _words(lines: list[MoveLine], visit: Visit, target: Target, member_count: int) -> str:
    again, skipped = sum(line.again for line in lines), sum(line.skipped for line in lines)
    parts = []
    if again:
        since = f" of the last {span(visit.now_ms - target.time_ms)}" if target.time_ms > 0 else ""
        who = f"by {counted(member_count, 'member')}" if member_count else "as soon as a member comes"
        parts.append(f"{counted(again, 'message')}{since} will be consumed again {who}")
    if skipped:
        parts.append(f"{counted(skipped, 'message')} will be skipped")
    return ("; ".join(parts) or "nothing moves: the group is there already") + "."


def _target(topic: str, to: str, at: str, offset: str, queue: str, now_ms: int) -> Target:
    broker, _, number_text = queue.rpartition(":")
    if queue and (not broker or not number_text.isdigit()):
        raise ClientError(f"{queue!r} is no queue; choose one of the list")
    chosen = MessageQueue(topic, broker, int(number_text)) if queue else None
    if to == "time":
        if not at:
            raise ClientError("give the time to go on at")
        return Target(time_ms(at, now_ms, 0), queue=chosen)
    if to == "offset":
        if not offset.isdigit() or len(offset) > 18:
            raise ClientError("give the offset to go on at, a number")
        return Target(offset=int(offset), queue=chosen)
    return Target(LATEST_MS if to == "latest" else 0, queue=chosen)


async def apply(visit: Visit, form: Form) -> str:
    """Do what the preview showed."""
    group, topic = visit.named("group"), form.text("topic")
    if form.text("typed") != group:
        raise ClientError(f"nothing was moved: the name that was typed is not {group}")
    fields = {name: form.text(name) for name in ("topic", "to", "at", "offset", "queue")}
    target = _target(topic, fields["to"], fields["at"], fields["offset"], fields["queue"], visit.now_ms)
    plan = await visit.admin.plan_reset(group, topic, target.time_ms, offset=target.offset, queue=target.queue)
    moved = await visit.admin.reset_group(group, topic, target.time_ms, offset=target.offset, queue=target.queue)
    before = ", ".join(f"{move.queue.broker_name}:{move.queue.queue_id}={move.before}" for move in plan)
    after = ", ".join(f"{queue.broker_name}:{queue.queue_id}={offset}" for queue, offset in sorted(moved.items()))
    visit.note("reset", f"{group} in {topic}", before=before, after=after)
    return f"/groups/{quote(group, safe='')}/reset?{urlencode({**fields, 'done': '1'})}"


PAGES = [Page("/groups/{group:path}/reset", "Reset {group}", load)]
ACTIONS = [Action("/groups/{group:path}/reset", apply)]
