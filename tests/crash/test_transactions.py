"""The power fails while transactions are decided: each is delivered then, or asked about."""

from itertools import islice
from pathlib import Path

import pytest

from bolide.testing import run
from tests.broker.transacting import COMMIT, ROLLBACK, Producer, transacting
from tests.crash.power import PAGE_SIZE, Worlds

WORLDS = 12
BODIES = [b"%d" % number for number in range(3)]  # too few for a flush before its time


def wide(body: bytes) -> bytes:
    """So that no two records lie on one page."""
    return body.ljust(PAGE_SIZE, b".")


@pytest.mark.parametrize("pause_s", [0.1, 3.1])
def test_a_committed_message_is_there_or_asked_about_in_every_world(
    machine: Path, worlds: Worlds, pause_s: float
) -> None:
    left: list[Path] = []

    async def decide() -> None:
        async with transacting(machine / "store") as rig:
            halves = [await rig.prepare(wide(body)) for body in BODIES]
            await rig.room.store.durable()
            for half in halves:
                rig.end(half, COMMIT)
            await rig.pass_time(pause_s)
            left.extend(islice(worlds(), WORLDS))
            rig.is_killed = True

    async def find(world: Path) -> None:
        async with transacting(world / "store") as rig:
            rig.clock.set_wall(1_700_000_100_000)
            producer = rig.join(Producer())
            await rig.transactions.checks.check()
            asked = {half.body for _, half in producer.questions()}
            come = {each.body for each in rig.messages()}
            assert asked | come == {wide(body) for body in BODIES}, world.name

    run(decide())
    for world in left:
        run(find(world))


def test_the_note_of_a_half_message_that_is_lost_does_not_decide_the_next_one_in_its_place(
    machine: Path, worlds: Worlds
) -> None:
    left: list[Path] = []

    async def decide() -> None:
        async with transacting(machine / "store") as rig:
            await rig.prepare(b"open")
            await rig.room.store.durable()
            rig.end(await rig.prepare(wide(b"gone")), ROLLBACK)
            await rig.pass_time(3.1)
            left.extend(islice(worlds(), WORLDS))
            rig.is_killed = True

    async def again(world: Path) -> None:
        async with transacting(world / "store") as rig:
            await rig.prepare(b"next")
            await rig.room.store.durable()
            rig.is_killed = True

    async def find(world: Path) -> None:
        async with transacting(world / "store") as rig:
            rig.clock.set_wall(1_700_000_100_000)
            producer = rig.join(Producer())
            await rig.transactions.checks.check()
            assert {b"open", b"next"} <= {half.body for _, half in producer.questions()}, world.name

    run(decide())
    for world in left:
        run(again(world))
        run(find(world))
