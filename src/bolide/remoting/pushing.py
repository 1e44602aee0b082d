"""Metrics that are pushed: what stands on the page, sent to a collector of OpenTelemetry now and then (OTLP).

RocketMQ pushes by gRPC. Here it goes over HTTP, which every collector takes at its next port (4318): the exporter for
gRPC brings 13 MB of library and threads of its own into a broker. Values are gathered on the loop, a millisecond at a
time, as for a page; they leave in a thread. A collector that is away costs a line in the log, and no value: counters
are sent as what they are, not as what was added.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from bolide.clock import Clock
from bolide.metrics.config import MetricsConfig
from bolide.metrics.page import Family, Page, Sample
from bolide.metrics.values import Histogram
from bolide.remoting.pages import REST_FACTOR, SLICE_S

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
log = logging.getLogger(__name__)


async def push_forever(
    config: MetricsConfig, page: Callable[[], Page], of_all: Mapping[str, str], clock: Clock
) -> None:
    """Send what the page says, every so often, until it is cancelled; once more then would keep a stop waiting."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(
        endpoint=endpoint_of(config.target),
        headers=config.target_headers,
        timeout=config.push_timeout_ms / 1000,
        max_export_batch_size=config.push_batch_max,
    )
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # what fails is told here, in one line
    began_ns = clock.now_ms() * 1_000_000
    is_away = False
    while True:
        await asyncio.sleep(config.push_interval_ms / 1000)
        metrics = await _gathered(page(), of_all, config.series_max, (began_ns, clock.now_ms() * 1_000_000), clock)
        is_taken = await asyncio.to_thread(_export, exporter, metrics)
        if is_taken == is_away:
            is_away = not is_taken
            level, word = (logging.INFO, "taken") if is_taken else (logging.WARNING, "not taken")
            log.log(level, "metrics are %s by the collector target=%s", word, config.target)


def _export(exporter: Any, metrics: list[Any]) -> bool:
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from bolide import __version__

    scope = ScopeMetrics(InstrumentationScope("bolide", __version__), metrics, "")
    resource = Resource({"service.name": "bolide", "service.version": __version__})
    told = exporter.export(MetricsData([ResourceMetrics(resource, [scope], "")]))
    return bool(told is MetricExportResult.SUCCESS)


async def _gathered(
    page: Page, of_all: Mapping[str, str], series_max: int, times_ns: tuple[int, int], clock: Clock
) -> list[Any]:
    """Families as the library wants them, in slices of the loop's time."""
    found = []
    rest_s = clock.monotonic_s() + SLICE_S
    for family, samples in page:
        points: list[Any] = []
        for sample in samples:
            if sample is not None and len(points) < series_max:
                points.append(_point(family, sample, of_all, times_ns))
            if clock.monotonic_s() >= rest_s:
                await asyncio.sleep(SLICE_S * REST_FACTOR)
                rest_s = clock.monotonic_s() + SLICE_S
        if points:
            found.append(_metric(family, points))
    return found


def _metric(family: Family, points: list[Any]) -> Any:
    from opentelemetry.sdk.metrics import export

    running = export.AggregationTemporality.CUMULATIVE
    data: Any = export.Gauge(points)
    if family.kind == "histogram":
        data = export.Histogram(points, running)
    elif family.kind == "counter":
        data = export.Sum(points, running, is_monotonic=True)
    return export.Metric(family.plain_name, family.help, "", data)


def _point(family: Family, sample: Sample, of_all: Mapping[str, str], times_ns: tuple[int, int]) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    text, value = sample
    attributes = {**{name: _ESCAPED.sub(_plain, found) for name, found in _LABEL.findall(text)}, **of_all}
    if isinstance(value, Histogram):
        bounds = [float(bound) for bound in family.bounds]
        counts = list(value.counts)
        # How large the largest was is not kept; the conventions want some number.
        return HistogramDataPoint(attributes, *times_ns, sum(counts), value.total, counts, bounds, 0.0, 0.0)
    return NumberDataPoint(attributes, *times_ns, float(value))


def _plain(found: "re.Match[str]") -> str:
    return "\n" if found[1] == "n" else found[1]


def endpoint_of(target: str) -> str:
    """`metricsGrpcExporterTarget` as a URL: `https://` where nothing is said, and OTLP's own path."""
    url = target if "://" in target else f"https://{target}"
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/metrics"
