"""Timed messages: when they come, as what, how they are taken back, and what the clock may do meanwhile."""

import asyncio
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from bolide.broker.admin.status import Status
from bolide.errors import Refusal
from bolide.kernel.layout import SLOT_SIZE
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.routes import KVTable
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageAnswer
from bolide.protocol.ids import RecallHandle, encode_recall_handle, parse_recall_handle
from bolide.remoting.session import Request
from bolide.store import timerwheel
from bolide.store.record import Draft
from bolide.testing import VirtualClock, run
from bolide.testing.disk import FaultyDisk
from tests.broker.metering import PROM
from tests.broker.timing import START_MS, Timed, pass_s, timing

TIMER_IDLE = {"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0"}
TIMER_IDLE |= {"timerEnqueueTps": "0.0", "timerDequeueTps": "0.0"}


@pytest.mark.feature("X02")
@pytest.mark.parametrize(
    ("properties", "due_s"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3),
        ({"TIMER_DELAY_MS": "2500"}, 3),
        ({"TIMER_DELAY_MS": "10"}, 1),
        ({"TIMER_DELIVER_MS": str(START_MS + 4001)}, 5),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELIVER_MS": "1"}, 2),
    ],
)
def test_a_timed_message_comes_within_the_second_after_its_time_and_not_before(
    tmp_path: Path, properties: dict[str, str], due_s: int
) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            answer = await late.send(b"x", **properties)
            assert answer.code == 0
            await pass_s(due_s - 0.01)
            assert late.come() == []
            await pass_s(0.02)
            (come,) = late.come()
            assert (come.body, come.topic, come.queue_id) == (b"x", "Orders", 0)

    run(scenario())


@pytest.mark.feature("X02")
def test_what_comes_has_the_stamps_of_the_timer_and_keeps_all_it_had(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(5, TAGS="TagA", KEYS="k", own="x")
            (waiting,) = late.come("rmq_sys_wheel_timer")
            await pass_s(5.1)
            (come,) = late.come()
            assert (
                waiting.properties.items()
                >= {
                    "TIMER_OUT_MS": str(START_MS + 4000),
                    "REAL_TOPIC": "Orders",
                    "REAL_QID": "0",
                }.items()
            )
            assert come.properties == dict(waiting.properties) | {
                "TIMER_ENQUEUE_MS": str(START_MS),
                "TIMER_DEQUEUE_MS": str(START_MS + 5000),
            }
            assert len(late.sending.store.read(QueueKey("Orders", 0), 0, 9, frozenset([2598919])).views) == 1

    run(scenario())


def test_a_time_that_has_passed_is_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.send(b"past", TIMER_DELIVER_MS=str(START_MS))
            await late.send(b"negative", TIMER_DELAY_MS="-5")
            assert late.bodies == [b"past", b"negative"]
            assert "recallHandle" not in (await late.send(b"x", TIMER_DELAY_SEC="0")).fields

    run(scenario())


@pytest.mark.parametrize(
    ("properties", "code", "why"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, 13, "at most 259200 s are allowed (timerMaxDelaySec)"),
        ({"TIMER_DELIVER_MS": "soon"}, 13, "TIMER_DELIVER_MS is 'soon', no number"),
        ({"TIMER_DELAY_MS": "9" * 30}, 13, "no number"),
        ({"TIMER_DELIVER_MS": str(START_MS - 1), "TIMER_DEL_UNIQKEY": "u"}, 13, "timer message illegal"),
    ],
)
def test_what_the_timer_cannot_keep_is_refused(tmp_path: Path, properties: dict[str, str], code: int, why: str) -> None:
    """Gotcha 35 among them."""

    async def scenario() -> None:
        async with timing(tmp_path) as late:
            answer = await late.send(b"x", **properties)
            assert answer.code == code
            assert why in str(answer.remark)
            assert late.sending.store.commitlog.end == 0

    run(scenario())


def test_a_slot_that_has_too_many_takes_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, timerCongestNumEachSlot="2") as late:
            properties = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02" % (START_MS + 9000)
            late.sending.store.append([Draft("rmq_sys_wheel_timer", 0, b"x", properties, 0, 0, START_MS, bytes(8))] * 4)
            await late.timers.file_all()
            answer = await late.send(b"x", TIMER_DELAY_MS="9500")
            assert (answer.code, "flow control" in str(answer.remark)) == (1, True)
            await late.delay(20)

    run(scenario())


