"""Commands made from functions: the signature says it all, as in typer, and click alone does the work.

    app = Commands("Topics: create, list.")

    @app.add()
    def create(topic: Topic, queues: Annotated[int, Option(help="queues on each broker", min=1)] = 8) -> None:
        \"\"\"Create a topic.\"\"\"

typer would bring pydantic, rich and pygments with it: 40 MB, and a third of a second before a command begins to work
(measured: 0.13 s of CPU against 0.04 s for click). A client that never types a command would have them installed, too.

The rule: a module of commands imports what it needs to answer when it answers. Where many are listed (`LazyCommands`),
only the one that was asked for is imported; `tests/cli/test_imports.py` holds what each of them may load.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import click

from bolide.cli.main import INTERRUPTED

F = TypeVar("F", bound=Callable[..., None])
Completer = Callable[[click.Context, click.Parameter, str], list[str]]
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_WATCH = "show it again every N seconds, until Ctrl-C"
# One letter means one thing, wherever it stands.
_LETTERS = {"--group": "-g", "--topic": "-t"}
_METAVARS: dict[type, str] = {int: "N", float: "N", Path: "PATH"}


class _Given:
    """What may be said of options and arguments alike."""

    def __init__(
        self,
        *,
        help: str = "",
        metavar: str | None = None,
        parser: Callable[[str], object] | None = None,
        exists: bool = False,
        complete: Completer | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.parser = parser
        self.exists = exists
        self.complete = complete


class Option(_Given):
    """An option: without names it is called as its parameter. It may bring others, which the function never sees."""

    def __init__(
        self,
        *names: str,
        envvar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        brings: Callable[[], list[click.Option]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.names = names
        self.envvar = envvar
        self.min = min
        self.max = max
        self.brings = brings


class Argument(_Given):
    """A word that has its place and no name."""


class Commands(click.Group):
    """A word with commands behind it."""

    def __init__(
        self, help: str, *, around: Callable[[], AbstractContextManager[None]] = nullcontext, **more: Any
    ) -> None:
        super().__init__(help=help, no_args_is_help=True, context_settings=_SETTINGS, **more)
        self._around = around
        self._added: dict[str, Callable[[], click.Command]] = {}  # not asked for yet, and so not made

    def add(self, name: str | None = None, *, watched: bool = False) -> Callable[[F], F]:
        """Make a command of a function; its own name is the command's if none is given. `watched` adds `--watch`."""

        def added(function: F) -> F:
            own_name = name or _name_of(function)
            self._added[own_name] = partial(command_of, function, own_name, watched=watched)
            return function

        return added

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*self._added, *self.commands})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Made when it is first asked for: a command does not pay for its neighbours' options."""
        if name in self._added:
            self.add_command(self._added.pop(name)())
        return self.commands.get(name)

    def invoke(self, context: click.Context) -> Any:
        try:
            with self._around():
                return super().invoke(context)
        except KeyboardInterrupt:  # what prints until Ctrl-C has done what it was asked for
            raise click.exceptions.Exit(INTERRUPTED) from None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; a misspelt one is told the nearest."""
        if args and not args[0].startswith("-") and self.get_command(context, args[0]) is None:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(context), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", context)
        return super().resolve_command(context, args)


class Place(NamedTuple):
    """Where a command is, and what it is for: enough to list it without loading it."""

    summary: str
    module: str
    attribute: str = "app"
    watched: bool = False


class LazyCommands(Commands):
    """Commands that are imported when they are asked for."""

    def __init__(self, help: str, places: Mapping[str, Place], **more: Any) -> None:
        super().__init__(help, **more)
        self._places = places

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*self._places, *super().list_commands(context)})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        place = self._places.get(name)
        if place is None or name in self.commands:
            return super().get_command(context, name)
        found = getattr(import_module(place.module), place.attribute)
        command = found if isinstance(found, click.Command) else command_of(found, name, watched=place.watched)
        command.name = name
        self.commands[name] = command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        own = {}
        for name in super().list_commands(context):
            command = super().get_command(context, name)
            assert command is not None
            own[name] = command.get_short_help_str(200)
        rows = sorted((own | {name: place.summary for name, place in self._places.items()}).items())
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def command_of(function: Callable[..., None], name: str | None = None, *, watched: bool = False) -> click.Command:
    """A function as a command: its parameters become options and arguments, its docstring the help."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    brought = [note.brings() for hint in hints.values() for note in _notes(hint) if note.brings is not None]
    if watched:
        brought.append([click.Option(["--watch", "-w"], type=click.FloatRange(0.1), metavar="N", help=_WATCH)])
    return click.Command(
        name or _name_of(function),
        callback=_watching(function) if watched else function,
        params=[
            *(_parameter(each.name, hints[each.name], each.default) for each in parameters),
            *(option for options in brought for option in options),
        ],
        help=inspect.getdoc(function),
        context_settings=_SETTINGS,
    )


