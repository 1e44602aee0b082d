"""What a page is, and how it answers: the frame first, then its content; as JSON; or with what went wrong.

The frame says at once where one is. The content comes with a second request to the same address (htmx names itself in
`HX-Request`), and again at each refresh. `?format=json` answers the rows. A browser that leaves ends the work.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from bolide.admin.admin import Admin
from bolide.client.tally import Tally, counting
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.desks import Desk
from bolide.dashboard.login import Door
from bolide.dashboard.sessions import COOKIE, Session
from bolide.dashboard.walk import Snapshot
from bolide.errors import AccessRefused, BolideError, ClientError, NoAnswer
from bolide.model.texts import json_text, with_times

if TYPE_CHECKING:
    from bolide.dashboard.app import Dashboard

LIMIT_S = 20.0
TOKEN_FIELD = "token"
_NOT_THERE_CODES = frozenset({17, 22, 26, 10005})
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page shows: a template with its typed view, and the rows of its JSON."""

    template: str
    view: object
    rows: object
    status: int = 200
    title: str = ""


@dataclass(slots=True)
class Visit:
    """One request for a page: who asks, what for, and whom to ask."""

    request: Request
    dashboard: "Dashboard"
    session: Session
    desk: Desk
    admin: Admin
    asked_ms: int
    tally: Tally = field(default_factory=Tally)

    @property
    def config(self) -> DashboardConfig:
        return self.dashboard.config

    @property
    def now_ms(self) -> int:
        return self.dashboard.clock.now_ms()

    @property
    def changes(self) -> bool:
        """Whether this dashboard changes anything."""
        return self.config.allows_changes

    def named(self, parameter: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[parameter])

    def asked(self, parameter: str, other: str = "") -> str:
        """A field of the address."""
        return self.request.query_params.get(parameter, other).strip()

    def number(self, parameter: str, other: int, largest: int = 1 << 31) -> int:
        """A field of the address that is a number."""
        text = self.asked(parameter)
        return min(int(text), largest) if text.isascii() and text.isdigit() and len(text) < 19 else other

    def address_with(self, **changed: object) -> str:
        """The address of this page with other fields; an empty one leaves."""
        fields = {**self.request.query_params, **{key: str(value) for key, value in changed.items()}}
        left = {key: value for key, value in fields.items() if value and key != "format"}
        return raw_path(self.request) + (f"?{urlencode(left)}" if left else "")

    async def seen(self) -> Snapshot:
        """What the walk saw last; where it never saw anything, the reason is raised."""
        snapshot = await self.desk.walk.first()
        if not snapshot.is_seen:
            await self.admin.master_addresses()
            self.desk.walk.hurry()
            raise ClientError(snapshot.problem or "the cluster was not looked at yet; try again in a moment")
        return snapshot

    @property
    def address(self) -> str:
        """Where the one who asks is."""
        return self.request.client.host if self.request.client is not None else ""

    def note(self, action: str, thing: str, *, before: str = "", after: str = "", result: str = "done") -> None:
        """Keep a change in the audit file."""
        who = self.session.user or "-"
        self.dashboard.audit.note(who, self.address, action, thing, before=before, after=after, result=result)
        self.desk.walk.hurry()


Load = Callable[[Visit], Awaitable[Answer]]


class Form:
    """The fields of a form."""

    def __init__(self, fields: FormData) -> None:
        self._fields = fields

    def text(self, name: str, other: str = "") -> str:
        value = self._fields.get(name, other)
        return value if isinstance(value, str) else other

    def texts(self, name: str) -> list[str]:
        return [value for value in self._fields.getlist(name) if isinstance(value, str)]

    def number(self, name: str) -> int | None:
        text = self.text(name).strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    async def content(self, name: str) -> bytes | None:
        """A file that was chosen; None if none was."""
        value = self._fields.get(name)
        if value is None or isinstance(value, str):
            return None
        return await value.read() if value.filename else None


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its path, its title (`{name}` is a part of the path), and what loads it."""

    path: str
    title: str
    load: Load
    refresh_s: int = 0

    async def serve(self, request: Request) -> Response:
        dashboard = dashboard_of(request)
        is_content = request.headers.get("hx-request") == "true"
        is_json = request.query_params.get("format") == "json"
        entered = await enter(dashboard, request, is_told=is_content or is_json)
        if isinstance(entered, Response):
            return entered
        visit = entered
        if is_content or is_json:
            response = await self._content(visit, is_json=is_json)
        else:
            response = self._frame(visit)
        return with_cookie(response, visit)

    def _frame(self, visit: Visit) -> Response:
        visit.desk.look_after()  # its menu counts what the doctor finds
        title = self.title.format_map({key: str(value) for key, value in visit.request.path_params.items()})
        frame = {
            "title": title,
            "content_url": path_of(visit.request),
            "refresh_s": self.refresh_s,
            "path": visit.request.url.path,
        }
        return rendered(visit, "frame.html", frame)

    async def _content(self, visit: Visit, *, is_json: bool) -> Response:
        with counting() as visit.tally:
            try:
                answer = await unless_left(visit.request, self.load(visit), LIMIT_S)
            except (BolideError, TimeoutError) as problem:
                answer = problem_answer(problem)
        if is_json:
            return JSON(answer.rows, status_code=answer.status)
        return rendered(visit, answer.template, {"view": answer.view, "title": answer.title}, answer.status)


Act = Callable[[Visit, Form], Awaitable[str | Answer]]


@dataclass(frozen=True, slots=True)
class Action:
    """One change: a form is sent here, and then one goes where it says, or sees an answer."""

    path: str
    act: Act
    changes: bool = True  # a form that only asks is there without --allow-changes too

    async def serve(self, request: Request) -> Response:
        dashboard = dashboard_of(request)
        if self.changes and not dashboard.config.allows_changes:
            return HTMLResponse(
                "this dashboard changes nothing: it was started without --allow-changes", status_code=403
            )
        entered = await enter(dashboard, request, is_told=False)
        if isinstance(entered, Response):
            return entered
        visit = entered
        async with request.form(max_files=1, max_part_size=dashboard.form_size_max) as fields:
            form = Form(fields)
            if not visit.session.owns(form.text(TOKEN_FIELD)):
                return HTMLResponse("this form is not of your session; go back, reload the page and send it again", 403)
            try:
                async with asyncio.timeout(LIMIT_S):
                    went = await self.act(visit, form)
            except (BolideError, TimeoutError) as problem:
                if self.changes:
                    visit.note(self.path, _object_of(request, form), result=f"failed: {problem}")
                went = problem_answer(problem)
        if isinstance(went, str):
            return with_cookie(RedirectResponse(went, status_code=303), visit)
        url = request.url.path
        frame = {"title": went.title or "Result", "content_url": "", "refresh_s": 0, "path": url}
        frame |= {"content_template": went.template, "view": went.view}
        return with_cookie(rendered(visit, "frame.html", frame, went.status), visit)


def _object_of(request: Request, form: Form) -> str:
    """What a change was about: the path, and the name where a field has it."""
    names = (form.text(field) for field in ("name", "topic", "user", "key", "id"))
    return " ".join((request.url.path, *(name for name in names if name)))


def dashboard_of(request: Request) -> "Dashboard":
    """What all pages share."""
    found: Dashboard = request.app.state.dashboard
    return found


def path_of(request: Request) -> str:
    """The path and the fields of an address as they came, without the host."""
    return raw_path(request) + (f"?{request.url.query}" if request.url.query else "")


def raw_path(request: Request) -> str:
    """The path as it came: a slash in a name stays written as %2F."""
    raw: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    return raw.partition(b"?")[0].decode("ascii", "replace")


async def enter(dashboard: "Dashboard", request: Request, *, is_told: bool) -> "Visit | Response":
    """Who asks; or an answer that asks who it is."""
    session = dashboard.sessions.find(request.cookies.get(COOKIE))
    fetch = {name: request.headers.get(f"sec-fetch-{name}") for name in ("site", "mode")}
    if session is None and fetch == {"site": "cross-site", "mode": "navigate"} and request.method == "GET":
        # A link on another site brings no cookie of ours, though there may be one: our own page asks again, with it.
        return HTMLResponse(dashboard.templates.get_template("again.html").render(url=path_of(request)))
    door = await dashboard.desks.door()
    if door is not Door.OPEN and (session is None or not session.user):
        if is_told:
            return JSON({"error": "sign in first"}, status_code=401, headers={"HX-Redirect": "/login"})
        back = path_of(request) if request.method == "GET" else "/"
        return RedirectResponse("/login?" + urlencode({"next": back}), status_code=303)
    if session is None:
        session = dashboard.sessions.begin()
    desk = await dashboard.desks.desk_of(session.credentials)
    return Visit(request, dashboard, session, desk, desk.admin(), dashboard.clock.now_ms())


async def unless_left(request: Request, work: Awaitable[T], limit_s: float) -> T:
    """The outcome of some work, which ends when the browser goes."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
        working = group.create_task(_outcome(work), name="dashboard.page")
        leaving = group.create_task(leave(), name="dashboard.leave")
        leaving.add_done_callback(lambda _: working.cancel())
        outcome = await working
        leaving.cancel()
    if isinstance(outcome, BolideError | TimeoutError):
        raise outcome
    return outcome


