"""`bolide spark-shell`: Python with a tuned session in `spark`."""

import code
import contextlib
import logging
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bolide import __version__
from bolide.cli.commands import Argument, Option
from bolide.cli.exits import pairs_of, plain_errors
from bolide.spark.session import begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    Option("--master", help="where to run: local[2], spark://host:port, yarn, or sc://host:port (Spark Connect)"),
]
Settings = Annotated[list[str] | None, Option("--conf", help="a setting of Spark's, name=value; may be repeated")]

_TELLING_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")


def spark_shell(
    script: Annotated[Path | None, Argument(help="a Python file to run instead of asking", exists=True)] = None,
    arguments: Annotated[list[str] | None, Argument(help="what the file finds in sys.argv")] = None,
    command: Annotated[str | None, Option("-c", help="Python to run instead of asking")] = None,
    master: Master = None,
    settings: Settings = None,
) -> None:
    """Python with Spark ready in `spark`.

    It is a tuned session that knows the formats bolide and bolide-store.
    """
    with contextlib.ExitStack() as stack:
        with plain_errors():
            is_asking = script is None and command is None
            conf = pairs_of("--conf", settings)
            spark = stack.enter_context(interruptible("bolide spark-shell", master, conf, is_asking=is_asking))
        if script is not None:
            sys.argv = [str(script), *(arguments or [])]
            runpy.run_path(str(script), {"spark": spark}, "__main__")
            return
        # Functions that are typed here travel to the workers by value, because their module is called __main__.
        names = vars(sys.modules["__main__"])
        names["spark"] = spark
        if command is not None:
            exec(compile(command, "<command>", "exec"), names)
            return
        _ask(names)


@contextlib.contextmanager
def interruptible(
    app: str, master: str | None, settings: dict[str, str], *, is_asking: bool = False
) -> Iterator["SparkSession"]:
    """A session that Ctrl-C ends at any moment, its Java with it, and without tracebacks of py4j's.

    pyspark has Ctrl-C cancel its jobs first, which is for prompts: in the midst of a question to Java it fails.
    """
    before = _children()
    with _quiet_interrupts():
        try:
            with begun(app, master, **settings) as spark:
                if not is_asking and threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                yield spark
        except KeyboardInterrupt:
            for child in _children() - before:  # a Java that is starting does not see that we are gone
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            raise


def _children() -> set[int]:
    """The processes that this one has started."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= {int(word) for word in (task / "children").read_text().split()}
    return found


@contextlib.contextmanager
def _quiet_interrupts() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _TELLING_LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    problem = record.exc_info[1] if record.exc_info else None
    while problem is not None:
        if isinstance(problem, KeyboardInterrupt):
            return False
        problem = problem.__cause__ or problem.__context__
    return True


def _ask(names: dict[str, object]) -> None:
    with contextlib.suppress(ImportError):  # a Python without readline asks all the same
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    greeting = (
        f"Bolide {__version__} with Spark in `spark`. Try: "
        'spark.read.format("bolide").option("nameServer", "127.0.0.1:9876").option("subscribe", "Orders").load().show()'
    )
    code.InteractiveConsole(names).interact(greeting, "")
