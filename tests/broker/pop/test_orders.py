"""Ordered pops: one batch of a queue at a time, in order, again and again until it is done."""

import asyncio
import json

import pytest

from bolide.broker.pop.lanes import Lane
from bolide.broker.pop.orders import Batch, parse_orders
from bolide.protocol.bodies import GroupConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pop import PopMessageAnswer
from bolide.protocol.headers.poptext import OrderedItem, TopicMark, parse_order_counts
from bolide.protocol.records import decode_records
from bolide.testing import VirtualClock
from tests.broker.poppers import RETRY_TOPIC, Popped, Popper, popping
from tests.broker.pullers import GROUP, TOPIC
from tests.remoting.loops import eventually, virtual_time

# Printed by RocketMQ 5.5.0: three messages, one done, popped again with one more, one of those put off and done.
JAVA_FILE = """{"orderInfoCount":1,"orderedConsumptionLevel":"QUEUE","table":{"T1@CG":{
0:{"a":"att-2","cm":2,"i":60000,"l":1794801084017,"o":[6,3,4],"oc":{6:1,9:1},"ot":{9:1700000099000},
"popTime":1700000060000},1:{"cm":0,"i":60000,"l":1794801084017,"o":[3],"popTime":1700000060000}}}}"""


def counts_of(popper: Popper) -> dict[OrderedItem, int]:
    return parse_order_counts(PopMessageAnswer.decode(popper.answer.fields).order_counts or "")


def item(offset: int | None = None, queue_id: int = 0) -> OrderedItem:
    return OrderedItem(TopicMark.NORMAL, queue_id, offset)  # type: ignore[arg-type]


