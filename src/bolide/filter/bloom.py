"""The bits under which a Java broker files a group's filter.

Such a broker may keep, with each queue entry, a small map of the filters that will let its message through
(`enableCalcFilterBitMap`). Here messages are looked at when they are pulled, which chooses the same and needs no map.
But the bits are in consumerFilter.json, and a Java broker that finds others than its own drops the whole file; so they
are worked out as it does: MurmurHash3 of `group#topic`, and from its two halves as many positions as the error allows.
"""

import math
from typing import NamedTuple

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_C1 = 0x87C3_7B91_1142_53D5
_C2 = 0x4CF5_AD43_2745_937F


class BloomSize(NamedTuple):
    """How many bits the map has, and how many of them stand for one filter."""

    bit_count: int
    position_count: int


def bloom_size(error_percent: int, expected_count: int) -> BloomSize:
    """The size for this many filters and this many false hits in a hundred."""
    error = error_percent / 100
    bit_count = math.ceil(expected_count * (math.log(1 / error) / math.log(2)) * (math.log(math.e) / math.log(2)))
    return BloomSize(-(-bit_count // 8) * 8, math.ceil(math.log(error) / math.log(0.5)))


def bloom_positions(text: str, size: BloomSize) -> list[int]:
    """The positions that stand for a text."""
    hashed = murmur3_low(text.encode("utf-8", "replace"))
    first, second = _int32(hashed), _int32(hashed >> 32)
    positions = []
    for i in range(1, size.position_count + 1):
        combined = _int32(first + i * second)
        positions.append((~combined if combined < 0 else combined) % size.bit_count)
    return positions


def murmur3_low(data: bytes) -> int:
    """The lower half of the 128-bit MurmurHash3 (x64, seed 0)."""
    one = two = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        one ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        one = (_rotated(one, 27) + two) * 5 + 0x52DC_E729 & _MASK
        two ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        two = (_rotated(two, 31) + one) * 5 + 0x3849_5AB5 & _MASK
    tail = data[whole:]
    two ^= _mixed(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)
    one ^= _mixed(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    one, two = one ^ len(data), two ^ len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    return _finished(one) + _finished(two) & _MASK


def _mixed(block: int, before: int, bits: int, after: int) -> int:
    return _rotated(block * before & _MASK, bits) * after & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return value ^ value >> 33


def _int32(value: int) -> int:
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
