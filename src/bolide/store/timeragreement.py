"""Whether the timer's files agree with each other and with the log, for who verifies a store. Nothing is changed.

A broker makes wheel and log again from the timer's topic when they do not, so what is named here costs no message; but
it tells of a disk that does not keep what it was given.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from bolide.kernel.layout import ENTRY, SLOT_SIZE
from bolide.store import timercheck
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.segment import segment_name
from bolide.store.timercheck import TimerCheck
from bolide.store.timerlog import TimerLog
from bolide.store.timerwheel import FILE_SIZE, SLOT_COUNT, Slot, TimerWheel

_UNITS_AT_ONCE = 4096

# In which file, at which byte, and what.
Disagreement = tuple[Path, int, str]


def timer_disagreements(config: StoreConfig, has_record: Callable[[int], bool]) -> Iterator[Disagreement]:
    """What does not fit; nothing where there is no timer. `has_record` tells whether one begins at a place."""
    check_path, wheel_path = config.root / "config" / "timercheck", config.root / "timerwheel"
    check = timercheck.load(check_path)
    if check is None:
        if check_path.exists():
            yield check_path, 0, "it is empty: what was delivered by the timer is not known"
        return
    odd = list(_odd_lengths(wheel_path, config.root / "timerlog", config.timer_file_size))
    yield from odd
    if odd:
        return
    log = TimerLog(Disk(), config.root / "timerlog", config.timer_file_size)
    wheel = TimerWheel(Disk(), wheel_path, config.timer_step_ms)
    try:
        log.load()
        yield from _check_slots(config, log, wheel, check, has_record)
    finally:
        log.close()
        wheel.close()


def _odd_lengths(wheel: Path, log_directory: Path, file_size: int) -> Iterator[Disagreement]:
    size = wheel.stat().st_size if wheel.exists() else -1
    if size != FILE_SIZE:
        yield wheel, 0, "it is missing" if size < 0 else f"it has {size} bytes instead of {FILE_SIZE}"
    for path in sorted(log_directory.iterdir()) if log_directory.is_dir() else ():
        if (size := path.stat().st_size) != file_size or not path.name.isdecimal():
            yield path, 0, f"a file of {size} bytes, and those of the timer's log have {file_size}"


def _check_slots(
    config: StoreConfig, log: TimerLog, wheel: TimerWheel, check: TimerCheck, has_record: Callable[[int], bool]
) -> Iterator[Disagreement]:
    path, count = config.root / "timerwheel", 0
    if log.end < check.log_end:
        what = f"the timer's log ends at {log.end}, and was durable up to {check.log_end}"
        yield config.root / "timerlog", 0, what
    for slot in wheel.occupied():
        if slot.time_ms < check.read_ms:
            continue
        count += slot.load
        position = slot.time_ms // config.timer_step_ms % SLOT_COUNT * SLOT_SIZE
        load = log.load_of(slot, config.timer_step_ms)
        if load != slot.load:
            found = "their chain is broken" if load is None else f"there are {load}"
            yield path, position, f"the slot of {slot.time_ms} ms counts {slot.load} messages, and {found}"
        for place in _missing(log, slot, config.timer_step_ms, has_record):
            name = log.segments.directory / segment_name(log.segments.base_of(slot.last) or 0)
            yield name, 0, f"a unit of the slot of {slot.time_ms} ms leads to {place}, where no record begins"
    if wheel.odd:
        yield path, 0, wheel.odd
    noted = timercheck.waiting_count(config.root / "config" / "timercheck")
    if count < noted:
        yield path, 0, f"{count} messages wait in the wheel, and {noted} did"


def _missing(log: TimerLog, slot: Slot, step_ms: int, has_record: Callable[[int], bool]) -> Iterator[int]:
    position = slot.last
    while position >= 0:
        entries, _, position = log.walk(position, step_ms, slot.time_ms, _UNITS_AT_ONCE)
        yield from (place for place, _, _ in ENTRY.iter_unpack(entries) if not has_record(place))
