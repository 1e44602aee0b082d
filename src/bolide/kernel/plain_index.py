"""Keys filed in a hash index: the one function of the plain kernel that writes where it is told.

`plain_records.py` says what a key is, and has this among its functions; compiled_records.pyx repeats it with types.
"""

import struct
from mmap import mmap

from bolide.kernel.layout import INDEX_ENTRY, INDEX_ENTRY_SIZE, INDEX_HEADER, INDEX_HEADER_SIZE, KEY


def put_keys(index: bytearray | memoryview | mmap, keys: bytes, slot_count: int, entry_count_max: int) -> int:
    """File keys in a hash index; returns how many were taken before the file was full.

    index is the whole file, writable: header, slots (number of the newest entry of a chain), entries (key hash,
    physical offset, seconds since the file's begin, number of the entry before in the chain). One that is too short, or
    says that its next entry lies outside of it, is damaged: that raises ValueError and changes nothing.
    """
    if len(keys) % KEY.size:
        raise ValueError(f"{len(keys)} bytes of keys, each has {KEY.size}")
    _check_index(index, slot_count, entry_count_max)
    begin_ms, end_ms, begin_physical, end_physical, used_slots, number = INDEX_HEADER.unpack_from(index)
    number = max(number, 1)  # Java's files say 0 until they have a key
    taken = 0
    for hashed, physical_offset, store_ms in KEY.iter_unpack(keys):
        if number >= entry_count_max:
            break
        slot = INDEX_HEADER_SIZE + hashed % slot_count * 4
        (previous,) = struct.unpack_from(">i", index, slot)
        if previous <= 0 or previous > number:
            previous = 0
        if number <= 1:
            begin_ms, begin_physical = store_ms, physical_offset
        seconds = 0 if begin_ms <= 0 else min(max((store_ms - begin_ms) // 1000, 0), 0x7FFF_FFFF)
        entry = INDEX_HEADER_SIZE + slot_count * 4 + number * INDEX_ENTRY_SIZE
        INDEX_ENTRY.pack_into(index, entry, hashed, physical_offset, seconds, previous)
        struct.pack_into(">i", index, slot, number)
        used_slots = min(used_slots + (previous == 0), 0x7FFF_FFFF)
        number += 1
        end_ms, end_physical = store_ms, physical_offset
        taken += 1
    INDEX_HEADER.pack_into(index, 0, begin_ms, end_ms, begin_physical, end_physical, used_slots, number)
    return taken


def _check_index(index: bytearray | memoryview | mmap, slot_count: int, entry_count_max: int) -> None:
    is_count = 0 < slot_count <= 0x7FFF_FFFF and 0 <= entry_count_max <= 0x7FFF_FFFF
    if not is_count or len(index) < INDEX_HEADER_SIZE + 4 * slot_count + INDEX_ENTRY_SIZE * entry_count_max:
        size = len(index)
        raise ValueError(
            f"an index file of {size} bytes, too short for {slot_count} slots and {entry_count_max} entries"
        )
    number = INDEX_HEADER.unpack_from(index)[5]
    if not 0 <= number <= entry_count_max:
        raise ValueError(f"a damaged index file: it says that entry {number} comes next, and has {entry_count_max}")
