"""The mild reader: JSON as Java's fastjson writes and accepts it.

RocketMQ's own writer breaks the rules of JSON where a Java map has keys that are not text: integers, booleans and null
stand bare (`{0:"a"}`), objects stand as objects (`{{"queueId":0}:5}`), and an object met twice is written as a
reference to where it was first (`{"$ref":"$.a.b[0]"}`). Its reader also takes single quotes, bare names as keys, stray
commas, and the escapes `\\'` and `\\x41`. All of that is read here; well-formed bodies never come here, because the
body types try the strict reader first.

The rule: what comes out is what strict JSON would have given, so nobody behind this door meets an oddity. Every key is
text: a bare one its own spelling, an object key the compact JSON text of that object with sorted members. That is the
very form RocketMQ also accepts in place of an object key, so one decoder serves both.

The choice: one pass over the text, each token found by a pattern that cannot backtrack, references resolved as they
come, for a writer can only refer to what it has written. It costs some fifty times what a compiled reader
takes (3 MB a second). Strangers feed it, so nesting and the weight of references are limited; bytes that are not UTF-8
become U+FFFD, as in Java.
"""

import json
import math
import re
from collections.abc import Callable, Iterator

# The deepest body of RocketMQ nests nine levels. Reading takes three Python frames a level, so that this leaves most
# of the interpreter's thousand to the caller, and anyone who walks the result is as safe.
DEPTH_MAX = 64
# A reference of twenty characters may stand for megabytes, and anyone who writes the result again gets them all.
# Together they may stand for this many characters or, in a long text, for this many times its own length: Java refers
# to topics and subscriptions, which are some three times as long as the reference and its key.
REFERRED_SIZE_FREE = 1 << 20
REFERRED_GROWTH_MAX = 4
# A key that is an object with such keys doubles its escapes with each level. A queue, the only one, takes hundreds.
KEY_LENGTH_MAX = 4096
# Digits are turned into a number in quadratic time, and no number of RocketMQ has more than some twenty.
NUMBER_LENGTH_MAX = 400

_BLANK = re.compile(r"[ \t\r\n\f\b]*")
_COMMAS = re.compile(r"[ \t\r\n\f\b,]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[([0-9]{1,9})\]")
_UNESCAPE = re.compile(r"\\(.)")
_JOINED_MAX = 16  # steps of a path that may turn out to be one name with dots in it; addresses have four parts
_CHUNKS = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = {"u": re.compile(r"[0-9a-fA-F]{4}"), "x": re.compile(r"[0-9a-fA-F]{2}")}
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", '"': '"', "'": "'", "/": "/", "\\": "\\"}
_ESCAPES |= {str(digit): chr(digit) for digit in range(8)}
_WORDS = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_NUMBER_STARTS = frozenset("-0123456789")
_INTEGER = re.compile(r"-?[0-9]{1,10}")

_Container = dict[str, object] | list[object]


