"""The sink: rows become messages, none is lost, and a repetition can be told."""

import time
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType, TimestampType

import bolide
from bolide.errors import ClientError, ConfigError
from bolide.protocol.staging import IDENTITY
from bolide.spark.options import sink_options, source_options
from bolide.spark.sink.staging import chosen_broker
from bolide.spark.sink.writer import BatchWriter, StreamWriter, Written, publish_all, write_rows
from bolide.spark.source.reader import BatchReader
from bolide.testing import cluster


def sink(frame, namesrv: str, **options: object):
    writer = frame.write.format("bolide").mode("append").option("bolide.bootstrap.servers", namesrv)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer


def messages(spark, namesrv: str, topic: str) -> list:
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", namesrv).option("subscribe", topic)
    return reader.load().collect()


@pytest.mark.feature("D04")
def test_a_row_becomes_a_message_with_all_it_says(spark, rocket) -> None:
    rocket.create_topic("SinkRows", 4)
    frame = spark.sql(
        """
        SELECT 'SinkRows' AS topic, concat('row ', id) AS body, concat('T', id % 3) AS tags,
               array(concat('k', id), concat('j', id)) AS keys, map('n', string(id)) AS properties,
               concat('shard-', id % 7) AS shard
        FROM range(0, 500, 1, 3)
        """
    )
    sink(frame, rocket.namesrv).save()
    found = messages(spark, rocket.namesrv, "SinkRows")
    assert sorted(bytes(row.body).decode() for row in found) == sorted(f"row {n}" for n in range(500))
    queues: dict[int, set[int]] = {}
    for row in found:
        number = int(bytes(row.body)[4:])
        assert (row.tags, row.keys) == (f"T{number % 3}", f"k{number} j{number}")
        assert row.properties["n"] == str(number)
        queues.setdefault(number % 7, set()).add(row.queue_id)
    assert all(len(ids) == 1 for ids in queues.values()), "a shard keeps to its queue"
    names = Counter(row.properties[IDENTITY] for row in found)
    assert len(names) == 500
    assert {name.rsplit("/", 3)[1] for name in names} == {"0"}
    assert len({name.split("/")[0] for name in names}) == 1


@pytest.mark.feature("D04")
def test_a_topic_can_be_copied_as_it_was_read(spark, rocket) -> None:
    rocket.create_topic("SinkFrom", 2)
    rocket.create_topic("SinkCopy", 2)
    with bolide.Producer("sink-pg", rocket.namesrv) as producer:
        for number in range(50):
            producer.send("SinkFrom", b"%d" % number, tags="A", keys=[f"k{number}"], properties={"p": "q"})
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
    sink(reader.option("subscribe", "SinkFrom").load(), rocket.namesrv, topic="SinkCopy").save()
    found = messages(spark, rocket.namesrv, "SinkCopy")
    assert sorted(int(bytes(row.body)) for row in found) == list(range(50))
    assert {(row.tags, row.properties["p"], row.keys == f"k{int(bytes(row.body))}") for row in found} == {
        ("A", "q", True)
    }


@pytest.mark.parametrize(
    ("query", "options", "complaint"),
    [
        ("SELECT 'x' AS bodi", {"topic": "SinkRows"}, "did you mean body"),
        ("SELECT 'x' AS body", {}, "give the option, or a column"),
        ("SELECT 1 AS body", {"topic": "SinkRows"}, "binary or string"),
        ("SELECT 'x' AS body, 5 AS tags", {"topic": "SinkRows"}, "cast it"),
        ("SELECT 'x' AS body", {"topic": "SinkRows", "subscribe": "SinkRows"}, "is no option here"),
        ("SELECT '' AS body", {"topic": "SinkRows"}, "empty body"),
        ("SELECT 'x' AS body, 'a\\u0001b' AS tags", {"topic": "SinkRows"}, "the characters 1 and 2"),
    ],
)
def test_rows_that_are_no_messages_are_refused_with_what_to_do(spark, rocket, query, options, complaint) -> None:
    with pytest.raises(Exception, match=complaint):
        sink(spark.sql(query), rocket.namesrv, **options).save()


