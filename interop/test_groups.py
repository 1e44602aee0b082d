"""Groups of RocketMQ's own consumers at our broker: sharing, taking over, going back, and how its tools see them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bolide.testing import Cluster, cluster
from interop.clients import JavaClient, java_consumer, send_messages
from interop.process import await_that
from interop.release import CLIENT_RELEASES
from interop.tools import Tool

QUEUE_COUNT = 4
MESSAGE_COUNT = 40
# Joining takes a rebalance of everybody, and a fresh JVM its time.
SETTLE_S = 40.0

releases = pytest.mark.parametrize("release", CLIENT_RELEASES)


@pytest.fixture(scope="module")
def ours() -> Iterator[Cluster]:
    with cluster(processes=True) as it:
        yield it


def received(*clients: JavaClient) -> list[tuple[int, int]]:
    """Queue and offset of everything that came."""
    return [(event["queue"], event["offset"]) for client in clients for event in client.events("received")]


def queues_of(client: JavaClient, since: int) -> set[int]:
    return {queue for queue, _ in received(client)[since:]}


def send(ours: Cluster, directory: Path, release: str, topic: str) -> None:
    send_messages(directory, release, namesrv=ours.namesrv, topic=topic, count=MESSAGE_COUNT)


def share_queues(ours: Cluster, directory: Path, release: str, topic: str, one: JavaClient, two: JavaClient) -> None:
    """Send until both members have received from queues of their own, two each."""

    def shares() -> bool:
        seen = len(received(one)), len(received(two))
        total = sum(seen) + MESSAGE_COUNT
        send(ours, directory, release, topic)
        await_that("all came", lambda: len(received(one, two)) >= total, SETTLE_S)
        first, second = queues_of(one, seen[0]), queues_of(two, seen[1])
        return len(first) == len(second) == QUEUE_COUNT // 2 and not first & second

    await_that("two queues each", shares, SETTLE_S)


@releases
@pytest.mark.feature("F074", "F075", "F203")
def test_members_share_the_queues_and_the_survivor_takes_over(ours: Cluster, tmp_path: Path, release: str) -> None:
    topic = f"Shared-{release.replace('.', '-')}"
    ours.create_topic(topic, QUEUE_COUNT)
    wanted = {"namesrv": ours.namesrv, "topic": topic, "group": topic}
    with java_consumer(tmp_path, release, **wanted) as one:
        with java_consumer(tmp_path, release, **wanted) as two:
            share_queues(ours, tmp_path, release, topic, one, two)
            assert set(Counter(received(one, two)).values()) == {1}, "nobody got anything twice"
            before = received(two)
            two.program.kill()
        sent_count = len(received(one)) + len(before)
        send(ours, tmp_path, release, topic)
        # What the dead one had settled and not yet committed comes again; nothing is missing.
        await_that(
            "the other has all queues",
            lambda: len(set(received(one)) | set(before)) == sent_count + MESSAGE_COUNT,
            SETTLE_S,
        )


@releases
@pytest.mark.feature("F204")
def test_every_member_of_a_broadcasting_group_gets_everything(ours: Cluster, tmp_path: Path, release: str) -> None:
    topic = f"Broadcast-{release.replace('.', '-')}"
    ours.create_topic(topic, QUEUE_COUNT)
    wanted = {"namesrv": ours.namesrv, "topic": topic, "group": topic, "broadcast": True}
    with ExitStack() as stack:
        clients = [stack.enter_context(java_consumer(tmp_path, release, **wanted)) for _ in range(2)]
        send(ours, tmp_path, release, topic)
        for client in clients:
            client.await_events("received", MESSAGE_COUNT, SETTLE_S)
            assert len(set(received(client))) == MESSAGE_COUNT


@releases
@pytest.mark.feature("F282", "F283")
def test_ordered_members_never_work_on_one_queue_together(ours: Cluster, tmp_path: Path, release: str) -> None:
    topic = f"Ordered-{release.replace('.', '-')}"
    ours.create_topic(topic, QUEUE_COUNT)
    wanted = {"namesrv": ours.namesrv, "topic": topic, "group": topic, "orderly": True}
    with java_consumer(tmp_path, release, **wanted) as one:
        send(ours, tmp_path, release, topic)
        one.await_events("received", MESSAGE_COUNT, SETTLE_S)
        with java_consumer(tmp_path, release, **wanted) as two:
            share_queues(ours, tmp_path, release, topic, one, two)
            two.program.tell("stop")
            two.await_events("done", 1, SETTLE_S)  # a thread of 5.5.0's orderly consumers keeps the JVM alive
            events = one.events("received") + two.events("received")
    for queue_id in range(QUEUE_COUNT):
        mine = sorted((event["ms"], event["offset"]) for event in events if event["queue"] == queue_id)
        offsets = [offset for _, offset in mine]
        assert offsets == sorted(set(offsets)), f"queue {queue_id} came in order and once"


@releases
def test_tools_show_a_group_and_take_it_back(ours: Cluster, tmp_path: Path, release: str) -> None:
    topic = f"Shown-{release.replace('.', '-')}"
    ours.create_topic(topic, QUEUE_COUNT)
    tool = Tool(release, ours.namesrv, tmp_path)
    with java_consumer(tmp_path, release, namesrv=ours.namesrv, topic=topic, group=topic) as client:
        send(ours, tmp_path, release, topic)
        client.await_events("received", MESSAGE_COUNT, SETTLE_S)
        connections, status, progress = tool.run_together(
            ("consumerConnection", "-g", topic), ("consumerStatus", "-g", topic), ("consumerProgress", "-g", topic)
        )
        assert "CONSUME_PASSIVELY" in connections
        assert f"%RETRY%{topic}" in connections
        assert "Rebalance OK" in status
        ends = [line.split()[3] for line in progress.splitlines() if line.startswith(topic)]
        assert ends == [str(MESSAGE_COUNT // QUEUE_COUNT)] * QUEUE_COUNT
        tool.run("resetOffsetByTime", "-g", topic, "-t", topic, "-s", "0")
        client.await_events("received", 2 * MESSAGE_COUNT, SETTLE_S)
        assert set(Counter(received(client)).values()) == {2}, "everything came once more"
        client.finish()
    with pytest.raises(AssertionError, match="is not online"):
        tool.run("consumerConnection", "-g", topic)
