"""How long does a command take, from Enter to the prompt, beside other systems' commands?

Each command is a process, started --runs times; the rounds go through all of them, so that a busy moment of the machine
meets everybody. Wall time is the median, beside it the CPU time. Ours ask a `bolide up` that is started for it;
`redis-cli`, `nats` and `mqadmin` are asked too where they are installed (the last one needs Java 17 and Maven;
--mqadmin 0 leaves it out). `nats` and `redis-cli` have no server here: they print their version, which is the least
they can do.

What it does not show: how long an answer of a large cluster takes. `tests/cli/test_imports.py` holds what each of ours
loads, on any machine.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import commit, machine, publish

QUESTION = "How long does a command take?"
LIMIT_S = 0.250  # what a command may take on an idle machine
OURS = (
    "--version",
    "--help",
    "topic list",
    "topic show Orders",
    "topic route Orders",
    "topic stats",
    "group list",
    "group progress kitchen",
    "message query Orders o-1",
    "message print Orders --limit 3",
    "broker list",
    "namesrv status",
    "cluster",
    "clients",
    "dlq list",
    "send Orders hello",
    "consume Orders --group kitchen --from-beginning --limit 1",
    "admin topicList",
)


@dataclass(slots=True)
class Measured:
    """One command and its runs."""

    name: str
    command: list[str]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def run(self, environment: dict[str, str]) -> None:
        began = time.perf_counter()
        with open(os.devnull, "w") as nowhere:
            program = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=nowhere, stderr=nowhere, env=environment
            )
            _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        self.wall_s.append(time.perf_counter() - began)
        self.cpu_s.append(used.ru_utime + used.ru_stime)
        if program.returncode:
            raise SystemExit(f"{' '.join(self.command)} ended with {program.returncode}")

    def row(self) -> dict[str, object]:
        return {
            "command": self.name,
            "wall_ms": round(statistics.median(self.wall_s) * 1000, 1),
            "worst_ms": round(max(self.wall_s) * 1000, 1),
            "cpu_ms": round(statistics.median(self.cpu_s) * 1000, 1),
        }


def leaves() -> Iterator[list[str]]:
    """Every command and every word behind one."""
    import click

    from bolide.cli.app import app

    def below(command: click.Command | None, path: list[str]) -> Iterator[list[str]]:
        if isinstance(command, click.Group) and path != ["admin"]:
            for name in command.list_commands(click.Context(command)):
                yield from below(command.get_command(click.Context(command), name), [*path, name])
        else:
            yield path

    yield from below(app, [])


def peers(namesrv: str, directory: Path, *, with_java: bool) -> Iterator[Measured]:
    for name, words in (("redis-cli", ["--version"]), ("nats", ["--version"])):
        found = shutil.which(name)
        if found:
            yield Measured(f"{name} {' '.join(words)}", [found, *words])
        else:
            print(f"{name} is not installed here, and left out")
    if with_java:
        from interop.cluster import java_command, prepare_home
        from interop.release import Role
        from interop.tools import MAIN_CLASS

        home = prepare_home(directory)
        words = ["topicList", "-n", namesrv]
        yield Measured("mqadmin topicList", java_command("5.5.0", Role.CLIENT, home, MAIN_CLASS, *words))


def measured(options: argparse.Namespace, namesrv: str, directory: Path) -> list[Measured]:
    bolide = [sys.executable, "-m", "bolide"]
    found = [Measured(f"bolide {line}", [*bolide, *line.split()]) for line in OURS]
    if options.help_pages:
        found += [Measured(f"bolide {' '.join(path)} -h", [*bolide, *path, "-h"]) for path in leaves()]
    found += peers(namesrv, directory, with_java=bool(options.mqadmin))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["NAMESRV_ADDR"] = namesrv
    for each in found:
        each.run(environment)  # the warm-up: what is compiled and what is read from the disk
        each.wall_s.clear()
        each.cpu_s.clear()
    for _ in range(options.runs):
        for each in found:
            each.run(environment)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--help-pages", type=int, default=1, choices=(0, 1), help="every command with -h too")
    parser.add_argument("--mqadmin", type=int, default=1, choices=(0, 1), help="beside Apache's, which needs Java")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    import bolide
    from bolide.testing import cluster

    with tempfile.TemporaryDirectory() as directory, cluster() as rocket:
        with bolide.Producer("start-time", rocket.namesrv) as producer:
            for number in range(100):
                producer.send("Orders", b"order", keys=f"o-{number}")
        with bolide.Consumer("kitchen", "Orders", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
            consumer.receive(1, 30)
        found = measured(options, rocket.namesrv, Path(directory))
    tell(found, options)


def tell(found: list[Measured], options: argparse.Namespace) -> None:
    rows = [each.row() for each in found]
    for row in rows:
        print("{command:<62} {wall_ms:>8} ms (worst {worst_ms}), CPU {cpu_ms} ms".format(**row))
    slow = [each.name for each in found if each.name.startswith("bolide") and statistics.median(each.wall_s) > LIMIT_S]
    print(f"above {LIMIT_S * 1000:.0f} ms: {', '.join(slow) or 'none'}")
    line = json.dumps(
        {"question": QUESTION, "runs": options.runs, "rows": rows, "machine": machine(), "commit": commit()}
    )
    publish(line, is_kept=options.keep)


if __name__ == "__main__":
    main()
