"""Runs the fuzz: a child process works, and its parent knows what it worked on when it died."""

import argparse
import ctypes
import itertools
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz import seeds
from tests.fuzz.cases import CORPUS, Case, as_text, changed, from_text, keep, kept
from tests.fuzz.targets import Given, exported, targets

FOUND = Path("build/fuzz")
_NOTE_SIZE = 1 << 21
_EDGES = 1 << 18
_HANG_S = 60


class Note:
    """The case at hand, in a file that outlives us."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_NOTE_SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def write(self, target: str, case: Case) -> None:
        text = f"{target} {as_text(case)}\n".encode()[:_NOTE_SIZE]
        self._map[: len(text)] = text


class Edges:
    """What of the compiled code was reached, where it was built to tell; otherwise nothing is ever new."""

    def __init__(self) -> None:
        self._known = ctypes.create_string_buffer(_EDGES)
        self._count = getattr(ctypes.CDLL(None), "new_edges", None)

    def has_new(self) -> bool:
        return self._count is not None and self._count(self._known) > 0


def work(seconds: float, seed: int, grows: bool, only: str | None) -> None:
    """Cases until the time is over, each function in its turn."""
    chance = random.Random(seed)
    note, edges, until = Note(FOUND / "current"), Edges(), time.monotonic() + seconds
    corpus = {name: kept(name) for name in sorted(targets) if only in (None, name)}
    for name, cases in corpus.items():
        for case in cases:
            note.write(name, case)
            targets[name](Given(case))
    edges.has_new()
    count = new_count = 0
    for name in itertools.cycle(corpus):
        if time.monotonic() >= until:
            break
        for _ in range(20):
            case = changed(chance.choice(corpus[name]), chance.choice(corpus[name]), chance)
            note.write(name, case)
            targets[name](Given(case))
            count += 1
            if grows and edges.has_new():
                new_count += 1
                corpus[name].append(case)
                if len(as_text(case)) < 4000:
                    keep(name, case)
    print(f"{count} cases of {len(corpus)} functions, seed {seed}, {new_count} with new edges")  # noqa: T201


def replay(path: Path) -> None:
    """One case that was found, as a file left by an earlier run."""
    name, _, text = path.read_text().partition(" ")
    targets[name](Given(from_text(text)))


def watch(arguments: list[str], seconds: float) -> int:
    """Have a child work; what it died of and on is kept."""
    FOUND.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", *arguments, "--child"]
    try:
        code = subprocess.run(command, timeout=seconds + _HANG_S, check=False).returncode
    except subprocess.TimeoutExpired:
        code = -1
        print("it hangs", file=sys.stderr)  # noqa: T201
    if code:
        text = (FOUND / "current").read_bytes().partition(b"\n")[0]
        path = FOUND / f"found-{time.time_ns()}"
        path.write_bytes(text)
        print(f"found a case: python -m tests.fuzz --replay {path}", file=sys.stderr)  # noqa: T201
    return 1 if code else 0


def renew() -> None:
    for name, cases in seeds.seeds().items():
        (CORPUS / f"{name}.jsonl").write_text("".join(as_text(case) + "\n" for case in cases))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one function")
    parser.add_argument("--grow", action="store_true", help="keep what reaches new edges in the corpus")
    parser.add_argument("--replay", type=Path, help="a case that was found")
    parser.add_argument("--renew", action="store_true", help="write the corpus anew from the seeds")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if missing := set(exported()) ^ set(targets):
        print(f"no target, or no function, for {sorted(missing)}", file=sys.stderr)  # noqa: T201
        return 1
    if given.renew:
        renew()
    elif given.replay:
        replay(given.replay)
    elif given.child:
        work(given.seconds, given.seed, given.grow, given.only)
    else:
        return watch(sys.argv[1:], given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get("BOLIDE_KERNEL") != "plain" else "the fuzz is for the compiled kernel")
