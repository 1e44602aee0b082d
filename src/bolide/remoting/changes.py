"""Settings changed by a request while a server runs: what may, what may not and why, and how it is kept.

Only a white list may change: what is safe to change while peers are connected. The rest is refused with the reason, and
one refused key refuses all that came with it. What was changed is kept at the end of the configuration file, under a
line that says so; the owner's own lines and comments above it stay as they are.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bolide.errors import ConfigError, Refusal, StoreError
from bolide.files import write_whole
from bolide.protocol.codes import ResponseCode
from bolide.remoting.handlers import bounded_body
from bolide.remoting.owner import Request
from bolide.settings import changed, check_keys, read_properties, write_properties

SETTINGS_SIZE_MAX = 64 * 1024


class Changeable(Protocol):
    """A configuration that may change while its server runs, but for what its owner forbids."""

    @property
    def black_list(self) -> str: ...


C = TypeVar("C", bound=Changeable)


class Live(Generic[C]):
    """The configuration in force; only a request that changes it puts another in its place."""

    __slots__ = ("now",)

    def __init__(self, config: C) -> None:
        self.now = config


LOG_LEVEL = "bolideLogLevel"
LOG_LEVELS = ("", "debug", "info", "warning", "error")


def set_log_level(level: str) -> None:
    """How much the log says from now on; empty is as the command that started us has it."""
    logging.getLogger("bolide").setLevel(level.upper() or logging.NOTSET)


def read_changes(request: Request) -> dict[str, str]:
    """The properties text that a request carries; raises Refusal."""
    try:
        return read_properties(bounded_body(request, SETTINGS_SIZE_MAX).decode("utf-8"))
    except (UnicodeDecodeError, ConfigError) as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the body is no properties text: {problem}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules:
    """Which keys of one kind of server may change at run time."""

    server: str  # as it is called in a sentence
    command: str  # mqadmin's, named in the file
    changeable: frozenset[str]
    used: frozenset[str]
    without_effect: Mapping[str, str]

    def check(self, changes: Mapping[str, str], black_list: str) -> None:
        """Raises Refusal for the first key that may not change; `black_list` is separated by semicolons."""
        forbidden = {key.strip() for key in black_list.split(";")}
        for key in changes:
            self._check_key(key, forbidden)

    def _check_key(self, key: str, forbidden: set[str]) -> None:
        if key in forbidden:
            raise Refusal(ResponseCode.NO_PERMISSION, f"{key} is in configBlackList: change it in the file and restart")
        if key in self.changeable:
            return
        if key in self.used:
            text = f"{key} is read at the start only: change it in the file and restart"
            raise Refusal(ResponseCode.NO_PERMISSION, text)
        if key in self.without_effect:
            text = f"{key} has no effect in this {self.server}, so it was not changed"
            raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        try:
            check_keys({key: ""}, self.used, self.without_effect)
        except ConfigError as problem:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{key}: {problem.why}") from None

    def updated(self, config: C, changes: Mapping[str, str]) -> C:
        """The configuration after a change at run time: all of it or, refused with the reason, nothing."""
        self.check(changes, config.black_list)
        try:
            return changed(config, changes)
        except ConfigError as problem:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None

    def noted(self, text: str, changes: Mapping[str, str]) -> str:
        """The text of a configuration file with `changes` noted at its end, after those noted there before."""
        own, before = self.parts(text)
        if own and not own.endswith("\n"):
            own += "\n"
        return f"{own}{self._mark}\n{write_properties({**read_properties(before), **changes})}"

    def parts(self, text: str) -> tuple[str, str]:
        """The text of a configuration file: its owner's lines, and what was changed at run time."""
        own, _, later = text.partition(self._mark)
        return own, later

    @property
    def _mark(self) -> str:
        return f"# Changed at run time (mqadmin {self.command}); later lines win over earlier ones."

    def note(self, path: Path, changes: Mapping[str, str]) -> None:
        """Write changed settings to the end of the configuration file; blocks, raises StoreError."""
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as problem:
            raise StoreError(f"{path} could not be read: {problem}") from problem
        write_whole(path, self.noted(text, changes))
