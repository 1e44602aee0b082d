"""The topics of a broker, as it tells them to name servers, slaves and tools.

| here | RocketMQ |
|---|---|
| `TopicConfig` | TopicConfig, TopicConfigAndQueueMapping |
| `TopicTable` | TopicConfigSerializeWrapper, TopicConfigAndMappingSerializeWrapper |
| `TopicConfigList` | CreateTopicListRequestBody |
| `Registration` | RegisterBrokerBody; `registration.py` knows its other forms |
"""

import msgspec

from bolide.model.names import Key, Label, Text, TopicName
from bolide.protocol.bodies.body import Body, always
from bolide.protocol.bodies.routes import DataVersion


class TopicConfig(Body, frozen=True, kw_only=True, gc=False):
    """One topic in one broker; not tracked by the garbage collector, for a registration holds thousands.

    `mapping_detail` (static topics, 5.x) is passed on as it came. 4.9 has no attributes.
    """

    rocketmq_name = "TopicConfig"

    attributes: dict[Key, Text] = always({})
    mapping_detail: dict[Text, msgspec.Raw] | None = None
    order: bool = always(False)
    perm: int = always(6)
    read_queue_nums: int = always(16)
    topic_filter_type: Label = always("SINGLE_TAG")
    topic_name: TopicName = always("")
    topic_sys_flag: int = always(0)
    write_queue_nums: int = always(16)


class TopicTable(Body, frozen=True, kw_only=True):
    """All topics of a broker. The mapping members belong to static topics (5.x) and are passed on as they came."""

    rocketmq_name = "TopicConfigSerializeWrapper"

    data_version: DataVersion = always(DataVersion())
    mapping_data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = always({})
    topic_queue_mapping_detail_map: dict[str, msgspec.Raw] | None = None
    topic_queue_mapping_info_map: dict[str, msgspec.Raw] | None = None


class TopicConfigList(Body, frozen=True, kw_only=True):
    """Topics to create or change together."""

    rocketmq_name = "CreateTopicListRequestBody"
    is_request = True

    topic_config_list: list[TopicConfig] = always([])


class Registration(Body, frozen=True, kw_only=True):
    """What a broker tells a name server about its topics, every 30 seconds."""

    rocketmq_name = "RegisterBrokerBody"

    filter_server_list: list[str] = always([])
    topic_config_serialize_wrapper: TopicTable = always(TopicTable())

    @property
    def topics(self) -> TopicTable:
        return self.topic_config_serialize_wrapper
