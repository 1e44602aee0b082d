"""Which bytes are a program of a filter: the rules of `filter_layout.py`, one by one."""

import struct
from typing import NamedTuple

from bolide.kernel.filter_layout import (
    AMONG,
    AND,
    ASK,
    CONSTANT,
    DEPTH_MAX,
    EQUAL,
    ERROR,
    HEADER,
    IS_NULL,
    LESS_EQUAL,
    NAME,
    NAME_COUNT_MAX,
    NODE,
    NODE_COUNT_MAX,
    NOT,
    OR,
    ORDER,
    PART,
    PRESENT,
    PROPERTY,
    TEXT,
)


class _Node(NamedTuple):
    operation: int
    a: int
    b: int
    c: int
    number: int


def check_program(data: bytes) -> None:
    """Raises ValueError for bytes that are no program."""
    if len(data) < HEADER.size:
        raise ValueError(f"a program of {len(data)} bytes is none")
    name_count, node_count, root = HEADER.unpack_from(data)
    start = HEADER.size + name_count * NAME.size
    is_sound = 0 <= name_count <= NAME_COUNT_MAX and 0 <= root < node_count <= NODE_COUNT_MAX
    if not is_sound or start + node_count * NODE.size > len(data):
        raise ValueError(f"a program of {len(data)} bytes cannot have {name_count} names and {node_count} nodes")
    for i in range(name_count):
        _check_span(data, *NAME.unpack_from(data, HEADER.size + i * NAME.size))
    nodes = [_Node(*NODE.unpack_from(data, start + i * NODE.size)) for i in range(node_count)]
    depths: list[int] = []
    for i in range(node_count):
        depths.append(_check_node(data, nodes, i, name_count, depths))


def _check_node(data: bytes, nodes: list[_Node], i: int, name_count: int, depths: list[int]) -> int:
    """How deep it is; raises ValueError if it points anywhere but to what was before it."""
    operation, a, b, c, _ = nodes[i]
    operands: tuple[int, ...] = ()
    is_sound = 0 <= operation <= ASK
    if operation == PROPERTY:
        is_sound = 0 <= a < name_count
    elif operation == CONSTANT:
        is_sound = 0 <= a <= ERROR
    elif operation == TEXT:
        _check_span(data, a, b)
    elif operation in (AND, OR):
        operands = _list_at(data, a, b)
    elif operation in (NOT, IS_NULL, PRESENT):
        operands = (a,)
    elif operation in (EQUAL, ORDER):
        operands = (a, b)
        is_sound = operation == EQUAL or 0 <= c <= LESS_EQUAL
    elif operation == AMONG:
        texts = _list_at(data, b, c)
        operands = (a, *texts)
        is_sound = 0 <= a < i and nodes[a].operation == PROPERTY
        is_sound = is_sound and all(0 <= text < i and nodes[text].operation == TEXT for text in texts)
    elif operation == PART:
        _check_span(data, b, c)
        operands = (a,)
    if not is_sound or not all(0 <= operand < i for operand in operands):
        raise ValueError(f"node {i} of a program is none: {nodes[i]}")
    depth = 1 + max((depths[operand] for operand in operands), default=0)
    if depth > DEPTH_MAX:
        raise ValueError(f"node {i} of a program is {depth} deep, at most {DEPTH_MAX} are taken")
    return depth


def _list_at(data: bytes, position: int, count: int) -> tuple[int, ...]:
    _check_span(data, position, 4 * count)
    return struct.unpack_from(f"<{count}i", data, position)


def _check_span(data: bytes, position: int, size: int) -> None:
    if not (0 <= position <= len(data) and 0 <= size <= len(data) - position):
        raise ValueError(f"a program of {len(data)} bytes has no {size} at {position}")
