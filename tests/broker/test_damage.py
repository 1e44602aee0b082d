"""Bits that flip while a broker works on what it stored: each costs the message it is in, and nothing else."""

import asyncio
import logging
from itertools import pairwise

import pytest

from bolide.broker.pop.revivals import Revivals
from bolide.broker.tables.offsets import Offsets
from bolide.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.store.mishaps import Mishaps
from bolide.testing import VirtualClock, run
from tests.broker.damage import flip, flip_each, place_of, readable
from tests.broker.delaying import delaying
from tests.broker.open_tables import tables
from tests.broker.poppers import REVIVE_TOPIC, Popper, popping
from tests.broker.pullers import GROUP, TOPIC
from tests.broker.timing import timing
from tests.broker.transacting import Producer, transacting
from tests.remoting.loops import virtual_time

COUNT = 120  # of messages, every other one damaged
DAMAGED = list(range(1, COUNT, 2))
WHOLE = [b"message %03d" % number for number in range(0, COUNT, 2)]
INVISIBLE_S = 5


async def all_popped(popper: Popper, **how: object) -> list[bytes]:
    """Everything a group gets now, in the order of its bodies."""
    bodies: list[bytes] = []
    while popped := await popper.bodies(**how):
        bodies += popped
    return sorted(bodies)


def whole_of(bodies: list[bytes]) -> list[bytes]:
    """Those of them that were never damaged: what a flipped bit made of the others is nobody's promise."""
    return sorted(body for body in set(bodies) if body in WHOLE)


