"""Whom brokers are asked about, with which requests, and what their answers mean; also those of Apache's."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from bolide.errors import ConnectError
from bolide.protocol.command import Command
from bolide.proxy import messages as m
from bolide.proxy.back import Answer, Back
from bolide.proxy.clients import GrpcClient
from bolide.proxy.rights import Rights
from bolide.proxy.statuses import Denied
from tests.remoting.loops import virtual_time

NO = Command(16, remark="User:ada has no permission to access Topic:T from 10.0.0.9, no matched policies.")
OLD_NO = Command(1, remark="org.apache.rocketmq.acl.common.AclException: No default permission for topic:T, x.Y")
AWAY = ConnectError("nobody answers")
CLOSED = Command(16, remark="recall failed, operation is forbidden")


class Told:
    """Brokers that answer by name and code, and what they were asked."""

    def __init__(self, answers: Mapping[str, Mapping[int, Answer]]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, int]] = []

    def route(self, topic: str) -> None:
        return None

    def brokers(self) -> list[str]:
        return list(self._answers)

    def ask(self, broker: str, command: Command, limit_s: float, done: Callable[[Answer], None]) -> Callable[[], None]:
        self.asked.append((broker, command.code))
        done(self._answers[broker].get(command.code, NO))
        return lambda: None


def named(told: Told, sign: Callable[[Command], None] | None = lambda command: None) -> GrpcClient:
    client = GrpcClient("c", "10.0.0.9:1", 0)
    client.sign, client.line = sign, cast(Any, told)
    return client


def codes(*of: int) -> Iterable[tuple[str, int]]:
    return [("a", code) for code in of]


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ({30: Command(0)}, codes(30)),  # ours: who may send, read or look
        ({12: Command(22, remark="can not find message")}, codes(30, 12)),  # Apache's: who may read
        ({370: Command(1, remark="recall handle is invalid")}, codes(30, 12, 370)),  # Apache's: who may send
        ({370: CLOSED}, codes(30, 12, 370)),  # no is not always about us
    ],
)
@virtual_time
async def test_any_right_on_a_topic_is_enough_to_know_where_it_is(
    answers: dict[int, Answer], asked: Iterable[tuple[str, int]]
) -> None:
    told = Told({"a": answers})
    checking = Rights(cast(Back, told)).check(named(told), "T", None)
    assert checking is not None
    await checking
    assert told.asked == asked


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"a": {}}, m.Code.FORBIDDEN),
        ({"a": {30: OLD_NO, 12: OLD_NO, 370: OLD_NO, 38: OLD_NO}}, m.Code.FORBIDDEN),
        ({"a": {30: AWAY, 38: AWAY}, "b": {}}, m.Code.FORBIDDEN),
        ({"a": {30: AWAY, 38: AWAY}, "b": {30: AWAY, 38: AWAY}}, m.Code.PROXY_TIMEOUT),
    ],
)
@pytest.mark.parametrize("about", [("T", None), (None, "g")])
@virtual_time
async def test_who_is_refused_or_cannot_be_asked_about_is_told_nothing(
    answers: dict[str, dict[int, Answer]], code: int, about: tuple[str | None, str | None]
) -> None:
    told = Told(answers)
    checking = Rights(cast(Back, told)).check(named(told), *about)
    assert checking is not None
    with pytest.raises(Denied) as denied:
        await checking
    assert denied.value.code == code


@virtual_time
async def test_the_next_broker_is_asked_where_one_is_away() -> None:
    told = Told({"a": {38: AWAY}, "b": {38: Command(0)}})
    checking = Rights(cast(Back, told)).check(named(told), None, "g")
    assert checking is not None
    await checking
    assert told.asked == [("a", 38), ("b", 38)]


def test_who_needs_no_name_is_not_asked_about() -> None:
    told = Told({"a": {}})
    rights = Rights(cast(Back, told))
    assert rights.check(None, "T", "g") is None
    assert rights.check(named(told, None), "T", "g") is None
    assert told.asked == []
