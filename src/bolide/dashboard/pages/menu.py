"""`/menu`: the sections with their counts, asked for again and again by every open page.

What is counted is seen by the walk and by the doctor, who both may come later than the frame of the first page.
"""

from dataclasses import asdict, dataclass

from bolide.dashboard.page import Answer, Page, Visit


@dataclass(frozen=True, slots=True)
class MenuView:
    """Which page is open."""

    at: str


async def load(visit: Visit) -> Answer:
    visit.desk.look_after()
    counts = {each.path: visit.dashboard.attention(visit.desk, each.path) for each in visit.dashboard.sections}
    rows = {path: asdict(count) for path, count in counts.items() if count is not None}
    return Answer("menu.html", MenuView(visit.asked("at", "/")), rows)


PAGES = [Page("/menu", "Menu", load)]
