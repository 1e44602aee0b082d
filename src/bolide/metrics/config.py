"""How a server shows its metrics, under RocketMQ's names: one room of settings for all servers.

`PROM` is a page that Prometheus reads; `OTLP_GRPC` sends the same to a collector of OpenTelemetry, over HTTP
(`remoting/pushing.py`). `LOG` is refused. `native` names are those of RocketMQ's 5.5 page; `plain` is without units, as
5.1.0 has them; `exporter` adds those of the older rocketmq-exporter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

from bolide.errors import ConfigError
from bolide.settings import PORTS, OneOf, Range, check_bounds, conf

PORT = 5557
OFF, OTLP, PROMETHEUS, LOG = "DISABLE", "OTLP_GRPC", "PROM", "LOG"
_KINDS = (OFF, OTLP, PROMETHEUS, LOG)  # in the order of RocketMQ's numbers
Names = Literal["native", "plain", "exporter"]
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def is_installed(*packages: str) -> bool:
    """Whether an extra's packages are here; none is loaded."""
    try:
        return all(find_spec(name) is not None for name in packages)
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Whether and where a server shows its metrics."""

    kind: str = conf("metricsExporterType", OFF)
    host: str = conf("metricsPromExporterHost", "")  # empty: where the server listens
    port: int = conf("metricsPromExporterPort", PORT, PORTS)
    labels: str = conf("metricsLabel", "")
    series_max: int = conf("metricsOtelCardinalityLimit", 50_000, Range(1, 10_000_000))
    target: str = conf("metricsGrpcExporterTarget", "")  # a collector's port for OTLP over HTTP
    headers: str = conf("metricsGrpcExporterHeader", "", is_secret=True)
    push_timeout_ms: int = conf("metricGrpcExporterTimeOutInMills", 3_000, Range(1, 600_000))
    push_interval_ms: int = conf("metricGrpcExporterIntervalInMills", 60_000, Range(10, 86_400_000))
    push_batch_max: int = conf("metricsExportBatchMaxDataPoints", 1_000, Range(1, 1_000_000))
    names: str = conf("bolideMetricsNames", "native", OneOf(get_args(Names)))  # our own
    shows_queues: bool = conf("bolideQueueLagMetrics", False)  # our own: a series for each queue of each group

    def __post_init__(self) -> None:
        check_bounds(self)
        kind = self.kind.strip().upper()
        kind = _KINDS[int(kind)] if kind in ("0", "1", "2", "3") else kind
        if kind not in _KINDS:
            raise ConfigError("metricsExporterType", self.kind, f"must be one of {', '.join(_KINDS)}, or 0 to 3")
        if kind == LOG:
            raise ConfigError("metricsExporterType", self.kind, "metrics are not written to a log here: use PROM")
        if kind == OTLP:
            self._check_push()
        object.__setattr__(self, "kind", kind)
        self.own_labels  # noqa: B018 - judged at the start, not at the first scrape

    def _check_push(self) -> None:
        if not self.target:
            raise ConfigError("metricsGrpcExporterTarget", "", "names no collector, as http://127.0.0.1:4318")
        if not is_installed(*_PACKAGES):
            why = "needs packages that are not here: pip install 'bolide[otel]'"
            raise ConfigError("metricsExporterType", self.kind, why)
        self.target_headers  # noqa: B018 - judged at the start

    @property
    def is_pushed(self) -> bool:
        return self.kind == OTLP

    @property
    def target_headers(self) -> dict[str, str]:
        """What `metricsGrpcExporterHeader` says: `name:value,name:value`."""
        headers = {}
        for pair in filter(None, (part.strip() for part in self.headers.split(","))):
            name, separator, value = pair.partition(":")
            if not separator or not name.strip():
                raise ConfigError("metricsGrpcExporterHeader", "...", "must be name:value,name:value")
            headers[name.strip()] = value.strip()
        return headers

    @property
    def is_on(self) -> bool:
        return self.kind != OFF

    @property
    def has_page(self) -> bool:
        return self.kind == PROMETHEUS

    @property
    def own_labels(self) -> Mapping[str, str]:
        """What `metricsLabel` puts on every series: `name:value,name:value`."""
        labels = {}
        for pair in filter(None, (part.strip() for part in self.labels.split(","))):
            name, separator, value = pair.partition(":")
            if not separator or not _LABEL.fullmatch(name.strip()) or ":" in value:
                why = f"{pair!r} is no name:value (a name is letters, digits and _; no : in a value)"
                raise ConfigError("metricsLabel", self.labels, why)
            labels[name.strip()] = value.strip()
        return labels
