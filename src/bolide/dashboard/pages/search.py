"""`/search`: one box that understands a topic, a group, a message's id and `host:port`."""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bolide.dashboard.page import Answer, Page, Visit, dashboard_of, enter, with_cookie
from bolide.dashboard.walk import Snapshot

FOUND_MAX = 12
_ID = re.compile(r"[0-9A-Fa-f]{32,56}")
_ADDRESS = re.compile(r"[\w.\-\[\]:]+:\d{1,5}")


@dataclass(frozen=True, slots=True)
class Found:
    """Something with a page of its own."""

    kind: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class SearchView:
    """What a text may mean."""

    text: str
    found: list[Found]


def meanings(text: str, snapshot: Snapshot, count_max: int = FOUND_MAX) -> list[Found]:
    """What a text may mean, the likeliest first."""
    found = []
    if _ID.fullmatch(text):
        found.append(Found("message", text, f"/messages/{quote(text)}"))
    if _ADDRESS.fullmatch(text):
        found.append(Found("client", text, f"/clients?{urlencode({'q': text})}"))
    names = [("topic", name) for name in snapshot.configs] + [("group", name) for name in snapshot.groups]
    low = text.lower()
    matching = [(kind, name) for kind, name in names if low in name.lower()]
    matching.sort(key=lambda each: (not each[1].lower().startswith(low), each[1].startswith("%"), len(each[1]), each))
    found += [Found(kind, name, f"/{kind}s/{quote(name, safe='')}") for kind, name in matching[:count_max]]
    return found


async def load(visit: Visit) -> Answer:
    text = visit.asked("q")
    snapshot = await visit.seen()
    found = meanings(text, snapshot) if text else []
    rows = [{"kind": each.kind, "name": each.name, "address": each.address} for each in found]
    return Answer("search.html", SearchView(text, found), rows)


async def go(request: Request) -> Response:
    """Where the box leads: to what was named exactly, or to all that it may mean."""
    entered = await enter(dashboard_of(request), request, is_told=False)
    if isinstance(entered, Response):
        return entered
    text = entered.asked("q")
    found = meanings(text, await entered.desk.walk.first()) if text else []
    exact = [each for each in found if each.name == text]
    sole = exact or (found if len(found) == 1 else [])
    where = sole[0].address if sole else f"/search?{urlencode({'q': text})}"
    return with_cookie(RedirectResponse(where, status_code=303), entered)


PAGES = [Page("/search", "Search", load)]
ROUTES = [Route("/go", go, methods=["GET"])]
