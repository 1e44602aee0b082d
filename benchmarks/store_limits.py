"""The C program beside the store's benchmarks: built on demand, asked by mode. Not a question of its own."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.programs import built

SOURCE = Path(__file__).with_suffix(".c")
TIMEOUT_S = 300


class Limit(NamedTuple):
    """Seconds that the C program took, and those of processor time: on a busy machine the latter say more."""

    seconds: float
    cpu_s: float


def limit(*words: object) -> Limit:
    """What the C program took for `words`."""
    command = [str(built(SOURCE)), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S)
    answer = json.loads(done.stdout)
    return Limit(answer["seconds"], answer["cpu_s"])
