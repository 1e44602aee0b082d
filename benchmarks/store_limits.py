"""The C program beside the store's benchmarks: built on demand, asked by mode. Not a question of its own."""

import json
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
BUILD = Path(__file__).parent / ".build"
TIMEOUT_S = 300


def limit_s(*words: object) -> float:
    """Seconds that the C program took for `words`."""
    BUILD.mkdir(exist_ok=True)
    program = BUILD / SOURCE.stem
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run(["cc", "-O3", "-o", str(program), str(SOURCE)], check=True, timeout=TIMEOUT_S)
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S)
    return float(json.loads(done.stdout)["seconds"])
