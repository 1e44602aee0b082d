"""Creating, changing and deleting topics: what will happen is shown before it is done."""

from dataclasses import dataclass
from urllib.parse import quote

from bolide.admin.admin import Admin
from bolide.admin.topics import TopicShape, shape_consequences
from bolide.dashboard.page import Action, Answer, Form, Page, Visit
from bolide.errors import ClientError
from bolide.model.names import topic_problem

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
PERMISSIONS = {6: "read and write", 4: "read only", 2: "write only"}


@dataclass(frozen=True, slots=True)
class CreateView:
    """The form of a new topic."""

    kinds: tuple[str, ...]
    permissions: dict[int, str]
    brokers: list[str]


async def load_create(visit: Visit) -> Answer:
    brokers = [look.row.name for look in visit.desk.walk.snapshot.brokers if not look.row.broker_id]
    return Answer("topic_create.html", CreateView(KINDS, PERMISSIONS, brokers), {"types": KINDS})


@dataclass(frozen=True, slots=True)
class NameView:
    """What is wrong with a name, if anything is."""

    name: str
    problem: str


async def load_check(visit: Visit) -> Answer:
    name = visit.asked("name")
    problem = topic_problem(name) if name else ""
    if name and not problem and name in visit.desk.walk.snapshot.configs:
        problem = f"topic {name} is there already"
    return Answer("topic_name.html", NameView(name, problem or ""), {"name": name, "problem": problem})


async def create(visit: Visit, form: Form) -> str:
    topic, queues = form.text("name").strip(), form.number("queues") or 8
    kind, permission = form.text("type"), form.number("permission")
    if permission not in PERMISSIONS:
        raise ClientError("choose what may be done with the topic")
    broker = form.text("broker") or None
    await visit.admin.create_topic(
        topic, queues, permission=permission, broker=broker, message_type=kind if kind in KINDS[1:] else None
    )
    where = f" on {broker}" if broker else ""
    visit.note("create topic", topic, after=f"{TopicShape(queues, queues, permission)}{where}")
    return f"/topics/{quote(topic, safe='')}"


@dataclass(frozen=True, slots=True)
class EditView:
    """A topic as it is and as it would be."""

    topic: str
    before: dict[str, TopicShape]
    write_count: int
    read_count: int
    permission: int
    permissions: dict[int, str]
    consequences: list[str]
    is_preview: bool


async def load_edit(visit: Visit) -> Answer:
    topic = visit.named("topic")
    before = await _shapes(visit.admin, topic)
    first = next(iter(before.values()))
    write = visit.number("queues", first.write_queue_count, 1 << 16)
    read = visit.number("read", first.read_queue_count, 1 << 16)
    permission = visit.number("permission", first.permission)
    is_preview = bool(visit.asked("queues"))
    consequences = await shape_consequences(visit.admin, topic, write, read) if is_preview else []
    view = EditView(topic, before, write, read, permission, PERMISSIONS, consequences, is_preview)
    return Answer("topic_edit.html", view, {"topic": topic, "consequences": consequences})


async def edit(visit: Visit, form: Form) -> str:
    topic = visit.named("topic")
    before = await _shapes(visit.admin, topic)
    write, read, permission = form.number("queues"), form.number("read"), form.number("permission")
    if not write or not read or permission not in PERMISSIONS:
        raise ClientError("give the numbers of queues and what may be done")
    after = await visit.admin.set_topic(topic, queue_count=write, read_queue_count=read, permission=permission)
    visit.note("change topic", topic, before=_said(before), after=_said(after))
    return f"/topics/{quote(topic, safe='')}"


async def _shapes(admin: Admin, topic: str) -> dict[str, TopicShape]:
    shapes = await admin.topic_shapes(topic)
    if not shapes:
        await admin.route(topic)  # raises, and says which there are
    return shapes


def _said(shapes: dict[str, TopicShape]) -> str:
    return "; ".join(f"{name}: {shape}" for name, shape in shapes.items())


@dataclass(frozen=True, slots=True)
class DeleteView:
    """What goes with a topic."""

    topic: str
    kept: int
    groups: list[tuple[str, int | None]]


async def load_delete(visit: Visit) -> Answer:
    topic = visit.named("topic")
    kept = sum(row.message_count for row in await visit.admin.topic_queues(topic))
    behind = visit.desk.walk.snapshot.behind_of
    groups = [(name, behind.get((name, topic))) for name in await visit.admin.topic_groups(topic)]
    rows = {"topic": topic, "messages": kept, "groups": [name for name, _ in groups]}
    return Answer("topic_delete.html", DeleteView(topic, kept, groups), rows)


async def delete(visit: Visit, form: Form) -> str:
    topic = visit.named("topic")
    if form.text("typed") != topic:
        raise ClientError(f"nothing was deleted: the name that was typed is not {topic}")
    before = await visit.admin.topic_shapes(topic)
    await visit.admin.delete_topic(topic)
    visit.note("delete topic", topic, before=_said(before))
    return "/topics"


PAGES = [
    Page("/topics/create", "Create a topic", load_create),
    Page("/topics/check", "Is a name free?", load_check),
    Page("/topics/{topic:path}/edit", "Change {topic}", load_edit),
    Page("/topics/{topic:path}/delete", "Delete {topic}", load_delete),
]
ACTIONS = [
    Action("/topics/create", create),
    Action("/topics/{topic:path}/edit", edit),
    Action("/topics/{topic:path}/delete", delete),
]
