"""The benchmarks of the room run small, so that none rots."""

import json

from benchmarks import columns, rows, spark_store


def test_the_columns_benchmark_tells_its_rate(capsys):
    answer = columns.main(["--count", "3000", "--runs", "1", "--columns", "all"])
    assert answer.median > 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unit"] == "records/s"


def test_the_rows_benchmark_tells_its_rate(capsys):
    answer = rows.main(["--count", "3000", "--runs", "1", "--columns", "copy"])
    assert answer.median > 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unit"] == "rows/s"


def test_the_store_benchmark_asks_every_question(spark, capsys):
    answer = spark_store.main(["--count", "3000", "--runs", "1", "--body", "20"])
    assert len(answer["rows"]) == 6
    assert all(row["best"] > 0 for row in answer["rows"].values())
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == answer["rows"]