def test_a_level_wins_over_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.send(b"x", DELAY="1", TIMER_DELAY_SEC="99")
            (waiting,) = late.come("SCHEDULE_TOPIC_XXXX")
            assert "TIMER_DELAY_SEC" not in waiting.properties

    run(scenario())


@pytest.mark.feature("X02")
def test_thousands_of_one_second_come_in_their_order(tmp_path: Path) -> None:
    """More than a batch and more than a file of the timer's log, which holds 157 units here."""

    async def scenario() -> None:
        async with timing(tmp_path, mappedFileSizeCommitLog="4194304") as late:
            properties = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02" % (START_MS + 5000)
            late.sending.store.append(
                [Draft("rmq_sys_wheel_timer", 0, b"%d" % n, properties, 0, 0, START_MS, bytes(8)) for n in range(2000)]
            )
            await pass_s(5.9)
            assert late.timers.files.load_at(START_MS + 5000) == 2000
            assert late.sending.store.max_offset(QueueKey("Orders", 0)) == 0
            await pass_s(0.2)
            store, key = late.sending.store, QueueKey("Orders", 0)
            assert store.max_offset(key) == 2000
            for offset in (0, 156, 157, 255, 256, 1999):
                (view, *_) = store.read(key, offset, 1).views
                assert b"%d" % offset == bytes(view[88 : 88 + len(b"%d" % offset)])
            assert late.timers.files.counts.table["Orders"].count == 0

    run(scenario())


def test_a_message_that_rolls_is_counted_once_when_it_is_filed_and_once_when_it_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, None, timerRollWindowSlot="100", **PROM) as late:
            meter = late.sending.state.meter
            assert meter is not None
            await late.delay(250, b"far")
            await late.delay(99, b"near")
            await pass_s(251)
            assert late.bodies == [b"near", b"far"]
            assert len(late.come("rmq_sys_wheel_timer")) > 2, "one has rolled"
            assert (meter.filed, meter.timed) == ({"Orders": 2}, {"Orders": 2})
            assert sum(meter.delays["Orders"].counts) == 2

    run(scenario())


@pytest.mark.feature("X02")
def test_a_message_that_is_far_away_rolls_and_comes_at_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, timerRollWindowSlot="100") as late:
            await late.delay(250, b"far")
            await late.delay(99, b"near")
            await pass_s(100)
            assert late.bodies == [b"near"]
            await pass_s(149.9)
            assert late.bodies == [b"near"]
            await pass_s(0.2)
            assert late.bodies == [b"near", b"far"]
            far = late.come()[-1]
            assert far.properties["TIMER_ROLL_TIMES"] == str(len(late.come("rmq_sys_wheel_timer")) - 2)
            assert late.timers.files.counts.table["Orders"].count == 0

    run(scenario())


@pytest.mark.feature("X03")
def test_a_recalled_message_never_comes_and_its_neighbours_do(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(5, b"before", "u0")
            answer = await late.delay(5, b"recalled", "u1")
            await late.delay(5, b"after", "u2")
            handle = SendMessageAnswer.decode(answer.fields).recall_handle
            assert handle is not None
            assert parse_recall_handle(handle) == RecallHandle("Orders", "broker-a", START_MS + 4001, "u1")
            await pass_s(2)
            told = late.recall(handle)
            assert (told.code, told.fields["msgId"], told.fields["MSG_REGION"]) == (0, "u1", "DefaultRegion")
            await pass_s(4)
            assert late.bodies == [b"before", b"after"]
            assert late.timers.files.counts.table["Orders"].count == 0

    run(scenario())


@pytest.mark.feature("X03")
def test_a_recall_by_one_who_sends_to_another_topic_takes_nothing_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            late.sending.state.topics.ensure("Other", 1)
            await late.delay(5, b"stays", "u1")
            for key in ("u1", "Orders+u1"):
                told = late.recall(
                    encode_recall_handle(RecallHandle("Other", "broker-a", START_MS + 4001, key)), "Other"
                )
                assert told.code == 0
            await pass_s(6)
            assert late.bodies == [b"stays"]

    run(scenario())


@pytest.mark.feature("X03")
@pytest.mark.parametrize("named", ["true", "false"])
def test_a_recall_of_a_message_that_rolls_finds_it(tmp_path: Path, named: str) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"timerRollWindowSlot": "10", "appendTopicForTimerDeleteKey": named}
        async with timing(tmp_path, **settings) as late:
            handle = SendMessageAnswer.decode((await late.delay(35)).fields).recall_handle
            await pass_s(7)
            assert late.recall(str(handle)).code == 0
            await pass_s(60)
            assert late.bodies == []
            assert late.timers.files.counts.table["Orders"].count == 0

    run(scenario())


