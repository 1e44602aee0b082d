"""`bolide doctor` at Apache's own cluster: silent where all is well, and faults that are built are found, in time."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bolide import Consumer, Producer, StartFrom
from bolide.admin.doctor.checks import examine
from bolide.admin.doctor.gather import Doctor
from bolide.protocol.bodies import ConsumerMember, Heartbeat, Subscription
from bolide.protocol.command import Command
from interop.cluster import UPDATE_TOPIC, Station, java_station
from interop.wire import call

RELEASE = "5.5.0"
# How busy and how full this machine is, is nobody's fault; Apache's brokers have no topic for traces unless told to.
MACHINE = frozenset({"D03", "D07", "N05"})
HEARTBEAT = 34


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp("doctor"), RELEASE) as station:
        station.make_topic("Orders")
        yield station


def numbers(station: Station, topic: str | None = None, group: str | None = None) -> set[str]:
    facts = asyncio.run(Doctor(station.name_servers).gather(topic, group))
    return {finding.number for finding in examine(facts)} - MACHINE


def test_a_healthy_cluster_of_apaches_has_no_finding_and_is_soon_looked_at(station: Station) -> None:
    with Producer("pg", station.name_servers) as producer:
        producer.send("Orders", b"x")
    with Consumer("readers", "Orders", station.name_servers, start_from=StartFrom.oldest()) as consumer:
        next(iter(consumer)).ack()
        began_s = time.monotonic()
        found = numbers(station)
        print(f"doctor at {RELEASE}: {time.monotonic() - began_s:.2f} s")
    assert found == set()


def test_a_topic_that_nobody_made_is_found(station: Station) -> None:
    assert numbers(station, topic="Nowhere") == {"D02"}


def test_queues_that_nobody_reads_and_a_topic_that_takes_nothing_are_found(station: Station) -> None:
    for topic, change in (("Unread", {"readQueueNums": "1"}), ("Closed", {"perm": "4"})):
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        fields |= {"readQueueNums": "4", "writeQueueNums": "4", "topicSysFlag": "0", "order": "false", **change}
        assert call(station.address, UPDATE_TOPIC, fields).code == 0
        assert numbers(station, topic=topic) == {"D19"}


def test_two_members_with_one_id_are_found(station: Station) -> None:
    member = ConsumerMember(group_name="twins", subscription_data_set=[Subscription(topic="Orders", sub_string="*")])
    heartbeat = Command(HEARTBEAT, body=Heartbeat(client_id="same@1", consumer_data_set=[member]).encode())
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(socket.create_connection(station.address, 30))
            connection.sendall(heartbeat.encode())
            assert connection.recv(1 << 16)
        assert numbers(station, topic="Orders", group="twins") == {"D05"}


def test_members_that_subscribe_differently_are_found_by_asking_them(station: Station) -> None:
    """Apache's brokers compare nothing; members tell themselves what they want."""
    with (
        Consumer("torn", {"Orders": "A"}, station.name_servers),
        Consumer("torn", {"Orders": "B"}, station.name_servers, instance_name="other"),
    ):
        assert "D04" in numbers(station, topic="Orders", group="torn")


def test_a_broker_that_hangs_is_found(station: Station) -> None:
    """One that died is not known any more: its name server saw the connection end."""
    station.program.freeze()
    try:
        assert numbers(station) == {"D01"}
    finally:
        station.program.thaw()
