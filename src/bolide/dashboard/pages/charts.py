"""The numbers behind charts: what a Prometheus kept, or the walk, of the last hour, six hours or day."""

from bolide.dashboard import prometheus
from bolide.dashboard.history import SPANS_S
from bolide.dashboard.page import Answer, Page, Visit
from bolide.errors import ClientError

_NAMES = {
    "cluster": ("in/s", "out/s"),
    "group": ("messages behind", "seconds behind", "out/s"),
    "topic": ("in/s", "out/s"),
}


async def load(visit: Visit) -> Answer:
    kind, name = visit.named("kind"), visit.asked("name")
    span = visit.asked("span") if visit.asked("span") in SPANS_S else "1h"
    columns, note = visit.desk.history.columns(kind, name, span, visit.now_ms / 1000), ""
    if visit.config.prometheus and kind in _NAMES:
        asked = prometheus.queries(kind, name, visit.desk.walk.snapshot.cluster, span)
        try:
            columns = await prometheus.columns(visit.config.prometheus, asked, span, visit.now_ms / 1000)
        except ClientError as problem:
            note = f"{problem}; shown is what was seen since this dashboard runs"
    told = [[None if value != value else round(value, 3) for value in column] for column in columns]
    return Answer("chart.html", None, {"names": ["time", *_NAMES.get(kind, ())], "columns": told, "note": note})


PAGES = [Page("/history/{kind}", "History", load)]
