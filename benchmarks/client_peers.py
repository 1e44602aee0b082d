"""Is Bolide's client as fast as what a Python user would pick instead?

Every client does its tasks (see `peers/work.py`) in a process of its own, against its own server, one after another in
one run; the medians of --runs runs count. Clients: Bolide's, redis-py with hiredis, confluent-kafka, aiokafka, nats-py;
and Bolide's on Apache's broker. A server or library that is not here is named with the reason and left out. The
verdicts are issue 6's: one at a time and with 64 in flight faster than everybody; own batches and a backlog at twice
aiokafka's rate and within 2.5 times of librdkafka's processor time; from send to handler within Redis' + 0.2 ms.

What it does not show: other machines, a network, many clients, and tails; client and server share the processors.

    python -m benchmarks.client_peers            # some minutes
    python -m benchmarks.client_peers --smoke    # seconds, our own rows
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import commit as measured_commit
from benchmarks.measure import machine
from benchmarks.peers.servers import SERVERS, Absent, Server

QUESTION = "Is Bolide's client as fast as what a Python user would pick instead?"
# client → its server, its module, its tasks
CLIENTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "bolide": ("bolide", "bolide", ("send", "threads", "inflight", "batch", "read", "latency")),
    "redis": ("redis", "redis", ("send", "threads", "inflight", "batch", "read", "latency")),
    "confluent": ("kafka", "confluent_kafka", ("send", "batch", "read")),
    "aiokafka": ("kafka", "aiokafka", ("send", "inflight", "batch", "read")),
    "nats": ("nats", "nats", ("send", "inflight", "read")),
    "apache": ("apache", "bolide", ("send", "threads", "inflight", "batch", "read", "latency")),
}
COUNTS = {"send": 5000, "threads": 16_000, "inflight": 64_000, "batch": 200_000, "read": 200_000, "latency": 5000}
SLOW = {"nats": 8, "aiokafka": 2}  # their counts are divided, so that a run stays within minutes
SMOKE_COUNT = 128
WORK_LIMIT_S = 300.0
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--runs", type=int, default=5, help="default 5")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="which, separated by commas")
    parser.add_argument("--tasks", default=",".join(COUNTS), help="which, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies all counts")
    parser.add_argument("--smoke", action="store_true", help="our own rows, small")
    options = parser.parse_args(argv)
    clients = ["bolide"] if options.smoke else options.clients.split(",")
    rows: dict[str, dict[str, Row]] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bolide-peers-") as directory, ExitStack() as stack:
        for client in clients:
            server, module, tasks = CLIENTS[client]
            wanted = [task for task in tasks if task in options.tasks.split(",")]
            try:
                rows[client] = _measure(client, server, module, wanted, Path(directory), stack, options)
            except Absent as reason:
                absent[client] = str(reason)
                print(f"{client}: left out, {reason}")
    verdicts = _verdicts(rows)
    told: dict[str, Any] = {
        "question": QUESTION,
        "rows": rows,
        "absent": absent,
        "verdicts": verdicts,
        "load": os.getloadavg(),
        "machine": machine(),
        "commit": measured_commit(),
    }
    _show(rows, verdicts)
    print(json.dumps(told))
    return told


def _measure(
    client: str, kind: str, module: str, tasks: list[str], directory: Path, stack: ExitStack, options: Any
) -> dict[str, Row]:
    if importlib.util.find_spec(module) is None:
        raise Absent(f"the library is not installed: pip install {module.replace('_', '-')}")
    home = directory / client
    home.mkdir()
    measured: dict[str, Row] = {}
    with ExitStack() as own:
        server = own.enter_context(SERVERS[kind](home))
        for task in tasks:
            count = SMOKE_COUNT if options.smoke else int(COUNTS[task] * options.scale) // SLOW.get(client, 1)
            runs = [_run(client, task, server, count) for _ in range(1 if options.smoke else options.runs)]
            measured[task] = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            measured[task]["spread"] = [min(run["rate"] for run in runs), max(run["rate"] for run in runs)]
    return measured


def _run(client: str, task: str, server: Server, count: int) -> dict[str, float]:
    """One run in a process of its own: messages a second, microseconds of processor time at both ends."""
    name = "bolide" if client == "apache" else client
    command = [sys.executable, "-m", "benchmarks.peers.work", name, task, server.address, str(count)]
    cpu_before_s = server.cpu_s()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WORK_LIMIT_S, cwd=Path(__file__).parent.parent, check=False
    )
    if done.returncode:
        raise SystemExit(f"{client} {task} failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    # A backlog is written before it is read: of that task the server's time would tell two things at once.
    server_us = 0.0 if task == "read" else 1e6 * (server.cpu_s() - cpu_before_s) / count
    row = {"rate": count / told["elapsed_s"], "client_us": 1e6 * told["cpu_s"] / count, "server_us": server_us}
    return row | {f"p{p}_ms": value for p, value in told.get("delays_ms", {}).items()}


def _verdicts(rows: dict[str, dict[str, Row]]) -> dict[str, bool]:
    """The targets of which both sides were measured, and whether they are met."""
    found: dict[str, bool] = {}
    ours = rows.get("bolide", {})
    others = {client: tasks for client, tasks in rows.items() if client not in ("bolide", "apache")}
    for task in ("send", "inflight"):
        for client, tasks in others.items():
            if task in ours and task in tasks:
                found[f"{task}: faster than {client}"] = ours[task]["rate"] > tasks[task]["rate"]
    for task in ("batch", "read"):
        if task in ours and task in others.get("aiokafka", {}):
            found[f"{task}: twice aiokafka"] = ours[task]["rate"] >= 2 * others["aiokafka"][task]["rate"]
        if task in ours and task in others.get("confluent", {}):
            limit_us = 2.5 * others["confluent"][task]["client_us"]
            found[f"{task}: within 2.5 times librdkafka's processor time"] = ours[task]["client_us"] <= limit_us
    if "latency" in ours and "latency" in others.get("redis", {}):
        limit_ms = others["redis"]["latency"]["p50_ms"] + 0.2
        found["latency: p50 within Redis' + 0.2 ms"] = ours["latency"]["p50_ms"] <= limit_ms
    return found


def _show(rows: dict[str, dict[str, Row]], verdicts: dict[str, bool]) -> None:
    print(f"{'task':9} {'client':10} {'messages/s':>12} {'client µs':>10} {'server µs':>10}")
    for task in COUNTS:
        for client, tasks in rows.items():
            if row := tasks.get(task):
                delays = f"   p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms" if "p50_ms" in row else ""
                numbers = f"{row['rate']:12,.0f} {row['client_us']:10.2f} {row['server_us']:10.2f}"
                print(f"{task:9} {client:10} {numbers}{delays}")
    for claim, holds in verdicts.items():
        print(f"{'met   ' if holds else 'MISSED'} {claim}")


if __name__ == "__main__":
    main()