async def _outcome(work: Awaitable[T]) -> T | BolideError | TimeoutError:
    """What it comes to; a task that raises would take its group along."""
    try:
        return await work
    except (BolideError, TimeoutError) as problem:
        return problem


def rendered(visit: Visit, template: str, values: Mapping[str, object], status: int = 200) -> Response:
    """A template with what all of them know."""
    known = {
        "visit": visit,
        "config": visit.config,
        "session": visit.session,
        "changes": visit.changes,
        "snapshot": visit.desk.walk.snapshot,
        "diagnosis": visit.desk.diagnosis,
        "now_ms": visit.now_ms,
        "took_ms": visit.now_ms - visit.asked_ms,
        "sections": visit.dashboard.sections,
    }
    text = visit.dashboard.templates.get_template(template).render(**known, **values)
    return HTMLResponse(text, status_code=status, headers={"Vary": "HX-Request"})


def with_cookie(response: Response, visit: Visit) -> Response:
    """The same with the session's cookie, where the browser has none of it yet."""
    if visit.request.cookies.get(COOKIE) != visit.session.id:
        set_cookie(response, visit.session, visit.config)
    return response


def set_cookie(response: Response, session: Session, config: DashboardConfig) -> None:
    response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict", secure=config.is_secure, path="/")


class JSON(JSONResponse):
    """JSON as commands write it: times as text, and no character that does anything."""

    def render(self, content: Any) -> bytes:
        return (json_text(with_times(content)) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a page cannot be shown: in the words of the one who refused."""

    kind: str  # silent, refused, absent, failed
    sentence: str
    code: int | None = None


def problem_answer(problem: BaseException) -> Answer:
    """A page that says what went wrong and lets one try again."""
    found = problem_of(problem)
    status = {"silent": 502, "refused": 403, "absent": 404, "failed": 502}[found.kind]
    return Answer("problem.html", found, {"error": found.sentence, "code": found.code}, status, "Problem")


def problem_of(problem: BaseException) -> Problem:
    """What kind of failure it was."""
    code = problem.code if isinstance(problem, BolideError) else None
    sentence = str(problem) or f"the cluster did not answer within {LIMIT_S:g} s"
    if isinstance(problem, AccessRefused):
        return Problem("refused", sentence, code)
    if isinstance(problem, NoAnswer | TimeoutError):
        return Problem("silent", sentence, code)
    return Problem("absent" if code in _NOT_THERE_CODES else "failed", sentence, code)


Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
