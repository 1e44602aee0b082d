"""What a body from the wire is held to behind its types: names by their kind, and numbers to 64 bits.

The types of a body say what each text names (`model/names.py`). From them a check is made once for each class, which
walks only the members that have something to check. It is made of what strangers ask with (`Body.is_request`), when it
comes over the wire; not of answers, and not of files, which may hold what an older broker had let in: anyone who loads
one decides by entry what to do with it.

Java has no whole number beyond 64 bits, and a table with one could not be read again.
"""

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from bolide.model.names import Kind

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_SHOWN_NUMBER_MAX = 40
_UNIONS = (Union, types.UnionType)

Check = Callable[[Any], object] | None  # None: there is nothing to check


@cache
def check_of(kind: Any) -> Check:
    """The check for a value of this type; raises ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return arguments[1].checked() if isinstance(arguments[1], Kind) else check_of(arguments[0])
    if origin in _UNIONS:
        return _when_there([each for each in arguments if each is not types.NoneType])
    if origin is list:
        return _each(check_of(arguments[0]))
    if origin is dict:
        return _both(check_of(arguments[0]), check_of(arguments[1]))
    if kind is int:
        return _check_number
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _members(kind)
    return None


def _check_number(number: int) -> None:
    if not INT64_MIN <= number <= INT64_MAX:
        digits = number.bit_length() * 3 // 10
        text = str(number) if digits < _SHOWN_NUMBER_MAX else f"one of some {digits} digits"
        raise ValueError(f"a number beyond 64 bits: {text}")


def _when_there(choices: list[Any]) -> Check:
    assert len(choices) == 1, f"a member may be of one type or None, not of {choices}"
    check = check_of(choices[0])
    if check is None:
        return None

    def check_if_there(value: Any) -> None:
        if value is not None:
            check(value)

    return check_if_there


def _each(check: Check) -> Check:
    if check is None:
        return None

    def check_all(values: list[Any]) -> None:
        for value in values:
            check(value)

    return check_all


def _both(check_key: Check, check_value: Check) -> Check:
    if check_key is None and check_value is None:
        return None

    def check_all(table: dict[Any, Any]) -> None:
        for key, value in table.items():
            if check_key is not None:
                check_key(key)
            if check_value is not None:
                check_value(value)

    return check_all


def _members(kind: type[msgspec.Struct]) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    found = ((name, check_of(hints[name])) for name in kind.__struct_fields__)
    checks = [(name, check) for name, check in found if check is not None]
    if not checks:
        return None

    def check_members(value: Any) -> None:
        for name, check in checks:
            check(getattr(value, name))

    return check_members
