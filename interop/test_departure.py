"""A Java broker goes: with a word, killed, or frozen in silence."""

import signal
import time

import pytest

from interop.cluster import Broker, NameServer, known_endpoints
from interop.conftest import StartBroker, StartNameServer
from interop.process import await_that
from interop.release import SERVER_RELEASES
from interop.tap import tapped

UNREGISTER_BROKER = 104
SOON_S = 20.0  # of a machine that starts JVMs beside; a silent broker is dropped after two minutes
# A stopping broker closes some of its rooms before it says farewell.
STOP_TIMEOUT_S = 20.0
STILL_ROUTED_S = 115.0
GONE_S = 135.0


def is_gone(broker: Broker, server: NameServer) -> bool:
    return broker.endpoint not in known_endpoints(server)


@pytest.mark.short
@pytest.mark.feature("F025")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_stopping_broker_says_so_and_leaves_the_routes(
    release: str, start_name_server: StartNameServer, start_broker: StartBroker
) -> None:
    server = start_name_server()
    with tapped(server.address) as tap:
        broker = start_broker(release, tap.endpoint)
        broker.await_route(server)
        broker.program.signal(signal.SIGTERM)
        await_that("the farewell is heard", lambda: tap.requests(UNREGISTER_BROKER), STOP_TIMEOUT_S)
        await_that("the broker is gone", lambda: is_gone(broker, server), SOON_S)


@pytest.mark.short
@pytest.mark.feature("F016", "F026")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_killed_broker_leaves_the_routes_when_its_connection_ends(
    release: str, start_name_server: StartNameServer, start_broker: StartBroker
) -> None:
    server = start_name_server()
    broker = start_broker(release, server.endpoint)
    broker.await_route(server)
    broker.program.kill()
    await_that("the broker is gone", lambda: is_gone(broker, server), SOON_S)


@pytest.mark.feature("F020", "F023", "F024")
def test_a_frozen_broker_is_dropped_after_two_minutes_of_silence_and_a_beating_one_stays(
    start_name_server: StartNameServer, start_broker: StartBroker
) -> None:
    server = start_name_server()
    older = start_broker("4.9.7", server.endpoint, brokerName="frozen-4")
    newer = start_broker("5.5.0", server.endpoint, brokerName="frozen-5")
    beating = start_broker("4.9.7", server.endpoint, brokerName="beating")
    for broker in (older, newer, beating):
        broker.await_route(server)
    frozen_at_s = time.monotonic()
    older.program.freeze()
    newer.program.freeze()
    # The last heartbeat is up to one period older than the freeze.
    await_that("someone leaves", lambda: is_gone(older, server) or is_gone(newer, server), GONE_S)
    assert time.monotonic() - frozen_at_s > STILL_ROUTED_S - 10
    await_that(
        "both are gone",
        lambda: is_gone(older, server) and is_gone(newer, server),
        GONE_S - (time.monotonic() - frozen_at_s),
    )
    assert known_endpoints(server) == {beating.endpoint}
