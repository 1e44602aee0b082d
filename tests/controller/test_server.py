"""A controller over real sockets: brokers register, are elected, die, and return."""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bolide.protocol.bodies.controller import ElectedMaster, SyncStateSet
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.controller import NotifyRoleChangedRequest
from tests.controller.nodes import BrokerPeer, running, trio
from tests.remoting.loops import both_loops, eventually


@pytest.mark.feature("X05")
@both_loops
async def test_a_broker_gets_an_id_registers_and_is_elected(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
        assert await one.apply(up.address) == 1
        answer = await one.register(up.address)
        assert answer.fields == {"clusterName": "c", "brokerName": "g"}
        assert answer.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'
        await one.beat(up.address)
        answer = await one.elect(up.address)
        assert answer.code == 0
        assert answer.fields == {
            "masterBrokerId": "1",
            "masterAddress": one.address,
            "masterEpoch": "1",
            "syncStateSetEpoch": "1",
        }
        assert b'"brokerAddrs":{"1":"' + one.address.encode() in answer.body
        answer = await two.join(up.address)
        assert answer.code == 0
        assert answer.fields["masterBrokerId"] == "1"
        assert SyncStateSet.decode(answer.body) == SyncStateSet(sync_state_set=[1], sync_state_set_epoch=1)
        answer = await two.elect(up.address)
        assert answer.code == 2011
        assert answer.remark == "The old master 1 is still alive, not need to elect new master for broker g"
        assert ElectedMaster.decode(answer.body).sync_state_set == [1]
        answer = await one.alter(up.address, [1, 2], 1, 1)
        assert (answer.code, answer.fields) == (0, {"newSyncStateSetEpoch": "2"})
        assert answer.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
        answer = await two.ask(up.address, 1004)
        assert answer.fields == {"masterBrokerId": "1", "masterAddress": one.address, "masterEpoch": "1"}


@pytest.mark.feature("X05")
@both_loops
async def test_a_killed_master_is_replaced_at_once_by_the_longest_log_and_all_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as up, AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(BrokerPeer().here()) for _ in range(3)]
        one, two, three = brokers
        await trio(up, *brokers)
        three.end = 70
        await three.beat(up.address)
        one.hang_up()
        await eventually(lambda: bool(two.notices and three.notices), limit_s=1)
        notice = NotifyRoleChangedRequest.decode(two.notices[-1].fields)
        assert (notice.master_broker_id, notice.master_address, notice.master_epoch) == (3, three.address, 2)
        assert SyncStateSet.decode(two.notices[-1].body).sync_state_set == [3]
        assert two.notices[-1].flag & ONEWAY_FLAG
        state = await up.state()
        assert [replica.broker_id for replica in state.not_in_sync_replicas] == [1, 2]
        assert [replica.alive for replica in state.not_in_sync_replicas] == [False, True]
        answer = await one.join(up.address)
        assert answer.fields["masterBrokerId"] == "3"


