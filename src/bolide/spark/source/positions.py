"""From what a user said of where to begin and end, to one offset for each queue; asks the brokers."""

from collections.abc import Iterable, Mapping

from bolide.client.blocking.connection import Answer
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue
from bolide.spark.cluster import Cluster
from bolide.spark.options import Subscription
from bolide.spark.source.offsets import EARLIEST, LATEST, Position
from bolide.spark.source.pulls import LostMessages, pull_command
from bolide.store.record import store_ms_of

_LOOKED_AT = 32


def resolve(
    cluster: Cluster,
    queues: Iterable[MessageQueue],
    position: Position,
    otherwise: int,
    *,
    fails_on_loss: bool,
    group: str | None = None,
) -> dict[MessageQueue, int]:
    """The offset of each queue; a queue that a list of offsets leaves out is taken by `otherwise`, a word."""
    queues = list(queues)
    low, high = cluster.min_offsets(queues), cluster.max_offsets(queues)
    ends = {EARLIEST: low, LATEST: high}
    if position.time_ms is not None:
        return offsets_at(cluster, queues, position.time_ms, low, high, group)
    if position.word is not None:
        return ends[position.word]
    strangers = sorted(set(position.offsets) - set(queues))
    if strangers:
        raise ClientError(f"offsets were given for {_name(strangers[0])}, which is not read here; check the names")
    found: dict[MessageQueue, int] = {}
    for queue in queues:
        offset = position.offsets.get(queue, otherwise)
        if offset in ends:
            offset = ends[offset][queue]
        elif not low[queue] <= offset <= high[queue]:
            if fails_on_loss:
                raise LostMessages(
                    f"{_name(queue)} has offsets {low[queue]} to {high[queue]}, and {offset} was asked for; "
                    "with failOnDataLoss=false the nearest is taken"
                )
            offset = min(max(offset, low[queue]), high[queue])
        found[queue] = offset
    return found


def offsets_at(
    cluster: Cluster,
    queues: list[MessageQueue],
    time_ms: int,
    low: Mapping[MessageQueue, int],
    high: Mapping[MessageQueue, int],
    group: str | None = None,
) -> dict[MessageQueue, int]:
    """The first offset of each queue that was stored at a time or later; its end if there is none.

    A broker of 4.9 answers with the nearest message, before or after, so its answer is only where to look.
    """
    near = cluster.offsets_near(queues, time_ms)
    at = {queue: min(max(near[queue] - 1, low[queue]), high[queue]) for queue in queues}
    left = [queue for queue in queues if at[queue] < high[queue]]
    while left:
        looked = cluster.ask_queues(
            left,
            lambda queue: pull_command(queue, at[queue], _LOOKED_AT, Subscription(), group),
            lambda queue, answer: _first_from(answer, time_ms),
        )
        moved = []
        for queue in left:
            offset, is_found = looked[queue]
            offset = min(high[queue] if offset is None else offset, high[queue])
            if not is_found and at[queue] < offset < high[queue]:
                moved.append(queue)  # anyone who does not move on has nothing more to tell
            at[queue] = max(at[queue], offset)
        left = moved
    return at


def _first_from(answer: Answer, time_ms: int) -> tuple[int | None, bool]:
    """The offset of the first record not before a time, and that it was found; else where to look next."""
    if answer.code:
        next_offset = answer.fields.get("nextBeginOffset")
        return (None if next_offset is None else int(next_offset)), next_offset is None
    records, position = answer.body, 0
    while position < len(records):
        record = records[position:]
        if store_ms_of(record) >= time_ms:
            return int.from_bytes(record[20:28], "big"), True
        position += int.from_bytes(record[:4], "big")
    return int(answer.fields["nextBeginOffset"]), False


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
