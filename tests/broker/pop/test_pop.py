"""Pops: who gets which message, from where, in what form, and who waits."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bolide.broker.pop.lanes import Lane
from bolide.broker.pop.reading import LaneReader, Taken
from bolide.broker.tables.groups import READ_BIT
from bolide.clock import SystemClock
from bolide.protocol.bodies import ConsumerMember, GroupConfig, Heartbeat, Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import (
    NotificationAnswer,
    NotificationRequest,
    PeekMessageRequest,
    PollingCountAnswer,
    PollingCountRequest,
    PopMessageAnswer,
)
from bolide.protocol.headers.poptext import TopicMark
from bolide.protocol.records import decode_records
from bolide.testing import VirtualClock
from tests.broker.poppers import RETRY_TOPIC, Popper, Rig, popping
from tests.broker.pullers import GROUP, TOPIC, topic_of
from tests.remoting.loops import both_loops, eventually, virtual_time


def has_changed(rig: Rig, before: int) -> bool:
    return rig.room.parked.count != before


def header_of(popper: Popper) -> PopMessageAnswer:
    return PopMessageAnswer.decode(popper.answer.fields)


@pytest.mark.feature("X01")
@virtual_time
async def test_a_pop_takes_messages_of_all_queues_and_each_has_a_handle(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for queue_id in range(4):
            rig.put(b"%d-0" % queue_id, b"%d-1" % queue_id, queue_id=queue_id)
        popper = await Popper.connect(rig)
        popped = await popper.pop()
        assert sorted(each.body for each in popped) == [b"%d-%d" % (q, n) for q in range(4) for n in range(2)]
        assert {(each.handle.queue_id, each.handle.queue_offset) for each in popped} == {
            (q, n) for q in range(4) for n in range(2)
        }
        assert (popper.answer.remark, header_of(popper).remaining_count) == ("FOUND", 0)
        assert [rig.offsets.get(GROUP, TOPIC, q) for q in range(4)] == [2] * 4
        popper.peer.leave()


@virtual_time
async def test_no_two_poppers_share_a_message_while_it_is_invisible(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for n in range(100):
            rig.put(b"%d" % n, queue_id=n % 4)
        poppers = [await Popper.connect(rig) for _ in range(5)]
        taken = []
        for _ in range(30):
            for popper in poppers:
                taken += await popper.bodies(message_count_max=3)
        assert sorted(map(int, taken)) == list(range(100))
        for popper in poppers:
            popper.peer.leave()


@virtual_time
async def test_a_pop_of_one_queue_takes_of_that_queue_and_says_how_many_are_left(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(*[b"%d" % n for n in range(5)], queue_id=2)
        rig.put(b"other", queue_id=1)
        popper = await Popper.connect(rig)
        assert await popper.bodies(queue_id=2, message_count_max=2) == [b"0", b"1"]
        assert header_of(popper).remaining_count == 3
        assert await popper.bodies(queue_id=2) == [b"2", b"3", b"4"]
        popper.peer.leave()


@virtual_time
async def test_a_pop_stops_at_the_count_it_asked_for_over_all_queues(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for queue_id in range(4):
            rig.put(*[b"x"] * 3, queue_id=queue_id)
        popper = await Popper.connect(rig)
        assert len(await popper.pop(message_count_max=7)) == 7
        assert header_of(popper).remaining_count == 5
        popper.peer.leave()


@virtual_time
async def test_tags_are_chosen_and_what_is_not_wanted_is_passed_over_for_good(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for n in range(6):
            rig.put(b"%d" % n, TAGS="A" if n % 2 else "B")
        popper = await Popper.connect(rig)
        popped = await popper.pop(expression="A")
        assert [each.body for each in popped] == [b"1", b"3", b"5"]
        assert [each.handle.queue_offset for each in popped] == [1, 3, 5]
        assert rig.offsets.get(GROUP, TOPIC, 0) == 6
        assert await popper.bodies(expression="B") == []
        popper.peer.leave()


@virtual_time
async def test_a_wanted_message_behind_more_unwanted_ones_than_a_scan_reads_is_found(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        for _ in range(25):
            rig.put(*[b"no"] * 100, TAGS="B")
        rig.put(b"yes", TAGS="A")
        popper = await Popper.connect(rig)
        assert await popper.bodies(expression="A", poll_ms=15_000) == [b"yes"]
        assert clock.now_ms() == 1_700_000_000_000
        popper.peer.leave()


@pytest.mark.parametrize(("init_mode", "expected"), [(0, [b"0", b"1", b"2"]), (1, [b"2"])])
@virtual_time
async def test_a_new_group_starts_at_the_first_or_the_last_message(tmp_path, init_mode, expected) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, accessMessageInMemoryMaxRatio="0") as rig:
        rig.put(b"0", b"1", b"2")
        popper = await Popper.connect(rig)
        assert await popper.bodies(init_mode=init_mode) == expected
        popper.peer.leave()


@virtual_time
async def test_a_new_group_starts_at_the_first_message_of_a_young_topic_whatever_it_says(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1")
        popper = await Popper.connect(rig)
        assert await popper.bodies(init_mode=1) == [b"0", b"1"]
        popper.peer.leave()


@virtual_time
async def test_a_reset_takes_hold_at_the_next_pop(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1", b"2")
        popper = await Popper.connect(rig)
        assert len(await popper.pop()) == 3
        rig.offsets.reset(GROUP, TOPIC, 0, 1)
        assert await popper.bodies() == [b"1", b"2"]
        assert rig.offsets.get(GROUP, TOPIC, 0) == 3
        popper.peer.leave()


@virtual_time
async def test_queues_that_are_read_to_their_end_are_not_looked_into(tmp_path, monkeypatch) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        popper = await Popper.connect(rig)
        rig.put(b"0", queue_id=0)
        rig.put(b"1", queue_id=1)
        assert sorted(await popper.bodies()) == [b"0", b"1"]  # queues 2 and 3 have none, and the group begins there too
        looked: list[int] = []
        read = LaneReader.read

        def noting(self: LaneReader, lane: Lane, *given: Any) -> Taken:
            looked.append(lane.queue_id)
            return read(self, lane, *given)

        monkeypatch.setattr(LaneReader, "read", noting)
        rig.put(b"2", queue_id=1)
        assert await popper.bodies() == [b"2"]
        assert looked == [1]
        popper.peer.leave()


@virtual_time
async def test_an_offset_that_leads_nowhere_is_put_right(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1")
        rig.offsets.put(GROUP, TOPIC, 0, 99)
        popper = await Popper.connect(rig)
        assert await popper.bodies() == []
        rig.put(b"2")
        assert await popper.bodies() == [b"2"]
        popper.peer.leave()


# Waiting


@pytest.mark.feature("X01")
@virtual_time
async def test_a_pop_that_finds_nothing_waits_and_is_answered_when_a_message_comes(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        popper.peer.send(popper.pop_request(poll_ms=15_000))
        await eventually(lambda: rig.room.parked.count == 1)
        await asyncio.sleep(9)  # virtual
        rig.put(b"late", queue_id=3)
        (answer,) = await popper.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"late"]
        assert rig.room.parked.count == 0
        popper.peer.leave()


@both_loops
async def test_a_waiting_pop_is_answered_on_a_real_loop_too(tmp_path) -> None:
    clock = SystemClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        popper.peer.send(popper.pop_request(poll_ms=15_000))
        await eventually(lambda: rig.room.parked.count == 1)
        rig.put(b"now")
        (answer,) = await popper.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"now"]
        popper.peer.leave()


@virtual_time
async def test_time_over_is_210_just_before_the_client_gives_up(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        started_ms = clock.now_ms()
        assert await popper.bodies(poll_ms=15_000) == []
        assert (popper.answer.code, clock.now_ms() - started_ms) == (ResponseCode.POLLING_TIMEOUT, 14_950)
        assert rig.room.parked.count == 0
        popper.peer.leave()


@virtual_time
async def test_a_request_that_was_under_way_for_too_long_is_turned_away_untouched(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        popper = await Popper.connect(rig)
        await popper.bodies(poll_ms=1_000, born_ms=clock.now_ms() - 1_501)
        assert popper.answer.code == ResponseCode.POLLING_TIMEOUT
        assert await popper.bodies(poll_ms=1_000, born_ms=clock.now_ms() - 1_500) == [b"x"]
        popper.peer.leave()


@virtual_time
async def test_a_client_whose_clock_is_ahead_waits_no_longer_than_it_said(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        started_ms = clock.now_ms()
        await popper.bodies(poll_ms=15_000, born_ms=started_ms + 3_600_000)
        assert clock.now_ms() - started_ms == 14_950
        popper.peer.leave()


@virtual_time
async def test_too_many_who_wait_are_told_209(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, popPollingSize="2", maxPopPollingSize="3") as rig:
        poppers = [await Popper.connect(rig) for _ in range(3)]
        for popper in poppers[:2]:
            popper.peer.send(popper.pop_request(poll_ms=15_000))
        await eventually(lambda: rig.room.parked.count == 2)
        assert await poppers[2].bodies(poll_ms=15_000) == []
        assert poppers[2].answer.code == ResponseCode.POLLING_FULL
        poppers[2].peer.send(poppers[2].pop_request(poll_ms=15_000, queue_id=1))
        await eventually(lambda: rig.room.parked.count == 3)
        other = await Popper.connect(rig)
        await other.bodies(poll_ms=15_000, queue_id=2)
        assert other.answer.code == ResponseCode.POLLING_FULL
        for popper in [*poppers, other]:
            popper.peer.leave()


@virtual_time
@pytest.mark.parametrize("settings", [{"popPollingSize": "8"}, {"maxPopPollingSize": "8"}])
async def test_who_waits_once_finds_a_place_where_another_has_taken_them_all(tmp_path, settings) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, **settings) as rig:
        many, one = await Popper.connect(rig), await Popper.connect(rig)
        many.peer.send(*[many.pop_request(poll_ms=15_000) for _ in range(9)])
        [answer] = await many.peer.answers(1)
        assert answer.code == ResponseCode.POLLING_FULL
        one.peer.send(one.pop_request(poll_ms=15_000))
        [answer] = await many.peer.answers(1)
        assert answer.code == ResponseCode.POLLING_FULL
        assert rig.room.parked.count == 8
        many.peer.leave()
        await eventually(lambda: rig.room.parked.count == 1)
        rig.put(b"x")
        [answer] = await one.peer.answers(1)
        assert answer.code == ResponseCode.SUCCESS
        one.peer.leave()


@virtual_time
async def test_one_message_wakes_one_of_many_and_a_batch_as_many_as_it_feeds(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        poppers = [await Popper.connect(rig) for _ in range(4)]
        for popper in poppers:
            before = rig.room.parked.count
            popper.peer.send(popper.pop_request(poll_ms=60_000, message_count_max=2))
            await eventually(partial(has_changed, rig, before))
        rig.put(b"first")
        (answer,) = await poppers[0].peer.answers(1)  # who waited longest
        assert [message.body for message in decode_records(answer.body)] == [b"first"]
        assert rig.room.parked.count == 3
        rig.put(*[b"%d" % n for n in range(6)])
        answers = [(await popper.peer.answers(1))[0] for popper in poppers[1:]]
        assert [len(decode_records(answer.body)) for answer in answers] == [2, 2, 2]
        assert clock.now_ms() - 1_700_000_000_000 < 1_000  # it was not their time that woke them
        for popper in poppers:
            popper.peer.leave()


def lines_of(work: Callable[[], None]) -> int:
    """How many lines of Python a piece of work takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@virtual_time
