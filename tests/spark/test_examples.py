"""The examples with Spark, run as they are."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

import bolide
from bolide.spark import options
from bolide.spark.schema import COLUMNS
from bolide.testing import cluster
from tests.spark.conftest import TEST_SETTINGS
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
    for query in example.start(spark, rocket.namesrv, rocket.brokers[0].name, tmp_path, is_once=True):
        assert query.awaitTermination(LIMIT_S)
    rows = spark.read.parquet(str(tmp_path / "revenue")).orderBy("minute").collect()
    assert [(row.minute.minute, row.revenue, row.orders) for row in rows] == [(0, 100, 20), (1, 100, 20), (2, 100, 20)]
    found = topic_bodies(spark, rocket.namesrv, example.REVENUE)
    assert sorted((each["minute"], each["revenue"]) for each in found) == [
        (f"2026-01-01T10:0{minute}:00.000Z", 100) for minute in range(3)
    ]


def run_pipeline(namesrv: str, work: Path, *words: str) -> None:
    """30 orders, and the pipeline over them."""
    with bolide.Producer("pipeline-pg", namesrv) as producer:
        for number in range(30):
            order = {"item": "tea" if number % 3 else "pot", "amount": 10 * number}
            producer.send("PipelineOrders", json.dumps(order).encode(), keys=[f"o-{number}"])
    command = [sys.executable, str(ROOT / "examples" / "pipeline" / "run.py"), "--work", str(work), *words]
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": str(ROOT / "src")}
    environment["JDK_JAVA_OPTIONS"] = TEST_SETTINGS["spark.driver.extraJavaOptions"]
    environment["SPARK_TESTING"] = "1"  # Spark Connect takes a free port then, and not always the same
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.feature("D12")
def test_a_declared_pipeline_reads_a_topic_and_writes_another(spark, connect, rocket, tmp_path) -> None:
    rocket.create_topic("PipelineOrders", 2)
    rocket.create_topic("PipelineLarge", 2)
    run_pipeline(rocket.namesrv, tmp_path, "--remote", connect)
    try:
        rows = spark.table("revenue").collect()
    finally:
        for table in ("orders", "revenue"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
    assert {row.item: (row.revenue, row.n) for row in rows} == {"tea": (3000.0, 20), "pot": (1350.0, 10)}
    large = topic_bodies(spark, rocket.namesrv, "PipelineLarge")
    assert sorted(each["amount"] for each in large) == [10.0 * number for number in range(10, 30)]


@pytest.mark.soak
def test_a_declared_pipeline_starts_its_own_spark_and_goes_on_where_it_was(tmp_path) -> None:
    with cluster(processes=True) as rocket:
        rocket.create_topic("PipelineOrders", 2)
        rocket.create_topic("PipelineLarge", 2)
        for runs in (1, 2):
            run_pipeline(rocket.namesrv, tmp_path)
            table = pq.read_table(tmp_path / "warehouse" / "revenue")
            found = {row["item"]: (row["revenue"], row["n"]) for row in table.to_pylist()}
            assert found == {"tea": (3000.0 * runs, 20 * runs), "pot": (1350.0 * runs, 10 * runs)}


PAGE = (ROOT / "docs" / "spark.md").read_text("utf-8")


@pytest.mark.feature("D01")
def test_the_program_of_the_page_runs_and_copies_what_it_says(spark, rocket, capsys) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program.replace('"127.0.0.1:9876"', repr(rocket.namesrv)), "docs/spark.md", "exec"), {})
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
    copies = reader.option("subscribe", "Copies").load()
    originals = reader.option("subscribe", "Orders").load().where("queue_id < 2")
    assert {row.keys for row in copies.collect()} == {row.keys for row in originals.collect()}
    assert {row.tags for row in copies.collect()} == {"copy"}
    assert "new" in capsys.readouterr().out


def test_the_program_of_the_readme_counts_by_tag(spark, rocket, capsys) -> None:
    _, program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    with bolide.Producer("readme", rocket.namesrv) as producer:
        producer.send("Orders", b"two teas", tags="readme")
    exec(compile(program.replace('"127.0.0.1:9876"', repr(rocket.namesrv)), "README.md", "exec"), {})
    assert "readme" in capsys.readouterr().out


def test_the_page_names_the_options_and_columns_that_there_are() -> None:
    known = {name for names in (options._SHARED, options._SOURCE, options._SINK) for name in names}
    known |= {alias for names in (options._SHARED, options._SOURCE) for aliases in names.values() for alias in aliases}
    rows = re.findall(r"^\| (`.*?) \| .* \|$", PAGE.split("## Options of the source")[1], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert named - known == set()
    quiet = {
        "checkpointLocation",
        "path",
        "queryName",
        "requestTimeoutMs",
        "pullBatchSize",
    }  # Spark's, or not for users
    assert {*options._SOURCE, *options._SINK} - named - quiet == set()
    columns = re.findall(r"^\| (`.*?) \|", PAGE.split("## Columns")[1].split("## Options")[0], re.MULTILINE)
    assert {name for row in columns for name in re.findall(r"`(\w+)`", row)} == set(COLUMNS)


def test_every_link_of_the_page_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if not link.startswith("http")]
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []
