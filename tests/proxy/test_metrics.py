"""What a proxy shows of itself, as a process: Prometheus asks it like any server."""

import urllib.request
from pathlib import Path

from tests.e2e.up import FREE_PORTS, SMALL, running


def test_a_proxy_says_that_it_is_up_under_apaches_name(tmp_path: Path) -> None:
    there = tmp_path / "proxy"
    there.mkdir()
    shown = ("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0")
    place = ("--host", "127.0.0.1", "--port", "0")
    with (
        running(tmp_path, "up", *FREE_PORTS, *SMALL) as up,
        running(there, "proxy", *place, "-n", up.namesrv, *shown) as proxy,
    ):
        with urllib.request.urlopen(proxy.ready["metrics"], timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [line for line in lines if line.startswith("rocketmq_proxy_up{")]
        assert 'cluster="DefaultCluster"' in line
        assert 'node_type="proxy",proxy_mode="cluster"' in line
        assert line.endswith("} 1.0")
        assert any(line.startswith("bolide_proxy_clients{") and line.endswith("} 0.0") for line in lines)
        assert proxy.stop()[0] == 0
