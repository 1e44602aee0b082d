"""Memory that was freed goes back to the system after a burst, and not over and over."""

import asyncio
import gc

import pytest

from bolide.remoting import slack as slack_module
from bolide.remoting.slack import Slack, let_go, own_size
from tests.remoting.loops import both_loops, eventually

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


@both_loops
async def test_after_a_burst_memory_is_given_back_and_after_a_quiet_visit_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slack_module, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(slack_module, "LAST_LOOK_AFTER_S", 0.0)
    sizes = {"now": 100_000_000}
    calls: list[int] = []
    monkeypatch.setattr(slack_module, "own_size", lambda: sizes["now"])

    def trim() -> None:
        calls.append(sizes["now"])
        sizes["now"] = 101_000_000

    monkeypatch.setattr(slack_module, "let_go", trim)
    slack = Slack()
    slack.left()
    await eventually(lambda: slack._timer is None)
    assert not calls
    sizes["now"] = 200_000_000
    slack.left()
    await eventually(lambda: slack._timer is None and slack.let_go_count == 1)
    assert calls == [200_000_000]
    await asyncio.sleep(0)
    slack.stop()
