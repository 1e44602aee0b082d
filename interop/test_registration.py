"""A Java broker comes: it registers with every name server and keeps saying that it is there."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from interop import wire
from interop.cluster import DEFAULT_TOPIC, Broker, NameServer, java_broker, known_endpoints, name_server
from interop.conftest import StartBroker, StartNameServer
from interop.process import await_that
from interop.release import SERVER_RELEASES
from interop.tap import Heard, Tap, tapped

REGISTER_BROKER = 103
NAME_SERVER_COUNT = 3
# A 5.x broker that missed its first registration comes ten seconds later.
FIRST_REGISTRATION_TIMEOUT_S = 15.0
HEARTBEAT_PERIOD_S = 10.0
TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """One broker, three name servers, and what went over the three lines."""

    broker: Broker
    servers: list[NameServer]
    taps: list[Tap]


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def heartbeats(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> Iterator[Heartbeats]:
    directory = tmp_path_factory.mktemp("heartbeats")
    with ExitStack() as stack:
        servers = [stack.enter_context(name_server(directory, kind)) for _ in range(NAME_SERVER_COUNT)]
        taps = [stack.enter_context(tapped(server.address)) for server in servers]
        endpoints = ";".join(tap.endpoint for tap in taps)
        broker = stack.enter_context(java_broker(directory, request.param, endpoints))
        yield Heartbeats(broker, servers, taps)


def heartbeats_of(tap: Tap, count: int) -> list[Heard]:
    def probe() -> list[Heard] | None:
        found = tap.requests(REGISTER_BROKER)
        return found if len(found) >= count else None

    return await_that(f"{count} registrations", probe, (count + 1) * (HEARTBEAT_PERIOD_S + TOLERANCE_S))


@pytest.mark.short
@pytest.mark.feature("F015", "F017")
def test_a_broker_registers_with_every_name_server_at_its_start(heartbeats: Heartbeats) -> None:
    def routed() -> list[set[str]] | None:
        found = [known_endpoints(server) for server in heartbeats.servers]
        return found if all(found) else None

    assert (
        await_that("all three know the broker", routed, FIRST_REGISTRATION_TIMEOUT_S)
        == [{heartbeats.broker.endpoint}] * NAME_SERVER_COUNT
    )


@pytest.mark.short
@pytest.mark.feature("F019", "F040")
def test_a_heartbeat_carries_the_address_and_every_topic_that_the_route_then_has(heartbeats: Heartbeats) -> None:
    heartbeat = heartbeats_of(heartbeats.taps[0], 1)[0]
    assert heartbeat.fields["brokerAddr"] == heartbeats.broker.endpoint
    told = set(json.loads(heartbeat.body)["topicConfigSerializeWrapper"]["topicConfigTable"])
    assert DEFAULT_TOPIC in told
    assert wire.topics(heartbeats.servers[0].address) >= told


@pytest.mark.short
def test_heartbeats_come_at_the_broker_s_pace_on_every_line(heartbeats: Heartbeats) -> None:
    for tap in heartbeats.taps:
        *_, before, last = heartbeats_of(tap, 2)
        assert last.at_s - before.at_s == pytest.approx(HEARTBEAT_PERIOD_S, abs=TOLERANCE_S)


@pytest.mark.short
@pytest.mark.feature("F053")
def test_all_heartbeats_to_a_name_server_use_one_connection(heartbeats: Heartbeats) -> None:
    for tap in heartbeats.taps:
        assert len({heartbeat.connection for heartbeat in heartbeats_of(tap, 2)}) == 1


@pytest.mark.short
@pytest.mark.feature("F041", "F042")
def test_the_cluster_lists_the_broker_under_its_name(heartbeats: Heartbeats) -> None:
    broker = heartbeats.broker
    told = wire.cluster(heartbeats.servers[0].address)
    assert told["clusterAddrTable"] == {broker.cluster: [broker.name]}
    assert told["brokerAddrTable"][broker.name]["brokerAddrs"] == {"0": broker.endpoint}


@pytest.mark.feature("F018")
def test_heartbeats_come_every_thirty_seconds_when_nobody_said_otherwise(
    start_name_server: StartNameServer, start_broker: StartBroker
) -> None:
    with tapped(start_name_server().address) as tap:
        brokers = [
            start_broker(release, tap.endpoint, brokerName=release, registerNameServerPeriod=30_000)
            for release in SERVER_RELEASES
        ]

        def beats() -> list[list[float]] | None:
            heard = tap.requests(REGISTER_BROKER)
            found = [[beat.at_s for beat in heard if beat.fields["brokerName"] == broker.name] for broker in brokers]
            return found if min(map(len, found)) >= 3 else None

        # The first comes at the start, the second after ten seconds, then it is the period (until a topic is added).
        for _, second_s, third_s, *_ in await_that("three heartbeats of each", beats, 120):
            assert third_s - second_s == pytest.approx(30, abs=TOLERANCE_S)