@pytest.mark.feature("X03")
@pytest.mark.parametrize(
    ("handle", "topic", "settings", "code"),
    [
        (RecallHandle("Orders", "broker-a", START_MS + 4001, "u1"), "Orders", {"recallMessageEnable": "false"}, 16),
        (RecallHandle("Orders", "broker-a", START_MS + 4001, "u1"), "Absent", {}, 17),
        (RecallHandle("Other", "broker-a", START_MS + 4001, "u1"), "Orders", {}, 604),
        (RecallHandle("Orders", "broker-b", START_MS + 4001, "u1"), "Orders", {}, 604),
        (RecallHandle("Orders", "broker-a", START_MS, "u1"), "Orders", {}, 604),
        (RecallHandle("Orders", "broker-a", START_MS + 259_200_000, "u1"), "Orders", {}, 604),
        ("nonsense", "Orders", {}, 604),
    ],
)
def test_a_recall_that_cannot_be_is_refused_with_rocketmqs_code(
    tmp_path: Path, handle: RecallHandle | str, topic: str, settings: dict[str, Any], code: int
) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, **settings) as late:
            await late.delay(5)
            text = handle if isinstance(handle, str) else encode_recall_handle(handle)
            answer = late.recall(text, topic)
            assert answer.code == code
            assert "recall failed" in str(answer.remark)
            assert answer.fields["MSG_REGION"] == "DefaultRegion"

    run(scenario())


def test_a_clock_that_is_set_forward_delivers_what_is_due_then(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(3000, b"a")
            await pass_s(2)
            late.clock.set_wall(late.clock.now_ms() + 3_600_000)
            await pass_s(1.1)
            assert late.bodies == [b"a"]

    run(scenario())


def test_a_clock_that_is_set_back_delivers_nothing_early_and_nothing_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock) as late:
            await late.delay(5, b"a")
            await late.delay(100, b"b")
            await pass_s(50)
            assert late.bodies == [b"a"]
            clock.set_wall(START_MS)
            await late.delay(5, b"c")
            await pass_s(4.5)
            assert late.bodies == [b"a"]
            await pass_s(1)
            assert late.bodies == [b"a", b"c"]
        async with timing(tmp_path, clock) as late:
            await pass_s(96)
            assert late.bodies == [b"a", b"c", b"b"]

    run(scenario())


def status(late: Timed) -> dict[str, str]:
    kept, side = late.sending.tables, late.sending
    answerer = Status(side.state, kept.file_thread, late.timers)
    request = Request(Command(28), cast(Any, None), late.clock.monotonic_s())
    table = KVTable.decode(answerer.runtime(request).body).table
    return {name: value for name, value in table.items() if name.startswith("timer")}


@pytest.mark.feature("X02")
def test_the_status_tells_what_waits_and_what_is_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            assert status(late) == TIMER_IDLE
            for number in range(4):
                await late.delay(5, b"%d" % number, f"u{number}")
            gone = SendMessageAnswer.decode((await late.delay(9, b"gone", "u4")).fields).recall_handle
            assert late.recall(str(gone)).code == 0
            await pass_s(2)
            assert status(late) == {**TIMER_IDLE, "timerCongestNum": "4", "timerEnqueueTps": "3.0"}
            late.sending.store.is_disk_full = True
            await pass_s(8)
            assert (status(late)["timerReadBehind"], status(late)["timerCongestNum"]) == ("6", "4")
            late.sending.store.is_disk_full = False
            await pass_s(2)
            assert (status(late)["timerReadBehind"], status(late)["timerCongestNum"]) == ("0", "0")
            assert float(status(late)["timerDequeueTps"]) == pytest.approx(4 / late.passed_s)
        async with timing(tmp_path, late.clock, timerStopEnqueue="true") as late:
            await late.delay(3)
            await pass_s(5)
            assert status(late) == {**TIMER_IDLE, "timerOffsetBehind": "1"}

    run(scenario())


