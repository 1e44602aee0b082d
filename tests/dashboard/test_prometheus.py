"""Charts from a Prometheus: what is asked of it, and what is shown when it is silent."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.prometheus import queries
from bolide.errors import ConfigError
from bolide.testing.blocking import Cluster
from tests.dashboard.site import site


class _Prometheus(BaseHTTPRequestHandler):
    """Answers every question with two points, the second of which only the first line of a chart has."""

    asked: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        fields = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.asked.append(fields)
        at = int(fields["start"])
        values = [[at, "1.5"], [at + 15, "7"]] if "in_total" in fields["query"] else [[at, "NaN"]]
        body = json.dumps({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def prometheus() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_chart_has_the_lines_of_a_prometheus(rocket: Cluster, prometheus: str) -> None:
    rocket.create_topic("Charted", 1)
    with site(rocket.namesrv, prometheus=prometheus + "/") as pages:
        pages.wait_for("/topics", lambda text: "Charted" in text)
        told = pages.rows("/history/topic", name="Charted", span="1h")
        assert told["names"] == ["time", "in/s", "out/s"]
        assert told["columns"][1:] == [[1.5, 7], [None, None]]
        assert told["note"] == ""
        assert {fields["step"] for fields in _Prometheus.asked} == {"15"}
        assert all('topic="Charted"' in fields["query"] for fields in _Prometheus.asked)


def test_what_was_seen_since_the_start_is_shown_where_prometheus_is_silent(rocket: Cluster) -> None:
    with site(rocket.namesrv, prometheus="http://127.0.0.1:1") as pages:
        told = pages.rows("/history/cluster", span="6h")
        assert "127.0.0.1:1 does not answer" in told["note"]
        assert "since this dashboard runs" in told["note"]


def test_a_name_cannot_leave_its_quotes() -> None:
    (behind, *_) = queries("group", 'a"} or vector(1) #\\\n', "c", "24h")
    assert behind == 'sum(rocketmq_consumer_lag_messages{cluster="c",consumer_group="a\\"} or vector(1) #\\\\\\n"})'


def test_another_scheme_than_http_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://127"):
        DashboardConfig(namesrv="x:1", prometheus="file:///etc/passwd")
