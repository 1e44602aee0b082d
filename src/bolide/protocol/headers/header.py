"""What a header is: typed fields on our side, a flat map of texts on the wire.

RocketMQ calls it a custom header and puts it into `extFields`. Each field says its wire name, and for sends also the
one letter of the short form, in the same line as its Python name and type, so that the two forms cannot drift apart. A
field without a default must be there; the default of any other is what Java reads when the entry is missing. Entries
nobody declared are ignored: signatures, trace marks and zone hints travel in the same map.

A text says what it names (`model/names.py`), and is held to that when it is read: a topic, a group or a client id that
nobody could have does not get further than this. A plain `str` is no field.

The tables that `encode` and `decode` walk are made once, when a class is defined. The cost is that a header is only as
quick as a loop over a dict; requests that come by the ten thousand are read in the kernel, in batches. All headers
share the methods that a dataclass would compile for each of them: that took a third of the start of every process.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError
from enum import Enum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, cast, dataclass_transform, get_args

import msgspec

from bolide.errors import Refusal
from bolide.model.names import KINDS, Label, UnfitName
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.codes import ResponseCode

Int32 = Annotated[int, 32]
Int64 = Annotated[int, 64]

# Texts that name nothing pass as they are, so they have no function (None).
Read = Callable[[str], Any] | None
Write = Callable[[Any], str] | None

# int() alone would also take blanks, underscores and the digits of every script, and multiply for as long as they last.
_is_decimal = re.compile("[-+]?[0-9]{1,64}").fullmatch
# How much of a stranger's text a remark repeats, in characters.
_SHOWN_VALUE_MAX = 60
_SHOWN_KEYS_MAX = 400


class BoundaryType(Enum):
    """Which message a search by time means when several, or none, bear that time. The only enum in a header."""

    LOWER = "LOWER"
    UPPER = "UPPER"


def _integer(bits: int) -> tuple[Callable[[str], int], Callable[[int], str]]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(text: str) -> int:
        if not _is_decimal(text) or not low <= (number := int(text)) <= high:
            raise ValueError(f"{text[:_SHOWN_VALUE_MAX]!r} is not a whole number of {bits} bits")
        return number

    def write(number: int) -> str:
        assert low <= number <= high, f"{number} does not fit {bits} bits"
        return int.__repr__(number)

    return read, write


read_int32, write_int32 = _integer(32)
read_int64, write_int64 = _integer(64)


def _read_boolean(text: str) -> bool:
    return text.lower() == "true"  # as Java does: "1" and "yes" are false


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


def _read_boundary(text: str) -> BoundaryType:
    return BoundaryType.UPPER if text.upper() == "UPPER" else BoundaryType.LOWER


def _write_boundary(boundary: BoundaryType) -> str:
    return boundary.value


_FORMS: dict[Any, tuple[Read, Write]] = {
    **{named: (kind.checked(), None) for named, kind in KINDS.items()},
    bool: (_read_boolean, _write_boolean),
    Int32: (read_int32, write_int32),
    Int64: (read_int64, write_int64),
    QueueOffset: (read_int64, write_int64),
    PhysicalOffset: (read_int64, write_int64),
    BoundaryType: (_read_boundary, _write_boundary),
}


class WireField(msgspec.Struct, frozen=True):
    """One field of a header: its name here, its names there, and how its text is read and written."""

    name: str
    keys: tuple[str, ...]  # read under any of them, written under all
    short: str | None
    kind: Any  # a key of _FORMS
    is_required: bool
    is_secret: bool
    read: Read
    write: Write

    def keys_in(self, short: bool) -> tuple[str, ...]:
        return (self.short,) if short and self.short else self.keys


class _Declared(NamedTuple):
    """What `wire` says of a field."""

    keys: tuple[str, ...]
    short: str | None
    default: Any
    is_secret: bool


_REQUIRED = object()


def wire(*keys: str, short: str | None = None, default: Any = _REQUIRED, is_secret: bool = False) -> Any:
    """A field that is called `keys[0]` on the wire, or `short` in a short header.

    Further keys are other versions' names for the same thing. A secret is not shown when the header is printed.
    """
    return _Declared(keys, short, default, is_secret)


class Header:
    """What all headers can do. A subclass is made with `@header` and declares its fields with `wire`."""

    __slots__ = ()

    wire_fields: ClassVar[tuple[WireField, ...]] = ()
    # Indexed by the `short` flag. Readers: wire key → name and function. Writers: name, wire key and function.
    _readers: ClassVar[tuple[dict[str, tuple[str, Read]], dict[str, tuple[str, Read]]]]
    _writers: ClassVar[tuple[list[tuple[str, str, Write]], list[tuple[str, str, Write]]]]
    _required: ClassVar[dict[str, None]]  # a set that keeps the order
    _defaults: ClassVar[dict[str, Any]] = {}
    _setters: ClassVar[tuple[tuple[str, Callable[[Any, Any], None]], ...]]

    def __init__(self, **given: Any) -> None:
        values = given if len(given) == len(self._setters) else self._defaults | given
        try:
            for name, put in self._setters:
                put(self, values[name])
        except KeyError:
            raise self._misnamed(given) from None
        if len(values) != len(self._setters):
            raise self._misnamed(given)

    def _misnamed(self, given: Iterable[str]) -> TypeError:
        names = ", ".join(field.name for field in self.wire_fields)
        return TypeError(f"{type(self).__name__} has {names}; given: {', '.join(given) or 'nothing'}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} is set once, when the header is made")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} is there as long as the header is")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.wire_fields)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in self.wire_fields))

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in self.wire_fields if not field.is_secret)
        return f"{type(self).__name__}({', '.join(shown)})"

    def encode(self, short: bool = False) -> dict[str, str]:
        """The entries for `extFields`; a field that is None is left out."""
        fields: dict[str, str] = {}
        for name, key, write in self._writers[short]:
            value = getattr(self, name)
            if value is not None:
                fields[key] = value if write is None else write(value)
        return fields

    @classmethod
    def decode(cls, fields: Mapping[str, str], short: bool = False) -> Self:
        """Read the entries of `extFields`; refuses when a required one is missing, or a number or a name is none."""
        readers = cls._readers[short]
        values = cls._defaults.copy()
        for key, text in fields.items():
            if key not in readers:
                continue
            name, read = readers[key]
            try:
                values[name] = text if read is None else read(text)
            except UnfitName as problem:
                remark = f"{cls._label(name, short)}: {problem}"
                raise Refusal(ResponseCode.INVALID_PARAMETER, remark) from None
            except ValueError as problem:
                raise cls._refusal(f"{cls._label(name, short)}: {problem}") from None
        if not values.keys() >= cls._required.keys():
            missing = ", ".join(cls._label(name, short) for name in cls._required if name not in values)
            found = ", ".join(fields) or "nothing"
            raise cls._refusal(f"required but missing: {missing}; found: {found[:_SHOWN_KEYS_MAX]}")
        made = cls.__new__(cls)  # what `__init__` would check is so
        for name, put in cls._setters:
            put(made, values[name])
        return made

    @classmethod
    def _refusal(cls, problem: str) -> Refusal:
        return Refusal(ResponseCode.SYSTEM_ERROR, f"{cls.__name__}: {problem}")

    @classmethod
    def _label(cls, name: str, short: bool) -> str:
        field = next(field for field in cls.wire_fields if field.name == name)
        return f"{field.keys[0]} ({field.short})" if short and field.short else field.keys[0]


H = TypeVar("H", bound=Header)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def header(declared: type[H]) -> type[H]:
    """Make a declared header slotted, with its tables; a base's fields come first."""
    content = dict(vars(declared))
    own: dict[str, _Declared] = {name: content.pop(name) for name in content.get("__annotations__", {})}
    for name in ("__dict__", "__weakref__"):
        content.pop(name, None)
    by_name = {field.name: field for field in declared.wire_fields}
    content["__slots__"] = tuple(name for name in own if name not in by_name)
    made = cast("type[H]", type(declared.__name__, declared.__bases__, content))
    by_name |= {name: _wire_field(name, said, content["__annotations__"][name]) for name, said in own.items()}
    fields = tuple(by_name.values())
    made.wire_fields = fields
    made._required = dict.fromkeys(field.name for field in fields if field.is_required)
    defaults = {name: said.default for name, said in own.items() if said.default is not _REQUIRED}
    made._defaults = {name: value for name, value in declared._defaults.items() if name not in own} | defaults
    made._setters = tuple((field.name, getattr(made, field.name).__set__) for field in fields)
    made._readers = _readers(fields, False), _readers(fields, True)
    made._writers = _writers(fields, False), _writers(fields, True)
    return made


