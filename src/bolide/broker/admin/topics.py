"""Requests of administrators about topics: create, change, delete, show.

A change is answered when it is on disk, the replicas that may lead next have it, and the name servers that answer know
it: the one who was told of success finds the topic at once, after a crash, and after another broker took over. Name
servers that are silent are waited for no longer than a moment.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from bolide.broker.replication.catalog import Catalog
from bolide.broker.state import BrokerState
from bolide.broker.tables.attributes import TOPIC_ATTRIBUTES, altered, parse_change
from bolide.broker.tables.places import known_topic
from bolide.broker.tables.topics import PERM_ALL
from bolide.errors import Refusal, StoreError
from bolide.model.names import path_problem, topic_problem
from bolide.model.queue import MessageQueue, QueueKey
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.bodies.queues import QueueSpan, TopicStats
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigList
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.topics import (
    DeleteTopicRequest,
    GetTopicConfigRequest,
    GetTopicStatsRequest,
    UpdateTopicRequest,
)
from bolide.protocol.popped import retry_topic_v1, retry_topic_v2
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request
from bolide.remoting.slow_work import place_of

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
INT32_MAX = 0x7FFF_FFFF
_QUEUES_A_TURN = 64
log = logging.getLogger(__name__)


class TopicCalls:
    """Who administers topics; `announced` waits a moment until name servers know of a change."""

    def __init__(self, state: BrokerState, catalog: Catalog, announced: Callable[[], Awaitable[object]]) -> None:
        self._topics = state.topics
        self._offsets = state.offsets
        self._store = state.store
        self._settings = state.settings
        self._stats = state.stats
        self._meter = state.meter
        self._catalog = catalog
        self._announced = announced

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    async def update(self, request: Request) -> Command:
        """17: create a topic or change it; one that is already so stays as it is, without a new version."""
        header = UpdateTopicRequest.decode(request.command.fields)
        wanted = TopicConfig(
            attributes=parse_change(header.attributes),
            order=header.is_ordered,
            perm=header.permission,
            read_queue_nums=header.read_queue_count,
            topic_filter_type=header.filter_type,
            topic_name=header.topic,
            topic_sys_flag=header.sys_flag or 0,
            write_queue_nums=header.write_queue_count,
        )
        return await self._update_all(request, [wanted])

    async def update_list(self, request: Request) -> Command:
        """18: several topics, all or none."""
        return await self._update_all(request, TopicConfigList.decode(request.command.body).topic_config_list)

    async def _update_all(self, request: Request, wanted: list[TopicConfig]) -> Command:
        self._catalog.check()
        configs = [self._checked(config) for config in wanted]
        changed = [config for config in configs if self._topics.find(config.topic_name) != config]
        self._topics.update_all(configs)
        for config in changed:
            log.info(
                "topic set topic=%s read=%d write=%d perm=%d order=%s attributes=%s by=%s",
                config.topic_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                config.order,
                config.attributes,
                request.session.peer,
            )
        await kept(self._catalog)
        await self._announced()
        return request.command.answer(ResponseCode.SUCCESS)

    def _checked(self, wanted: TopicConfig) -> TopicConfig:
        """The topic as it will be kept; raises Refusal for what cannot be."""
        topic = wanted.topic_name
        problem = topic_problem(topic) or _count_problem(wanted) or _kind_problem(wanted)
        if problem is None and self._topics.is_system(topic):
            problem = f"topic {topic!r} belongs to RocketMQ itself; choose another name"
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        known = self._topics.find(topic)
        attributes = altered(known.attributes if known is not None else {}, wanted.attributes, TOPIC_ATTRIBUTES)
        if attributes.get("message.type") == "MIXED" and not self._settings.now.mixes_types:
            remark = f"topic {topic!r} takes no MIXED messages: set enableMixedMessageType=true on the broker first"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return msgspec.structs.replace(wanted, attributes=attributes, mapping_detail=None)

    async def delete(self, request: Request) -> Command:
        """215: forget a topic, who had read it how far, and its queues; its records expire with the log.

        One that is not here is no error: tools tell every broker of a cluster.
        """
        topic = DeleteTopicRequest.decode(request.command.fields).topic
        if self._topics.is_system(topic):
            remark = f"topic {topic!r} belongs to RocketMQ itself and cannot be deleted"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        # One that stands in the table may go, however it came by its name; what nobody made need not be looked for.
        problem = path_problem(topic) if self._topics.find(topic) is not None else topic_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        self._catalog.check()
        groups = self._offsets.groups_of(topic)
        retries = [name for group in groups for name in (retry_topic_v1(group, topic), retry_topic_v2(group, topic))]
        for name in [topic, *(name for name in retries if self._topics.find(name) is not None)]:
            self._topics.remove(name)
            self._offsets.remove_topic(name)
            self._store.remove_topic(name)
            self._stats.forget_topic(name)
            if self._meter is not None:
                self._meter.forget_topic(name)
            log.info("topic deleted topic=%s by=%s", name, request.session.peer)
        await kept(self._catalog)
        return request.command.answer(ResponseCode.SUCCESS)

    def config(self, request: Request) -> Command:
        """351: what a topic is set to."""
        config = known_topic(self._topics, GetTopicConfigRequest.decode(request.command.fields).topic)
        return request.command.answer(ResponseCode.SUCCESS, body=config.encode())

    def all(self, request: Request) -> Command:
        """21: all topics. 5.x can ask for them in pages; without a total in the answer this is the only one."""
        return request.command.answer(ResponseCode.SUCCESS, body=self._topics.snapshot().encode())

    async def stats(self, request: Request) -> Command:
        """202: from where to where each queue of a topic reaches, and when its last message came."""
        config = known_topic(self._topics, GetTopicStatsRequest.decode(request.command.fields).topic)
        topic, broker = config.topic_name, self._settings.now.name
        spans: dict[MessageQueue, QueueSpan] = {}
        with place_of(request.session) as place:
            await place.turn()
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                spans[MessageQueue(topic, broker, queue_id)] = self._span(topic, queue_id)
                if queue_id % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                    await place.turn()
        body = TopicStats(offset_table=spans, topic_put_tps=self._stats.put_rate(topic)).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def _span(self, topic: str, queue_id: int) -> QueueSpan:
        queue = self._store.queue(QueueKey(topic, queue_id))
        if queue is None:
            return QueueSpan()
        last_offset = queue.next_offset - 1
        last_ms = self._store.store_ms(queue, last_offset) if last_offset >= queue.min_offset else 0
        return QueueSpan(
            last_update_timestamp=max(0, last_ms), max_offset=queue.next_offset, min_offset=queue.min_offset
        )

    def system_topics(self, request: Request) -> Command:
        """305: the topics that belong to RocketMQ itself."""
        topics = TopicList(topic_list=sorted(self._topics.system_names))
        return request.command.answer(ResponseCode.SUCCESS, body=topics.encode())


async def kept(catalog: Catalog) -> None:
    """Wait until a change is kept; raises Refusal where that failed: it holds now, but a crash would undo it."""
    try:
        await catalog.flush()
    except StoreError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the change holds, but not on disk: {problem}") from None


def _count_problem(wanted: TopicConfig) -> str | None:
    for word, count in (("readQueueNums", wanted.read_queue_nums), ("writeQueueNums", wanted.write_queue_nums)):
        if not 0 <= count <= QUEUE_COUNT_MAX:
            return f"{word} = {count}: a topic has 0 to {QUEUE_COUNT_MAX} queues"
    return None


def _kind_problem(wanted: TopicConfig) -> str | None:
    if not 0 <= wanted.perm <= PERM_ALL:
        return f"perm = {wanted.perm}: must be a sum of 4 (read), 2 (write) and 1 (inherit)"
    if wanted.topic_filter_type not in FILTER_TYPES:
        return f"topicFilterType = [{wanted.topic_filter_type}] value invalid: must be {' or '.join(FILTER_TYPES)}"
    if not 0 <= wanted.topic_sys_flag <= INT32_MAX:
        return f"topicSysFlag = {wanted.topic_sys_flag}: must be 0 (plain), 1 (unit), 2 (unit subscriptions) or 3"
    return None
