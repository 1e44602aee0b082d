"""Which entries of a queue lead to records that pass a filter: the properties of each record against a program.

Where the program cannot tell (numbers of unusual form, two properties that are not quite Unicode), `ask` is called with
the record's property text and decides. So both kernels give the same answer, and each is as fast as it can be.
"""

import functools
import operator
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from bolide.kernel.filter_layout import (
    AMONG,
    AND,
    ASK,
    CONSTANT,
    CONTAINS,
    DEPTH_MAX,
    DOUBLE,
    EQUAL,
    ERROR,
    FALSE,
    HEADER,
    INTEGER,
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
    RECORD_WORK,
    STALLED_MAX,
    STARTS,
    TEXT,
    TRUE,
    UNKNOWN,
    WORK_STEP,
)
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, Buffer

_INT32_MAX = 0x7FFF_FFFF
_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
_INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
# Decimal numbers of up to 15 digits, which a double holds exactly; everything longer or stranger is asked about.
_DECIMAL = re.compile(rb"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DIGITS_MAX = 15
_BLANKS = bytes(range(0x21))
_HOLDS = (operator.gt, operator.ge, operator.lt, operator.le)


class _CannotTell(Exception):
    """This record is for `ask`."""


class _Stopped(Exception):
    """The time is over, and this record is not decided."""


class _Unreadable(Exception):
    """A value that cannot be compared: the record does not pass."""


class _Node(NamedTuple):
    operation: int
    a: int
    b: int
    c: int
    number: int


class _Program(NamedTuple):
    names: dict[bytes, int]
    nodes: list[_Node]
    root: int
    data: bytes

    def text(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]

    def list(self, position: int, size: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{size}i", self.data, position)


_Value = bytes | int | float | bool | None
_Values = list[bytes | None]
_OUTCOMES: tuple[bool | None, ...] = (None, False, True, None)  # by what is noted of a node: 1 + FALSE, TRUE, UNKNOWN


class _Run:
    """The evaluation of one record: the values of its properties, what became of nodes, and the work that took."""

    def __init__(self, values: _Values, memo: bytearray, is_over: Callable[[], bool] | None) -> None:
        self.values = values
        self.memo = memo
        self.work = 0
        self._is_over = is_over
        self._look_at = WORK_STEP

    def begin(self) -> None:
        """A node is about to be decided: the place to stop, for what was decided before it is noted."""
        self.work += 1
        if self.work > self._look_at:
            self._look_at = self.work + WORK_STEP
            if self._is_over is not None and self._is_over():
                raise _Stopped


def match_entries(
    entries: Buffer,
    program: bytes,
    ask: Callable[[bytes], bool],
    is_over: Callable[[], bool] | None,
    stalled: dict[int, bytes],
    log_min: int,
    near_from: int,
    count_max: int,
    size_max: int,
    near_limits: tuple[int, int],
    far_limits: tuple[int, int],
    log: Buffer,
    log_base: int,
    count: int,
    size: int,
) -> tuple[list[int], int, bool]:
    """Choose as `select_entries` does, by properties instead of tags, and only within `log`.

    `count` records of `size` bytes were chosen before. Returns physical offset and size of each that is chosen now, how
    many entries were seen, and whether that is all: the limits were reached, or `is_over` said so, which is asked
    whenever some work was done. It also ends before an entry that does not lie whole in `log`, whose first byte has the
    physical offset log_base.

    In the middle of a record too: what was found out about it is then kept in `stalled`, by its physical offset, and
    who comes back with the same program and the same dict goes on from there.
    """
    read = _read_program(program)
    chosen: list[int] = []
    seen = spent = 0
    for physical_offset, record_size, _ in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        if spent >= WORK_STEP:
            if is_over is not None and is_over():
                return chosen, seen, True
            spent = 0
        spent += RECORD_WORK
        if count:
            size_limit, count_limit = near_limits if physical_offset >= near_from else far_limits
            if count >= min(count_max, count_limit) or size + record_size > min(size_max, size_limit):
                return chosen, seen, True
        if physical_offset >= log_min and record_size > 0 and record_size != _INT32_MAX:
            at = physical_offset - log_base
            if at < 0 or at + record_size > len(log):
                return chosen, seen, False
            properties = record_properties(log[at : at + record_size])
            if properties is not None:
                passes, work = _decided(read, properties, ask, is_over, stalled, physical_offset)
                if passes is None:
                    return chosen, seen, True
                spent += work
                if passes:
                    chosen += (physical_offset, record_size)
                    count += 1
                    size += record_size
        seen += 1
    return chosen, seen, False


def record_properties(record: Buffer) -> bytes | None:
    """The property text of a record, None for bytes that are no record."""
    if len(record) < 88:
        return None
    sys_flag = record[39]
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if len(record) < at + 4:
        return None
    body_size = int.from_bytes(record[at : at + 4], "big", signed=True)
    at += 4 + body_size
    topic_length = 2 if record[7] == 0xAB else 1
    if body_size < 0 or at + topic_length > len(record):
        return None
    at += topic_length + int.from_bytes(record[at : at + topic_length], "big")
    size = int.from_bytes(record[at : at + 2], "big")
    if at + 2 + size > len(record):
        return None
    return bytes(record[at + 2 : at + 2 + size])


def _decided(
    program: _Program,
    properties: bytes,
    ask: Callable[[bytes], bool],
    is_over: Callable[[], bool] | None,
    stalled: dict[int, bytes],
    physical_offset: int,
) -> tuple[bool | None, int]:
    """Whether a record passes, None if it could not be told in time, and what that took."""
    run = _start(program, properties, is_over, stalled.pop(physical_offset, b""))
    try:
        return _passes(program, run, properties, ask), run.work
    except _Stopped:
        if len(stalled) >= STALLED_MAX:
            del stalled[next(iter(stalled))]
        stalled[physical_offset] = bytes(run.memo)
        return None, run.work


def _start(program: _Program, properties: bytes, is_over: Callable[[], bool] | None, memo: bytes) -> _Run:
    values: _Values = [None] * len(program.names)
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if value and (slot := program.names.get(name)) is not None:
            values[slot] = value
    kept = bytearray(memo) if len(memo) == len(program.nodes) else bytearray(len(program.nodes))
    return _Run(values, kept, is_over)


def _passes(program: _Program, run: _Run, properties: bytes, ask: Callable[[bytes], bool]) -> bool:
    run.work += len(properties) * (16 + len(program.names)) >> 4
    try:
        return _evaluate(program, program.root, run) is True
    except _CannotTell:
        run.work += WORK_STEP  # what is asked takes long, and this is looked at before the next record
        return ask(properties)
    except _Unreadable:
        return False


@functools.lru_cache(64)
def _read_program(data: bytes) -> _Program:
    """The program, checked; raises ValueError for bytes that are none."""
    if len(data) < HEADER.size:
        raise ValueError(f"a program of {len(data)} bytes is none")
    name_count, node_count, root = HEADER.unpack_from(data)
    start = HEADER.size + name_count * NAME.size
    is_sound = 0 <= name_count <= NAME_COUNT_MAX and 0 <= root < node_count <= NODE_COUNT_MAX
    if not is_sound or start + node_count * NODE.size > len(data):
        raise ValueError(f"a program of {len(data)} bytes cannot have {name_count} names and {node_count} nodes")
    names = {}
    for i in range(name_count):
        position, size = NAME.unpack_from(data, HEADER.size + i * NAME.size)
        _check_span(data, position, size)
        names[data[position : position + size]] = i
    nodes = [_Node(*NODE.unpack_from(data, start + i * NODE.size)) for i in range(node_count)]
    depths: list[int] = []
    for i in range(node_count):
        depths.append(_check_node(data, nodes, i, name_count, depths))
    return _Program(names, nodes, root, data)


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


def _evaluate(program: _Program, number: int, run: _Run) -> _Value:
    node = program.nodes[number]
    operation = node.operation
    if operation == PROPERTY:
        return run.values[node.a]
    if operation == INTEGER:
        return node.number
    if operation == DOUBLE:
        return float(struct.unpack("<d", struct.pack("<q", node.number))[0])
    if operation == TEXT:
        return program.text(node.a, node.b)
    return _decide(program, number, node, run)


def _decide(program: _Program, number: int, node: _Node, run: _Run) -> _Value:
    """The outcome of a node that is no text and no number."""
    if run.memo[number]:
        return _OUTCOMES[run.memo[number]]
    run.begin()
    value = _outcome(program, node, run)
    run.memo[number] = 1 + (UNKNOWN if value is None else TRUE if value else FALSE)
    return value


def _outcome(program: _Program, node: _Node, run: _Run) -> bool | None:
    if node.operation == CONSTANT:
        if node.a == ERROR:
            raise _Unreadable
        return None if node.a == UNKNOWN else node.a == TRUE
    if node.operation in (AND, OR):
        return _joined(program, node, run)
    if node.operation == ASK:
        raise _CannotTell
    return _test(program, node, run)


def _joined(program: _Program, node: _Node, run: _Run) -> bool | None:
    ends_it = node.operation == OR
    outcome: bool | None = not ends_it
    for operand in program.list(node.a, node.b):
        value = _evaluate(program, operand, run)
        if value is ends_it:
            return ends_it
        if value is None:
            outcome = None
    return outcome


def _test(program: _Program, node: _Node, run: _Run) -> bool | None:
    value = _evaluate(program, node.a, run)
    if node.operation == EQUAL:
        other = _evaluate(program, node.b, run)
        if value is None or other is None:
            return (True if other is None else None) if value is None else False
        run.work += _size(value) + _size(other)
        is_equal = _are_equal(value, other)
        if not is_equal and program.nodes[node.a].operation == program.nodes[node.b].operation == PROPERTY:
            _doubt(value, other)
        return is_equal
    if node.operation == ORDER:
        other = _evaluate(program, node.b, run)
        if value is None or other is None:
            return None
        run.work += _size(value) + _size(other)
        return bool(_HOLDS[node.c](*_numbers(value, other)))
    if node.operation == NOT:
        return None if value is None else not value
    if node.operation == IS_NULL:
        return (value is None) is not bool(node.number)
    if node.operation == PRESENT:
        return None if value is None else False
    if node.operation == AMONG:
        if value is None:
            return None
        run.work += node.c
        texts = [program.nodes[each] for each in program.list(node.b, node.c)]
        return any(value == program.text(text.a, text.b) for text in texts) is not bool(node.number)
    part = program.text(node.b, node.c)
    if not isinstance(value, bytes) or not part:
        return False
    kind = node.number >> 1
    if kind == CONTAINS:
        run.work += len(value)
        holds = part in value
    else:
        holds = value.startswith(part) if kind == STARTS else value.endswith(part)
    return holds is not bool(node.number & 1)


def _size(value: _Value) -> int:
    return len(value) if isinstance(value, bytes) else 0


def _are_equal(one: _Value, other: _Value) -> bool:
    if isinstance(one, bool):
        if isinstance(other, bytes):
            raise _Unreadable
        return isinstance(other, bool) and one is other
    if isinstance(other, bool):
        return isinstance(one, bytes) and (one.lower() == b"true") is other
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one == other
    first, second = _numbers(one, other)
    return first == second


def _doubt(one: _Value, other: _Value) -> None:
    """Bytes that are no UTF-8 are all read as one character: two texts of them may be equal all the same."""
    if all(isinstance(text, bytes) and not text.isascii() for text in (one, other)):
        raise _CannotTell


def _numbers(one: _Value, other: _Value) -> tuple[float, float]:
    if isinstance(one, bytes):
        if isinstance(other, bytes):
            first, second = _read_double(one), _read_double(other)
            if first == second == 0:
                raise _CannotTell  # Java tells the two zeros apart
            return first, second
        assert isinstance(other, int | float)
        return _read_like(one, other), other
    assert isinstance(one, int | float)
    if isinstance(other, bytes):
        return one, _read_like(other, one)
    raise _CannotTell  # two constants are compared when the program is made


def _read_like(text: bytes, number: float) -> float:
    return _read_integer(text, number) if type(number) is int else _read_double(text)


def _read_integer(text: bytes, beside: int) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise _Unreadable
    number = int(text)
    limit = _INT32_MAX if -_INT32_MAX - 1 <= beside <= _INT32_MAX else _INT64_MAX
    if not -limit - 1 <= number <= limit:
        raise _Unreadable
    return number


def _read_double(text: bytes) -> float:
    found = _DECIMAL.fullmatch(text.strip(_BLANKS))
    if found is None or len(found[1].replace(b".", b"")) > _DIGITS_MAX:
        raise _CannotTell
    return float(found[0])
