"""How fast does Spark read and write Kafka here? The anchor that `benchmarks.spark` holds Bolide's formats against.

It makes its own environment in the user's cache: pyspark 4.0.0 with Spark's own connector for it, and a Kafka broker of
one node from its jars. The newest set of which every part can be had; a newer Spark is not faster at this. Kafka and
Spark keep their defaults; the data lies on the same disk as Bolide's.

    python -m benchmarks.spark_kafka --count 2000000            # alone; benchmarks.spark runs it beside ours

What it does not show: a cluster, a network, more than one topic.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers import spark_jobs
from benchmarks.peers.servers import JARS, Absent, Server, kafka_server, resolved
from benchmarks.peers.spark_jobs import QUEUES, TAGS, Plan
from interop.release import cache_directory

QUESTION = "How fast does Spark read and write Kafka here?"
BROKER_POM = JARS / "kafka-4.3.1.xml"
CONNECTOR_POM = JARS / "spark-kafka-4.0.0.xml"
PACKAGES = ("pyspark==4.0.0", "confluent-kafka>=2.5")
QUESTIONS = ("write", "rows", "count", "aggregate", "available", "parquet")
ALL = (*QUESTIONS, "export", "latency")  # an export is a job of ours, for which Kafka's users have `parquet`
RATES = (50, 1000)
SIZES = (100, 1024)
INSTALL_LIMIT_S = 900
SIDE_LIMIT_S = 3600
DRIVER_MEMORY = "2g"
SETTINGS = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
Answers = dict[str, dict[str, Any]]


def environment() -> Path:
    """The interpreter of the environment with Kafka's connector, made at the first call."""
    directory = cache_directory().parent / "spark-kafka-python"
    python = directory / "bin" / "python"
    whole = directory / "whole"
    if not whole.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
            subprocess.run(install, check=True, timeout=INSTALL_LIMIT_S)
        except (subprocess.SubprocessError, OSError) as problem:
            raise Absent(f"no environment for Kafka's connector: {problem}") from None
        whole.touch()
    return python


@contextmanager
def anchored(directory: Path) -> Iterator[Server]:
    """A Kafka broker."""
    directory.mkdir(parents=True)
    with kafka_server(directory, BROKER_POM) as server:
        yield server


def answers(server: Server, directory: Path, size: int, options: argparse.Namespace) -> Answers:
    """What Kafka's connector answers for messages of one size."""
    jars = resolved(CONNECTOR_POM, "-DexcludeTransitive=true").glob("*.jar")
    settings = SETTINGS | {"spark.jars": ",".join(str(jar) for jar in sorted(jars))}
    wanted = [question for question in QUESTIONS if question in options.only]
    # A topic is there to be read when it was written; its rate is told only where it was asked for.
    questions = wanted if "write" in wanted or not wanted else ["write", *wanted]
    is_first = size == options.sizes[0]
    plan = Plan(
        side="kafka",
        address=server.address,
        server_pid=server.pid,
        source="kafka",
        source_options={"kafka.bootstrap.servers": server.address, "subscribe": f"written-{size}-1"},
        rows=["topic", "partition", "offset", "timestamp", "key", "value"],
        tag="cast(key as string)",
        body="value",
        body_size="length(value)",
        sink="kafka",
        sink_options={"kafka.bootstrap.servers": server.address, "topic": "TOPIC"},
        sink_row=[
            f"cast(concat('t', id % {TAGS}) as binary) as key",
            f"cast(repeat('x', {size}) as binary) as value",
            f"cast(id % {QUEUES} as int) as partition",
        ],
        settings=settings,
        questions=questions,
        count=options.count,
        size=size,
        runs=options.runs,
        rates=list(options.rates) if is_first and "latency" in options.only else [],
        seconds=options.seconds,
        directory=str(directory),
    )
    found = ask(environment(), plan)
    return {question: answer for question, answer in found.items() if question != "write" or "write" in options.only}


def ask(python: Path, plan: Plan, **variables: str) -> Answers:
    """Put a plan to a side in a process of its own."""
    Path(plan.directory).mkdir(parents=True, exist_ok=True)
    file = Path(plan.directory) / f"plan-{plan.size}.json"
    file.write_text(json.dumps(asdict(plan)), "utf-8")
    command = [str(python), spark_jobs.__file__, "ask", str(file)]
    inherited = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")}
    environment = inherited | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"} | variables
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SIDE_LIMIT_S,
        env=environment,
        cwd=plan.directory,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{plan.side} with {plan.source} failed; it says why above. Answered: {done.stdout}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {answer.pop("question"): answer for answer in told}


def read_options(question: str, argv: Sequence[str] | None, parser: argparse.ArgumentParser | None = None) -> Any:
    parser = parser or argparse.ArgumentParser(description=question)
    parser.add_argument("--count", type=int, default=2_000_000, help="messages of each size, default 2000000")
    parser.add_argument("--sizes", type=_numbers, default=SIZES, help="bytes of a body, default 100,1024")
    parser.add_argument("--rates", type=_numbers, default=RATES, help="messages a second for latency, default 50,1000")
    parser.add_argument("--seconds", type=int, default=10, help="how long latency is watched at each rate, default 10")
    parser.add_argument("--runs", type=int, default=2, help="after one that warms up, default 2")
    parser.add_argument("--only", type=_words, default=ALL, help="questions, separated by commas")
    parser.add_argument("--directory", type=Path, help="where the data lies meanwhile; a temporary one by default")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    unknown = set(options.only) - set(ALL)
    if unknown:
        parser.error(f"no question {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def main(argv: Sequence[str] | None = None) -> dict[str, Answers]:
    options = read_options(QUESTION, argv)
    with tempfile.TemporaryDirectory(prefix="bolide-spark-kafka-", dir=options.directory) as name:
        directory = Path(name)
        with anchored(directory / "kafka") as server:
            found = {str(size): answers(server, directory / "work", size, options) for size in options.sizes}
    for size, told in found.items():
        for question, answer in told.items():
            print(f"{size:>5} B  {question:16} {sentence(answer)}")
    print(json.dumps(found))
    return found


def sentence(answer: dict[str, Any]) -> str:
    if "rate" in answer:
        low, high = answer["spread"]
        return (
            f"{answer['rate']:>12,.0f} rows/s ({low:,.0f} to {high:,.0f}), {answer['processor_us']:.2f} µs of processor"
        )
    return f"p50 {answer['p50_ms']:.0f} ms, p99 {answer['p99_ms']:.0f} ms ({answer['count']} messages)"


if __name__ == "__main__":
    main()
