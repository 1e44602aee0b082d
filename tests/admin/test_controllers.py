"""What an administrator asks of controllers, and the commands that stand on it."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from bolide.admin.admin import Admin
from bolide.cli import controllers
from bolide.errors import ClientError
from bolide.protocol.bodies.controller import Replica, ReplicaGroupState, ReplicaTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from tests.controller.nodes import BrokerPeer, running, trio
from tests.remoting.loops import both_loops, eventually


@both_loops
async def test_an_operator_sees_who_leads_and_who_is_in_sync_elects_and_cleans(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one, BrokerPeer().here() as two, Admin("h:1") as admin:
        at = f"127.0.0.1:1;{up.address}"
        await trio(up, one, two)
        assert (await admin.controller_metadata(at)).leader_address == up.address
        states = await admin.sync_state(at)
        assert [replica.broker_id for replica in states["g"].in_sync_replicas] == [1, 2]
        assert await admin.sync_state(at, ["nobody"]) == {}
        elected = await admin.elect_master(at, "g", 2)
        assert (elected.master_broker_id, elected.master_epoch) == (2, 2)
        await eventually(lambda: bool(one.notices))
        with pytest.raises(ClientError, match="still alive"):
            await admin.clean_broker(at, "g", [1])
        await admin.clean_broker(at, "g", [1], living=True)
        assert [replica.broker_id for replica in (await admin.sync_state(at))["g"].not_in_sync_replicas] == []
        await admin.set_controller_config(up.address, {"enableElectUncleanMaster": "true"})
        assert (await admin.controller_config(up.address))["enableElectUncleanMaster"] == "true"


@both_loops
async def test_the_living_are_kept_where_a_controller_does_not_look_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = [Replica(broker_id=1, broker_address="h:1", alive=True), Replica(broker_id=2, broker_address="h:2")]
    state = ReplicaGroupState(master_broker_id=1, in_sync_replicas=replicas)
    table = ReplicaTable(replicas_info_table={"g": state}).encode()
    cleaned = []

    async def as_apaches(_: str, command: Command) -> Command:
        if command.code == RequestCode.CLEAN_BROKER_DATA:
            cleaned.append(command.fields["brokerControllerIdsToClean"])
        return Command(0, body=table)

    async with Admin("h:1") as admin:
        monkeypatch.setattr(admin, "_ask_leader", as_apaches)
        for broker_ids in ([], [1], [2, 1]):
            with pytest.raises(ClientError, match="broker 1 of g is still alive"):
                await admin.clean_broker("h:2", "g", broker_ids)
        await admin.clean_broker("h:2", "g", [2])
        await admin.clean_broker("h:2", "g", [1], living=True)
    assert cleaned == ["2", "1"]


@both_loops
async def test_without_a_controller_the_sentence_names_the_command_that_starts_one(tmp_path: Path) -> None:
    async with Admin("h:1") as admin:
        with pytest.raises(ClientError, match="`bolide controller` starts one"):
            await admin.controller_metadata("127.0.0.1:1")
        with pytest.raises(ClientError, match="no controller is named"):
            await admin.controller_metadata(" ; ")


def test_commands_show_what_is_kept_and_change_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
            await trio(up, one, two)

            async def told(*words: str) -> str:
                words = (*words, "-a", up.address)
                done = await asyncio.to_thread(CliRunner().invoke, controllers.app, words)
                assert done.exit_code == 0, done.output
                return done.output

            shown = await told("status")
            assert [line.split()[:6] for line in shown.splitlines()[-2:]] == [
                ["g", "1", one.address, "master", "yes", "yes"],
                ["g", "2", two.address, "slave", "yes", "yes"],
            ]
            assert up.address in await told("leader")
            assert "is master of epoch 2" in await told("elect", "g", "2")
            assert "forgot 1" in await told("clean", "g", "1", "--living")
            assert "changed notifyBrokerRoleChanged" in await told("config", "notifyBrokerRoleChanged=false")
            assert "notifyBrokerRoleChanged" in await told("config", "-o", "json")

    asyncio.run(scenario())
