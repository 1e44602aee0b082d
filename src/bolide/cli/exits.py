"""How a command ends: its exit code, and an error of the user's as one sentence on standard error, never a traceback.

It stands apart from `start.py`: what asks a cluster and leaves needs nothing of what a server is started with.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from bolide.cli.tables import is_styled
from bolide.errors import BolideError, ConfigError, NoAnswer

# How a command ends. 1 is for those that look for something wrong, and found it.
USAGE_ERROR, PARTIAL_ANSWER, NOT_THERE, REFUSED, UNREACHABLE = 2, 3, 4, 5, 6
_NO_ROUTE = 10005
_NOT_THERE_CODES = frozenset({17, 22, 26, _NO_ROUTE})  # topic, message or value, group; no route


def fail(sentence: str, code: int = USAGE_ERROR) -> NoReturn:
    """Say what is wrong and leave."""
    red, plain = ("\033[31m", "\033[0m") if is_styled(sys.stderr) else ("", "")
    sys.stderr.write(f"{red}error: {sentence}{plain}\n")
    sys.exit(code)


def exit_code_of(problem: Exception) -> int:
    """The exit code for what was raised: whose fault it is, so that a script knows whether to try again."""
    if isinstance(problem, NoAnswer) or _is_without_brokers(problem):
        return UNREACHABLE
    if isinstance(problem, BolideError) and problem.code is not None:
        return NOT_THERE if problem.code in _NOT_THERE_CODES else REFUSED
    return USAGE_ERROR


def _is_without_brokers(problem: Exception) -> bool:
    """A topic that has no route because nobody is there."""
    if not isinstance(problem, BolideError) or problem.code != _NO_ROUTE:
        return False
    from bolide.client.instance import NoBroker

    return isinstance(problem, NoBroker)


@contextmanager
def plain_errors(port_options: Mapping[int, str] | None = None) -> Iterator[None]:
    """Turn what Bolide and the system raise on purpose into a sentence.

    `port_options` says which option chose a port; where it says nothing it was `--port`.
    """
    problems: list[Exception] = []
    try:
        yield
    except* (BolideError, OSError) as group:
        problems = list(_leaves(group))
    if any(isinstance(problem, BrokenPipeError) for problem in problems):
        _stop_writing()
    if problems:
        sentences = dict.fromkeys(_sentence(problem, port_options or {}) for problem in problems)
        fail("; ".join(sentences), exit_code_of(problems[0]))


def _stop_writing() -> NoReturn:
    """The reader of what we print has seen enough (`| head -1`): no error. A broken connection is a ClientError."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes there
    sys.exit(0)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for problem in group.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            yield from _leaves(problem)
        else:
            yield problem


def _sentence(problem: Exception, port_options: Mapping[int, str]) -> str:
    if isinstance(problem, ConfigError) and problem.key == "listenPort":
        option = port_options.get(problem.value, "--port") if isinstance(problem.value, int) else "--port"
        return f"{problem}; choose another port with {option}, or {option} 0 for a free one"
    if isinstance(problem, OSError) and problem.filename is not None:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def pairs_of(option: str, texts: list[str] | None) -> dict[str, str]:
    """The values of an option that may be repeated, as `--set name=value`."""
    pairs = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(option, text, "must be name=value")
        pairs[name.strip()] = value
    return pairs
