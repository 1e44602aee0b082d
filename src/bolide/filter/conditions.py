"""What the parts of an SQL92 expression mean: each is a function of a message's properties.

Three outcomes: True, False, and None for unknown. RocketMQ's language to the last oddity, because a subscription must
mean here what it means there; what may surprise is written beside the rule. Each node also says what it was made of
(`form`), from which `program.py` writes the same meaning down for the kernel.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bolide.filter.tokens import INT32_MAX, INT64_MAX, SqlError
from bolide.kernel import filter_layout as codes

DEPTH_MAX = 100

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Unreadable(Exception):
    """A value that cannot be compared as it would have to be: the message does not pass."""


class Kind(Enum):
    """What an expression is, as far as that decides what may be done with it."""

    PROPERTY = "a property"
    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN_CONSTANT = "TRUE or FALSE"
    NULL = "NULL"
    CONDITION = "a condition"
    NEGATED = "a negated property"


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression. `form` is its operation and operands; a constant has none."""

    kind: Kind
    evaluate: Evaluate
    constant: Value = None
    form: tuple[object, ...] = ()
    parts: tuple["Node", ...] = ()
    is_fixed: bool = False  # no property is in it: it is the same for every message
    depth: int = 1


CONSTANTS = frozenset((Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN_CONSTANT, Kind.NULL))


def _made(evaluate: Evaluate, operation: int, parts: Sequence[Node], *more: object) -> Node:
    """A condition made of parts."""
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise SqlError(f"the expression is nested more than {DEPTH_MAX} deep")
    is_fixed = all(part.is_fixed for part in parts)
    return Node(Kind.CONDITION, evaluate, None, (operation, *more), tuple(parts), is_fixed, depth)


# Leaves


def constant_of(kind: Kind, value: Value) -> Node:
    """A literal."""
    return Node(kind, lambda properties: value, value, is_fixed=True)


def property_of(name: str) -> Node:
    """A property by its name."""
    return Node(Kind.PROPERTY, lambda properties: properties.get(name), form=(codes.PROPERTY, name))


def minus(node: Node) -> Node:
    """What stands behind a minus."""
    if node.kind is Kind.NUMBER and isinstance(node.constant, int | float):
        return constant_of(Kind.NUMBER, -node.constant)
    if node.kind in CONSTANTS:
        raise SqlError(f"a minus before {node.kind.value}")
    # A property is a text, and a text has no negative: unknown, whatever it holds.
    return Node(Kind.NEGATED, lambda properties: None, is_fixed=True)


# Conditions


def as_condition(node: Node) -> Node:
    """What stands where a condition must: a property by itself is false when it is there, and unknown when not."""
    if node.kind is Kind.CONDITION or node.kind in (Kind.BOOLEAN_CONSTANT, Kind.NULL):
        return node
    if node.kind is Kind.PROPERTY:
        evaluate = node.evaluate
        return _made(lambda properties: None if evaluate(properties) is None else False, codes.PRESENT, [node])
    raise SqlError(f"{node.kind.value} stands where a condition must")


def all_of(conditions: Sequence[Node]) -> Node:
    """All of them: the first that is false decides, and those behind it are not looked at."""
    return _joined(conditions, codes.AND, False)


def any_of(conditions: Sequence[Node]) -> Node:
    """One of them: the first that is true decides, and those behind it are not looked at."""
    return _joined(conditions, codes.OR, True)


def _joined(conditions: Sequence[Node], operation: int, ends_it: bool) -> Node:
    if len(conditions) == 1:
        return conditions[0]
    evaluations = [condition.evaluate for condition in conditions]

    def evaluate(properties: Properties) -> Value:
        outcome: bool | None = not ends_it
        for each in evaluations:
            value = each(properties)
            if value is ends_it:
                return ends_it
            if value is None:
                outcome = None
        return outcome

    return _made(evaluate, operation, conditions)


