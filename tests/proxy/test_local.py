"""The broker in this process: what comes in one turn of the loop goes together, and who is alone does not wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol.headers.poptext import parse_handle
from bolide.proxy.back import Line
from bolide.proxy.sending import send_command
from bolide.remoting.loop_turn import ALONE_TURNS, AT_ONCE_READS
from bolide.testing.loop import VirtualClock
from tests.proxy.serving import BROKER, serving
from tests.remoting.loops import eventually, virtual_time

HANDLE = parse_handle(f"0 1700000000000 30000 0 0 {BROKER} 0 0")


def post(line: Line, done: Callable[[Any], None]) -> None:
    line.send(BROKER, send_command("Normal", 0, 1_700_000_000_000, "", b"hello"), 3.0, done)


def acknowledge(line: Line, done: Callable[[Any], None]) -> None:
    line.ack("readers", "Normal", HANDLE, 3.0, done)


async def come(answers: list[Any], count: int) -> None:
    await eventually(lambda: len(answers) == count)


@virtual_time
@pytest.mark.parametrize("ask", [post, acknowledge])
async def test_who_is_alone_is_answered_at_once_and_gathered_again_with_others(
    tmp_path: Path, ask: Callable[[Line, Callable[[Any], None]], None]
) -> None:
    async with serving(tmp_path, VirtualClock()) as served:
        served.add_group("readers")
        line, answers = served.proxy.state.back.line("one", "127.0.0.1:1", lambda name, command: None), list[Any]()
        for number in range(ALONE_TURNS):
            ask(line, answers.append)
            assert len(answers) == number
            await come(answers, number + 1)
        for number in range(AT_ONCE_READS):
            ask(line, answers.append)
            assert len(answers) == ALONE_TURNS + number + 1
        answers.clear()
        ask(line, answers.append)
        ask(line, answers.append)
        assert answers == []
        await come(answers, 2)
        line.close()
