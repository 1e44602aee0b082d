"""SQL92 expressions: `price > 10 AND region IN ('north', 'south')` becomes a test of a message's properties.

RocketMQ's language to the last oddity, because a subscription must mean here what it means there: NOT binds tighter
than `=`, a property that is missing makes a comparison unknown rather than false, text after a whole expression is
ignored, and a value that cannot be read as the number it is compared with fails the whole message, unless an earlier
branch has decided already. What may surprise is written beside the rule.

The text is parsed once into functions of the properties. Three outcomes: True, False, and None for unknown. A message
passes only if the outcome is True.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from bolide.filter.words import END, INT32_MAX, INT64_MAX, SqlError, Token, Tokens

__all__ = ["SQL92", "Predicate", "SqlError", "compile_sql"]
SQL92 = "SQL92"
EXPRESSION_LENGTH_MAX = 65_536
_DEPTH_MAX = 100

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class _Unreadable(Exception):
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
class _Node:
    kind: Kind
    evaluate: Evaluate
    constant: Value = None


_CONSTANTS = frozenset((Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN_CONSTANT, Kind.NULL))


class Predicate:
    """A compiled expression."""

    __slots__ = ("_evaluate", "expression")

    def __init__(self, expression: str, evaluate: Evaluate) -> None:
        self.expression = expression
        self._evaluate = evaluate

    def __repr__(self) -> str:
        return f"<Predicate {self.expression}>"

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties passes."""
        try:
            return self._evaluate(properties) is True
        except _Unreadable:
            return False

    def outcome(self, properties: Properties) -> bool | str | None:
        """True, False, None for unknown, or the text "error": for tools and tests."""
        try:
            value = self._evaluate(properties)
        except _Unreadable:
            return "error"
        return value if isinstance(value, bool) else None


def compile_sql(expression: str) -> Predicate:
    """Parse an expression; raises SqlError."""
    if not expression or not expression.strip():
        raise SqlError("the expression is empty")
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise SqlError(f"the expression has {len(expression)} characters, at most {EXPRESSION_LENGTH_MAX} are taken")
    return Predicate(expression, _Parser(expression).selector())


# Grammar