@pytest.mark.feature("D04")
def test_a_batch_that_failed_and_was_repeated_is_recognised_by_its_identity(spark, rocket, tmp_path) -> None:
    """The broker takes the messages, the batch fails behind it, and Spark repeats it."""
    rocket.create_topic("SinkAgainFrom", 1)
    rocket.create_topic("SinkAgain", 2)
    with bolide.Producer("sink-pg", rocket.namesrv) as producer:
        for number in range(40):
            producer.send("SinkAgainFrom", b"%d" % number)
    source = spark.readStream.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
    frame = source.option("subscribe", "SinkAgainFrom").option("startingOffsets", "earliest").load()

    def run() -> None:
        writer = frame.select("body").writeStream.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
        writer = writer.option("topic", "SinkAgain").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

    run()
    # As after a crash between the sends and Spark's own note of it.
    for name in ("commits/0", "commits/.0.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    run()
    found = messages(spark, rocket.namesrv, "SinkAgain")
    names = Counter(row.properties[IDENTITY] for row in found)
    assert len(found) == 80
    assert set(names.values()) == {2}
    by_name = {row.properties[IDENTITY]: bytes(row.body) for row in found}
    assert sorted(map(int, by_name.values())) == list(range(40)), "without the repetitions, each row once"


@pytest.mark.feature("D04")
def test_a_batch_that_was_published_and_is_repeated_is_there_once(spark, rocket, tmp_path) -> None:
    rocket.create_topic("OnceFrom", 1)
    rocket.create_topic("Once", 3)
    with bolide.Producer("sink-pg", rocket.namesrv) as producer:
        for number in range(60):
            producer.send("OnceFrom", b"%d" % number, tags="T", properties={"p": "q"})
    source = spark.readStream.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
    source = source.option("subscribe", "OnceFrom").option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", 25).option("minPartitions", 2).load()

    def run() -> None:
        writer = frame.writeStream.format("bolide").option("bolide.bootstrap.servers", rocket.namesrv)
        writer = writer.option("topic", "Once").option("deliveryGuarantee", "exactly-once")
        writer = writer.option("broker", rocket.brokers[0].name)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

    run()
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal())
    for name in (f"commits/{last}", f"commits/.{last}.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    run()
    found = messages(spark, rocket.namesrv, "Once")
    assert sorted(int(bytes(row.body)) for row in found) == list(range(60))
    assert {(row.tags, row.properties["p"]) for row in found} == {("T", "q")}


@pytest.mark.feature("D04")
def test_a_batch_write_is_seen_whole_and_one_that_fails_is_not_seen_at_all(spark, rocket) -> None:
    rocket.create_topic("OnceWhole", 2)
    good = spark.sql("SELECT string(id) AS body FROM range(0, 100, 1, 2)")
    sink(good, rocket.namesrv, topic="OnceWhole", deliveryGuarantee="exactly-once").save()
    bad = spark.sql("SELECT if(id = 99, '', string(id)) AS body FROM range(0, 100, 1, 2)")
    with pytest.raises(Exception, match="empty body"):
        sink(bad, rocket.namesrv, topic="OnceWhole", deliveryGuarantee="exactly-once").save()
    found = messages(spark, rocket.namesrv, "OnceWhole")
    assert sorted(int(bytes(row.body)) for row in found) == list(range(100))


@pytest.mark.feature("D04")
def test_a_delay_in_seconds_holds_a_row_back_by_a_level_or_by_the_timer(spark, rocket) -> None:
    """A second is RocketMQ's level 1, a second and a half is no level; staged rows wait from their commit on."""
    rocket.create_topic("SinkLater", 2)
    delays = [None, 0.0, 1.0, 1.5]
    rows = " UNION ALL ".join(f"SELECT {i} AS n, double({delay or 'NULL'}) AS delay" for i, delay in enumerate(delays))
    for guarantee in ("at-least-once", "exactly-once"):
        frame = spark.sql(f"SELECT concat('{guarantee} ', n) AS body, delay FROM ({rows})")
        sink(frame, rocket.namesrv, topic="SinkLater", deliveryGuarantee=guarantee).save()
    columns = [StructField("body", BinaryType()), StructField("properties", MapType(StringType(), StringType()))]
    schema = StructType([*columns, StructField("born_ts", TimestampType()), StructField("store_ts", TimestampType())])
    until_s = time.monotonic() + 30
    found: list[dict] = []
    while len(found) < 2 * len(delays):
        assert time.monotonic() < until_s, found
        reader = BatchReader(source_options({"nameServer": rocket.namesrv, "subscribe": "SinkLater"}), schema)
        found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert len({row["body"] for row in found}) == len(found) == 2 * len(delays)
    for row in found:
        delay_s = delays[int(row["body"].split()[-1])] or 0
        waited_s = (row["store_ts"] - row["born_ts"]).total_seconds()
        assert waited_s >= delay_s, row
        assert ("TIMER_DELAY_MS" in dict(row["properties"])) == (delay_s == 1.5), row


def test_a_stream_that_is_to_be_exact_has_to_name_the_broker_that_keeps_its_mark() -> None:
    """The route may show another one after a crash, and the last batch would be published there again."""
    given = {"nameServer": "127.0.0.1:1", "topic": "Once", "deliveryGuarantee": "exactly-once"}
    schema = StructType([StructField("body", BinaryType())])
    with pytest.raises(ConfigError, match=r"broker = None: is needed, one of `bolide cluster`"):
        StreamWriter(sink_options(given), schema, False)
    StreamWriter(sink_options({**given, "broker": "broker-a"}), schema, False)
    BatchWriter(sink_options(given), schema, False)


def test_the_broker_that_was_named_is_the_one_or_none() -> None:
    assert chosen_broker("b", "T", ["a", "b"]) == "b"
    assert chosen_broker(None, "T", ["a"]) == "a"
    with pytest.raises(ConfigError, match="T is on a, b: say which"):
        chosen_broker(None, "T", ["a", "b"])
    with pytest.raises(ClientError, match="T is on a and not on b"):
        chosen_broker("b", "T", ["a"])


def test_an_exact_write_to_a_topic_that_is_not_there_says_how_to_make_it(rocket) -> None:
    """No first message makes it: what is staged belongs to another topic."""
    given = {"nameServer": rocket.namesrv, "topic": "OnceNowhere", "deliveryGuarantee": "exactly-once"}
    rows = pa.RecordBatch.from_pydict({"body": [b"x"]})
    for more in ({}, {"broker": rocket.brokers[0].name}):
        with pytest.raises(ClientError, match="makes none: `bolide topic create OnceNowhere`"):
            write_rows(sink_options(given | more), "query", 0, 0, iter([rows]))


@pytest.mark.feature("D04")
def test_a_query_that_another_broker_knows_is_not_published_here_too() -> None:
    """Its last batch would be there twice: a crash may lie between the publish and Spark's own note of it."""
    with cluster(brokers=2) as rocket:
        rocket.create_topic("OnceMoved", 2)
        first, second = (broker.name for broker in rocket.brokers)
        given = {"nameServer": rocket.namesrv, "topic": "OnceMoved", "deliveryGuarantee": "exactly-once"}

        def write(broker: str, batch: int, query: str = "query") -> None:
            options = sink_options({**given, "broker": broker})
            rows = pa.RecordBatch.from_pydict({"body": [b"%d" % batch]})
            publish_all(options, [write_rows(options, query, batch, 0, iter([rows]))], batch)

        write(first, 0)
        for batch in (0, 1):
            with pytest.raises(ConfigError, match=f"{first} has published batch 0 of this query: name it again"):
                write(second, batch)
        write(second, 0, "another-query")
        write(first, 1)
        rocket.brokers[0].kill()
        write(second, 0, "a-third-query")  # who does not answer is no reason to wait


def test_a_batch_whose_tasks_staged_at_two_brokers_is_not_published() -> None:
    written = [Written("q", 0, 1), Written("q", 0, 1)]
    for each, name in zip(written, "ab", strict=True):
        each.stages, each.broker_name = [(0, 0)], name
    given = {"nameServer": "127.0.0.1:1", "topic": "Once", "deliveryGuarantee": "exactly-once"}
    with pytest.raises(ClientError, match="at a and b, nothing is published"):
        publish_all(sink_options(given), written, 0)