def loads(text: bytes | str, *, as_tree: bool = False, breathe: Callable[[], None] | None = None) -> object:
    """Read one value; raises ValueError with the position and what was found there.

    A reference to what holds it (`$`, `..`, `@`) gives a value that holds itself; with as_tree it is an error.
    `breathe` is called after each member and each escape, by anyone who has better to do than to read to the end.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return _Reader(text, as_tree, breathe).read()


class _Reader:
    """One pass over one text. A container is put into its holder before it is filled, so that paths lead through it."""

    def __init__(self, text: str, as_tree: bool, breathe: Callable[[], None] | None = None) -> None:
        self._text = text
        self._breathe = breathe
        self._at = 0
        self._as_tree = as_tree
        self._root: list[object] = [None]
        self._open: list[_Container] = []  # from the root to the one being filled
        self._referred_max = max(REFERRED_SIZE_FREE, REFERRED_GROWTH_MAX * len(text))
        self._referred_size = 0  # characters that the references so far stand for
        # (here, there) → both maps, kept so that their ids stay theirs, and the keys of `there` not yet lent to `here`
        self._lent: dict[tuple[int, int], tuple[object, object, Iterator[str]]] = {}

    def read(self) -> object:
        self._value(self._root, 0)
        self._skip(_BLANK)
        if self._at < len(self._text):
            raise self._problem("the end")
        return self._root[0]

    def _value(self, holder: _Container, key: str | int, borrower: dict[str, object] | None = None) -> None:
        """Read a value into holder[key]; `borrower` is the map for which it is a key, None for all that are values."""
        self._skip(_BLANK)
        opening = self._next()
        if opening == "{":
            members: dict[str, object] = {}
            _put(holder, key, members)
            self._fill_object(members)
            if len(members) == 1 and isinstance(path := members.get("$ref"), str):
                _put(holder, key, None)  # a reference must not find itself
                _put(holder, key, self._referred_to(path, borrower))
        elif opening == "[":
            items: list[object] = []
            _put(holder, key, items)
            self._fill_array(items)
        else:
            _put(holder, key, self._scalar(opening))

    def _scalar(self, opening: str) -> object:
        if opening in _CHUNKS:
            return self._string(opening)
        if opening in _NUMBER_STARTS:
            return _number(self._number_text())
        if (name := _NAME.match(self._text, self._at)) and name[0] in _WORDS:
            self._at = name.end()
            return _WORDS[name[0]]
        raise self._problem("a value")

    def _fill_object(self, members: dict[str, object]) -> None:
        self._enter(members)
        while not self._leaves("}"):
            key = self._key(members)
            self._skip(_BLANK)
            if self._next() != ":":
                raise self._problem("':' after a key")
            self._at += 1
            self._value(members, key)
            self._separate("}")

    def _fill_array(self, items: list[object]) -> None:
        self._enter(items)
        while not self._leaves("]"):
            items.append(None)
            self._value(items, len(items) - 1)
            self._separate("]")

    def _enter(self, container: _Container) -> None:
        if len(self._open) == DEPTH_MAX:
            raise self._problem(f"at most {DEPTH_MAX} levels")
        self._open.append(container)
        self._at += 1
        self._skip(_COMMAS)

    def _leaves(self, closing: str) -> bool:
        if self._next() != closing:
            return False
        self._at += 1
        self._open.pop()
        return True

    def _separate(self, closing: str) -> None:
        if self._breathe is not None:
            self._breathe()
        self._skip(_BLANK)
        if self._next() not in (",", closing):
            raise self._problem(f"',' or '{closing}'")
        self._skip(_COMMAS)

    def _key(self, members: dict[str, object]) -> str:
        opening = self._next()
        if opening in _CHUNKS:
            return self._string(opening)
        if opening == "{":
            holder: list[object] = [None]
            self._value(holder, 0, members)
            # A reference resolves to text where only the other map's keys are left of the object.
            return holder[0] if isinstance(holder[0], str) else self._key_text(holder[0])
        if name := _NAME.match(self._text, self._at):
            self._at = name.end()
            return name[0]
        if opening in _NUMBER_STARTS:
            return self._number_text()
        raise self._problem("a key")

    def _key_text(self, key: object) -> str:
        try:
            text = json.dumps(key, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        except ValueError:
            raise self._problem("a key that does not hold itself") from None
        if len(text) > KEY_LENGTH_MAX:
            raise self._problem(f"an object of at most {KEY_LENGTH_MAX} characters as a key")
        return text

    def _string(self, quote: str) -> str:
        chunk_pattern, parts, has_escaped_unicode = _CHUNKS[quote], [], False
        start = self._at
        self._at += 1
        while True:
            chunk = _match(chunk_pattern, self._text, self._at)
            parts.append(chunk[0])
            self._at = chunk.end() + 1
            closing = self._text[chunk.end() : self._at]
            if closing == quote:
                break
            if not closing:
                self._at = start
                raise self._problem(f"a text that ends with {quote}")
            has_escaped_unicode = self._next() == "u" or has_escaped_unicode
            parts.append(self._escaped())
        text = "".join(parts)
        return _join_surrogates(text) if has_escaped_unicode else text

    def _escaped(self) -> str:
        if self._breathe is not None:
            self._breathe()
        letter = self._next()
        if letter in _HEX:
            digits = _HEX[letter].match(self._text, self._at + 1)
            if digits is None:
                raise self._problem(f"hexadecimal digits after \\{letter}")
            self._at = digits.end()
            return chr(int(digits[0], 16))
        if letter not in _ESCAPES:
            raise self._problem("an escape")
        self._at += 1
        return _ESCAPES[letter]

    def _number_text(self) -> str:
        number = _NUMBER.match(self._text, self._at)
        if number is None or len(number[0]) > NUMBER_LENGTH_MAX:
            raise self._problem(f"a number of at most {NUMBER_LENGTH_MAX} characters")
        self._at = number.end()
        return number[0]

    def _referred_to(self, path: str, borrower: dict[str, object] | None) -> object:
        """What a reference stands for: a container, or for a key that can only be guessed, its text."""
        if path in ("@", ".."):  # the container it stands in, and the one around that
            return self._usable(self._open[-len(path)] if len(path) <= len(self._open) else None, path)
        steps = [_UNESCAPE.sub(r"\1", name) or index for name, index in _STEP.findall(path)]
        target = _follow(self._root[0], steps)
        if borrower is not None and not isinstance(target, dict):
            return self._lend(_follow(self._root[0], steps[:-1]), borrower, path)
        return self._usable(target if path.startswith("$") else None, path)

    def _usable(self, target: object, path: str) -> object:
        if not isinstance(target, dict | list):
            raise self._problem(f"a reference to something above it, not {path!r}")
        if any(target is container for container in self._open):
            if self._as_tree:
                raise self._problem(f"no reference to what holds it, as {path!r} is")
            return target
        depth, size = _measure(target, self._referred_max - self._referred_size)
        if len(self._open) + depth > DEPTH_MAX:
            raise self._problem(f"a reference that stands for at most {DEPTH_MAX} levels with those around it")
        self._count_referred(size)
        return target

    def _count_referred(self, size: int) -> None:
        self._referred_size += size
        if self._referred_size > self._referred_max:
            raise self._problem(f"references that stand for at most {self._referred_max} characters together")

    def _lend(self, there: object, here: dict[str, object], path: str) -> str:
        """The first key of another map that this one does not have: both were filled from the same objects.

        Java names no more than the map (`$.consumerTable.c1.null`), for all its keys alike, and writes equal maps in
        equal order.
        """
        if not isinstance(there, dict) or any(there is container for container in self._open):
            raise self._problem(f"a reference to a key of a map above it, not {path!r}")
        _, _, keys = self._lent.setdefault((id(here), id(there)), (here, there, iter(there)))
        for key in keys:
            if key not in here:
                self._count_referred(len(key))
                return key
        raise self._problem(f"a reference to one more key than {path!r} has")

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._at = _match(pattern, self._text, self._at).end()

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _problem(self, wanted: str) -> ValueError:
        found = repr(self._text[self._at : self._at + 20]) if self._next() else "the end"
        return ValueError(f"at character {self._at}: found {found}, expected {wanted}")


def _put(holder: _Container, key: str | int, value: object) -> None:
    holder[key] = value  # type: ignore[index]


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    assert found is not None, "a pattern of this module that must match the empty text does not"
    return found


def _number(text: str) -> int | float | None:
    if text.lstrip("-").isdecimal():
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def _join_surrogates(text: str) -> str:
    """Two escaped halves are one character; a half alone becomes `?`, as when Java writes it."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return whole.encode("utf-8", "replace").decode()