@both_loops
async def test_a_copy_of_a_replica_is_refused_while_it_lives_and_not_heard_in_its_place(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as up, AsyncExitStack() as stack:
        one, two, copy = [await stack.enter_async_context(BrokerPeer().here()) for _ in range(3)]
        await trio(up, one, two)
        copy.member = two.member
        answer = await copy.register(up.address)
        assert answer.code == 2005
        assert f"replica 2 of g runs at {two.address}, and {copy.address} has a copy" in (answer.remark or "")
        await copy.beat(up.address)
        two.hang_up()
        changes = up.controller.changes
        await eventually(lambda: not changes.health("g", changes.known["g"]).is_alive(2), limit_s=1)
        assert (await copy.register(up.address)).code == 0  # it has moved


@both_loops
async def test_a_master_that_returns_unnoticed_is_not_told_that_it_still_is(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
        await trio(up, one, two)
        answer = await one.register(up.address)
        assert answer.fields["masterBrokerId"] == "2"
        assert answer.fields["masterEpoch"] == "2"


@both_loops
async def test_all_dead_the_first_of_the_old_set_to_return_leads(tmp_path: Path) -> None:
    async with running(tmp_path) as up, AsyncExitStack() as stack:
        one, two, three = [await stack.enter_async_context(BrokerPeer().here()) for _ in range(3)]
        await trio(up, one, two)
        await three.join(up.address)
        for broker in (three, two, one):
            broker.hang_up()
        await eventually(lambda: up.controller.changes.known["g"].master_id is None)
        epoch = (await up.state()).master_epoch
        answer = await three.join(up.address)
        assert (answer.code, "masterBrokerId" in answer.fields) == (2012, False)
        answer = await two.join(up.address)
        assert (answer.code, answer.fields["masterBrokerId"]) == (0, "2")
        assert (await up.state()).master_epoch == epoch + 1
        assert (await three.elect(up.address)).code == 2011


@both_loops
async def test_what_is_kept_outlives_the_process_and_nobody_is_declared_dead_at_once(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(BrokerPeer().here()) for _ in range(2)]
        async with running(tmp_path) as up:
            await trio(up, one, two)
        async with running(tmp_path) as up:
            answer = await two.elect(up.address)
            assert (answer.code, answer.fields["masterBrokerId"]) == (2011, "1")
            await two.beat(up.address)
            answer = await one.register(up.address)
            assert answer.fields["masterBrokerId"] == "2"
            assert answer.fields["masterEpoch"] == "2"


@both_loops
async def test_every_controller_tells_who_leads_and_shows_its_settings(tmp_path: Path) -> None:
    async with running(tmp_path, controllerDLegerGroup="group1") as up:
        answer = await up.ask(1005)
        assert answer.fields == {
            "group": "group1",
            "controllerLeaderId": "n0",
            "controllerLeaderAddress": up.address,
            "isLeader": "true",
            "peers": f"n0:{up.address};",
        }
        answer = await up.ask(1010)
        assert b"\nenableElectUncleanMaster=false\n" in answer.body
        assert (await up.ask(1009, body=b"enableElectUncleanMaster=true")).code == 0
        assert up.controller.settings.now.is_unclean_allowed
        assert (await up.ask(1009, body=b"configStorePath=/x")).code == 16
        assert (await up.ask(1009, body=b"listenPort=1")).code == 16
        assert (await up.ask(4711)).code == 3
    assert "enableElectUncleanMaster=true" in (tmp_path / "controller.properties").read_text()


@both_loops
async def test_a_heartbeat_without_an_id_is_refused_and_a_strangers_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one:
        fields = {"clusterName": "c", "brokerName": "g", "brokerAddr": "h:1"}
        assert (await up.ask(904, fields)).code == 2005
        for number in range(50):
            assert (await up.ask(904, fields | {"brokerName": f"s{number}", "brokerId": str(2**63 - 1)})).code == 0
        assert up.controller.liveness._lives == {}
        await one.join(up.address)
        fields |= {"brokerId": "1", "epoch": str(2**31 - 1), "maxOffset": str(2**63 - 1), "clusterName": "other"}
        await up.ask(904, fields)
        assert up.controller.liveness.health("g", [1]).reports[1].end == 0


@both_loops
async def test_a_broker_is_cleaned_when_it_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
        await trio(up, one, two)
        answer = await one.ask(up.address, 1011, brokerControllerIdsToClean="2")
        assert (answer.code, answer.remark) == (2009, "Broker [g,  2] is still alive, clean up failure")
        assert (await one.ask(up.address, 1011, brokerControllerIdsToClean="")).code == 2009
        assert (await one.ask(up.address, 1011, brokerControllerIdsToClean="two")).code == 2009
        two.hang_up()
        await eventually(lambda: not up.controller.liveness.health("g", [2]).reports)
        assert (await one.ask(up.address, 1011, brokerControllerIdsToClean="2;")).code == 0
        state = await up.state()
        assert [replica.broker_id for replica in state.in_sync_replicas] == [1]
        assert state.not_in_sync_replicas == []
        assert (await two.register(up.address)).code == 2010
        assert (await one.ask(up.address, 1011, isCleanLivingBroker=True)).code == 0
        assert (await one.ask(up.address, 1004)).code == 2008


LARGE = b'{"syncStateSet":[1' + b",1" * 100_000 + b"]}"
HOSTILE = [b"", b"{", b"[]", b"\xff", LARGE, b'{"syncStateSet":[99999999999999999999]}']


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
@both_loops
async def test_a_set_of_garbage_is_refused_and_changes_nothing(tmp_path: Path, body: bytes) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one:
        await one.join(up.address)
        before = await up.state()
        answer = await one.ask(up.address, 1001, body, masterBrokerId=1, masterEpoch=1)
        assert answer.code != 0
        assert await up.state() == before


def files_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", ".x", "x" * 300, "a\nb"])
@both_loops
async def test_no_name_is_a_way_out_of_the_directory(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as up:
        fields = {"clusterName": "c", "brokerName": name, "appliedBrokerId": "1", "registerCheckCode": "h:1;1"}
        assert (await up.ask(1013, fields)).code in (2005, 29)
        for code, more in ((1012, {}), (1004, {}), (1002, {"brokerId": "1"}), (1011, {"isCleanLivingBroker": "true"})):
            await up.ask(code, {"brokerName": name, **more})
    assert files_below(tmp_path) == ["lock"]


@both_loops
async def test_names_without_end_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, bolideBrokerNamesMax="20") as up:
        codes = []
        for number in range(25):
            fields = {
                "clusterName": "c",
                "brokerName": f"n{number}",
                "appliedBrokerId": "1",
                "registerCheckCode": "h:1;1",
            }
            answer = await up.ask(1013, fields)
            codes.append(answer.code)
        assert codes == [0] * 20 + [2005] * 5
        assert "bolideBrokerNamesMax" in (answer.remark or "")
    assert len(files_below(tmp_path)) == 21


@both_loops
async def test_a_file_is_json_that_a_person_can_read(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one:
        await one.join(up.address)
        kept = json.loads((tmp_path / "controller" / "g.json").read_text())
        assert kept["members"]["1"]["address"] == one.address
        assert (kept["master_id"], kept["master_epoch"], kept["sync_set"]) == (1, 1, [1])


@both_loops
async def test_numbers_beyond_their_width_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as up, BrokerPeer().here() as one:
        await one.join(up.address)
        for code, fields in (
            (1013, {"appliedBrokerId": str(2**63), "registerCheckCode": "h:1;1"}),
            (1003, {"brokerId": str(2**63), "brokerAddress": "h:1"}),
            (1001, {"masterBrokerId": "1", "masterEpoch": str(2**31)}),
            (904, {"brokerId": "1", "brokerAddr": "h:1", "epoch": str(2**31)}),
            (1013, {"appliedBrokerId": str(2**63 - 1), "registerCheckCode": "h:1;1"}),
            (1002, {"brokerId": str(-(2**63)), "designateElect": "true"}),
        ):
            answer = await up.client.request(
                up.address, Command(code, fields={"clusterName": "c", "brokerName": "g", **fields}), 5
            )
            assert answer.code != 0, (code, fields)
        assert (await up.state()).master_epoch == 1
