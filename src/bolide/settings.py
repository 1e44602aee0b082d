"""Settings: RocketMQ's properties text ↔ frozen dataclasses.

Each room has one dataclass whose fields name their RocketMQ key with `conf`, so a Java configuration file still works.
A file is read into a dict of texts once; `build` turns the part a room knows into its dataclass, and `check_keys` sorts
the rest: keys RocketMQ has but we give no effect are returned to be warned of in one line, keys nobody knows stop the
start with the nearest right name. Nothing here reads the environment or a global.

Every number says beside its key how small and how large it may be (`Range`), a word which ones there are (`OneOf`). A
room asks `check_bounds` when it is built, so a value is judged alike in a file, on the command line and at run time.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from bolide.errors import ConfigError

_KEY = "rocketmq_key"
HIDDEN = "******"
_BOUND = "bound"
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")  # int() would take 1_000 and digits of other scripts, which Java does not
_TEXT_LENGTH_MAX = 4096
_LINE_END = re.compile(r"\r\n|\r|\n")  # str.splitlines knows more ends than Java does
_UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")
C = TypeVar("C")


class Range(msgspec.Struct, frozen=True):
    """The numbers a setting may have, both ends too; `why` ends the sentence that refuses another."""

    low: int
    high: int
    why: str = ""

    def problem(self, value: object) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high:
            return None
        return f"must be {self.low} to {self.high}" + (f": {self.why}" if self.why else "")


class OneOf(msgspec.Struct, frozen=True):
    """The values a setting may have."""

    values: tuple[object, ...]

    def problem(self, value: object) -> str | None:
        return None if value in self.values else f"must be one of {', '.join(map(str, self.values))}"


class Name(msgspec.Struct, frozen=True):
    """What goes into routes, logs and names of files: short, printable, one part of a path."""

    size_max: int

    def problem(self, value: object) -> str | None:
        text = str(value)
        is_fine = text.isprintable() and text.strip() and not text.startswith(".") and "/" not in text
        if is_fine and len(text.encode("utf-8", "replace")) <= self.size_max:
            return None
        return f"must be 1 to {self.size_max} printable bytes, without / and no . at the front"


Bound = Range | OneOf | Name

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
PORTS = Range(0, 65_535)
PERCENTS = Range(0, 100)


def conf(key: str, default: Any = dataclasses.MISSING, bound: Bound | None = None, *, is_secret: bool = False) -> Any:
    """A dataclass field that is called `key` in RocketMQ's configuration files; a secret is never shown or dumped."""
    return dataclasses.field(default=default, repr=not is_secret, metadata={_KEY: key, _BOUND: bound})


def check_bounds(config: object) -> None:
    """Raises ConfigError for the first setting of a room that is out of its bounds; for its `__post_init__`."""
    for field in dataclasses.fields(cast("Any", config)):
        bound: Bound | None = field.metadata.get(_BOUND)
        if bound is not None and (problem := bound.problem(value := getattr(config, field.name))) is not None:
            raise ConfigError(field.metadata[_KEY], value, problem)


def bounds_of(room: type) -> dict[str, Bound | None]:
    """RocketMQ's key → its bound, for one configuration dataclass."""
    return {field.metadata[_KEY]: field.metadata[_BOUND] for field in dataclasses.fields(room) if field.metadata}


def unbounded(room: type) -> list[str]:
    """The keys of a room that hold a number and do not say which; there should be none."""
    hints = get_type_hints(room)
    bounds = bounds_of(room)
    return [key for key, name in keys_of(room).items() if hints[name] in (int, float) and bounds[key] is None]


def keys_of(room: type) -> dict[str, str]:
    """RocketMQ's key → our field name, for one configuration dataclass."""
    fields = dataclasses.fields(room)
    return {field.metadata[_KEY]: field.name for field in fields if _KEY in field.metadata}