def _follow(here: object, steps: list[str]) -> object:
    """Where the steps lead, None if nowhere. Names with dots in them are tried too: old writers do not escape these."""
    while steps:
        if isinstance(here, list):
            index = int(steps[0]) if _INTEGER.fullmatch(steps[0]) else -1
            if not 0 <= index < len(here):
                return None
            here, steps = here[index], steps[1:]
        elif isinstance(here, dict):
            counts = range(1, min(len(steps), _JOINED_MAX) + 1)
            count = next((count for count in counts if ".".join(steps[:count]) in here), 0)
            if not count:
                return None
            here, steps = here[".".join(steps[:count])], steps[count:]
        else:
            return None
    return here


def _measure(container: _Container, size_max: int) -> tuple[int, int]:
    """How deep a container is and about how many characters it takes as JSON; stops counting beyond size_max."""
    level: list[object] = [container]
    depth, size = 0, 2
    while level:
        depth += 1
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict | list):
                size += _size_inside(value)
                if size > size_max:
                    return depth, size
                inner.extend(value.values() if isinstance(value, dict) else value)
        level = inner
    return depth, size


def _size_inside(container: _Container) -> int:
    """The characters of keys and scalars; what each container inside adds is counted when its turn comes."""
    if isinstance(container, list):
        return sum(map(_size, container))
    return sum(len(key) + _size(value) for key, value in container.items())


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value) + 4
    # A digit takes more than three bits. Any other scalar, like an empty container, is small.
    return 4 + (value.bit_length() // 3 if isinstance(value, int) else 0)


def header_document(document: object) -> object:
    """A command header as the kernel takes it: numbers given as text become numbers, other scalars become text."""
    if not isinstance(document, dict):
        return document
    header = {name: value for name, value in document.items() if value is not None}
    for name in ("code", "version", "opaque", "flag", "language"):
        value = header.get(name)
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            header[name] = int(value)
    if isinstance(header.get("remark"), bool | int | float):
        header["remark"] = _scalar_text(header["remark"])
    fields = header.get("extFields")
    if isinstance(fields, dict):
        header["extFields"] = {name: _scalar_text(value) for name, value in fields.items()}
    return header


def _scalar_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
