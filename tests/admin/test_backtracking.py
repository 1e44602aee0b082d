"""Moving groups: back, ahead, to an offset, to where another is; what is running hears of it at once."""

from collections.abc import Iterator

import pytest

import bolide
from bolide import aio
from bolide.errors import ClientError
from bolide.testing import Cluster, cluster, run
from tests.client.scenes import OLDEST, client_clock, numbers, send_all, stage

COUNT = 20


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


@pytest.fixture
def admin(rocket: Cluster) -> Iterator[bolide.Admin]:
    with bolide.Admin(rocket.namesrv) as opened:
        yield opened


def consumed(rocket: Cluster, group: str, topic: str, count: int = COUNT) -> list[bytes]:
    with bolide.Consumer(group, topic, rocket.namesrv, start_from=OLDEST) as consumer:
        bodies = [next(consumer).body for _ in range(count)]
        consumer.commit()
        return bodies


def filled(rocket: Cluster, topic: str, group: str) -> None:
    """Twenty messages, all consumed by a group that nobody is in any more."""
    rocket.create_topic(topic, 2)
    with bolide.Producer("pg", rocket.namesrv) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
    assert len(set(consumed(rocket, group, topic))) == COUNT


@pytest.mark.feature("F237", "X26")
def test_a_plan_says_from_where_to_where_and_changes_nothing(rocket: Cluster, admin: bolide.Admin) -> None:
    filled(rocket, "Planned", "planners")
    plan = admin.plan_reset("planners", "Planned", 0)
    assert len(plan) == 4
    assert {move.after for move in plan} == {0}
    assert sum(move.before or 0 for move in plan) == COUNT
    assert sum(move.distance for move in plan) == -COUNT
    assert admin.plan_reset("planners", "Planned", 0) == plan
    assert {move.queue: move.after for move in plan} == admin.reset_group("planners", "Planned", 0)
    assert sorted(consumed(rocket, "planners", "Planned")) == sorted(numbers(0, COUNT))


def test_a_group_is_moved_to_an_offset_or_to_what_a_queue_still_has(rocket: Cluster, admin: bolide.Admin) -> None:
    filled(rocket, "Numbered", "numberers")
    moved = admin.reset_group("numberers", "Numbered", offset=2)
    assert set(moved.values()) == {2}
    beyond = admin.reset_group("numberers", "Numbered", offset=1_000)
    assert sum(beyond.values()) == COUNT
    one = min(moved)
    assert admin.reset_group("numberers", "Numbered", offset=1, queue=one) == {one: 1}
    assert {row.queue: row.consumer_offset for row in admin.group_progress("numberers")}[one] == 1
    with pytest.raises(ClientError, match="is no queue of Numbered"):
        admin.reset_group("numberers", "Numbered", queue=bolide.MessageQueue("Numbered", "broker-0", 99))


def test_a_backlog_is_skipped(rocket: Cluster, admin: bolide.Admin) -> None:
    filled(rocket, "Skipped", "skippers")
    admin.reset_group("skippers", "Skipped", 0)
    assert sum(admin.skip_backlog("skippers", "Skipped").values()) == COUNT
    assert sum(row.behind for row in admin.group_progress("skippers")) == 0


def test_a_group_is_put_where_another_is_unless_somebody_is_in_it(rocket: Cluster, admin: bolide.Admin) -> None:
    filled(rocket, "Cloned", "originals")
    admin.reset_group("originals", "Cloned", offset=3)
    admin.clone_group("originals", "copies", "Cloned")

    def places(group: str) -> dict[bolide.MessageQueue, int]:
        return {row.queue: row.consumer_offset for row in admin.group_progress(group) if row.queue.topic == "Cloned"}

    assert places("copies") == places("originals")
    assert set(places("copies").values()) == {3}
    with (
        bolide.Consumer("copies", "Cloned", rocket.namesrv),
        pytest.raises(ClientError, match="copies has members online, who would undo it"),
    ):
        admin.clone_group("originals", "copies")


def test_where_the_broker_leaves_it_to_members_and_there_are_none_the_administrator_writes() -> None:
    async def scenario() -> None:
        settings = {"useServerSideResetOffset": "false"}
        async with (
            stage(queue_count=2, settings=settings) as rocket,
            aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
            aio.Admin(rocket.namesrv, clock=client_clock()) as admin,
        ):
            await send_all(producer, "T", numbers(0, 10))
            async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, clock=client_clock()) as consumer:
                taken: list[aio.Received] = []
                while len(taken) < 10:
                    taken += await consumer.receive(10)
                for message in taken:
                    message.ack()
            assert set((await admin.reset_group("g", "T", 0)).values()) == {0}
            rows = await admin.group_progress("g")
            assert sum(row.consumer_offset for row in rows if row.queue.topic == "T") == 0

    run(scenario())


def test_a_plan_for_the_end_is_the_end(rocket: Cluster, admin: bolide.Admin) -> None:
    filled(rocket, "Ends", "enders")
    assert sum(move.after for move in admin.plan_reset("enders", "Ends")) == COUNT
