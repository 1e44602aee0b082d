"""Does a second instance on a second core take more messages?

Two units run at the same time, `bolide broker --instances 1` and `--instances 2`, and take turns. The load is the same
for both: two programs of 8 connections with 16 sends of 128 bytes under way on each (`broker_load.c`), both at the one
broker, or one at each of the two. What the load itself uses is told as its share of the machine's cores, for on a
machine with two cores it takes what a second broker would need.

    python -m benchmarks.instances --seconds 4 --turns 3

It does not show a network, nor more cores than this machine has.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import commit, machine, publish, read_arguments
from benchmarks.measured_brokers import LOAD_SOURCE, SEND_WAIT_MS, START_TIMEOUT_S, Measured
from benchmarks.programs import built
from interop.process import Program, await_that, running
from tests.cli.processes import COMMAND

QUESTION = "Does a second instance on a second core take more messages?"
LOADS = 2
ROOM = {"mappedFileSizeCommitLog": 256 << 20, "waitTimeMillsInSendQueue": SEND_WAIT_MS, "diskMaxUsedSpaceRatio": 99}


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    options = read_arguments(QUESTION, argv, seconds="4", warmup="1", turns=3)
    rates: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="bolide-instances-") as directory, ExitStack() as stack:
        namesrv = stack.enter_context(_name_server(Path(directory)))
        units = {count: stack.enter_context(_unit(Path(directory), namesrv, count)) for count in rates}
        for turn in range(options.turns):
            for count in (1, 2) if turn % 2 else (2, 1):
                rates[count].append(_turn(units[count], f"T-{count}-{turn}", options.seconds, options.warmup))
    rows = {
        str(count): {key: round(statistics.median(turn[key] for turn in turns), 2) for key in turns[0]}
        for count, turns in rates.items()
    }
    ratio = rows["2"]["rate"] / rows["1"]["rate"]
    for number, row in rows.items():
        print(
            f"{number} instance(s): {row['rate']:,.0f} sends/s, {row['broker_cores']} cores of brokers, "
            f"{row['load_cores']} of the load"
        )
    told = {"question": QUESTION, "rows": rows, "ratio": round(ratio, 2), "turns": rates}
    told |= {"machine": machine(), "commit": commit()}
    line = json.dumps(told)
    publish(line, is_kept=options.keep)
    return told


def _turn(unit: list[Measured], topic: str, seconds: str, warmup: str) -> dict[str, float]:
    for broker in unit:
        broker.make_topic(topic)
    loads = []
    for number in range(LOADS):
        broker = unit[number % len(unit)]
        words = {"port": broker.broker[1], "pid": broker.program.pid, "topic": topic, "mode": "send"}
        words |= {"connections": 8, "in_flight": 16, "seconds": seconds, "warmup": warmup}
        command = [str(built(LOAD_SOURCE)), *(f"{key}={value}" for key, value in words.items())]
        loads.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    told = [json.loads(load.communicate()[0]) for load in loads]
    stored = sum(broker.message_count(topic) for broker in unit)
    assert stored == sum(each["total_sends"] for each in told), "what was acknowledged is not what is there"
    spent = told[: len(unit)]  # two loads at one broker both saw its time
    return {
        "rate": sum(each["sends"] / each["seconds"] for each in told),
        "broker_cores": sum(each["cpu_s"] / each["seconds"] for each in spent),
        "load_cores": sum(each["own_cpu_s"] / each["seconds"] for each in told),
    }


@contextmanager
def _name_server(directory: Path) -> Iterator[str]:
    ready = directory / "namesrv.json"
    command = [*COMMAND, "namesrv", "--host", "127.0.0.1", "--port", "0", "--ready-file", str(ready)]
    command += ["--set", f"kvConfigPath={directory / 'kv.json'}", "--set", f"configStorePath={directory / 'ns.conf'}"]
    with running("namesrv", command, directory) as program:
        yield str(_ready(ready, program)["namesrv"])


@contextmanager
def _unit(directory: Path, namesrv: str, count: int) -> Iterator[list[Measured]]:
    ready = directory / f"unit-{count}.json"
    command = [*COMMAND, "broker", "--instances", str(count), "--host", "127.0.0.1", "--port", "0", "-n", namesrv]
    command += ["--data", str(directory / f"unit-{count}"), "--ready-file", str(ready), "--log-level", "warning"]
    settings = {"brokerName": f"unit-{count}", **ROOM}
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with running(f"unit-{count}", command, directory) as program:
        yield [_measured(row, namesrv) for row in _ready(ready, program)["brokers"]]
        program.stop()  # and its brokers with it


@dataclass(frozen=True, slots=True)
class Instance:
    """The process of one broker of a unit."""

    pid: int


def _measured(row: dict[str, Any], namesrv: str) -> Measured:
    host, _, port = row["address"].partition(":")
    return Measured("bolide", Instance(row["pid"]), (host, int(port)), namesrv)


def _ready(path: Path, program: Program) -> dict[str, Any]:
    def is_up() -> bool:
        if not program.is_running:
            raise SystemExit(f"{program.name} ended at its start:\n{program.output()}")
        return path.exists()

    await_that(f"{path.stem} is ready", is_up, START_TIMEOUT_S)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    main()
