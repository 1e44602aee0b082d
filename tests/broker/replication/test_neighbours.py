"""A start that would be one too many is refused, and a master that was away hears what its slaves were told."""

import asyncio
import socket
from pathlib import Path

import pytest

from bolide.broker.config import read_config
from bolide.broker.replication.neighbours import check_directory
from bolide.errors import ConfigError
from bolide.protocol.bodies import GroupConfig
from bolide.remoting.ports import BROKER_NEIGHBOURS, HOST, free_port
from bolide.testing.nodes import alone
from tests.broker.replication.replicas import Group, equal, group
from tests.remoting.loops import eventually, virtual_time


async def refusal(brokers: Group, directory: str, **settings: str) -> ConfigError:
    with pytest.raises((ConfigError, ExceptionGroup)) as refused:
        await brokers.start(directory, **settings)
    problem = alone(refused.value)
    assert isinstance(problem, ConfigError), problem
    return problem


@virtual_time
async def test_a_second_master_of_a_name_is_refused_and_one_that_died_may_come_back(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        problem = await refusal(brokers, "other")
        assert problem.key == "brokerName"
        assert master.address in problem.why
        await master.stop()
        await brokers.master()


@pytest.mark.feature("F138")
@virtual_time
async def test_each_replica_has_its_own_id_and_all_are_in_one_cluster(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        await brokers.master()
        await brokers.slave("one", 1)
        assert (await refusal(brokers, "two", brokerRole="SLAVE", brokerId="1")).key == "brokerId"
        problem = await refusal(brokers, "three", brokerRole="SLAVE", brokerId="3", brokerClusterName="C2")
        assert (problem.key, "C1" in problem.why) == ("brokerClusterName", True)
        await brokers.slave("two", 2)


@virtual_time
async def test_a_port_for_slaves_that_is_taken_is_named(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        taken = str(master.broker.replication.port)
        problem = await refusal(brokers, "other", brokerName="b", haListenPort=taken)
        assert (problem.key, str(problem.value)) == ("haListenPort", taken)


@virtual_time
async def test_the_port_of_the_broker_is_taken_and_named_before_that_for_slaves(tmp_path: Path) -> None:
    port = free_port(*BROKER_NEIGHBOURS)
    with socket.create_server((HOST, port)), socket.create_server((HOST, port + 1)):
        async with group(tmp_path) as brokers:
            problem = await refusal(brokers, "a", listenPort=str(port))
    assert (problem.key, problem.value) == ("listenPort", port)


@virtual_time
async def test_a_master_without_slaves_lives_without_the_port_beside_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port(*BROKER_NEIGHBOURS)
    with socket.create_server((HOST, port + 1)):
        async with group(tmp_path) as brokers:
            master = await brokers.master(listenPort=str(port))
            assert (await brokers.send(master, b"x")).code == 0
            assert master.broker.following.own_ha_address == ""
    (warning,) = [record.getMessage() for record in caplog.records if "no port for slaves" in record.getMessage()]
    assert f"{HOST}:{port + 1}" in warning
    assert "haListenPort" in warning


@pytest.mark.parametrize(
    "settings",
    [
        {"brokerRole": "SYNC_MASTER"},
        {"brokerRole": "SLAVE", "brokerId": "1"},
        {"enableControllerMode": "true", "controllerAddr": "127.0.0.1:1"},
    ],
    ids=["SYNC_MASTER", "SLAVE", "controlled"],
)
def test_who_needs_the_port_beside_its_own_does_not_start_without_it(tmp_path: Path, settings: dict[str, str]) -> None:
    @virtual_time
    async def play() -> None:
        port = free_port(*BROKER_NEIGHBOURS)
        with socket.create_server((HOST, port + 1)):
            async with group(tmp_path) as brokers:
                problem = await refusal(brokers, "a", listenPort=str(port), **settings)
        assert (problem.key, problem.value) == ("haListenPort", port + 1)

    play()


def test_the_directory_of_another_broker_is_not_touched(tmp_path: Path) -> None:
    config = read_config({"brokerName": "a", "storePathRootDir": str(tmp_path)})
    check_directory(config)
    config.directory.mkdir()
    path = config.directory / "topics.json"
    path.write_text('{"topicConfigTable":{"rmq_sys_SYNC_BROKER_MEMBER_b":{"perm":1}}}', "utf-8")
    with pytest.raises(ConfigError, match="of broker 'b'"):
        check_directory(config)
    check_directory(read_config({"brokerName": "b", "storePathRootDir": str(tmp_path)}))


@virtual_time
async def test_what_groups_committed_to_a_slave_is_known_to_the_master_that_returns(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        for number in range(10):
            assert (await brokers.send(master, b"%d" % number)).code == 0
        master.broker.state.groups.update(GroupConfig(group_name="G"))
        master.broker.state.offsets.put("G", "T", 0, 2)
        master.broker.state.offsets.put("H", "T", 0, 7)
        slave = await brokers.slave()
        await equal(master, slave)
        await eventually(lambda: slave.broker.state.offsets.get("G", "T", 0) == 2, 30)
        await master.stop()
        await asyncio.sleep(1)  # virtual
        slave.broker.state.offsets.put("G", "T", 0, 6)
        slave.broker.state.offsets.put("G", "T", 1, 99)
        await slave.broker.state.offsets.kept()
        again = await brokers.master()
        offsets = again.broker.state.offsets
        assert (offsets.get("G", "T", 0), offsets.get("H", "T", 0)) == (6, 7)
        assert offsets.get("G", "T", 1) == 0, "never beyond the end of a queue"


@virtual_time
async def test_a_master_that_was_killed_before_it_wrote_a_table_knows_what_was_committed_to_its_slave(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        assert (await brokers.send(master, b"x")).code == 0
        slave = await brokers.slave()
        await equal(master, slave)
        await master.stop()
        for path in (tmp_path / "master").rglob("consumerOffset.json*"):
            path.unlink()
        slave.broker.state.offsets.put("G", "T", 0, 1)
        await slave.broker.state.offsets.kept()
        await asyncio.sleep(1)  # virtual: it is younger than what the slave wrote
        again = await brokers.master()
        assert again.broker.state.offsets.get("G", "T", 0) == 1


@virtual_time
async def test_a_reset_of_the_master_is_not_undone_by_what_a_slave_copied_before(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        for number in range(10):
            assert (await brokers.send(master, b"%d" % number)).code == 0
        master.broker.state.offsets.put("G", "T", 0, 8)
        slave = await brokers.slave()
        await equal(master, slave)
        await eventually(lambda: slave.broker.state.offsets.get("G", "T", 0) == 8, 30)
        master.broker.state.offsets.put("G", "T", 0, 1)
        await master.stop()
        again = await brokers.master()
        assert again.broker.state.offsets.get("G", "T", 0) == 1
