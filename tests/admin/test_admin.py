"""An administrator asks a real cluster and changes it, in both faces."""

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

import bolide
from bolide import aio
from bolide.errors import ClientError
from bolide.testing import Cluster, cluster
from tests.cli.processes import wait_for
from tests.client.scenes import OLDEST, collecting, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


@pytest.fixture
def admin(rocket: Cluster) -> Iterator[bolide.Admin]:
    with bolide.Admin(rocket.namesrv) as opened:
        yield opened


def test_the_brokers_tell_of_themselves_and_one_that_is_silent_is_listed() -> None:
    with cluster(brokers=2) as rocket, bolide.Admin(rocket.namesrv, timeout_s=2) as admin:
        rows = admin.brokers()
        assert [(row.name, row.address, row.is_reachable) for row in rows] == [
            (node.name, node.address, True) for node in rocket.brokers
        ]
        assert all(row.version for row in rows)
        assert set(admin.clusters().broker_addr_table) == {"broker-0", "broker-1"}


def test_a_topic_is_made_on_every_broker_shown_and_deleted(rocket: Cluster, admin: bolide.Admin) -> None:
    assert sorted(admin.create_topic("Made", 3)) == sorted(node.address for node in rocket.brokers)
    wait_for(lambda: "Made" in admin.topics())
    assert [(row.queue.broker_name, row.queue.queue_id, row.max_offset) for row in admin.topic_queues("Made")] == [
        (f"broker-{broker}", queue, 0) for broker in range(2) for queue in range(3)
    ]
    with bolide.Producer("pg", rocket.namesrv) as producer:
        for _ in range(6):
            producer.send("Made", b"x")
    assert sum(row.max_offset for row in admin.topic_queues("Made")) == 6
    assert len(admin.create_topic("Made", 3)) == 2
    with pytest.raises(
        ClientError, match="exists with 3 queues on broker-0, 3 queues on broker-1; nothing was changed"
    ):
        admin.create_topic("Made", 5)
    assert {row.write_queue_nums for row in admin.route("Made").queue_datas} == {3}
    assert {str(shape) for shape in admin.set_topic("Made", queue_count=5).values()} == {"5 queues"}
    wait_for(lambda: {row.write_queue_nums for row in admin.route("Made").queue_datas} == {5})
    admin.delete_topic("Made")
    assert "Made" not in admin.topics()
    with pytest.raises(ClientError, match="topic Made does not exist"):
        admin.route("Made")


def test_only_topics_of_users_are_listed_unless_all_are_asked_for(rocket: Cluster, admin: bolide.Admin) -> None:
    rocket.create_topic("Mine")
    own = admin.topics()
    assert "Mine" in own
    assert not [name for name in own if name.startswith(("%", "TBW102", "broker-", "DefaultCluster", "SCHEDULE"))]
    assert "TBW102" in admin.topics(with_system=True)


def test_a_name_that_cannot_be_is_refused_before_anybody_is_asked(admin: bolide.Admin) -> None:
    with pytest.raises(ClientError, match="topic"):
        admin.create_topic("no blanks")
    with pytest.raises(ClientError, match="no id that a broker gave"):
        admin.message_at("nonsense")


@pytest.mark.feature("F085", "F093", "F092")
def test_messages_are_found_by_each_key_by_id_and_by_place(rocket: Cluster, admin: bolide.Admin) -> None:
    rocket.create_topic("Find")
    with bolide.Producer("pg", rocket.namesrv) as producer:
        receipt = producer.send("Find", b"sought", keys=["order-1", "customer-2"])
        producer.send("Find", b"x" * 5000, keys="large")
    for key in ("order-1", "customer-2"):
        wait_for(lambda key=key: [m.body for m in admin.messages_by_key("Find", key)] == [b"sought"])  # type: ignore[misc]
    assert [message.body for message in admin.messages_by_id("Find", receipt.msg_id)] == [b"sought"]
    assert admin.message_at(receipt.offset_id).body == b"sought"
    assert [len(message.body) for message in admin.messages_by_key("Find", "large")] == [5000]
    assert admin.messages_by_key("Find", "order-1", end_ms=1) == []
    assert admin.messages_by_id("Find", "0" * 32) == []


