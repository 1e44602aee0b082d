"""`/topics` and `/topics/{t}`: where topics are, what they hold, who reads them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bolide.admin.calls import gathered
from bolide.admin.reach import SilentBroker
from bolide.admin.rows import queue_cells
from bolide.admin.topics import TopicQueueRow
from bolide.admin.walking import TOOLS_GROUP
from bolide.dashboard.history import SPANS_S, Trend
from bolide.dashboard.page import Answer, Page, Problem, Visit, problem_of
from bolide.dashboard.paging import Slice, sliced
from bolide.dashboard.walk import Snapshot, TopicLook
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import QueueTimeSpan, TopicConfig

_STALE_MS = 20_000


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic of the list. None is what is not known."""

    topic: str
    write_count: int
    read_count: int
    broker_count: int
    permission: int
    look: TopicLook | None
    oldest_ms: int | None
    out_rate: float | None
    group_count: int
    worst_behind: int | None
    trend: Trend
    problem: str


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The list."""

    lines: list[TopicLine]
    slice: Slice
    wanted: str
    order: str
    has_all: bool
    silent: tuple[SilentBroker, ...]
    problem: str
    seen_ms: int


async def load_list(visit: Visit) -> Answer:
    walk = visit.desk.walk
    snapshot = await visit.seen()
    wanted, order, has_all = visit.asked("q"), visit.asked("order", "name"), visit.asked("all") == "1"
    names = snapshot.configs if has_all else snapshot.topic_names
    matching = [name for name in names if wanted.lower() in name.lower()]
    part = sliced(visit, _ordered(matching, order, walk.topics, snapshot))
    stale = [name for name in part.items if name not in walk.topics or _is_stale(walk.topics[name], visit.now_ms)]
    failed = await walk.look_at(stale)
    oldest = await walk.oldest_of(part.items)
    lines = [_line(visit, snapshot, name, failed.get(name, ""), oldest[name]) for name in part.items]
    view = TopicsView(lines, part, wanted, order, has_all, snapshot.silent, snapshot.problem, snapshot.at_ms)
    return Answer("topics.html", view, [{"topic": name} for name in part.items])


def _is_stale(look: TopicLook, now_ms: int) -> bool:
    return look.kept is None or now_ms - look.seen_ms > _STALE_MS


def _ordered(names: list[str], order: str, looks: Mapping[str, TopicLook], snapshot: Snapshot) -> list[str]:
    keys: dict[str, Callable[[str], float]] = {
        "in": lambda name: -((looks[name].in_rate or 0.0) if name in looks else 0.0),
        "kept": lambda name: -((looks[name].kept or 0) if name in looks else 0),
        "behind": lambda name: -(_worst(snapshot, name) or 0),
    }
    key: Callable[[str], float] = keys.get(order, lambda _: 0)
    return sorted(names, key=lambda name: (key(name), name))


def _worst(snapshot: Snapshot, topic: str) -> int | None:
    groups = snapshot.groups_of.get(topic, ())
    return max((snapshot.behind_of.get((group, topic), 0) for group in groups), default=None)


def _out_rate(snapshot: Snapshot, groups: Iterable[str]) -> float | None:
    """What groups consume a second; None where it is known of none."""
    rates = [snapshot.groups[group].out_rate for group in groups]
    known = [each for each in rates if each is not None]
    return sum(known) if known else None


def _line(visit: Visit, snapshot: Snapshot, name: str, problem: str, oldest_ms: int | None) -> TopicLine:
    configs = snapshot.configs.get(name, {})
    groups = snapshot.groups_of.get(name, ())
    return TopicLine(
        topic=name,
        write_count=sum(config.write_queue_nums for config in configs.values()),
        read_count=sum(config.read_queue_nums for config in configs.values()),
        broker_count=len(configs),
        permission=min((config.perm for config in configs.values()), default=0),
        look=visit.desk.walk.topics.get(name),
        oldest_ms=oldest_ms,
        out_rate=_out_rate(snapshot, groups),
        group_count=len(groups),
        worst_behind=_worst(snapshot, name),
        trend=visit.desk.history.trend("topic", name, visit.now_ms / 1000),
        problem=problem,
    )


@dataclass(frozen=True, slots=True)
class GroupOfTopic:
    """A group that reads the topic."""

    group: str
    behind: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic."""

    topic: str
    queues: list[TopicQueueRow]
    spans: Mapping[MessageQueue, QueueTimeSpan]
    configs: Mapping[str, TopicConfig]
    groups: list[GroupOfTopic]
    kept: int
    oldest_ms: int | None
    look: TopicLook | None
    out_rate: float | None
    span: str
    span_names: tuple[str, ...]
    problems: dict[str, Problem]
    silent: tuple[SilentBroker, ...]
    namesrv: str


async def load_topic(visit: Visit) -> Answer:
    topic, admin, walk = visit.named("topic"), visit.admin, visit.desk.walk
    queues = await admin.topic_queues(topic)
    snapshot = await visit.seen()
    found = await gathered({"spans": admin.time_spans(TOOLS_GROUP, topic), "groups": admin.topic_groups(topic)})
    spans, names = found["spans"], found["groups"]
    groups = [
        GroupOfTopic(
            name,
            snapshot.behind_of.get((name, topic)),
            snapshot.groups[name].lag_ms if name in snapshot.groups else None,
        )
        for name in (names if isinstance(names, list) else ())
    ]
    times = spans if isinstance(spans, dict) else {}
    oldest = [span.min_time_stamp for span in times.values() if span.min_time_stamp > 0]
    configs = snapshot.configs.get(topic) or (await admin.topic_configs()).get(topic, {})
    view = TopicView(
        topic=topic,
        queues=queues,
        spans=times,
        configs=configs,
        groups=sorted(groups, key=lambda each: (-(each.behind or 0), each.group)),
        kept=sum(row.message_count for row in queues),
        oldest_ms=min(oldest, default=None),
        look=walk.topics.get(topic),
        out_rate=_out_rate(snapshot, snapshot.groups_of.get(topic, ())),
        span=visit.asked("span") if visit.asked("span") in SPANS_S else "1h",
        span_names=tuple(SPANS_S),
        problems={part: problem_of(each) for part, each in found.items() if isinstance(each, BaseException)},
        silent=tuple(admin.silent.values()),
        namesrv=visit.config.namesrv,
    )
    return Answer("topic.html", view, [queue_cells(row) for row in queues], title=topic)


PAGES = [
    Page("/topics", "Topics", load_list, refresh_s=15),
    Page("/topics/{topic:path}", "{topic}", load_topic, refresh_s=5),
]
