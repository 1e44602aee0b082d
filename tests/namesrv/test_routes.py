"""The tables themselves: registration, by RocketMQ's rules NS-10 to NS-15 and the steps before them."""

import pytest

from bolide.errors import Refusal
from bolide.namesrv.entries import Announcement, MinIdNotice, QueueRow
from bolide.namesrv.routes import RouteTables
from tests.namesrv.brokers import READ_ONLY, RW, TOPICS, announce, version


@pytest.fixture
def forgotten() -> set[str]:
    return set()


@pytest.fixture
def tables(forgotten: set[str]) -> RouteTables:
    return RouteTables(forgotten.update)


@pytest.mark.feature("F040", "F041", "F042")
def test_ns10_a_masters_first_registration_fills_topics_brokers_and_clusters(tables: RouteTables) -> None:
    tables.register(announce(), 1000)
    assert tables.topics == {"T1": ("broker-a",), "T2": ("broker-a",), "TBW102": ("broker-a",)}
    assert tables.queues == {"broker-a": TOPICS}
    assert tables.brokers["broker-a"].cluster == "DefaultCluster"
    assert tables.brokers["broker-a"].addresses == {0: "broker-a-0:10911"}
    assert tables.clusters == {"DefaultCluster": {"broker-a"}}


@pytest.mark.feature("F043")
def test_ns10_a_masters_first_registration_makes_a_live_entry(tables: RouteTables) -> None:
    enrolled = tables.register(announce(connection="c1"), 1000)
    live = tables.live["DefaultCluster", "broker-a-0:10911"]
    assert (live.name, live.heard_ms, live.timeout_ms, live.connection) == ("broker-a", 1000, 120_000, "c1")
    assert (live.version, live.ha_address) == (version(), "broker-a-0:10912")
    assert enrolled.is_new
    assert enrolled.written_count == 3


@pytest.mark.feature("F049", "F020")
def test_the_live_entry_is_replaced_as_a_whole(tables: RouteTables) -> None:
    tables.register(announce(connection="c1", timeout_ms=5000), 1000)
    enrolled = tables.register(announce(connection="c2", counter=2, ha_address="new:1"), 31_000)
    live = tables.live["DefaultCluster", "broker-a-0:10911"]
    assert (live.heard_ms, live.timeout_ms, live.version) == (31_000, 120_000, version(2))
    assert (live.connection, live.ha_address) == ("c2", "new:1")
    assert not enrolled.is_new


@pytest.mark.feature("F048", "F020")
def test_ns11_an_equal_version_refreshes_the_time_and_no_row_even_if_the_body_differs(tables: RouteTables) -> None:
    tables.register(announce(), 1000)
    enrolled = tables.register(announce(topics={**TOPICS, "T1": QueueRow(16, 16, 6)}), 31_000)
    assert tables.queues["broker-a"]["T1"] == RW
    assert tables.live["DefaultCluster", "broker-a-0:10911"].heard_ms == 31_000
    assert enrolled.written_count == 0


def test_a_topic_without_a_row_is_written_even_at_an_equal_version(tables: RouteTables) -> None:
    tables.register(announce(), 1000)
    tables.register(announce(topics={**TOPICS, "T3": RW}), 31_000)
    assert tables.queues["broker-a"]["T3"] == RW


@pytest.mark.feature("F021")
def test_ns12_a_changed_version_brings_new_counts_and_keeps_topics_missing_from_the_body(
    tables: RouteTables, forgotten: set[str]
) -> None:
    tables.register(announce(), 1000)
    forgotten.clear()
    tables.register(announce(topics={"T1": QueueRow(16, 8, 4)}, counter=2), 2000)
    assert tables.queues["broker-a"] == {**TOPICS, "T1": QueueRow(16, 8, 4)}
    assert forgotten == {"T1"}


