"""How brokers and topics leave the tables: NS-20 to NS-24, and what operators change."""

import pytest

from bolide.namesrv.entries import Cause, MinIdNotice, QueueRow
from bolide.namesrv.routes import RouteTables
from tests.namesrv.brokers import RW, TOPICS, announce

KEY = ("DefaultCluster", "broker-a-0:10911")


@pytest.fixture
def forgotten() -> set[str]:
    return set()


@pytest.fixture
def tables(forgotten: set[str]) -> RouteTables:
    return RouteTables(forgotten.update)


def is_empty(tables: RouteTables) -> bool:
    parts = (tables.queues, tables.topics, tables.brokers, tables.clusters, tables.live, tables.filter_servers)
    return not any(parts) and not tables.mappings and not tables._carried


@pytest.mark.feature("F023", "F024")
def test_ns20_a_silent_broker_stays_for_120_s_and_is_gone_after(tables: RouteTables, forgotten: set[str]) -> None:
    tables.register(announce(connection="c"), 0)
    assert tables.expire(119_000) == []
    assert tables.expire(120_000) == []
    forgotten.clear()
    (departure,) = tables.expire(120_001)
    assert (departure.name, departure.cause, departure.connection) == ("broker-a", Cause.EXPIRED, "c")
    assert departure.silent_ms == 120_001
    assert departure.rows == TOPICS
    assert forgotten == set(TOPICS)
    assert is_empty(tables)


def test_ns20_a_broker_may_promise_a_shorter_silence(tables: RouteTables) -> None:
    tables.register(announce("a", timeout_ms=10_000), 0)
    tables.register(announce("b"), 0)
    assert [departure.name for departure in tables.expire(10_001)] == ["a"]
    assert list(tables.brokers) == ["b"]


@pytest.mark.feature("F026")
def test_ns21_a_closed_connection_removes_its_broker_at_once(tables: RouteTables) -> None:
    tables.register(announce(connection="c", filter_servers=["f:1"]), 0)
    (departure,) = tables.disconnect("c", 1)
    assert (departure.address, departure.cause) == ("broker-a-0:10911", Cause.DISCONNECTED)
    assert is_empty(tables)


def test_a_connection_removes_all_whom_it_registered(tables: RouteTables) -> None:
    tables.register(announce("a", connection="container"), 0)
    tables.register(announce("b", connection="container"), 0)
    assert [departure.name for departure in tables.disconnect("container", 1)] == ["a", "b"]
    assert is_empty(tables)


def test_a_connection_that_speaks_for_others_is_not_closed_for_a_silent_one(tables: RouteTables) -> None:
    tables.register(announce("a", connection="container"), 0)
    tables.register(announce("b", connection="container"), 60_000)
    assert [departure.connection for departure in tables.expire(120_001)] == [None]
    assert [departure.connection for departure in tables.expire(180_001)] == ["container"]


def test_the_end_of_an_old_connection_does_not_remove_a_broker_that_came_back_on_a_new_one(
    tables: RouteTables,
) -> None:
    tables.register(announce(connection="old"), 0)
    tables.register(announce(connection="new"), 1)
    assert tables.disconnect("old", 2) == []
    assert list(tables.brokers) == ["broker-a"]
    assert len(tables.disconnect("new", 3)) == 1


@pytest.mark.feature("F025", "F015")
def test_104_removes_a_broker_at_once(tables: RouteTables) -> None:
    tables.register(announce(connection="c"), 0)
    departure = tables.unregister("DefaultCluster", "broker-a", "broker-a-0:10911", 5)
    assert departure is not None
    assert (departure.cause, departure.rows) == (Cause.UNREGISTERED, TOPICS)
    assert is_empty(tables)
    assert tables.unregister("DefaultCluster", "broker-a", "broker-a-0:10911", 6) is None  # told again
    assert is_empty(tables)


def test_ns22_a_slave_that_survives_keeps_the_topics(tables: RouteTables, forgotten: set[str]) -> None:
    tables.register(announce(broker_id=0), 0)
    tables.register(announce(broker_id=1), 0)
    forgotten.clear()
    departure = tables.unregister("DefaultCluster", "broker-a", "broker-a-0:10911", 1)
    assert departure is not None
    assert tables.brokers["broker-a"].addresses == {1: "broker-a-1:10911"}
    assert tables.queues["broker-a"] == TOPICS
    assert departure.rows == {}
    assert forgotten == set(TOPICS)


def test_with_acting_master_a_survivor_is_read_only_and_the_others_hear_of_it(tables: RouteTables) -> None:
    for broker_id in (0, 1, 2):
        tables.register(announce(broker_id=broker_id, acting_master=True), 0)
    departure = tables.unregister("DefaultCluster", "broker-a", "broker-a-0:10911", 1)
    assert [row.perm for row in tables.queues["broker-a"].values()] == [4, 4, 5]
    assert departure is not None
    assert departure.notice == MinIdNotice(
        "broker-a",
        1,
        "broker-a-1:10911",
        ("broker-a-1:10911", "broker-a-2:10911"),
        offline_address="broker-a-0:10911",
    )
    departure = tables.unregister("DefaultCluster", "broker-a", "broker-a-2:10911", 2)
    assert departure is not None
    assert departure.notice is None


