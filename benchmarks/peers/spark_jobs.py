"""The questions put to Spark, the same for Kafka's connector and for ours: `python spark_jobs.py ask PLAN`.

It runs in two environments, one with Kafka's connector and one with Bolide, and so imports nothing of ours by itself. A
plan is a JSON file (`Plan`): which format with which options, which questions, how many messages. Each answer leaves as
one JSON line. `fill` and `pace` are the producers beside it: a topic to read, and messages that tell their age.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUEUES = 4
TAGS = 10
BATCH_LIMIT_S = 600
LATENCY_LIMIT_S = 60.0
FIRST_LIMIT_S = 60.0
POLL_INTERVAL_S = 0.01
WARM = 0.2  # of the paced messages come before the stream has found its step


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a side needs to answer: its words for the same things, and the questions."""

    side: str
    address: str
    source: str
    source_options: dict[str, str]
    rows: list[str]  # the columns of a whole row
    tag: str
    body: str
    body_size: str
    columns: dict[str, str] = field(default_factory=dict)  # question → what the source is told to read
    sink: str = ""
    sink_options: dict[str, str] = field(default_factory=dict)
    sink_row: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    is_tuned: bool = False
    questions: list[str]
    count: int
    size: int
    runs: int
    rates: list[int] = field(default_factory=list)
    seconds: int = 10
    directory: str = ""
    server_pid: int = 0  # its processor time counts as well


