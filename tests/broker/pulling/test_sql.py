"""SQL92 at the broker: pulls, long polls and pops that choose by properties, and what they hear when they cannot."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from bolide.broker.pulling import filter_budget as sieving
from bolide.broker.pulling import pull
from bolide.filter.sql import compile_sql
from bolide.model.queue import QueueKey
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.remoting import serving, waiting
from bolide.remoting.owner import Reply, Request
from bolide.store.read import Slices
from bolide.testing import VirtualClock
from tests.broker.poppers import Popper, popping
from tests.broker.pullers import (
    GROUP,
    TOPIC,
    Rig,
    bodies_of,
    both_paths,
    choose_path,
    connected,
    heartbeat_of,
    place_of,
    pull_of,
    pulling,
)
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops, eventually, virtual_time

on_both_paths = both_paths(choose_path)
PUSH, WAITING = 0, 2
ON: dict[str, Any] = {"enablePropertyFilter": "true"}
SQL: dict[str, Any] = {"expression_type": "SQL92"}


@pytest.mark.feature("F267", "F271", "F265")
@both_loops
async def test_only_messages_whose_properties_satisfy_the_groups_expression_are_sent(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sieving, "TURN_S", 60.0)  # on a real clock a busy machine may use up a turn between two looks
    async with pulling(tmp_path, **ON) as rig:
        for i in range(40):
            if i % 2:
                rig.put(b"%d" % i, a=str(i), b="x")
            else:
                rig.put(b"%d" % i, a=str(i))
        rig.put(b"none")
        rig.put(b"no number", a="many", b="x")
        peer = await connected(rig, expression="a > 5 AND b IS NOT NULL", version=7, **SQL)
        answer = await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=7))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert bodies_of(answer) == [b"%d" % i for i in range(7, 40, 2)]
        assert place_of(answer).next_offset == 42
        peer.leave()


@pytest.mark.feature("F269", "F270")
@virtual_time
async def test_a_pull_may_bring_its_own_expression_and_one_that_is_none_is_23(tmp_path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        rig.put(b"1", color="red")
        rig.put(b"2", color="blue")
        peer = await Peer.connect(rig.port)
        for code in (11, 361):
            asked = pull_of(0, code=code, subscription="color IN ('blue', 'green')", **SQL)
            assert bodies_of(await peer.ask(asked)) == [b"2"]
        nothing = await peer.ask(pull_of(0, subscription="color = 'black'", **SQL))
        assert (nothing.code, place_of(nothing).next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)
        bad = await peer.ask(pull_of(0, subscription="color = 'blue' AND (", **SQL))
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "the end at character 20" in str(bad.remark)
        odd = await peer.ask(pull_of(0, subscription="x", expression_type="XPATH"))
        assert odd.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        peer.leave()


@virtual_time
async def test_a_group_whose_expression_does_not_compile_hears_27_and_an_older_one_28(tmp_path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        rig.put(b"1", a="1")
        peer = await connected(rig, expression="a = 1", version=5, **SQL)
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=5))) == [b"1"]
        kept = rig.filters.get(TOPIC, GROUP)
        assert kept is not None
        kept.client_version = 4  # as if another member's heartbeat had been slower
        late = await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=5))
        assert late.code == ResponseCode.FILTER_DATA_NOT_LATEST
        await peer.ask(heartbeat_of("a = = 1", version=6, **SQL))
        gone = await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=6))
        assert gone.code == ResponseCode.FILTER_DATA_NOT_EXIST
        await peer.ask(heartbeat_of("a = 1", version=7, **SQL))
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=7))) == [b"1"]
        other = await peer.ask(pull_of(0, sys_flag=PUSH, topic="U"))
        assert other.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_EXIST)
        peer.leave()


@virtual_time
async def test_a_newer_expression_counts_from_its_heartbeat_on(tmp_path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        rig.put(b"1", a="1")
        rig.put(b"2", a="2")
        peer = await connected(rig, expression="a = 1", version=1, **SQL)
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=1))) == [b"1"]
        await peer.ask(heartbeat_of("a = 2", version=2, **SQL))
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=2))) == [b"2"]
        await peer.ask(heartbeat_of("*", version=3))
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=3))) == [b"1", b"2"]
        peer.leave()


@virtual_time
async def test_a_waiting_pull_is_woken_by_a_message_that_passes_and_by_no_other(tmp_path, monkeypatch) -> None:
    clock = VirtualClock()
    async with pulling(tmp_path, clock, **ON) as rig, asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(rig.parked.check_forever(), name="check")
        peer = await connected(rig, expression="a > 5", version=1, **SQL)
        reads = []
        read = rig.store.reader.read

        def noted(*given: Any) -> Slices:
            reads.append(given)
            return read(*given)

        monkeypatch.setattr(rig.store.reader, "read", noted)
        began_s = clock.monotonic_s()
        peer.send(pull_of(0, sys_flag=WAITING, subscription_version=1))
        await eventually(lambda: rig.parked.count == 1)
        for i in range(100):
            rig.put(b"%d" % i, a=str(i % 5))
        assert len(reads) == 1, "what does not pass wakes nobody"
        rig.put(b"wanted", a="6")
        assert bodies_of((await peer.answers(1))[0]) == [b"wanted"]
        assert clock.monotonic_s() - began_s < 1
        # Without one that passes the check comes round, and the answer says how far the consumer may go on.
        peer.send(pull_of(101, sys_flag=WAITING, subscription_version=1))
        await eventually(lambda: rig.parked.count == 1)
        rig.put(b"other", a="1")
        answer = (await peer.answers(1))[0]
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert place_of(answer).next_offset == 102
        assert 0 < clock.monotonic_s() - began_s <= 5
        checking.cancel()
        peer.leave()


TICK_S = 2**-14  # sums of it are exact, so that nothing is decided by rounding
TICKS_A_TURN, TICKS_LATE = math.ceil(sieving.TURN_S / TICK_S), math.ceil(sieving.LATE_S / TICK_S)
# Between two looks at the time are 128 messages without properties.
STEPS = [128] * TICKS_A_TURN
SCANNED_A_TURN, SCANNED_LATE = sum(STEPS[:TICKS_A_TURN]), sum(STEPS[:TICKS_LATE])


class Ticking(VirtualClock):
    """Each look at it takes a tick, and nothing else does."""

    looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return self.looks * TICK_S


def noted_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """For each read of the store from now on: is it the first of its turn, and how much was found and not sent yet."""
    read, loop = rig.store.reader.read, asyncio.get_running_loop()
    reads: list[tuple[bool, int]] = []
    of_this_turn: list[bool] = []

    def noted(*given: Any) -> Slices:
        assert rig.server is not None
        reads.append((not of_this_turn, sum(session.unsent_size for session in rig.server.sessions)))
        of_this_turn.append(True)
        loop.call_soon(of_this_turn.clear)
        return read(*given)

    monkeypatch.setattr(rig.store.reader, "read", noted)
    return reads


@virtual_time
async def test_a_search_has_its_time_and_goes_on_where_it_ended(tmp_path) -> None:
    async with pulling(tmp_path, Ticking(), **ON, mappedFileSizeConsumeQueue="200000") as rig:
        rig.put(*[b"x"] * 5000)
        rig.put(b"needle", a="1")
        peer = await connected(rig, expression="a = 1", version=1, **SQL)
        offset = 0
        answers: list[Command] = []
        while not answers or answers[-1].code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            answers.append(await peer.ask(pull_of(offset, sys_flag=PUSH, subscription_version=1)))
            assert place_of(answers[-1]).next_offset == min(offset + SCANNED_A_TURN, 5001)
            offset = place_of(answers[-1]).next_offset
        assert bodies_of(answers[-1]) == [b"needle"]
        assert len(answers) == math.ceil(5001 / SCANNED_A_TURN)
        peer.leave()


@virtual_time
async def test_searches_of_one_turn_share_the_time_of_one(tmp_path) -> None:
    async with pulling(tmp_path, **ON, mappedFileSizeConsumeQueue="200000") as rig:
        rig.put(*[b"x"] * 5000)
        time, sieve = sieving.FilterBudget(Ticking()), compile_sql("a = 1")

        def scanned() -> int:
            time.begin()
            return rig.store.read(QueueKey(TOPIC, 0), 0, 32, sieve=sieve, is_over=time.is_over).next_offset

        for _ in range(2):
            assert [scanned() for _ in range(10)] == [SCANNED_A_TURN] + [SCANNED_LATE] * 9
            await asyncio.sleep(0)


@both_loops
async def test_pulls_that_come_together_are_searched_for_one_a_turn_and_each_answer_leaves_first(
    tmp_path, monkeypatch
) -> None:
    async with pulling(tmp_path, Ticking(), **ON, mappedFileSizeConsumeQueue="200000") as rig:
        rig.put(*[b"x"] * 5000)
        peer = await connected(rig, expression="a = 1", version=1, **SQL)
        reads = noted_reads(rig, monkeypatch)
        peer.send(*(pull_of(0, opaque=i, sys_flag=PUSH, subscription_version=1) for i in range(10)))
        answers = await peer.answers(10)
        assert [answer.opaque for answer in answers] == list(range(10))
        assert [place_of(answer).next_offset for answer in answers] == [SCANNED_A_TURN] * 10, "each has a whole turn"
        assert reads == [(True, 0)] * 10, "and what was found is not kept back meanwhile"
        assert rig.server is not None
        assert not any(session.in_flight_count for session in rig.server.sessions)
        peer.leave()


@virtual_time
async def test_if_very_many_wait_each_has_less_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sieving, "WAIT_S", 3 * sieving.TURN_S)
    monkeypatch.setattr(pull, "_EMPTY_AT_ONCE_MAX", 100)  # all of them wait from the first on
    monkeypatch.setattr(serving, "TURN_S", 1_000.0)
    monkeypatch.setattr(waiting, "_AT_ONCE_COUNT", 100)
    monkeypatch.setattr(waiting, "_AT_ONCE_SIZE", 1 << 20)
    async with pulling(tmp_path, Ticking(), **ON, mappedFileSizeConsumeQueue="200000") as rig:
        rig.put(*[b"x"] * 5000)
        peer = await connected(rig, expression="a = 1", version=1, **SQL)
        peer.send(*(pull_of(0, opaque=i, sys_flag=PUSH, subscription_version=1) for i in range(70)))
        scanned = [place_of(answer).next_offset for answer in await peer.answers(70)]
        shares_s = [sieving.TURN_S] + [3 * sieving.TURN_S / (70 - i) for i in range(1, 70)]
        ticks = [math.ceil(min(max(share_s, sieving.LATE_S), sieving.TURN_S) / TICK_S) for share_s in shares_s]
        assert scanned == [sum(STEPS[:count]) for count in ticks]
        assert (scanned[1], scanned[-1]) == (SCANNED_LATE, SCANNED_A_TURN)
        peer.leave()


@virtual_time
async def test_few_of_a_connection_wait_to_be_searched_for_at_a_time(tmp_path, monkeypatch) -> None:
    waiting_counts = [0]
    wait = sieving.FilterBudget.wait

    def counted(budget: sieving.FilterBudget, request: Request, serve: Callable[[], Reply]) -> None:
        def served() -> Reply:
            waiting_counts.append(waiting_counts[-1] - 1)
            return serve()

        waiting_counts.append(waiting_counts[-1] + 1)
        wait(budget, request, served)

    monkeypatch.setattr(sieving.FilterBudget, "wait", counted)
    places = 4 * sieving.PLACES
    async with pulling(tmp_path, Ticking(), **ON, inFlightRequestsMax=str(places)) as rig:
        rig.put(*[b"x"] * 5000)
        peer = await connected(rig, expression="a = 1", version=1, **SQL)
        peer.send(*(pull_of(0, opaque=i, sys_flag=PUSH, subscription_version=1) for i in range(200)))
        assert [answer.opaque for answer in await peer.answers(200)] == list(range(200)), "none is refused for it"
        assert max(waiting_counts) <= 32, "those of one read, or as many as there are places for"
        peer.leave()


@virtual_time
async def test_who_left_is_not_searched_for(tmp_path, monkeypatch) -> None:
    async with pulling(tmp_path, Ticking(), **ON, mappedFileSizeConsumeQueue="200000") as rig:
        rig.put(*[b"x"] * 5000)
        peer, other = [await connected(rig, expression="a = 1", version=1, **SQL) for _ in range(2)]
        reads = noted_reads(rig, monkeypatch)
        peer.send(*(pull_of(0, opaque=i, sys_flag=PUSH, subscription_version=1) for i in range(10)))
        for _ in range(100):
            if not reads:
                await asyncio.sleep(0)  # no longer, for the searches go on
        assert rig.server is not None
        (session,) = [each for each in rig.server.sessions if each.in_flight_count]
        begun_count = len(reads)
        assert session.in_flight_count >= 10 - begun_count > 0, "those that wait count as work for their peer"
        session.abort("test")
        other.send(pull_of(0, sys_flag=PUSH, subscription_version=1))
        await other.answers(1)
        assert len(reads) == begun_count + 1
        other.leave()


@virtual_time
async def test_failed_messages_are_filtered_by_their_own_topics_expression_if_that_is_set(tmp_path) -> None:
    retry = f"%RETRY%{GROUP}"
    for setting, expected in (("false", []), ("true", [b"passes", b"nobody's"])):
        async with pulling(tmp_path / setting, **ON, filterSupportRetry=setting) as rig:
            rig.put(b"passes", topic=retry, RETRY_TOPIC=TOPIC, a="1")
            rig.put(b"fails", topic=retry, RETRY_TOPIC=TOPIC, a="2")
            rig.put(b"nobody's", topic=retry, RETRY_TOPIC="U", a="2")
            peer = await connected(rig, expression="a = 1", version=1, **SQL)
            asked = pull_of(0, topic=retry, subscription="never = 1", **SQL)
            assert bodies_of(await peer.ask(asked)) == expected
            # Java's clients subscribe their retry topic with all tags: nothing is filtered then.
            assert len(bodies_of(await peer.ask(pull_of(0, topic=retry)))) == 3
            peer.leave()


@pytest.mark.feature("F273")
@virtual_time
async def test_tags_with_one_hash_are_both_sent_and_the_consumer_tells_them_apart(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"1", TAGS="Aa")
        rig.put(b"2", TAGS="BB")
        rig.put(b"3", TAGS="CC")
        peer = await connected(rig, expression="Aa", version=1)
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=1))) == [b"1", b"2"]
        peer.leave()


@virtual_time
async def test_an_error_in_one_branch_fails_the_message_even_if_another_would_pass(tmp_path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        rig.put(b"1", a="abc", b="x")
        peer = await Peer.connect(rig.port)
        assert bodies_of(await peer.ask(pull_of(0, subscription="a = 5 OR b = 'x'", **SQL))) == []
        assert bodies_of(await peer.ask(pull_of(0, subscription="b = 'x' OR a = 5", **SQL))) == [b"1"]
        peer.leave()


@pytest.mark.feature("X32")
@virtual_time
async def test_texts_are_searched_with_contains_startswith_and_endswith(tmp_path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        rig.put(b"1", path="/orders/eu/1")
        rig.put(b"2", path="/orders/us/2")
        peer = await Peer.connect(rig.port)
        for expression, expected in (
            ("path CONTAINS '/eu/'", [b"1"]),
            ("path NOT CONTAINS '/eu/'", [b"2"]),
            ("path STARTSWITH '/orders/'", [b"1", b"2"]),
            ("path ENDSWITH '/2'", [b"2"]),
        ):
            assert bodies_of(await peer.ask(pull_of(0, subscription=expression, **SQL))) == expected
        peer.leave()


@virtual_time
async def test_a_pop_chooses_by_sql_and_waits_for_what_passes(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock, queue_count=1, mappedFileSizeConsumeQueue="200000") as rig:
        for i in range(6):
            rig.put(b"%d" % i, a=str(i))
        popper = await Popper.connect(rig)
        sql = {"expression": "a >= 4", **SQL}
        assert await popper.bodies(**sql) == [b"4", b"5"]
        popper.peer.send(popper.pop_request(poll_ms=10_000, **sql))
        await eventually(lambda: rig.room.parked.count == 1)
        rig.put(*[b"x"] * 3000, a="1")
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.room.parked.count == 1
        rig.put(b"9", a="9")
        (answer,) = await popper.peer.answers(1)
        assert bodies_of(answer) == [b"9"]
        popper.peer.leave()
