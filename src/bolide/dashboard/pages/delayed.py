"""`/delayed`: what is to be delivered later, when, and what is late."""

from collections import Counter
from dataclasses import dataclass

from bolide.admin.delays import DelayLevelRow, TimedRow
from bolide.admin.walking import TOOLS_GROUP
from bolide.dashboard.page import Answer, Page, Visit

_BUCKETS = ("next minute", "next hour", "next day", "later")
_LATE_MS = 5_000


@dataclass(frozen=True, slots=True)
class DelayedView:
    """Levels, timed messages, topics, and a histogram of what is due when."""

    levels: list[DelayLevelRow]
    timed: list[TimedRow]
    has_timer: bool
    topics: list[tuple[str, int, int]]  # how many wait in levels, and how many are timed
    unread_count: int  # of levels, whose topic was not read
    undated_count: int  # timed ones that were not read
    buckets: list[tuple[str, int]]
    most: int
    late: list[DelayLevelRow]
    status: list[tuple[str, str, str]]


async def load(visit: Visit) -> Answer:
    snapshot = await visit.seen()
    async with visit.admin.puller(TOOLS_GROUP) as consumer:
        levels = await visit.admin.delay_levels(consumer, visit.now_ms)
        counted = await visit.admin.timed_counts()
        timed = await visit.admin.timed_rows(consumer, counted, visit.now_ms)
    due = [*(row.due_counts for row in levels), *(row.due_counts for row in timed)]
    counts = [sum(each[place] for each in due) for place in range(len(_BUCKETS))]
    status = [
        (look.row.name, look.status.get("timerReadBehind", "–"), look.status.get("timerCongestNum", "–"))
        for look in snapshot.brokers
        if look.status and not look.row.broker_id
    ]
    late = [row for row in levels if row.due_ms is not None and row.due_ms < visit.now_ms - _LATE_MS]
    view = DelayedView(
        levels=levels,
        timed=timed,
        has_timer=bool(counted),
        topics=_by_topic(levels, counted),
        unread_count=sum(max(0, row.waiting_count - row.read_count) for row in levels),
        undated_count=sum(row.unread_count for row in timed),
        buckets=list(zip(_BUCKETS, counts, strict=True)),
        most=max(*counts, 1),
        late=sorted(late, key=lambda row: row.due_ms or 0),
        status=status,
    )
    rows = {
        "levels": [
            {
                "broker": row.broker,
                "level": row.level,
                "delay_ms": row.delay_ms,
                "waiting": row.waiting_count,
                "first_due_at": row.due_ms,
                "due": dict(zip(_BUCKETS, row.due_counts, strict=True)),
                "topics": dict(row.topics),
            }
            for row in levels
        ],
        "timed": counted,
        "timed_due": [
            {
                "broker": row.broker,
                "waiting": row.waiting_count,
                "first_due_at": row.due_ms,
                "due": dict(zip(_BUCKETS, row.due_counts, strict=True)),
            }
            for row in timed
        ],
    }
    return Answer("delayed.html", view, rows)


def _by_topic(levels: list[DelayLevelRow], timed: dict[str, dict[str, int]]) -> list[tuple[str, int, int]]:
    in_levels, in_timer = Counter[str](), Counter[str]()
    for row in levels:
        in_levels.update(row.topics)
    for counts in timed.values():
        in_timer.update(counts)
    names = sorted({*in_levels, *in_timer}, key=lambda name: (-in_levels[name] - in_timer[name], name))
    return [(name, in_levels[name], in_timer[name]) for name in names]


PAGES = [Page("/delayed", "Delayed", load, refresh_s=15)]
