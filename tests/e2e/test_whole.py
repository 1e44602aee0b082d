"""The whole house: name servers, brokers, producers and consumers together, by our own client."""

import select
import socket
from pathlib import Path

import pytest

import bolide
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.address import split_address
from bolide.testing import cluster

WAIT_S = 60.0
OLDEST = bolide.StartFrom.oldest()


def read(namesrv: str, topic: str, group: str, count: int) -> list[bytes]:
    """The bodies of the next messages of a group; fewer when no more come in time."""
    bodies: list[bytes] = []
    with bolide.Consumer(group, topic, namesrv, start_from=OLDEST) as consumer:
        while len(bodies) < count and (received := consumer.receive(count - len(bodies), WAIT_S)):
            for message in received:
                bodies.append(message.body)
                message.ack()
    return bodies


@pytest.mark.feature("F009", "F007", "F141")
def test_two_of_each_work_together() -> None:
    with cluster(brokers=2, namesrvs=2) as rocket:
        rocket.create_topic("Orders", queue_count=4)
        sent: set[bytes] = set()
        used: set[str] = set()
        for name in ("one", "two"):
            with bolide.Producer(f"{name}-pg", rocket.namesrv) as producer:
                for number in range(16):
                    body = f"{name}-{number}".encode()
                    used.add(producer.send("Orders", body).queue.broker_name)
                    sent.add(body)
        assert used == {"broker-0", "broker-1"}
        with (
            bolide.Consumer("cg", "Orders", rocket.namesrv, start_from=OLDEST) as first,
            bolide.Consumer("cg", "Orders", rocket.namesrv, start_from=OLDEST) as second,
        ):
            got: list[bytes] = []
            members = [first, second]
            while set(got) != sent and members:
                received = members[0].receive(32, 1.0)
                got += [message.body for message in received]
                for message in received:
                    message.ack()
                members.append(members.pop(0))
        assert set(got) == sent


@pytest.mark.feature("F006")
def test_the_cluster_lists_its_brokers_by_name_and_id() -> None:
    with cluster(brokers=2) as rocket, bolide.Admin(rocket.namesrv) as admin:
        known = admin.clusters()
        (names,) = known.cluster_addr_table.values()
        assert sorted(names) == ["broker-0", "broker-1"]
        addresses = {name: known.broker_addr_table[name].broker_addrs for name in names}
        assert addresses == {broker.name: {0: broker.address} for broker in rocket.brokers}


@pytest.mark.feature("F012")
def test_a_name_server_answers_and_never_speaks_first() -> None:
    with cluster(brokers=2) as rocket:
        host, port = split_address(rocket.namesrvs[0].address)
        with socket.create_connection((host, port), WAIT_S) as asker:
            asker.sendall(Command(RequestCode.GET_BROKER_CLUSTER_INFO).encode())
            assert asker.recv(1 << 16)
            rocket.brokers[1].stop()  # a change of every route
            rocket.create_topic("New")
            readable, _, _ = select.select([asker], [], [], 0.2)
            assert not readable


@pytest.mark.feature("F057", "F058", "F059")
def test_topics_are_apart_in_delivery_and_on_disk() -> None:
    with cluster() as rocket:
        with bolide.Producer("pg", rocket.namesrv) as producer:
            for topic in ("Orders", "Refunds"):
                for number in range(8):
                    producer.send(topic, f"{topic} {number}".encode())
        bodies = read(rocket.namesrv, "Orders", "cg", 8)
        assert sorted(bodies) == [f"Orders {number}".encode() for number in range(8)]
        queues = rocket.brokers[0].directory.rglob("consumequeue/*/*")
        found = {(path.parent.name, path.name) for path in queues if path.parent.name in ("Orders", "Refunds")}
        assert found == {(topic, str(number)) for topic in ("Orders", "Refunds") for number in range(4)}


@pytest.mark.feature("F072")
def test_queues_beyond_those_to_read_keep_their_messages_until_they_may_be_read() -> None:
    with cluster() as rocket, bolide.Admin(rocket.namesrv) as admin:
        admin.create_topic("Wide", 8, read_queue_count=4)
        with bolide.Producer("pg", rocket.namesrv) as producer:
            queues = producer.queues("Wide")
            for queue in queues:
                producer.send("Wide", str(queue.queue_id).encode(), queue=queue)
        assert len(queues) == 8
        assert sorted(read(rocket.namesrv, "Wide", "cg", 4)) == [b"0", b"1", b"2", b"3"]
        admin.set_topic("Wide", read_queue_count=8)
        assert sorted(read(rocket.namesrv, "Wide", "cg", 4)) == [b"4", b"5", b"6", b"7"]


@pytest.mark.feature("F072")
def test_queues_beyond_those_to_write_are_owned_and_empty() -> None:
    with cluster() as rocket, bolide.Admin(rocket.namesrv) as admin:
        admin.create_topic("Narrow", 4, read_queue_count=8)
        with bolide.Producer("pg", rocket.namesrv) as producer:
            assert [queue.queue_id for queue in producer.queues("Narrow")] == [0, 1, 2, 3]
        with bolide.Consumer("cg", "Narrow", rocket.namesrv) as consumer:
            owned = [queue.queue_id for queue in consumer.queues if queue.topic == "Narrow"]
        assert owned == list(range(8))


@pytest.mark.feature("F134", "F136", "F126")
def test_what_was_sent_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    with cluster(directory=tmp_path) as rocket:
        with bolide.Producer("pg", rocket.namesrv) as producer:
            sent = [str(number).encode() for number in range(20)]
            for body in sent[:10]:
                producer.send("Kept", body, shard="one")
        assert read(rocket.namesrv, "Kept", "cg", 5) == sent[:5]
        rocket.brokers[0].restart()
        with bolide.Producer("pg", rocket.namesrv) as producer:
            for body in sent[10:]:
                producer.send("Kept", body, shard="one")
        assert read(rocket.namesrv, "Kept", "cg", 15) == sent[5:]


@pytest.mark.feature("F079")
def test_a_message_needs_a_body_and_no_tag() -> None:
    with cluster() as rocket, bolide.Producer("pg", rocket.namesrv) as producer:
        assert producer.send("Bare", b"x").is_ok
        with pytest.raises(bolide.ClientError, match="body is empty"):
            producer.send("Bare", b"")
        assert read(rocket.namesrv, "Bare", "cg", 1) == [b"x"]
