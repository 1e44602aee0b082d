"""Which metrics settings are honoured, and which are refused."""

import pytest

from bolide.errors import ConfigError
from bolide.metrics.config import MetricsConfig


@pytest.mark.parametrize(("text", "is_on"), [("0", False), ("PROM", True), ("prom", True), ("2", True)])
def test_the_kind_may_be_a_word_or_rocketmqs_number(text: str, is_on: bool) -> None:
    assert MetricsConfig(kind=text).has_page is is_on


@pytest.mark.parametrize("text", ["LOG", "3", "statsd"])
def test_a_kind_that_cannot_be_had_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ConfigError, match="metricsExporterType"):
        MetricsConfig(kind=text)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "metricsGrpcExporterTarget"),
        ({"target": "http://collector:4318", "headers": "hush"}, "metricsGrpcExporterHeader"),
    ],
)
def test_a_push_without_a_target_or_with_half_a_header_is_refused(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MetricsConfig(kind="OTLP_GRPC", **settings)  # type: ignore[arg-type]
    assert refused.value.key == key
    assert "hush" not in str(refused.value)


def test_a_push_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.metrics.config._PACKAGES", ("no_such_package.sdk",))
    with pytest.raises(ConfigError, match=r"bolide\[otel\]"):
        MetricsConfig(kind="1", target="http://collector:4318")


def test_labels_of_ones_own_are_names_and_values() -> None:
    assert MetricsConfig(labels="env:prod, room:7").own_labels == {"env": "prod", "room": "7"}


@pytest.mark.parametrize("text", ["env", "9:x", "env:a:b", 'e"nv:x'])
def test_a_label_that_prometheus_could_not_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="metricsLabel"):
        MetricsConfig(labels=text)
