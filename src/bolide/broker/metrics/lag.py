"""How far consumer groups are behind: in messages and in time, for every group that has an offset here.

RocketMQ forgets a group whose members are offline, just when its lag matters, and computes each of its five numbers in
a walk of its own. Here there is one walk over the table of offsets, from memory but for one read of the log for each
queue that is behind. Lag is the end of a queue less the committed offset; its age is that of the message at the
committed offset. What is not known is absent, and no number is below 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bolide.broker.pop.lanes import origin_of
from bolide.broker.state import BrokerState
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.bodies import MessageModel
from bolide.store.consumequeue import ConsumeQueue


class Progress(NamedTuple):
    """How far a group is in a topic; None is not known."""

    group: str
    topic: str
    is_retry: bool
    lag: int
    inflight: int | None
    ready: int | None
    lag_ms: int | None
    queueing_ms: int | None
    queues: dict[int, int]  # queue → messages behind


def walk(state: BrokerState) -> Iterator[Progress | None]:
    """The progress of all groups, one topic at a time; None where there is nothing to tell, and others may have a turn.

    A group's own retry topic is left out, as in RocketMQ, unless it pops: then it is `is_retry` of the topic.
    """
    for key in list(state.offsets.table):
        topic, _, group = key.partition("@")
        online = state.members.consumers(group)
        is_shared = online is None or online.model is not MessageModel.BROADCASTING
        origin = origin_of(group, topic) if topic.startswith(RETRY_PREFIX) else topic
        if not is_shared or origin.startswith(RETRY_PREFIX) or state.topics.find(topic) is None:
            yield None
            continue
        yield _of(state, group, topic, origin)


def _of(state: BrokerState, group: str, topic: str, origin: str) -> Progress:
    now_ms = state.clock.now_ms()
    queues: dict[int, int] = {}
    inflight = ready = 0
    is_pulled = False
    lags_ms: list[int] = []
    queueings_ms: list[int] = []
    pulls = state.offsets.pulls_of(group, topic)
    for queue_id, committed in state.offsets.queues_of(group, topic).items():
        queue = state.store.find_queue((topic, queue_id))
        end = 0 if queue is None else queue.next_offset
        behind = queues[queue_id] = end - committed if end > committed else 0
        if behind and queue is not None:
            lags_ms += _age(state, queue, max(committed, queue.min_offset), now_ms)
        pulled = pulls.get(queue_id)
        if pulled is not None:
            is_pulled, pulled = True, max(pulled, committed)
            inflight += max(0, min(pulled, end) - committed)
            ready += max(0, end - pulled)
            if pulled < end and queue is not None:
                queueings_ms += _age(state, queue, max(pulled, queue.min_offset), now_ms)
    lag = sum(queues.values())
    return Progress(
        group,
        origin,
        origin != topic,
        lag,
        inflight if is_pulled else None,
        ready if is_pulled else None,
        0 if not lag else max(lags_ms, default=None),
        None if not is_pulled else 0 if not ready else max(queueings_ms, default=None),
        queues,
    )


def _age(state: BrokerState, queue: ConsumeQueue, offset: int, now_ms: int) -> list[int]:
    """Of one message; none where it cannot be read."""
    store_ms = state.store.store_ms(queue, offset)
    return [] if store_ms < 0 else [max(0, now_ms - store_ms)]
