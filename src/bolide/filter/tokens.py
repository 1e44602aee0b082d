"""The words of a filter expression, one ahead and no more, as RocketMQ reads them."""

import re
from collections.abc import Callable
from dataclasses import dataclass

INT32_MAX = 0x7FFF_FFFF
INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
END = "end"


class SqlError(ValueError):
    """An expression that is none; the sentence says where and why."""


_TOKEN = re.compile(
    r"""
    (?P<float>  [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> (?: 0 | [1-9][0-9]* ) [lL]? )
  | (?P<word>   [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<text>   '(?:[^']|'')*' )
  | (?P<mark>   <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
# A line that is a comment has an end: without one, two hyphens are two minuses, as in RocketMQ.
_BLANK = re.compile(r"(?:[ \t\n\r\f]+|--[^\r\n]*(?:\r\n|\r|\n)|/\*.*?\*/)+", re.DOTALL)
_KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # float, integer, word, text, mark, keyword or end
    text: str
    position: int


class Tokens:
    """One token ahead and no more: what comes after a whole expression is read only so far, as in RocketMQ."""

    def __init__(self, text: str, breathe: Callable[[], None] | None = None) -> None:
        self._text = text
        self._breathe = breathe
        self._position = 0
        self.next = self._read()

    def take(self) -> Token:
        token, self.next = self.next, self._read()
        return token

    def _read(self) -> Token:
        if self._breathe is not None:
            self._breathe()
        blank = _BLANK.match(self._text, self._position)
        if blank is not None:
            self._position = blank.end()
        if self._position >= len(self._text):
            return Token(END, "", self._position)
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            raise SqlError(f"unexpected {self._text[self._position]!r} at character {self._position}")
        token = Token(str(found.lastgroup), found[0], self._position)
        self._position = found.end()
        if token.kind == "word" and token.text.upper() in _KEYWORDS:
            return Token("keyword", token.text.upper(), token.position)
        return token
