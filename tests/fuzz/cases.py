"""Cases: what a function of the kernel is given, by name, and how a seed changes it.

A value is a number or bytes (a text is its UTF-8). Numbers in bytes are where the trouble is, so most changes write one
of the numbers at the borders of 16, 32 and 64 bits over four or eight bytes; others cut, copy, move and repeat
stretches, or put in words of the formats.
"""

import json
import random
from pathlib import Path

Case = dict[str, int | bytes]

CORPUS = Path(__file__).parent / "corpus"
SIZE_MAX = 1 << 16

_BORDERS = sorted(
    {
        sign * (1 << bits) + more
        for bits in (0, 3, 7, 8, 15, 16, 24, 31, 32, 62, 63)
        for sign in (1, -1)
        for more in (-20, -2, -1, 0, 1, 20)
    }
    | {0, 52, 88, 91, 4096, 999_999_999, 10**18 - 1, 10**18}
)
# Where numbers lie in what is laid out in rows (or, of an index file, once): place and size of each.
_FIELDS: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "entries": (20, ((0, 8), (8, 4), (12, 8))),
    "keys": (20, ((0, 4), (4, 8), (12, 8))),
    "units": (52, ((0, 4), (4, 8), (12, 4), (16, 8), (24, 4), (28, 8), (36, 4))),
    "index": (1 << 30, ((0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4))),
}
_WORDS = [
    *(b'"code":', b'"extFields":{', b'"flag":', b"null", b"true", b"1e5", b"-0", b"01", b"9" * 18, b"9" * 19, b"-1"),
    *(b"\\u0001", b"\\ud83d", b"\\", b'"', b"{", b"}", b"[", b"\x01", b"\x02", b"\x00", b"\xff", b"\xc3\xa9", b" "),
    *(b"TAGS\x01a\x02", b"KEYS\x01k j\x02", b"UNIQ_KEY\x01u\x02", b"REAL_TOPIC\x01Orders\x02", b"REAL_QID\x013\x02"),
    *(b"TIMER_OUT_MS\x011700000000000\x02", b"TIMER_ROLL_TIMES\x011\x02", b"DELAY\x013\x02", b"PGROUP\x01pg\x02"),
    *(b"SCHEDULE_TOPIC_XXXX", b"%RETRY%", b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94"),
]


def changed(case: Case, other: Case, chance: random.Random) -> Case:
    """A case with one to some changes; stretches may come from another case of the same function."""
    new = dict(case)
    names = sorted([*new, *(name for name in new if name in _FIELDS for _ in range(3))])
    for _ in range(min(1 + int(chance.expovariate(0.7)), 8)):
        name = chance.choice(names)
        value = new[name]
        if isinstance(value, int):
            new[name] = _number(value, chance)
        elif name in _FIELDS and len(value) >= 52 and chance.randrange(2):
            new[name] = _with_field(value, *_FIELDS[name], chance)
        else:
            donor = other.get(name)
            new[name] = _bytes(value, donor if isinstance(donor, bytes) else b"", chance)[:SIZE_MAX]
    return new


def _number(value: int, chance: random.Random) -> int:
    how = chance.randrange(4)
    if how == 0:
        return value + chance.choice((-20, -4, -1, 1, 4, 20))
    if how == 1:
        return value ^ 1 << chance.randrange(16)
    return chance.choice(_BORDERS) if how == 2 else chance.randrange(200)


def _bytes(value: bytes, donor: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(value) + 1)
    how = chance.randrange(10)
    if how < 4 and len(value) >= 4:
        return _with_number(value, chance)
    if how == 4 and value:
        at = min(at, len(value) - 1)
        return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
    if how == 5:
        return value[:at] + chance.choice(_WORDS) + value[at:]
    if how == 6:
        word = chance.choice(_WORDS)
        return value[:at] + word + value[at + len(word) :]
    if how == 7:
        return value[:at] + value[at + chance.randrange(1, 33) :]
    if how == 8:
        stretch = value[at : at + chance.choice((1, 4, 8, 20, 52, 200))]
        return value[:at] + stretch * chance.choice((2, 2, 3, 40)) + value[at + len(stretch) :]
    start = chance.randrange(len(donor) + 1)
    return value[:at] + donor[start : start + chance.choice((4, 20, 100, 1000))] + value[at:]


def _with_number(value: bytes, chance: random.Random) -> bytes:
    """With another number in two, four or eight of the bytes; the first ones, where headers are, have more of them."""
    size = chance.choice((2, 4, 4, 8, 8))
    if size > len(value):
        size = 2
    last = len(value) - size
    at = chance.randrange(last + 1) if chance.randrange(2) else min(2 * chance.randrange(32), last)
    order = "little" if chance.randrange(4) == 0 else "big"
    number = chance.choice(_BORDERS) & (1 << 8 * size) - 1
    if chance.randrange(3) == 0:  # a little more or less than it was
        old = int.from_bytes(value[at : at + size], "big")
        number = old + chance.choice((-20, -1, 1, 20)) & (1 << 8 * size) - 1
        order = "big"
    return value[:at] + number.to_bytes(size, "big" if order == "big" else "little") + value[at + size :]


def _with_field(value: bytes, row_size: int, fields: tuple[tuple[int, int], ...], chance: random.Random) -> bytes:
    """With a number at the border of what its field can hold."""
    place, size = chance.choice(fields)
    at = row_size * chance.randrange(max(len(value) // row_size, 1)) + place
    top = 1 << 8 * size - 1
    number = chance.choice((-top, 1 - top, -1000, -3, -1, 0, 1, top - 200, top - 20, top - 1)) + chance.randrange(2)
    return value[:at] + (number & 2 * top - 1).to_bytes(size, "big") + value[at + size :]


# On disk: a line for each case, bytes as they print where they do.


def as_text(case: Case) -> str:
    plain = {name: value if isinstance(value, int) else [value.decode("latin-1")] for name, value in case.items()}
    return json.dumps(plain, sort_keys=True)


def from_text(text: str) -> Case:
    return {
        name: value if isinstance(value, int) else value[0].encode("latin-1")
        for name, value in json.loads(text).items()
    }


def kept(target: str, folder: Path = CORPUS) -> list[Case]:
    path = folder / f"{target}.jsonl"
    return [from_text(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(target: str, case: Case, folder: Path = CORPUS) -> None:
    with (folder / f"{target}.jsonl").open("a") as file:
        file.write(as_text(case) + "\n")
