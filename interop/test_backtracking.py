"""Groups moved by mqadmin at our broker, and by ours at Apache's; running and stopped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bolide
from interop.clients import JavaAgent, java_agent
from interop.cluster import Station, bolide_up, java_station
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

COUNT = 12
QUEUE_COUNT = 3
TIMEOUT_S = 60.0  # apart from our own client, members wait before they look anew
OLDEST = bolide.StartFrom.oldest()


@contextmanager
def member(station: Station, group: str, topic: str) -> Iterator[list[bytes]]:
    """Our consumer in a thread, and what it took."""
    consumer = bolide.Consumer(group, topic, station.name_servers, start_from=OLDEST)
    taken: list[bytes] = []

    def run() -> None:
        taken.extend(message.body for message in consumer)

    with consumer:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield taken
        consumer.close()
        thread.join(TIMEOUT_S)


def filled(station: Station, name: str) -> tuple[str, str]:
    """A topic with twelve messages, all consumed by a group that is away again."""
    topic = station.make_topic(name, QUEUE_COUNT)
    with bolide.Producer("py-senders", station.name_servers) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
    with member(station, f"of-{topic}", topic) as taken:
        await_that("all are consumed", lambda: len(taken) >= COUNT, TIMEOUT_S)
    return topic, f"of-{topic}"


def offsets(admin: bolide.Admin, group: str, topic: str) -> list[int]:
    return [row.consumer_offset for row in admin.group_progress(group) if row.queue.topic == topic]


def named(agent: JavaAgent, name: str) -> str:
    return f"{name}-{agent.release.replace('.', '-')}"


@pytest.mark.short
@pytest.mark.feature("F237", "X26")
def test_mqadmin_moves_a_group_that_is_away(agent: JavaAgent, station: Station) -> None:
    topic, group = filled(station, named(agent, "Away"))
    with bolide.Admin(station.name_servers) as admin:
        agent.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        assert offsets(admin, group, topic) == [0] * QUEUE_COUNT
        printed = agent.admin("skipAccumulatedMessage", "-g", group, "-t", topic)
        assert sum(offsets(admin, group, topic)) == COUNT, printed
        agent.admin("updateSubGroup", "-b", station.endpoint, "-g", f"{group}-copy")
        printed = agent.admin("cloneGroupOffset", "-s", group, "-d", f"{group}-copy", "-t", topic)
        assert "success" in printed, printed
        assert sum(offsets(admin, f"{group}-copy", topic)) == COUNT


def test_mqadmin_moves_a_group_that_runs(agent: JavaAgent, station: Station) -> None:
    topic, group = filled(station, named(agent, "Runs"))
    with member(station, group, topic) as taken, bolide.Admin(station.name_servers) as admin:
        await_that("somebody is in the group", lambda: admin.members(group), TIMEOUT_S)
        agent.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        await_that("all are consumed again", lambda: len(taken) >= COUNT, TIMEOUT_S)
        agent.admin("skipAccumulatedMessage", "-g", group, "-t", topic)
        await_that("nothing is left", lambda: sum(offsets(admin, group, topic)) == COUNT, TIMEOUT_S)
        assert sorted(taken) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_where_members_do_it_and_none_is_there_mqadmin_writes_the_offsets(release: str, tmp_path: Path) -> None:
    with (
        bolide_up(tmp_path, {"useServerSideResetOffset": False}) as station,
        java_agent(tmp_path, release, station.name_servers) as agent,
        bolide.Admin(station.name_servers) as admin,
    ):
        topic, group = filled(station, "OldWay")
        printed = agent.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        assert "#timestampOffset" in printed, printed
        assert offsets(admin, group, topic) == [0] * QUEUE_COUNT
        printed = agent.admin("skipAccumulatedMessage", "-g", group, "-t", topic)
        assert sum(offsets(admin, group, topic)) == COUNT, printed


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp(f"moving-{request.param}"), request.param) as running:
        yield running


def test_we_move_groups_at_apaches_broker(apache: Station) -> None:
    topic, group = filled(apache, "PyMoves")
    with bolide.Admin(apache.name_servers) as admin:
        assert sum(move.distance for move in admin.plan_reset(group, topic, 0)) == -COUNT
        assert set(admin.reset_group(group, topic, 0).values()) == {0}
        assert offsets(admin, group, topic) == [0] * QUEUE_COUNT
        assert sum(admin.skip_backlog(group, topic).values()) == COUNT
        assert set(admin.reset_group(group, topic, offset=1).values()) == {1}
        assert offsets(admin, group, topic) == [1] * QUEUE_COUNT
        admin.skip_backlog(group, topic)
        with bolide.Consumer(f"{group}-copy", topic, apache.name_servers):
            pass  # so that there is such a group
        admin.clone_group(group, f"{group}-copy", topic)
        assert sum(offsets(admin, f"{group}-copy", topic)) == COUNT