async def test_to_give_up_one_of_many_that_wait_costs_the_same_as_one_of_few(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        popper = await Popper.connect(rig)
        popper.peer.send(*[popper.pop_request(poll_ms=60_000) for _ in range(200)])
        await eventually(lambda: rig.room.parked.count == 200)
        (session,) = rig.sessions
        requests = [parked.request for parked in rig.room.parked._by_session[session]]
        early = lines_of(lambda: rig.room.give_up(requests[0]))
        for request in requests[1:190]:
            rig.room.give_up(request)
        assert rig.room.parked.count == 10
        assert lines_of(lambda: rig.room.give_up(requests[190])) == early
        rig.room.give_up(requests[190])  # once more is nothing
        assert rig.room.parked.count == 9
        popper.peer.leave()


@virtual_time
async def test_a_waiting_pop_whose_connection_ended_takes_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        gone, there = await Popper.connect(rig), await Popper.connect(rig)
        gone.peer.send(gone.pop_request(poll_ms=60_000))
        await eventually(lambda: rig.room.parked.count == 1)
        there.peer.send(there.pop_request(poll_ms=60_000))
        await eventually(lambda: rig.room.parked.count == 2)
        gone.peer.leave()
        await eventually(lambda: len(rig.sessions) == 1)
        rig.put(b"x")
        (answer,) = await there.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"x"]
        there.peer.leave()


