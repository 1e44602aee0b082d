"""The C program beside the store's benchmarks: built on demand, asked by mode. Not a question of its own."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
BUILD = Path(__file__).parent / ".build"
TIMEOUT_S = 300


class Limit(NamedTuple):
    """Seconds that the C program took, and those of processor time: on a busy machine the latter say more."""

    seconds: float
    cpu_s: float


def limit(*words: object) -> Limit:
    """What the C program took for `words`."""
    BUILD.mkdir(exist_ok=True)
    program = BUILD / SOURCE.stem
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run(["cc", "-O3", "-o", str(program), str(SOURCE)], check=True, timeout=TIMEOUT_S)
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S)
    answer = json.loads(done.stdout)
    return Limit(answer["seconds"], answer["cpu_s"])
