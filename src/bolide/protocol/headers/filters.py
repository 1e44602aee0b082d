"""Filter servers of RocketMQ 4.x: how one registers with its broker, and how a consumer gives it a filter."""

from bolide.model.names import GroupName, Label, Text, TopicName
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class RegisterFilterServerRequest(RequestHeader):
    """I stand beside you; consumers find me there."""

    address: Text = wire("filterServerAddr")  # `filter_servers.py` knows what an address is


@header
class RegisterFilterServerAnswer(Header):
    """Whom it stands beside."""

    broker_name: Label = wire("brokerName")
    broker_id: Int64 = wire("brokerId")


@header
class RegisterFilterClassRequest(RequestHeader):
    """The filter of a group for a topic; the body is its source, `crc` its CRC-32 cut to 31 bits."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    class_name: Label = wire("className")
    crc: Int32 = wire("classCRC")