@pytest.mark.parametrize("changed", [version(2), version(1, state=1), version(1, timestamp_ms=5)])
def test_a_version_differs_when_any_of_its_three_fields_does(tables: RouteTables, changed: object) -> None:
    tables.register(announce(), 1000)
    first = announce(topics={**TOPICS, "T1": READ_ONLY})
    fields = {name: getattr(first, name) for name in Announcement.__dataclass_fields__}
    tables.register(Announcement(**{**fields, "version": changed}), 2000)
    assert tables.queues["broker-a"]["T1"] == READ_ONLY


@pytest.mark.feature("F048")
def test_ns13_a_slave_of_4x_creates_no_topic(tables: RouteTables) -> None:
    tables.register(announce(broker_id=1), 1000)
    assert tables.topics == {}
    assert tables.brokers["broker-a"].addresses == {1: "broker-a-1:10911"}


@pytest.mark.feature("F047")
def test_a_first_registration_writes_topics_even_with_a_version_seen_before(tables: RouteTables) -> None:
    tables.register(announce(broker_id=1, address="x:1"), 1000)
    tables.register(announce(broker_id=0, address="x:1"), 2000)  # promoted, same address, same version
    assert tables.queues["broker-a"] == TOPICS


def test_ns14_a_promoted_slave_leaves_its_old_seat(tables: RouteTables) -> None:
    tables.register(announce(broker_id=1, address="x:1"), 1000)
    tables.register(announce(broker_id=0, address="x:1"), 2000)
    assert tables.brokers["broker-a"].addresses == {0: "x:1"}


def test_ns15_a_name_in_a_second_cluster_keeps_its_first_and_is_listed_in_both(tables: RouteTables) -> None:
    tables.register(announce(cluster="C1"), 1000)
    tables.register(announce(cluster="C2"), 2000)
    assert tables.brokers["broker-a"].cluster == "C1"
    assert tables.clusters == {"C1": {"broker-a"}, "C2": {"broker-a"}}
    tables.unregister("C2", "broker-a", "broker-a-0:10911", 3000)
    assert tables.clusters == {}
    assert tables.brokers == {}


@pytest.mark.feature("F050")
def test_a_slave_is_told_its_masters_addresses_and_a_master_nothing(tables: RouteTables) -> None:
    orphan = tables.register(announce(broker_id=1), 1000)
    assert (orphan.master_address, orphan.ha_address) == ("", "")
    master = tables.register(announce(broker_id=0), 1000)
    assert (master.master_address, master.ha_address) == ("", "")
    slave = tables.register(announce(broker_id=1), 2000)
    assert (slave.master_address, slave.ha_address) == ("broker-a-0:10911", "broker-a-0:10912")


def test_a_slave_is_not_sent_to_a_master_that_is_not_heard_of(tables: RouteTables) -> None:
    tables.register(announce(broker_id=0, cluster="C1"), 1000)
    slave = tables.register(announce(broker_id=1, cluster="C2"), 1000)
    assert (slave.master_address, slave.ha_address) == ("", "")


@pytest.mark.feature("F044")
def test_filter_servers_are_replaced_by_a_list_removed_by_an_empty_one_and_left_by_none(
    tables: RouteTables, forgotten: set[str]
) -> None:
    key = ("DefaultCluster", "broker-a-0:10911")
    tables.register(announce(filter_servers=["f:1", "f:2"]), 1000)
    assert tables.filter_servers == {key: ["f:1", "f:2"]}
    tables.register(announce(filter_servers=None), 2000)
    assert tables.filter_servers == {key: ["f:1", "f:2"]}
    forgotten.clear()
    tables.register(announce(filter_servers=[]), 3000)
    assert tables.filter_servers == {}
    assert forgotten == set(TOPICS)
    tables.register(announce(filter_servers=[]), 4000)


def test_an_id_taken_by_an_address_of_higher_state_is_not_given_away(tables: RouteTables) -> None:
    tables.register(announce(address="old:1", state=5), 1000)
    tables.register(announce(broker_id=1, address="new:1", state=4), 1000)
    enrolled = tables.register(announce(address="new:1", state=4, counter=9, topics={"T1": READ_ONLY, "X": RW}), 2000)
    assert enrolled.is_ignored
    assert tables.brokers["broker-a"].addresses == {0: "old:1"}
    assert ("DefaultCluster", "new:1") not in tables.live
    assert tables.queues["broker-a"] == TOPICS