def heartbeat_of(*topics: str) -> Command:
    told = ConsumerMember(
        group_name=GROUP, subscription_data_set=[Subscription(topic=topic, sub_string="*") for topic in topics]
    )
    body = Heartbeat(client_id="leaving", consumer_data_set=[told]).encode()
    return Command(RequestCode.HEART_BEAT, opaque=70_000, body=body)


@virtual_time
@pytest.mark.parametrize("goodbye", ["of its group", "of its topic"])
async def test_a_member_that_parts_is_answered_and_the_next_message_is_its_mates(tmp_path, goodbye) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        leaving, there = await Popper.connect(rig), await Popper.connect(rig)
        await leaving.peer.ask(heartbeat_of(TOPIC, "Other"))
        leaving.peer.send(leaving.pop_request(poll_ms=60_000))
        await eventually(lambda: rig.room.parked.count == 1)
        there.peer.send(there.pop_request(poll_ms=60_000))
        await eventually(lambda: rig.room.parked.count == 2)
        if goodbye == "of its group":
            (session,) = rig.members.consumer_groups[GROUP].channels
            rig.members.leave(session, None, GROUP)
        else:
            leaving.peer.send(heartbeat_of("Other"))
        answers = await leaving.peer.answers(1 if goodbye == "of its group" else 2)
        assert ResponseCode.POLLING_TIMEOUT in [answer.code for answer in answers]
        rig.put(b"x")
        (answer,) = await there.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"x"]
        assert clock.now_ms() - 1_700_000_000_000 < 1_000  # nobody waited for a time to be over
        for popper in (leaving, there):
            popper.peer.leave()


