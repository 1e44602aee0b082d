"""`bolide lake export`: every message once in the lake, however often and however badly a run ended."""

import json
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

import bolide
from bolide.cli.lake import app
from bolide.errors import ConfigError, StoreError
from bolide.spark.columns import EVERYTHING
from bolide.spark.jobs import manifest
from bolide.spark.jobs.export import export
from bolide.spark.jobs.manifest import Lake, move
from bolide.spark.jobs.sources import StoreFiles
from tests.cli.processes import until_routed
from tests.store.given import START_MS, HeldClock, draft, opened, small

DAY_MS = 86_400_000


@pytest.fixture
def stored(tmp_path):
    """A store to which more can be written, and what was."""
    return Written(tmp_path / "store")


class Written:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = HeldClock(START_MS // DAY_MS * DAY_MS)
        self.bodies: list[bytes] = []

    def more(self, count, topics=("Orders", "%RETRY%shop"), step_ms=1000):
        with opened(small(self.root), self.clock) as store:
            for _ in range(count):
                body = b"body %d" % len(self.bodies)
                topic = topics[len(self.bodies) % len(topics)]
                store.append([draft(body, topic, len(self.bodies) % 3, TAGS="red", KEYS=f"k{len(self.bodies)}")])
                self.bodies.append(body)
                self.clock.ms += step_ms

    def source(self):
        return StoreFiles([str(self.root)], EVERYTHING, "broker-a")


class Failing(StoreFiles):
    """A source whose second half cannot be read."""

    def read(self, piece):
        rows = list(super().read(piece))
        yield from rows[: len(rows) // 2 + 1]
        raise OSError("the disk went away")


def lake_rows(root):
    table = ds.dataset(root, partitioning="hive", format="parquet").to_table(["topic", "date", "body", "keys", "tags"])
    return table.to_pylist()


def bodies(root):
    return sorted(row["body"] for row in lake_rows(root))


@pytest.mark.feature("D07")
def test_a_second_run_adds_only_what_is_new(spark, stored, tmp_path):
    lake = tmp_path / "lake"
    stored.more(60, step_ms=3_600_000)  # two days and a half
    first = export(spark, stored.source(), lake, topics=["Orders", "%RETRY%shop"])
    assert first.message_count == 60
    assert bodies(lake) == sorted(stored.bodies)
    assert export(spark, stored.source(), lake, topics=["Orders", "%RETRY%shop"]).message_count == 0
    stored.more(7)
    assert export(spark, stored.source(), lake, topics=["Orders", "%RETRY%shop"]).message_count == 7
    assert bodies(lake) == sorted(stored.bodies)
    days = {date for _, date in first.topics}
    assert len(days) == 3
    assert {path.name for path in (lake / "topic=Orders").iterdir()} == {f"date={day}" for day in days}
    # Spark reads it as it lies, names and all.
    found = spark.read.parquet(str(lake)).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in found} == {"Orders": 34, "%RETRY%shop": 33}
    assert {row["tags"] for row in lake_rows(lake)} == {"red"}


@pytest.mark.feature("D07")
def test_a_run_that_failed_in_the_middle_leaves_nothing_and_is_done_again(spark, stored, tmp_path):
    from pyspark.errors import PythonException

    lake = tmp_path / "lake"
    stored.more(50, ["Orders"])
    with pytest.raises(PythonException, match="the disk went away"):
        export(spark, Failing([str(stored.root)], EVERYTHING), lake)
    assert not list(lake.glob("topic=*"))
    assert export(spark, stored.source(), lake).message_count == 50
    assert bodies(lake) == sorted(stored.bodies)
    assert not Lake(lake).staging.exists()


@pytest.mark.feature("D07")
def test_a_run_that_died_while_its_files_moved_is_completed_by_the_next(spark, stored, tmp_path, monkeypatch):
    lake = tmp_path / "lake"
    stored.more(60, ["A", "B", "C"])
    moved = Counter()

    def dies(source, target):
        if moved["files"] == 1:
            raise KeyboardInterrupt
        moved["files"] += 1
        move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "move", dies)
        with pytest.raises(KeyboardInterrupt):
            export(spark, stored.source(), lake)
    assert len(list(lake.glob("topic=*/*/*"))) == 1
    assert export(spark, stored.source(), lake).message_count == 0
    assert bodies(lake) == sorted(stored.bodies)


