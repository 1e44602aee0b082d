"""What askers see of the tables."""

import msgspec
import pytest

from bolide.namesrv import views
from bolide.namesrv.entries import QueueRow
from bolide.namesrv.routes import RouteTables
from tests.namesrv.brokers import RW, TOPICS, announce


@pytest.fixture
def tables() -> RouteTables:
    return RouteTables()


@pytest.mark.feature("F029")
def test_105_a_route_has_the_queues_of_every_broker_and_all_their_addresses(tables: RouteTables) -> None:
    tables.register(announce("a"), 0)
    tables.register(announce("a", 1), 0)
    tables.register(announce("b", topics={"T1": QueueRow(1, 2, 4, 1), "X": RW}), 0)
    route = views.route(tables, "T1")
    assert route is not None
    assert msgspec.json.decode(route.encode()) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "a-0:10911", "1": "a-1:10911"},
                "brokerName": "a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            },
            {
                "brokerAddrs": {"0": "b-0:10911"},
                "brokerName": "b",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            },
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4},
            {"brokerName": "b", "perm": 4, "readQueueNums": 1, "topicSysFlag": 1, "writeQueueNums": 2},
        ],
    }
    assert views.route(tables, "unknown") is None


@pytest.mark.feature("F044")
def test_filter_servers_and_static_mappings_are_part_of_the_route(tables: RouteTables) -> None:
    mapping = msgspec.Raw(b'{"bname":"a"}')
    tables.register(announce("a", filter_servers=["f:1"], mappings={"T1": mapping}), 0)
    route = views.route(tables, "T1")
    assert route is not None
    assert route.filter_server_table == {"a-0:10911": ["f:1"]}
    assert msgspec.json.decode(route.encode())["topicQueueMappingByBroker"] == {"a": {"bname": "a"}}
    other = views.route(tables, "T2")
    assert other is not None
    assert other.topic_queue_mapping_by_broker is None


def test_a_slave_stands_in_for_a_lost_master_only_where_all_three_allow_it(tables: RouteTables) -> None:
    for name, acting in (("a", True), ("b", False)):
        tables.register(announce(name, 0, acting_master=acting), 0)
        tables.register(announce(name, 2, acting_master=acting), 0)
        tables.register(announce(name, 3, acting_master=acting), 0)
        tables.unregister("DefaultCluster", name, f"{name}-0:10911", 1)
        tables.wipe_write(name)

    def seen(topic: str, acting_master: bool) -> dict[str, dict[int, str]]:
        route = views.route(tables, topic, acting_master=acting_master)
        assert route is not None
        return {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}

    real = {"a": {2: "a-2:10911", 3: "a-3:10911"}, "b": {2: "b-2:10911", 3: "b-3:10911"}}
    assert seen("T1", False) == real
    assert seen("T1", True) == {"a": {0: "a-2:10911", 3: "a-3:10911"}, "b": real["b"]}
    assert tables.brokers["a"].addresses == real["a"]  # the table itself is unchanged
    tables.add_write("a")
    assert seen("T1", True) == real


def test_the_topics_by_which_a_group_keeps_in_step_show_the_real_ids(tables: RouteTables) -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_a"
    tables.register(announce("a", 1, topics={topic: RW, "T": RW}, acting_master=True), 0)
    route = views.route(tables, topic, acting_master=True)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "a-1:10911"}


def test_a_zone_sees_its_own_brokers_and_those_without_a_master(tables: RouteTables) -> None:
    tables.register(announce("here", zone="Z1", filter_servers=["f:1"]), 0)
    tables.register(announce("there", zone="Z2", filter_servers=["f:2"]), 0)
    tables.register(announce("nowhere"), 0)
    tables.register(announce("headless", 0, zone="Z2"), 0)
    tables.register(announce("headless", 1, zone="Z2"), 0)
    tables.unregister("DefaultCluster", "headless", "headless-0:10911", 1)
    route = views.route(tables, "T1")
    assert route is not None
    seen = views.in_zone(route, "z1")
    assert [broker.broker_name for broker in seen.broker_datas] == ["here", "headless"]
    assert [queue.broker_name for queue in seen.queue_datas] == ["here", "headless"]
    assert list(seen.filter_server_table) == ["here-0:10911"]


@pytest.mark.feature("F042")
def test_106_clusters_list_their_brokers(tables: RouteTables) -> None:
    tables.register(announce("b", cluster="C1"), 0)
    tables.register(announce("a", cluster="C1"), 0)
    tables.register(announce("c", cluster="C2"), 0)
    clusters = views.clusters(tables)
    assert clusters.cluster_addr_table == {"C1": ["a", "b"], "C2": ["c"]}
    assert clusters.broker_addr_table["c"].broker_addrs == {0: "c-0:10911"}
    assert clusters.broker_addr_table["c"].cluster == "C2"


def test_901_members_share_a_name_and_an_unknown_name_has_none(tables: RouteTables) -> None:
    tables.register(announce("a", 1), 0)
    tables.register(announce("a", 0), 0)
    assert views.members(tables, "DefaultCluster", "a").broker_addrs == {0: "a-0:10911", 1: "a-1:10911"}
    assert views.members(tables, "DefaultCluster", "ghost").broker_addrs == {}


def test_224_topics_of_a_cluster_are_named_once(tables: RouteTables) -> None:
    tables.register(announce("a", cluster="C1"), 0)
    tables.register(announce("b", cluster="C1"), 0)
    tables.register(announce("c", topics={"X": RW, "Y": RW}, cluster="C2"), 0)
    assert sorted(views.topics_of_cluster(tables, "C1")) == sorted(TOPICS)
    assert views.topics_of_cluster(tables, "no such cluster") == []


def test_304_system_topics_are_named_after_clusters_and_brokers(tables: RouteTables) -> None:
    assert views.system_topics(tables) == ([], None)
    tables.register(announce("b", cluster="C1"), 0)
    tables.register(announce("a", cluster="C1"), 0)
    assert views.system_topics(tables) == (["C1", "a", "b"], "b-0:10911")


def test_311_312_313_topics_are_told_apart_by_their_unit_flags(tables: RouteTables) -> None:
    tables.register(announce(topics={f"flags-{flags}": QueueRow(1, 1, 6, flags) for flags in range(4)}), 0)
    assert views.unit_topics(tables) == ["flags-1", "flags-3"]
    assert views.unit_subscribed_topics(tables) == ["flags-2", "flags-3"]
    assert views.unit_subscribed_plain_topics(tables) == ["flags-2"]
