"""How many tasks a second does Celery do on Bolide, beside Redis and RabbitMQ?

One application, one worker (prefork, two processes, no results), no-op tasks that leave one byte in a file. All tasks
are sent first, by one thread, and timed; then the worker begins, and the time from its first task to its last is taken.
Each broker in its turn, the medians of --runs count. Redis and RabbitMQ are Debian's, with messages on disk. CPU is
what the sender, the worker with its start, and the broker used for a task: on a busy machine it says more than rates.

What it does not show: other machines, many senders, results. The worker's own work is most of it, on every broker.

    python -m benchmarks.celery_tasks --count 10000 --runs 3
"""

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import pools

from benchmarks.measure import commit, machine
from benchmarks.peers.servers import SERVERS, Absent, Server

QUESTION = "How many tasks a second does Celery do on Bolide, beside Redis and RabbitMQ?"
URLS = {"bolide": "bolide://{}", "redis": "redis://{}/0", "rabbit": "amqp://guest:guest@{}//"}
LIBRARIES = {"bolide": "bolide", "redis": "redis", "rabbit": "amqp"}
COLUMNS = ("sent_a_second", "done_a_second", "sender_us", "worker_us", "broker_us")
LIMIT_S = 240.0
POLL_INTERVAL_S = 0.002

app = Celery("measured", broker=os.environ.get("MEASURED_BROKER", "memory://"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=16, task_acks_late=True)
_marks = os.environ.get("MEASURED_MARKS")


@app.task(name="measured.nothing")  # type: ignore[misc, untyped-decorator, unused-ignore]
def nothing() -> None:
    assert _marks is not None, "a worker was told"
    with open(_marks, "ab", buffering=0) as marks:
        marks.write(b".")


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--count", type=int, default=10_000, help="tasks, default 10000")
    parser.add_argument("--runs", type=int, default=3, help="default 3")
    parser.add_argument("--brokers", default=",".join(URLS), help="which, separated by commas")
    parser.add_argument("--keep", action="store_true", help="kept in benchmarks/results by hand")
    options = parser.parse_args(argv)
    rows: dict[str, dict[str, float]] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bolide-celery-") as directory, ExitStack() as stack:
        urls: dict[str, str] = {}
        servers: dict[str, Server] = {}
        for broker in options.brokers.split(","):
            try:
                if importlib.util.find_spec(LIBRARIES[broker]) is None:
                    raise Absent(f"pip install {LIBRARIES[broker]}")
                place = Path(directory) / broker
                place.mkdir()
                servers[broker] = stack.enter_context(SERVERS[broker](place))
                urls[broker] = URLS[broker].format(servers[broker].address)
            except Absent as reason:
                absent[broker] = str(reason)
        runs: dict[str, list[tuple[float, ...]]] = {broker: [] for broker in urls}
        for run in range(options.runs):
            for broker, url in urls.items():
                marks = Path(directory) / f"{broker}-{run}"
                runs[broker].append(_measured(servers[broker], url, marks, options.count))
        for broker, found in runs.items():
            medians = (statistics.median(each) for each in zip(*found, strict=True))
            rows[broker] = {name: round(value) for name, value in zip(COLUMNS, medians, strict=True)}
    told = {"question": QUESTION, "rows": rows, "absent": absent, "count": options.count, "runs": options.runs}
    for broker, row in rows.items():
        print(
            f"{broker}: {row['sent_a_second']:,.0f} tasks/s sent, {row['done_a_second']:,.0f} tasks/s done; "
            f"CPU a task: sender {row['sender_us']:,.0f} µs, worker {row['worker_us']:,.0f} µs, "
            f"broker {row['broker_us']:,.0f} µs"
        )
    print(json.dumps({**told, "machine": machine(), "commit": commit(), "load": os.getloadavg()}))
    return told


def _measured(server: Server, url: str, marks: Path, count: int) -> tuple[float, ...]:
    server_s, sender_s = server.cpu_s(), time.process_time()
    sent = _send(url, count)
    sender_s = time.process_time() - sender_s
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = _work(url, marks, count)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sent, done, *(each / count * 1e6 for each in (sender_s, worker_s, server.cpu_s() - server_s))


def _send(url: str, count: int) -> float:
    """Tasks a second that one thread sends."""
    app.conf.broker_url = url
    with app.connection_for_write() as connection, connection.Producer() as producer:
        nothing.apply_async(producer=producer)  # what is opened and declared is not measured, nor this one
        begun_s = time.perf_counter()
        for _ in range(count - 1):
            nothing.apply_async(producer=producer)
        took_s = time.perf_counter() - begun_s
    pools.reset()
    return (count - 1) / took_s


def _work(url: str, marks: Path, count: int) -> float:
    """Tasks a second that one worker does, from its first to its last."""
    marks.touch()
    environment = {**os.environ, "MEASURED_BROKER": url, "MEASURED_MARKS": str(marks)}
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "benchmarks.celery_tasks", "worker", "-c", "2"]
    command += ["-P", "prefork", "-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as worker:
        try:
            _await_size(marks, 1)
            begun_s = time.perf_counter()
            _await_size(marks, count)
            return (count - 1) / (time.perf_counter() - begun_s)
        finally:
            worker.terminate()


def _await_size(marks: Path, size: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while marks.stat().st_size < size:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{marks.stat().st_size} of {size} tasks were done in {LIMIT_S:.0f} s")
        time.sleep(POLL_INTERVAL_S)


if __name__ == "__main__":
    main()
