"""Counters, and what they say of the last minute, hour and day."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from bolide.broker.stats import Stats
from bolide.protocol.bodies.brokers import BrokerStats
from bolide.testing.loop import VirtualClock, run

HOUR_S, DAY_S = 3600, 86_400


def watched(scenario: Callable[[Stats], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time, beside the timer that notes the totals."""

    async def main() -> None:
        stats = Stats(VirtualClock())
        sampling = asyncio.ensure_future(stats.sample_forever())
        try:
            await scenario(stats)
        finally:
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling

    run(main())


def viewed(stats: Stats, name: str, key: str) -> BrokerStats:
    found = stats.view(name, key, "C1")
    assert found is not None
    return found


def test_new_messages_count_at_once() -> None:
    async def scenario(stats: Stats) -> None:
        await asyncio.sleep(5)  # virtual
        stats.put("T", 10, 2_000)
        item = viewed(stats, "TOPIC_PUT_NUMS", "T")
        assert (item.stats_minute.sum, item.stats_hour.sum, item.stats_day.sum) == (10, 10, 10)
        assert item.stats_minute.tps == 2.0
        assert viewed(stats, "TOPIC_PUT_SIZE", "T").stats_minute.avgpt == 200.0

    watched(scenario)


def test_what_is_older_than_the_window_no_longer_counts() -> None:
    async def scenario(stats: Stats) -> None:
        stats.put("T", 600, 600)
        await asyncio.sleep(75)  # virtual
        stats.put("T", 6, 6)
        item = viewed(stats, "TOPIC_PUT_NUMS", "T")
        assert (item.stats_minute.sum, item.stats_hour.sum) == (6, 606)
        await asyncio.sleep(HOUR_S + 900)  # virtual
        item = viewed(stats, "TOPIC_PUT_NUMS", "T")
        assert (item.stats_minute.sum, item.stats_hour.sum, item.stats_day.sum) == (0, 0, 606)

    watched(scenario)


def test_a_steady_stream_has_its_rate_in_every_window() -> None:
    async def scenario(stats: Stats) -> None:
        for _ in range(2 * HOUR_S // 10):
            await asyncio.sleep(10)  # virtual
            stats.put("T", 50, 50)
        item = viewed(stats, "TOPIC_PUT_NUMS", "T")
        for window in (item.stats_minute, item.stats_hour, item.stats_day):
            assert 4.9 < window.tps < 5.9
        assert 4.9 < stats.put_rate("T") < 5.9
        assert all(4.9 < stats.rates(over_s).put_count < 10.1 for over_s in (10, 60, 600))

    watched(scenario)


def test_a_counter_that_stood_still_for_a_day_is_forgotten_and_the_totals_are_not() -> None:
    async def scenario(stats: Stats) -> None:
        stats.put("gone", 1, 1)
        stats.got("G", "gone", 1, 1)
        await asyncio.sleep(12 * HOUR_S)  # virtual
        stats.put("kept", 1, 1)
        await asyncio.sleep(14 * HOUR_S)  # virtual
        assert stats.view("TOPIC_PUT_NUMS", "gone", "C1") is None
        assert stats.view("GROUP_GET_NUMS", "gone@G", "C1") is None
        assert viewed(stats, "TOPIC_PUT_NUMS", "kept").stats_day.sum == 1
        assert stats.put_total.count == 2

    watched(scenario)


def test_samples_do_not_pile_up() -> None:
    async def scenario(stats: Stats) -> None:
        for _ in range(2 * DAY_S // 600):
            await asyncio.sleep(600)  # virtual
            stats.put("T", 1, 1)
        assert max(len(samples) for samples in stats.put_total.noted) <= 26

    watched(scenario)


def test_groups_are_told_apart_by_topic_and_group() -> None:
    async def scenario(stats: Stats) -> None:
        stats.got("G1", "T", 32, 3_200)
        stats.got("G1", "T", 8, 800)
        stats.got("G2", "T", 1, 100)
        stats.sent_back("G1", "T")
        stats.acked("G1", "T", 3)
        stats.died("G1", "T")
        found = viewed(stats, "GROUP_GET_NUMS", "T@G1").stats_minute
        assert (found.sum, found.avgpt) == (40, 20.0)
        assert viewed(stats, "GROUP_GET_SIZE", "T@G2").stats_minute.sum == 100
        for name, total in (("SNDBCK_PUT_NUMS", 1), ("GROUP_ACK_NUMS", 3), ("DLQ_PUT_NUMS", 1)):
            assert viewed(stats, name, "T@G1").stats_minute.sum == total
            assert stats.view(name, "T@G2", "C1") is None
        assert viewed(stats, "BROKER_GET_NUMS", "C1").stats_minute.sum == 41
        assert stats.view("BROKER_GET_NUMS", "elsewhere", "C1") is None
        assert stats.view("NO_SUCH", "T@G1", "C1") is None

    watched(scenario)


def test_a_deleted_topic_or_group_takes_its_counters_along() -> None:
    async def scenario(stats: Stats) -> None:
        for group in ("G1", "G2"):
            stats.got(group, "T", 1, 1)
            stats.got(group, "U", 1, 1)
        stats.put("T", 1, 1)
        stats.forget_topic("T")
        stats.forget_group("G2")
        assert stats.view("TOPIC_PUT_NUMS", "T", "C1") is None
        known = [key for key in ("T@G1", "T@G2", "U@G1", "U@G2") if stats.view("GROUP_GET_NUMS", key, "C1")]
        assert known == ["U@G1"]

    watched(scenario)


def test_midnight_moves_the_totals_of_the_morning() -> None:
    async def scenario(stats: Stats) -> None:
        stats.put("T", 5, 5)
        await asyncio.sleep(DAY_S)  # virtual
        assert stats.put_mornings == (0, 5)
        stats.put("T", 2, 2)
        await asyncio.sleep(DAY_S)  # virtual
        assert stats.put_mornings == (5, 7)

    watched(scenario)


def test_times_fall_into_rocketmqs_classes() -> None:
    async def scenario(stats: Stats) -> None:
        stats.took(990, 0)
        stats.took(9, 7)
        stats.took(1, 60_000)
        text = stats.took_text()
        assert "[0ms]:990 [0~10ms]:9 " in text
        assert text.endswith("[10s~]:1")
        assert (stats.took_below_ms(0.99), stats.took_below_ms(0.999), stats.took_below_ms(1.0)) == (0, 10, 60_000)

    watched(scenario)
