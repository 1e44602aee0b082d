"""An expression as bytes that the kernel runs over a stretch of records; their layout is in `kernel/filter_layout.py`.

What is the same for every message is worked out here, once. An expression that is too large for the kernel, or whose
texts hold what records cannot (half a character) or hold otherwise (U+FFFD, which stands for any bytes that are no
UTF-8), becomes a program that knows nothing and leaves every record to the predicate: right, and slower.
"""

import struct
from collections.abc import Callable

from bolide.filter.conditions import Kind, Node, Unreadable, Value
from bolide.kernel import filter_layout as codes

_REPLACED = "\ufffd"


class _NotForKernel(Exception):
    """Something the kernel has no room or no bytes for."""


def write_program(condition: Node, breathe: Callable[[], None] | None = None) -> bytes:
    """The program of a whole expression; `breathe` is called at each of its parts."""
    writer = _Writer(breathe)
    try:
        root = writer.write(condition)
        return writer.finished(root)
    except _NotForKernel:
        writer = _Writer()
        return writer.finished(writer.put(codes.ASK))


class _Writer:
    """Puts nodes behind their operands, and texts and lists behind all nodes; positions are made final at the end."""

    def __init__(self, breathe: Callable[[], None] | None = None) -> None:
        self._breathe = breathe
        self._names: dict[str, int] = {}
        self._nodes: list[tuple[int, int, int, int, int]] = []
        self._pool = bytearray()

    def put(self, operation: int, a: int = 0, b: int = 0, c: int = 0, number: int = 0) -> int:
        """A node; returns its number."""
        if len(self._nodes) >= codes.NODE_COUNT_MAX:
            raise _NotForKernel
        self._nodes.append((operation, a, b, c, number))
        return len(self._nodes) - 1

    def write(self, node: Node) -> int:
        """A part of an expression, its own parts first; returns the number of its node."""
        if self._breathe is not None:
            self._breathe()
        if node.is_fixed:
            return self._write_fixed(node)
        operation, *more = node.form
        if operation == codes.PROPERTY:
            return self.put(codes.PROPERTY, self._name(str(more[0])))
        parts = [self.write(part) for part in node.parts]
        if operation in (codes.AND, codes.OR):
            return self.put(operation, self._list(parts), len(parts))
        if operation == codes.AMONG:
            texts, is_negated = more
            assert isinstance(texts, frozenset)
            options = [self._text(text) for text in sorted(texts)]
            return self.put(codes.AMONG, parts[0], self._list(options), len(options), int(bool(is_negated)))
        if operation == codes.PART:
            kind, part, is_negated = more
            encoded = _encoded(str(part))
            assert isinstance(kind, int)
            return self.put(codes.PART, parts[0], self._keep(encoded), len(encoded), 2 * kind + bool(is_negated))
        assert isinstance(operation, int)
        a, b = parts[0], parts[1] if len(parts) > 1 else 0
        if operation == codes.ORDER:
            (ordering,) = more
            assert isinstance(ordering, int)
            return self.put(codes.ORDER, a, b, ordering)
        return self.put(operation, a, b, number=int(bool(more and more[0])))

    def _write_fixed(self, node: Node) -> int:
        value: Value
        try:
            value = node.evaluate({})
        except Unreadable:
            return self.put(codes.CONSTANT, codes.ERROR)
        if value is None:
            return self.put(codes.CONSTANT, codes.UNKNOWN)
        if isinstance(value, bool):
            return self.put(codes.CONSTANT, codes.TRUE if value else codes.FALSE)
        if isinstance(value, int):
            return self.put(codes.INTEGER, number=value)
        if isinstance(value, float):
            return self.put(codes.DOUBLE, number=struct.unpack("<q", struct.pack("<d", value))[0])
        assert node.kind is Kind.TEXT
        return self._text(value)

    def _name(self, name: str) -> int:
        number = self._names.setdefault(name, len(self._names))
        if number >= codes.NAME_COUNT_MAX:
            raise _NotForKernel
        return number

    def _text(self, text: str) -> int:
        encoded = _encoded(text)
        return self.put(codes.TEXT, self._keep(encoded), len(encoded))

    def _list(self, numbers: list[int]) -> int:
        return self._keep(struct.pack(f"<{len(numbers)}i", *numbers))

    def _keep(self, content: bytes) -> int:
        self._pool += content
        return len(self._pool) - len(content)

    def finished(self, root: int) -> bytes:
        """All of it in one piece."""
        start = codes.HEADER.size + len(self._names) * codes.NAME.size + len(self._nodes) * codes.NODE.size
        names = []
        for name in self._names:
            encoded = name.encode()
            names.append(codes.NAME.pack(start + self._keep(encoded), len(encoded)))
        nodes = [codes.NODE.pack(*_moved(node, start)) for node in self._nodes]
        header = codes.HEADER.pack(len(names), len(nodes), root)
        return b"".join((header, *names, *nodes, self._pool))


def _moved(node: tuple[int, int, int, int, int], start: int) -> tuple[int, int, int, int, int]:
    """A node whose position in the pool has become one in the program."""
    operation, a, b, c, number = node
    if operation in (codes.TEXT, codes.AND, codes.OR):
        return operation, a + start, b, c, number
    if operation in (codes.AMONG, codes.PART):
        return operation, a, b + start, c, number
    return node


def _encoded(text: str) -> bytes:
    if _REPLACED in text:
        raise _NotForKernel
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _NotForKernel from None
