"""`bolide lake replay`: what was sent is sent again as it was, where it is wanted, and no faster than allowed."""

import json
from uuid import uuid4

import pyarrow as pa
import pytest
from click.testing import CliRunner

import bolide
from bolide.cli.lake import app
from bolide.errors import ConfigError
from bolide.spark.columns import EVERYTHING
from bolide.spark.jobs.export import export
from bolide.spark.jobs.frames import Where
from bolide.spark.jobs.replay import paced, replay
from bolide.spark.jobs.sources import StoreFiles
from tests.cli.processes import until_routed
from tests.store.given import START_MS, HeldClock, draft, opened, small


@pytest.fixture
def stored(tmp_path):
    root, clock = tmp_path / "store", HeldClock()
    with opened(small(root), clock) as store:
        for i in range(40):
            labels = {
                "TAGS": f"t{i % 3}",
                "KEYS": f"k{i}",
                "UNIQ_KEY": f"U{i}",
                "region": "eu",
                "__SHARDINGKEY": f"s{i % 2}",
            }
            store.append([draft(b"body %d" % i, "Orders", i % 2, **labels)])
            clock.ms += 1000
    return root


def read(spark, rocket, topic):
    until_routed(rocket.namesrv, topic)
    options = {"bolide.bootstrap.servers": rocket.namesrv, "subscribe": topic}
    return spark.read.format("bolide").options(**options).load().collect()


def told(rows):
    return sorted((bytes(row.body), row.tags, row["keys"], row.properties["region"]) for row in rows)


def a_topic(name):
    return f"{name}{uuid4().hex[:8]}"


@pytest.mark.feature("D08")
def test_a_replay_from_parquet_brings_back_bodies_tags_and_keys(spark, rocket, stored, tmp_path):
    lake, topic = tmp_path / "lake", a_topic("Back")
    export(spark, StoreFiles([str(stored)], EVERYTHING), lake)
    words = ["replay", "--lake", str(lake), "--to", topic, "-n", rocket.namesrv, "-o", "json", "Orders"]
    dry = CliRunner().invoke(app, [*words, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert json.loads(dry.stdout) == [{"from": "Orders", "to": topic, "messages": 40}]
    assert CliRunner().invoke(app, words).exit_code == 0
    rows = read(spark, rocket, topic)
    assert told(rows) == sorted((b"body %d" % i, f"t{i % 3}", f"k{i}", "eu") for i in range(40))
    # What was in one shard is in one queue again, in its order.
    by_queue = {}
    for row in sorted(rows, key=lambda row: (row.queue_id, row.queue_offset)):
        by_queue.setdefault(row.properties["__SHARDINGKEY"], []).append((row.queue_id, int(bytes(row.body).split()[1])))
    for places in by_queue.values():
        assert len({queue_id for queue_id, _ in places}) == 1
        assert [number for _, number in places] == sorted(number for _, number in places)


@pytest.mark.feature("D08")
def test_a_time_range_is_replayed(spark, rocket, stored):
    topic = a_topic("Range")
    where = Where(stores=[str(stored)], topics=["Orders"], from_ms=START_MS + 10_000, until_ms=START_MS + 20_000)
    done = replay(spark, where, {"bolide.bootstrap.servers": rocket.namesrv}, to=topic)
    assert done.routes == {("Orders", topic): 10}
    assert sorted(int(bytes(row.body).split()[1]) for row in read(spark, rocket, topic)) == list(range(10, 20))


@pytest.mark.feature("D08")
def test_dead_letters_go_back_where_they_came_from(spark, rocket):
    topic, group = a_topic("Dead"), f"g{uuid4().hex[:8]}"
    with bolide.Producer("dead", rocket.namesrv) as producer:
        for i in range(5):
            producer.send(topic, b"%d" % i, tags="red", keys=f"k{i}")
    with bolide.Consumer(group, [topic], rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        for _, message in zip(range(5), consumer, strict=False):
            message.dead_letter("cannot be read")
    words = ["replay", "--dead-letters", group, "-n", rocket.namesrv, "-o", "json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == [{"from": f"%DLQ%{group}", "to": topic, "messages": 5}]
    rows = read(spark, rocket, topic)
    assert sorted((bytes(row.body), row.tags, row["keys"]) for row in rows) == sorted(
        (b"%d" % i, "red", f"k{i}") for i in [*range(5), *range(5)]
    )


@pytest.mark.feature("D08")
def test_a_replay_that_is_to_be_exact_may_name_its_broker(spark, rocket, stored):
    topic = a_topic("Exact")
    words = ["replay", "--store", str(stored), "--to", topic, "-n", rocket.namesrv, "-o", "json", "Orders"]
    without = CliRunner().invoke(app, [*words, "--broker", "broker-a"])
    assert without.exit_code == 2
    assert "only --exactly-once sends to one broker" in without.output
    rocket.create_topic(topic, 2)
    done = CliRunner().invoke(app, [*words, "--exactly-once", "--broker", rocket.brokers[0].name])
    assert done.exit_code == 0, done.output
    assert len(read(spark, rocket, topic)) == 40


def test_rows_pass_no_faster_than_the_rate():
    clock = HeldClock(0)
    passed = []

    def sleep(seconds):
        clock.ms += round(seconds * 1000)

    batch = pa.RecordBatch.from_pydict({"n": list(range(100))})
    for part in paced(iter([batch, batch]), 50, clock, sleep):
        passed += [clock.ms] * part.num_rows
    assert len(passed) == 200
    assert all(at_ms >= (number // 5 * 5) * 1000 / 50 for number, at_ms in enumerate(passed))
    assert passed[-1] == 3900


def test_a_replay_onto_itself_and_without_a_source_is_refused(spark):
    cluster = {"bolide.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="would be sent to itself"):
        replay(spark, Where(cluster=cluster, topics=["Orders"]), cluster)
    with pytest.raises(ConfigError, match="name one"):
        Where()
    with pytest.raises(ConfigError, match="more than 0"):
        replay(spark, Where(cluster=cluster, topics=["Orders"]), cluster, rate=0)
