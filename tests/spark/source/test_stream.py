"""The streaming source: every message once, whatever happens in between."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import bolide
from bolide.model.queue import MessageQueue
from bolide.spark.options import source_options
from bolide.spark.source import offsets
from bolide.spark.source.offsets import Range
from bolide.spark.source.reader import Task
from bolide.spark.source.stream import StreamReader
from bolide.testing import cluster

LIMIT_S = 60.0


def stream(spark, namesrv: str, **options: object):
    reader = spark.readStream.format("bolide").option("bolide.bootstrap.servers", namesrv)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def send(namesrv: str, topic: str, first: int, count: int) -> None:
    with bolide.Producer("stream-pg", namesrv) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number)


def run_to_end(frame, directory: Path) -> list[dict]:
    """Run a query over all that is there, into Parquet; returns its progress."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.option("path", str(directory / "rows")).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S), "the query did not end"
    return [json.loads(each.json) for each in query.recentProgress]


def rows(spark, directory: Path) -> list[int]:
    return sorted(int(bytes(row.body)) for row in spark.read.parquet(str(directory / "rows")).collect())


def ranges_of(reader: StreamReader, start: offsets.Document, end: offsets.Document) -> list[Range]:
    return [each for task in reader.partitions(start, end) if isinstance(task, Task) for each in task.ranges]


