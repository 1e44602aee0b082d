"""An ordered group over the deaths of its broker: no queue changes hands between members that live."""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import uvloop

from bolide import aio
from bolide.errors import BolideError
from bolide.testing import cluster
from tests.crash.flows import CONNECT, PULL
from tests.remoting.loops import POLL_INTERVAL_S, eventually, run_on

log = logging.getLogger(__name__)
MEMBERS = 3
QUEUES = 6
KILLS = 4
LIMIT_S = 60
TOPIC = "Ordered"


@dataclass
class Seen:
    """What the members worked on, in the order in which they began, by queue: who, and at which offset."""

    work: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[int, int] = field(default_factory=dict)
    overlaps: list[tuple[int, int, int]] = field(default_factory=list)
    bodies: set[bytes] = field(default_factory=set)

    def changes_of_hand(self, since: dict[int, int]) -> list[tuple[int, list[int]]]:
        """Queues on which more than one member worked, with who did in turn."""
        turns = {
            queue_id: [who for who, _ in groupby(member for member, _ in work[since.get(queue_id, 0) :])]
            for queue_id, work in self.work.items()
        }
        return [(queue_id, members) for queue_id, members in turns.items() if len(members) > 1]

    def jumps(self) -> list[tuple[int, int, int]]:
        """Messages that were begun before one that lies before them, and was not begun yet."""
        found = []
        for queue_id, work in self.work.items():
            highest = -1
            for _, offset in work:
                if offset > highest + 1:
                    found.append((queue_id, highest, offset))
                highest = max(highest, offset)
        return found


async def consume(namesrv: str, number: int, seen: Seen) -> None:
    async with aio.Consumer(
        "of-Ordered", TOPIC, namesrv, ordered=True, start_from=aio.StartFrom.oldest(), pull=PULL, connect=CONNECT
    ) as consumer:
        async for message in consumer:
            queue_id = message.queue.queue_id
            if queue_id in seen.busy:
                seen.overlaps.append((queue_id, seen.busy[queue_id], number))
            seen.busy[queue_id] = number
            seen.work[queue_id].append((number, message.queue_offset))
            await asyncio.sleep(POLL_INTERVAL_S)
            seen.busy.pop(queue_id, None)
            seen.bodies.add(message.body)
            message.ack()


async def produce(namesrv: str, promised: set[bytes], is_over: asyncio.Event) -> None:
    async with aio.Producer("from-Ordered", namesrv, retry_count=0, timeout_s=2.0, connect=CONNECT) as producer:
        number = 0
        while not is_over.is_set():
            body = b"%d" % number
            with suppress(BolideError, TimeoutError):
                await producer.send(TOPIC, body, shard=str(number % 60))
                promised.add(body)
            number += 1
            await asyncio.sleep(POLL_INTERVAL_S)


async def run_ordered(directory: Path, seed: int) -> None:
    seen, promised, is_over, chance = Seen(), set[bytes](), asyncio.Event(), random.Random(seed)
    async with cluster(processes=True, directory=directory) as rocket, asyncio.TaskGroup() as tasks:
        (broker,) = rocket.brokers
        await rocket.create_topic(TOPIC, queue_count=QUEUES)
        sending = tasks.create_task(produce(rocket.namesrv, promised, is_over), name="produce")
        members = [
            tasks.create_task(consume(rocket.namesrv, number, seen), name=f"member.{number}")
            for number in range(MEMBERS)
        ]
        equal = [QUEUES // MEMBERS] * MEMBERS
        await eventually(lambda: sorted(Counter(work[-1][0] for work in seen.work.values()).values()) == equal, LIMIT_S)
        settled = {queue_id: len(work) - 1 for queue_id, work in seen.work.items()}
        for _ in range(KILLS):
            wanted = len(seen.bodies) + 20 + chance.randrange(80)
            await eventually(lambda: len(seen.bodies) >= wanted, LIMIT_S)  # noqa: B023
            await broker.kill()
            await broker.start()
            await rocket.registered(broker)
        is_over.set()
        await sending
        await eventually(lambda: promised <= seen.bodies, LIMIT_S)
        for task in members:
            task.cancel()
    deliveries = sum(map(len, seen.work.values()))
    log.info("messages=%d deliveries=%d overlaps=%d", len(promised), deliveries, len(seen.overlaps))
    assert seen.changes_of_hand(settled) == []
    assert seen.overlaps == []
    assert seen.jumps() == []


def test_no_queue_changes_hands_between_living_members_when_the_broker_is_killed(tmp_path: Path) -> None:
    run_on(uvloop.new_event_loop, lambda: run_ordered(tmp_path, 7))
