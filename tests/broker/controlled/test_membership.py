"""A copy of a replica's directory beside the replica that was only not heard: no number stands for two brokers."""

import shutil
from pathlib import Path

import pytest

from bolide.broker.controlled.membership import Membership
from bolide.errors import NoAnswer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.controller import CleanBrokerRequest
from tests.broker.controlled.replicas import Replicas, replicas
from tests.broker.replication.replicas import LIMIT_S, NAME, Life, log_of
from tests.remoting.loops import eventually, virtual_time


def cut_from_controller(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    """What a frozen broker looks like from there; its connection to the master stays, as that of a thawed one does."""
    own = life.address
    beat, look = Membership.beat, Membership.look

    async def silent_beat(self: Membership, *given: object) -> None:
        if self.address != own:
            await beat(self, *given)  # type: ignore[arg-type]

    async def silent_look(self: Membership) -> object:
        if self.address == own:
            raise NoAnswer("cut off")
        return await look(self)

    monkeypatch.setattr(Membership, "beat", silent_beat)
    monkeypatch.setattr(Membership, "look", silent_look)


async def in_sync_lives(group: Replicas) -> list[Life]:
    """The brokers that the controller may elect: those at the addresses of its set."""
    state = await group.controller.state(NAME)
    electable = {one.broker_address for one in state.in_sync_replicas}
    return [life for life in group.brokers.lives if life.address in electable]


@pytest.mark.feature("X05")
@virtual_time
async def test_what_is_acknowledged_is_with_every_broker_that_may_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        with monkeypatch.context() as cut:
            cut_from_controller(cut, group.lives[3])
            liveness = group.controller.controller.liveness
            await eventually(lambda: not liveness.health(NAME, [3]).is_alive(3), LIMIT_S)
            shutil.copytree(tmp_path / "replica-3", tmp_path / "replica-9")
            # The copy registers, and looks for the log at a wrong place first.
            copy = await group.start(9, haMasterAddress="127.0.0.1:1")
            await eventually(lambda: not copy.broker.state.role.now.is_fenced, LIMIT_S)
            assert (await group.send(master, b"acknowledged")).code == ResponseCode.SUCCESS
            for life in await in_sync_lives(group):
                assert log_of(life.store) == log_of(master.store)
        # Heard again, the original takes another number, and all of them are replicas.
        await group.in_sync(1, 2, 4, 5)
        numbers = [(tmp_path / name / "brokerIdentity").read_text() for name in ("replica-9", "replica-3")]
        assert numbers == [f"C1#{NAME}#4", f"C1#{NAME}#5"]
        assert (await group.send(master, b"and on")).code == ResponseCode.SUCCESS
        assert log_of(group.lives[3].store) == log_of(master.store)


@virtual_time
async def test_a_broker_that_ended_and_moved_keeps_its_number(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, _):
        await group.stop(3)
        await group.in_sync(1, 2)
        await group.start(3)
        await group.in_sync(1, 2, 3)


@virtual_time
async def test_brokers_that_moved_keep_their_numbers_at_a_controller_that_saw_none_of_them_end(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, _):
        before = {number: life.address for number, life in group.lives.items()}
        for number in before:
            await group.stop(number)
        liveness = group.controller.controller.liveness
        liveness.drop(NAME, before)
        liveness.be_patient()  # as one that has just begun: it takes them all for alive
        for number in before:
            await group.start(number)
        await group.in_sync(1, 2, 3)
        assert not set(before.values()) & {life.address for life in group.lives.values()}


@virtual_time
async def test_a_copy_has_no_number_at_a_controller_that_saw_nobody_end(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, _):
        await group.stop(3)
        await group.in_sync(1, 2)
        liveness = group.controller.controller.liveness
        liveness.drop(NAME, [3])
        shutil.copytree(tmp_path / "replica-3", tmp_path / "replica-9")
        group.lives[4] = await group.start(9)
        await group.in_sync(1, 2, 4)
        assert (tmp_path / "replica-9" / "brokerIdentity").read_text() == f"C1#{NAME}#4"


@virtual_time
async def test_a_copy_beside_a_replica_that_is_heard_waits_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path) as (group, _):
        shutil.copytree(tmp_path / "replica-3", tmp_path / "replica-9")
        copy = await group.start(9)
        await eventually(lambda: "no role yet" in caplog.text, LIMIT_S)
        assert f"replica 3 of {NAME} runs at {group.lives[3].address}" in caplog.text
        assert copy.broker.state.role.now.is_fenced
        assert (tmp_path / "replica-9" / "brokerIdentity").read_text() == f"C1#{NAME}#3"
        await group.in_sync(1, 2, 3)


@virtual_time
async def test_a_number_that_was_cleaned_is_replaced_when_its_broker_returns(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, _):
        await group.stop(3)
        await group.in_sync(1, 2)
        header = CleanBrokerRequest(cluster_name="C1", broker_name=NAME, broker_ids="3")
        answer = await group.controller.ask(RequestCode.CLEAN_BROKER_DATA, header.encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await group.start(3)
        await group.in_sync(1, 2, 4)
