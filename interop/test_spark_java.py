"""Spark at Apache's broker: the same format reads and writes its topics, batch and streaming, of both lines."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bolide
from interop.cluster import Station, java_station
from interop.release import SERVER_RELEASES
from tests.spark.conftest import spark  # noqa: F401 (a fixture)

TIMEOUT_S = 90


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp(f"spark-{request.param}"), request.param) as station:
        yield station


@pytest.fixture(scope="module")
def sent(apache: Station) -> list[bolide.Receipt]:
    """400 messages in four queues, more than a dozen pulls each."""
    apache.make_topic("SparkOrders", 4)
    with bolide.Producer("spark-pg", apache.name_servers) as producer:
        return [
            producer.send("SparkOrders", b"order %d" % n, tags="AB"[n % 2], keys=[f"o-{n}"], properties={"n": str(n)})
            for n in range(400)
        ]


def read(spark: Any, apache: Station, topic: str, **options: object) -> Any:  # noqa: F811
    reader = spark.read.format("rocketmq").option("nameServer", apache.name_servers).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def bodies(frame: Any) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


@pytest.mark.feature("D13")
def test_a_topic_of_apaches_broker_is_read_by_offsets_times_and_tags(
    spark: Any,  # noqa: F811
    apache: Station,
    sent: list[bolide.Receipt],
) -> None:
    rows = {bytes(row.body).decode(): row for row in read(spark, apache, "SparkOrders").collect()}
    assert sorted(rows) == sorted(f"order {n}" for n in range(400))
    for n, receipt in enumerate(sent):
        row = rows[f"order {n}"]
        assert (row.queue_id, row.queue_offset, row.msg_id) == (
            receipt.queue.queue_id,
            receipt.queue_offset,
            receipt.msg_id,
        )
        assert (row.tags, row.keys, row.properties["n"]) == ("AB"[n % 2], f"o-{n}", str(n))
    chosen = read(spark, apache, "SparkOrders", subExpression="B")
    assert bodies(chosen) == sorted(f"order {n}" for n in range(400) if n % 2)
    times = {name: round(row.store_ts.timestamp() * 1000) for name, row in rows.items()}
    middle_ms = sorted(times.values())[200]
    later = read(spark, apache, "SparkOrders", startingTimestamp=middle_ms, minPartitions=6)
    assert bodies(later) == sorted(name for name, at_ms in times.items() if at_ms >= middle_ms)
    earlier = read(spark, apache, "SparkOrders", endingTimestamp=middle_ms)
    assert bodies(earlier) == sorted(name for name, at_ms in times.items() if at_ms < middle_ms)


@pytest.mark.feature("D13")
def test_a_stream_reads_apaches_topic_in_steps_and_goes_on_where_it_was(
    spark: Any,  # noqa: F811
    apache: Station,
    tmp_path: Path,
) -> None:
    apache.make_topic("SparkStream", 2)

    def send(first: int, count: int) -> None:
        with bolide.Producer("spark-pg", apache.name_servers) as producer:
            for n in range(first, first + count):
                producer.send("SparkStream", b"%d" % n)

    def run() -> None:
        reader = spark.readStream.format("bolide").option("bolide.bootstrap.servers", apache.name_servers)
        reader = reader.option("subscribe", "SparkStream").option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", 60).option("group", "spark-cg").load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)

    for first, count in ((0, 100), (100, 50)):
        send(first, count)
        run()
        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        assert Counter(int(bytes(row.body)) for row in rows) == Counter(range(first + count))


@pytest.mark.feature("D13")
def test_rows_become_messages_of_apaches_broker(spark: Any, apache: Station) -> None:  # noqa: F811
    apache.make_topic("SparkSink", 3)
    frame = spark.sql(
        "SELECT string(id) AS body, concat('T', id % 2) AS tags, array(concat('k', id)) AS keys, "
        "map('p', string(id)) AS properties FROM range(0, 300, 1, 2)"
    )
    writer = frame.write.format("bolide").mode("append").option("bolide.bootstrap.servers", apache.name_servers)
    writer.option("topic", "SparkSink").save()
    rows = read(spark, apache, "SparkSink").collect()
    assert Counter(int(bytes(row.body)) for row in rows) == Counter(range(300))
    assert all(
        row.properties["p"] == bytes(row.body).decode() and row.keys == f"k{row.properties['p']}" for row in rows
    )
    with pytest.raises(Exception, match="is no Bolide broker"):
        writer.option("topic", "SparkSink").option("deliveryGuarantee", "exactly-once").save()