@virtual_time
async def test_a_refusal_of_the_first_who_waits_wakes_the_next(tmp_path, monkeypatch) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        poppers = [await Popper.connect(rig) for _ in range(2)]
        for popper in poppers:
            before = rig.room.parked.count
            popper.peer.send(popper.pop_request(poll_ms=60_000))
            await eventually(partial(has_changed, rig, before))
        rooms = iter([False, True])
        monkeypatch.setattr(rig.room.revivals, "has_room", lambda group, origin: next(rooms))
        rig.put(b"x")
        answers = [(await popper.peer.answers(1))[0] for popper in poppers]
        assert [answer.code for answer in answers] == [ResponseCode.POLLING_FULL, ResponseCode.SUCCESS]
        assert clock.now_ms() - 1_700_000_000_000 < 1_000
        for popper in poppers:
            popper.peer.leave()


@virtual_time
async def test_who_does_not_take_what_is_sent_is_passed_over_and_the_message_stays(tmp_path, monkeypatch) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        popper.peer.send(popper.pop_request(poll_ms=60_000))
        await eventually(lambda: rig.room.parked.count == 1)
        monkeypatch.setattr("bolide.broker.pop.parked._UNSENT_SIZE_MAX", -1)
        rig.put(b"0")
        await asyncio.sleep(1)  # virtual
        assert (rig.room.parked.count, rig.offsets.get(GROUP, TOPIC, 0)) == (1, 0)
        monkeypatch.undo()
        rig.put(b"1")
        (answer,) = await popper.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"0", b"1"]
        popper.peer.leave()


# The retry topic


@pytest.mark.parametrize(("name", "mark"), [("false", TopicMark.RETRY_V1), ("true", TopicMark.RETRY_V2)])
@virtual_time
async def test_failed_messages_come_under_the_topic_itself_with_their_handle(tmp_path, name, mark) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, enableRetryTopicV2=name, retrieveMessageFromPopRetryTopicV1="false") as rig:
        retry_topic = f"%RETRY%{GROUP}+{TOPIC}" if name == "true" else RETRY_TOPIC
        rig.kept.topics.update(topic_of(retry_topic, 1))
        rig.put(b"failed", topic=retry_topic, KEYS="k")
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop()
        assert (popped.message.topic, popped.handle.mark, popped.handle.queue_offset) == (TOPIC, mark, 0)
        assert popped.message.keys == ["k"]
        assert await popper.ack(popped) == 0
        assert rig.room.revivals.out_count == 0
        popper.peer.leave()


