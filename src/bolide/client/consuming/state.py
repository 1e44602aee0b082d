"""How a consumer runs, for an administrator who asks (307): its queues, and where its threads and tasks are."""

import asyncio
import sys
import traceback
from collections.abc import Iterable
from threading import enumerate as threads

from bolide import __version__
from bolide.client.consuming.inflight import InFlight
from bolide.clock import Clock
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.clients import ConsumeType, Subscription
from bolide.protocol.bodies.consumers import QueueAtWork, RunningConsumer

_MIB = 1 << 20


def queues_at_work(owned: Iterable[InFlight], needs_lock: bool, clock: Clock) -> dict[MessageQueue, QueueAtWork]:
    """What was taken of each queue and is not settled."""

    def moment_ms(then_s: float) -> int:
        return clock.now_ms() - int((clock.monotonic_s() - then_s) * 1000) if then_s else 0

    table = {}
    for inflight in owned:
        first, last = inflight.bounds
        table[inflight.queue] = QueueAtWork(
            cached_msg_count=len(inflight),
            cached_msg_min_offset=first,
            cached_msg_max_offset=last,
            cached_msg_size_in_mib=inflight.held_size // _MIB,
            commit_offset=inflight.commit_offset,
            is_dropped=inflight.is_dropped,
            last_pull_timestamp=moment_ms(inflight.pulled_s),
            last_consume_timestamp=moment_ms(inflight.taken_s),
            locked=needs_lock and inflight.is_locked,
            last_lock_timestamp=moment_ms(inflight.locked_s) if needs_lock else 0,
        )
    return table


def running_state(
    properties: dict[str, str],
    subscriptions: Iterable[Subscription],
    queues: dict[MessageQueue, QueueAtWork],
    *,
    with_stacks: bool,
) -> RunningConsumer:
    """The answer to 307; tools cannot do without the properties they know."""
    known = {"PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY, "PROP_CLIENT_VERSION": f"Bolide {__version__}"}
    return RunningConsumer(
        properties={**known, **properties},
        subscription_set=list(subscriptions),
        mq_table=queues,
        jstack=stacks() if with_stacks else None,
    )


def stacks() -> str:
    """Where every thread and every task is."""
    frames = sys._current_frames()
    lines = []
    for thread in threads():
        frame = frames.get(thread.ident or 0)
        lines.append(f"thread {thread.name}\n")
        lines += traceback.format_stack(frame) if frame is not None else []
    for task in asyncio.all_tasks():
        where = [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}\n" for frame in task.get_stack()
        ]
        lines += [f"task {task.get_name()}\n", *where]
    return "".join(lines)
