"""Why a topic has no route: the remark names the cause and the command that helps."""

import shlex

import pytest

from bolide.namesrv.absence import Departures, explain
from bolide.namesrv.entries import Departure
from bolide.namesrv.routes import RouteTables
from bolide.namesrv.shares import topic_size
from tests.namesrv.brokers import RW, TOPICS, announce

HERE = "10.0.0.9:9876"


class Scene:
    def __init__(self) -> None:
        self.tables = RouteTables()
        self.departures = Departures()

    def leave(self, departure: Departure | None) -> None:
        assert departure is not None
        self.departures.remember(departure)

    def explain(self, topic: str, now_ms: int = 0) -> str:
        return explain(topic, self.tables, self.departures, HERE, now_ms)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_without_any_broker_the_remark_says_how_to_start_one(scene: Scene) -> None:
    remark = scene.explain("T1")
    assert remark == (
        "no route for topic 'T1': no broker is registered with this name server; "
        "start one with: bolide broker -n 10.0.0.9:9876"
    )


def test_an_absent_topic_names_the_clusters_and_the_command_that_creates_it(scene: Scene) -> None:
    scene.tables.register(announce("broker-a"), 0)
    remark = scene.explain("Orders")
    assert "no registered broker has it (cluster DefaultCluster, broker broker-a)" in remark
    assert "bolide topic create Orders -n 10.0.0.9:9876;" in remark
    assert "autoCreateTopicEnable=true" in remark


def test_the_default_topic_says_that_no_broker_creates_topics(scene: Scene) -> None:
    scene.tables.register(announce("a", topics={"A": RW, "B": RW}), 0)
    assert "set autoCreateTopicEnable=true there" in scene.explain("TBW102")


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (lambda t: t.unregister("DefaultCluster", "a", "a-0:10911", 5_000), "unregistered 12 s ago; start it again"),
        (lambda t: t.disconnect("to a-0:10911", 5_000)[0], "closed its connection 12 s ago; start it again"),
        (lambda t: t.expire(125_000)[0], "stopped sending heartbeats 137 s ago; see whether it still runs"),
    ],
)
@pytest.mark.parametrize("others", [(), ("b",)])
def test_a_broker_that_had_the_topic_is_named_with_its_address_its_end_and_its_time(
    scene: Scene, leave: object, words: str, others: tuple[str, ...]
) -> None:
    scene.tables.register(announce("a"), 0)
    departure = leave(scene.tables)  # type: ignore[operator]
    for name in others:
        scene.tables.register(announce(name, topics={"X": RW, "Y": RW}), departure.at_ms)
    scene.leave(departure)
    remark = scene.explain("T1", departure.at_ms + 12_000)
    assert "broker 'a' (a-0:10911), which had it, " + words in remark
    assert HERE in remark


def test_a_topic_nobody_had_after_the_last_broker_left_names_that_broker(scene: Scene) -> None:
    scene.tables.register(announce("a"), 0)
    scene.leave(scene.tables.disconnect("to a-0:10911", 1000)[0])
    remark = scene.explain("other", 3000)
    assert "no broker is registered with this name server any more" in remark
    assert "broker 'a' (a-0:10911), closed its connection 2 s ago" in remark


def test_a_broker_that_is_back_is_no_cause_any_more(scene: Scene) -> None:
    scene.tables.register(announce("a"), 0)
    scene.leave(scene.tables.disconnect("to a-0:10911", 1000)[0])
    scene.tables.register(announce("a"), 2000)
    scene.departures.forget("a")
    scene.tables.delete_topic("T1")
    assert "no registered broker has it" in scene.explain("T1", 3000)
    assert len(scene.departures) == 0


def test_many_clusters_and_brokers_are_cut(scene: Scene) -> None:
    for i in range(5):
        scene.tables.register(announce(f"b{i}", cluster=f"C{i}"), 0)
    assert "(clusters C0, C1, C2 and 2 more, brokers b0, b1, b2 and 2 more)" in scene.explain("none")


@pytest.mark.parametrize("topic", ["a b", "$(reboot)", "it's", "x" * 100_000, "a\nb"])
def test_the_command_can_be_pasted_whatever_the_topic_is_called(scene: Scene, topic: str) -> None:
    scene.tables.register(announce("a"), 0)
    remark = scene.explain(topic)
    assert len(remark) < 2000
    command = remark.split("create it with: ")[1].split("; a broker with")[0]
    assert shlex.split(command)[3] == topic[:255]


def departed(name: str, topic_count: int = 1) -> Departure:
    tables = RouteTables()
    topics = {f"{name}-{i}": RW for i in range(topic_count)} if topic_count != 1 else {**TOPICS}
    tables.register(announce(name, topics=topics), 0)
    return tables.expire(200_000)[0]


def test_the_memory_of_departures_is_bounded_in_names_and_in_topics() -> None:
    departures = Departures(names_max=3, size_max=20 * topic_size("x" * 6))
    for name in "abcde":
        departures.remember(departed(name))
    assert len(departures) == 3
    latest = departures.latest()
    assert latest is not None
    assert latest.name == "e"
    departures.remember(departed("big", 15))
    assert len(departures) == 2  # 15 + 3 topics
    departures.remember(departed("huge", 30))
    assert len(departures) == 0
    departures.remember(departed("e"))
    departures.remember(departed("e"))
    assert len(departures) == 1