def _name_of(function: Callable[..., None]) -> str:
    return function.__name__.replace("_", "-")


def _watching(function: Callable[..., None]) -> Callable[..., None]:
    """The function again and again, each time on a clean terminal, until Ctrl-C."""

    def call(watch: float | None, **given: Any) -> None:
        if watch is None:
            function(**given)
            return
        while True:
            with suppress(click.exceptions.Exit):  # what is missing now may be there at the next look
                function(**given)
            pause(watch)
            if sys.stdout.isatty():
                click.echo("\033[H\033[2J", nl=False)

    return call


def pause(seconds: float) -> None:
    """Wait between two looks; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def _notes(hint: Any) -> list[Option]:
    return [note for note in get_args(hint)[1:] if isinstance(note, Option)] if get_origin(hint) is Annotated else []


class _Kind(NamedTuple):
    """What the type of a parameter says."""

    type: Any
    is_list: bool
    is_optional: bool


def _kind(hint: Any) -> _Kind:
    is_optional = False
    if get_origin(hint) is UnionType:
        left = [each for each in get_args(hint) if each is not NoneType]
        is_optional = len(left) < len(get_args(hint))
        hint = left[0]
    if get_origin(hint) is list:
        return _Kind(get_args(hint)[0], True, is_optional)
    return _Kind(hint, False, is_optional)


def _parameter(name: str, hint: Any, default: object) -> click.Parameter:
    said = _Given()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        said = next(note for note in notes if isinstance(note, _Given))
    kind = _kind(hint)
    shared: dict[str, Any] = {
        "required": default is inspect.Parameter.empty,
        "metavar": said.metavar,
        "shell_complete": said.complete,
    }
    if kind.is_list:
        shared["callback"] = _as_list
    elif default is not inspect.Parameter.empty:  # for click a default of None is a value, and nothing is missing then
        shared["default"] = str(default) if isinstance(default, StrEnum) else default
    if isinstance(said, Option):
        return _option(name, said, kind, shared)
    assert isinstance(said, Argument), f"parameter {name} says neither Option nor Argument"
    return _WordArgument(
        [name], type=_click_type(kind.type, said), nargs=-1 if kind.is_list else 1, about=said.help, **shared
    )


def _option(name: str, said: Option, kind: _Kind, shared: dict[str, Any]) -> click.Option:
    named = "--" + name.strip("_").replace("_", "-")
    if kind.type is bool:
        names = said.names or ((f"{named}/--no-{named[2:]}",) if kind.is_optional else (named,))
        shared.pop("metavar")
        return click.Option([name, *names], is_flag=True, help=said.help, **shared)
    return click.Option(
        [name, *(said.names or (*filter(None, [_LETTERS.get(named)]), named))],
        type=_click_type(kind.type, said),
        multiple=kind.is_list,
        help=said.help,
        envvar=said.envvar,
        show_default=shared.get("default") not in (None, ""),
        **{**shared, "metavar": said.metavar or _METAVARS.get(kind.type)},
    )


def _click_type(kind: Any, said: _Given) -> click.ParamType[Any]:
    low, high = (said.min, said.max) if isinstance(said, Option) else (None, None)
    if said.parser is not None:
        return click.types.FuncParamType(said.parser)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Words(kind)
    if kind is Path:
        return click.Path(exists=said.exists, path_type=Path)
    if kind is int:
        if low is high is None:
            return click.INT
        return click.IntRange(None if low is None else int(low), None if high is None else int(high))
    if kind is float:
        return click.FLOAT if low is high is None else click.FloatRange(low, high)
    assert kind is str, kind
    return click.STRING


def _as_list(context: click.Context, parameter: click.Parameter, given: Sequence[object] | None) -> list[object] | None:
    return list(given) if given else None


class _Words(click.Choice[str]):
    """One of the words of an enumeration."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([each.value for each in kind])
        self._kind = kind

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        return self._kind(super().convert(str(value), parameter, context))


class _WordArgument(click.Argument):
    """An argument that has its line of help; click has that since 8.5."""

    def __init__(self, names: Sequence[str], *, about: str, **more: Any) -> None:
        super().__init__(names, **more)
        self.help = about

    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        return self.make_metavar(context), self.help or ""


def listed(words: Iterable[str], begun: str) -> list[str]:
    """Those that go on as a word was begun."""
    return sorted(word for word in words if word.startswith(begun))
