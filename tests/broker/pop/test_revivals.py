"""The life of a popped message: acknowledged and gone, or given again; also when the broker dies in between."""

import asyncio
import random
from pathlib import Path

import pytest

from bolide.model.queue import QueueKey
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import ResponseCode
from bolide.store.record import decode
from bolide.testing import VirtualClock
from tests.broker.poppers import RETRY_TOPIC, REVIVE_TOPIC, Popped, Popper, Rig, popping
from tests.broker.pullers import GROUP, TOPIC
from tests.remoting.loops import eventually, virtual_time
from tests.store.given import START_MS

INVISIBLE_S = 60


async def pass_by(seconds: float) -> None:
    """Let time pass, and a scan after it."""
    await asyncio.sleep(seconds + 1.1)  # virtual


@pytest.mark.feature("X01")
@virtual_time
async def test_an_acknowledged_message_never_comes_again(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        for popped in await popper.pop():
            assert await popper.ack(popped) == 0
        assert rig.room.revivals.out_count == 0
        await pass_by(INVISIBLE_S)
        assert await popper.pop() == []
        assert rig.kept.topics.find(RETRY_TOPIC) is None
        popper.peer.leave()


@pytest.mark.feature("X01")
@virtual_time
async def test_one_that_is_not_comes_again_after_its_time_and_says_so(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"again", TAGS="A", KEYS="k", UNIQ_KEY="U1")
        popper = await Popper.connect(rig)
        (first,) = await popper.pop()
        await asyncio.sleep(INVISIBLE_S - 1)  # virtual
        assert await popper.pop() == []
        await pass_by(1)
        assert rig.offsets.get(GROUP, RETRY_TOPIC, 0) == 0  # who asks for the group's progress sees it
        (second,) = await popper.pop(expression="A")
        message = second.message
        assert (message.body, message.topic, message.reconsume_times) == (b"again", TOPIC, 1)
        assert (message.tags, message.keys, message.unique_id) == ("A", ["k"], "U1")
        assert message.properties["RETRY_TOPIC"] == TOPIC
        assert message.properties["1ST_POP_TIME"] == str(first.handle.popped_ms)
        assert message.properties["ORIGIN_GROUP"] == GROUP
        assert message.born_at == first.message.born_at
        await pass_by(INVISIBLE_S)
        (third,) = await popper.pop()
        assert (third.message.reconsume_times, third.message.properties["RETRY_TOPIC"]) == (2, TOPIC)
        assert third.message.properties["1ST_POP_TIME"] == str(first.handle.popped_ms)
        assert await popper.ack(third) == 0
        await pass_by(INVISIBLE_S)
        assert await popper.pop() == []
        popper.peer.leave()


@virtual_time
async def test_a_waiting_pop_is_woken_by_what_comes_back(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"again")
        popper = await Popper.connect(rig)
        await popper.pop(invisible_ms=5_000)
        started_ms = clock.now_ms()
        assert await popper.bodies(poll_ms=15_000) == [b"again"]
        assert 5_000 <= clock.now_ms() - started_ms <= 6_100
        popper.peer.leave()


@virtual_time
async def test_an_acknowledgement_that_comes_too_late_or_twice_is_no_error_and_changes_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"late")
        popper = await Popper.connect(rig)
        (first,) = await popper.pop(invisible_ms=5_000)
        await pass_by(5)
        assert await popper.ack(first) == 0
        (second,) = await popper.pop()
        written = len(rig.revive_records())
        assert [await popper.ack(second) for _ in range(3)] == [0, 0, 0]
        assert len(rig.revive_records()) == written + 1
        popper.peer.leave()


@virtual_time
async def test_a_message_kept_for_longer_stays_away_for_longer(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"slow", b"other")
        popper = await Popper.connect(rig)
        slow, other = await popper.pop(invisible_ms=10_000)
        await asyncio.sleep(5)  # virtual
        kept = await popper.change(slow, 30_000)
        assert isinstance(kept, Popped)
        assert kept.handle.popped_ms == clock.now_ms()
        await popper.ack(other)
        await asyncio.sleep(29)  # virtual
        assert await popper.pop() == []
        await pass_by(1)
        (again,) = await popper.pop()
        assert (again.body, again.message.reconsume_times) == (b"slow", 1)
        popper.peer.leave()