def _wire_field(name: str, said: _Declared, hint: Any) -> WireField:
    kinds = [hint] if hint in _FORMS else [kind for kind in get_args(hint) if kind in _FORMS]
    assert len(kinds) == 1, f"{name}: {hint} has no form on the wire; a text says what it names"
    read, write = _FORMS[kinds[0]]
    return WireField(
        name=name,
        keys=said.keys,
        short=said.short,
        kind=kinds[0],
        is_required=said.default is _REQUIRED,
        is_secret=said.is_secret,
        read=read,
        write=write,
    )


def _readers(fields: tuple[WireField, ...], short: bool) -> dict[str, tuple[str, Read]]:
    return {key: (field.name, field.read) for field in fields for key in field.keys_in(short)}


def _writers(fields: tuple[WireField, ...], short: bool) -> list[tuple[str, str, Write]]:
    return [(field.name, key, field.write) for field in fields for key in field.keys_in(short)]


@header
class RequestHeader(Header):
    """The hints any request may carry besides its own fields: 4.9 the first, 5.x all. A broker may ignore them."""

    addressed_broker: Label | None = wire("bname", short="n", default=None)
    resource_namespace: Label | None = wire("ns", default=None)
    is_namespaced: bool | None = wire("nsd", default=None)
    is_logical: bool | None = wire("lo", default=None)
