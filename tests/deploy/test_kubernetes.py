"""The example for Kubernetes: its schemas take it, our own parsers take its arguments, and its parts agree."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.processes import bolide
from tests.tidy.source import ROOT

FILE = ROOT / "deploy" / "kubernetes" / "bolide.yaml"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def sets() -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in documents() if each["kind"] == "StatefulSet"}


def test_every_document_is_as_its_schema_has_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the checker's own imports
        checker = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
        version = checker.latest_version()
        assert [checker.validate(each, version, strict=True) for each in documents()]
        wrong = documents()[2]
        wrong["spec"]["replicas"] = "two"
        with pytest.raises(checker.ValidationError):
            checker.validate(wrong, version, strict=True)


@pytest.mark.parametrize("name", ["bolide-namesrv", "bolide-broker"])
def test_our_own_parser_takes_the_arguments(tmp_path: Path, name: str) -> None:
    (container,) = sets()[name]["template"]["spec"]["containers"]
    settings = tmp_path / "broker.conf"
    settings.write_text(documents()[0]["data"]["broker.conf"])
    pod = {"POD_NAME": f"{name}-0"}
    words = [re.sub(r"\$\((\w+)\)", lambda found: pod[found[1]], word) for word in container["args"]]
    words = [word.replace("/etc/bolide", str(tmp_path)).replace("/data", str(tmp_path)) for word in words]
    done = bolide(tmp_path, *words, "-p")
    assert done.returncode == 0, done.stderr
    assert "metricsExporterType=PROM" in done.stdout
    if name == "bolide-broker":
        assert "brokerName=bolide-broker-0\n" in done.stdout
        assert "brokerIP1=bolide-broker-0.bolide-broker\n" in done.stdout
        assert "fileReservedTime=48\n" in done.stdout


def test_probes_ask_pages_that_are_served_at_a_port_that_is_open() -> None:
    for spec in sets().values():
        (container,) = spec["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe, path in (("startupProbe", "/readyz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            asked = container[probe]["httpGet"]
            assert (asked["path"], ports[asked["port"]]) == (path, 5557)
        assert spec["serviceName"] in {each["metadata"]["name"] for each in documents() if each["kind"] == "Service"}