@virtual_time
async def test_while_names_change_over_both_retry_topics_are_read(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, enableRetryTopicV2="true") as rig:
        for topic in (RETRY_TOPIC, f"%RETRY%{GROUP}+{TOPIC}"):
            rig.kept.topics.update(topic_of(topic, 1))
            rig.put(topic.encode(), topic=topic)
        popper = await Popper.connect(rig)
        found = [body for _ in range(30) for body in await popper.bodies()]
        assert sorted(found) == sorted([RETRY_TOPIC.encode(), f"%RETRY%{GROUP}+{TOPIC}".encode()])
        popper.peer.leave()


@virtual_time
async def test_told_so_the_broker_shows_the_retry_topic_as_it_is(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, popResponseReturnActualRetryTopic="true") as rig:
        rig.kept.topics.update(topic_of(RETRY_TOPIC, 1))
        rig.put(b"failed", topic=RETRY_TOPIC)
        popper = await Popper.connect(rig)
        (popped,) = await popper.pop()
        assert (popped.message.topic, popped.handle.mark) == (RETRY_TOPIC, TopicMark.RETRY_V1)
        assert "POP_CK" not in popped.message.properties
        assert await popper.ack(popped) == 0
        assert rig.room.revivals.out_count == 0
        popper.peer.leave()


@virtual_time
async def test_one_pop_in_five_looks_for_failed_messages_first(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.kept.topics.update(topic_of(RETRY_TOPIC, 1))
        for _ in range(20):
            rig.put(*[b"failed"] * 20, topic=RETRY_TOPIC)
            rig.put(*[b"fresh"] * 20)
        popper = await Popper.connect(rig)
        bodies = [(await popper.bodies(message_count_max=1))[0] for _ in range(300)]
        assert 40 <= bodies.count(b"failed") <= 80
        popper.peer.leave()


@virtual_time
async def test_a_waiting_pop_gets_a_failed_message_as_soon_as_it_is_back(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        popper.peer.send(popper.pop_request(poll_ms=15_000))
        await eventually(lambda: rig.room.parked.count == 1)
        rig.kept.topics.update(topic_of(RETRY_TOPIC, 1))
        rig.put(b"failed", topic=RETRY_TOPIC)
        (answer,) = await popper.peer.answers(1)
        assert [message.body for message in decode_records(answer.body)] == [b"failed"]
        popper.peer.leave()


# Refusals


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"message_count_max": 33}, ResponseCode.INVALID_PARAMETER),
        ({"message_count_max": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_ms": -1}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_ms": 3 * 86_400_000 + 1}, ResponseCode.INVALID_PARAMETER),
        ({"consumer_group": "no such"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"expression": "a > ", "expression_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "closed"}, ResponseCode.NO_PERMISSION),
        ({"topic": "writable"}, ResponseCode.NO_PERMISSION),
        pytest.param({"consumer_group": "kept-off"}, ResponseCode.NO_PERMISSION, marks=pytest.mark.feature("X38")),
    ],
)
@virtual_time
async def test_what_cannot_be_popped_is_refused_with_its_code_and_why(tmp_path, changes, code) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x")
        rig.kept.groups.update(GroupConfig(group_name="closed", consume_enable=False))
        rig.kept.topics.update(topic_of("writable", perm=2))
        rig.kept.groups.update(GroupConfig(group_name="kept-off"))
        rig.kept.groups.forbid("kept-off", TOPIC, READ_BIT, True)
        popper = await Popper.connect(rig)
        await popper.pop(**changes)
        assert popper.answer.code == code
        assert popper.answer.remark
        assert rig.revive_records() == []
        popper.peer.leave()


@virtual_time
async def test_a_broker_that_may_not_be_read_gives_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, brokerPermission="2") as rig:
        popper = await Popper.connect(rig)
        await popper.pop()
        assert popper.answer.code == ResponseCode.NO_PERMISSION
        popper.peer.leave()


