"""What every server command does around its server: settings from all sides, logs, a ready file.

Settings are read from the file, then from `--set`, then from options of their own, and later ones win.
"""

import argparse
import contextlib
import gc
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bolide.cli import systemd
from bolide.cli.exits import fail, pairs_of, plain_errors
from bolide.cli.lines import FORMATS, JSON, TEXT, JsonLine, OneLine
from bolide.errors import ConfigError
from bolide.remoting.lines import PeerLines

if TYPE_CHECKING:
    from bolide.remoting.changes import ChangeRules
    from bolide.remoting.server import Server

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Config = TypeVar("_Config")
log = logging.getLogger(__name__)


def demand_linux() -> None:
    if sys.platform != "linux":
        fail(f"Bolide runs on Linux, this is {sys.platform}; a container or a virtual machine will do")


class _ServerParser(argparse.ArgumentParser):
    """Names the option that was probably meant, as click does for other commands."""

    def error(self, message: str) -> NoReturn:
        import difflib  # only a mistake pays for it

        _, _, unknown = message.partition("unrecognized arguments: ")
        options = [name for action in self._actions for name in action.option_strings]
        near = difflib.get_close_matches(unknown.partition(" ")[0].partition("=")[0], options, 1)
        super().error(f"{message} (did you mean {near[0]}?)" if near else message)


def server_parser(name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """A parser with the options that all servers share."""
    parser = _ServerParser(f"bolide {name}", description=summary, epilog=epilog, allow_abbrev=False)
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one setting, or @FILE for those of a file",
    )
    add_running_options(parser)
    return parser


def add_running_options(parser: argparse.ArgumentParser) -> None:
    """How a server that is started tells that it answers, and what it says."""
    parser.add_argument("--ready-file", metavar="FILE", type=Path, help="written as JSON once requests are answered")
    parser.add_argument("--log-level", default="info", help="debug, info, warning or error (default info)")
    parser.add_argument("--log-format", choices=FORMATS, default=TEXT, help="lines for people, or JSON (default text)")
    parser.add_argument("--log-name", metavar="NAME", default="", help="a name in each line, for a log of many servers")


def add_admin_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--admin-from",
        choices=("local", "anywhere"),
        help=f"who may change settings, topics, groups and routes (bolideAdminFrom; default {default})",
    )


def run_command(
    options: argparse.Namespace,
    read: Callable[[argparse.Namespace], _Config],
    show: Callable[[_Config], None],
    serve: Callable[[_Config, "ReadyFile"], None],
) -> None:
    """What a server command does with its options: it prints its settings, or serves until SIGTERM or Ctrl-C."""
    demand_linux()
    with plain_errors():
        set_up_logs(options)
        config = read(options)
        if options.prints:
            show(config)
        else:
            with ready_file(options.ready_file) as file:
                serve(config, file)


def read_file(path: Path) -> dict[str, str]:
    """The settings of a properties file."""
    from bolide.settings import read_properties

    return read_properties(text_of(path))


def read_parts(path: Path, rules: "ChangeRules") -> tuple[dict[str, str], dict[str, str]]:
    """The settings of a file as its owner wrote them, and as they were changed at run time."""
    from bolide.settings import read_properties

    own, changed = rules.parts(text_of(path))
    return read_properties(own), read_properties(changed)


def read_settings(
    path: Path | None, over: dict[str, str], rules: "ChangeRules", read: Callable[[dict[str, str]], _Config]
) -> _Config:
    """The configuration of a name server or a controller: a file's settings, and `over` them those of the command."""
    if path is None:
        return read(over)
    over["configStorePath"] = str(path.absolute())  # as in RocketMQ: run-time changes go to it
    own, kept = read_parts(path, rules)
    kept = usable(kept, path, lambda left: read(own | left | over))
    return read(own | kept | over)


def print_settings(shown: Mapping[str, str]) -> None:
    from bolide.settings import write_properties

    sys.stdout.write(write_properties(shown))


