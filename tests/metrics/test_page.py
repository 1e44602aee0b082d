"""The text that Prometheus reads."""

from collections.abc import Iterable

import pytest

from bolide.metrics.page import Family, Sample, labels, pieces
from bolide.metrics.values import Histogram

SENT = Family("rocketmq_messages_in_total", "counter", "Messages stored.")
LATENCY = Family("rocketmq_rpc_latency_milliseconds", "histogram", "How long requests took.", (1, 3))
AGE = Family("age_seconds", "gauge", "How old the oldest is.", is_summable=False)


def text_of(family: Family, samples: Iterable[Sample], series_max: int = 100, *, is_plain: bool = False) -> list[str]:
    return "".join(pieces([(family, samples)], {"cluster": "c"}, series_max, is_plain=is_plain)).splitlines()


def test_a_series_has_its_labels_and_those_of_all_and_a_float() -> None:
    assert text_of(SENT, [(labels(topic="Orders"), 26)]) == [
        "# HELP rocketmq_messages_in_total Messages stored.",
        "# TYPE rocketmq_messages_in_total counter",
        'rocketmq_messages_in_total{topic="Orders",cluster="c"} 26.0',
    ]


def test_a_series_may_have_the_labels_of_all_alone() -> None:
    assert text_of(AGE, [("", 2)])[-1] == 'age_seconds{cluster="c"} 2.0'


def test_a_label_may_hold_any_text() -> None:
    assert labels(group='a"b\\c\nd') == r'group="a\"b\\c\nd"'


def test_a_family_without_a_series_is_absent() -> None:
    assert text_of(SENT, []) == []


def test_a_histogram_counts_upwards_and_a_value_on_a_bound_is_within_it() -> None:
    histogram = Histogram((1, 3))
    for value in (0, 1, 2, 3, 4):
        histogram.add(value)
    histogram.add_within(1, 2, 5)
    assert text_of(LATENCY, [(labels(code="x"), histogram)])[2:] == [
        'rocketmq_rpc_latency_milliseconds_bucket{code="x",cluster="c",le="1.0"} 2',
        'rocketmq_rpc_latency_milliseconds_bucket{code="x",cluster="c",le="3.0"} 6',
        'rocketmq_rpc_latency_milliseconds_bucket{code="x",cluster="c",le="+Inf"} 7',
        'rocketmq_rpc_latency_milliseconds_count{code="x",cluster="c"} 7',
        'rocketmq_rpc_latency_milliseconds_sum{code="x",cluster="c"} 15.0',
    ]


@pytest.mark.parametrize(("family", "rest"), [(SENT, "12.0"), (AGE, "5.0")])
def test_beyond_the_bound_all_others_are_one_series(family: Family, rest: str) -> None:
    lines = text_of(family, [(labels(topic=str(number)), number) for number in range(6)], series_max=3)
    assert len(lines) == 2 + 4
    assert lines[-1] == f'{family.name}{{otel_metric_overflow="true",cluster="c"}} {rest}'


def test_histograms_beyond_the_bound_are_added_up() -> None:
    histograms = [Histogram((1, 3)) for _ in range(3)]
    for histogram in histograms:
        histogram.add(2)
    lines = text_of(LATENCY, [(labels(topic=str(n)), each) for n, each in enumerate(histograms)], series_max=1)
    assert lines[-2:] == [
        'rocketmq_rpc_latency_milliseconds_count{otel_metric_overflow="true",cluster="c"} 2',
        'rocketmq_rpc_latency_milliseconds_sum{otel_metric_overflow="true",cluster="c"} 4.0',
    ]
    assert histograms[1].counts == [0, 1, 0]


def test_plain_names_are_those_before_units_were_added() -> None:
    assert text_of(AGE, [("", 1)], is_plain=True)[-1] == 'age{cluster="c"} 1.0'
    assert text_of(SENT, [("", 1)], is_plain=True)[-1].startswith("rocketmq_messages_in_total{")
