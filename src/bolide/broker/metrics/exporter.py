"""The older rocketmq-exporter's names, for dashboards that were made for it (`bolideMetricsNames=exporter`).

The exporter asks brokers by request once a minute; here the numbers are read where they are. What it learned from each
client (307) and what is not here (thread pools) is absent.
"""

from collections.abc import Iterator

from bolide.broker.metrics import lag
from bolide.broker.state import BrokerState
from bolide.metrics.page import Family, Page, Sample, labels
from bolide.model.queue import QueueKey
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from bolide.protocol.bodies import MessageModel

Samples = Iterator[Sample | None]
_MODELS = {MessageModel.BROADCASTING: "0", MessageModel.CLUSTERING: "1"}


def _gauge(name: str, text: str) -> Family:
    return Family(f"rocketmq_{name}", "gauge", text)


BROKER_TPS = _gauge("broker_tps", "Messages stored a second, over a minute.")
BROKER_QPS = _gauge("broker_qps", "Messages handed out a second, over a minute.")
PRODUCER_TPS = _gauge("producer_tps", "Messages stored a second, over a minute, by topic.")
PRODUCER_OFFSET = _gauge("producer_offset", "The ends of a topic's queues, added up.")
RETRY_OFFSET = _gauge("topic_retry_offset", "The ends of a retry topic's queues, added up.")
DLQ_OFFSET = _gauge("topic_dlq_offset", "The ends of a dead-letter topic's queues, added up.")
CONSUMER_TPS = _gauge("consumer_tps", "Messages handed out a second, over a minute, by topic and group.")
CONSUMER_OFFSET = _gauge("consumer_offset", "Committed offsets, added up over a topic's queues.")
LATENCY = _gauge("group_get_latency_by_storetime", "Age in ms of the message at the committed offset.")
GROUP_DIFF = _gauge("group_diff", "Messages behind.")
GROUP_RETRY_DIFF = _gauge("group_retrydiff", "Messages behind in the retry topic.")
GROUP_COUNT = _gauge("group_count", "Members of a group.")


def families(state: BrokerState) -> Page:
    """What we have of them."""
    config, stats = state.settings.now, state.stats
    here = labels(broker=config.name)
    minute = stats.rates(60)
    yield BROKER_TPS, [(here, minute.put_count)]
    yield BROKER_QPS, [(here, minute.got_count)]
    yield PRODUCER_TPS, ((text, stats.put_rate(topic)) for text, topic in _topics(state, ""))
    yield PRODUCER_OFFSET, ((text, _end(state, topic)) for text, topic in _topics(state, ""))
    yield RETRY_OFFSET, ((text, _end(state, topic)) for text, topic in _topics(state, RETRY_PREFIX))
    yield DLQ_OFFSET, ((text, _end(state, topic)) for text, topic in _topics(state, DEAD_LETTER_PREFIX))
    progress: list[lag.Progress] = []
    yield CONSUMER_OFFSET, _offsets(state, progress)
    firsts = [each for each in progress if not each.is_retry]  # a popping group's retries have the topic's labels too
    yield CONSUMER_TPS, ((_of(state, each), stats.got_rate(each.group, each.topic)) for each in firsts)
    yield LATENCY, ((_of(state, each), each.lag_ms) for each in firsts if each.lag_ms is not None)
    yield GROUP_DIFF, ((_of_group(state, each), each.lag) for each in firsts)
    yield GROUP_RETRY_DIFF, ((_of_group(state, each), each.lag) for each in progress if each.is_retry)
    groups = state.members.consumer_groups
    yield GROUP_COUNT, ((labels(group=name), len(group.channels)) for name, group in list(groups.items()))


def _topics(state: BrokerState, prefix: str) -> Iterator[tuple[str, str]]:
    """Topics of one kind with their label texts."""
    for topic in list(state.topics.table):
        kind = next((each for each in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(each)), "")
        if kind == prefix and not is_system_topic(topic):
            yield labels(broker=state.settings.now.name, topic=topic), topic


def _end(state: BrokerState, topic: str) -> int:
    config = state.topics.find(topic)
    count = 0 if config is None else config.read_queue_nums
    return sum(state.store.max_offset(QueueKey(topic, queue_id)) for queue_id in range(count))


def _offsets(state: BrokerState, told: list[lag.Progress]) -> Samples:
    for each in lag.walk(state):
        if each is None:
            yield None
            continue
        told.append(each)
        if each.is_retry:
            yield None
            continue
        yield _of(state, each), sum(state.offsets.queues_of(each.group, each.topic).values())


def _of(state: BrokerState, each: lag.Progress) -> str:
    return labels(broker=state.settings.now.name, topic=each.topic, group=each.group)


def _of_group(state: BrokerState, each: lag.Progress) -> str:
    online = state.members.consumers(each.group)
    member_count = 0 if online is None else len(online.channels)
    model = _MODELS.get(MessageModel.CLUSTERING if online is None else online.model, "1")
    return labels(group=each.group, topic=each.topic, countOfOnlineConsumers=str(member_count), msgModel=model)