@virtual_time
async def test_a_popped_message_that_is_damaged_costs_itself_and_no_other(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(*(b"message %03d" % number for number in range(COUNT)))
        popper = await Popper.connect(rig)
        assert len(await all_popped(popper, invisible_ms=INVISIBLE_S * 1000)) == COUNT
        assert len(list(flip_each(rig.store, TOPIC, DAMAGED))) == len(DAMAGED)
        await asyncio.sleep(INVISIBLE_S + 2)  # virtual
        assert rig.room.revivals.out_count <= 1  # one that the store does not take is tried again
        assert whole_of(readable(rig.store, lambda topic: topic.startswith("%RETRY%"))) == WHOLE
        assert 0 < rig.store.mishaps.counts["pop.revivals"] <= len(DAMAGED)
        # And everything goes on.
        rig.put(b"fresh")
        answer = await popper.peer.ask(popper.pop_request(consumer_group="another"))
        assert (answer.code, bool(answer.body)) == (0, True)
        popper.peer.leave()


@virtual_time
async def test_a_damaged_word_in_the_revive_log_costs_what_it_speaks_of(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(*(b"message %03d" % number for number in range(COUNT)))
        popper = await Popper.connect(rig)
        for _ in range(COUNT):
            await popper.pop(message_count_max=1, invisible_ms=INVISIBLE_S * 1000)
        written = [(queue_id, len(rig.records(REVIVE_TOPIC, queue_id))) for queue_id in range(8)]
        for queue_id, count in written:
            list(flip_each(rig.store, REVIVE_TOPIC, list(range(0, count, 5)), queue_id))
        again = Revivals(rig.state, rig.intake)
        rig.offsets.put(GROUP, TOPIC, 0, 0)
        rig.offsets.written_ms = 0
        await again.load()
        assert COUNT > again.out_count >= COUNT * 3 // 5
        assert rig.offsets.get(GROUP, TOPIC, 0) in range(COUNT + 1)
        await asyncio.sleep(INVISIBLE_S + 2)  # virtual
        await again.revive_due()
        assert again.out_count == 0
        popper.peer.leave()


def test_a_damaged_delayed_message_costs_itself_and_no_other(tmp_path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as side:
            for number in range(COUNT):
                await side.send(3, b"message %03d" % number)
            store = side.sending.store
            list(flip_each(store, SCHEDULE_TOPIC, DAMAGED, 2))
            await asyncio.sleep(15)  # virtual
            assert whole_of(readable(store, lambda topic: topic != SCHEDULE_TOPIC)) == WHOLE
            await side.send(3, WHOLE[0])
            await asyncio.sleep(15)  # virtual
            assert readable(store, lambda topic: topic == "Orders").count(WHOLE[0]) == 2

    run(scenario())


@pytest.mark.parametrize("is_filed", [True, False])
def test_a_damaged_timed_message_costs_itself_and_no_other(tmp_path, is_filed) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, timerStopEnqueue="false" if is_filed else "true") as side:
            for number in range(COUNT):
                await side.delay(10, b"message %03d" % number, key=f"u{number}")
            await asyncio.sleep(1)  # virtual
            store = side.sending.store
            list(flip_each(store, TIMER_TOPIC, DAMAGED))
            side.sending.tables.set(timerStopEnqueue="false")
            side.timers.wake()
            await asyncio.sleep(20)  # virtual
            assert whole_of(readable(store, lambda topic: topic != TIMER_TOPIC)) == WHOLE
            await side.delay(5, WHOLE[0])
            await asyncio.sleep(10)  # virtual
            assert readable(store, lambda topic: topic == "Orders").count(WHOLE[0]) == 2

    run(scenario())


def test_a_damaged_half_message_costs_itself_and_no_other(tmp_path) -> None:
    async def scenario() -> None:
        async with transacting(tmp_path) as rig:
            for number in range(COUNT):
                await rig.prepare(b"message %03d" % number)
            list(flip_each(rig.room.store, HALF_TOPIC, DAMAGED))
            producer = rig.join(Producer())
            await rig.pass_time(60)
            for _ in range(3):
                await rig.transactions.checks.check()
                await rig.pass_time(60)
            asked = [half.body for _, half in producer.questions()]
            assert whole_of(asked) == WHOLE

    run(scenario())


def test_a_damaged_op_record_has_its_own_asked_about_again_and_no_other(tmp_path) -> None:
    async def scenario() -> None:
        async with transacting(tmp_path) as rig:
            for number in range(COUNT):
                half = await rig.prepare(b"message %03d" % number)
                if number % 2 == 0:
                    rig.end(half, 12)
                    await rig.transactions.save()  # a record for each
            list(flip_each(rig.room.store, OP_HALF_TOPIC, list(range(0, COUNT // 2, 3))))
            list(flip_each(rig.room.store, HALF_TOPIC, DAMAGED))
            await rig.transactions.load()
            producer = rig.join(Producer())
            await rig.pass_time(60)
            await rig.transactions.checks.check()
            asked = [half.body for _, half in producer.questions()]
            assert len(whole_of(asked)) <= len(WHOLE) // 3

    run(scenario())


def test_an_offset_that_cannot_be_written_costs_itself_and_no_other(tmp_path) -> None:
    async def scenario() -> None:
        async with tables(tmp_path, VirtualClock()) as kept:
            offsets = Offsets(tmp_path / "config", kept.table_writer, VirtualClock())
            offsets.put("g", "before", 0, 1)
            offsets.table["odd@g"] = {0: 1 << 70}  # no request comes so far
            offsets.put("g", "behind", 0, 2)
            await offsets.kept()
            await offsets.stop()
            await kept.table_writer.flush()
            again = Offsets(tmp_path / "config", kept.table_writer, VirtualClock())
            assert (again.get("g", "before", 0), again.get("g", "behind", 0)) == (1, 2)

    run(scenario())


def test_a_table_that_cannot_be_told_in_text_keeps_no_other_from_the_disk(tmp_path) -> None:
    async def scenario() -> None:
        async with tables(tmp_path, VirtualClock()) as kept:
            kept.table_writer.save(tmp_path / "odd.json", lambda: str(1 // 0))
            kept.table_writer.save(tmp_path / "lone.json", lambda: "\ud800")
            kept.table_writer.save(tmp_path / "whole.json", lambda: "{}")
            await asyncio.sleep(1)  # virtual
            kept.table_writer.save(tmp_path / "odd.json", lambda: "1")
            kept.table_writer.save(tmp_path / "lone.json", lambda: "2")
            await kept.table_writer.flush()
        assert [(tmp_path / f"{name}.json").read_text() for name in ("odd", "lone", "whole")] == ["1", "2", "{}"]

    run(scenario())


def test_a_task_that_fails_begins_again_and_says_so_less_and_less(caplog) -> None:
    times = []

    async def work() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 100:
            raise KeyError("odd")

    mishaps = Mishaps()
    with caplog.at_level(logging.ERROR):
        run(mishaps.lasting("test.work", work))
    assert len(times) == 100
    assert mishaps.counts == {"test.work": 99}
    assert len(caplog.records) == 8 + 3  # 16, 32, 64
    assert max(after - before for before, after in pairwise(times)) <= 60.1


@virtual_time
async def test_a_queue_offset_that_flipped_in_a_popped_record_leads_its_group_nowhere(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(*(b"message %03d" % number for number in range(8)))
        place, _ = place_of(rig.store, TOPIC, 3)
        flip(rig.store, place + 20, 5)  # the highest byte of its queue offset
        popper = await Popper.connect(rig)
        assert len(await all_popped(popper, invisible_ms=INVISIBLE_S * 1000)) >= 7
        assert rig.offsets.get(GROUP, TOPIC, 0) == 8
        await asyncio.sleep(INVISIBLE_S + 2)  # virtual
        assert rig.room.revivals.out_count == 0
        assert len(readable(rig.store, lambda topic: topic.startswith("%RETRY%"))) >= 7
        again = Revivals(rig.state, rig.intake)
        rig.offsets.put(GROUP, TOPIC, 0, 0)
        rig.offsets.written_ms = 0
        await again.load()
        assert rig.offsets.get(GROUP, TOPIC, 0) in range(9)
        popper.peer.leave()