def test_with_acting_master_the_loss_of_a_slave_leaves_topics_writable(tables: RouteTables) -> None:
    for broker_id in (0, 1):
        tables.register(announce(broker_id=broker_id, acting_master=True), 0)
    tables.unregister("DefaultCluster", "broker-a", "broker-a-1:10911", 1)
    assert tables.queues["broker-a"] == TOPICS


def test_ns23_the_last_broker_takes_its_cluster_with_it(tables: RouteTables) -> None:
    tables.register(announce("a", cluster="C1", connection="a"), 0)
    tables.register(announce("b", cluster="C2", connection="b"), 0)
    tables.disconnect("a", 1)
    assert tables.clusters == {"C2": {"b"}}
    assert tables.topics == dict.fromkeys(TOPICS, ("b",))


def test_ns24_a_clients_connection_ends_without_effect(tables: RouteTables) -> None:
    tables.register(announce(), 0)
    before = tables.revision
    assert tables.disconnect("a client", 1) == []
    assert tables.revision == before


def test_a_stranger_cannot_remove_a_name_by_a_wrong_address(tables: RouteTables) -> None:
    tables.register(announce(), 0)
    assert tables.unregister("DefaultCluster", "broker-a", "elsewhere:1", 1) is None
    assert tables.brokers["broker-a"].addresses == {0: "broker-a-0:10911"}
    assert KEY in tables.live


def test_205_wipes_write_and_lasts_until_a_changed_version(tables: RouteTables, forgotten: set[str]) -> None:
    tables.register(announce(), 0)
    tables.register(announce("b"), 0)
    forgotten.clear()
    assert tables.wipe_write("broker-a") == 3
    assert forgotten == set(TOPICS)
    assert [row.perm for row in tables.queues["broker-a"].values()] == [4, 4, 5]
    assert tables.queues["b"] == TOPICS
    tables.register(announce(), 1)
    assert tables.queues["broker-a"]["T1"].perm == 4
    tables.register(announce(counter=2), 2)
    assert tables.queues["broker-a"] == TOPICS
    assert tables.wipe_write("nobody") == 0


def test_327_sets_all_to_read_and_write(tables: RouteTables) -> None:
    tables.register(announce(topics={"A": QueueRow(1, 1, 4), "B": QueueRow(1, 1, 7)}), 0)
    assert tables.add_write("broker-a") == 2
    assert [row.perm for row in tables.queues["broker-a"].values()] == [6, 6]
    assert tables.add_write("nobody") == 0


def test_216_without_cluster_drops_the_topic_everywhere(tables: RouteTables, forgotten: set[str]) -> None:
    tables.register(announce("a"), 0)
    tables.register(announce("b"), 0)
    forgotten.clear()
    tables.delete_topic("T1")
    assert "T1" not in tables.topics
    assert "T1" not in tables.queues["a"]
    assert forgotten == {"T1"}
    tables.delete_topic("T1")


def test_216_with_a_cluster_drops_only_its_brokers_rows(tables: RouteTables) -> None:
    tables.register(announce("a", cluster="C1"), 0)
    tables.register(announce("b", cluster="C2"), 0)
    tables.delete_topic("T1", "C1")
    assert tables.topics["T1"] == ("b",)
    tables.delete_topic("T1", "no such cluster")
    assert tables.topics["T1"] == ("b",)
    tables.delete_topic("T1", "C2")
    assert "T1" not in tables.topics


def test_t2_a_topic_deleted_here_alone_comes_back_with_its_broker(tables: RouteTables) -> None:
    tables.register(announce(), 0)
    tables.delete_topic("T1")
    tables.register(announce(counter=2), 1)
    assert tables.topics["T1"] == ("broker-a",)


def test_217_merges_rows_and_is_refused_whole_for_an_unknown_broker(tables: RouteTables) -> None:
    tables.register(announce("a"), 0)
    tables.register(announce("b"), 0)
    assert tables.register_topic("N", {"a": RW})
    assert tables.register_topic("N", {"b": QueueRow(1, 1, 6)})
    assert tables.topics["N"] == ("a", "b")
    assert not tables.register_topic("M", {"a": RW, "ghost": RW})
    assert not tables.register_topic("M", {})
    assert "M" not in tables.topics


def test_the_removal_of_a_broker_looks_at_its_own_topics_alone(tables: RouteTables) -> None:
    tables.register(announce("big", topics={f"T{i}": RW for i in range(5000)}), 0)
    tables.register(announce("small", topics={"A": RW, "B": RW}, connection="small"), 0)

    class Watched(dict[str, tuple[str, ...]]):
        touched = 0

        def __getitem__(self, topic: str) -> tuple[str, ...]:
            Watched.touched += 1
            return super().__getitem__(topic)

        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("the removal walked through all topics")

        items = keys = values = __iter__

    tables.topics = Watched(tables.topics)
    tables.disconnect("small", 1)
    assert Watched.touched <= 2