def text_of(path: Path) -> str:
    """UTF-8, or what Java writes where it is not.

    Files that RocketMQ ships begin with a licence between `<!--` and `-->`, which no properties file should have.
    """
    content = re.sub(rb"<!--.*?-->", b"", path.read_bytes(), flags=re.DOTALL)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def usable(kept: Mapping[str, str], path: Path, judge: Callable[[dict[str, str]], object]) -> dict[str, str]:
    """What was changed at run time but for values that would be refused today: no change may keep us from starting.

    `judge` builds the configuration with them; what it finds wrong elsewhere its owner hears later.
    """
    left = dict(kept)
    while left:
        try:
            judge(left)
        except ConfigError as problem:
            if problem.key not in left:
                break
            log.warning(
                "%s; it was changed at run time and is not used: change it again, or remove it from %s", problem, path
            )
            del left[problem.key]
        else:
            break
    return left


def given(options: Mapping[str, str | None]) -> dict[str, str]:
    """Key → what the option for it says, where it was given."""
    return {key: value for key, value in options.items() if value is not None}


def assigned(texts: list[str]) -> dict[str, str]:
    """What `--set` says: `name=value`, or `@FILE` for the settings of a file, which the list of processes hides."""
    pairs: dict[str, str] = {}
    for text in texts:
        pairs |= read_file(Path(text[1:])) if text.startswith("@") else pairs_of("--set", [text])
    return pairs


def set_up_logs(options: argparse.Namespace) -> None:
    """Lines on the standard error: one for each record, and no more of them than a connection may cause."""
    handler = logging.StreamHandler()
    name = options.log_name
    said_by = f"{name.replace('%', '%%')} " if name else ""
    text = OneLine(f"%(asctime)s %(levelname)s {said_by}%(name)s: %(message)s")
    handler.setFormatter(JsonLine(name) if options.log_format == JSON else text)
    handler.addFilter(PeerLines())
    try:
        logging.basicConfig(level=options.log_level.upper(), handlers=[handler])
    except ValueError:
        raise ConfigError("--log-level", options.log_level, "must be debug, info, warning or error") from None


def log_options(options: argparse.Namespace, name: str = "") -> tuple[str, ...]:
    """The words by which a server that we start writes its log as we do."""
    shown = ("--log-level", options.log_level, "--log-format", options.log_format)
    return (*shown, "--log-name", name) if name else shown


def reachable(host: str, port: int) -> str:
    """An address by which this machine reaches a server that may listen on all of its own."""
    everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
    return f"{everywhere.get(host, host)}:{port}"


def run_until_done(main: Coroutine[Any, Any, None]) -> None:
    """Run a server on uvloop until it returns; no signal that comes after that turns a clean stop into a death."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_beating(main))
    systemd.tell(systemd.STOPPING)
    # The interpreter gives signals back their default while it ends, and that kills.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


async def _beating(main: Coroutine[Any, Any, None]) -> None:
    with systemd.beating():
        await main


class StopSignal:
    """SIGTERM and SIGINT as one event: the first counts, further ones neither hasten nor repeat the stop."""

    def __init__(self) -> None:
        import asyncio

        self._event = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._come, number)

    def _come(self, number: signal.Signals) -> None:
        if not self._event.is_set():
            log.info("stopping signal=%s", number.name)
            systemd.tell(systemd.STOPPING)
            self._event.set()

    @property
    def has_come(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


async def serve_until_signal(
    serving: contextlib.AbstractAsyncContextManager[tuple[object, "Server"]], started: Callable[["Server"], None]
) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called once, when requests are answered."""
    stop = StopSignal()
    async with serving as (_, server):
        started(server)
        await stop.wait()


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
    """Tells the one who started us that we answer, and where."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, **addresses: object) -> None:
        """Write it whole: a reader that sees it can read it.

        What the server is made of stands by now. The garbage collector need not go through it again and again: that
        took some 30 ms each time, and the one who connects and leaves in numbers brings it about. What came later it
        goes through as a whole a tenth as often as by default, and when memory has grown (`remoting/slack.py`): hardly
        anything here waits for it.
        """
        gc.freeze()
        gc.set_threshold(700, 10, 100)
        if self._path is not None:
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            temporary.write_text(json.dumps({"pid": os.getpid(), **addresses}) + "\n", "utf-8")
            temporary.replace(self._path)
        where = ", ".join(address for address in addresses.values() if isinstance(address, str))
        systemd.tell(systemd.READY, f"STATUS=serving at {where}")

    def remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
