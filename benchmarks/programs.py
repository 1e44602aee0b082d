"""Programs in C beside the benchmarks, built when their source is newer. Not a question of its own."""

import os
import shutil
import subprocess
from pathlib import Path

BUILD = Path(__file__).parent / ".build"
_BUILD_TIMEOUT_S = 300


def built(source: Path) -> Path:
    """The program of a C source. It appears whole: two benchmarks that begin together may both build it."""
    program = BUILD / source.stem
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemExit(f"{source.name} needs a C compiler (on Debian: apt-get install gcc)")
    BUILD.mkdir(exist_ok=True)
    unfinished = BUILD / f"{source.stem}.{os.getpid()}"
    command = [compiler, "-O3", "-Wall", "-o", str(unfinished), str(source)]
    subprocess.run(command, check=True, timeout=_BUILD_TIMEOUT_S)
    unfinished.replace(program)
    return program