class _Parser:
    """One function for each rule; each returns what it has read."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0

    def selector(self) -> Evaluate:
        return _condition(self._or()).evaluate

    def _or(self) -> _Node:
        left = self._and()
        while self._skip("keyword", "OR"):
            left = _either(_condition(left), _condition(self._and()))
        return left

    def _and(self) -> _Node:
        left = self._equality()
        while self._skip("keyword", "AND"):
            left = _both(_condition(left), _condition(self._equality()))
        return left

    def _equality(self) -> _Node:
        left = self._comparison()
        while True:
            if self._skip("mark", "="):
                left = _equal(left, self._comparison())
            elif self._skip("mark", "<>"):
                left = _negated(_equal(left, self._comparison()))
            elif self._skip("keyword", "IS"):
                is_negated = self._skip("keyword", "NOT")
                self._demand("keyword", "NULL")
                left = _is_null(left, is_negated)
            else:
                return left

    def _comparison(self) -> _Node:
        left = self._unary()
        while True:
            token = self._tokens.next
            if token.kind == "mark" and token.text in _ORDERINGS:
                self._tokens.take()
                left = _ordered(left, _ORDERINGS[token.text], self._unary())
            elif token.kind == "keyword" and token.text in ("NOT", "BETWEEN", "IN", *_TEXT_TESTS):
                left = self._special(left)
            else:
                return left

    def _special(self, left: _Node) -> _Node:
        is_negated = self._skip("keyword", "NOT")
        token = self._tokens.take()
        if token.kind == "keyword" and token.text == "BETWEEN":
            low = self._unary()
            self._demand("keyword", "AND")
            return _between(left, low, self._unary(), is_negated)
        if token.kind == "keyword" and token.text == "IN":
            return _among(left, self._texts(), is_negated)
        if token.kind == "keyword" and token.text in _TEXT_TESTS:
            return _text_test(left, _TEXT_TESTS[token.text], self._text(), is_negated)
        raise _misplaced(token, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")

    def _texts(self) -> frozenset[str]:
        self._demand("mark", "(")
        texts = {self._text()}
        while self._skip("mark", ","):
            texts.add(self._text())
        self._demand("mark", ")")
        return frozenset(texts)

    def _text(self) -> str:
        return _unquoted(self._demand("text").text)

    def _unary(self) -> _Node:
        if self._skip("mark", "+"):
            return self._deeper(self._unary)
        if self._skip("mark", "-"):
            return _minus(self._deeper(self._unary))
        if self._skip("keyword", "NOT"):
            return _negated(_condition(self._deeper(self._unary)))
        return self._primary()

    def _primary(self) -> _Node:
        token = self._tokens.take()
        if token.kind == "mark" and token.text == "(":
            inner = self._deeper(self._or)
            self._demand("mark", ")")
            return inner
        if token.kind == "word":
            return _property(token.text)
        if token.kind == "text":
            return _constant(Kind.TEXT, _unquoted(token.text))
        if token.kind == "integer":
            return _constant(Kind.NUMBER, _integer(token))
        if token.kind == "float":
            return _constant(Kind.NUMBER, _float(token))
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE"):
            return _constant(Kind.BOOLEAN_CONSTANT, token.text == "TRUE")
        if token.kind == "keyword" and token.text == "NULL":
            return _constant(Kind.NULL, None)
        raise _misplaced(token, "a value, a property or '('")

    def _deeper(self, rule: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise SqlError(f"the expression is nested more than {_DEPTH_MAX} deep")
        node = rule()
        self._depth -= 1
        return node

    def _skip(self, kind: str, text: str) -> bool:
        is_there = (self._tokens.next.kind, self._tokens.next.text) == (kind, text)
        if is_there:
            self._tokens.take()
        return is_there

    def _demand(self, kind: str, text: str | None = None) -> Token:
        token = self._tokens.take()
        if token.kind != kind or (text is not None and token.text != text):
            raise _misplaced(token, text or f"a {kind}")
        return token


def _misplaced(token: Token, wanted: str) -> SqlError:
    found = "the end" if token.kind == END else repr(token.text)
    return SqlError(f"{found} at character {token.position}, where {wanted} should be")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _integer(token: Token) -> int:
    number = int(token.text.rstrip("lL"))
    if number > INT64_MAX:
        raise SqlError(f"{token.text} at character {token.position} does not fit 64 bits")
    return number


def _float(token: Token) -> float:
    number = float(token.text)
    # RocketMQ takes numbers from the smallest positive double on, so 0.0 is refused like one that is too large.
    if number == 0.0 or math.isinf(number):
        raise SqlError(f"{token.text} at character {token.position} is no number that can be compared")
    return number


# Leaves


def _constant(kind: Kind, value: Value) -> _Node:
    return _Node(kind, lambda properties: value, value)


def _property(name: str) -> _Node:
    return _Node(Kind.PROPERTY, lambda properties: properties.get(name))


def _minus(node: _Node) -> _Node:
    if node.kind is Kind.NUMBER and isinstance(node.constant, int | float):
        return _constant(Kind.NUMBER, -node.constant)
    if node.kind in _CONSTANTS:
        raise SqlError(f"a minus before {node.kind.value}")
    # A property is a text, and a text has no negative: unknown, whatever it holds.
    return _Node(Kind.NEGATED, lambda properties: None)


# Conditions


def _condition(node: _Node) -> _Node:
    """What stands where a condition must: a property by itself is false when it is there, and unknown when not."""
    if node.kind is Kind.CONDITION or node.kind in (Kind.BOOLEAN_CONSTANT, Kind.NULL):
        return node
    if node.kind is Kind.PROPERTY:
        evaluate = node.evaluate
        return _Node(Kind.CONDITION, lambda properties: None if evaluate(properties) is None else False)
    raise SqlError(f"{node.kind.value} stands where a condition must")


def _both(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is False:
            return False
        other = second(properties)
        if other is False:
            return False
        return True if one is True and other is True else None

    return _Node(Kind.CONDITION, evaluate)


def _either(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is True:
            return True
        other = second(properties)
        if other is True:
            return True
        return False if one is False and other is False else None

    return _Node(Kind.CONDITION, evaluate)


def _negated(node: _Node) -> _Node:
    evaluate = node.evaluate

    def negate(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _Node(Kind.CONDITION, negate)


def _is_null(node: _Node, is_negated: bool) -> _Node:
    evaluate = node.evaluate
    return _Node(Kind.CONDITION, lambda properties: (evaluate(properties) is None) is not is_negated)


def _equal(left: _Node, right: _Node) -> _Node:
    for node in (left, right):
        if node.kind is Kind.NULL:
            raise SqlError("NULL cannot be compared with =; say IS NULL")
    if left.kind is Kind.BOOLEAN_CONSTANT and right.kind in _CONSTANTS and right.kind is not Kind.BOOLEAN_CONSTANT:
        raise SqlError(f"{left.kind.value} cannot be compared with {right.kind.value}")
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            # A missing left side is unknown, a missing right side is false, and two that are missing are equal.
            return (True if other is None else None) if one is None else False
        return _are_equal(one, other)

    return _Node(Kind.CONDITION, evaluate)


def _are_equal(one: str | float | bool, other: str | float | bool) -> bool:
    if isinstance(one, bool):
        if isinstance(other, str):
            raise _Unreadable  # TRUE on the left of a property fails in RocketMQ too
        return isinstance(other, bool) and one is other
    if isinstance(other, bool):
        return isinstance(one, str) and (one.lower() == "true") is other
    if isinstance(one, str):
        return one == other if isinstance(other, str) else _read_like(one, other) == other
    return (_read_like(other, one) if isinstance(other, str) else other) == one


_ORDERINGS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _check_ordered(node: _Node) -> None:
    if node.kind in _CONSTANTS and node.kind is not Kind.NUMBER:
        raise SqlError(f"{node.kind.value} cannot be compared by size")
    if node.kind is Kind.CONDITION:
        raise SqlError("a condition cannot be compared by size")


def _ordered(left: _Node, holds: Callable[[float, float], bool], right: _Node) -> _Node:
    _check_ordered(left)
    _check_ordered(right)
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            return None
        return holds(*_as_numbers(one, other))

    return _Node(Kind.CONDITION, evaluate)


def _between(node: _Node, low: _Node, high: _Node, is_negated: bool) -> _Node:
    for part in (node, low, high):
        _check_ordered(part)
    if is_negated:
        return _either(_ordered(node, operator.lt, low), _ordered(node, operator.gt, high))
    lowest, highest = low.constant, high.constant
    if isinstance(lowest, int | float) and isinstance(highest, int | float) and lowest > highest:
        raise SqlError(f"BETWEEN {lowest} AND {highest}: nothing can lie there")
    return _both(_ordered(node, operator.ge, low), _ordered(node, operator.le, high))


def _among(node: _Node, texts: frozenset[str], is_negated: bool) -> _Node:
    if node.kind is not Kind.PROPERTY:
        raise SqlError(f"IN asks about a property, not about {node.kind.value}")
    evaluate = node.evaluate

    def among(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else (value in texts) is not is_negated

    return _Node(Kind.CONDITION, among)


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _text_test(node: _Node, holds: Callable[[str, str], bool], part: str, is_negated: bool) -> _Node:
    evaluate = node.evaluate

    def test(properties: Properties) -> Value:
        value = evaluate(properties)
        # What is missing, no text, or asked for nothing fails both ways, with NOT and without.
        if not isinstance(value, str) or not part:
            return False
        return holds(value, part) is not is_negated

    return _Node(Kind.CONDITION, test)


# Numbers


def _as_numbers(one: Value, other: Value) -> tuple[float, float]:
    """Both sides as numbers that Java would compare: a text is read like the number beside it, two as doubles."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        raise _Unreadable
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
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|[+-]?(?:NaN|Infinity)")
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def _read_integer(text: str, beside: int) -> int:
    """As Integer.valueOf, or Long.valueOf where the other number needs it: no blanks, no fraction."""
    if _INTEGER.fullmatch(text) is None:
        raise _Unreadable
    number = int(text)
    limit = INT32_MAX if -INT32_MAX - 1 <= beside <= INT32_MAX else INT64_MAX
    if not -limit - 1 <= number <= limit:
        raise _Unreadable
    return number


def _read_double(text: str) -> float:
    """As Double.valueOf."""
    found = _DOUBLE.fullmatch(text.strip(_JAVA_BLANKS))
    if found is None:
        raise _Unreadable
    return float(found[1] or found[0])
