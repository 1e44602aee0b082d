"""Parked pulls against a model: whatever happens in which order, each is answered once or goes with its connection."""

import asyncio
import random
import struct
from collections import Counter
from typing import Any, cast

import pytest

from bolide.broker.config import BrokerConfig, LiveConfig
from bolide.broker.pulling.longpoll import ParkedPull, ParkedPulls
from bolide.protocol.command import Command
from bolide.remoting.owner import Reply, Request
from bolide.store.dispatch import Arrival
from bolide.testing import VirtualClock
from tests.remoting.loops import virtual_time

ENTRY = struct.Struct(">qiq")
TAGS = (1, 2, 3)


class Line:
    """What a parked pull sees of its session."""

    def __init__(self) -> None:
        self.unsent_size = 0
        self.origin = "127.0.0.1"

    def answer(self, request: Request, serve: Any) -> None:
        serve()

    def flush(self) -> None:
        pass


class World:
    """Some queues with their ends, some connections, and what became of each pull."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = VirtualClock()
        self.parked = ParkedPulls(LiveConfig(BrokerConfig()), self.clock)
        self.ends = {("T", queue_id): 0 for queue_id in range(3)}
        self.lines = [Line() for _ in range(4)]
        self.waiting: dict[int, tuple[Line, tuple[str, int], frozenset[int] | None, float]] = {}
        self.answered: Counter[int] = Counter()
        self.due: set[int] = set()  # must be answered before the turn ends

    def park(self, number: int) -> None:
        line, key = self.dice.choice(self.lines), self.dice.choice(list(self.ends))
        wanted = self.dice.choice((None, frozenset([1]), frozenset([2, 3]), frozenset()))
        hold_ms = self.dice.choice((0, 1000, 15_000))

        def resume() -> Reply:
            self.answered[number] += 1
            self.waiting.pop(number, None)  # it may have left in the turn in which it was woken
            return None

        request = Request(Command(11, opaque=number), cast(Any, line), 0.0)
        self.parked.park(ParkedPull(request, key, self.ends[key], wanted, resume), hold_ms)
        self.waiting[number] = line, key, wanted, self.clock.monotonic_s() + hold_ms / 1000

    def arrive(self) -> None:
        key = self.dice.choice(list(self.ends))
        tags = [self.dice.choice(TAGS) for _ in range(self.dice.randrange(1, 4))]
        entries = b"".join(ENTRY.pack(n * 100, 100, tag) for n, tag in enumerate(tags))
        self.parked.on_arrival(Arrival(*key, self.ends[key], entries, 0))
        self.ends[key] += len(tags)
        for number, (line, place, wanted, _) in self.waiting.items():
            if place == key and not line.unsent_size and (wanted is None or wanted & set(tags)):
                self.due.add(number)

    def leave(self) -> None:
        line = self.dice.choice(self.lines)
        self.parked.left(cast(Any, line))
        # Who was woken in this turn is on its way, and its session drops what it cannot send.
        for number in [each for each, about in self.waiting.items() if about[0] is line and each not in self.due]:
            del self.waiting[number]

    async def check(self) -> None:
        await asyncio.sleep(self.dice.choice((0.5, 5)))  # virtual
        now_s = self.clock.monotonic_s()
        overdue = {
            n for n, (line, _, _, due_s) in self.waiting.items() if due_s + 0.1 <= now_s and not line.unsent_size
        }
        await self.parked.check()
        self.due |= overdue

    async def end_turn(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        assert not self.due & self.waiting.keys(), "woken or overdue, and not answered"
        self.due.clear()
        assert self.parked.count == len(self.waiting)
        assert not self.answered or max(self.answered.values()) == 1


@pytest.mark.parametrize("seed", range(20))
@virtual_time
async def test_every_parked_pull_is_answered_once_or_goes_with_its_connection(seed) -> None:
    world = World(seed)
    dice = world.dice
    for number in range(300):
        step = dice.randrange(10)
        if step < 4:
            world.park(number)
        elif step < 7:
            world.arrive()
        elif step == 7:
            world.leave()
        elif step == 8:
            dice.choice(world.lines).unsent_size = dice.choice((0, 0, 1 << 30))
        else:
            await world.check()
        if dice.random() < 0.7:
            await world.end_turn()
    await world.end_turn()
    for line in world.lines:
        line.unsent_size = 0
    await asyncio.sleep(20)  # virtual
    await world.parked.check()
    await world.end_turn()
    parked = world.parked
    assert not world.waiting
    assert not any((parked._by_queue, parked._by_session, parked._by_tick, parked._stirred, parked._woken))
    assert len(world.answered) > 30
