"""Where a topic's queues are, as a client sees it: pure functions from the name server's answer to two lists.

Who sends needs a writable queue with a master behind it; who reads needs a readable queue and anybody behind it. Both
lists are sorted by broker name and number, because every client must count them alike: a hash that chooses a queue and
an allocation that shares them rely on the place in the list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import QueueRoute, TopicRoute

MASTER_ID = 0
_READ, _WRITE = 4, 2


@dataclass(frozen=True, slots=True)
class Route:
    """One topic: the queues to send to, the queues to read, and the addresses of the brokers by name and id.

    `filter_servers` has the addresses of those beside a broker, by the broker's address.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    filter_servers: Mapping[str, list[str]] = field(default_factory=dict)


def route_of(topic: str, answer: TopicRoute) -> Route:
    """The route in a name server's answer."""
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in answer.broker_datas}
    rows = sorted(answer.queue_datas, key=lambda row: row.broker_name)
    if answer.order_topic_conf:
        publish = _ordered_queues(topic, answer.order_topic_conf)
    else:
        writable = (row for row in rows if row.perm & _WRITE and MASTER_ID in addresses.get(row.broker_name, {}))
        publish = _queues(topic, {row.broker_name: row.write_queue_nums for row in writable})
    readable = {row.broker_name: row.read_queue_nums for row in rows if row.perm & _READ}
    return Route(topic, publish, _queues(topic, readable), addresses, dict(answer.filter_server_table))


def route_to_create(topic: str, default: TopicRoute, queue_count: int) -> Route:
    """The route of a topic that does not exist yet: the brokers of the default topic will make it."""
    rows = [_narrowed(row, min(queue_count, row.read_queue_nums)) for row in default.queue_datas]
    return route_of(topic, TopicRoute(broker_datas=default.broker_datas, queue_datas=rows))


def _narrowed(row: QueueRoute, count: int) -> QueueRoute:
    return QueueRoute(broker_name=row.broker_name, perm=row.perm, read_queue_nums=count, write_queue_nums=count)


def _queues(topic: str, counts: Mapping[str, int]) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, name, number) for name, count in counts.items() for number in range(count))


def _ordered_queues(topic: str, text: str) -> tuple[MessageQueue, ...]:
    """`broker:count;broker:count`, set by an operator: these queues and no others, so that hashes stay put."""
    counts = {}
    for part in text.split(";"):
        name, _, count = part.partition(":")
        if name.strip() and count.strip().isdecimal():
            counts[name.strip()] = int(count)
    return _queues(topic, counts)
