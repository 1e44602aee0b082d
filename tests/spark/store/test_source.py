"""`format("bolide-store")` on a real Spark: the rows are what a consumer sees."""

import shutil
from datetime import UTC, datetime

import pytest

from bolide.spark.columns import Columns
from bolide.spark.schema import COLUMNS, STORE_COLUMNS, ddl
from bolide.spark.store.source import PruningStoreReader, StoreOptions
from tests.store.given import START_MS, HeldClock, draft, opened, read_all, small

COUNT = 240


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two topics, three queues each, in several segments; and what a consumer reads of them."""
    root = tmp_path_factory.mktemp("source") / "store"
    clock = HeldClock()
    with opened(small(root), clock) as store:
        for i in range(COUNT):
            body = b"%d " % i + b"x" * (i % 120)
            store.append([draft(body, "Orders" if i % 2 else "Bills", i % 3, TAGS=f"t{i % 4}", KEYS=f"k{i}", n=str(i))])
            clock.ms += 1000
        seen = [
            message
            for topic in ("Orders", "Bills")
            for queue_id in range(3)
            for message in read_all(store, topic, queue_id)
        ]
    return root, seen


def load(spark, root, **options):
    return spark.read.format("bolide-store").options(**options).load(str(root))


@pytest.mark.feature("D05")
def test_the_rows_of_a_store_are_what_a_consumer_sees(spark, stored):
    root, seen = stored
    found = load(spark, root, brokerName="broker-a").collect()
    assert len(found) == COUNT
    got = {
        (row.topic, row.queue_id, row.queue_offset, row.physical_offset, bytes(row.body), row.tags, row["keys"])
        for row in found
    }
    assert got == {
        (m.topic, m.queue_id, m.queue_offset, m.physical_offset, m.body, m.tags, " ".join(m.keys)) for m in seen
    }
    by_place = {m.physical_offset: m for m in seen}
    for row in found:
        message = by_place[row.physical_offset]
        assert row.properties == dict(message.properties)
        assert row.msg_id == message.message_id
        assert round(row.store_ts.timestamp() * 1000) == message.stored_at
        assert (row.body_size, row.broker_name) == (len(message.body), "broker-a")


@pytest.mark.feature("D05")
def test_a_copied_directory_reads_the_same_in_parallel(spark, stored, tmp_path):
    root, _ = stored
    shutil.copytree(root / "commitlog", tmp_path / "copy")
    copy = load(spark, tmp_path / "copy", rangeSize=10_000, columns="physical_offset,body")
    assert copy.rdd.getNumPartitions() > 3
    same = load(spark, root, columns="physical_offset,body")
    assert sorted(copy.collect()) == sorted(same.collect())


def test_the_columns_are_to_the_letter_what_spark_compares_with(spark):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    expected = to_arrow_schema(StructType.fromDDL(ddl(STORE_COLUMNS)), timezone="UTC")
    assert Columns(STORE_COLUMNS).schema.equals(expected)
    assert set(STORE_COLUMNS) - set(COLUMNS) == {"body_size"}


def test_filters_reach_the_files(spark, stored):
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In

    root, _ = stored
    orders = load(spark, root).where("topic = 'Orders' AND tags IN ('t1', 't2')")
    assert orders.count() == COUNT // 4
    late = load(spark, root).where(f"store_ts >= timestamp_millis({START_MS + 200_000})")
    assert late.count() == COUNT - 200
    # What left the files, before Spark looked at it.
    since = datetime.fromtimestamp((START_MS + 100_000) / 1000, UTC)
    filters = [EqualTo(("topic",), "Orders"), In(("tags",), ("t1", "t2")), GreaterThanOrEqual(("store_ts",), since)]
    reader = PruningStoreReader(StoreOptions(paths=(str(root),), columns=("topic", "tags", "queue_id")))
    assert list(reader.pushFilters(filters)) == filters
    read = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {(row["topic"], row["tags"]) for row in read} == {("Orders", "t1")}
    assert len(read) == (COUNT - 100) // 4


def test_few_columns_are_asked_for_by_schema_or_option_and_sql_works(spark, stored):
    root, seen = stored
    by_tag = spark.read.format("bolide-store").schema("tags string, body_size int").load(str(root))
    sums = {row.tags: row.size for row in by_tag.groupBy("tags").sum("body_size").toDF("tags", "size").collect()}
    assert sums == {tag: sum(len(m.body) for m in seen if m.tags == tag) for tag in sums}
    assert len(sums) == 4
    spark.sql(f"CREATE OR REPLACE TEMP VIEW files USING `bolide-store` OPTIONS (path '{root}', subscribe 'Bills')")
    assert spark.sql("SELECT count(*) FROM files").first()[0] == COUNT // 2
    assert load(spark, root).columns == list(STORE_COLUMNS)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribes": "T"}, "did you mean subscribe?"),
        ({"mode": "brave"}, "may be tail, failfast, permissive"),
        ({"columns": "tag"}, "did you mean tags?"),
        ({"rangeSize": "1G"}, "must be a whole number"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(spark, stored, options, complaint):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=complaint.replace("?", r"\?")):
        load(spark, stored[0], **options).count()
