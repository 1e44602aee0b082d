"""The route tables as askers see them: routes of a topic, lists of topics. Pure: tables in, bodies and lists out."""

from collections.abc import Iterable

import msgspec

from bolide.namesrv.entries import MASTER_ID, Broker, QueueRow
from bolide.namesrv.routes import RouteTables
from bolide.protocol.bodies.routes import BrokerMembers, BrokerRoute, Clusters, QueueRoute, TopicRoute

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2
# Topics by which a 5.x broker group keeps itself in step: they are never shown with a slave in the master's place.
_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def route(tables: RouteTables, topic: str, *, acting_master: bool = False) -> TopicRoute | None:
    """The route of a topic, or None when no broker has it; with `acting_master` a slave may stand in for a master."""
    names = tables.topics.get(topic)
    if names is None:
        return None
    acting_master = acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX)
    queues = []
    brokers = []
    filter_servers = {}
    for name in names:
        row = tables.queues[name][topic]
        broker = tables.brokers[name]
        queues.append(_queue_route(name, row))
        brokers.append(_broker_route(broker, acting_master and not row.is_writable))
        for address in broker.addresses.values():
            servers = tables.filter_servers.get((broker.cluster, address))
            if servers:
                filter_servers[address] = servers
    return TopicRoute(
        queue_datas=queues,
        broker_datas=brokers,
        filter_server_table=filter_servers,
        topic_queue_mapping_by_broker=tables.mappings.get(topic),
    )


def clusters(tables: RouteTables) -> Clusters:
    """Every broker with its addresses, and which cluster has which brokers."""
    return Clusters(
        broker_addr_table={name: _broker_route(broker, False) for name, broker in tables.brokers.items()},
        cluster_addr_table={cluster: sorted(names) for cluster, names in tables.clusters.items()},
    )


def members(tables: RouteTables, cluster: str, name: str) -> BrokerMembers:
    """Who shares a broker name; nobody when it is unknown."""
    broker = tables.brokers.get(name)
    addresses = dict(sorted(broker.addresses.items())) if broker else {}
    return BrokerMembers(cluster=cluster, broker_name=name, broker_addrs=addresses)


def topics_of_cluster(tables: RouteTables, cluster: str) -> list[str]:
    names = sorted(tables.clusters.get(cluster, ()))
    return list(dict.fromkeys(topic for name in names for topic in tables.queues.get(name, ())))


def system_topics(tables: RouteTables) -> tuple[list[str], str | None]:
    """Each cluster's name followed by its brokers' names, and the address of some broker to ask for the rest."""
    names = [name for cluster, members in tables.clusters.items() for name in (cluster, *sorted(members))]
    addresses = (address for broker in tables.brokers.values() for address in broker.addresses.values())
    return list(dict.fromkeys(names)), next(addresses, None)


def unit_topics(tables: RouteTables) -> list[str]:
    return [topic for topic, flags in _flags(tables) if flags & UNIT_FLAG]


def unit_subscribed_topics(tables: RouteTables) -> list[str]:
    return [topic for topic, flags in _flags(tables) if flags & UNIT_SUBSCRIPTION_FLAG]


def unit_subscribed_plain_topics(tables: RouteTables) -> list[str]:
    wanted = UNIT_SUBSCRIPTION_FLAG
    return [topic for topic, flags in _flags(tables) if flags & (UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG) == wanted]


def _flags(tables: RouteTables) -> Iterable[tuple[str, int]]:
    return ((topic, tables.queues[names[0]][topic].flags) for topic, names in tables.topics.items())


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The route as a client of one zone sees it: brokers of other zones are left out while their master is up."""
    outside = {
        broker.broker_name
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs and (broker.zone_name or "").lower() != zone.lower()
    }
    brokers = [broker for broker in route.broker_datas if broker.broker_name not in outside]
    addresses = {address for broker in brokers for address in broker.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=brokers,
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in outside],
        filter_server_table={
            address: servers for address, servers in route.filter_server_table.items() if address in addresses
        },
    )


def _queue_route(name: str, row: QueueRow) -> QueueRoute:
    return QueueRoute(
        broker_name=name,
        read_queue_nums=row.read_count,
        write_queue_nums=row.write_count,
        perm=row.perm,
        topic_sys_flag=row.flags,
    )


def _broker_route(broker: Broker, has_slave_for_master: bool) -> BrokerRoute:
    addresses = dict(sorted(broker.addresses.items()))
    if has_slave_for_master and broker.has_acting_master and broker.is_without_master:
        addresses = {MASTER_ID: addresses.pop(min(addresses)), **addresses}
    return BrokerRoute(
        cluster=broker.cluster,
        broker_name=broker.name,
        broker_addrs=addresses,
        enable_acting_master=broker.has_acting_master,
        zone_name=broker.zone,
    )