@pytest.mark.feature("X01")
@virtual_time
async def test_a_queue_is_closed_until_its_batch_is_done_and_then_goes_on_in_order(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(*[b"%d" % n for n in range(5)])
        one, other = await Popper.connect(rig), await Popper.connect(rig)
        batch = await one.pop(is_ordered=True, message_count_max=2)
        assert [each.body for each in batch] == [b"0", b"1"]
        assert {each.handle.revive_queue_id for each in batch} == {999}
        assert await other.pop(is_ordered=True) == []
        assert await one.ack(batch[0]) == 0
        assert rig.offsets.get(GROUP, TOPIC, 0) == 1
        assert await other.pop(is_ordered=True) == []
        assert await one.ack(batch[1]) == 0
        assert [each.body for each in await other.pop(is_ordered=True)] == [b"2", b"3", b"4"]
        assert rig.revive_records() == []
        one.peer.leave()
        other.peer.leave()


@virtual_time
async def test_what_is_not_done_in_time_comes_again_in_place_and_is_counted(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1", b"2")
        popper = await Popper.connect(rig)
        batch = await popper.pop(is_ordered=True, message_count_max=2, invisible_ms=10_000)
        assert counts_of(popper) == {item(): 0}
        await popper.ack(batch[0])
        await asyncio.sleep(9)  # virtual
        assert await popper.pop(is_ordered=True) == []
        await asyncio.sleep(1)  # virtual
        again = await popper.pop(is_ordered=True, invisible_ms=10_000)
        assert [each.body for each in again] == [b"1", b"2"]
        assert counts_of(popper) == {item(1): 1, item(): 0}
        await asyncio.sleep(10)  # virtual
        assert len(await popper.pop(is_ordered=True)) == 2
        assert counts_of(popper) == {item(1): 2, item(2): 1, item(): 1}
        assert rig.kept.topics.find(RETRY_TOPIC) is None
        popper.peer.leave()


@virtual_time
async def test_acknowledging_out_of_order_moves_nothing_until_the_first_is_done(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1", b"2")
        popper = await Popper.connect(rig)
        zero, one, two = await popper.pop(is_ordered=True)
        assert await popper.ack_many([one, two]) == 0
        assert rig.offsets.get(GROUP, TOPIC, 0) == 0
        await popper.ack(zero)
        assert rig.offsets.get(GROUP, TOPIC, 0) == 3
        popper.peer.leave()


@virtual_time
async def test_the_same_attempt_gets_the_same_messages_and_is_not_counted(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        for _ in range(2):
            bodies = await popper.bodies(is_ordered=True, attempt_id="a-1")
            assert bodies == [b"0", b"1"]
            assert counts_of(popper) == {item(): 0}
        assert await popper.bodies(is_ordered=True, attempt_id="a-2") == []
        popper.peer.leave()


@virtual_time
async def test_a_message_put_off_keeps_its_queue_closed_until_then(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0")
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop(is_ordered=True, invisible_ms=60_000)
        await asyncio.sleep(2)  # virtual
        changed = await popper.change(popped, 5_000)
        assert isinstance(changed, Popped)
        assert (changed.handle.popped_ms, changed.handle.invisible_ms) == (popped.handle.popped_ms, 7_000)
        await asyncio.sleep(4)  # virtual
        assert await popper.pop(is_ordered=True) == []
        await asyncio.sleep(1)  # virtual
        assert await popper.bodies(is_ordered=True) == [b"0"]
        popper.peer.leave()


@virtual_time
async def test_who_waits_at_a_closed_queue_gets_its_messages_when_it_opens(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1")
        one, other = await Popper.connect(rig), await Popper.connect(rig)
        (popped,) = await one.pop(is_ordered=True, message_count_max=1)
        other.peer.send(other.pop_request(is_ordered=True, poll_ms=15_000, invisible_ms=5_000))
        await eventually(lambda: rig.room.parked.count == 1)
        await one.ack(popped)
        (answer,) = await other.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"1"]
        # Nobody acknowledges this one: its time opens the queue.
        assert await one.bodies(is_ordered=True, poll_ms=15_000) == [b"1"]
        assert 5_000 <= clock.now_ms() - 1_700_000_000_000 <= 6_500
        one.peer.leave()
        other.peer.leave()


@virtual_time
async def test_handles_of_another_batch_change_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1", b"2")
        popper = await Popper.connect(rig)
        (old,) = await popper.pop(is_ordered=True, message_count_max=1, invisible_ms=1_000)
        await asyncio.sleep(1)  # virtual
        await popper.pop(is_ordered=True, message_count_max=1)
        assert await popper.ack(old) == 0
        assert rig.offsets.get(GROUP, TOPIC, 0) == 0
        current = type(old.handle)(
            **{
                **{name: getattr(old.handle, name) for name in old.handle.__slots__},
                "popped_ms": clock.now_ms(),
                "queue_offset": 2,
            }
        )
        assert await popper.ack(Popped(old.message, current)) == ResponseCode.MESSAGE_ILLEGAL
        popper.peer.leave()


@virtual_time
async def test_a_reset_opens_the_queue(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        await popper.pop(is_ordered=True)
        rig.offsets.reset(GROUP, TOPIC, 0, 1)
        assert await popper.bodies(is_ordered=True) == [b"1"]
        popper.peer.leave()


@virtual_time
async def test_a_closed_queue_is_closed_after_a_restart_too(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        zero, _ = await popper.pop(is_ordered=True, attempt_id="a-1", invisible_ms=10_000)
        await popper.ack(zero)
        popper.peer.leave()
    written = json.loads((tmp_path / "config" / "consumerOrderInfo.json").read_text())
    assert written["table"][f"{TOPIC}@{GROUP}"]["0"]["o"] == [0, 1]
    async with popping(tmp_path, clock, queue_count=1) as rig:
        popper = await Popper.connect(rig)
        assert await popper.pop(is_ordered=True) == []
        assert await popper.bodies(is_ordered=True, poll_ms=15_000) == [b"1"]
        assert counts_of(popper) == {item(1): 1, item(): 1}
        popper.peer.leave()


@virtual_time
async def test_javas_file_is_read_and_what_it_says_is_written_again(tmp_path) -> None:
    clock = VirtualClock(1_794_801_085_000)
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOrderInfo.json"
    path.write_text(JAVA_FILE)
    async with popping(tmp_path, clock) as rig:
        rig.kept.topics.ensure("T1", 2)
        rig.kept.groups.update(GroupConfig(group_name="CG"))
        rig.room.orders.clear(Lane("CG", "T1", 7))
        assert rig.room.orders.ack(Lane("CG", "T1", 1), 3, 1_700_000_060_000) == 4
        assert rig.room.orders.ack(Lane("CG", "T1", 0), 6, 1_700_000_060_000) == 10
    table = parse_orders(path.read_text()).table["T1@CG"]
    assert table[0].acked_bits == 3
    assert (table[0].offsets, table[0].counts, table[0].visible_ms) == ([6, 3, 4], {6: 1, 9: 1}, {9: 1_700_000_099_000})
    assert (table[1].acked_bits, table[1].attempt_id) == (1, None)


def test_the_next_offset_of_a_batch_is_its_first_open_one() -> None:
    batch = Batch(None, 0, 10, [5, 6, 9], 0)
    assert batch.next_offset == 5
    assert batch.ack(6)
    assert batch.next_offset == 5
    assert batch.ack(5)
    assert batch.next_offset == 9
    assert not batch.ack(7)
    assert batch.ack(9)
    assert (batch.next_offset, batch.free_ms()) == (10, 0)