@pytest.mark.parametrize("state", [5, 6])
def test_an_id_goes_to_a_new_address_of_equal_or_higher_state(tables: RouteTables, state: int) -> None:
    tables.register(announce(address="old:1", state=5), 1000)
    tables.register(announce(address="new:1", state=state), 2000)
    assert tables.brokers["broker-a"].addresses == {0: "new:1"}
    assert ("DefaultCluster", "old:1") in tables.live  # until it expires
    assert [departure.address for departure in tables.expire(121_001)] == ["old:1"]
    assert tables.brokers["broker-a"].addresses == {0: "new:1"}
    assert tables.queues["broker-a"] == TOPICS


def test_a_first_registration_with_one_topic_is_refused_and_leaves_no_trace(tables: RouteTables) -> None:
    with pytest.raises(Refusal, match="register the whole table first") as caught:
        tables.register(announce(topics={"T1": RW}), 1000)
    assert caught.value.code == 1
    assert (tables.brokers, tables.clusters, tables.live, tables.topics) == ({}, {}, {}, {})


def test_one_topic_may_follow_a_whole_table_and_an_empty_table_may_come_first(tables: RouteTables) -> None:
    tables.register(announce(topics={}), 1000)
    tables.register(announce(topics={"T1": RW}, counter=2), 2000)
    assert tables.queues["broker-a"] == {"T1": RW}


def test_a_5x_slave_with_the_smallest_id_brings_topics_and_with_acting_master_they_are_read_only(
    tables: RouteTables,
) -> None:
    tables.register(announce("a", 1, acting_master=False), 1000)
    assert tables.queues["a"] == TOPICS
    tables.register(announce("b", 1, acting_master=True), 1000)
    assert [row.perm for row in tables.queues["b"].values()] == [4, 4, 5]
    tables.register(announce("c", 1, acting_master=True), 1000)
    tables.register(announce("c", 2, {"T9": RW, "T8": RW}, acting_master=True), 1000)
    assert "T9" not in tables.queues["c"]


def test_a_prime_slave_keeps_its_rank_at_a_new_address(tables: RouteTables) -> None:
    tables.register(announce(broker_id=1, address="old:1", acting_master=False), 1000)
    tables.register(announce(broker_id=1, address="new:1", acting_master=False, counter=2, topics={"N": RW}), 2000)
    assert "N" in tables.queues["broker-a"]


def test_topics_missing_from_the_body_go_only_when_that_is_asked_for(tables: RouteTables) -> None:
    tables.register(announce("a"), 1000)
    tables.register(announce("b"), 1000)
    enrolled = tables.register(announce("a", topics={"T1": RW, "N": RW}, counter=2), 2000, drops_missing=True)
    assert tables.queues["a"] == {"T1": RW, "N": RW}
    assert tables.topics == {"T1": ("a", "b"), "T2": ("b",), "TBW102": ("b",), "N": ("a",)}
    assert enrolled.removed_count == 2


def test_a_name_with_static_topics_drops_nothing(tables: RouteTables) -> None:
    mapping = {"T1": b'{"bname":"a"}'}
    tables.register(announce("a", mappings=mapping), 1000)
    tables.register(announce("a", topics={"T1": RW}, counter=2, mappings=mapping), 2000, drops_missing=True)
    assert tables.queues["a"] == TOPICS
    assert tables.mappings == {"T1": {"a": b'{"bname":"a"}'}}


def test_a_mapping_goes_with_the_last_row_of_its_topic(tables: RouteTables) -> None:
    tables.register(announce("a", mappings={"T1": b"{}", "unknown": b"{}"}), 1000)
    assert list(tables.mappings) == ["T1"]
    tables.delete_topic("T1")
    assert tables.mappings == {}


