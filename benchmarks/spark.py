"""How fast does Spark read and write Bolide, beside Kafka with Spark's own connector?

Three sides, one after another in one run on one machine: Kafka (`benchmarks.spark_kafka` makes it), Bolide through the
broker, and Bolide's store files without a broker. The same program asks all of them (`peers/spark_jobs.py`), with
messages of the same sizes in 4 queues: every row to nowhere, count, count and sum of body sizes by tag, a stream that
catches up and ends, export to Parquet by Spark's own writer and by our job (held against the former), write; and the
age of a message in a foreachBatch, with our session's settings and with Spark's. Whole rows have the columns Kafka's
have; for the rest ours are told the columns that the question needs, as a user would. The verdicts are issue 8's. What
all processes of a side spend on a row is told too: on a machine with other work it says more than a rate.

    python -m benchmarks.spark                        # 2 million of each size: a quarter of an hour on two cores, 20 GB
    python -m benchmarks.spark --count 500000         # JVMs are hardly warm then, ours and Kafka's
    python -m benchmarks.spark --smoke                # our own sides, small

What it does not show: a cluster, a network, tails longer than a run. All processes share the processors.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import spark_kafka
from benchmarks.measure import active_kernel, commit, machine, publish
from benchmarks.measured_brokers import Measured, bolide_up
from benchmarks.peers import spark_jobs
from benchmarks.peers.servers import Absent
from benchmarks.peers.spark_jobs import TAGS, Plan
from benchmarks.spark_kafka import Answers, ask, sentence
from interop.cluster import SOURCE as PACKAGE

QUESTION = "How fast does Spark read and write Bolide, beside Kafka with Spark's own connector?"
ROOT = Path(__file__).parent.parent
FILL_LIMIT_S = 1800
ROWS = "topic,queue_id,queue_offset,store_ts,keys,body"
BROKER_QUESTIONS = ("rows", "count", "aggregate", "available", "parquet", "export", "write")
STORE_QUESTIONS = ("rows", "count", "aggregate", "parquet", "export")
ANCHORS = {"export": "parquet"}  # Kafka has no such job: what its users do instead
# side → question → how many times Kafka's rate it has to reach
TARGETS = {
    "broker": {
        "rows": 0.8,
        "count": 0.8,
        "aggregate": 0.8,
        "available": 0.8,
        "parquet": 1.0,
        "export": 1.0,
        "write": 1.0,
    },
    "store": {"aggregate": 1.8, "parquet": 1.5, "export": 1.5},
}
LATENCY_TARGET = 0.5  # of Kafka's median
SMOKE = ("--count", "2000", "--sizes", "100", "--rates", "50", "--seconds", "2", "--runs", "1")


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--smoke", action="store_true", help="our own sides, small")
    parser.add_argument("--sides", default="kafka,broker,store", help="which, separated by commas")
    given = list(sys.argv[1:] if argv is None else argv)
    options = spark_kafka.read_options(QUESTION, [*SMOKE, *given] if "--smoke" in given else given, parser)
    sides = [side for side in options.sides.split(",") if side != "kafka" or not options.smoke]
    absent: dict[str, str] = {}
    found: dict[str, dict[str, Answers]] = {}
    with tempfile.TemporaryDirectory(prefix="bolide-spark-", dir=options.directory) as directory:
        if "kafka" in sides:
            try:
                found["kafka"] = _kafka(Path(directory) / "kafka", options)
            except Absent as reason:
                absent["kafka"] = str(reason)
                print(f"kafka: left out, {reason}")
        found |= _bolide(Path(directory) / "bolide", sides, options)
    told: dict[str, Any] = {
        "question": QUESTION,
        "sides": found,
        "absent": absent,
        "verdicts": verdicts(found),
        "parameters": {"count": options.count, "runs": options.runs, "seconds": options.seconds},
        "load": os.getloadavg(),
        "machine": machine(),
        "commit": commit(),
        "kernel": active_kernel(),
    }
    _show(found, told["verdicts"])
    line = json.dumps(told)
    publish(line, is_kept=options.keep)
    return told


def _kafka(directory: Path, options: argparse.Namespace) -> dict[str, Answers]:
    with spark_kafka.anchored(directory / "broker") as server:
        return {str(size): spark_kafka.answers(server, directory / "work", size, options) for size in options.sizes}


def _bolide(directory: Path, sides: list[str], options: argparse.Namespace) -> dict[str, dict[str, Answers]]:
    found: dict[str, dict[str, Answers]] = {}
    for size in options.sizes:
        place = directory / str(size)
        place.mkdir(parents=True)
        with bolide_up(place) as measured:
            topic = f"filled-{size}"
            measured.make_topic(topic)
            _fill(measured, topic, options.count, size)
            # First, while the log holds what Kafka's topic holds: what the sink writes would have to be passed over.
            if "store" in sides and (plan := store_plan(next(place.glob("data-*")), place, size, options)).questions:
                found.setdefault("store", {})[str(size)] = _ask(plan)
            if "broker" in sides:
                found.setdefault("broker", {})[str(size)] = _broker(measured, place, size, options)
        shutil.rmtree(place)
    return found


def _fill(measured: Measured, topic: str, count: int, size: int) -> None:
    command = [sys.executable, spark_jobs.__file__, "fill", measured.namesrv, topic, str(count), str(size)]
    subprocess.run(command, check=True, timeout=FILL_LIMIT_S, env=os.environ | {"PYTHONPATH": str(PACKAGE)})
    stored = measured.message_count(topic)
    if stored != count:
        raise SystemExit(f"{stored} of {count} messages were stored in {topic}")


def _broker(measured: Measured, directory: Path, size: int, options: argparse.Namespace) -> Answers:
    plan = replace(broker_plan(measured.namesrv, directory, size, options), server_pid=measured.program.pid)
    for number in range(1, options.runs + 2):
        measured.make_topic(f"written-{size}-{number}")
    found = _ask(plan) if plan.questions else {}
    if size == options.sizes[0] and "latency" in options.only:
        for rate in options.rates:
            measured.make_topic(f"paced-{rate}")
        found |= _ask(_pacing(plan, options, is_tuned=True))
        plain = _ask(_pacing(plan, options, is_tuned=False))
        found |= {f"{question}, Spark's settings": answer for question, answer in plain.items()}
    return found


def _pacing(plan: Plan, options: argparse.Namespace, *, is_tuned: bool) -> Plan:
    directory = f"{plan.directory}-{'tuned' if is_tuned else 'plain'}"
    return replace(plan, questions=[], rates=list(options.rates), is_tuned=is_tuned, directory=directory)


def broker_plan(address: str, directory: Path, size: int, options: argparse.Namespace) -> Plan:
    namesrv = {"bolide.bootstrap.servers": address}
    return Plan(
        side="bolide",
        address=address,
        source="bolide",
        source_options=namesrv | {"subscribe": f"filled-{size}"},
        rows=ROWS.split(","),
        tag="tags",
        body="body",
        body_size="length(body)",
        columns={"rows": ROWS, "count": "queue_offset", "aggregate": "tags,body", "latency": "body"},
        sink="bolide",
        sink_options=namesrv | {"topic": "TOPIC"},
        sink_row=[
            f"concat('t', id % {TAGS}) as tags",
            f"concat('t', id % {TAGS}) as keys",
            f"cast(repeat('x', {size}) as binary) as body",
        ],
        settings=spark_kafka.SETTINGS,
        is_tuned=True,
        questions=[question for question in BROKER_QUESTIONS if question in options.only],
        count=options.count,
        size=size,
        runs=options.runs,
        seconds=options.seconds,
        directory=str(directory / "work"),
    )


def store_plan(store: Path, directory: Path, size: int, options: argparse.Namespace) -> Plan:
    return Plan(
        side="bolide",
        address="",
        source="bolide-store",
        source_options={"path": str(store), "subscribe": f"filled-{size}"},
        rows=ROWS.split(","),
        tag="tags",
        body="body",
        body_size="body_size",
        columns={"rows": ROWS, "count": "queue_offset", "aggregate": "tags,body_size"},
        settings=spark_kafka.SETTINGS,
        is_tuned=True,
        questions=[question for question in STORE_QUESTIONS if question in options.only],
        count=options.count,
        size=size,
        runs=options.runs,
        directory=str(directory / "work-store"),
    )


def _ask(plan: Plan) -> Answers:
    return ask(Path(sys.executable), plan, PYTHONPATH=os.pathsep.join((str(PACKAGE), str(ROOT))))


def verdicts(found: dict[str, dict[str, Answers]]) -> dict[str, bool]:
    """The targets of which both sides were measured, and whether they are met."""
    told: dict[str, bool] = {}
    for side, targets in TARGETS.items():
        for size, kafka in found.get("kafka", {}).items():
            ours = found.get(side, {}).get(size, {})
            for question, times in targets.items():
                anchor = ANCHORS.get(question, question)
                if question in ours and anchor in kafka:
                    is_met = ours[question]["rate"] >= times * kafka[anchor]["rate"]
                    told[f"{side}, {size} B, {question}: {times:g} times Kafka's rate"] = is_met
            if side == "broker":
                for question in (name for name in ours if name in kafka and name.startswith("latency")):
                    is_met = ours[question]["p50_ms"] <= LATENCY_TARGET * kafka[question]["p50_ms"]
                    told[f"{question}: p50 at most {LATENCY_TARGET:g} of Kafka's"] = is_met
    return told


def _show(found: dict[str, dict[str, Answers]], told: dict[str, bool]) -> None:
    sizes = {size: None for answers in found.values() for size in answers}
    for size in sizes:
        questions = {question: None for answers in found.values() for question in answers.get(size, {})}
        for question in questions:
            anchor = found.get("kafka", {}).get(size, {}).get(ANCHORS.get(question, question))
            for side, answers in found.items():
                if answer := answers.get(size, {}).get(question):
                    print(f"{size:>5} B  {question:36} {side:7} {sentence(answer)}{_ratio(side, answer, anchor)}")
    for claim, holds in told.items():
        print(f"{'met   ' if holds else 'MISSED'} {claim}")


def _ratio(side: str, answer: dict[str, Any], anchor: dict[str, Any] | None) -> str:
    if anchor is None or side == "kafka":
        return ""
    measure = "rate" if "rate" in answer else "p50_ms"
    return f"  {answer[measure] / anchor[measure]:.2f} of Kafka's"


if __name__ == "__main__":
    main()