def read_properties(text: str) -> dict[str, str]:
    """Read Java's .properties text: =, : or blanks after the key, # and ! comments, \\ escapes, joined lines."""
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        value = line[key_end:].lstrip(" \t\f")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t\f")
        entries[_unescape(line[:key_end])] = _unescape(value)
    return entries


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _key_end(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            parts.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = _UNICODE_ESCAPE.match(text, at + 2)
            if digits is None:
                raise ConfigError("properties", text, "an escape \\u needs four hexadecimal digits")
            parts.append(chr(int(digits[0], 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    # Java escapes what lies beyond 16 bits as two surrogates; together they are one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_properties(entries: Mapping[str, object]) -> str:
    """Write `key=value` lines as RocketMQ's configuration answers and files have them, sorted by key."""
    return "".join(f"{_escape_key(key)}={_escape(as_text(entries[key]))}\n" for key in sorted(entries))


_WRITTEN_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_WRITTEN = str.maketrans(_WRITTEN_ESCAPES)
_WRITTEN_KEY = str.maketrans({**_WRITTEN_ESCAPES, " ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"})


def _escape(value: str) -> str:
    # A blank at the front belongs to the separator unless it is escaped.
    return ("\\" if value[:1] == " " else "") + value.translate(_WRITTEN)


def _escape_key(key: str) -> str:
    return key.translate(_WRITTEN_KEY)


def as_text(value: object) -> str:
    """The text RocketMQ would show for a setting."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or value == Path() else str(value)


def build(room: type[C], properties: Mapping[str, str]) -> C:
    """Make a configuration dataclass from the texts it has keys for; everything else keeps its default."""
    hints = get_type_hints(room)
    values = {
        name: _parse(key, properties[key], hints[name]) for key, name in keys_of(room).items() if key in properties
    }
    return room(**values)


def build_whole(kind: type[C], properties: Mapping[str, str]) -> C:
    """The same with the rooms that it has as fields, each from the same texts."""
    rooms: dict[str, Any] = {name: build(room, properties) for name, room in _rooms_of(kind).items()}
    return dataclasses.replace(cast("Any", build(kind, properties)), **rooms)  # type: ignore[no-any-return]


def all_keys_of(kind: type) -> frozenset[str]:
    """The keys of a configuration dataclass and of the rooms that it has as fields."""
    return frozenset(key for room in (kind, *_rooms_of(kind).values()) for key in keys_of(room))


def _rooms_of(kind: type) -> dict[str, type]:
    """Field name → configuration dataclass."""
    hints = get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and dataclasses.is_dataclass(hint)}


def changed(config: C, changes: Mapping[str, str]) -> C:
    """With other values for some of its own keys; raises ConfigError for one that cannot be honoured."""
    hints = get_type_hints(type(config))
    keys = keys_of(type(config))
    values = {keys[key]: _parse(key, text, hints[keys[key]]) for key, text in changes.items()}
    return dataclasses.replace(cast("Any", config), **values)  # type: ignore[no-any-return]


def shown_whole(config: object) -> dict[str, str]:
    """RocketMQ's key → text, for a configuration dataclass and its rooms; stars for secrets."""
    rooms = [getattr(config, name) for name in reversed(_rooms_of(type(config)))]
    return {key: text for room in (*rooms, config) for key, text in (dump(room) | masked(room)).items()}


def dump(config: object) -> dict[str, str]:
    """RocketMQ's key → text, for all a configuration dataclass holds but its secrets: this is shown to others."""
    shown = {field.name for field in dataclasses.fields(cast("Any", config)) if field.repr}
    return {key: as_text(getattr(config, name)) for key, name in keys_of(type(config)).items() if name in shown}


def masked(config: object) -> dict[str, str]:
    """RocketMQ's key → stars, for the secrets of a room that are set: that they are is no secret."""
    fields = [field for field in dataclasses.fields(cast("Any", config)) if _KEY in field.metadata and not field.repr]
    return {field.metadata[_KEY]: HIDDEN if getattr(config, field.name) else "" for field in fields}


def _parse(key: str, text: str, kind: Any) -> Any:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(key, text, "must be true or false")
        return text.lower() == "true"
    if kind is int or kind is float:
        return _number(key, text, kind)
    if len(text) > _TEXT_LENGTH_MAX or "\0" in text:
        raise ConfigError(key, text, f"must be at most {_TEXT_LENGTH_MAX} characters, and none of them NUL")
    return Path(text) if kind is Path else text


def _number(key: str, text: str, kind: type[int] | type[float]) -> float:
    if kind is int and _NUMBER.fullmatch(text):
        return int(text)
    try:
        if kind is float and text.isascii() and math.isfinite(number := float(text)):
            return number
    except ValueError:
        pass
    raise ConfigError(key, text, "must be a number")


def check_keys(properties: Mapping[str, str], used: Iterable[str], without_effect: Iterable[str]) -> list[str]:
    """The given keys that RocketMQ has and we give no effect; a key nobody knows raises with the nearest right name."""
    used, without_effect = set(used), set(without_effect)
    ignored = []
    for key, value in properties.items():
        if key in without_effect:
            ignored.append(key)
        elif key not in used:
            raise ConfigError(key, value, f"no such setting; {_hint(key, used | without_effect)}")
    return ignored


def _hint(key: str, known: Iterable[str]) -> str:
    import difflib  # only a start that fails pays for it

    # Case and blanks are the usual slips: they must not push the right name below the cutoff.
    by_lower = {name.lower(): name for name in sorted(known)}
    near = difflib.get_close_matches(key.lower().strip(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[near[0]]}?" if near else "no key of RocketMQ is spelled like it; remove it"
