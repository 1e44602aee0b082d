"""What `bolide store verify` says of files that are not the log's, the queues' or the index's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.store.config import StoreConfig
from bolide.store.roster import FILE_NAME
from bolide.store.timerwheel import FILE_SIZE
from bolide.store.verify import Verification, findings
from bolide.testing import VirtualClock, run
from tests.broker.timing import START_MS, pass_s, timing
from tests.store.given import draft, opened, small

UNIT_SIZE = 52


def said(config: StoreConfig) -> list[str]:
    return [f"{Path(finding.file).relative_to(config.root)}: {finding.what}" for finding in findings(config)]


def test_a_line_of_the_roster_that_is_not_whole_is_named_with_its_place(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a")])
    assert said(small(tmp_path)) == []
    roster = tmp_path / FILE_NAME
    size = roster.stat().st_size
    roster.write_bytes(roster.read_bytes() + b"00000000 {}\n")
    (found,) = findings(small(tmp_path))
    assert (found.file, found.position) == (str(roster), size)
    assert "a line is not whole" in found.what


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_a_file_that_a_crash_left_empty_is_left_for_the_next_start(tmp_path: Path, folder: str) -> None:
    config = small(tmp_path)
    with opened(config) as store:
        store.append([draft(b"a", topic="T")])
    size = {"commitlog": config.segment_size}.get(folder, config.queue_file_bytes)
    empty = tmp_path / folder / f"{size:020d}"
    empty.touch()
    assert said(config) == []
    assert empty.exists()


def test_a_queue_that_the_roster_knows_and_nobody_finds_is_named(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a"), draft(b"b", topic="B")])
    for path in (tmp_path / "consumequeue" / "B" / "0").iterdir():
        path.unlink()
    (tmp_path / "consumequeue" / "B" / "0").rmdir()
    assert "consumequeue/B/0: it is missing, and was noted up to offset 1" in said(small(tmp_path))


def test_a_roster_that_speaks_of_more_log_than_there_is_is_named(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a")])
        store.append([draft(b"b" * 100)])
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
        log.write(bytes(1000))
    assert any("bolide.roster: T/0 is noted up to" in each for each in said(small(tmp_path)))


def test_bytes_of_log_that_are_passed_over_are_counted(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        places = store.append([draft(b"%d" % number) for number in range(3)]).physical_offsets
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(places[1])
        log.write(bytes(8))
    verification = Verification(small(tmp_path))
    assert any("passed over" in getattr(step, "what", "") for step in verification.run())
    assert verification.passed_over_size == places[2] - places[1]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def cut_wheel(root: Path) -> None:
    os.truncate(root / "timerwheel", FILE_SIZE - 32)


def remove_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def empty_wheel(root: Path) -> None:
    os.truncate(root / "timerwheel", 0)
    os.truncate(root / "timerwheel", FILE_SIZE)


def break_unit(root: Path) -> None:
    overwrite(root / "timerlog" / f"{0:020d}", 2 * UNIT_SIZE, bytes(UNIT_SIZE))


def mislead_unit(root: Path) -> None:
    overwrite(root / "timerlog" / f"{0:020d}", 2 * UNIT_SIZE + 28, (17).to_bytes(8, "big"))


def cut_log(root: Path) -> None:
    os.truncate(root / "timerlog" / f"{0:020d}", 100)


HARMS = [
    (cut_wheel, f"timerwheel: it has {FILE_SIZE - 32} bytes instead of {FILE_SIZE}"),
    (remove_wheel, "timerwheel: it is missing"),
    (empty_wheel, "timerwheel: 0 messages wait in the wheel, and 6 did"),
    (break_unit, "their chain is broken"),
    (mislead_unit, "leads to 17, where no record begins"),
    (cut_log, "a file of 100 bytes, and those of the timer's log have 8192"),
]


@pytest.mark.parametrize(("harm", "expected"), HARMS, ids=[harm.__name__ for harm, _ in HARMS])
def test_timer_files_that_do_not_agree_are_named(tmp_path: Path, harm: Callable[[Path], None], expected: str) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, VirtualClock(START_MS)) as late:
            for number in range(6):
                await late.delay(60, b"%d" % number, f"u{number}")
            await pass_s(2)
            configs.append(late.sending.store.config)

    configs: list[StoreConfig] = []
    run(scenario())
    (config,) = configs
    assert said(config) == []
    harm(config.root)
    assert any(expected in each for each in said(config)), said(config)
