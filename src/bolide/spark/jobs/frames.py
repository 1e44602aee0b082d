"""Messages as a DataFrame, wherever they are: in store files, in a lake, or at the brokers of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.errors import ConfigError
from bolide.spark.jobs.manifest import demand_lake
from bolide.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where messages are (one of the three), and which of them are meant."""

    stores: Sequence[str] = ()
    lake: Path | None = None
    cluster: Mapping[str, str] = field(default_factory=dict)
    topics: Sequence[str] = ()
    from_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.stores, self.lake, self.cluster))) != 1:
            raise ConfigError("source", None, "name one: store directories, a lake, or name servers")


def messages(spark: "SparkSession", where: Where, names: Sequence[str]) -> "DataFrame":
    """The messages with the named columns; `body_size` is there everywhere."""
    from pyspark.sql import functions as f

    frame = _frame(spark, where, [*dict.fromkeys([*names, "topic", "store_ts"])])
    if where.topics:
        frame = frame.where(f.col("topic").isin(list(where.topics)))
    if where.from_ms is not None:
        frame = frame.where(f.col("store_ts") >= f.timestamp_millis(f.lit(where.from_ms)))
    if where.until_ms is not None:
        frame = frame.where(f.col("store_ts") < f.timestamp_millis(f.lit(where.until_ms)))
    return frame.select(*names)


def _frame(spark: "SparkSession", where: Where, names: list[str]) -> "DataFrame":
    from pyspark.sql import functions as f

    if where.stores:
        reader = spark.read.format("bolide-store").option("columns", ",".join(names))
        if where.topics:
            reader = reader.option("subscribe", ",".join(where.topics))
        return reader.load(",".join(where.stores))
    read = [name for name in names if name != "body_size"]
    if "body_size" in names and "body" not in read:
        read.append("body")
    if where.lake is not None:
        demand_lake(where.lake)
        # The schema is given, or Spark would take a topic called 42 for a number.
        schema = ddl(read)
        frame = spark.read.schema(schema).parquet(str(where.lake))
    else:
        options = {"subscribePattern": ".+", **where.cluster, "columns": ",".join(read)}
        if where.topics:
            del options["subscribePattern"]
            options["subscribe"] = ",".join(where.topics)
        frame = spark.read.format("bolide").options(**options).load()
    return frame.withColumn("body_size", f.length("body")) if "body_size" in names else frame
