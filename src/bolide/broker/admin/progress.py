"""Requests about how far groups lie behind, in messages and in time.

Looking up when a message was stored costs a few microseconds, and a group can have thousands of queues: anyone who asks
takes turns with others who ask for as much (`slow_work.py`).
"""

from collections.abc import Iterable

from bolide.broker.state import BrokerState
from bolide.broker.tables.places import known_topic
from bolide.model.queue import MessageQueue, QueueKey
from bolide.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    QueueName,
    QueueProgress,
    QueueTimeSpan,
    TimeSpans,
    TopicConfig,
)
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.groups import GetBrokerConsumeStatsRequest, GetConsumeStatsRequest
from bolide.protocol.headers.topics import QueryConsumeTimeSpanRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request
from bolide.remoting.slow_work import Place, place_of

_QUEUES_A_TURN = 64


class Progress:
    """How far groups are, compared with what there is."""

    def __init__(self, state: BrokerState) -> None:
        self._settings = state.settings
        self._offsets = state.offsets
        self._members = state.members
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store
        self._stats = state.stats
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
        }

    async def of_group(self, request: Request) -> Command:
        """208: how far a group is in the queues of its topics, or of those named."""
        header = GetConsumeStatsRequest.decode(request.command.fields)
        group = header.consumer_group
        named = [topic for topic in (header.topics or "").split(";") if topic] or (
            [header.topic] if header.topic else []
        )
        queues: dict[MessageQueue, QueueProgress] = {}
        rate = 0.0
        with place_of(request.session) as place:
            await place.turn()
            for config in self._topics_of(group, named or self._offsets.topics_of(group)):
                queues |= await self._progress(group, config, config.read_queue_nums, place)
                rate += self._stats.got_rate(group, config.topic_name)
        return request.command.answer(
            ResponseCode.SUCCESS, body=ConsumeStats(consume_tps=rate, offset_table=queues).encode()
        )

    async def of_all_groups(self, request: Request) -> Command:
        """317: how far all groups are; with `isOrder` in ordered topics only."""
        with place_of(request.session) as place:
            await place.turn()
            return await self._of_all_groups(request, place)

    async def _of_all_groups(self, request: Request, place: Place) -> Command:
        header = GetBrokerConsumeStatsRequest.decode(request.command.fields)
        topics_by_group: dict[str, list[str]] = {group: [] for group in self._groups.table}
        for key in self._offsets.table:
            topic, _, group = key.partition("@")
            if group in topics_by_group:
                topics_by_group[group].append(topic)
        listed: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = 0
        for group, topics in topics_by_group.items():
            stats = []
            for config in self._topics_of(group, topics):
                if header.is_ordered and not config.order:
                    continue
                queues = await self._progress(group, config, config.write_queue_nums, place)
                rate = self._stats.got_rate(group, config.topic_name)
                stats.append(ConsumeStats(consume_tps=rate, offset_table=queues))
                behind += sum(each.broker_offset - each.consumer_offset for each in queues.values())
                in_flight += sum(each.pull_offset - each.consumer_offset for each in queues.values())
            listed.append({group: stats})
        body = ConsumeStatsList(
            broker_addr=request.session.local,
            consume_stats_list=listed,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return request.command.answer(ResponseCode.SUCCESS, body=body.encode())

    async def time_spans(self, request: Request) -> Command:
        """303: the times of a topic's oldest and newest messages, and of the last one a group has settled."""
        header = QueryConsumeTimeSpanRequest.decode(request.command.fields)
        spans = []
        with place_of(request.session) as place:
            await place.turn()
            for queue_id in range(known_topic(self._topics, header.topic).write_queue_nums):
                spans.append(self._time_span(header.group, header.topic, queue_id))
                if queue_id % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                    await place.turn()
        return request.command.answer(ResponseCode.SUCCESS, body=TimeSpans(consume_time_span_set=spans).encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queue = self._store.queue(QueueKey(topic, queue_id))
        next_offset = queue.next_offset if queue is not None else 0
        oldest_ms = self._store_ms(topic, queue_id, queue.min_offset if queue is not None else 0)
        offset = self._offsets.get(group, topic, queue_id) or 0
        delay_ms = 0
        if offset < next_offset and (waiting_ms := self._store_ms(topic, queue_id, offset)) >= 0:
            delay_ms = self._clock.now_ms() - waiting_ms
        return QueueTimeSpan(
            consume_time_stamp=self._store_ms(topic, queue_id, offset - 1) if offset > 0 else oldest_ms,
            delay_time=delay_ms,
            max_time_stamp=self._store_ms(topic, queue_id, next_offset - 1),
            message_queue=QueueName(broker_name=self._settings.now.name, queue_id=queue_id, topic=topic),
            min_time_stamp=oldest_ms,
        )

    def _topics_of(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """The topics that are here and that the group did not stop subscribing to, as far as it is online."""
        online = self._members.consumers(group)
        wanted = online.subscriptions if online is not None else {}
        found = [self._topics.find(topic) for topic in topics if not wanted or topic in wanted]
        return [config for config in found if config is not None]

    async def _progress(
        self, group: str, config: TopicConfig, queue_count: int, place: Place
    ) -> dict[MessageQueue, QueueProgress]:
        topic = config.topic_name
        progress = {}
        for queue_id in range(queue_count):
            queue = self._store.queue(QueueKey(topic, queue_id))
            offset = max(0, self._offsets.get(group, topic, queue_id) or 0)
            pulled = self._offsets.get_pulled(group, topic, queue_id) or 0
            progress[MessageQueue(topic, self._settings.now.name, queue_id)] = QueueProgress(
                broker_offset=queue.next_offset if queue is not None else 0,
                consumer_offset=offset,
                last_timestamp=max(0, self._store_ms(topic, queue_id, offset - 1)),
                pull_offset=max(offset, pulled),
            )
            if queue_id % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                await place.turn()
        await place.turn()  # a group may have many topics of few queues
        return progress

    def _store_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored, -1 if it is not here."""
        queue = self._store.queue(QueueKey(topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return -1
        return self._store.store_ms(queue, offset)
