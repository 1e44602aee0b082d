"""The batch source: what was sent is what is read, however it is asked for."""

import pytest

import bolide


@pytest.fixture(scope="module")
def orders(rocket) -> dict[str, object]:
    """Two topics: 300 orders with tags, keys and a property, and 20 of another."""
    rocket.create_topic("BatchOrders", 4)
    rocket.create_topic("BatchOthers", 2)
    with bolide.Producer("batch-pg", rocket.namesrv) as producer:
        receipts = [
            producer.send(
                "BatchOrders",
                b"order %d" % number,
                tags="ABC"[number % 3],
                keys=[f"o-{number}"],
                properties={"region": "eu" if number % 2 else "us"},
            )
            for number in range(300)
        ]
        for number in range(20):
            producer.send("BatchOthers", b"other %d" % number)
    return {"receipts": receipts, "namesrv": rocket.namesrv}


def read(spark, namesrv: str, **options: object):
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", namesrv)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader


def bodies(frame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


ORDERS = sorted(f"order {number}" for number in range(300))
OTHERS = sorted(f"other {number}" for number in range(20))


@pytest.mark.feature("D01", "D02")
def test_the_rows_of_a_topic_are_its_messages_with_all_they_carry(spark, orders) -> None:
    frame = read(spark, orders["namesrv"], subscribe="BatchOrders").load()
    rows = {bytes(row.body).decode(): row for row in frame.collect()}
    assert sorted(rows) == ORDERS
    for number, receipt in enumerate(orders["receipts"]):
        row = rows[f"order {number}"]
        assert (row.topic, row.broker_name, row.queue_id) == ("BatchOrders", "broker-0", receipt.queue.queue_id)
        assert (row.queue_offset, row.msg_id) == (receipt.queue_offset, receipt.msg_id)
        assert (row.tags, row.keys, row.reconsume_times) == ("ABC"[number % 3], f"o-{number}", 0)
        assert row.properties["region"] == ("eu" if number % 2 else "us")
        assert abs((row.store_ts - row.born_ts).total_seconds()) < 60


@pytest.mark.feature("D02")
def test_several_topics_a_pattern_and_an_assignment_choose_what_is_read(spark, orders) -> None:
    namesrv = orders["namesrv"]
    assert bodies(read(spark, namesrv, subscribe="BatchOrders, BatchOthers").load()) == ORDERS + OTHERS
    assert bodies(read(spark, namesrv, subscribePattern="Batch.thers").load()) == OTHERS
    chosen = read(spark, namesrv, assign='{"BatchOrders": {"broker-0": [1, 3]}}').load()
    wanted = [f"order {n}" for n, receipt in enumerate(orders["receipts"]) if receipt.queue.queue_id in (1, 3)]
    assert bodies(chosen) == sorted(wanted)


@pytest.mark.feature("D02")
def test_a_range_of_offsets_holds_exactly_its_rows(spark, orders) -> None:
    frame = read(
        spark,
        orders["namesrv"],
        assign='{"BatchOrders": [2]}',
        startingOffsets='{"BatchOrders": {"broker-0": {"2": 10}}}',
        endingOffsets='{"v": 1, "topics": {"BatchOrders": {"broker-0": {"2": 25}}}}',
    ).load()
    assert sorted(row.queue_offset for row in frame.collect()) == list(range(10, 25))


@pytest.mark.feature("D02")
def test_a_time_range_holds_what_was_stored_in_it(spark, orders) -> None:
    namesrv = orders["namesrv"]
    stored = {
        bytes(row.body).decode(): round(row.store_ts.timestamp() * 1000)
        for row in read(spark, namesrv, subscribe="BatchOrders", columns="body,store_ts").load().collect()
    }
    times = sorted(stored.values())
    first_ms, end_ms = times[100], times[200]
    frame = read(
        spark, namesrv, subscribe="BatchOrders", startingTimestamp=first_ms, endingTimestamp=end_ms, columns="body"
    ).load()
    assert frame.columns == ["body"]
    assert bodies(frame) == sorted(name for name, at_ms in stored.items() if first_ms <= at_ms < end_ms)


@pytest.mark.feature("D06")
def test_filters_make_the_plan_smaller_and_the_rows_right(spark, orders) -> None:
    frame = read(spark, orders["namesrv"], subscribe="BatchOrders,BatchOthers").load()
    chosen = frame.where("topic = 'BatchOrders' and queue_id in (1, 2) and tags = 'B'")
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    (checked,) = [line for line in plan.splitlines() if "Filter (" in line]
    assert "tags" in checked
    assert "queue_id" not in checked, "the plan keeps it, so Spark need not"
    assert "BatchOrders" not in checked
    wanted = [
        f"order {number}"
        for number, receipt in enumerate(orders["receipts"])
        if receipt.queue.queue_id in (1, 2) and number % 3 == 1
    ]
    assert bodies(chosen) == sorted(wanted)


@pytest.mark.feature("D06")
def test_tags_and_times_are_chosen_before_rows_are_transferred(orders) -> None:
    from datetime import UTC, datetime

    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    from bolide.spark.options import source_options
    from bolide.spark.source.reader import FilteringReader, Task

    options = source_options({"nameServer": orders["namesrv"], "subscribe": "BatchOrders"})
    schema = StructType([StructField("queue_id", IntegerType()), StructField("body", BinaryType())])
    reader = FilteringReader(options, schema)
    pushed = [EqualTo(("tags",), "C"), GreaterThanOrEqual(("store_ts",), datetime(2020, 1, 1, tzinfo=UTC))]
    assert list(reader.pushFilters(list(pushed))) == pushed, "Spark checks them again"
    tasks = reader.partitions()
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 100
    reader.pushFilters([GreaterThanOrEqual(("store_ts",), datetime(2100, 1, 1, tzinfo=UTC))])
    later = reader.partitions()
    assert [task.ranges for task in later if isinstance(task, Task)] == [[]]


@pytest.mark.feature("D06")
def test_an_expression_of_tags_is_applied_by_the_broker(spark, orders) -> None:
    frame = read(spark, orders["namesrv"], subscribe="BatchOrders", subExpression="A || C").load()
    assert bodies(frame) == sorted(f"order {n}" for n in range(300) if n % 3 != 1)


@pytest.mark.feature("D06")
def test_an_expression_of_sql_is_applied_by_the_broker(spark, orders) -> None:
    frame = read(spark, orders["namesrv"], subscribe="BatchOrders", subExpression="region = 'eu' AND TAGS = 'A'").load()
    assert bodies(frame) == sorted(f"order {n}" for n in range(300) if n % 2 and n % 3 == 0)


@pytest.mark.feature("D02")
def test_a_queue_is_split_where_more_partitions_are_wanted(spark, orders) -> None:
    frame = read(spark, orders["namesrv"], subscribe="BatchOrders", minPartitions=10, columns="body").load()
    assert frame.rdd.getNumPartitions() == 10
    assert bodies(frame) == ORDERS


@pytest.mark.feature("D02")
def test_a_temporary_view_reads_a_topic_from_sql(spark, orders) -> None:
    namesrv = orders["namesrv"]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW batch_orders USING rocketmq "
        f"OPTIONS (`bolide.bootstrap.servers` '{namesrv}', subscribe 'BatchOrders')"
    )
    rows = spark.sql("SELECT tags, count(*) AS n FROM batch_orders GROUP BY tags ORDER BY tags").collect()
    assert [(row.tags, row.n) for row in rows] == [("A", 100), ("B", 100), ("C", 100)]


@pytest.mark.feature("D02")
def test_a_schema_of_the_users_own_is_a_projection_and_a_wrong_one_is_refused(spark, orders) -> None:
    reader = read(spark, orders["namesrv"], subscribe="BatchOthers")
    frame = reader.schema("queue_offset bigint, body binary").load()
    assert bodies(frame) == OTHERS
    with pytest.raises(Exception, match="did you mean queue_id"):
        reader.schema("queue_idd int").load().collect()
    with pytest.raises(Exception, match="cast it after load"):
        reader.schema("queue_id bigint").load().collect()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "BatchOrders", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "BatchNoSuchTopic"}, "is not known to the name server"),
        (
            {"subscribe": "BatchOthers", "startingOffsets": '{"BatchOthers": {"broker-0": {"0": 999999}}}'},
            "failOnDataLoss=false",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(spark, orders, options, complaint) -> None:
    with pytest.raises(Exception, match=complaint):
        read(spark, orders["namesrv"], **options).load().collect()


def test_offsets_that_are_gone_are_passed_over_where_the_user_says_so(spark, orders) -> None:
    frame = read(
        spark,
        orders["namesrv"],
        subscribe="BatchOthers",
        startingOffsets='{"BatchOthers": {"broker-0": {"0": 999999, "1": -2}}}',
        failOnDataLoss="false",
    ).load()
    assert {row.queue_id for row in frame.collect()} == {1}
