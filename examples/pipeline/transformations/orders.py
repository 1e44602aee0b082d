"""A declared pipeline: orders from a topic, what each item earned, and large orders into another topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bolide.spark.pipelines  # noqa: F401 (lets sources in Python end well)

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order once; the next run goes on where this one ended."""
    topic = spark.readStream.format("bolide").option("bolide.bootstrap.servers", NAMESRV)
    messages = topic.option("subscribe", "PipelineOrders").option("startingOffsets", "earliest").load()
    order = f.from_json(messages.body.cast("string"), "item string, amount double")
    return messages.select("keys", "store_ts", order.item.alias("item"), order.amount.alias("amount"))


@dp.materialized_view
def revenue() -> DataFrame:
    return spark.read.table("orders").groupBy("item").agg(f.sum("amount").alias("revenue"), f.count("*").alias("n"))


dp.create_sink("large", "bolide", {"bolide.bootstrap.servers": NAMESRV, "topic": "PipelineLarge"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.select("keys", f.col("item").alias("tags"), f.to_json(f.struct("item", "amount")).alias("body"))