def test_nothing_is_filed_or_delivered_while_an_operator_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, timerStopEnqueue="true") as late:
            await late.delay(3)
            await pass_s(10)
            assert (late.come(), late.timers.files.log.end) == ([], 0)
        clock = late.clock
        async with timing(tmp_path, clock, timerStopDequeue="true") as late:
            await late.delay(3, b"second")
            await pass_s(10)
            assert late.bodies == [b"later"]  # it was due when it was filed
        async with timing(tmp_path, clock) as late:
            await pass_s(1.1)
            assert late.bodies == [b"later", b"second"]

    run(scenario())


def test_a_store_that_refuses_is_waited_for_and_a_slot_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            for number in range(3):
                await late.delay(3, b"%d" % number)
            await pass_s(2)
            late.sending.store.is_disk_full = True
            await pass_s(5)
            assert late.come() == []
            late.sending.store.is_disk_full = False
            await pass_s(1)
            assert late.bodies == [b"0", b"1", b"2"]

    run(scenario())


@pytest.mark.parametrize("full_for", ["timerwheel", "timerlog"])
def test_what_is_due_comes_once_while_the_disk_has_no_room_to_file_the_rest(tmp_path: Path, full_for: str) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        elsewhere_s = timerwheel._CHUNK_SIZE // SLOT_SIZE
        async with timing(tmp_path, disk=disk) as late:
            disk.full_for = full_for
            await late.delay(2, b"soon")
            await late.delay(elsewhere_s, b"in another part of the wheel")
            await pass_s(30)
            assert len(late.bodies) <= 1
            disk.full_for = None
            await pass_s(2)
            assert late.bodies == [b"soon"]
            await pass_s(elsewhere_s)
            assert late.bodies == [b"soon", b"in another part of the wheel"]

    run(scenario())


def test_a_refusal_amid_what_is_due_repeats_nothing_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with timing(tmp_path, clock, timerStopEnqueue="true") as late:
            sent = [b"%d" % number + bytes(2000) for number in range(30)]  # more than one batch can store
            for body in sent:
                await late.delay(2, body)
        clock.set_wall(START_MS + 60_000)
        async with timing(tmp_path, clock) as late:
            append_encoded, calls = late.sending.store.append_encoded, 0

            def refuse_the_second(encode: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls % 2 == 0:
                    raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "not now")
                return append_encoded(encode)

            late.sending.store.append_encoded = refuse_the_second  # type: ignore[method-assign]
            await pass_s(30)
            assert calls > 2
            assert late.bodies == sent

    run(scenario())


def test_with_nothing_filed_nobody_wakes_to_deliver(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            looks = 0
            deliver_due = late.timers.deliver_due

            async def counted() -> None:
                nonlocal looks
                looks += 1
                await deliver_due()

            late.timers.deliver_due = counted  # type: ignore[method-assign]
            await pass_s(3600)
            assert looks <= 1
            await late.delay(10)
            await pass_s(10.5)
            assert (late.bodies, looks <= 15) == ([b"later"], True)

    run(scenario())


def test_units_and_slots_are_rocketmqs_to_the_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            await late.delay(5)
            await pass_s(0.5)
            (record,) = late.come("rmq_sys_wheel_timer")
            segment = late.timers.files.log.segments.find(0)
            assert segment is not None
            place = (record.physical_offset, record.store_size)
            expected = (52, -1, 1, START_MS, 4000, *place, -1923767044, 0)
            unit = struct.unpack_from(">iqiqiqiiq", segment.view)
            assert (*unit[:7], unit[8]) == (*expected[:7], 0)
            number = (START_MS + 4000) // 1000 % 1_209_600
            slot = struct.unpack_from(">qqqii", late.timers.files.wheel.map, number * 32)
            assert slot == ((START_MS + 4000) // 1000, 0, 0, 1, 0)

    run(scenario())


def test_turns_of_the_loop_are_short_while_much_is_due(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, mappedFileSizeCommitLog="4194304") as late:
            properties = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02" % (START_MS + 1000)
            drafts = [Draft("rmq_sys_wheel_timer", 0, b"x", properties, 0, 0, START_MS, bytes(8))] * 1500
            late.sending.store.append(drafts)
            await pass_s(1.999)
            turns = 0
            while late.sending.store.max_offset(QueueKey("Orders", 0)) < 1500:
                turns += 1
                await asyncio.sleep(0 if turns > 1 else 0.001)  # virtual
            assert turns >= 6

    run(scenario())
