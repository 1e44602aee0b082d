"""The examples with Spark, run as they are."""

import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType

import pytest

import bolide
from tests.tidy.source import ROOT

LIMIT_S = 240


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def topic_bodies(spark, namesrv: str, topic: str) -> list[dict]:
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", namesrv).option("subscribe", topic)
    return [json.loads(bytes(row.body)) for row in reader.load().select("body").collect()]


@pytest.mark.feature("D03", "D04")
def test_revenue_per_minute_goes_into_a_topic_and_into_files(spark, rocket, tmp_path) -> None:
    example = loaded("spark_revenue")
    rocket.create_topic(example.ORDERS, 4)
    rocket.create_topic(example.REVENUE, 1)
    example.send_orders(rocket.namesrv)
    for query in example.start(spark, rocket.namesrv, tmp_path, is_once=True):
        assert query.awaitTermination(LIMIT_S)
    rows = spark.read.parquet(str(tmp_path / "revenue")).orderBy("minute").collect()
    assert [(row.minute.minute, row.revenue, row.orders) for row in rows] == [(0, 100, 20), (1, 100, 20), (2, 100, 20)]
    found = topic_bodies(spark, rocket.namesrv, example.REVENUE)
    assert sorted((each["minute"], each["revenue"]) for each in found) == [
        (f"2026-01-01T10:0{minute}:00.000Z", 100) for minute in range(3)
    ]


@pytest.mark.feature("D12")
def test_a_declared_pipeline_reads_a_topic_and_writes_another(spark, rocket, tmp_path) -> None:
    rocket.create_topic("PipelineOrders", 2)
    rocket.create_topic("PipelineLarge", 2)
    with bolide.Producer("pipeline-pg", rocket.namesrv) as producer:
        for number in range(30):
            order = {"item": "tea" if number % 3 else "pot", "amount": 10 * number}
            producer.send("PipelineOrders", json.dumps(order).encode(), keys=[f"o-{number}"])
    command = [sys.executable, str(ROOT / "examples" / "pipeline" / "run.py"), "--work", str(tmp_path)]
    environment = {**os.environ, "NAMESRV_ADDR": rocket.namesrv, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = spark.read.parquet(str(tmp_path / "warehouse" / "revenue")).collect()
    assert {row.item: (row.revenue, row.n) for row in rows} == {"tea": (3000.0, 20), "pot": (1350.0, 10)}
    large = topic_bodies(spark, rocket.namesrv, "PipelineLarge")
    assert sorted(each["amount"] for each in large) == [10.0 * number for number in range(10, 30)]
