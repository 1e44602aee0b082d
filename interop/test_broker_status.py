"""The released mqadmin asks our broker about itself, and changes what may change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.testing import Cluster, cluster
from interop import wire
from interop.release import CLIENT_RELEASES
from interop.tools import Tool
from interop.wire import Address

TOPIC = "Stats"
MESSAGE_COUNT = 3
SEND, PULL, COMMIT_FLAG_AND_SUBSCRIPTION = 310, 11, 5


@pytest.fixture(scope="module")
def ours() -> Iterator[Cluster]:
    """Our name server and broker, with a topic that was sent to and read from."""
    with cluster(processes=True, settings={"brokerClusterName": "C1"}) as it:
        it.create_topic(TOPIC, 1)
        for number in range(MESSAGE_COUNT):
            assert send(address_of(it), b"message %d" % number).code == 0
        assert pull(address_of(it)).code == 0
        yield it


def address_of(ours: Cluster) -> Address:
    host, _, port = ours.brokers[0].address.partition(":")
    return host, int(port)


def send(broker: Address, body: bytes) -> wire.Answer:
    numbers = {"d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "j": "0"}
    return wire.call(broker, SEND, {"a": "PG", "b": TOPIC, "c": "TBW102", "i": "", "k": "false", **numbers}, body)


def pull(broker: Address) -> wire.Answer:
    fields = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": str(COMMIT_FLAG_AND_SUBSCRIPTION), "commitOffset": str(MESSAGE_COUNT), "subVersion": "0"}
    return wire.call(broker, PULL, {**fields, "suspendTimeoutMillis": "0", "subscription": "*"})


@pytest.fixture(params=CLIENT_RELEASES)
def tool(request: pytest.FixtureRequest, ours: Cluster, tmp_path: Path) -> Tool:
    return Tool(request.param, ours.namesrv, tmp_path)


def test_tools_of_both_releases_print_how_the_broker_does(ours: Cluster, tool: Tool) -> None:
    address = ours.brokers[0].address
    status, clusters, of_all = tool.run_together(("brokerStatus", "-b", address), ("clusterList",), ("statsAll",))
    table = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in status.splitlines())}
    assert table["msgPutTotalTodayNow"] == str(MESSAGE_COUNT)
    assert table["msgGetTotalTodayNow"] == str(MESSAGE_COUNT)
    assert table["brokerVersionDesc"].startswith("Bolide_")
    assert [float(rate) for rate in table["getTransferedTps"].split()][2] > 0
    line = next(line for line in clusters.splitlines() if address in line)
    assert line.split()[:3] == ["C1", ours.brokers[0].name, "0"]
    counted = next(line.split() for line in of_all.splitlines() if line.split()[:2] == [TOPIC, "CG"])
    assert counted[2] == "0"  # nothing is left to read
    assert counted[-2:] == [str(MESSAGE_COUNT), str(MESSAGE_COUNT)]


def test_settings_are_read_changed_and_refused(ours: Cluster, tool: Tool) -> None:
    address = ours.brokers[0].address
    command = ("updateBrokerConfig", "-b", address, "-k")
    before = tool.run("getBrokerConfig", "-b", address)
    assert "autoCreateSubscriptionGroup" in before
    assert "success" in tool.run(*command, "shortPollingTimeMills", "-v", "750")
    assert "750" in next(
        line for line in tool.run("getBrokerConfig", "-b", address).splitlines() if "shortPollingTimeMills" in line
    )
    with pytest.raises(AssertionError, match="read at the start only"):
        tool.run(*command, "listenPort", "-v", "1")
    tool.run(*command, "shortPollingTimeMills", "-v", "1000")


def test_tidying_up_is_done_when_asked(ours: Cluster, tool: Tool) -> None:
    address = ours.brokers[0].address
    names = ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog")
    for output in tool.run_together(*((name, "-b", address) for name in names)):
        assert "success" in output


@pytest.mark.parametrize("release", CLIENT_RELEASES[1:])
def test_a_master_without_slaves_says_so(ours: Cluster, tmp_path: Path, release: str) -> None:
    output = Tool(release, ours.namesrv, tmp_path).run("haStatus", "-b", ours.brokers[0].address)
    assert "0" in next(line for line in output.splitlines() if "SlaveNum" in line)
