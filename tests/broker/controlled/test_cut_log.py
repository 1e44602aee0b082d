"""How far groups, delay levels and the timer had come in a log whose end was cut off: nobody passes messages over.

Three brokers in virtual time. The third gets no more of the log, leads next, and the log of the second is cut: the
second had been told how far everything was. It leads before anybody tells it anything else.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.broker.replication.tables import SlaveTables
from bolide.ha.leading import SlaveLink
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from tests.broker.controlled.replicas import Replicas, replicas
from tests.broker.replication.replicas import LIMIT_S, Life, bodies, equal, pop
from tests.remoting.loops import eventually, virtual_time

T0 = QueueKey("T", 0)
# Elected, but senders hear of success before any replica has a message: RocketMQ's own settings.
ELECTED = {"bolideReplication": "", "enableControllerMode": "true", "allAckInSyncStateSet": "false"}


async def _for_ever(*_: object) -> bool:
    await asyncio.Event().wait()
    return False


@asynccontextmanager
async def third_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Nothing more is copied to the third while the block lasts."""
    push = SlaveLink.push

    def push_to_others(link: SlaveLink) -> None:
        if link.slave_id != 3:
            push(link)

    with monkeypatch.context() as cut:
        cut.setattr(SlaveLink, "push", push_to_others)
        yield


async def lead(group: Replicas, number: int) -> Life:
    """Have another one lead, and the others copy from it."""
    await group.in_sync(1, 2, 3)
    await group.promote(number)
    life = group.lives[number]
    await eventually(lambda: life.broker.state.role.is_leading, LIMIT_S)
    return life


async def told_tables(life: Life) -> bool:
    """Have a slave ask its master for everything now; whether it got all of it."""
    return await life.broker.slave_tables.sync(life.broker.state.role.now)


@virtual_time
async def test_what_a_group_popped_comes_again_where_the_checkpoint_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        second = group.lives[2]
        assert (await group.send(master, b"popped and never acknowledged")).code == ResponseCode.SUCCESS
        await equal(master, second)
        await equal(master, group.lives[3])
        async with third_is_cut_off(monkeypatch):
            popping = asyncio.create_task(pop(group.brokers, master))
            await eventually(lambda: master.broker.state.offsets.get("G", "T", 0) == 1, LIMIT_S)
            await eventually(lambda: second.store.log_end == master.store.log_end, LIMIT_S)
            await asyncio.sleep(2)  # virtual: the table has another version by now
            with monkeypatch.context() as later:
                await told_tables(second)
                later.setattr(SlaveTables, "sync", _for_ever)
                third = await lead(group, 3)
        popping.cancel()
        await group.in_sync(1, 2, 3)
        await equal(third, second)
        await lead(group, 2)
        answer = await pop(group.brokers, second)
        assert answer.code == ResponseCode.SUCCESS
        assert b"popped and never acknowledged" in answer.body


@virtual_time
async def test_a_master_does_not_tell_how_far_groups_are_before_all_who_may_lead_have_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        master.broker.state.offsets.put("G", "T", 0, 1)

        async def told() -> Command:
            question = Command(RequestCode.GET_ALL_CONSUMER_OFFSET)
            return await group.brokers.client.request(master.address, question, 20)

        assert b"T@G" in (await told()).body
        async with third_is_cut_off(monkeypatch):
            sending = asyncio.create_task(group.send(master, b"not with the third"))
            await eventually(lambda: master.store.next_offset(T0) == 1, LIMIT_S)
            answer = await told()
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "replicas" in (answer.remark or "")
        sending.cancel()


@virtual_time
async def test_messages_in_the_place_of_those_that_were_cut_off_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group was beyond the cut, and the log has grown to there again when the second leads."""
    async with replicas(tmp_path) as (group, master):
        second = group.lives[2]
        assert (await group.send(master, b"kept")).code == ResponseCode.SUCCESS
        await equal(master, group.lives[3])
        async with third_is_cut_off(monkeypatch):
            sending = [asyncio.create_task(group.send(master, body)) for body in (b"cut 1", b"cut 2")]
            await eventually(lambda: second.store.next_offset(T0) == 3, LIMIT_S)
            second.broker.state.offsets.put("G", "T", 0, 3)  # as a master of Apache's tells it
            monkeypatch.setattr(SlaveTables, "sync", _for_ever)
            third = await lead(group, 3)
        await asyncio.gather(*sending)
        await group.in_sync(1, 2, 3)
        assert second.broker.state.offsets.get("G", "T", 0) == 1
        assert "offsets beyond the end of their queue" in caplog.text
        for body in (b"new 1", b"new 2"):
            assert (await group.send(third, body)).code == ResponseCode.SUCCESS
        await equal(third, second)
        await lead(group, 2)
        assert second.broker.state.offsets.get("G", "T", 0) == 1
        assert [record.count(b"new") for record in bodies(second.store, T0)] == [0, 1, 1]


@pytest.mark.parametrize("how", [{names.DELAY: "2"}, {names.TIMER_DELAY_S: "5"}], ids=["delay level", "timer"])
def test_what_was_delivered_and_cut_off_is_delivered_by_one_that_was_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    """Even where senders wait for nobody, progress waits for all who may lead."""

    @virtual_time
    async def play() -> None:
        async with replicas(tmp_path, 3, **ELECTED) as (group, master):
            second, third = group.lives[2], group.lives[3]
            assert (await group.brokers.send(master, b"late", 0, **how)).code == ResponseCode.SUCCESS
            await equal(master, third)
            async with third_is_cut_off(monkeypatch):
                await eventually(lambda: master.store.max_offset(T0) == 1, LIMIT_S)
                await asyncio.sleep(3)  # virtual: written and told, if that is ever
                await told_tables(second)
                monkeypatch.setattr(SlaveTables, "sync", _for_ever)
                # The third leads, and delivers nothing.
                third.broker.delays.deliver_due = _for_ever  # type: ignore[method-assign]
                assert third.broker.timers is not None
                third.broker.timers.file_all = _for_ever  # type: ignore[method-assign,assignment]
                await lead(group, 3)
                await eventually(lambda: second.store.max_offset(T0) == 0, LIMIT_S)
                await lead(group, 2)
            await eventually(lambda: second.store.max_offset(T0) == 1, LIMIT_S)

    play()
