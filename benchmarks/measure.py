"""How a benchmark measures and tells: a warm-up, some runs, the median and the spread.

A benchmark hands `measure` a function that does its work once, times it and says what it did (`Work`). The checksum of
the work has to be the same in every run, so that nobody makes a benchmark faster by doing less. One line is for people,
one JSON line is for machines; `--keep` adds the second to `benchmarks/results/`. What this does not show: other
machines, other loads at the same time, and tails; five runs on a shared machine still differ by some percent.

    options = read_arguments("How fast is it?", argv, count=20_000)     # before anything of bolide is imported
    measure("How fast is it?", lambda: work(options), runs=options.runs, parameters=vars(options))
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RUNS = 5


@dataclass(frozen=True, slots=True)
class Work:
    """What one run did: how many of which thing in which time, and a checksum of what came out."""

    count: int
    unit: str
    elapsed_s: float
    checksum: int
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.count / self.elapsed_s


@dataclass(frozen=True, slots=True)
class Answer:
    """A measured question: the median of the runs, and the lowest and highest beside it."""

    question: str
    unit: str
    median: float
    low: float
    high: float
    checksum: int
    facts: Mapping[str, float]

    def sentence(self, kernel: str) -> str:
        facts = "".join(f", {name} {value:,.2f}" for name, value in self.facts.items())
        return (
            f"{self.question} {self.median:,.0f} {self.unit}/s "
            f"({self.low:,.0f} to {self.high:,.0f}{facts}; {kernel} kernel, checksum {self.checksum:08x})"
        )


def read_arguments(
    question: str, argv: Sequence[str] | None = None, **defaults: int | str | Sequence[str]
) -> argparse.Namespace:
    """The options of a benchmark: one for each default, and --runs, --kernel, --keep; a sequence offers a choice.

    Chooses the kernel, which is possible only before `bolide.kernel` is imported: bolide is imported afterwards.
    """
    parser = argparse.ArgumentParser(description=question)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, int | str):
            parser.add_argument(flag, type=type(default), default=default, help=f"default {default}")
        else:
            parser.add_argument(flag, choices=default, default=default[0], help=f"default {default[0]}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"default {RUNS}")
    parser.add_argument("--kernel", choices=("auto", "plain", "compiled"), default="auto")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    if options.kernel != "auto":
        _choose_kernel(options.kernel)
    return options


def _choose_kernel(name: str) -> None:
    os.environ["BOLIDE_KERNEL"] = name
    if (active := active_kernel()) != name:
        raise SystemExit(f"the {active} kernel was imported before --kernel {name} was read")


def active_kernel() -> str:
    return str(importlib.import_module("bolide.kernel").NAME)


def measure(
    question: str,
    run: Callable[[], Work],
    *,
    runs: int = RUNS,
    parameters: Mapping[str, Any],
    keep: bool = False,
) -> Answer:
    """Run once to warm up and then `runs` times; print both lines and return the answer."""
    run()
    works = [run() for _ in range(runs)]
    checksums = {work.checksum for work in works}
    if len(checksums) != 1:
        raise SystemExit(f"{question} the runs did different work: checksums {sorted(checksums)}")
    rates = [work.rate for work in works]
    facts = {name: statistics.median(work.facts[name] for work in works) for name in works[0].facts}
    answer = Answer(question, works[0].unit, statistics.median(rates), min(rates), max(rates), works[0].checksum, facts)
    kernel = active_kernel()
    line = json.dumps(_record(answer, rates, kernel, parameters))
    print(answer.sentence(kernel))
    publish(line, is_kept=keep)
    return answer


def _record(answer: Answer, rates: list[float], kernel: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "question": answer.question,
        "unit": f"{answer.unit}/s",
        "median": round(answer.median, 1),
        "spread": [round(answer.low, 1), round(answer.high, 1)],
        "runs": [round(rate, 1) for rate in rates],
        "facts": {name: round(value, 4) for name, value in answer.facts.items()},
        "checksum": answer.checksum,
        "machine": machine(),
        "commit": commit(),
        "kernel": kernel,
        "parameters": {name: value for name, value in parameters.items() if name not in ("runs", "kernel", "keep")},
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on, as far as they depend on it."""
    models = [line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return []


def commit() -> str:
    """The commit that was measured, with + when files differ from it."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--abbrev=10"]
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def publish(line: str, *, is_kept: bool) -> None:
    """Print an answer as its one line of JSON; kept, it is added to those of the same benchmark."""
    print(line)
    if not is_kept:
        return
    name = Path(sys.modules["__main__"].__file__ or "interactive").stem
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a", encoding="utf-8") as results:
        results.write(line + "\n")
