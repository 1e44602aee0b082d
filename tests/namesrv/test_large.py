"""Registrations of ten thousand topics: carried out in turn, in slices, and in nobody's way."""

import asyncio
import logging
from pathlib import Path

import pytest

from bolide.errors import Refusal
from bolide.namesrv import registrations
from bolide.namesrv.change_queue import ChangeQueue
from bolide.namesrv.entries import Plan
from bolide.protocol.command import Command
from tests.namesrv.brokers import RW
from tests.namesrv.peers import BrokerPeer, registration_body, running, settled
from tests.remoting.loops import both_loops, eventually, own_loop

MANY = {f"topic-{i:05}": RW for i in range(10_000)}


@pytest.mark.feature("F056")
@pytest.mark.parametrize("compressed", [False, True])
@both_loops
async def test_ten_thousand_topics_register_and_their_size_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, compressed: bool
) -> None:
    caplog.set_level(logging.INFO, "bolide.namesrv")
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        assert (await broker.register(MANY, compressed=compressed)).code == 0
        assert len(ns.namesrv.tables.topics) == 10_000
        assert (await ns.look_up("topic-09999")).code == 0
        size = len(registration_body(MANY, compressed=compressed))
        assert any(f"topics=10000 written=10000 removed=0 size={size}" in line for line in caplog.messages)
        assert (await broker.register(MANY, compressed=compressed)).code == 0
        told = [line for line in caplog.messages if f"name={broker.name} " in line]
        assert sum("written=" in line for line in told) == 1  # a mere heartbeat is no news


@pytest.mark.parametrize("compressed", [False, True])
@both_loops
async def test_look_ups_are_answered_between_the_slices_of_a_large_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    seen: list[int] = []
    slices: list[int] = []
    compare, is_ours = Plan.compare, own_loop()

    def noted(plan: Plan, count: int) -> bool:
        if is_ours():
            slices.append(count)
        return compare(plan, count)

    monkeypatch.setattr(Plan, "compare", noted)
    async with running(tmp_path) as ns, BrokerPeer(ns, "small") as small, BrokerPeer(ns, "big") as big:
        await small.register()
        real_sleep = asyncio.sleep

        async def look_up_meanwhile(delay_s: float) -> None:
            if is_ours() and delay_s == 0 and not seen and ns.namesrv.registrations.changes.waiting_count:
                answer = await ns.look_up("T1")
                seen.append(answer.code)
                assert "big" not in ns.namesrv.tables.brokers
            await real_sleep(delay_s)

        monkeypatch.setattr(asyncio, "sleep", look_up_meanwhile)
        slices.clear()
        assert (await big.register(MANY, compressed=compressed)).code == 0
        assert seen == [0]
        assert slices == [registrations.TOPICS_A_SLICE] * 20


@pytest.mark.feature("F051", "F046")
@both_loops
async def test_registrations_are_carried_out_one_after_another_in_the_order_they_came(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns, "big") as big, BrokerPeer(ns, "small") as small:
        order: list[str] = []
        tables = ns.namesrv.tables
        apply = tables.apply

        def noted(plan, now_ms):  # type: ignore[no-untyped-def]
            order.append(plan.announcement.name)
            return apply(plan, now_ms)

        tables.apply = noted  # type: ignore[method-assign]
        first = asyncio.ensure_future(big.register(MANY))
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count > 0)
        wiped = asyncio.ensure_future(ns.ask(205, {"brokerName": "big"}))
        await settled()
        second = asyncio.ensure_future(small.register())
        assert (await first).code == (await second).code == 0
        assert order == ["big", "small"]
        assert (await wiped).fields == {"wipeTopicCount": "10000"}
        assert ns.namesrv.registrations.changes.waiting_count == 0


@pytest.mark.parametrize("losses", [1, 100])
@both_loops
async def test_tables_that_change_between_two_slices_make_the_plan_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    """Rows that were there when they were compared are gone when the plan is applied; they must be written again."""
    left = [losses]
    async with running(tmp_path) as ns, BrokerPeer(ns, "big") as big:
        await big.register(MANY)
        compare, is_ours = Plan.compare, own_loop()

        def lose_meanwhile(plan: Plan, count: int) -> bool:
            is_left = compare(plan, count)
            if is_ours() and left[0] and count == registrations.TOPICS_A_SLICE:
                left[0] -= 1
                ns.namesrv.tables.delete_topic("topic-00000")
                ns.namesrv.tables.wipe_write("big")
                ns.namesrv.tables.add_write("big")
            return is_left

        monkeypatch.setattr(Plan, "compare", lose_meanwhile)
        assert (await big.register(MANY)).code == 0
        assert len(ns.namesrv.tables.topics) == 10_000


@both_loops
async def test_a_broker_that_leaves_during_a_large_registration_spoils_no_plan(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns, "big") as big, BrokerPeer(ns, "small") as small:
        await small.register({"topic-00000": RW, "own": RW})
        first = asyncio.ensure_future(big.register(MANY))
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count > 0)
        small.hang_up()
        assert (await first).code == 0
        await eventually(lambda: "small" not in ns.namesrv.tables.brokers)
        assert ns.namesrv.tables.topics["topic-00000"] == ("big",)
        assert len(ns.namesrv.tables.topics) == 10_000


@both_loops
async def test_a_broker_that_hangs_up_during_its_own_large_registration_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns, "big") as big:
        first = asyncio.ensure_future(big.register(MANY))
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count > 0)
        big.hang_up()
        await asyncio.gather(first, return_exceptions=True)
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count == 0)
        await eventually(lambda: len(ns.server.sessions) == 0)
        assert ns.namesrv.tables.brokers == {}
        assert ns.namesrv.tables.live == {}


@both_loops
async def test_what_waits_for_a_turn_is_bounded_in_bytes() -> None:
    turns = ChangeQueue(size_max=100)
    gate = asyncio.Event()

    async def long() -> Command:
        await gate.wait()
        return Command(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(turns.run_forever())
        first = turns.run(long, 60, is_long=True)
        second = turns.run(lambda: Command(1), 40)
        with pytest.raises(Refusal) as caught:
            turns.run(lambda: Command(2), 1)
        assert caught.value.code == 2
        assert not isinstance(first, Command)
        assert not isinstance(second, Command)
        gate.set()
        assert [(await first).code, (await second).code] == [0, 1]
        await settled()
        third = turns.run(lambda: Command(3), 1000)
        assert isinstance(third, Command)  # nobody is at it: done at once, nothing waits
        task.cancel()


@both_loops
async def test_a_turn_that_fails_is_its_askers_alone_and_one_nobody_awaits_is_skipped() -> None:
    turns = ChangeQueue()
    done: list[str] = []

    def fail() -> Command:
        raise Refusal(1, "no")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(turns.run_forever())
        failing = asyncio.ensure_future(turns.run(fail, is_long=True))  # type: ignore[arg-type]
        skipped = asyncio.ensure_future(turns.run(lambda: done.append("skipped") or Command(0)))  # type: ignore[arg-type, func-returns-value, redundant-expr]
        last = asyncio.ensure_future(turns.run(lambda: done.append("last") or Command(0)))  # type: ignore[arg-type, func-returns-value, redundant-expr]
        skipped.cancel()
        with pytest.raises(Refusal):
            await failing
        await last
        assert done == ["last"]
        task.cancel()
