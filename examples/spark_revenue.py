"""A streaming job: orders of a topic → revenue per minute → another topic, exactly once, and Parquet files.

    python examples/spark_revenue.py --send --once

`--send` sends some orders first, `--once` ends when all is read; without it the job runs until it is stopped, and goes
on where it was when it is started again with the same `--work`.
"""

import argparse
import json
import os
import socket
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import bolide
import bolide.spark

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
ORDERS, REVENUE = "RevenueOrders", "Revenue"


def send_orders(namesrv: str) -> None:
    """Three minutes of orders, and one that is much later, so that the minutes before it are over."""
    orders = [
        {"at": f"2026-01-01T10:{minute:02}:{second:02}Z", "amount": 5} for minute in range(3) for second in range(20)
    ]
    orders.append({"at": "2026-01-01T10:30:00Z", "amount": 1})
    with bolide.Producer("revenue-shop", namesrv) as producer:
        for order in orders:
            producer.send(ORDERS, json.dumps(order).encode(), shard="till-1")


def revenue_by_minute(spark: SparkSession, namesrv: str) -> DataFrame:
    topic = spark.readStream.format("bolide").option("bolide.bootstrap.servers", namesrv)
    messages = topic.option("subscribe", ORDERS).option("startingOffsets", "earliest").option("columns", "body").load()
    orders = messages.select(f.from_json(messages.body.cast("string"), "at timestamp, amount double").alias("o"))
    minutes = orders.select("o.*").withWatermark("at", "1 minute").groupBy(f.window("at", "1 minute"))
    return minutes.agg(f.sum("amount").alias("revenue"), f.count("*").alias("orders")).select(
        f.col("window.start").alias("minute"), "revenue", "orders"
    )


def start(spark: SparkSession, namesrv: str, broker: str, work: Path, *, is_once: bool) -> list[StreamingQuery]:
    """Two queries, each with its own checkpoint; the broker keeps what of the first is published."""
    revenue = revenue_by_minute(spark, namesrv)
    as_messages = revenue.select(
        f.date_format("minute", "yyyy-MM-dd'T'HH:mm").alias("keys"), f.to_json(f.struct("*")).alias("body")
    )
    to_topic = as_messages.writeStream.format("bolide").option("bolide.bootstrap.servers", namesrv)
    to_topic = to_topic.option("topic", REVENUE).option("deliveryGuarantee", "exactly-once")
    to_topic = to_topic.option("broker", broker)
    to_files = revenue.writeStream.format("parquet").option("path", str(work / "revenue"))
    queries = []
    for name, writer in (("topic", to_topic), ("files", to_files)):
        writer = writer.outputMode("append").option("checkpointLocation", str(work / f"checkpoint-{name}"))
        queries.append((writer.trigger(availableNow=True) if is_once else writer).start())
    return queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--send", action="store_true")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--broker", default=socket.gethostname(), help="as `bolide up` names it where nothing is said")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bolide-revenue")
    given = parser.parse_args()
    if given.send:
        with bolide.Admin(NAMESRV) as admin:
            admin.create_topic(ORDERS, 4)
            admin.create_topic(REVENUE, 1)
        send_orders(NAMESRV)
    spark = bolide.spark.session("revenue")
    for query in start(spark, NAMESRV, given.broker, given.work, is_once=given.once):
        query.awaitTermination()
    spark.read.parquet(str(given.work / "revenue")).orderBy("minute").show()


if __name__ == "__main__":
    main()
