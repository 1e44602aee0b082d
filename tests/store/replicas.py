"""A store and its copies: how bytes pass from one to the other, and whether the files are equal."""

import random
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from bolide.model.topics import SCHEDULE_TOPIC
from bolide.store.record import Draft
from bolide.store.store import Store
from tests.store.given import HeldClock, draft, opened, small

FILE_SIZE = 16384


def filled(root: Path, count: int = 60, seed: int = 1, **changes: Any) -> Store:
    """A store with files of every kind: rolls, several queues, keys, delays, half messages."""
    clock, chance = HeldClock(), random.Random(seed)
    store = opened(small(root, index_entries_max=30, **changes), clock)
    for number in range(count):
        clock.ms += chance.randrange(900)
        store.append([message(number, chance) for _ in range(chance.choice((1, 1, 3)))])
    return store


def message(number: int, chance: random.Random) -> Draft:
    topic = chance.choice(["A", "A", "B", SCHEDULE_TOPIC])
    level = {"DELAY": str(chance.randrange(1, 19))} if topic == SCHEDULE_TOPIC else {}
    sys_flag = chance.choice((0, 0, 0, 4, 8, 12))
    body = bytes([number % 250 + 1]) * chance.choice((0, 1, 90, 700, 3000))
    return draft(body, topic, chance.randrange(2), sys_flag, KEYS=f"k{number} all", TAGS=chance.choice("xyz"), **level)


def follower(root: Path, **changes: Any) -> Store:
    return opened(small(root, role="SLAVE", index_entries_max=30, **changes))


def pieces(source: Store, offset: int, sizes: Iterable[int] = ()) -> Iterator[tuple[int, bytes]]:
    """What a log has from an offset on, in pieces of these sizes and then as large as they come."""
    for size in chain(sizes, repeat(1 << 20)):
        view = source.log_view(offset, size)
        assert view is not None, f"nothing at {offset}"
        if not view:
            return
        yield offset, bytes(view)
        offset += len(view)


def copy(source: Store, target: Store, sizes: Iterable[int] = ()) -> None:
    start = target.log_end if target.log_end != target.log_start else source.log_start
    for offset, content in pieces(source, start, sizes):
        target.append_copy(offset, content)


def contents(root: Path) -> dict[str, bytes]:
    """Log, queues and index by name, without files that have nothing in them yet."""
    paths = [path for room in ("commitlog", "consumequeue", "index") for path in (root / room).rglob("*")]
    found = {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}
    return {name: content for name, content in found.items() if any(content)}


def assert_equal_files(one: Path, other: Path) -> None:
    ours, theirs = contents(one), contents(other)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []
