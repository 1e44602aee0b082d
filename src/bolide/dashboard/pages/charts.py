"""The numbers behind charts: what the walk kept of the last hour, six hours or day."""

from bolide.dashboard.history import SPANS_S
from bolide.dashboard.page import Answer, Page, Visit

_NAMES = {
    "cluster": ("in/s", "out/s"),
    "group": ("messages behind", "seconds behind", "out/s"),
    "topic": ("in/s", "out/s"),
}


async def load(visit: Visit) -> Answer:
    kind, name = visit.named("kind"), visit.asked("name")
    span = visit.asked("span") if visit.asked("span") in SPANS_S else "1h"
    columns = visit.desk.history.columns(kind, name, span, visit.now_ms / 1000)
    told = [[None if value != value else round(value, 3) for value in column] for column in columns]
    return Answer("chart.html", None, {"names": ["time", *_NAMES.get(kind, ())], "columns": told})


PAGES = [Page("/history/{kind}", "History", load)]
