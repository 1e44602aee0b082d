"""Replicas inside a test: who leads, and killing, freezing and promoting them."""

import pytest

from bolide import Producer
from bolide.errors import ClientError
from bolide.testing import Cluster, NotFrozen, NotStarted, cluster
from tests.cli.processes import wait_for
from tests.client.scenes import on_uvloop
from tests.e2e.up import bodies, send

BOTH = pytest.mark.parametrize("processes", [False, True], ids=["inside", "processes"])


def says_no(rocket: Cluster) -> list[str]:
    """Those that refuse a message."""
    return [node.name for node in rocket.brokers if send(node.address, "T", b"?").code != 0]


@BOTH
@pytest.mark.feature("X05")
def test_when_the_block_begins_one_of_three_leads_and_all_are_in_sync(processes: bool) -> None:
    with cluster(replicas=3, processes=processes) as rocket:
        assert [node.name for node in rocket.brokers] == ["broker-0-1", "broker-0-2", "broker-0-3"]
        assert len(rocket.controllers) == 1
        master = rocket.master()
        rocket.create_topic("T", 2)
        assert set(says_no(rocket)) == {node.name for node in rocket.brokers} - {master.name}
        assert send(master.address, "T", b"x").code == 0  # acknowledged by a second one: the group is safe


@BOTH
def test_another_one_leads_when_the_master_is_killed_and_has_what_was_acknowledged(processes: bool) -> None:
    with cluster(replicas=3, processes=processes) as rocket, Producer("p", rocket.namesrv) as producer:
        rocket.create_topic("T", 1)
        sent = [b"%d" % number for number in range(50)]
        for body in sent:
            assert producer.send("T", body).is_ok
        old = rocket.master()
        old.kill()
        new = rocket.master()
        assert new.name != old.name
        after = producer.send("T", b"after", timeout_s=15)
        assert after.is_ok
        old.start()
        # A topic that was made in the moment of the kill may come back with as many queues as one usually has.
        wait_for(lambda: bodies(new.address, "T")[: len(sent)] == sent)
        wait_for(lambda: bodies(new.address, "T", after.queue.queue_id)[-1:] == [b"after"])


@BOTH
def test_a_replica_that_is_promoted_leads_when_the_call_returns(processes: bool) -> None:
    with cluster(replicas=2, processes=processes) as rocket:
        (other,) = [node for node in rocket.brokers if node.name != rocket.master().name]
        rocket.promote(other)
        assert rocket.master().name == other.name
        rocket.create_topic("T", 1)
        assert send(other.address, "T", b"x").code == 0


def test_a_master_that_is_frozen_is_replaced_and_follows_when_it_is_thawed() -> None:
    with cluster(replicas=3, processes=True) as rocket:
        old = rocket.master()
        old.freeze()
        new = rocket.master()
        assert new.name != old.name
        old.thaw()
        rocket.promote(old)  # waits until it is in sync again
        assert rocket.master().name == old.name


@BOTH
def test_a_master_that_is_cut_off_acknowledges_nothing_and_follows_when_the_network_is_whole(processes: bool) -> None:
    with cluster(replicas=3, processes=processes) as rocket, Producer("p", rocket.namesrv) as producer:
        rocket.create_topic("T", 1)
        assert producer.send("T", b"before").is_ok
        old = rocket.master()
        rocket.cut(old)
        assert old.is_running
        with pytest.raises((OSError, AssertionError), match=r"reset|closed"):
            send(old.address, "T", b"unheard")
        new = rocket.master()
        assert new.name != old.name
        assert producer.send("T", b"after", timeout_s=15).is_ok
        rocket.heal()
        rocket.promote(old)  # waits until it is in sync again
        assert bodies(old.address, "T")[:2] == [b"before", b"after"]


def test_a_slave_that_is_cut_off_from_its_master_alone_stays_behind_until_it_is_healed() -> None:
    with cluster(replicas=2, controller=False) as rocket:
        master, slave = rocket.brokers
        rocket.create_topic("T", 1)
        send(master.address, "T", b"one")
        wait_for(lambda: bodies(slave.address, "T") == [b"one"])
        rocket.cut(slave, master)
        send(master.address, "T", b"two")
        assert bodies(slave.address, "T") == [b"one"]  # clients reach both
        slave.restart()
        assert bodies(slave.address, "T") == [b"one"]  # a cut outlives a process
        rocket.heal()
        wait_for(lambda: bodies(slave.address, "T") == [b"one", b"two"])


def test_a_cut_between_a_controller_and_a_master_hands_the_lead_over() -> None:
    with cluster(replicas=3) as rocket:
        old = rocket.master()
        rocket.cut(rocket.controllers[0], old)
        wait_for(lambda: rocket.master().name != old.name)
        rocket.heal()
        rocket.promote(old)


def test_a_frozen_node_can_be_stopped() -> None:
    with cluster(processes=True) as rocket:
        (broker,) = rocket.brokers
        broker.freeze()
        broker.restart()
        assert send(broker.address, "T", b"x").code == 0


def test_what_lives_in_this_process_cannot_be_frozen() -> None:
    with cluster() as rocket:
        with pytest.raises(NotFrozen, match=r"cluster\(processes=True\)"):
            rocket.brokers[0].freeze()
        rocket.brokers[0].thaw()
        rocket.brokers[0].stop()
        with pytest.raises(NotStarted, match="not running"):
            rocket.brokers[0].freeze()


@BOTH
def test_without_a_controller_the_first_leads_and_the_others_are_its_slaves(processes: bool) -> None:
    with cluster(replicas=2, controller=False, processes=processes) as rocket:
        master, slave = rocket.brokers
        assert rocket.master().name == master.name
        assert rocket.controllers == []
        rocket.create_topic("T", 1)
        assert says_no(rocket) == [slave.name]
        assert send(master.address, "T", b"x").code == 0
        with pytest.raises(ClientError, match="settings say who leads"):
            rocket.promote(slave)


@on_uvloop
async def test_with_asyncio_two_groups_have_a_master_each() -> None:
    async with cluster(brokers=2, replicas=2) as rocket:
        await rocket.create_topic("T", 1)
        masters = [await rocket.master(name) for name in ("broker-0", "broker-1")]
        assert len({node.address for node in masters}) == 2
        with pytest.raises(ClientError, match="There are: broker-0, broker-1"):
            await rocket.master()
        await masters[0].kill()
        assert await rocket.master("broker-0") is not masters[0]
