"""SQL92 expressions: `price > 10 AND region IN ('north', 'south')` becomes a test of a message's properties.

RocketMQ's language to the last oddity, because a subscription must mean here what it means there: NOT binds tighter
than `=`, a property that is missing makes a comparison unknown rather than false, text after a whole expression is
ignored, and a value that cannot be read as the number it is compared with fails the whole message, unless an earlier
branch has decided already. What may surprise is written beside the rule.

The text is parsed once, into functions of the properties (`conditions.py`) and into a program for the kernel
(`program.py`), which a broker runs over whole stretches of a queue. Three outcomes: True, False, and None for unknown.
A message passes only if the outcome is True.
"""

import math
from collections.abc import Callable

from bolide.filter.conditions import (
    DEPTH_MAX,
    ORDERINGS,
    TEXT_TESTS,
    Kind,
    Node,
    Properties,
    Unreadable,
    all_of,
    among,
    any_of,
    as_condition,
    between,
    constant_of,
    equal,
    is_null,
    minus,
    negated,
    ordered,
    property_of,
    text_test,
)
from bolide.filter.program import write_program
from bolide.filter.tokens import END, INT64_MAX, SqlError, Token, Tokens

__all__ = ["SQL92", "Predicate", "SqlError", "compile_sql"]
SQL92 = "SQL92"
# So long a text takes some 60 ms to compile.
EXPRESSION_LENGTH_MAX = 16_384
_DIGITS_MAX = 19  # of a number of 64 bits
_SHOWN_MAX = 40
_ASKED_SIZE_MAX = 4 << 20  # bytes of properties times tests on them: some 5 ms, for everybody


class Predicate:
    """A compiled expression. `program` is the same for the kernel, which asks `passes` where it cannot tell."""

    __slots__ = ("__weakref__", "_evaluate", "_test_count", "expression", "program", "stalled")

    def __init__(self, expression: str, condition: Node, breathe: Callable[[], None] | None = None) -> None:
        self.expression = expression
        self._evaluate = condition.evaluate
        self._test_count = _count_tests(condition)
        self.program = write_program(condition, breathe)
        self.stalled: dict[int, bytes] = {}  # messages that the kernel could not decide about at once

    def __repr__(self) -> str:
        return f"<Predicate {self.expression}>"

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties passes."""
        try:
            return self._evaluate(properties) is True
        except Unreadable:
            return False

    def passes(self, encoded: bytes) -> bool:
        """The same for properties as a record holds them: `name U+0001 value U+0002`, repeated.

        Here nothing can stop on the way, so hundreds of tests on tens of kilobytes are not begun: such a message
        passes, for a consumer can pass over what it did not want, and cannot have what it never saw.
        """
        if self._test_count * len(encoded) > _ASKED_SIZE_MAX:
            return True
        pairs = (pair.partition("\x01") for pair in encoded.decode("utf-8", "replace").split("\x02"))
        return self.matches({name: value for name, _, value in pairs if name and value})

    def outcome(self, properties: Properties) -> bool | str | None:
        """True, False, None for unknown, or the text "error": for tools and tests."""
        try:
            value = self._evaluate(properties)
        except Unreadable:
            return "error"
        return value if isinstance(value, bool) else None


def _count_tests(node: Node) -> int:
    return sum(map(_count_tests, node.parts)) or bool(node.form)


def compile_sql(expression: str, breathe: Callable[[], None] | None = None) -> Predicate:
    """Parse an expression; raises SqlError. `breathe` is called between its words, for callers with other work."""
    if not expression or not expression.strip():
        raise SqlError("the expression is empty")
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise SqlError(f"the expression has {len(expression)} characters, at most {EXPRESSION_LENGTH_MAX} are taken")
    return Predicate(expression, _Parser(expression, breathe).selector(), breathe)


# Grammar


class _Parser:
    """One function for each rule; each returns what it has read."""

    def __init__(self, text: str, breathe: Callable[[], None] | None = None) -> None:
        self._tokens = Tokens(text, breathe)
        self._depth = 0

    def selector(self) -> Node:
        return as_condition(self._or())

    def _or(self) -> Node:
        conditions = [self._and()]
        while self._skip("keyword", "OR"):
            conditions.append(as_condition(self._and()))
        return any_of([as_condition(conditions[0]), *conditions[1:]]) if len(conditions) > 1 else conditions[0]

    def _and(self) -> Node:
        conditions = [self._equality()]
        while self._skip("keyword", "AND"):
            conditions.append(as_condition(self._equality()))
        return all_of([as_condition(conditions[0]), *conditions[1:]]) if len(conditions) > 1 else conditions[0]

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if self._skip("mark", "="):
                left = equal(left, self._comparison())
            elif self._skip("mark", "<>"):
                left = negated(equal(left, self._comparison()))
            elif self._skip("keyword", "IS"):
                is_negated = self._skip("keyword", "NOT")
                self._demand("keyword", "NULL")
                left = is_null(left, is_negated)
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._tokens.next
            if token.kind == "mark" and token.text in ORDERINGS:
                self._tokens.take()
                left = ordered(left, ORDERINGS[token.text], self._unary())
            elif token.kind == "keyword" and token.text in ("NOT", "BETWEEN", "IN", *TEXT_TESTS):
                left = self._special(left)
            else:
                return left

    def _special(self, left: Node) -> Node:
        is_negated = self._skip("keyword", "NOT")
        token = self._tokens.take()
        if token.kind == "keyword" and token.text == "BETWEEN":
            low = self._unary()
            self._demand("keyword", "AND")
            return between(left, low, self._unary(), is_negated)
        if token.kind == "keyword" and token.text == "IN":
            return among(left, self._texts(), is_negated)
        if token.kind == "keyword" and token.text in TEXT_TESTS:
            return text_test(left, TEXT_TESTS[token.text], self._text(), is_negated)
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

    def _unary(self) -> Node:
        if self._skip("mark", "+"):
            return self._deeper(self._unary)
        if self._skip("mark", "-"):
            return minus(self._deeper(self._unary))
        if self._skip("keyword", "NOT"):
            return negated(as_condition(self._deeper(self._unary)))
        return self._primary()

    def _primary(self) -> Node:
        token = self._tokens.take()
        if token.kind == "mark" and token.text == "(":
            inner = self._deeper(self._or)
            self._demand("mark", ")")
            return inner
        if token.kind == "word":
            return property_of(token.text)
        if token.kind == "text":
            return constant_of(Kind.TEXT, _unquoted(token.text))
        if token.kind == "integer":
            return constant_of(Kind.NUMBER, _integer(token))
        if token.kind == "float":
            return constant_of(Kind.NUMBER, _float(token))
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE"):
            return constant_of(Kind.BOOLEAN_CONSTANT, token.text == "TRUE")
        if token.kind == "keyword" and token.text == "NULL":
            return constant_of(Kind.NULL, None)
        raise _misplaced(token, "a value, a property or '('")

    def _deeper(self, rule: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(f"the expression is nested more than {DEPTH_MAX} deep")
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
    digits = token.text.rstrip("lL")
    if len(digits) > _DIGITS_MAX or int(digits) > INT64_MAX:  # Python reads no number of thousands of digits at all
        raise SqlError(f"{token.text[:_SHOWN_MAX]} at character {token.position} does not fit 64 bits")
    return int(digits)


def _float(token: Token) -> float:
    number = float(token.text)
    # RocketMQ takes numbers from the smallest positive double on, so 0.0 is refused like one that is too large.
    if number == 0.0 or math.isinf(number):
        raise SqlError(f"{token.text[:_SHOWN_MAX]} at character {token.position} is no number that can be compared")
    return number
