"""`/clients`: everybody who is connected; what is wrong with them first."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bolide.admin.calls import gathered
from bolide.admin.rows import consumer_cells, producer_cells
from bolide.dashboard.page import Answer, Page, Visit
from bolide.dashboard.paging import Slice, sliced
from bolide.protocol.bodies import ConsumerConnections

SEARCHED_MAX = 1_000
_SINCE_LIMIT_S = 1.0  # a member that does not answer keeps the page no longer


@dataclass(frozen=True, slots=True)
class ClientLine:
    """One connection."""

    client_id: str
    address: str
    language: str
    version: int
    group: str
    does: str
    since_ms: int | None
    seen_ms: int | None
    conflict: str
    is_twice: bool = False


@dataclass(frozen=True, slots=True)
class ClientsView:
    """The list: all producers, and the members of the groups of this page; with a filter, of all groups."""

    lines: list[ClientLine]
    slice: Slice
    wanted: str
    failed: dict[str, str]
    left_out: int  # groups that were too many to ask


async def load(visit: Visit) -> Answer:
    wanted = visit.asked("q").lower()
    snapshot = await visit.seen()
    producers = await visit.admin.producers()
    names = sorted(snapshot.groups, key=lambda name: (-(snapshot.groups[name].out_rate or 0), name))
    part = sliced(visit, names)
    asked = names[:SEARCHED_MAX] if wanted else part.items
    members = await gathered({name: visit.admin.members(name) for name in asked})
    since = await _since(visit, members) if not wanted else {}
    lines, rows = [], []
    for group, sending in producers.items():
        for each in sending:
            rows.append(producer_cells(group, each))
            seen = each.last_update_timestamp or None
            lines.append(
                ClientLine(each.client_id, each.remote_ip, each.language, each.version, group, "sends", None, seen, "")
            )
    for group, found in members.items():
        if isinstance(found, ConsumerConnections):
            torn = {each.client_id: each.text for each in found.bolide_conflicts or ()}
            for one in found.connection_set:
                rows.append(consumer_cells(group, one))
                said = torn.get(one.client_id, "")
                began = since.get((group, one.client_id, one.client_addr))
                place = (one.client_id, one.client_addr, one.language, one.version, group)
                lines.append(ClientLine(*place, "consumes", began, None, said))
    failed = {group: str(found) for group, found in members.items() if isinstance(found, BaseException)}
    shown = in_order(line for line in _marked(lines) if _fits(line, wanted))
    rows = [row for row in rows if not wanted or any(wanted in value.lower() for value in row.values())]
    left_out = len(names) - len(asked) if wanted else 0
    return Answer("clients.html", ClientsView(shown, part, visit.asked("q"), failed, left_out), rows)


async def _since(visit: Visit, members: Mapping[str, object]) -> dict[tuple[str, str, str], int]:
    """Since when members are there, as they tell themselves."""
    there = [group for group, found in members.items() if isinstance(found, ConsumerConnections)]
    told = await gathered({group: visit.admin.member_rows(group) for group in there}, _SINCE_LIMIT_S)
    return {
        (group, row.client_id, row.address): row.since_ms
        for group, rows in told.items()
        if isinstance(rows, list)
        for row in rows
        if row.since_ms is not None
    }


def _fits(line: ClientLine, wanted: str) -> bool:
    return any(wanted in text.lower() for text in (line.client_id, line.address, line.group))


def in_order(lines: Iterable[ClientLine]) -> list[ClientLine]:
    """What is wrong first."""
    return sorted(lines, key=lambda line: (not line.conflict, not line.is_twice, line.group, line.client_id))


def _marked(lines: list[ClientLine]) -> list[ClientLine]:
    """The same, with those marked whose id another address has in the same group."""
    places = {(line.group, line.does, line.client_id, line.address) for line in lines}
    counts = Counter(place[:3] for place in places)
    return [replace(line, is_twice=counts[line.group, line.does, line.client_id] > 1) for line in lines]


PAGES = [Page("/clients", "Clients", load, refresh_s=15)]
