"""Several pages as one."""

from bolide.metrics.gathered import gathered
from bolide.metrics.page import Family, Sample, labels, pieces
from bolide.metrics.values import Histogram

COUNT = Family("count_total", "counter", "How many, with a # in it.")
TIMES = Family("time_seconds", "histogram", "How long.", (1.0,))
ONLY = Family("only", "gauge", "What one of them has.")


def page(node: str, *more: Family) -> str:
    times = Histogram((1.0,))
    times.add(0.5)
    families: list[tuple[Family, list[Sample | None]]] = [
        (COUNT, [(labels(topic="# HELP me"), 2.0)]),
        (TIMES, [("", times)]),
    ]
    families.extend((family, [("", 1.0)]) for family in more)
    return "".join(pieces(families, {"node_id": node}, 10))


def test_a_family_begins_once_and_has_the_series_of_all() -> None:
    text = "".join(gathered([page("a"), page("b", ONLY)]))
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("# TYPE")] == [
        "# TYPE count_total counter",
        "# TYPE time_seconds histogram",
        "# TYPE only gauge",
    ]
    assert sorted(lines) == sorted({*page("a").splitlines(), *page("b", ONLY).splitlines()})
    assert lines.index('count_total{topic="# HELP me",node_id="b"} 2.0') == 3


def test_no_pages_are_an_empty_page() -> None:
    assert "".join(gathered([])) == ""
