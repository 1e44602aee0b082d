"""What does a request cost the broker in processor time, here and in another tree of this house?

Both trees run `bolide up` at the same time, each with its own interpreter and kernel, and take the same loads from the
same generator (`broker_load.c`) in turns: a short one here, the same there, and again. So what the machine does besides
meets both, and a ratio is left: the other tree's processor time over ours, above 1 is cheaper here, by the least of all
turns and by their median. The system's part (sockets, files) is in it, as it is not in `instructions.py`.

A start is a broker without a name server on an empty directory, from its command to its first answer, all threads.

What it does not show: a busy machine moves single turns by a fifth, and caches that two brokers share. Where the least
and the median disagree, nothing was shown.

    python -m benchmarks.before_after --against ../other-tree --rounds 6
    python -m benchmarks.before_after --against . --set metricsExporterType=PROM     # what a setting costs
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.instructions import ROWS, START, Row, kept_bytecode
from benchmarks.measured_brokers import HERE, LOAD_SOURCE, Measured, bolide_up
from benchmarks.programs import built
from interop.process import await_that, free_port, running

QUESTION = "How much processor time does a request cost the broker, before and after?"
REQUESTS = {"send": 40_000, "pull": 8_000}
LONE_SHARE = 4  # where one request is under way at a time, so many times fewer
LOAD_LIMIT_S = 120
START_LIMIT_S = 60


def cpu_s(process_id: int) -> float:
    """Of all threads, to the nanosecond."""
    threads = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def request_count(row: Row) -> int:
    is_lone = row.options.get("in_flight") == 1 and row.options.get("connections") == 1
    return REQUESTS[str(row.options["mode"])] // (LONE_SHARE if is_lone else 1)


def turn(server: Measured, row: Row, topic: str, program: Path) -> float:
    """Microseconds of one turn, a request."""
    requests = request_count(row)
    count = requests * int(str(row.options.get("batch", 1)))
    words = {"port": server.broker[1], "topic": topic, "count": count, **row.options}
    before_s = cpu_s(server.program.pid)
    subprocess.run(
        [str(program), *(f"{name}={value}" for name, value in words.items())],
        stdout=subprocess.PIPE,
        check=True,
        timeout=LOAD_LIMIT_S,
    )
    return (cpu_s(server.program.pid) - before_s) / requests * 1e6


def start_ms(tree: Path) -> float:
    """Processor time of a start, in milliseconds."""
    directory = Path(tempfile.mkdtemp())
    try:
        ready = directory / "ready"
        command = [str(tree / ".venv/bin/python"), "-c", "from bolide.cli.main import main; main()", "broker"]
        command += ["--data", str(directory / "data"), "--port", str(free_port(-2, 1)), "--ready-file", str(ready)]
        with running("start", command, directory, kept_bytecode(tree)) as program:
            await_that("the broker is ready", ready.exists, START_LIMIT_S)
            return cpu_s(program.pid) * 1e3
    finally:
        shutil.rmtree(directory)


def in_turns(rounds: int, measure: Sequence[Callable[[], float]]) -> list[list[float]]:
    for each in measure:
        each()  # what is met for the first time is not counted
    found: list[list[float]] = [[] for _ in measure]
    for number in range(rounds):
        order = range(len(measure)) if number % 2 == 0 else reversed(range(len(measure)))
        for i in order:
            found[i].append(measure[i]())
            time.sleep(0.05)
    return found


def tell(name: str, other: list[float], ours: list[float]) -> dict[str, float]:
    least, median = min(other) / min(ours), statistics.median(other) / statistics.median(ours)
    print(
        f"{name:26} {min(ours):9.2f} {statistics.median(ours):9.2f} | {min(other):9.2f} {statistics.median(other):9.2f}"
        f" | {least:5.3f} {median:5.3f}",
        flush=True,
    )
    return {"ours": min(ours), "other": min(other), "least": least, "median": median}


def run(
    other: Path, rows: Sequence[Row], settings: Mapping[str, str], rounds: int, *, starts: bool
) -> dict[str, dict[str, float]]:
    trees = (other, HERE.parent)
    results = {}
    if starts:
        results[START] = tell(START, *in_turns(rounds, [partial(start_ms, tree) for tree in trees]))
    directory = Path(tempfile.mkdtemp())
    program = built(LOAD_SOURCE)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        servers = []
        for number, tree in enumerate(trees if rows else ()):
            root = directory / str(number)
            root.mkdir()
            python = (str(tree / ".venv/bin/python"),)
            given = {} if number == 0 else settings
            servers.append(stack.enter_context(bolide_up(root, given, package=tree / "src", python=python)))
        for row in rows:
            topic = row.name.replace(" ", "").replace(",", "")
            for server in servers:
                server.make_topic(topic)
                if row.options["mode"] == "pull":
                    filling = Row("", 0, {"mode": "send", "connections": 4, "in_flight": 64})
                    turn(server, filling, topic, program)
            steps = [partial(turn, server, row, topic, program) for server in servers]
            results[row.name] = tell(row.name, *in_turns(rounds, steps))
    return results


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--against", type=Path, required=True, help="a tree of this house, built with `make build`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of this tree's broker"
    )
    parser.add_argument("--rows", default="", help="only rows whose names begin so, joined by commas")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args(argv)
    wanted = tuple(options.rows.split(","))
    rows = [row for row in ROWS if row.name.startswith(wanted)]
    print(f"{'µs a request (start: ms)':26} {'here':>9} {'median':>9} | {'other':>9} {'median':>9} | other : here")
    settings = dict(pair.split("=", 1) for pair in options.set)
    starts = START.startswith(wanted)
    results = run(options.against.resolve(), rows, settings, options.rounds, starts=starts)
    print(json.dumps({"question": QUESTION, "rows": results}))


if __name__ == "__main__":
    main(sys.argv[1:])
