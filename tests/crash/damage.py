"""A disk that lies: bits that flip, pages that are lost, come from elsewhere or hold nonsense, files that go or shrink.

Damage is done to the files of a store that nobody has open. Damage to the log costs the messages that it hits, so it
says which those were; damage to a file that is derived from the log costs nothing.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.records import decode_record

PAGE_SIZE = 4096
BLANK_MAGIC = b"\xcb\xd4\x31\x94"
_TRIES_MAX = 100
# A checkpoint of a pop is the only note that its messages are out: who loses it loses them for that group.
_COSTS_OTHERS = "rmq_sys_REVIVE_LOG"


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one file."""

    path: Path
    position: int
    size: int

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name} at {self.position}, {self.size} bytes"


@dataclass(slots=True)
class Harm:
    """What was done, and the messages it may have cost: the topics each belongs to, and its body."""

    what: str
    lost: list[tuple[frozenset[str], bytes]] = field(default_factory=list)


def records(path: Path) -> Iterator[tuple[int, int, StoredMessage]]:
    """Position, size and content of each record of a log file, up to the first that is none."""
    content = path.read_bytes()
    position = 0
    while position + 8 <= len(content) and content[position + 4 : position + 8] != BLANK_MAGIC:
        size = int.from_bytes(content[position : position + 4], "big", signed=True)
        if size <= 0:
            return
        try:
            yield position, size, decode_record(content, position)
        except BolideError:
            return
        position += size


def _flip(place: Place, chance: random.Random) -> None:
    _write(place, lambda old: bytes((old[0] ^ (1 << chance.randrange(8)), *old[1:])))


def _zero(place: Place, chance: random.Random) -> None:
    _write(place, lambda old: bytes(len(old)))


def _garble(place: Place, chance: random.Random) -> None:
    _write(place, lambda old: chance.randbytes(len(old)))


def _misdirect(place: Place, chance: random.Random) -> None:
    """A page of this file was written here as well."""
    content = place.path.read_bytes()
    start = chance.randrange(max(1, len(content) // PAGE_SIZE)) * PAGE_SIZE
    _write(place, lambda old: content[start : start + len(old)].ljust(len(old), b"\0"))


def _write(place: Place, change: Callable[[bytes], bytes]) -> None:
    with place.path.open("r+b") as file:
        file.seek(place.position)
        old = file.read(place.size)
        file.seek(place.position)
        file.write(change(old) if old else old)


_CHANGES = {
    "a flipped bit": _flip,
    "a lost page": _zero,
    "a page of nonsense": _garble,
    "a page from elsewhere": _misdirect,
}


def _place(path: Path, end: int, what: str, chance: random.Random) -> Place:
    if what == "a flipped bit":
        return Place(path, chance.randrange(end), 1)
    return Place(path, chance.randrange(end) // PAGE_SIZE * PAGE_SIZE, PAGE_SIZE)


def damage_log(root: Path, chance: random.Random) -> Harm:
    """Damage one place of the log in which records lie."""
    files = {path: list(records(path)) for path in sorted((root / "commitlog").iterdir())}
    files = {path: found for path, found in files.items() if found}
    for _ in range(_TRIES_MAX if files else 0):
        path = chance.choice(list(files))
        what = chance.choice(list(_CHANGES))
        last, size, _ = files[path][-1]
        place = _place(path, last + size, what, chance)
        hit = [
            message
            for position, size, message in files[path]
            if position < place.position + place.size and place.position < position + size
        ]
        if not any(message.topic.startswith(_COSTS_OTHERS) for message in hit):
            _CHANGES[what](place, chance)
            return Harm(f"{what} in {place}", [(_topics(message), message.body) for message in hit])
    return Harm("nothing: the log has no place for it")


def _topics(message: StoredMessage) -> frozenset[str]:
    named = (message.topic, message.properties.get("REAL_TOPIC"), message.properties.get("RETRY_TOPIC"))
    return frozenset(name for name in named if name)


def damage_derived(root: Path, chance: random.Random) -> Harm:
    """Damage one file that can be made again from the log."""
    files = sorted(
        path
        for room in ("consumequeue", "index", "timerwheel", "timerlog", "checkpoint")
        for path in ((root / room).rglob("*") if (root / room).is_dir() else [root / room])
        if path.is_file() and path.stat().st_size
    )
    if not files:
        return Harm("nothing: there are no derived files yet")
    path = chance.choice(files)
    what = chance.choice((*_CHANGES, "a lost file", "half a file", "another file"))
    place = Place(path, 0, path.stat().st_size)
    if what in _CHANGES:
        place = _place(path, path.stat().st_size, what, chance)
        _CHANGES[what](place, chance)
    elif what == "a lost file":
        path.unlink()
    elif what == "half a file":
        with path.open("r+b") as file:
            file.truncate(place.size // 2)
    else:
        other = chance.choice([each for each in files if each.parent.parent == path.parent.parent])
        if other != path:
            shutil.copyfile(other, path)
    return Harm(f"{what} in {place}")
