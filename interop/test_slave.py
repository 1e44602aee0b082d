"""A master and its slave: the slave learns from the name server whom to follow."""

import pytest

from interop import wire
from interop.cluster import DEFAULT_TOPIC
from interop.conftest import StartBroker, StartNameServer
from interop.process import await_that
from interop.release import SERVER_RELEASES
from interop.tap import Heard, tapped

REGISTER_BROKER = 103
TIMEOUT_S = 20.0


def answers(frames: list[Heard]) -> list[dict[str, str]]:
    return [heard.fields for heard in frames if not heard.is_request and "masterAddr" in heard.fields]


@pytest.mark.short
@pytest.mark.feature("F050")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_slave_is_told_its_master_and_keeps_the_topics_readable_when_that_dies(
    release: str, start_name_server: StartNameServer, start_broker: StartBroker
) -> None:
    server = start_name_server()
    master = start_broker(release, server.endpoint)
    master.await_route(server)
    before = wire.topics(server.address)
    with tapped(server.address) as tap:
        slave = start_broker(release, tap.endpoint, brokerId=1, brokerRole="SLAVE", slaveReadEnable=True)
        slave.await_route(server)
        told = await_that("the slave's answer", lambda: answers(tap.frames()), TIMEOUT_S)[0]
        assert told == {"masterAddr": master.endpoint, "haServerAddr": master.ha_endpoint}
        both = {"0": master.endpoint, "1": slave.endpoint}
        assert wire.broker_addresses(server.address, DEFAULT_TOPIC) == {"broker-a": both}
        assert wire.topics(server.address) == before, "a slave's table creates no topic"
        master.program.kill()
        only_slave = {"broker-a": {"1": slave.endpoint}}
        await_that(
            "only the slave is left", lambda: wire.broker_addresses(server.address, DEFAULT_TOPIC) == only_slave, 2
        )
