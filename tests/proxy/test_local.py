"""The broker in this process: what comes in one turn of the loop goes together, and who is alone does not wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pop import PopMessageRequest
from bolide.protocol.headers.poptext import parse_handle
from bolide.proxy.back import Line, Pop
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


def popped_with(**changes: Any) -> Pop:
    told: dict[str, Any] = {"consumer_group": "readers", "topic": "Normal", "queue_id": -1, "message_count_max": 1}
    told |= {"invisible_ms": 30_000, "poll_ms": 0, "born_ms": 0, "init_mode": 0, "expression": "*"}
    return Pop(PopMessageRequest(**told | changes), language=0)


@virtual_time
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ResponseCode.POLLING_TIMEOUT),
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"message_count_max": 33}, ResponseCode.INVALID_PARAMETER),
        ({"attempt_id": "a\nb"}, ResponseCode.INVALID_PARAMETER),
        ({"expression_type": "SQL92", "expression": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_pop_is_answered_alike_whether_its_header_was_text_or_not(
    tmp_path: Path, changes: dict[str, Any], code: ResponseCode
) -> None:
    async with serving(tmp_path, VirtualClock()) as served:
        served.add_group("readers")
        line, answers = served.proxy.state.back.line("one", "127.0.0.1:1", lambda name, command: None), list[Any]()
        line.pop(BROKER, popped_with(**changes), 3.0, answers.append)
        line.ask(BROKER, popped_with(**changes).command(), 3.0, answers.append)
        await come(answers, 2)
        assert [(answer.code, answer.remark) for answer in answers] == [(code, answers[0].remark)] * 2
        line.close()


@virtual_time
async def test_a_pop_that_waits_can_be_given_up_and_goes_with_its_line(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served:
        served.add_group("readers")
        line, answers = served.proxy.state.back.line("one", "127.0.0.1:1", lambda name, command: None), list[Any]()
        parked = served.broker.pop.parked
        give_up = line.pop(BROKER, popped_with(poll_ms=20_000), 25.0, answers.append)
        line.pop(BROKER, popped_with(poll_ms=20_000), 25.0, answers.append)
        assert (parked.count, answers) == (2, [])
        give_up()
        assert (parked.count, answers) == (1, [])
        line.close()
        assert parked.count == 0
        assert len(answers) == 1  # who did not give up hears that the line is gone