def negated(node: Node) -> Node:
    """NOT of a condition; unknown stays unknown."""
    evaluate = node.evaluate

    def negate(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _made(negate, codes.NOT, [node])


def is_null(node: Node, is_negated: bool) -> Node:
    """IS NULL, IS NOT NULL: never unknown."""
    evaluate = node.evaluate
    return _made(lambda properties: (evaluate(properties) is None) is not is_negated, codes.IS_NULL, [node], is_negated)


def equal(left: Node, right: Node) -> Node:
    """`=`; `<>` is its negation."""
    for node in (left, right):
        if node.kind is Kind.NULL:
            raise SqlError("NULL cannot be compared with =; say IS NULL")
    if left.kind is Kind.BOOLEAN_CONSTANT and right.kind in CONSTANTS and right.kind is not Kind.BOOLEAN_CONSTANT:
        raise SqlError(f"{left.kind.value} cannot be compared with {right.kind.value}")
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            # A missing left side is unknown, a missing right side is false, and two that are missing are equal.
            return (True if other is None else None) if one is None else False
        return _are_equal(one, other)

    return _made(evaluate, codes.EQUAL, [left, right])


def _are_equal(one: str | float | bool, other: str | float | bool) -> bool:
    if isinstance(one, bool):
        if isinstance(other, str):
            raise Unreadable  # TRUE on the left of a property fails in RocketMQ too
        return isinstance(other, bool) and one is other
    if isinstance(other, bool):
        return isinstance(one, str) and (one.lower() == "true") is other
    if isinstance(one, str):
        return one == other if isinstance(other, str) else _read_like(one, other) == other
    return (_read_like(other, one) if isinstance(other, str) else other) == one


ORDERINGS = {
    ">": codes.GREATER,
    ">=": codes.GREATER_EQUAL,
    "<": codes.LESS,
    "<=": codes.LESS_EQUAL,
}
_HOLDS: dict[int, Callable[[Any, Any], bool]] = {
    codes.GREATER: operator.gt,
    codes.GREATER_EQUAL: operator.ge,
    codes.LESS: operator.lt,
    codes.LESS_EQUAL: operator.le,
}


def _check_ordered(node: Node) -> None:
    if node.kind in CONSTANTS and node.kind is not Kind.NUMBER:
        raise SqlError(f"{node.kind.value} cannot be compared by size")
    if node.kind is Kind.CONDITION:
        raise SqlError("a condition cannot be compared by size")


def ordered(left: Node, ordering: int, right: Node) -> Node:
    """Which is larger; a text is read as a number for it."""
    _check_ordered(left)
    _check_ordered(right)
    first, second = left.evaluate, right.evaluate
    holds = _HOLDS[ordering]

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            return None
        larger, smaller = _as_numbers(one, other)
        if larger == smaller == 0 or larger != larger or smaller != smaller:
            return holds(_rank(larger), _rank(smaller))
        return holds(larger, smaller)

    return _made(evaluate, codes.ORDER, [left, right], ordering)


def _rank(number: float) -> tuple[int, float]:
    """Where Java puts what others find equal or beyond comparison: -0.0 below 0.0, NaN above all."""
    if math.isnan(number):
        return (1, 0.0)
    return (0, number or math.copysign(5e-324, number))


def between(node: Node, low: Node, high: Node, is_negated: bool) -> Node:
    """From low to high, both included; or outside of them."""
    for part in (node, low, high):
        _check_ordered(part)
    if is_negated:
        return any_of([ordered(node, codes.LESS, low), ordered(node, codes.GREATER, high)])
    lowest, highest = low.constant, high.constant
    if isinstance(lowest, int | float) and isinstance(highest, int | float) and lowest > highest:
        raise SqlError(f"BETWEEN {lowest} AND {highest}: nothing can lie there")
    return all_of([ordered(node, codes.GREATER_EQUAL, low), ordered(node, codes.LESS_EQUAL, high)])


def among(node: Node, texts: frozenset[str], is_negated: bool) -> Node:
    """IN, NOT IN: exactly one of the texts, or none."""
    if node.kind is not Kind.PROPERTY:
        raise SqlError(f"IN asks about a property, not about {node.kind.value}")
    evaluate = node.evaluate

    def test(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else (value in texts) is not is_negated

    return _made(test, codes.AMONG, [node], texts, is_negated)


TEXT_TESTS = {"CONTAINS": codes.CONTAINS, "STARTSWITH": codes.STARTS, "ENDSWITH": codes.ENDS}
_HAS_PART: dict[int, Callable[[str, str], bool]] = {
    codes.CONTAINS: lambda text, part: part in text,
    codes.STARTS: str.startswith,
    codes.ENDS: str.endswith,
}


def text_test(node: Node, kind: int, part: str, is_negated: bool) -> Node:
    """Whether a text has another in it, at its start or at its end."""
    evaluate, holds = node.evaluate, _HAS_PART[kind]

    def test(properties: Properties) -> Value:
        value = evaluate(properties)
        # What is missing, no text, or asked for nothing fails both ways, with NOT and without.
        if not isinstance(value, str) or not part:
            return False
        return holds(value, part) is not is_negated

    return _made(test, codes.PART, [node], kind, part, is_negated)


# Numbers


def _as_numbers(one: Value, other: Value) -> tuple[float, float]:
    """Both sides as numbers that Java would compare: a text is read like the number beside it, two as doubles."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        raise Unreadable
    if isinstance(one, str):
        if isinstance(other, str):
            return _read_double(one), _read_double(other)
        return _read_like(one, other), other
    if isinstance(other, str):
        return one, _read_like(other, one)
    return one, other


def _read_like(text: str, number: float) -> float:
    # mypy takes every number for a float where one is allowed; a literal 5 is an int all the same.
    return _read_integer(text, number) if type(number) is int else _read_double(text)


_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
# One way to read each text, or a long row of digits that ends badly would be tried in as many ways as it has pairs.
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|[+-]?(?:NaN|Infinity)")
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def _read_integer(text: str, beside: int) -> int:
    """As Integer.valueOf, or Long.valueOf where the other number needs it: no blanks, no fraction."""
    if _INTEGER.fullmatch(text) is None:
        raise Unreadable
    number = int(text)
    limit = INT32_MAX if -INT32_MAX - 1 <= beside <= INT32_MAX else INT64_MAX
    if not -limit - 1 <= number <= limit:
        raise Unreadable
    return number


def _read_double(text: str) -> float:
    """As Double.valueOf."""
    found = _DOUBLE.fullmatch(text.strip(_JAVA_BLANKS))
    if found is None:
        raise Unreadable
    return float(found[1] or found[0])