@pytest.mark.feature("D03")
def test_available_now_reads_what_is_there_in_limited_steps_and_goes_on_where_it_was(spark, rocket, tmp_path) -> None:
    rocket.create_topic("StreamNow", 3)
    send(rocket.namesrv, "StreamNow", 0, 100)
    frame = stream(spark, rocket.namesrv, subscribe="StreamNow", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    progress = run_to_end(frame, tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [40, 40, 20]
    assert rows(spark, tmp_path) == list(range(100))
    send(rocket.namesrv, "StreamNow", 100, 30)
    run_to_end(frame, tmp_path)
    assert rows(spark, tmp_path) == list(range(130))


@pytest.mark.feature("D03")
def test_a_query_that_begins_at_the_end_skips_nothing_however_late_it_is_asked(rocket) -> None:
    rocket.create_topic("StreamPinned", 2)
    send(rocket.namesrv, "StreamPinned", 0, 10)
    given = {"nameServer": rocket.namesrv, "subscribe": "StreamPinned", "pollTimeoutMs": "0"}

    def rows_of(reader, start, end) -> int:
        return sum(each.row_count for each in ranges_of(reader, start, end))

    first = StreamReader(source_options(given), StructType())
    start = first.initialOffset()
    pinned = first.latestOffset(start, first.getDefaultReadLimit())
    assert pinned != start, "an empty first batch pins where the query began"
    assert rows_of(first, start, pinned) == 0
    assert first.latestOffset(pinned, first.getDefaultReadLimit()) == pinned
    send(rocket.namesrv, "StreamPinned", 10, 5)
    assert first.initialOffset() == start, "asked again, it gives what it gave"
    end = first.latestOffset(start, first.getDefaultReadLimit())
    first.stop()

    # The process dies before batch 0 is done; the next one is asked for another beginning, and reads the same rows.
    second = StreamReader(source_options(given), StructType())
    moved = second.initialOffset()
    assert moved != start
    assert rows_of(second, moved, json.loads(json.dumps(end))) == 5
    assert second.reportLatestOffset() is None
    second.latestOffset(end, second.getDefaultReadLimit())
    assert second.reportLatestOffset() == offsets.write(offsets.read(end))
    second.stop()


@pytest.mark.feature("D03")
def test_new_queues_and_brokers_are_read_from_their_first_message(rocket) -> None:
    rocket.create_topic("StreamGrows", 1)
    reader = StreamReader(
        source_options(
            {"nameServer": rocket.namesrv, "subscribe": "StreamGrows", "routeIntervalMs": "0", "pollTimeoutMs": "0"}
        ),
        StructType(),
    )
    start = reader.initialOffset()
    pinned = reader.latestOffset(start, reader.getDefaultReadLimit())
    rocket.create_topic("StreamGrows", 3)
    with bolide.Producer("stream-pg", rocket.namesrv) as producer:
        for queue_id in range(3):
            producer.send("StreamGrows", b"x", queue=bolide.MessageQueue("StreamGrows", "broker-0", queue_id))
    end = reader.latestOffset(pinned, reader.getDefaultReadLimit())
    assert offsets.read(end) == {MessageQueue("StreamGrows", "broker-0", queue_id): 1 for queue_id in range(3)}
    ranges = ranges_of(reader, pinned, end)
    assert [(each.queue.queue_id, each.first, each.end) for each in ranges] == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    reader.stop()


@pytest.mark.feature("D03")
def test_an_idle_query_waits_at_the_broker_and_a_message_ends_the_wait(rocket) -> None:
    rocket.create_topic("StreamIdle", 2)
    given = {"nameServer": rocket.namesrv, "subscribe": "StreamIdle", "pollTimeoutMs": "30000"}
    reader = StreamReader(source_options(given), StructType())
    start = reader.initialOffset()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(reader.latestOffset, start, reader.getDefaultReadLimit())
        send(rocket.namesrv, "StreamIdle", 0, 1)
        end = asked.result(15)  # half of the wait
    assert end != start
    reader.stop()


@pytest.mark.feature("D03")
def test_a_running_query_shows_its_lag_and_its_progress_to_operators(spark, rocket, tmp_path) -> None:
    rocket.create_topic("StreamLag", 2)
    send(rocket.namesrv, "StreamLag", 0, 60)
    frame = stream(
        spark,
        rocket.namesrv,
        subscribe="StreamLag",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=20,
        group="StreamLagGroup",
    )
    progress = run_to_end(frame, tmp_path)
    first = next(each for each in progress if each["numInputRows"])["sources"][0]
    # Spark gives them as texts of JSON, or as what the texts say.
    end, latest = (
        each if isinstance(each, dict) else json.loads(each) for each in (first["endOffset"], first["latestOffset"])
    )
    lag = {queue: offset - offsets.read(end)[queue] for queue, offset in offsets.read(latest).items()}
    assert sum(lag.values()) == 40
    with bolide.Admin(rocket.namesrv) as admin:
        rows = admin.group_progress("StreamLagGroup")
    # The last batch is told with the next one, which there is none of.
    assert sum(row.consumer_offset for row in rows) == 40


@pytest.mark.feature("D03")
def test_a_new_broker_is_read_from_its_first_message_and_one_that_is_away_holds_up_nobody() -> None:
    with cluster() as own:
        own.create_topic("Grows", 1)
        given = {"nameServer": own.namesrv, "subscribe": "Grows", "routeIntervalMs": "0", "pollTimeoutMs": "0"}
        reader = StreamReader(source_options(given), StructType())
        pinned = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        own.add_broker("second")
        own.create_topic("Grows", 1)
        with bolide.Producer("stream-pg", own.namesrv) as producer:
            for name in ("broker-0", "second"):
                producer.send("Grows", b"x", queue=bolide.MessageQueue("Grows", name, 0))
        end = reader.latestOffset(pinned, reader.getDefaultReadLimit())
        assert [(each.queue.broker_name, each.first, each.end) for each in ranges_of(reader, pinned, end)] == [
            ("broker-0", 0, 1),
            ("second", 0, 1),
        ]
        own.brokers[1].kill()
        with bolide.Producer("stream-pg", own.namesrv) as producer:
            producer.send("Grows", b"y", queue=bolide.MessageQueue("Grows", "broker-0", 0))
        later = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert offsets.read(later) == {MessageQueue("Grows", "broker-0", 0): 2, MessageQueue("Grows", "second", 0): 1}
        reader.stop()


@pytest.mark.feature("D03")
def test_a_limit_of_bytes_is_kept_about(rocket) -> None:
    rocket.create_topic("StreamBytes", 2)
    with bolide.Producer("stream-pg", rocket.namesrv) as producer:
        for _ in range(200):
            producer.send("StreamBytes", b"x" * 900)
    given = {"nameServer": rocket.namesrv, "subscribe": "StreamBytes", "startingOffsets": "earliest"}
    reader = StreamReader(source_options(given | {"maxBytesPerTrigger": "100000"}), StructType())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert 80 <= sum(each.row_count for each in ranges_of(reader, start, end)) <= 111
    reader.stop()