def test_a_smaller_id_is_told_to_the_others_and_a_first_one_to_nobody(tables: RouteTables) -> None:
    assert tables.register(announce(broker_id=2), 1000).notice is None
    notice = tables.register(announce(broker_id=1), 1000).notice
    assert notice == MinIdNotice(
        "broker-a", 1, "broker-a-1:10911", ("broker-a-2:10911",), ha_address="broker-a-1:10912"
    )
    assert tables.register(announce(broker_id=1), 2000).notice is None
    assert tables.register(announce(broker_id=3), 2000).notice is None


def test_a_new_address_makes_all_routes_of_its_name_stale_and_a_heartbeat_none(
    tables: RouteTables, forgotten: set[str]
) -> None:
    tables.register(announce(), 1000)
    forgotten.clear()
    tables.register(announce(), 2000)
    assert forgotten == set()
    tables.register(announce(broker_id=1), 2000)
    assert forgotten == set(TOPICS)
    forgotten.clear()
    tables.register(announce(zone="z"), 2000)
    assert forgotten == set(TOPICS)


@pytest.mark.feature("F046")
def test_brokers_of_one_cluster_and_one_topic_stand_side_by_side(tables: RouteTables) -> None:
    for name in ("a", "b", "c"):
        tables.register(announce(name), 1000)
    assert tables.clusters == {"DefaultCluster": {"a", "b", "c"}}
    assert tables.topics["T1"] == ("a", "b", "c")


@pytest.mark.feature("F020")
def test_904_is_a_sign_of_life_and_a_strangers_is_ignored(tables: RouteTables) -> None:
    tables.register(announce(), 1000)
    tables.hear("DefaultCluster", "broker-a-0:10911", 90_000)
    tables.hear("DefaultCluster", "nobody:1", 90_000)
    assert tables.live["DefaultCluster", "broker-a-0:10911"].heard_ms == 90_000
    assert len(tables.live) == 1


def test_322_the_version_of_a_stranger_is_unknown(tables: RouteTables) -> None:
    tables.register(announce(counter=7), 1000)
    assert tables.version_of("DefaultCluster", "broker-a-0:10911") == version(7)
    assert tables.version_of("Other", "broker-a-0:10911") is None


# A registration in slices


def test_a_plan_compares_a_slice_at_a_time_and_touches_nothing_before_it_is_applied(tables: RouteTables) -> None:
    plan = tables.plan(announce(topics={f"T{i}": RW for i in range(1000)}))
    steps = 1
    while plan.compare(100):
        steps += 1
        assert len(plan.changed) <= 100 * steps
        assert tables.topics == {}
    assert steps == 10
    assert tables.apply(plan, 1000).written_count == 1000


def test_a_plan_of_tables_that_have_changed_is_not_applied(tables: RouteTables) -> None:
    tables.register(announce("b"), 1000)
    plan = tables.plan(announce("a"))
    plan.compare(len(TOPICS))
    tables.disconnect("to b-0:10911", 2000)
    with pytest.raises(AssertionError, match="changed since"):
        tables.apply(plan, 3000)


@pytest.mark.parametrize("change", ["wipe", "delete", "unregister", "disconnect", "expire", "topic"])
def test_every_change_of_the_tables_moves_the_revision_and_a_heartbeat_does_not(
    tables: RouteTables, change: str
) -> None:
    tables.register(announce(connection="c"), 1000)
    before = tables.revision
    tables.hear("DefaultCluster", "broker-a-0:10911", 1500)
    assert tables.revision == before
    {
        "wipe": lambda: tables.wipe_write("broker-a"),
        "delete": lambda: tables.delete_topic("T1"),
        "unregister": lambda: tables.unregister("DefaultCluster", "broker-a", "broker-a-0:10911", 2000),
        "disconnect": lambda: tables.disconnect("c", 2000),
        "expire": lambda: tables.expire(200_000),
        "topic": lambda: tables.register_topic("N", {"broker-a": RW}),
    }[change]()
    assert tables.revision > before
