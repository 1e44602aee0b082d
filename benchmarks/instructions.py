"""What does a request cost the broker in instructions, here and in another tree of this house?

Both trees run `bolide up` under valgrind's callgrind, which counts the instructions that a process executes; the loads
are `broker_load.c`, over real sockets. A machine that is busy with other things takes longer and counts the same, so a
difference of a few percent is one: two runs of one tree differ by less than one percent in most rows. The ratio is the
other tree's count over ours: above 1 is cheaper here.

What it does not show: time. The system's own work (reading and writing sockets and files) is not counted, an
instruction that waits for memory counts as any other, and valgrind offers older vector instructions than the machine.
How many sends come in one read follows the speeds of broker and load; a broker under valgrind is slow, so that what is
in flight comes together. And whatever looks at the clock sees a slow broker: with metrics on, each turn counts as one
that took long, so their cost is for `before_after.py` to tell.

`start` is a broker without a name server, from the first instruction of Python to the end of a clean stop, its data in
an empty directory. What it imports is compiled to bytecode before.

    python -m benchmarks.instructions --against ../other-tree     # built there with `make build`; four minutes
    python -m benchmarks.instructions --rows pull
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_brokers import HERE, LOAD_SOURCE, Measured, bolide_up
from benchmarks.programs import built
from interop.process import await_that, free_port, running

QUESTION = "How many instructions does a request cost the broker?"
LOAD_LIMIT_S = 600
CONTROL_LIMIT_S = 120
START_LIMIT_S = 300
PULL_COUNT = 32
START = "start"
REFS = re.compile(r"I\s+refs:\s+([\d,]+)")
TOTALS = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """One load: how many requests of it are counted, and what `broker_load` is told."""

    name: str
    requests: int
    options: dict[str, object]


def _sends(connections: int, in_flight: int, body: int, requests: int) -> Row:
    options: dict[str, object] = {"connections": connections, "in_flight": in_flight, "body": body, "mode": "send"}
    return Row(f"send {connections} x {in_flight}, {body} B", requests, options)


def _pulls(queues: int, batch: int) -> Row:
    name = f"pull of {batch}, {queues} queue{'s' if queues > 1 else ''}"
    return Row(name, 800, {"mode": "pull", "queues": queues, "batch": batch})


ROWS = (
    _sends(1, 1, 128, 1_000),
    _sends(1, 64, 128, 6_400),
    _sends(8, 16, 128, 6_400),
    _sends(1, 64, 1024, 6_400),
    _sends(8, 16, 1024, 6_400),
    _sends(64, 1, 128, 6_400),
    _pulls(1, PULL_COUNT),
    _pulls(4, PULL_COUNT),
    _pulls(1, 1),
)


@dataclass(slots=True)
class Counted:
    """A broker whose instructions are counted."""

    server: Measured
    program: Path
    directory: Path
    dump_count: int = 0

    def load(self, topic: str, requests: int, options: dict[str, object]) -> None:
        count = requests * int(str(options["batch"])) if options["mode"] == "pull" else requests
        words = {"port": self.server.broker[1], "topic": topic, "count": count, **options}
        command = [str(self.program), *(f"{name}={value}" for name, value in words.items())]
        subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LOAD_LIMIT_S)

    def control(self, *words: str) -> None:
        command = ["callgrind_control", *words, str(self.server.program.pid)]
        subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=CONTROL_LIMIT_S)

    def row(self, row: Row) -> float:
        """Instructions a request: the counts of many less those of few, so that what comes with a start goes out."""
        topic = row.name.replace(" ", "").replace(",", "")
        self.server.make_topic(topic)
        if row.options["mode"] == "pull":
            self.load(topic, 4 * PULL_COUNT * 64, {"mode": "send", "connections": 4, "in_flight": 64})
        few = row.requests // 5
        self.control("--instr=on")
        self.load(topic, few, row.options)  # what is met for the first time is translated
        self.control("--zero")
        self.load(topic, few, row.options)
        first = self.counted()
        self.load(topic, few + row.requests, row.options)
        second = self.counted()
        self.control("--instr=off")
        return (second - first) / row.requests

    def counted(self) -> int:
        """How many since the last time."""
        self.dump_count += 1
        self.control(f"--dump=count{self.dump_count}")
        dumps = sorted(self.directory.glob("callgrind.*"), key=lambda path: path.stat().st_mtime_ns)
        found = TOTALS.search(dumps[-1].read_text("latin-1"))
        assert found is not None, f"{dumps[-1]} has no totals"
        return int(found[1])


@contextmanager
def counted_broker(tree: Path, directory: Path, settings: Mapping[str, str]) -> Iterator[Counted]:
    """`bolide up` of a tree under callgrind, which counts nothing until it is told to."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/callgrind"]
    python = tree / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{tree} is not built: run `make build` there")
    with bolide_up(
        directory,
        {"waitTimeMillsInSendQueue": 1000 * LOAD_LIMIT_S, **settings},
        package=tree / "src",
        python=[*valgrind, str(python)],
        start_timeout_s=START_LIMIT_S,
    ) as server:
        yield Counted(server, built(LOAD_SOURCE), directory)


def kept_bytecode(tree: Path) -> dict[str, str]:
    """The environment of a start: what an earlier one compiled is not compiled again."""
    return {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": ""}


def start_count(tree: Path, directory: Path, settings: Mapping[str, str]) -> float:
    """Instructions of a start and a stop."""
    ready, port = directory / "ready", free_port(-2, 1)
    options = ["--port", str(port), "--ready-file", str(ready), "--log-level", "warning"]
    options += [f"--set={key}={value}" for key, value in settings.items()]
    python = [str(tree / ".venv" / "bin" / "python"), "-c", "from bolide.cli.main import main; main()"]
    counting = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={directory / 'cachegrind'}"]
    for before in ([], counting):
        command = [*before, *python, "broker", "--data", str(directory / f"started-{len(before)}"), *options]
        with running("start", command, directory, kept_bytecode(tree)) as program:
            await_that("the broker is ready", ready.exists, START_LIMIT_S)
            program.stop(CONTROL_LIMIT_S)
        found = REFS.search(program.output())
    assert found is not None, program.output()
    return float(found[1].replace(",", ""))


def measured(tree: Path, rows: Sequence[Row], settings: Mapping[str, str], *, starts: bool) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp())
    try:
        counts = {START: start_count(tree, directory, settings)} if starts else {}
        if rows:
            with counted_broker(tree, directory, settings) as broker:
                counts |= {row.name: broker.row(row) for row in rows}
        return counts
    finally:
        shutil.rmtree(directory)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--against", type=Path, help="a tree of this house, built, that is counted too")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of this tree's broker"
    )
    parser.add_argument("--rows", default="", help="only rows whose names begin so, joined by commas")
    options = parser.parse_args(argv)
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions are counted by valgrind (on Debian: apt-get install valgrind)")
    wanted = tuple(options.rows.split(","))
    rows = [row for row in ROWS if row.name.startswith(wanted)]
    starts = START.startswith(wanted)
    ours = measured(HERE.parent, rows, dict(pair.split("=", 1) for pair in options.set), starts=starts)
    other = measured(options.against.resolve(), rows, {}, starts=starts) if options.against else {}
    for name, count in ours.items():
        ratio = f" | {other[name]:>13,.0f} | {other[name] / count:5.3f}" if other else ""
        print(f"{name:26} {count:>13,.0f}{ratio}", flush=True)
    print(json.dumps({"question": QUESTION, "ours": ours, "other": other}))


if __name__ == "__main__":
    main(sys.argv[1:])