@both_loops
async def test_a_group_is_listed_with_its_members_and_how_far_it_is_behind() -> None:
    async with (
        stage(queue_count=2) as rocket,
        aio.Admin(rocket.namesrv) as admin,
        aio.Producer("pg", rocket.namesrv) as producer,
    ):
        await send_all(producer, "T", numbers(0, 10))
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) == 10)
            await member.consumer.commit()
            (row,) = await admin.group_rows()
            assert (row.group, row.member_count, row.behind) == ("g", 1, 0)
            found = await admin.members("g")
            assert found is not None
            assert [one.client_id for one in found.connection_set] == [member.consumer.subscriber.client_id]
        await send_all(producer, "T", numbers(10, 14))
        (row,) = await admin.group_rows()
        assert (row.member_count, row.behind) == (0, 4)
        assert await admin.members("g") is None
        await admin.delete_group("g")
        assert await admin.groups() == []


@pytest.mark.feature("F237")
def test_a_group_that_is_not_running_begins_where_it_was_moved_to(rocket: Cluster, admin: bolide.Admin) -> None:
    rocket.create_topic("Moved", 1)
    with bolide.Producer("pg", rocket.namesrv) as producer:
        for number in range(5):
            producer.send("Moved", b"%d" % number)
    for _ in range(2):
        with bolide.Consumer("moving", "Moved", rocket.namesrv, start_from=OLDEST) as consumer:
            taken = [message for _, message in zip(range(5), consumer, strict=False)]
        assert len(taken) == 5
        admin.reset_group("moving", "Moved", 0)


def test_an_administrator_that_is_not_open_says_how_to_open_it(rocket: Cluster) -> None:
    with pytest.raises(ClientError, match="is not open"):
        bolide.Admin(rocket.namesrv).topics()


def test_a_cluster_without_brokers_says_what_starts_one() -> None:
    with (
        cluster(brokers=0) as rocket,
        bolide.Admin(rocket.namesrv) as admin,
        pytest.raises(ClientError, match="`bolide up` or `bolide broker"),
    ):
        admin.create_topic("T")


def test_a_broker_that_does_not_answer_fails_a_list_or_is_named_beside_it() -> None:
    with cluster(brokers=2, processes=True) as rocket:
        rocket.create_topic("Halved", 1)
        os.kill(rocket.brokers[1].pid, signal.SIGSTOP)
        with bolide.Admin(rocket.namesrv, timeout_s=0.5) as strict, pytest.raises(ClientError):
            strict.topic_queues("Halved")
        with bolide.Admin(rocket.namesrv, timeout_s=2, partial=True) as admin:  # within that the others answer
            assert [row.queue.broker_name for row in admin.topic_queues("Halved")] == ["broker-0"]
            assert list(admin.silent) == ["broker-1"]
            assert "does not answer" in admin.silent["broker-1"].why
        os.kill(rocket.brokers[1].pid, signal.SIGCONT)


def test_a_broker_that_left_is_named_as_long_as_the_name_server_remembers_it() -> None:
    with cluster(brokers=2) as rocket:
        rocket.create_topic("Halved", 1)
        began_s = time.monotonic()
        rocket.brokers[1].stop()
        with bolide.Admin(rocket.namesrv, partial=True) as admin:
            assert [row.queue.broker_name for row in admin.topic_queues("Halved")] == ["broker-0"]
            told = re.search(r"unregistered (\d+) s ago", str(admin.silent["broker-1"]))
            assert told is not None
            assert int(told[1]) <= time.monotonic() - began_s
        rocket.brokers[0].stop()
        with bolide.Admin(rocket.namesrv) as admin:
            with pytest.raises(
                ClientError, match=r"topic Halved is on no broker that runs: broker broker-1 .* start it"
            ):
                admin.topic_queues("Halved")
            with pytest.raises(ClientError, match=r"no broker is registered at \S+; broker broker-1"):
                admin.groups()
