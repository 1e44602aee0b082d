"""What every server command does around its server: settings from all sides, logs, a ready file, plain errors.

Settings are read from the file, then from `--set`, then from options of their own, and later ones win. An error of the
user's is one sentence on standard error and exit code 2, never a traceback.
"""

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from bolide.errors import BolideError, ConfigError
from bolide.settings import read_properties

USAGE_ERROR = 2


def fail(sentence: str) -> NoReturn:
    """Say what is wrong and leave."""
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    sys.stderr.write(f"{red}error: {sentence}{plain}\n")
    sys.exit(USAGE_ERROR)


def demand_linux() -> None:
    if sys.platform != "linux":
        fail(f"Bolide runs on Linux, this is {sys.platform}; a container or a virtual machine will do")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what Bolide and the system raise on purpose into a sentence."""
    problems: list[Exception] = []
    try:
        yield
    except* (BolideError, OSError) as group:
        problems = list(_leaves(group))
    if problems:
        fail("; ".join(dict.fromkeys(_sentence(problem) for problem in problems)))


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for problem in group.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            yield from _leaves(problem)
        else:
            yield problem


def _sentence(problem: Exception) -> str:
    if isinstance(problem, ConfigError) and problem.key == "listenPort":
        return f"{problem}; choose another port with --port, or --port 0 for a free one"
    if isinstance(problem, OSError) and problem.filename is not None:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def read_file(path: Path) -> dict[str, str]:
    """The settings of a properties file; UTF-8, or what Java writes where it is not.

    Files that RocketMQ ships begin with a licence between `<!--` and `-->`, which no properties file should have.
    """
    content = re.sub(rb"<!--.*?-->", b"", path.read_bytes(), flags=re.DOTALL)
    try:
        return read_properties(content.decode("utf-8"))
    except UnicodeDecodeError:
        return read_properties(content.decode("latin-1"))


def read_assignments(assignments: list[str]) -> dict[str, str]:
    """The settings of `--set key=value`."""
    settings = {}
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise ConfigError("--set", assignment, "must be key=value")
        settings[key.strip()] = value
    return settings


def set_up_logs(level: str) -> None:
    try:
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    except ValueError:
        raise ConfigError("--log-level", level, "must be debug, info, warning or error") from None


def reachable(host: str, port: int) -> str:
    """An address by which this machine reaches a server that may listen on all of its own."""
    everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
    return f"{everywhere.get(host, host)}:{port}"


@contextlib.contextmanager
def ready_file(path: Path | None) -> Iterator["ReadyFile"]:
    """A file that is there while the server answers, and only then."""
    file = ReadyFile(path)
    file.remove()
    try:
        yield file
    finally:
        file.remove()


class ReadyFile:
    """Tells whoever started us that we answer, and where."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, **addresses: str) -> None:
        """Write it whole: a reader that sees it can read it."""
        if self._path is not None:
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            temporary.write_text(json.dumps({"pid": os.getpid(), **addresses}) + "\n", "utf-8")
            temporary.replace(self._path)

    def remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
