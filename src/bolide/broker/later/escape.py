"""Sending a message that is due to the master of another name: RocketMQ's escape, for a slave that may not write.

Any other master that has the topic will do. Messages of one queue go to one queue, as long as the same masters are
there, so that they stay in order. The message is what it was, with its id and its times; only what had it wait is taken
off. One that has to wait on in a timer, for it is farther away than a wheel reaches, waits at the other master. So does
a half message: it is an original there, and that master asks its producers, counting its checks from the first.
"""

import logging
from enum import Enum, auto
from typing import NamedTuple

from bolide.broker.pop.queues import TopicQueues
from bolide.broker.state import BrokerState
from bolide.broker.tables.topics import PERM_WRITE
from bolide.errors import BolideError, Refusal
from bolide.model import properties as names
from bolide.protocol import sysflags
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.properties import decode_properties, encode_properties
from bolide.remoting.client import Client
from bolide.store.record import Draft

SEND_LIMIT_S = 3.0
_KEPT_S = 5.0  # a route; one whose masters took nothing is asked for again at once
_KEPT_MAX = 10_000
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_WAITED = (
    *(names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID),
    *(names.TIMER_OUT_AT, *names.TIMED_NAMES),
    *(names.TRANSACTION_PREPARED, names.PREPARED_QUEUE_OFFSET, names.TRANSACTION_CHECK_TIMES),
)
log = logging.getLogger(__name__)


class Escaping(Enum):
    """What becomes of a message at the other master."""

    DELIVERED = auto()
    TIMED = auto()
    HALF = auto()


class _Target(NamedTuple):
    """A master that takes messages of a topic."""

    broker_name: str
    address: str
    queue_count: int


class Escape:
    """Sends to other masters; `queues` asks name servers where a topic is."""

    def __init__(self, state: BrokerState, client: Client, queues: TopicQueues) -> None:
        self._settings = state.settings
        self._clock = state.clock
        self._client = client
        self._queues = queues
        self._targets: dict[str, tuple[float, list[_Target]]] = {}

    async def send(self, draft: Draft, how: Escaping = Escaping.DELIVERED, found_by: str = "") -> None:
        """Have another master store a message; raises Refusal where none did.

        A topic that may be made by its first message is `found_by` another: any master that has that one will do.
        """
        found_by = found_by or draft.topic
        targets = await self._find(found_by)
        problem = "no other master has it"
        for i in range(len(targets)):
            target = targets[(draft.queue_id + i) % len(targets)]
            try:
                answer = await self._client.request(target.address, self._command(draft, target, how), SEND_LIMIT_S)
                if answer.code in _STORED:
                    return
                problem = f"{target.broker_name} answered {answer.code}: {answer.remark}"
            except BolideError as failure:
                problem = f"{target.broker_name}: {failure}"
        if targets:
            self._targets.pop(found_by, None)
        raise Refusal(ResponseCode.SYSTEM_BUSY, f"a due message of topic {draft.topic!r} is not taken: {problem}")

    async def _find(self, topic: str) -> list[_Target]:
        known = self._targets.get(topic)
        if known is not None and self._clock.monotonic_s() < known[0]:
            return known[1]
        route = await self._queues.route(topic)
        if route is None:
            return []
        masters = {broker.broker_name: broker.broker_addrs.get(0, "") for broker in route.broker_datas}
        targets = [
            _Target(row.broker_name, masters[row.broker_name], row.write_queue_nums)
            for row in sorted(route.queue_datas, key=lambda row: row.broker_name)
            if row.broker_name != self._settings.now.name and row.perm & PERM_WRITE and row.write_queue_nums > 0
            if masters.get(row.broker_name)
        ]
        if len(self._targets) >= _KEPT_MAX:
            self._targets.clear()
        self._targets[topic] = self._clock.monotonic_s() + _KEPT_S, targets
        return targets

    def _command(self, draft: Draft, target: _Target, how: Escaping) -> Command:
        properties = decode_properties(draft.properties)
        kept = {name: value for name, value in properties.items() if name not in _WAITED}
        config = self._settings.now
        group = f"InnerProducerGroup_{config.name}_{config.broker_id}"
        sys_flag = draft.sys_flag & ~(sysflags.HOSTS_MASK | sysflags.TRANSACTION_MASK)
        if how is Escaping.TIMED:  # a millisecond more, which is rounded off again
            kept[names.TIMER_DELIVER_AT] = str(int(properties[names.TIMER_OUT_AT]) + 1)
        elif how is Escaping.HALF:
            kept[names.TRANSACTION_PREPARED] = "true"
            group = kept.get(names.PRODUCER_GROUP) or group
            sys_flag |= sysflags.PREPARED
        header = SendMessageRequest(
            producer_group=group,
            topic=draft.topic,
            default_topic="TBW102",
            default_topic_queue_count=4,
            queue_id=draft.queue_id % target.queue_count,
            sys_flag=sys_flag,
            born_ms=draft.born_ms,
            flag=draft.flag,
            properties=encode_properties(kept).decode(),
            reconsume_times=draft.reconsume_times,
        )
        return Command(RequestCode.SEND_MESSAGE_V2, fields=header.encode(short=True), body=bytes(draft.body))