@virtual_time
async def test_one_kept_for_longer_is_acknowledged_by_its_new_handle_and_not_by_its_old_one(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop(invisible_ms=10_000)
        # In the same millisecond: the new checkpoint must not pass for the old one.
        kept = await popper.change(popped, 20_000)
        assert isinstance(kept, Popped)
        assert kept.handle.popped_ms != popped.handle.popped_ms
        await popper.ack(popped)
        assert rig.room.revivals.out_count == 1
        await popper.ack(kept)
        assert rig.room.revivals.out_count == 0
        await pass_by(20)
        assert await popper.pop() == []
        popper.peer.leave()


@virtual_time
async def test_what_is_not_out_any_more_cannot_be_kept_for_longer(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"done", b"back")
        popper = await Popper.connect(rig)
        done, back = await popper.pop(invisible_ms=5_000)
        await popper.ack(done)
        assert await popper.change(done, 10_000) == ResponseCode.NO_MESSAGE
        await pass_by(5)
        assert await popper.change(back, 10_000) == ResponseCode.NO_MESSAGE
        assert [each.body for each in await popper.pop()] == [b"back"]
        popper.peer.leave()


@virtual_time
async def test_one_that_was_only_put_off_is_not_counted_as_failed(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop()
        await popper.change(popped, 1_000, is_suspended=True)
        await pass_by(1)
        (again,) = await popper.pop()
        assert again.message.reconsume_times == 0
        popper.peer.leave()


@virtual_time
async def test_a_batch_settles_what_it_names_and_the_rest_comes_again(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for n in range(12):
            rig.put(b"%d" % n, queue_id=n % 3, TAGS="A" if n % 2 else "B")
        popper = await Popper.connect(rig)
        popped = await popper.pop(expression="A")
        assert sorted(each.body for each in popped) == [b"1", b"11", b"3", b"5", b"7", b"9"]
        done = [each for each in popped if each.body in (b"1", b"7", b"9")]
        assert await popper.ack_many(done) == 0
        tags = [record.tags for record in rig.revive_records()]
        assert (tags.count("ck"), tags.count("bAck"), tags.count("ack")) == (3, 2, 0)
        await pass_by(INVISIBLE_S)
        again = await popper.pop(expression="A")
        assert sorted(each.body for each in again) == [b"11", b"3", b"5"]
        assert await popper.ack_many(again) == 0  # they are of the retry topic
        assert rig.room.revivals.out_count == 0
        popper.peer.leave()


@virtual_time
async def test_an_empty_batch_is_refused(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        assert await popper.ack_many([]) == ResponseCode.NO_MESSAGE
        popper.peer.leave()


@virtual_time
async def test_a_batch_without_measure_is_refused_whole(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bolide.broker.pop.acks._BATCH_MAX", 2)
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(*[b"x"] * 3)
        popper = await Popper.connect(rig)
        popped = [(await popper.pop(message_count_max=1))[0] for _ in range(3)]
        assert await popper.ack_many(popped) == ResponseCode.MESSAGE_ILLEGAL
        assert rig.room.revivals.out_count == 3
        assert await popper.ack_many(popped[:2]) == 0
        assert rig.room.revivals.out_count == 1
        popper.peer.leave()


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("queue_id", 9, ResponseCode.MESSAGE_ILLEGAL),
        ("queue_id", -1, ResponseCode.MESSAGE_ILLEGAL),
        ("queue_offset", 5, ResponseCode.NO_MESSAGE),
        ("queue_offset", -1, ResponseCode.NO_MESSAGE),
    ],
)
@virtual_time
async def test_a_handle_of_no_message_is_refused(tmp_path, field, value, code) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop()
        wrong = type(popped.handle)(
            **{**{name: getattr(popped.handle, name) for name in popped.handle.__slots__}, field: value}
        )
        assert await popper.ack(Popped(popped.message, wrong)) == code
        assert await popper.change(Popped(popped.message, wrong), 1_000) == code
        popper.peer.leave()


@virtual_time
async def test_messages_of_a_topic_that_was_deleted_are_let_go(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        await popper.pop(invisible_ms=5_000)
        rig.kept.topics.remove(TOPIC)
        await pass_by(5)
        assert rig.room.revivals.out_count == 0
        assert rig.kept.topics.find(RETRY_TOPIC) is None
        popper.peer.leave()


@virtual_time
async def test_while_the_store_takes_nothing_messages_stay_out_and_come_when_it_does(tmp_path, caplog) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1", queue_id=1)
        rig.put(b"2", queue_id=2)
        popper = await Popper.connect(rig)
        assert len(await popper.pop(invisible_ms=5_000)) == 3
        rig.store.is_disk_full = True
        await asyncio.sleep(5.5)  # virtual
        assert caplog.text.count("not revived") == 1  # the first that fails speaks for the others
        await pass_by(100)
        assert rig.room.revivals.out_count == 2
        assert await popper.pop() == []
        rig.store.is_disk_full = False
        await pass_by(5)  # soon, however long that was
        assert sorted(await popper.bodies()) == [b"0", b"1", b"2"]
        popper.peer.leave()


@virtual_time
async def test_a_pop_that_cannot_be_noted_gives_nothing_and_takes_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        rig.store.is_disk_full = True
        assert await popper.pop() == []
        assert popper.answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        rig.store.is_disk_full = False
        assert await popper.bodies() == [b"x"]
        popper.peer.leave()


# Over the end of the broker


@pytest.mark.feature("X01")
@pytest.mark.parametrize("is_killed", [False, True])
@virtual_time
async def test_after_a_restart_the_acknowledged_are_gone_and_the_others_come_in_time(tmp_path, is_killed) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(*[b"%d" % n for n in range(6)])
        popper = await Popper.connect(rig)
        popped = await popper.pop()
        for each in popped[:2]:
            await popper.ack(each)
        await popper.ack_many(popped[2:3])
        kept = await popper.change(popped[3], 90_000)
        popper.peer.leave()
        rig.is_killed = is_killed
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        assert await popper.pop() == []  # what was given is not given again, though no offset was saved
        await pass_by(INVISIBLE_S)
        assert sorted(await popper.bodies()) == [b"4", b"5"]
        assert isinstance(kept, Popped)
        assert await popper.ack(kept) == 0  # with a handle from before
        await pass_by(40)
        assert b"3" not in await popper.bodies()
        popper.peer.leave()


@virtual_time
async def test_what_came_back_before_a_crash_does_not_come_back_again_after_it(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"long", b"short", queue_id=1)
        popper = await Popper.connect(rig)
        long, _ = await popper.pop(invisible_ms=5_000)
        await popper.change(long, 100_000)  # keeps the revive topic from being settled
        await pass_by(5)
        (again,) = await popper.pop()
        assert again.body == b"short"
        await popper.ack(again)
        popper.peer.leave()
        rig.is_killed = True
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        await pass_by(60)
        assert await popper.pop() == []
        await pass_by(35)
        assert await popper.bodies() == [b"long"]
        popper.peer.leave()


def take_page(root: Path, place: int, size: int) -> None:
    """What a power cut does to a part of the log that was not synced; what was written behind it may be there."""
    (segment,) = [path for path in (root / "commitlog").iterdir() if int(path.name) == 0]
    with segment.open("r+b") as log:
        log.seek(place)
        log.write(bytes(size))


@pytest.mark.parametrize("is_put_off", [False, True])
@virtual_time
async def test_the_word_that_a_message_came_back_counts_only_if_the_message_is_there(tmp_path, is_put_off) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"long", b"short", queue_id=1)
        popper = await Popper.connect(rig)
        long, short = await popper.pop(invisible_ms=5_000)
        await popper.change(long, 100_000)  # keeps the revive topic from being settled
        if is_put_off:
            await popper.change(short, 7_000)
            lost = rig.revive_records()[-2]
        else:
            await pass_by(5)
            (lost,) = rig.records(RETRY_TOPIC, 0)
        popper.peer.leave()
        rig.is_killed = True
    take_page(tmp_path, lost.physical_offset, lost.store_size)
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        await pass_by(10)
        assert await popper.bodies() == [b"short"]
        popper.peer.leave()


@virtual_time
async def test_what_was_due_while_the_broker_was_away_comes_at_once(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        await popper.pop()
        popper.peer.leave()
    await asyncio.sleep(3_600)  # virtual
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        assert await popper.bodies(poll_ms=5_000) == [b"x"]
        popper.peer.leave()


@virtual_time
async def test_a_reset_that_was_saved_is_not_undone_by_older_checkpoints(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        assert len(await popper.pop()) == 2
        await asyncio.sleep(1)  # virtual
        rig.offsets.reset(GROUP, TOPIC, 0, 0)
        popper.peer.leave()
    async with popping(tmp_path, clock) as rig:
        assert rig.room.revivals.out_count == 1
        popper = await Popper.connect(rig)
        assert await popper.bodies() == [b"0", b"1"]
        popper.peer.leave()


@virtual_time
async def test_a_start_reads_only_what_is_not_settled(tmp_path, monkeypatch) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        for n in range(40):
            rig.put(b"%d" % n)
            for each in await popper.pop():
                await popper.ack(each)
        await pass_by(1)
        popper.peer.leave()
    async with popping(tmp_path, clock) as rig:
        settled = [rig.offsets.get("CID_RMQ_SYS_REVIVE_GROUP", REVIVE_TOPIC, queue_id) for queue_id in range(8)]
        ends = [len(rig.records(REVIVE_TOPIC, queue_id)) - 1 for queue_id in range(8)]
        assert settled == ends  # as Java counts: the last that is settled


@virtual_time
async def test_one_that_is_put_off_for_long_does_not_make_a_start_read_all_that_came_after(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("bolide.broker.pop.revivals._BEHIND_MIN", 10)
    clock = VirtualClock()

    def behind(rig: Rig) -> int:
        """Records that a start would read."""
        settled = [rig.offsets.get("CID_RMQ_SYS_REVIVE_GROUP", REVIVE_TOPIC, queue_id) for queue_id in range(8)]
        ends = [len(rig.records(REVIVE_TOPIC, queue_id)) for queue_id in range(8)]
        return sum(end - 1 - (-1 if last is None else last) for end, last in zip(ends, settled, strict=True))

    async with popping(tmp_path, clock) as rig:
        rig.put(b"done", b"long", b"longer", queue_id=1)
        popper = await Popper.connect(rig)
        done, *long = await popper.pop(invisible_ms=90_000)
        await popper.ack(done)
        for n in range(240):
            rig.put(b"%d" % n)
            for each in await popper.pop():
                await popper.ack(each)
            if n % 40 == 0:
                await pass_by(1)
        await pass_by(1)
        assert len(rig.revive_records()) > 480
        assert behind(rig) <= 8 * 14
        assert await popper.ack(long[0]) == 0  # by the handle it always had
        popper.peer.leave()
    async with popping(tmp_path, clock) as rig:
        assert rig.room.revivals.out_count == 1
        popper = await Popper.connect(rig)
        await pass_by(80)
        assert await popper.bodies() == [b"longer"]
        popper.peer.leave()


@virtual_time
async def test_a_message_that_came_again_can_be_kept_for_longer_too(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        await popper.pop(invisible_ms=1_000)
        await pass_by(1)
        (again,) = await popper.pop(invisible_ms=1_000)
        kept = await popper.change(again, 20_000)
        assert isinstance(kept, Popped)
        await pass_by(10)
        assert await popper.pop() == []
        await pass_by(10)
        (third,) = await popper.pop()
        assert third.message.reconsume_times == 2
        popper.peer.leave()


@virtual_time
async def test_synchronous_flush_answers_when_the_checkpoint_is_on_disk(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, flushDiskType="SYNC_FLUSH") as rig:
        rig.put(b"x")
        rig.store.flush()
        popper = await Popper.connect(rig)
        popper.peer.send(popper.pop_request())
        await eventually(lambda: rig.room.revivals.out_count == 1)
        flushed = asyncio.get_running_loop().call_later(3, rig.store.flush)
        (answer,) = await popper.peer.answers(1)
        assert (answer.code, clock.now_ms() >= START_MS + round(1000 * flushed.when())) == (0, True)
        popper.peer.leave()


@pytest.mark.feature("X01")
@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_whatever_consumers_and_the_broker_do_every_message_is_settled_in_the_end(tmp_path, seed) -> None:
    """At least once: each is acknowledged at last, none comes after its acknowledgement was answered."""
    chance, clock = random.Random(seed), VirtualClock()
    sent, done = 0, set()

    async def spell(rig: Rig) -> None:
        nonlocal sent
        popper = await Popper.connect(rig)
        for _ in range(chance.randrange(5, 15)):
            if sent < 120:
                rig.put(b"%d" % sent, queue_id=chance.randrange(4))
                sent += 1
            for popped in await popper.pop(message_count_max=chance.randrange(1, 9), invisible_ms=5_000):
                assert popped.body not in done, "given after it was acknowledged"
                fate = chance.random()
                if fate < 0.5:
                    await popper.ack(popped)
                    done.add(popped.body)
                elif fate < 0.6:
                    await popper.change(popped, chance.randrange(1, 9) * 1_000)
            await asyncio.sleep(chance.random() * 3)  # virtual
        popper.peer.leave()

    for _ in range(5):
        async with popping(tmp_path, clock) as rig:
            await spell(rig)
            rig.is_killed = chance.random() < 0.7
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        for _ in range(40):
            for popped in await popper.pop(invisible_ms=5_000):
                await popper.ack(popped)
                done.add(popped.body)
            await asyncio.sleep(1)  # virtual
        popper.peer.leave()
        assert rig.room.revivals.out_count == 0
    assert done == {b"%d" % n for n in range(sent)}


@virtual_time
async def test_the_heap_of_due_times_does_not_keep_what_is_settled(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bolide.broker.pop.revivals._STALE_MIN", 50)
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        popper = await Popper.connect(rig)
        for n in range(120):
            rig.put(b"%d" % n)
            (popped,) = await popper.pop(invisible_ms=3_600_000)
            await popper.ack(popped)
        assert len(rig.room.revivals._due) <= 51
        popper.peer.leave()


@pytest.mark.feature("X01", "X31")
@virtual_time
async def test_one_that_failed_more_often_than_its_group_retries_lies_with_the_dead(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.kept.groups.update(GroupConfig(group_name=GROUP, retry_max_times=2))
        rig.put(b"bad", UNIQ_KEY="U1")
        popper = await Popper.connect(rig)
        for times in range(3):
            (popped,) = await popper.pop()
            assert popped.message.reconsume_times == times
            await pass_by(INVISIBLE_S)
        assert await popper.pop() == []
        assert rig.room.revivals.out_count == 0
        (view,) = rig.store.read(QueueKey(f"%DLQ%{GROUP}", 0), 0, 10).views
        dead = decode(view)
        assert (dead.body, dead.reconsume_times, dead.unique_id) == (b"bad", 3, "U1")
        assert (dead.properties["DLQ_ORIGIN_TOPIC"], dead.properties["DLQ_ORIGIN_MESSAGE_ID"]) == (TOPIC, "U1")
        assert rig.kept.topics.find(f"%DLQ%{GROUP}") is not None
        await pass_by(INVISIBLE_S)
        assert len(rig.store.read(QueueKey(f"%DLQ%{GROUP}", 0), 0, 10).views) == 1
        popper.peer.leave()