def test_two_exports_into_one_lake_do_not_run_at_a_time(spark, stored, tmp_path):
    stored.more(1)
    with Lake(tmp_path / "lake").held(), pytest.raises(StoreError, match="another export is writing"):
        export(spark, stored.source(), tmp_path / "lake")


def test_without_names_the_users_own_topics_are_exported(spark, stored, tmp_path):
    stored.more(40, ["Orders", "%RETRY%shop", "SCHEDULE_TOPIC_XXXX", "%DLQ%shop"])
    assert {topic for topic, _ in export(spark, stored.source(), tmp_path / "lake").topics} == {"Orders"}
    with pytest.raises(ConfigError, match="may be zstd, snappy, none"):
        export(spark, stored.source(), tmp_path / "lake", compression="rar")


@pytest.mark.feature("D07")
def test_another_choice_of_topics_adds_only_what_is_new_to_the_lake(spark, stored, tmp_path):
    lake = tmp_path / "lake"
    stored.more(30, ["A", "B", "%RETRY%shop"])
    for topics, count in (["A"], 10), (["A", "B"], 10), ([], 0), (["B"], 0):
        assert export(spark, stored.source(), lake, topics=topics).message_count == count
    stored.more(30, ["A", "B", "%RETRY%shop"])
    for topics, count in (["B"], 10), ([], 10), (["A"], 0), (["A", "%RETRY%shop"], 20):
        assert export(spark, stored.source(), lake, topics=topics).message_count == count
    assert bodies(lake) == sorted(stored.bodies)


def test_a_lake_of_another_form_is_refused_and_not_filled_twice(spark, stored, tmp_path):
    stored.more(1)
    (tmp_path / "lake" / "_bolide").mkdir(parents=True)
    (tmp_path / "lake" / "_bolide" / "manifest.json").write_text('{"v": 1, "runs": 1, "sources": {}}')
    with pytest.raises(ConfigError, match="has form 1"):
        export(spark, stored.source(), tmp_path / "lake")


def test_what_expired_between_two_runs_is_told(spark, stored, tmp_path):
    stored.more(10, ["Orders"])
    export(spark, stored.source(), tmp_path / "lake")
    stored.more(400, ["Orders"])
    oldest, second, *_ = sorted((stored.root / "commitlog").iterdir())
    oldest.unlink()
    second.unlink()
    later = export(spark, stored.source(), tmp_path / "lake")
    assert later.missed > 0
    assert 0 < later.message_count < 400


@pytest.mark.feature("D07")
def test_topics_are_exported_through_the_brokers_too(spark, rocket, tmp_path):
    topic = f"Export{uuid4().hex[:8]}"
    runner, lake = CliRunner(), tmp_path / "lake"
    words = ["export", topic, "--to", str(lake), "-n", rocket.namesrv, "-o", "json"]
    sent = []

    def send(count):
        with bolide.Producer("export", rocket.namesrv) as producer:
            for _ in range(count):
                body = b"%d" % len(sent)
                producer.send(topic, body, tags="red", keys=f"k{len(sent)}")
                sent.append(body)
        until_routed(rocket.namesrv, topic)

    send(30)
    dry = runner.invoke(app, [*words, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert sum(row["messages"] for row in json.loads(dry.stdout)) == 30
    assert not list(lake.glob("topic=*"))
    assert sum(row["messages"] for row in json.loads(runner.invoke(app, words).stdout)) == 30
    send(5)
    assert sum(row["messages"] for row in json.loads(runner.invoke(app, words).stdout)) == 5
    assert json.loads(runner.invoke(app, words).stdout) == []
    other = f"Export{uuid4().hex[:8]}"
    with bolide.Producer("export", rocket.namesrv) as producer:
        producer.send(other, b"new here")
    until_routed(rocket.namesrv, other)
    added = json.loads(runner.invoke(app, [*words, other]).stdout)
    assert [(row["topic"], row["messages"]) for row in added] == [(other, 1)]
    with bolide.Admin(rocket.namesrv) as admin:
        admin.delete_topic(other)
    send(1)
    assert sum(row["messages"] for row in json.loads(runner.invoke(app, words).stdout)) == 1
    assert bodies(lake) == sorted([*sent, b"new here"])
