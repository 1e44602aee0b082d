"""Metrics that are pushed, to a receiver that reads OTLP as a collector does: a real broker sends them."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from bolide import Producer
from bolide.remoting.pushing import endpoint_of
from tests.cli.processes import wait_for
from tests.e2e.up import FREE_PORTS, SMALL, running


class Collector(ThreadingHTTPServer):
    """What it was sent: the last value of each series, by name and topic."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.values: dict[tuple[str, str], Any] = {}
        self.asked: set[tuple[str, str | None]] = set()
        self.attributes: dict[str, str] = {}

    def take(self, body: bytes) -> None:
        for metric in ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics:
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points:
                labels = {each.key: each.value.string_value for each in point.attributes}
                counts = list(getattr(point, "bucket_counts", ()))
                self.values[metric.name, labels.get("topic", "")] = counts or point.as_double
                self.attributes = labels


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.add((self.path, self.headers["token"]))
        self.server.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as here:
        thread = threading.Thread(target=here.serve_forever)
        thread.start()
        yield here
        here.shutdown()
        thread.join()


@pytest.mark.feature("X20")
def test_a_broker_sends_its_numbers_to_a_collector(tmp_path: Path, collector: Collector) -> None:
    settings = {
        "metricsExporterType": "OTLP_GRPC",
        "metricsGrpcExporterTarget": f"http://127.0.0.1:{collector.server_address[1]}",
        "metricsGrpcExporterHeader": "token:hush",
        "metricGrpcExporterIntervalInMills": "50",
        "metricsExportBatchMaxDataPoints": "5",
        "metricsLabel": "env:test",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, *words) as up, Producer("p", up.namesrv) as producer:
        for _ in range(3):
            producer.send("T", b"x")
        wait_for(lambda: collector.values.get(("rocketmq_messages_in_total", "T")) == 3.0)
        wait_for(lambda: sum(collector.values.get(("rocketmq_message_size", "T"), ())) == 3)
        # One page leaves in several batches, and the last of them may still be on its way.
        wait_for(lambda: collector.values.get(("rocketmq_topic_number", ""), 0) > 0)
        assert collector.asked == {("/v1/metrics", "hush")}
        assert collector.attributes["env"] == "test"
        code, out, log = up.stop()
    assert code == 0
    assert "hush" not in out + log


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("collector:4318", "https://collector:4318/v1/metrics"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
        ("http://gate/otlp/v1/metrics", "http://gate/otlp/v1/metrics"),
    ],
)
def test_a_target_is_a_url_with_otlps_path(target: str, url: str) -> None:
    assert endpoint_of(target) == url
