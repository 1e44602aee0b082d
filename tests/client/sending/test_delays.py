"""Messages that come later: what is sent for it, when they come, and what cannot be meant."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bolide import aio
from bolide.client.options import When
from bolide.client.sending.delays import properties_of
from bolide.errors import BolideError, ClientError
from bolide.model.message import Message
from tests.client.scenes import client_clock, collecting, stage
from tests.remoting.loops import virtual_time


async def pass_s(seconds: float) -> None:
    await asyncio.sleep(seconds)  # virtual


@pytest.mark.parametrize(
    ("when", "properties"),
    [
        ({}, {}),
        ({"delay": None, "deliver_at": None}, {}),
        ({"delay": 0}, {}),
        ({"delay": 30}, {"TIMER_DELAY_SEC": "30"}),
        ({"delay": 1.5}, {"TIMER_DELAY_MS": "1500"}),
        ({"delay": 0.0001}, {"TIMER_DELAY_MS": "1"}),
        ({"delay": timedelta(minutes=2)}, {"TIMER_DELAY_SEC": "120"}),
        ({"deliver_at": 1_700_000_000.25}, {"TIMER_DELIVER_MS": "1700000000250"}),
        ({"deliver_at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}, {"TIMER_DELIVER_MS": "1700000000000"}),
        ({"delay_level": 3}, {"DELAY": "3"}),
        ({"delay_level": 0}, {}),
    ],
)
def test_a_time_becomes_the_property_that_brokers_know(when: When, properties: dict[str, str]) -> None:
    assert properties_of(when) == properties


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"delay": -1}, "nothing can come before now: give 0 or more seconds"),
        ({"delay": "30"}, "delay '30'; it is a number of seconds"),
        ({"delay": float("nan")}, "it is a number of seconds"),
        ({"deliver_at": True}, "it is a number of seconds"),
        ({"delay_level": -1}, "1 to 18"),
        ({"delay_level": 2.5}, "1 to 18"),
        ({"delay": 3, "delay_level": 1}, "delay and delay_level were given; one of them says when"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_sent(when: Any, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        properties_of(when)


@pytest.mark.feature("F088", "F083")
@virtual_time
async def test_a_level_is_awaited_by_the_consumer_and_the_message_is_whole() -> None:
    clock = client_clock()
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=clock) as producer,
        collecting("g", "T", rocket.namesrv) as found,
    ):
        receipt = await producer.send("T", b"later", tags="a", keys="k", properties={"own": "x"}, delay_level=3)
        await producer.send("T", b"now")
        future = await producer.submit("T", b"soon", delay_level=1)
        assert (await future).recall_handle is None
        await pass_s(9.5)
        assert found.bodies == [b"now", b"soon"]
        await pass_s(1)
        assert found.bodies == [b"now", b"soon", b"later"]
        (_, _, later) = found.taken
        assert (later.msg_id, later.tags, later.keys, later.attempt) == (receipt.msg_id, "a", ["k"], 1)
        assert later.properties["own"] == "x"


@virtual_time
async def test_a_batch_takes_no_message_that_is_to_wait() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        for properties in ({"DELAY": "1"}, {"TIMER_DELAY_SEC": "3"}):
            with pytest.raises(BolideError, match="a batch with a delayed message"):
                await producer.send_batch([Message("T", b"a"), Message("T", b"b", properties=properties)])


@virtual_time
async def test_a_handle_that_is_none_is_refused_before_anything_is_sent() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        with pytest.raises(ClientError, match="'nonsense' is no recall handle"):
            await producer.recall("nonsense")


@pytest.mark.feature("X02", "X03")
@virtual_time
async def test_a_timed_message_comes_to_the_second_and_a_recalled_one_never() -> None:
    clock = client_clock()
    async with (
        stage(queue_count=1, settings={"recallMessageEnable": "true"}) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=clock) as producer,
        collecting("g", "T", rocket.namesrv) as found,
    ):
        gone = await producer.send("T", b"gone", delay=20)
        await producer.send("T", b"later", delay=timedelta(seconds=20))
        await producer.send("T", b"soon", deliver_at=clock.now_ms() / 1000 + 5)
        assert gone.recall_handle is not None
        await pass_s(4)
        assert found.bodies == []
        assert await producer.recall(gone.recall_handle) == gone.msg_id
        await pass_s(3)
        assert found.bodies == [b"soon"]
        await pass_s(16)
        assert found.bodies == [b"soon", b"later"]
        with pytest.raises(ClientError, match="timestamp invalid") as refused:
            await producer.recall(gone.recall_handle)
        assert refused.value.code == 604


@pytest.mark.feature("X03")
@virtual_time
async def test_a_recall_that_is_not_allowed_says_which_setting_allows_it() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        receipt = await producer.send("T", b"x", delay=20)
        with pytest.raises(ClientError, match="recallMessageEnable=true"):
            await producer.recall(str(receipt.recall_handle))
