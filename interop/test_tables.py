"""Our topics and groups among Java's: told to its name servers, and their files opened by its brokers and back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config
from bolide.broker.tables.groups import READ_BIT
from bolide.clock import SystemClock
from bolide.protocol.bodies.groups import GroupConfig, GrowingDelays, RetryKind, RetryPolicy
from bolide.protocol.bodies.topics import TopicConfig
from interop import wire
from interop.cluster import java_broker, java_name_server
from interop.release import SERVER_RELEASES

NOBODY = "127.0.0.1:1"  # no name server is needed
UPDATE_TOPIC, GET_ALL_TOPICS, UPDATE_GROUP, GET_ALL_GROUPS = 17, 21, 200, 201
TOLD_LIMIT_S = 20.0
MANY = 10_000


@asynccontextmanager
async def our_broker(root: Path, name_servers: str = "", **settings: str) -> AsyncIterator[Broker]:
    given = {"storePathRootDir": str(root), "brokerName": "broker-a", "brokerClusterName": "C1", "listenPort": "0"}
    given |= {"bindAddress": "127.0.0.1", "namesrvAddr": name_servers, "mappedFileSizeCommitLog": str(16 << 20)}
    given |= {"diskMaxUsedSpaceRatio": "95"}
    async with serve(read_config(given | settings), SystemClock()) as (broker, _):
        yield broker


def topic(name: str, count: int, **more: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count, **more)


@pytest.mark.parametrize("compressed", ["false", "true"])
@pytest.mark.parametrize("release", SERVER_RELEASES)
@pytest.mark.feature("F017", "F025", "F056")
def test_our_broker_comes_changes_and_leaves_at_a_java_name_server(
    tmp_path: Path, release: str, compressed: str
) -> None:
    with java_name_server(tmp_path, release) as server:

        async def counts(name: str) -> dict[str, tuple[int, int, int]]:
            return await asyncio.to_thread(wire.queue_counts, server.address, name)

        async def scenario() -> None:
            async with our_broker(tmp_path / "store", server.endpoint, compressedRegister=compressed) as broker:
                registration = broker.registration
                assert registration is not None
                assert await counts("TBW102") == {"broker-a": (8, 8, 7)}
                broker.state.topics.for_send("Orders", "TBW102", 4, 0)
                assert await registration.told(TOLD_LIMIT_S)
                assert await counts("Orders") == {"broker-a": (4, 4, 6)}
                broker.state.topics.update_all(topic(f"T{number}", 2) for number in range(MANY))
                assert await registration.told(TOLD_LIMIT_S)
                assert await counts(f"T{MANY - 1}") == {"broker-a": (2, 2, 6)}
            async with our_broker(tmp_path / "store", server.endpoint, compressedRegister=compressed):
                assert await counts(f"T{MANY - 1}") == {"broker-a": (2, 2, 6)}, "all at once, at the start"

        asyncio.run(scenario())
        assert wire.route(server.address, "Orders") is None, "it took leave"


@pytest.mark.parametrize("release", SERVER_RELEASES)
@pytest.mark.feature("F014", "F070")
def test_topics_and_groups_go_from_ours_to_java_and_back(tmp_path: Path, release: str) -> None:
    root = tmp_path / "store"
    policy = RetryPolicy(type=RetryKind.EXPONENTIAL, exponential_retry_policy=GrowingDelays(initial=1000))
    ours = GroupConfig(group_name="ours", retry_max_times=3, consume_enable=False, group_retry_policy=policy)

    async def write() -> None:
        async with our_broker(root) as broker:
            broker.state.topics.update(topic("Ours", 3, attributes={"message.type": "FIFO"}))
            broker.state.groups.update(ours)
            broker.state.groups.forbid("ours", "Ours", READ_BIT, True)

    asyncio.run(write())
    settings = {"storePathRootDir": root, "storePathCommitLog": root / "commitlog", "diskMaxUsedSpaceRatio": 95}
    settings |= {"brokerName": "broker-a", "brokerClusterName": "C1"}
    with java_broker(tmp_path, release, NOBODY, settings) as broker:
        topics = wire.parse(wire.call(broker.address, GET_ALL_TOPICS).body)["topicConfigTable"]
        assert (topics["Ours"]["readQueueNums"], topics["Ours"]["perm"]) == (3, 6)
        groups = wire.parse(wire.call(broker.address, GET_ALL_GROUPS).body)["subscriptionGroupTable"]
        assert (groups["ours"]["retryMaxTimes"], groups["ours"]["consumeEnable"]) == (3, False)
        fields = {"topic": "Theirs", "defaultTopic": "TBW102", "readQueueNums": "5", "writeQueueNums": "6"}
        fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        assert wire.call(broker.address, UPDATE_TOPIC, fields).code == 0
        assert wire.call(broker.address, UPDATE_GROUP, body=b'{"groupName":"theirs"}').code == 0
        broker.program.stop(60)

    async def read() -> None:
        async with our_broker(root) as broker:
            theirs = broker.state.topics.table["Theirs"]
            assert (theirs.read_queue_nums, theirs.write_queue_nums) == (5, 6)
            assert broker.state.topics.table["Ours"].write_queue_nums == 3
            assert broker.state.groups.get("theirs") == GroupConfig(group_name="theirs")
            back = broker.state.groups.table["ours"]
            assert (back.retry_max_times, back.consume_enable) == (3, False)
            if release.startswith("5"):  # 4.9 knows no attributes, policies and prohibitions, and forgets them
                assert back == ours
                assert broker.state.topics.table["Ours"].attributes == {"message.type": "FIFO"}
                assert broker.state.groups.is_forbidden("ours", "Ours", READ_BIT)

    asyncio.run(read())
