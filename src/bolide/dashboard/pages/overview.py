"""`/`: what is wrong, the brokers, the groups that are worst off, and the cluster's traffic."""

from collections.abc import Mapping
from dataclasses import dataclass

from bolide.admin.admin import BrokerRow
from bolide.admin.calls import gathered
from bolide.admin.controllers import ReplicaRow
from bolide.admin.doctor.findings import Finding
from bolide.admin.reach import SilentBroker
from bolide.admin.rows import broker_cells, finding_cells
from bolide.dashboard.history import History
from bolide.dashboard.page import Action, Answer, Form, Page, Visit
from bolide.dashboard.pages.groups import GroupLine, lines_of, worst_first
from bolide.dashboard.walk import BrokerLook, Snapshot

WORST_COUNT = 5
_DISK_LIMIT = 0.9  # of brokers that do not tell theirs
_DAYS_FROM_S = 3600  # a shorter history says nothing about days


@dataclass(frozen=True, slots=True)
class BrokerCard:
    """One broker for the eye."""

    row: BrokerRow
    role: str
    replica: ReplicaRow | None
    boot_ms: int
    disk_ratio: float | None
    disk_limit: float | None
    days_left: int | None
    flush_behind: str
    fenced: bool
    may_promote: bool


@dataclass(frozen=True, slots=True)
class OverviewView:
    """Everything on the page."""

    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    diagnosed_ms: int
    cards: list[BrokerCard]
    worst: list[GroupLine]
    silent: tuple[SilentBroker, ...]
    problem: str
    seen_ms: int
    topic_count: int
    group_count: int


async def load(visit: Visit) -> Answer:
    snapshot = await visit.seen()
    diagnosis = visit.desk.look_after()
    replicas = await visit.admin.replicas() if _has_replicas(snapshot) else {}
    there = [look.row.address for look in snapshot.brokers if look.row.is_reachable]
    settings = await gathered({address: visit.admin.broker_settings(address) for address in there})
    worst = worst_first(snapshot.groups.values())[:WORST_COUNT]
    lines = await lines_of(visit, [group.group for group in worst if group.behind > 0])
    view = OverviewView(
        findings=diagnosis.findings,
        unseen=diagnosis.unseen,
        diagnosed_ms=diagnosis.at_ms,
        cards=[
            _card(look, replicas, settings.get(look.row.address), days_left(visit.desk.history, look, visit.now_ms))
            for look in snapshot.brokers
        ],
        worst=lines,
        silent=snapshot.silent,
        problem=snapshot.problem,
        seen_ms=snapshot.at_ms,
        topic_count=len(snapshot.topic_names),
        group_count=len(snapshot.groups),
    )
    rows = {
        "brokers": [broker_cells(look.row, replicas) for look in snapshot.brokers],
        "findings": [finding_cells(finding) for finding in diagnosis.findings],
    }
    return Answer("overview.html", view, rows)


def _has_replicas(snapshot: Snapshot) -> bool:
    names = [look.row.name for look in snapshot.brokers]
    return len(set(names)) < len(names) or any(look.row.broker_id for look in snapshot.brokers)


def _card(look: BrokerLook, replicas: dict[str, ReplicaRow], settings: object, days: int | None) -> BrokerCard:
    status, replica = look.status, replicas.get(look.row.address)
    role = replica.role if replica is not None else "slave" if look.row.broker_id else "master"
    return BrokerCard(
        row=look.row,
        role=role,
        replica=replica,
        boot_ms=int(_number(status.get("bootTimestamp")) or 0),
        disk_ratio=_number(status.get("commitLogDiskRatio")),
        disk_limit=disk_limit(settings) if isinstance(settings, Mapping) else None,
        days_left=days,
        flush_behind=status.get("remainHowManyDataToFlush", ""),
        fenced=status.get("brokerFenced") == "true",
        may_promote=bool(replica is not None and replica.role == "slave" and replica.is_in_sync),
    )


def disk_limit(settings: Mapping[str, str]) -> float:
    """The part of its disk above which a broker takes no more messages."""
    percent = _number(settings.get("diskSpaceWarningLevelRatio"))
    return _DISK_LIMIT if not percent else percent / 100 if percent > 1 else percent


def days_left(history: History, look: BrokerLook, now_ms: int) -> int | None:
    """How long the free space lasts at the pace of the last day; None where too little is known to say so."""
    free = _size(look.status.get("commitLogDirCapacity", ""))
    columns = history.columns("broker", look.row.address, "24h", now_ms / 1000)
    points = [(at_s, end) for at_s, end in zip(*columns, strict=True) if end == end] if columns else []
    if free is None or len(points) < 2:
        return None
    (begin_s, begin), (end_s, end) = points[0], points[-1]
    if end_s - begin_s < _DAYS_FROM_S or end <= begin:
        return None
    return int(free / ((end - begin) / (end_s - begin_s) * 86_400))


_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _size(text: str) -> float | None:
    """The free bytes of `Total : 1.5 TiB, Free : 200.3 GiB.`"""
    words = text.rpartition("Free : ")[2].rstrip(".").split()
    amount = _number(words[0]) if len(words) == 2 else None
    return None if amount is None or words[1] not in _UNITS else amount * _UNITS[words[1]]


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


async def promote(visit: Visit, form: Form) -> str:
    """Hand the lead of a group of brokers to a replica that is in sync."""
    name, number = visit.named("name"), form.number("id")
    await visit.admin.promote(name, number)
    visit.note("promote", name, after=f"replica {number}")
    return "/"


PAGES = [Page("/", "Overview", load, refresh_s=5)]
ACTIONS = [Action("/brokers/{name:path}/promote", promote)]