class Side:
    """One side's session and the questions it answers; a question returns how many rows it worked on."""

    def __init__(self, plan: Plan, spark: Any) -> None:
        self.plan = plan
        self.spark = spark
        self.directory = Path(plan.directory)
        self._written = 0

    def frame(self, question: str, topic: str = "") -> Any:
        return self._given(self.spark.read.format(self.plan.source), question, topic).load()

    def stream(self, question: str, topic: str = "") -> Any:
        reader = self.spark.readStream.format(self.plan.source)
        return self._given(reader.option("startingOffsets", "earliest"), question, topic).load()

    def _given(self, reader: Any, question: str, topic: str) -> Any:
        options = dict(self.plan.source_options)
        if topic:
            options["subscribe"] = topic
        if columns := self.plan.columns.get(question):
            options["columns"] = columns
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader

    # The questions

    def ask_rows(self) -> int:
        self.frame("rows").selectExpr(*self.plan.rows).write.format("noop").mode("overwrite").save()
        return self.plan.count

    def ask_count(self) -> int:
        return int(self.frame("count").count())

    def ask_aggregate(self) -> int:
        frame = self.frame("aggregate").selectExpr(f"{self.plan.tag} as tag", f"{self.plan.body_size} as size")
        found = frame.groupBy("tag").agg({"*": "count", "size": "sum"}).collect()
        assert len(found) == min(TAGS, self.plan.count), found
        assert sum(row["sum(size)"] for row in found) == self.plan.count * self.plan.size
        return sum(int(row["count(1)"]) for row in found)

    def ask_available(self) -> int:
        """A stream that catches up and ends."""
        frame = self.stream("rows").selectExpr(*self.plan.rows)
        checkpoint = self._fresh("checkpoint")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(BATCH_LIMIT_S)
        return sum(int(progress["numInputRows"]) for progress in query.recentProgress)

    def ask_parquet(self) -> int:
        path = self._fresh("parquet")
        self.frame("rows").selectExpr(*self.plan.rows).write.parquet(str(path))
        return self.plan.count

    def check_parquet(self) -> int:
        return int(self.spark.read.parquet(str(self.directory / "parquet")).count())

    def ask_export(self) -> int:
        """Our own job: all columns, by topic and date, written inside of the tasks that read."""
        from bolide.spark.columns import EVERYTHING
        from bolide.spark.jobs.export import export
        from bolide.spark.jobs.sources import StoreFiles, Topics

        given = dict(self.plan.source_options)
        topics = [given.pop("subscribe")]
        source = StoreFiles([given["path"]], EVERYTHING) if "path" in given else Topics(given, topics)
        done = export(self.spark, source, self._fresh("lake"), topics=topics, compression="snappy")
        return done.message_count

    def ask_write(self) -> int:
        self._written += 1
        rows = self.spark.range(0, self.plan.count, 1, QUEUES).selectExpr(*self.plan.sink_row)
        writer = rows.write.format(self.plan.sink).mode("append")
        for name, value in self.plan.sink_options.items():
            writer = writer.option(name, value.replace("TOPIC", self._topic_written()))
        writer.save()
        return self.plan.count

    def check_write(self) -> int:
        return int(self.frame("count", self._topic_written()).count())

    def _topic_written(self) -> str:
        return f"written-{self.plan.size}-{self._written}"

    def _fresh(self, name: str) -> Path:
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    # Latency

    def latency(self, rate: int) -> dict[str, float]:
        """From the moment of sending to the row in hand, in a foreachBatch with the default trigger."""
        delays: list[tuple[float, float]] = []
        begun_s = 0.0

        def take(frame: Any, _: int) -> None:
            rows = frame.collect()
            now_s = time.time()
            stamps = [float(bytes(row[0]).partition(b" ")[0]) for row in rows]
            # The topic may hold what an earlier question sent, and that may come in several batches.
            delays.extend((sent_s, now_s - sent_s) for sent_s in stamps if sent_s >= begun_s)

        topic, count = f"paced-{rate}", rate * self.plan.seconds
        self._pace(topic, 1, 1)
        frame = self.stream("latency", topic).selectExpr(self.plan.body)
        checkpoint = str(self._fresh(f"checkpoint-{rate}"))
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        try:
            _await(lambda: len(delays) >= 1, FIRST_LIMIT_S)
            begun_s = time.time()
            delays.clear()
            self._pace(topic, rate, count)
            _await(lambda: len(delays) >= count, LATENCY_LIMIT_S)
        finally:
            query.stop()
        found = [delay_s for _, delay_s in sorted(delays)[int(count * WARM) :]]
        cuts = statistics.quantiles(found, n=100)
        return {"p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98], "count": len(delays)}

    def _pace(self, topic: str, rate: int, count: int) -> None:
        command = [sys.executable, __file__, "pace", self.plan.side, self.plan.address, topic]
        subprocess.run([*command, str(rate), str(count)], check=True, timeout=BATCH_LIMIT_S)


def _await(probe: Callable[[], bool], limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while not probe():
        if time.monotonic() > deadline_s:
            raise SystemExit("the messages did not come in time")
        time.sleep(POLL_INTERVAL_S)


def open_session(plan: Plan) -> Any:
    if plan.is_tuned:
        from bolide.spark import session

        return session("benchmark", "local[*]", **plan.settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    for name, value in plan.settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def ask(plan: Plan) -> None:
    side = Side(plan, open_session(plan))
    side.spark.sparkContext.setLogLevel("ERROR")
    for question in plan.questions:
        timed(side, question)  # to warm up
        rates, processor_us = [], []
        for _ in range(plan.runs):
            elapsed_s, processor_s = timed(side, question)
            rates.append(plan.count / elapsed_s)
            processor_us.append(1e6 * processor_s / plan.count)
        told = {"question": question, "rate": statistics.median(rates), "spread": [min(rates), max(rates)]}
        print(json.dumps(told | {"processor_us": statistics.median(processor_us)}), flush=True)
    for rate in plan.rates:
        print(json.dumps({"question": f"latency at {rate}/s", **side.latency(rate)}), flush=True)
    side.spark.stop()


def timed(side: Side, question: str) -> tuple[float, float]:
    """The seconds of one question, and those of all processors; SystemExit if it did other work than it should."""
    started_s, processors_s = time.perf_counter(), processor_s(side.plan.server_pid)
    found = getattr(side, f"ask_{question}")()
    elapsed_s, spent_s = time.perf_counter() - started_s, processor_s(side.plan.server_pid) - processors_s
    check = getattr(side, f"check_{question}", None)
    if check is not None:
        found = check()
    if found != side.plan.count:
        raise SystemExit(f"{side.plan.side}: {question} gave {found} rows, {side.plan.count} were expected")
    return elapsed_s, spent_s


def processor_s(server_pid: int) -> float:
    """What this process, those below it and the server have used so far: the same on a machine that has other work."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        spent[pid] = sum(map(int, fields[11:15]))  # in user and system, of its own and of the children it took leave of
        children.setdefault(int(fields[1]), []).append(pid)
    found, left = 0, [os.getpid(), *filter(None, [server_pid])]
    while left:
        pid = left.pop()
        found += spent.get(pid, 0)
        left += children.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")


# Producers beside Spark


def pace(side: str, address: str, topic: str, rate: int, count: int) -> None:
    """So many a second, each at its own moment; one that is late is sent at once."""
    send, flush = _sender(side, address, topic)
    started_s = time.perf_counter()
    for number in range(count):
        pause_s = started_s + number / rate - time.perf_counter()
        if pause_s > 0:
            time.sleep(pause_s)
        send(number, b"%.6f " % time.time() + b"x" * 80)
    flush()


def _sender(side: str, address: str, topic: str) -> tuple[Callable[[int, bytes], object], Callable[[], object]]:
    if side == "kafka":
        from confluent_kafka import Producer as KafkaProducer

        kafka = KafkaProducer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0})

        def send_kafka(number: int, body: bytes) -> None:
            kafka.produce(topic, body, partition=number % QUEUES)
            kafka.poll(0)

        return send_kafka, kafka.flush
    import bolide

    producer = bolide.Producer("benchmark", address)
    producer.start()

    def flush() -> None:
        producer.flush()
        producer.close()

    return lambda _, body: producer.submit(topic, body), flush


def fill(address: str, topic: str, count: int, size: int) -> None:
    """A topic of Bolide's with so many messages; Kafka's are written by its own sink."""
    import asyncio

    from bolide import aio

    async def send() -> None:
        async with aio.Producer("benchmark", address, linger_ms=5, body_size_max=4 << 20, compress_over=1 << 20) as one:
            for number in range(count):
                await one.submit(topic, b"x" * size, tags=f"t{number % TAGS}", keys=f"t{number % TAGS}")
            await one.flush()

    asyncio.run(send())


def main() -> None:
    verb, *arguments = sys.argv[1:]
    if verb == "ask":
        ask(Plan(**json.loads(Path(arguments[0]).read_text("utf-8"))))
    elif verb == "pace":
        pace(arguments[0], arguments[1], arguments[2], int(arguments[3]), int(arguments[4]))
    else:
        fill(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]))


if __name__ == "__main__":
    main()
