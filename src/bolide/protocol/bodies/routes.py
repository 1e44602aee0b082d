"""What the name server tells: where topics and brokers are, and the small tables it keeps for others.

| here | RocketMQ |
|---|---|
| `DataVersion` | DataVersion |
| `TopicRoute`, `BrokerRoute`, `QueueRoute` | TopicRouteData, BrokerData, QueueData |
| `Clusters` | ClusterInfo |
| `BrokerMembers`, `BrokerMembersAnswer` | BrokerMemberGroup, GetBrokerMemberGroupResponseBody |
| `TopicList`, `KVTable` | the same |
"""

from typing import Self

import msgspec

from bolide.protocol.bodies.body import Body, always, write

_BROKERS_START = b'{"brokerDatas":['
_ADDRESSES_START = b'{"brokerAddrs":{'


class DataVersion(Body, frozen=True, kw_only=True, gc=False):
    """Which state of a table this is; two are the same only in all three members. 4.9 has no state_version."""

    rocketmq_name = "DataVersion"

    counter: int = always(0)
    state_version: int = always(0)
    timestamp: int = always(0)


class QueueRoute(Body, frozen=True, kw_only=True, gc=False):
    """How many queues of a topic one broker name has, and what may be done with them."""

    rocketmq_name = "QueueData"

    broker_name: str = always("")
    perm: int = always(0)
    read_queue_nums: int = always(0)
    topic_sys_flag: int = always(0)
    write_queue_nums: int = always(0)


class BrokerRoute(Body, frozen=True, kw_only=True, gc=False):
    """The addresses of all that share one broker name; id 0 is the master."""

    rocketmq_name = "BrokerData"

    broker_addrs: dict[int, str] = always({})
    broker_name: str = always("")
    cluster: str = always("")
    enable_acting_master: bool = always(False)
    zone_name: str | None = None

    def encode_bare(self) -> bytes:
        """With bare integer keys, as fastjson writes them."""
        start, end = _cut(msgspec.structs.replace(self, broker_addrs={}).encode(), _ADDRESSES_START)
        entries = [b"%d:%b" % (id_, write(address)) for id_, address in self.broker_addrs.items()]
        return start + b",".join(entries) + end


class TopicRoute(Body, frozen=True, kw_only=True):
    """Where a topic's queues are. `topic_queue_mapping_by_broker` (static topics, 5.x) is passed on as it came."""

    rocketmq_name = "TopicRouteData"

    broker_datas: list[BrokerRoute] = always([])
    filter_server_table: dict[str, list[str]] = always({})
    order_topic_conf: str | None = None
    queue_datas: list[QueueRoute] = always([])
    topic_queue_mapping_by_broker: dict[str, msgspec.Raw] | None = None

    def encode_bare(self) -> bytes:
        """For clients before 4.9.4: broker ids without quotes, since the Go client cuts that very text by hand."""
        start, end = _cut(msgspec.structs.replace(self, broker_datas=[]).encode(), _BROKERS_START)
        return start + b",".join([broker.encode_bare() for broker in self.broker_datas]) + end

    @classmethod
    def decode(cls, data: bytes) -> Self:
        # Until 4.8 the flag of a queue was misspelled on the wire.
        return super().decode(data.replace(b'"topicSynFlag"', b'"topicSysFlag"'))


def _cut(text: bytes, start: bytes) -> tuple[bytes, bytes]:
    """Cut after the opening of the first member, which is empty."""
    assert text.startswith(start), "the member to fill must be the first one"
    return start, text[len(start) :]


class Clusters(Body, frozen=True, kw_only=True):
    """Every broker name with its addresses, and which cluster has which names."""

    rocketmq_name = "ClusterInfo"

    broker_addr_table: dict[str, BrokerRoute] = always({})
    cluster_addr_table: dict[str, list[str]] = always({})


class BrokerMembers(Body, frozen=True, kw_only=True, gc=False):
    """Who is alive under one broker name."""

    rocketmq_name = "BrokerMemberGroup"

    broker_addrs: dict[int, str] = always({})
    broker_name: str = always("")
    cluster: str = always("")


class BrokerMembersAnswer(Body, frozen=True, kw_only=True):
    """The answer to 901; without the member the name is unknown."""

    rocketmq_name = "GetBrokerMemberGroupResponseBody"

    broker_member_group: BrokerMembers | None = None


class TopicList(Body, frozen=True, kw_only=True):
    """Names of topics. `broker_addr` is some broker that can be asked for its own system topics."""

    rocketmq_name = "TopicList"

    broker_addr: str | None = None
    topic_list: list[str] = always([])


class KVTable(Body, frozen=True, kw_only=True):
    """Keys and texts: a namespace of the name server, or what a broker tells of its state."""

    rocketmq_name = "KVTable"

    table: dict[str, str] = always({})
