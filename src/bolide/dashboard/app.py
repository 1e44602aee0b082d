"""The dashboard as an ASGI application: all pages behind the guard, and what they share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bolide.admin.deadletters import group_of
from bolide.admin.doctor.findings import Severity
from bolide.clock import Clock
from bolide.dashboard import pages, shown, signing_in
from bolide.dashboard.audit import Audit
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.desks import Desk, Desks, open_desks
from bolide.dashboard.guard import Guard
from bolide.dashboard.jobs import Jobs
from bolide.dashboard.login import Tries, read_passwords
from bolide.dashboard.sessions import Sessions
from bolide.dashboard.streams import Streams

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Section:
    """One line of the navigation: where it leads, its name, and the second key after `g`."""

    path: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Attention:
    """A number beside a section, and what it counts."""

    number: int
    why: str


SEARCHES_MAX = 4
_DAY_MS = 86_400_000
# Findings that have a section of their own, by their numbers.
_FOUND = {
    "/groups": ("D04", "groups whose members subscribe differently"),
    "/clients": ("D05", "client ids that two members share"),
}
SECTIONS = (
    Section("/", "Overview", "o"),
    Section("/messages", "Messages", "m"),
    Section("/groups", "Groups", "g"),
    Section("/topics", "Topics", "t"),
    Section("/dead", "Dead letters", "d"),
    Section("/clients", "Clients", "c"),
    Section("/send", "Send", "s"),
    Section("/delayed", "Delayed", "l"),
    Section("/transactions", "Transactions", "x"),
    Section("/access", "Access", "a"),
    Section("/settings", "Settings", "e"),
)


@dataclass(slots=True)
class Dashboard:
    """What all pages share."""

    config: DashboardConfig
    clock: Clock
    desks: Desks
    sessions: Sessions
    audit: Audit
    tries: Tries
    passwords: dict[str, bytes]
    templates: Environment
    sections: tuple[Section, ...] = SECTIONS
    form_size_max: int = field(default=8 << 20)
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SEARCHES_MAX))
    streams: Streams = field(default_factory=Streams)
    jobs: Jobs = field(default_factory=Jobs)

    def attention(self, desk: Desk, path: str) -> Attention | None:
        """What of a section somebody should look at."""
        if path == "/":
            bad = [each for each in desk.diagnosis.findings if each.severity in (Severity.ERROR, Severity.WARNING)]
            return Attention(len(bad), "findings of the doctor") if bad else None
        if path == "/dead":
            day_ms = self.clock.now_ms() - _DAY_MS
            looks = [look for name, look in desk.walk.topics.items() if group_of(name) is not None and look.kept]
            fresh = [look for look in looks if look.last_ms is not None and look.last_ms > day_ms]
            return Attention(len(fresh), "groups with dead letters of the last day") if fresh else None
        if path in _FOUND:
            number, why = _FOUND[path]
            count = sum(each.number == number for each in desk.diagnosis.findings)
            return Attention(count, why) if count else None
        return None


def build_app(config: DashboardConfig, clock: Clock) -> Starlette:
    """The application; it talks to the cluster while its lifespan lasts."""
    passwords = read_passwords(config.password_file) if config.password_file is not None else {}
    audit = Audit(config.audit_file, clock)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_desks(config, clock) as desks:
            app.state.dashboard = Dashboard(
                config, clock, desks, Sessions(clock), audit, Tries(clock), passwords, environment()
            )
            yield

    routes = [
        *(Route(action.path, action.serve, methods=["POST"]) for action in pages.all_actions()),
        Route("/login", signing_in.show_login, methods=["GET"]),
        Route("/login", signing_in.sign_in, methods=["POST"]),
        Route("/logout", signing_in.sign_out, methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
        *pages.other_routes(),
        *(Route(page.path, page.serve, methods=["GET"]) for page in pages.all_pages()),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, config=config)], lifespan=lifespan)


def environment() -> Environment:
    """Templates in which everything is text unless a template itself says what it is."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(shown.FILTERS)
    return found
