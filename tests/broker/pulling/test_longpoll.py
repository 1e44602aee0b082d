"""Parked pulls: when they are answered, what they cost, and that they leave no trace."""

import asyncio
import sys
from typing import Any

import pytest

from bolide import kernel
from bolide.broker.pulling import longpoll, pull
from bolide.protocol.codes import ResponseCode
from bolide.remoting.owner import Read
from bolide.testing import VirtualClock
from tests.broker.pullers import (
    GROUP,
    TOPIC,
    Rig,
    bodies_of,
    both_paths,
    choose_path,
    connected,
    place_of,
    pull_of,
    pulling,
    topic_of,
)
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops, eventually, virtual_time

on_both_paths = both_paths(choose_path)
PUSH = 2  # may wait; the filter is that of the heartbeat


def traces_of(rig: Rig) -> int:
    parked = rig.parked
    tables = (parked._by_queue, parked._by_session, parked._by_tick, parked._stirred, parked._woken)
    return parked.count + sum(len(table) for table in tables)


@pytest.mark.feature("F207")
@virtual_time
async def test_an_idle_pull_of_fifteen_seconds_is_answered_after_fifteen_to_twenty(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig, asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer = await connected(rig)
        for wait_s in (0.0, 0.1, 2.5, 4.9):
            await asyncio.sleep(wait_s)  # virtual
            began_s = clock.monotonic_s()
            answer = await peer.ask(pull_of(0, sys_flag=PUSH))
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert place_of(answer).next_offset == 0
            assert 15 <= clock.monotonic_s() - began_s < 20
        assert traces_of(rig) == 0
        checking.cancel()
        peer.leave()


@virtual_time
async def test_the_suspend_time_is_the_askers_and_with_short_polling_the_brokers(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock, longPollingEnable="false") as rig, asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer = await connected(rig)
        began_s = clock.monotonic_s()
        assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == ResponseCode.PULL_NOT_FOUND
        assert 1 <= clock.monotonic_s() - began_s <= 2.1
        checking.cancel()
        peer.leave()


@virtual_time
async def test_a_pull_consumers_twenty_seconds_are_kept_too(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig, asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer = await Peer.connect(rig.port)
        for suspend_ms, low_s, high_s in ((20_000, 20, 25), (0, 0, 5), (-5, 0, 5)):
            began_s = clock.monotonic_s()
            answer = await peer.ask(pull_of(0, sys_flag=6, suspend_timeout_ms=suspend_ms))
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert low_s <= clock.monotonic_s() - began_s <= high_s
        checking.cancel()
        peer.leave()


@pytest.mark.feature("F202", "F208")
@virtual_time
async def test_a_new_message_is_delivered_to_the_parked_pull_without_any_time_passing(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig:
        peer = await connected(rig)
        peer.send(pull_of(0, sys_flag=PUSH, opaque=5))
        await eventually(lambda: rig.parked.count == 1)
        began_s = clock.monotonic_s()
        rig.put(b"now")
        [answer] = await peer.answers(1)
        assert (answer.opaque, bodies_of(answer), place_of(answer).next_offset) == (5, [b"now"], 1)
        assert clock.monotonic_s() == began_s
        assert traces_of(rig) == 0
        # Without another pull there is no delivery.
        rig.put(b"later")
        assert rig.sessions[0].unsent_size == 0
        peer.leave()


@pytest.mark.feature("F206", "F208")
@both_loops
async def test_an_idle_consumer_hears_of_a_message_within_milliseconds(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        loop, took_s = asyncio.get_running_loop(), []
        for n in range(50):
            peer.send(pull_of(n, sys_flag=PUSH))
            await eventually(lambda: rig.parked.count == 1)
            began_s = loop.time()
            rig.put(b"%d" % n)
            [answer] = await peer.answers(1)
            took_s.append(loop.time() - began_s)
            assert bodies_of(answer) == [b"%d" % n]
        assert sorted(took_s)[5] < 0.010, "the rest may have waited for a busy machine"
        peer.leave()


@both_loops
async def test_all_messages_of_one_turn_come_in_one_answer(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        peer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        rig.put(b"a")
        rig.put(b"b", b"c")
        [answer] = await peer.answers(1)
        assert bodies_of(answer) == [b"a", b"b", b"c"]
        peer.leave()


@virtual_time
async def test_a_message_wakes_its_own_queue_and_no_other(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        peer.send(*[pull_of(0, sys_flag=PUSH, queue_id=n, opaque=n) for n in range(4)])
        await eventually(lambda: rig.parked.count == 4)
        rig.put(b"two", queue_id=2)
        [answer] = await peer.answers(1)
        assert answer.opaque == 2
        assert [rig.parked.waiting(TOPIC, n) for n in range(4)] == [1, 1, 0, 1]
        peer.leave()


@virtual_time
async def test_every_group_that_waits_on_a_queue_is_answered(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peers = [await connected(rig, group=f"G{n}") for n in range(3)]
        for n, peer in enumerate(peers):
            peer.send(pull_of(0, sys_flag=PUSH, consumer_group=f"G{n}"))
        await eventually(lambda: rig.parked.count == 3)
        rig.put(b"all")
        for peer in peers:
            assert bodies_of((await peer.answers(1))[0]) == [b"all"]
            peer.leave()


@pytest.mark.feature("F204")
@virtual_time
async def test_two_instances_that_wait_on_the_same_queue_both_get_its_message(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peers = [await connected(rig) for _ in range(2)]
        for peer in peers:
            peer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 2)
        rig.put(b"both")
        for peer in peers:
            assert bodies_of((await peer.answers(1))[0]) == [b"both"]
            peer.leave()


@virtual_time
async def test_many_that_wait_for_one_message_are_answered_in_slices_and_in_their_order(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "_SLICE_COUNT", 10)
    async with pulling(tmp_path, VirtualClock()) as rig:
        peer = await connected(rig)
        peer.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(95)])
        await eventually(lambda: rig.parked.count == 95)
        left = []
        rig.put(b"all")
        while rig.parked._woken:
            left.append(sum(map(len, rig.parked._woken.values())))
            await asyncio.sleep(0)
        assert left == [95, 85, 75, 65, 55, 45, 35, 25, 15, 5]
        assert [answer.opaque for answer in await peer.answers(95)] == list(range(95))
        peer.leave()


@virtual_time
async def test_an_unwanted_tag_does_not_wake_but_moves_the_pull_on_at_the_next_check(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig, asyncio.TaskGroup() as tasks:
        peer = await connected(rig, expression="A")
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        began_s = clock.monotonic_s()
        rig.put(b"b", TAGS="B")
        [answer] = await peer.answers(1)
        assert (answer.code, place_of(answer).next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
        assert 0 < clock.monotonic_s() - began_s <= 5
        peer.send(pull_of(1, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        began_s = clock.monotonic_s()
        rig.put(b"b", TAGS="B")
        rig.put(b"a", TAGS="A")
        [answer] = await peer.answers(1)
        assert (bodies_of(answer), place_of(answer).next_offset) == ([b"a"], 3)
        assert clock.monotonic_s() == began_s
        assert traces_of(rig) == 0
        checking.cancel()
        peer.leave()


@virtual_time
async def test_a_resumed_pull_is_checked_again_and_commits_nothing(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        peer.send(pull_of(0, sys_flag=PUSH | 1, commit_offset=0))
        await eventually(lambda: rig.parked.count == 1)
        assert rig.offsets.get(GROUP, TOPIC, 0) == 0
        rig.offsets.put(GROUP, TOPIC, 0, 44)
        rig.put(b"x")
        assert bodies_of((await peer.answers(1))[0]) == [b"x"]
        assert rig.offsets.get(GROUP, TOPIC, 0) == 44
        peer.send(pull_of(1, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        rig.topics.update(topic_of(perm=2))
        rig.put(b"y")
        assert (await peer.answers(1))[0].code == ResponseCode.NO_PERMISSION
        assert traces_of(rig) == 0
        peer.leave()


@both_loops
async def test_a_closed_connection_leaves_no_trace(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        stays, leaves = await connected(rig), await connected(rig)
        stays.send(pull_of(0, sys_flag=PUSH, queue_id=1))
        leaves.send(*[pull_of(0, sys_flag=PUSH, queue_id=n, opaque=n) for n in range(4)])
        await eventually(lambda: rig.parked.count == 5)
        leaves.leave()
        await eventually(lambda: rig.parked.count == 1)
        rig.put(b"x", queue_id=1)
        assert bodies_of((await stays.answers(1))[0]) == [b"x"]
        assert traces_of(rig) == 0
        stays.leave()


@both_loops
async def test_a_server_that_stops_does_not_wait_for_parked_pulls(tmp_path) -> None:
    loop = asyncio.get_running_loop()
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        peer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        began_s = loop.time()
    assert loop.time() - began_s < 10, "a parked pull waits for fifteen seconds"
    assert traces_of(rig) == 0
    assert await peer.end() == b""


@virtual_time
async def test_a_pull_whose_answer_would_move_it_on_is_not_parked(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", TAGS="A")
        peer = await connected(rig, expression="B")
        for offset, code in ((0, 20), (5, 21)):
            assert (await peer.ask(pull_of(offset, sys_flag=PUSH))).code == code
        assert rig.parked.count == 0
        peer.leave()


@virtual_time
async def test_beyond_the_bound_a_pull_is_turned_away_and_not_told_that_nothing_is_there(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "PARKED_MAX", 3)
    monkeypatch.setattr(longpoll, "PARKED_BY_SESSION_MAX", 2)
    async with pulling(tmp_path) as rig:
        first, second = await connected(rig), await connected(rig)
        first.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(3)])
        [answer] = await first.answers(1)
        assert (answer.opaque, answer.code) == (2, ResponseCode.SYSTEM_BUSY)
        second.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(2)])
        [answer] = await second.answers(1)
        assert (answer.opaque, answer.code) == (1, ResponseCode.SYSTEM_BUSY)
        assert "3 pulls wait" in str(answer.remark)
        assert "1 of them on this connection" in str(answer.remark)
        rig.put(b"x")
        assert [answer.opaque for answer in await first.answers(2)] == [0, 1]
        first.leave()
        second.leave()


@virtual_time
async def test_who_parks_little_finds_a_place_where_others_have_taken_them_all(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "PARKED_MAX", 40)
    monkeypatch.setattr(longpoll, "PARKED_BY_SESSION_MAX", 20)
    async with pulling(tmp_path) as rig:
        flood, honest = [await connected(rig), await connected(rig)], await connected(rig)
        for peer in flood:
            peer.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(20)])
        await eventually(lambda: rig.parked.count == 40)
        honest.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(5)])
        for peer in flood:
            answers = await peer.answers(2)
            assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}
            assert {answer.opaque for answer in answers} < set(range(15, 20))  # the newest
            answer = await peer.ask(pull_of(0, sys_flag=PUSH, opaque=99))
            assert answer.opaque in range(15, 20) or answer.code == ResponseCode.SYSTEM_BUSY
        assert rig.parked.count <= 40
        rig.put(b"x")
        assert [bodies_of(answer) for answer in await honest.answers(5)] == [[b"x"]] * 5
        for peer in (*flood, honest):
            peer.leave()
        await eventually(lambda: traces_of(rig) == 0)


@virtual_time
async def test_a_pull_of_another_connection_is_answered_before_the_thousands_of_one(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "PARKED_AT_QUEUE_MAX", 1_000)
    async with pulling(tmp_path, VirtualClock()) as rig:
        many, one = await connected(rig), await connected(rig)
        many.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(1_000)])
        await eventually(lambda: rig.parked.count == 1_000)
        one.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1_001)
        rig.put(b"x")
        await asyncio.sleep(0)
        assert len(rig.parked._woken) == 1
        assert bodies_of((await one.answers(1))[0]) == [b"x"]
        many.leave()
        one.leave()


@virtual_time
async def test_at_one_queue_a_connection_has_its_few_hundred_and_at_others_more(tmp_path) -> None:
    many = longpoll.PARKED_AT_QUEUE_MAX
    async with pulling(tmp_path) as rig:
        peer, other = await connected(rig), await connected(rig)
        peer.send(*[pull_of(0, sys_flag=PUSH, opaque=n) for n in range(many + 1)])
        [answer] = await peer.answers(1)
        assert (answer.opaque, answer.code) == (many, ResponseCode.SYSTEM_BUSY)
        assert f"{many} for this queue" in str(answer.remark)
        peer.send(pull_of(0, sys_flag=PUSH, queue_id=1))
        other.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == many + 2)
        peer.leave()
        other.leave()


@virtual_time
async def test_pulls_of_one_read_that_are_refused_are_not_all_looked_at_at_once(
    tmp_path, fast_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "PARKED_AT_QUEUE_MAX", 1)
    monkeypatch.setattr(pull, "_EMPTY_AT_ONCE_MAX", 5)
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        stream = b"".join(pull_of(0, sys_flag=PUSH).encode() for _ in range(50))
        bounds = kernel.cut_frames(stream, len(stream), 1 << 24)[0]
        looks: list[Any] = []
        monkeypatch.setattr(rig.pulls, "_frame", lambda *given: looks.append(given))
        assert rig.pulls.answer_read(Read(rig.sessions[0], memoryview(stream), bounds)) == (b"", bounds)
        assert len(looks) == 5
        peer.leave()


@virtual_time
async def test_thousands_of_a_connection_that_leaves_are_forgotten_some_a_turn_and_woken_no_more(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "_FORGOTTEN_COUNT", 10)
    async with pulling(tmp_path) as rig:
        peer, stayer = await connected(rig), await connected(rig)
        peer.send(*[pull_of(0, sys_flag=PUSH, queue_id=n % 4) for n in range(400)])
        await eventually(lambda: rig.parked.count == 400)
        session = next(iter(rig.parked._by_session))
        rig.parked.left(session)
        assert rig.parked.count == 0
        assert sum(map(len, rig.parked._by_queue.values())) == 390
        stayer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        rig.put(b"x")
        assert list(rig.parked._woken) != [session]
        assert bodies_of((await stayer.answers(1))[0]) == [b"x"]
        await eventually(lambda: traces_of(rig) == 0)
        peer.leave()
        stayer.leave()


@virtual_time
async def test_a_pull_that_keeps_a_long_expression_takes_many_places(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longpoll, "PARKED_BY_SESSION_MAX", 10)
    text = " OR ".join(f"a = {n}" for n in range(50))
    async with pulling(tmp_path, enablePropertyFilter="true") as rig:
        peer = await connected(rig)
        for opaque in range(2):
            peer.send(pull_of(0, sys_flag=6, opaque=opaque, subscription=text, expression_type="SQL92"))
        [answer] = await peer.answers(1)
        assert (answer.opaque, answer.code) == (1, ResponseCode.SYSTEM_BUSY)
        assert rig.parked.count == 1 + len(text) // 64 > 5
        peer.leave()
        await eventually(lambda: traces_of(rig) == 0)


@virtual_time
async def test_nobody_waits_longer_than_a_minute_whatever_he_asks_for(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig, asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer = await Peer.connect(rig.port)
        began_s = clock.monotonic_s()
        answer = await peer.ask(pull_of(0, sys_flag=6, suspend_timeout_ms=3_600_000))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert 60 <= clock.monotonic_s() - began_s <= 65
        checking.cancel()
        peer.leave()


@both_loops
async def test_who_does_not_take_his_answers_gets_no_more_of_them_until_he_does(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "_UNSENT_SIZE_MAX", -1)  # everybody counts as slow
    async with pulling(tmp_path) as rig:
        peer = await connected(rig)
        peer.send(pull_of(0, sys_flag=PUSH))
        await eventually(lambda: rig.parked.count == 1)
        rig.put(b"x")
        await asyncio.sleep(0)
        assert rig.parked.count == 1
        monkeypatch.setattr(longpoll, "_UNSENT_SIZE_MAX", 1 << 20)
        await rig.parked.check()
        assert bodies_of((await peer.answers(1))[0]) == [b"x"]
        assert traces_of(rig) == 0
        peer.leave()


@pytest.mark.feature("F210")
@both_loops
async def test_a_thousand_parked_pulls_cost_no_task_and_an_arrival_elsewhere_does_not_look_at_them(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.topics.update(topic_of("Wide", queue_count=1000))
        peer = await connected(rig, topic="Wide")
        tasks_before = len(asyncio.all_tasks())
        peer.send(*[pull_of(0, sys_flag=PUSH, topic="Wide", queue_id=n, opaque=n) for n in range(1000)])
        await eventually(lambda: rig.parked.count == 1000)
        assert len(asyncio.all_tasks()) == tasks_before
        [parked] = rig.parked._by_queue["Wide", 7]
        kept = (parked, parked.request, parked.request.command, parked.request.command.fields)
        assert sum(map(sys.getsizeof, kept)) < 1000
        rig.put(b"x", queue_id=1)
        rig.put(b"x", topic="Wide", queue_id=500)
        [answer] = await peer.answers(1)
        assert answer.opaque == 500
        assert rig.parked.count == 999
        peer.leave()
        await eventually(lambda: traces_of(rig) == 0)


@pytest.mark.feature("X26")
@virtual_time
async def test_a_reset_wakes_the_pulls_of_its_group_and_of_no_other(tmp_path) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock) as rig, asyncio.TaskGroup() as tasks:
        rig.offsets.listen(rig.parked.on_reset)
        rig.put(b"a", b"b", b"c")
        ours, theirs = await connected(rig), await connected(rig, group="others")
        asking = tasks.create_task(ours.ask(pull_of(3, sys_flag=PUSH)), name="ours")
        waiting = tasks.create_task(theirs.ask(pull_of(3, sys_flag=PUSH, consumer_group="others")), name="theirs")
        await eventually(lambda: rig.parked.count == 2)
        began_s = clock.monotonic_s()
        rig.offsets.reset(GROUP, TOPIC, 0, 1)
        answer = await asking
        assert clock.monotonic_s() - began_s < 0.5
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert place_of(answer).next_offset == 1
        assert (waiting.done(), rig.parked.count) == (False, 1)
        theirs.leave()
        waiting.cancel()
        ours.leave()
