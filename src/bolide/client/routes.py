"""Where a topic's queues are, as a client sees it: pure functions from the name server's answer to two lists.

Who sends needs a writable queue with a master behind it; who reads needs a readable queue and anybody behind it. Both
lists are sorted by broker name and number, because every client must count them alike: a hash that chooses a queue and
an allocation that shares them rely on the place in the list.

A name server repeats what somebody told it. A broker that claims more queues than one can have is left out, and a route
with more of them than a client could hold is refused: nobody makes this process make objects by the million.
"""

from collections.abc import Mapping

import msgspec

from bolide.errors import ClientError
from bolide.model.queue import MessageQueue
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute

MASTER_ID = 0
QUEUES_MAX = 4 * QUEUE_COUNT_MAX  # of one topic, in all brokers
_READ, _WRITE = 4, 2
_COUNT_DIGITS_MAX = 10


class Route(msgspec.Struct, frozen=True):
    """One topic: the queues to send to, the queues to read, and the addresses of the brokers by name and id.

    `filter_servers` has the addresses of those beside a broker, by the broker's address.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    filter_servers: Mapping[str, list[str]] = msgspec.field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # brokers that claim more queues than one can have


def route_of(topic: str, answer: TopicRoute) -> Route:
    """The route in a name server's answer; raises ClientError for one that no client could hold."""
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in answer.broker_datas}
    told = sorted(answer.queue_datas, key=lambda row: row.broker_name)
    rows = [row for row in told if max(row.read_queue_nums, row.write_queue_nums) <= QUEUE_COUNT_MAX]
    left_out = tuple(row.broker_name for row in told if row not in rows) if len(rows) < len(told) else ()
    if left_out and not rows:
        text = f"topic {topic} has no queue that can be used: {left_out[0]} claims more than {QUEUE_COUNT_MAX} of them"
        raise ClientError(f"{text}; see with `bolide topic show {topic}` who registered it")
    if answer.order_topic_conf:
        publish = _ordered_queues(topic, answer.order_topic_conf)
    else:
        writable = (row for row in rows if row.perm & _WRITE and MASTER_ID in addresses.get(row.broker_name, {}))
        publish = _queues(topic, {row.broker_name: row.write_queue_nums for row in writable})
    readable = {row.broker_name: row.read_queue_nums for row in rows if row.perm & _READ}
    return Route(topic, publish, _queues(topic, readable), addresses, dict(answer.filter_server_table), left_out)


def route_to_create(topic: str, default: TopicRoute, queue_count: int) -> Route:
    """The route of a topic that does not exist yet: the brokers of the default topic will make it."""
    rows = [_narrowed(row, min(queue_count, row.read_queue_nums)) for row in default.queue_datas]
    return route_of(topic, TopicRoute(broker_datas=default.broker_datas, queue_datas=rows))


def _narrowed(row: QueueRoute, count: int) -> QueueRoute:
    return QueueRoute(broker_name=row.broker_name, perm=row.perm, read_queue_nums=count, write_queue_nums=count)


def _queues(topic: str, counts: Mapping[str, int]) -> tuple[MessageQueue, ...]:
    total = sum(max(count, 0) for count in counts.values())
    if total > QUEUES_MAX:
        text = (
            f"topic {topic} has {total} queues in {len(counts)} brokers, says the name server; {QUEUES_MAX} can be used"
        )
        raise ClientError(f"{text}; see with `bolide topic show {topic}` who registered it")
    return tuple(MessageQueue(topic, name, number) for name, count in counts.items() for number in range(count))


def _ordered_queues(topic: str, text: str) -> tuple[MessageQueue, ...]:
    """`broker:count;broker:count`, set by an operator: these queues and no others, so that hashes stay put."""
    counts = {}
    for part in text.split(";"):
        name, _, count = part.partition(":")
        count = count.strip()
        if name.strip() and count.isascii() and count.isdecimal() and len(count) < _COUNT_DIGITS_MAX:
            counts[name.strip()] = min(int(count), QUEUE_COUNT_MAX)
    return _queues(topic, counts)
