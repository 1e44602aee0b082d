"""What is left of the timer after a stop, a kill between any two steps, torn units, lost files and a foreign length."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.later.timer_files import TimerFiles
from bolide.model.queue import QueueKey
from bolide.store.store import Store
from bolide.store.timerlog import TimerLog
from bolide.store.timerwheel import FILE_SIZE, TimerWheel
from bolide.testing import VirtualClock, run
from tests.broker.timing import START_MS, Killed, Timed, pass_s, timing
from tests.grids import grid

UNIT_SIZE = 52


async def killed(root: Path, clock: VirtualClock, act: Any, **settings: Any) -> None:
    """Let a broker work and kill it."""
    with pytest.raises(BaseExceptionGroup) as caught:
        await _until_killed(root, clock, act, **settings)
    assert caught.group_contains(Killed)


async def _until_killed(root: Path, clock: VirtualClock, act: Any, **settings: Any) -> None:
    async with timing(root, clock, **settings) as late:
        await act(late)
        raise Killed


def timercheck(root: Path) -> Path:
    return next(root.rglob("timercheck"))


def overwrite(root: Path, pattern: str, position: int, content: bytes) -> None:
    path = next(root.rglob(pattern))
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def resize(root: Path, size: int) -> None:
    os.truncate(next(root.rglob("timerwheel")), size)


def unlink(path: Path) -> None:
    path.unlink()


@pytest.mark.feature("X02")
def test_after_a_stop_everything_comes_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        for number in range(5):
            async with timing(tmp_path, clock) as late:
                await late.delay(3 + number, b"%d" % number)
                await pass_s(0.7)
        async with timing(tmp_path, clock) as late:
            await pass_s(20)
            assert sorted(late.bodies) == [b"0", b"1", b"2", b"3", b"4"]
            assert late.timers.files.counts.table["Orders"].count == 0
            assert late.timers.files.waiting_count == 0

    run(scenario())


@pytest.mark.parametrize("is_killed", [False, True])
def test_after_a_start_the_waiting_are_counted(tmp_path: Path, is_killed: bool) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)

        async def act(late: Timed) -> None:
            for number in range(5):
                await late.delay(2 + number, b"%d" % number, f"u{number}")
            await pass_s(3.5)
            assert late.timers.files.waiting_count == 3

        if is_killed:
            await killed(tmp_path, clock, act)
        else:
            async with timing(tmp_path, clock) as late:
                await act(late)
        async with timing(tmp_path, clock) as late:
            await pass_s(0.1)
            assert late.timers.files.waiting_count == 3
            await pass_s(9)
            assert late.timers.files.waiting_count == 0

    run(scenario())


@pytest.mark.parametrize("died_after_s", [0.0, 0.2, 1.5, 3.2, 3.9, 4.05, 5.2])
def test_a_kill_at_any_time_loses_nothing_and_repeats_a_second_at_most(tmp_path: Path, died_after_s: float) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)

        async def act(late: Timed) -> None:
            for number in range(40):
                await late.delay(3 + number % 3, b"%d" % number, f"u{number}")
            await pass_s(died_after_s)

        await killed(tmp_path, clock, act)
        async with timing(tmp_path, clock, mappedFileSizeCommitLog="65536") as late:
            await pass_s(10)
            counts: Counter[bytes] = Counter()
            store, key = late.sending.store, QueueKey("Orders", 0)
            for offset in range(store.max_offset(key)):
                (view, *_) = store.read(key, offset, 1).views
                counts[bytes(view[88 : 88 + view[87]])] += 1
            assert set(counts) == {b"%d" % number for number in range(40)}
            assert max(counts.values()) <= 2

    run(scenario())


STEPS = [
    (TimerLog, "append"),
    (TimerWheel, "reserve"),
    (TimerWheel, "apply"),
    (TimerFiles, "save"),
    (Store, "append_encoded"),
]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("room", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_kill_between_any_two_steps_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: type, step: str, is_after: bool
) -> None:
    """From the second call of a step on nothing happens any more."""
    real = getattr(room, step)
    calls = 0

    def dying(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < 2:
            return real(self, *arguments)
        if is_after and calls == 2:
            real(self, *arguments)
        raise Killed

    async def dying_later(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < 2:
            return await real(self, *arguments)
        if is_after and calls == 2:
            await real(self, *arguments)
        raise Killed

    async def act(late: Timed) -> None:
        for number in range(6):
            await late.delay(2 + number % 2, b"%d" % number, f"u{number}")
            await pass_s(0.1)
        await pass_s(9)

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        with monkeypatch.context() as patch:
            patch.setattr(room, step, dying_later if asyncio.iscoroutinefunction(real) else dying)
            await killed(tmp_path, clock, act)
        sent = calls and 6
        async with timing(tmp_path, clock) as late:
            await pass_s(10)
            waited = {each.body for each in late.come("rmq_sys_wheel_timer")}
            assert set(late.bodies) == waited
            assert sent

    run(scenario())


@pytest.mark.parametrize("whole", range(0, UNIT_SIZE, 4))
def test_a_torn_unit_is_cut_off_and_its_message_filed_again(tmp_path: Path, whole: int) -> None:
    """A unit may lie in two sectors of a disk, and a power cut may take the second."""

    async def scenario() -> None:
        clock = VirtualClock(START_MS)

        async def act(late: Timed) -> None:
            await late.delay(5, b"0", "u0")
            await pass_s(1.5)  # known to the check
            for number in range(1, 4):
                await late.delay(5, b"%d" % number, f"u{number}")
            await pass_s(0.1)  # filed, and not known to the check

        await killed(tmp_path, clock, act)
        assert timercheck(tmp_path).exists()
        overwrite(tmp_path, "timerlog/0*", 3 * UNIT_SIZE + whole, bytes(UNIT_SIZE - whole))
        async with timing(tmp_path, clock) as late:
            await pass_s(8)
            assert sorted(late.bodies) == [b"0", b"1", b"2", b"3"]

    run(scenario())


@pytest.mark.parametrize(
    "content", [bytes(20), b"\0\0\0\x34" + (-7).to_bytes(8, "big", signed=True)], ids=["no unit", "no way"]
)
def test_a_chain_that_is_damaged_has_everything_filed_again_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(1, b"before", "b")
            for number in range(5):
                await late.delay(5, b"%d" % number, f"u{number}")
            await late.delay(9, b"after", "a")
            await pass_s(3)
            overwrite(tmp_path, "timerlog/0*", 3 * UNIT_SIZE, content)
            await pass_s(8)
            assert late.bodies == [b"before", b"0", b"1", b"2", b"3", b"4", b"after"]
            assert late.timers.files.waiting_count == 0

    run(scenario())
    (line,) = [record.message for record in caplog.records if "filed again" in record.message]
    assert line.endswith(f"no unit at {3 * UNIT_SIZE} of the timer's log")


_WHEEL, _LOG = "timerwheel", "timerlog/0*"
_SLOT_AT = (START_MS // 1000 + 20) % (FILE_SIZE // 32) * 32  # in its step most of the messages below are due


def _flip(root: Path, pattern: str, position: int) -> None:
    path = next(root.rglob(pattern))
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


_HARMS: dict[str, Callable[[Path], object]] = {
    "wheel missing": lambda root: unlink(next(root.rglob(_WHEEL))),
    "wheel empty": lambda root: resize(root, 0),
    "wheel half": lambda root: resize(root, FILE_SIZE // 2),
    "wheel doubled": lambda root: resize(root, 2 * FILE_SIZE),
    "wheel all zeros": lambda root: next(root.rglob(_WHEEL)).write_bytes(bytes(FILE_SIZE)),
    "wheel zero page": lambda root: overwrite(root, _WHEEL, _SLOT_AT // 4096 * 4096, bytes(8192)),
    "wheel garbage page": lambda root: overwrite(root, _WHEEL, _SLOT_AT // 4096 * 4096, b"noise" * 1600),
    **{f"wheel bit {at}": partial(_flip, pattern=_WHEEL, position=_SLOT_AT + at) for at in (7, 15, 23, 27)},
    "log missing": lambda root: unlink(next(root.rglob(_LOG))),
    "log empty": lambda root: os.truncate(next(root.rglob(_LOG)), 0),
    "log half": lambda root: os.truncate(next(root.rglob(_LOG)), 1000),
    "log zero page": lambda root: overwrite(root, _LOG, UNIT_SIZE, bytes(200)),
    "log garbage page": lambda root: overwrite(root, _LOG, UNIT_SIZE, b"noise" * 40),
    **{f"log bit {at}": partial(_flip, pattern=_LOG, position=3 * UNIT_SIZE + at) for at in (3, 11, 15, 22, 27)},
}


@grid(2, harm=_HARMS, is_killed=[False, True])
def test_damaged_timer_files_cost_no_message_and_bring_none_again(tmp_path: Path, harm: str, is_killed: bool) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)

        async def act(late: Timed) -> None:
            await late.delay(2, b"past", "p")
            await pass_s(5)
            for number in range(5):
                await late.delay(15, b"%d" % number, f"u{number}")
            await late.delay(30, b"after", "a")
            await pass_s(3)
            assert late.bodies == [b"past"]

        if is_killed:
            await killed(tmp_path, clock, act)
        else:
            async with timing(tmp_path, clock) as late:
                await act(late)
        _HARMS[harm](tmp_path)
        async with timing(tmp_path, clock) as late:
            await pass_s(1)
        async with timing(tmp_path, clock) as late:
            await pass_s(40)
            assert late.bodies == [b"past", b"0", b"1", b"2", b"3", b"4", b"after"]
            assert late.timers.files.waiting_count == 0

    run(scenario())


def test_units_that_were_lost_behind_a_durable_wheel_are_filed_again(tmp_path: Path) -> None:
    """A power cut: slots reached the disk, units did not."""

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(5, b"0", "u0")
            await pass_s(0.1)
        check = timercheck(tmp_path).read_bytes()
        async with timing(tmp_path, clock) as late:
            for number in range(1, 4):
                await late.delay(5 + number % 2, b"%d" % number, f"u{number}")
            await pass_s(0.5)
        timercheck(tmp_path).write_bytes(check)
        overwrite(tmp_path, "timerlog/0*", 2 * UNIT_SIZE, bytes(2 * UNIT_SIZE))
        async with timing(tmp_path, clock) as late:
            await pass_s(8)
            assert sorted(late.bodies) == [b"0", b"1", b"2", b"3"]

    run(scenario())


def test_a_copy_that_a_power_cut_took_is_made_again_though_the_unit_of_a_later_message_is_there(tmp_path: Path) -> None:
    """What is due when it is filed has no unit, and its copy reaches the disk with the next sync of the log."""

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        saved: list[bytes] = []
        copies: list[int] = []

        async def nothing() -> bool:
            return False

        async def file_late(late: Timed) -> None:
            await pass_s(2)
            saved.append(timercheck(tmp_path).read_bytes())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(late.timers, "_file_some", nothing)  # the machine has much else to do
                await late.delay(1, b"due", "u0")
                await late.delay(60, b"waits", "u1")
                await pass_s(3)
            late.timers.wake()
            await pass_s(0.01)
            copies.extend(message.physical_offset for message in late.come())

        await killed(tmp_path, clock, file_late)
        timercheck(tmp_path).write_bytes(saved[0])
        overwrite(tmp_path, "commitlog/0*", copies[0], bytes(400))
        async with timing(tmp_path, clock) as late:
            await pass_s(2)
            assert late.bodies == [b"due"]
            await pass_s(60)
            assert late.bodies == [b"due", b"waits"]

    run(scenario())


def test_without_the_check_the_topic_is_filed_anew_and_the_past_comes_again(tmp_path: Path) -> None:
    """Gotcha 21. What still waits comes once, where Java files it a second time beside the first."""

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(2, b"past")
            await late.delay(30, b"waiting")
            await pass_s(5)
            assert late.bodies == [b"past"]
        unlink(timercheck(tmp_path))
        async with timing(tmp_path, clock) as late:
            await pass_s(40)
            assert late.bodies == [b"past", b"past", b"waiting"]

    run(scenario())


def test_an_empty_wheel_is_sized_and_filled_from_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(5, b"a")
            await pass_s(0.5)
        resize(tmp_path, 0)
        unlink(timercheck(tmp_path))
        async with timing(tmp_path, clock) as late:
            await pass_s(6)
            assert late.bodies == [b"a"]

    run(scenario())


def test_files_whose_messages_are_gone_from_the_log_go_too_but_for_the_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            for number in range(500):
                await late.delay(5, b"x", f"u{number}")
            await pass_s(0.5)
            timerlog = late.timers.files.log
            assert len(timerlog.segments.bases) == 4
            record = late.come("rmq_sys_wheel_timer")
            assert record
            assert timerlog.remove_below(0) == 0
            second = timerlog.message_at(timerlog.segments.bases[1])
            assert second is not None
            assert timerlog.remove_below(second[0]) == 1
            assert timerlog.remove_below(1 << 40) == 2

    run(scenario())


def test_a_broker_that_stood_still_for_more_than_a_week_delivers_what_waited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(5, b"a")
            await late.delay(2 * 86_400, b"b", key="u2")
            await pass_s(1)
        clock.set_wall(START_MS + 400 * 86_400_000)
        async with timing(tmp_path, clock) as late:
            await late.delay(5, b"c", key="u3")
            await pass_s(6)
            assert late.bodies == [b"a", b"b", b"c"]

    run(scenario())
    assert "stood still for more than a week" in caplog.text


def test_a_clock_that_jumps_by_more_than_a_week_has_nothing_filed_over_what_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(86_400, b"a")
            await pass_s(1)
            clock.set_wall(START_MS + 13 * 86_400_000)
            await late.delay(2 * 86_400, b"b", key="u2")  # fourteen days behind the first: in its slot
            await pass_s(2)
            assert late.bodies == [b"a"]
            clock.set_wall(START_MS + 15 * 86_400_000)
            await pass_s(3)
            assert late.bodies == [b"a", b"b"]

    run(scenario())


def test_the_checks_bytes_are_rocketmqs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(5)
            await pass_s(2.5)
            check = late.timers.files.check
            content = timercheck(tmp_path).read_bytes()
            assert len(content) == 4096
            fields = [int.from_bytes(content[at : at + 8], "big") for at in range(0, 56, 8)]
            assert fields[1:4] == [UNIT_SIZE, 1, 1]
            assert START_MS <= fields[0] <= late.timers.read_ms
            assert check.encoded()[8:32] == content[8:32]

    run(scenario())
