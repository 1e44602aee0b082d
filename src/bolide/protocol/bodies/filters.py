"""consumerFilter.json: what groups filter by other than tags."""

from bolide.protocol.bodies.body import Body, always


class FilterBits(Body, frozen=True, kw_only=True):
    """Under which bits a filter is filed in a Java broker's map."""

    rocketmq_name = "BloomFilterData"

    bit_num: int = always(0)
    bit_pos: list[int] = always([])


class FilterEntry(Body, frozen=True, kw_only=True):
    """The filter of a group in a topic. `dead_time` is when its last member left, 0 while one is there."""

    rocketmq_name = "ConsumerFilterData"

    bloom_filter_data: FilterBits | None = None
    born_time: int = always(0)
    client_version: int = always(0)
    consumer_group: str = always("")
    dead: bool = always(False)
    dead_time: int = always(0)
    expression: str = always("")
    expression_type: str = always("")
    topic: str = always("")


class TopicFilters(Body, frozen=True, kw_only=True):
    """The filters of a topic by group."""

    rocketmq_name = "FilterDataMapByTopic"

    group_filter_data: dict[str, FilterEntry] = always({})
    topic: str = always("")


class FilterTable(Body, frozen=True, kw_only=True):
    """All filters by topic: the file."""

    rocketmq_name = "ConsumerFilterManager"

    filter_data_by_topic: dict[str, TopicFilters] = always({})
