"""`/state`: what a page that does not refresh by itself says above its content while brokers are silent.

Somebody may be typing into a form, so such a page stays as it is. This line above it is asked for again and again, and
so every open page says that something is missing, and no longer once it is there.
"""

from dataclasses import dataclass

from bolide.admin.reach import SilentBroker
from bolide.dashboard.page import Answer, Page, Visit


@dataclass(frozen=True, slots=True)
class StateView:
    """Who is silent, and why nothing could be seen."""

    silent: tuple[SilentBroker, ...]
    problem: str
    seen_ms: int


async def load(visit: Visit) -> Answer:
    seen = visit.desk.walk.snapshot
    view = StateView(seen.silent, seen.problem, seen.at_ms)
    rows = {"silent": [str(broker) for broker in view.silent], "problem": view.problem, "seen_at": view.seen_ms}
    return Answer("state.html", view, rows)


PAGES = [Page("/state", "State", load)]