@virtual_time
async def test_with_too_much_out_nothing_more_is_given_until_some_is_settled(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bolide.broker.pop.shares.FEW", 0)
    monkeypatch.setattr("bolide.broker.pop.shares.OUT_MAX", 4)
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(*[b"x"] * 5)
        popper = await Popper.connect(rig)
        first = [(await popper.pop(message_count_max=1))[0] for _ in range(2)]
        assert await popper.pop() == []
        assert popper.answer.code == ResponseCode.POLLING_FULL
        await popper.ack(first[0])
        assert len(await popper.pop()) == 3
        popper.peer.leave()


@virtual_time
async def test_groups_that_acknowledge_nothing_leave_room_for_others_also_after_a_start(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bolide.broker.pop.shares.FEW", 2)
    monkeypatch.setattr("bolide.broker.pop.shares.OUT_MAX", 120)
    clock = VirtualClock()
    three_days_ms = 3 * 86_400_000
    async with popping(tmp_path, clock, queue_count=1) as rig:
        rig.put(*[b"x"] * 150)
        popper = await Popper.connect(rig)
        taken = {}
        for group in ("hostile-1", "hostile-2", "hostile-3"):
            asked = {"message_count_max": 1, "invisible_ms": three_days_ms, "consumer_group": group}
            taken[group] = 0
            while await popper.pop(**asked):
                taken[group] += 1
            assert popper.answer.code == ResponseCode.POLLING_FULL
        # A half; then two thirds for all of one address; then the few that anybody may have.
        assert taken == {"hostile-1": 60, "hostile-2": 20, "hostile-3": 2}
        for popped in await popper.pop(message_count_max=32):
            assert await popper.ack(popped) == 0
        rig.is_killed = True
        popper.peer.leave()
    async with popping(tmp_path, clock, queue_count=1) as rig:
        popper = await Popper.connect(rig)
        assert rig.room.revivals.out_count == 82
        assert await popper.pop(consumer_group="hostile-1", message_count_max=1) == []
        for _ in range(4):
            (popped,) = await popper.pop(message_count_max=1)
            assert await popper.ack(popped) == 0
        popper.peer.leave()


# Looks and questions


@virtual_time
async def test_a_peek_shows_what_a_pop_would_give_and_takes_nothing(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper = await Popper.connect(rig)
        header = PeekMessageRequest(topic=TOPIC, queue_id=-1, message_count_max=2, consumer_group=GROUP)
        peek = Command(RequestCode.PEEK_MESSAGE, opaque=5, fields=header.encode())
        assert (await popper.peer.ask(peek)).code == ResponseCode.PULL_NOT_FOUND
        rig.put(b"0", b"1", b"2")
        for _ in range(2):
            answer = await popper.peer.ask(peek)
            assert [message.body for message in decode_records(answer.body)] == [b"0", b"1"]
            assert PopMessageAnswer.decode(answer.fields).remaining_count == 1
        assert rig.offsets.get(GROUP, TOPIC, 0) is None
        popper.peer.leave()


def notification(clock: VirtualClock, poll_ms: int, queue_id: int = -1) -> Command:
    header = NotificationRequest(
        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, poll_ms=poll_ms, born_ms=clock.now_ms()
    )
    return Command(RequestCode.NOTIFICATION, opaque=6, fields=header.encode())


@virtual_time
async def test_who_asks_to_be_told_is_told_and_nothing_is_taken(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        asker, popper = await Popper.connect(rig), await Popper.connect(rig)
        answer = await asker.peer.ask(notification(clock, 5_000))
        assert not NotificationAnswer.decode(answer.fields).has_message
        assert clock.now_ms() - 1_700_000_000_000 == 4_950
        asker.peer.send(notification(clock, 60_000))
        await eventually(lambda: rig.room.noticed.count == 1)
        rig.put(b"x")
        (answer,) = await asker.peer.answers(1)
        assert NotificationAnswer.decode(answer.fields).has_message
        assert await popper.bodies() == [b"x"]
        asker.peer.leave()
        popper.peer.leave()


@virtual_time
async def test_the_number_of_those_who_wait_at_a_queue_can_be_asked(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        popper, asker = await Popper.connect(rig), await Popper.connect(rig)
        header = PollingCountRequest(consumer_group=GROUP, topic=TOPIC, queue_id=1)
        question = Command(RequestCode.POLLING_INFO, opaque=7, fields=header.encode())
        assert PollingCountAnswer.decode((await asker.peer.ask(question)).fields).polling_count == 0
        popper.peer.send(popper.pop_request(poll_ms=60_000, queue_id=1))
        await eventually(lambda: rig.room.parked.count == 1)
        assert PollingCountAnswer.decode((await asker.peer.ask(question)).fields).polling_count == 1
        popper.peer.leave()
        asker.peer.leave()
