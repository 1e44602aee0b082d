"""Memory that was freed goes back to the system after a burst, and not over and over."""

import asyncio
import gc
import weakref

import pytest

from bolide.remoting import slack as slack_module
from bolide.remoting.slack import Slack, let_go, own_size
from tests.remoting.loops import eventually, own_loop, virtual_time

PIECE = 100_000


def test_what_was_freed_goes_back_to_the_system() -> None:
    held = [bytes(PIECE) for _ in range(800)]
    for number in range(0, len(held), 2):
        held[number] = b""  # every other one: the library has nothing whole to give back by itself
    before = own_size()
    let_go()
    assert own_size() < before - 10_000_000 or before < 20_000_000
    del held
    gc.collect()


class Memory:
    """What the process holds, of which `kept` is not to be had back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = self.kept_size = 100_000_000
        self.trims: list[int] = []
        is_ours = own_loop()
        monkeypatch.setattr(slack_module, "own_size", lambda: self.size if is_ours() else own_size())
        monkeypatch.setattr(slack_module, "let_go", self._let_go)

    def _let_go(self) -> None:
        self.trims.append(self.size)
        self.size = self.kept_size


def visit(slack: Slack) -> None:
    slack.came()
    slack.left()


async def _looked(slack: Slack) -> None:
    await eventually(lambda: slack._timer is None)
    await asyncio.sleep(1)  # virtual: the thread has long ended


@virtual_time
async def test_after_a_burst_memory_is_given_back_and_after_a_quiet_visit_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    visit(slack)
    await _looked(slack)
    assert not memory.trims
    memory.size = 200_000_000
    visit(slack)
    await _looked(slack)
    assert memory.trims == [200_000_000]
    slack.stop()


@virtual_time
async def test_what_is_freed_after_the_looks_at_others_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000  # somebody holds it while others leave
    visit(slack)
    await asyncio.sleep(slack_module.LOOK_AFTER_S + slack_module.LAST_LOOK_AFTER_S / 2)  # virtual
    memory.kept_size = 100_000_000
    visit(slack)
    await _looked(slack)
    assert memory.size == 100_000_000
    slack.stop()


@virtual_time
async def test_letting_go_of_nothing_is_tried_more_and_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000
    for _ in range(200):
        visit(slack)
        await asyncio.sleep(5)  # virtual
    assert 5 <= len(memory.trims) <= 13
    slack.stop()


@virtual_time
async def test_what_was_freed_while_letting_go_did_not_help_is_given_back_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000
    for _ in range(10):
        visit(slack)
        await asyncio.sleep(1)  # virtual
    memory.kept_size = 100_000_000
    await _looked(slack)
    assert memory.size == 100_000_000
    assert slack.let_go_count < 10


@virtual_time
async def test_what_is_held_for_some_seconds_after_the_last_has_left_is_given_back_though_nobody_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000  # timers that were set meanwhile keep it
    visit(slack)
    await asyncio.sleep(slack_module.LOOK_AFTER_S + slack_module.LAST_LOOK_AFTER_S + 0.5)  # virtual
    memory.kept_size = 100_000_000
    await asyncio.sleep(10)  # virtual
    assert memory.size == 100_000_000


@virtual_time
async def test_what_is_really_held_is_left_alone_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000
    visit(slack)
    await asyncio.sleep(3600)  # virtual
    assert 2 < len(memory.trims) < 8
    assert slack._timer is None


@virtual_time
async def test_what_a_crowd_held_is_given_back_when_it_has_gone_however_long_it_stayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, slack = Memory(monkeypatch), Slack([])
    memory.size = memory.kept_size = 200_000_000
    for _ in range(500):
        slack.came()
    for _ in range(60):
        visit(slack)
        await asyncio.sleep(1)  # virtual
    memory.kept_size = 100_000_000
    for _ in range(500):
        slack.left()
    await asyncio.sleep(slack_module.LOOK_AFTER_S + slack_module.LAST_LOOK_AFTER_S + 0.5)  # virtual
    assert memory.size == 100_000_000
    assert len(memory.trims) < 10
    slack.stop()


@virtual_time
async def test_no_buffer_of_those_who_left_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    Memory(monkeypatch)
    spare = [memoryview(bytearray(10)) for _ in range(64)]
    slack = Slack(spare)
    visit(slack)
    await _looked(slack)
    assert not spare


def test_what_is_held_in_a_cycle_is_let_go_of() -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    knot = Knot()
    seen = weakref.ref(knot)
    gc.collect()  # old enough for the youngest generations to pass it over
    del knot
    let_go()
    assert seen() is None
