"""Which entries of a queue lead to records that pass a filter: each record is shown to the predicate above.

The compiled function runs the filter's program instead (`filter_layout.py`) and asks where that cannot tell: it is held
to the predicate by tests.
"""

from collections.abc import Callable

from bolide.kernel.filter_layout import RECORD_WORK, WORK_STEP
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, NOTHING_SIZE, Buffer

_USUAL_SIZE = 64  # of properties: more of them are more work than any record takes


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

    The compiled one may end in the middle of a record too: what was found out about it is then kept in `stalled`, by
    its physical offset, and who comes back with the same program and the same dict goes on from there.
    """
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
        if physical_offset >= log_min and record_size > 0 and record_size != NOTHING_SIZE:
            at = physical_offset - log_base
            if at < 0 or at + record_size > len(log):
                return chosen, seen, False
            properties = _properties(log[at : at + record_size])
            if properties is not None:
                spent += max(len(properties) - _USUAL_SIZE, 0)
                if ask(properties):
                    chosen += (physical_offset, record_size)
                    count += 1
                    size += record_size
        seen += 1
    return chosen, seen, False


def _properties(record: Buffer) -> bytes | None:
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
