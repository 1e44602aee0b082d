"""Numbers of what waits, failed, was popped and is stored: each against what was done, and after a restart."""

import time
from pathlib import Path

import pytest

from bolide import aio
from bolide.model.topics import retry_topic
from bolide.protocol.bodies import GroupConfig
from bolide.remoting import health
from tests.broker.damage import flip, place_of
from tests.broker.metering import PROM, scrape
from tests.broker.whole import Whole, whole
from tests.remoting.loops import both_loops, eventually
from tests.store.given import draft

OLDEST = aio.StartFrom.oldest()
BODY = b"x" * 100


async def created(rocket: Whole) -> None:
    async with aio.Admin(rocket.ns.address) as admin:
        await admin.create_topic("Orders", 1)


@both_loops
async def test_timed_and_delayed_messages_are_counted_while_they_wait_and_when_they_come(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for delay_s in (1, 600):
            await producer.send("Orders", BODY, delay=delay_s)
        await producer.send("Orders", BODY, delay_level=18)
        meter = rocket.broker.meter
        assert meter is not None
        await eventually(lambda: (meter.filed.get("Orders"), meter.timed.get("Orders")) == (2, 1), 30)
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_timer_dequeue_total", topic="Orders") == 1
        assert page.value("rocketmq_timer_enqueue_total", topic="Orders") == 2
        assert page.value("rocketmq_timing_messages", topic="Orders") == 1
        assert page.value("rocketmq_timer_dequeue_lag") == 1
        assert page.value("rocketmq_timer_enqueue_lag") == 0
        assert page.value("rocketmq_timer_enqueue_latency_milliseconds") == 0
        assert (page.value("rocketmq_timer_dequeue_latency_milliseconds") or 0) < 30_000
        assert page.value("rocketmq_timer_message_snapshot", timer_bound_s="900") == 1
        assert page.value("rocketmq_timer_message_snapshot") == 1
        assert page.value("rocketmq_delay_message_latency_seconds_count", topic="Orders") == 2
        assert page.value("rocketmq_delay_message_latency_seconds_bucket", topic="Orders", le="60.0") == 1
        assert page.value("bolide_delayed_messages", level="18") == 1
        for name in ("timer_enqueue_total", "timer_dequeue_total", "timing_messages", "timer_message_snapshot"):
            assert page.value(f"rocketmq_{name}", storage_type="local", storage_medium="disk"), name
    async with whole(tmp_path, **PROM) as rocket:
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_timing_messages", topic="Orders") == 1
        assert page.value("rocketmq_timer_dequeue_lag") == 1
        assert page.value("bolide_delayed_messages", level="18") == 1


@both_loops
async def test_what_failed_is_counted_by_its_group_and_what_went_out_by_its_bytes(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(2):
            await producer.send("Orders", BODY)
        size = rocket.broker.state.stats.put_total.size
        async with aio.Consumer("readers", "Orders", rocket.ns.address, start_from=OLDEST) as consumer:
            # Without a route to the group's retry topic a dead letter is given back too, and counts as that.
            await eventually(lambda: retry_topic("readers") in rocket.ns.namesrv.tables.topics, 30)
            (await consumer.receive(1))[0].dead_letter("broken")
            (await consumer.receive(1))[0].nack()
            of_group = {"consumer_group": "readers", "topic": "Orders"}
            stats = rocket.broker.state.stats
            await eventually(lambda: all(map(stats.by_group, ("DLQ_PUT_NUMS", "SNDBCK_PUT_NUMS"))), 30)
        page = await scrape(rocket.broker)
        assert page.value("bolide_sent_back_messages_total", **of_group) == 1
        assert page.value("rocketmq_send_to_dlq_messages_total", **of_group) == 1
        assert page.value("rocketmq_throughput_out_total", **of_group) == size


@both_loops
async def test_members_that_differ_and_groups_that_are_made_are_counted(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Admin(rocket.ns.address) as admin:
        await created(rocket)
        await admin.set_group(GroupConfig(group_name="made"))
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_consumer_group_number") == len(rocket.broker.state.groups.table)
        made = "rocketmq_consumer_group_create_execution_time_milliseconds_count"
        assert page.value(made, invocation_status="success") == 1
        assert page.value("bolide_subscription_conflicts") is None
        async with (
            aio.Consumer("torn", {"Orders": "A"}, rocket.ns.address),
            aio.Consumer("torn", {"Orders": "B"}, rocket.ns.address, instance_name="other"),
        ):
            groups = rocket.broker.state.members.consumer_groups
            await eventually(lambda: "torn" in groups and bool(groups["torn"].agreement.conflicts()), 30)
            page = await scrape(rocket.broker)
            assert page.value("bolide_subscription_conflicts", consumer_group="torn") == 1


@both_loops
async def test_the_store_tells_its_sizes_and_an_empty_one_no_age(tmp_path: Path) -> None:
    soon = {"flushCommitLogLeastPages": "0"}
    async with whole(tmp_path, **PROM | soon) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        store = rocket.broker.state.store
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_storage_message_reserve_time_milliseconds") is None
        await producer.send("Orders", BODY)
        page = await scrape(rocket.broker)
        assert (page.value("rocketmq_storage_message_reserve_time_milliseconds") or -1) >= 0
        assert page.value("rocketmq_storage_dispatch_behind_bytes") == store.dispatch_behind == 0
        assert (page.value("rocketmq_storage_flush_behind_bytes") or 0) <= store.log_end
        assert page.value("bolide_disk_limit_ratio") == store.config.disk_percent_full / 100
        used = page.value("rocketmq_storage_size_bytes", storage_type="local", storage_medium="disk")
        assert (used or 0) >= store.log_end - store.log_start
        await eventually(lambda: store.log_end == store.durable_end, 30)
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_storage_flush_behind_bytes") == 0


@both_loops
async def test_what_was_not_pulled_yet_has_the_age_of_its_first_message(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        await producer.send("Orders", BODY)
        async with aio.Consumer("readers", "Orders", rocket.ns.address, start_from=OLDEST) as consumer:
            (await consumer.receive(1))[0].ack()
        of_group = {"consumer_group": "readers", "topic": "Orders"}
        name = "rocketmq_consumer_queueing_latency_milliseconds"
        assert (await scrape(rocket.broker)).value(name, **of_group) == 0
        clock = rocket.broker.state.clock
        before_ms = clock.now_ms()
        await producer.send("Orders", BODY)
        sent_ms = clock.now_ms()
        await producer.send("Orders", BODY)
        await eventually(lambda: clock.now_ms() > sent_ms, 30)
        asked_ms = clock.now_ms()
        age_ms = (await scrape(rocket.broker)).value(name, **of_group)
        assert age_ms is not None
        assert asked_ms - sent_ms <= age_ms <= clock.now_ms() - before_ms


@both_loops
async def test_a_loop_that_was_held_says_for_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_LOOK_S", 0.01)
    async with whole(tmp_path, **PROM) as rocket:
        seen_s = long_count = 0.0
        while seen_s < 0.05 or not long_count:  # a busy machine adds short ones, and may look before the first
            held_until_s = time.perf_counter() + 0.06
            while time.perf_counter() < held_until_s:
                pass
            page = await scrape(rocket.broker)
            seen_s = page.value("bolide_loop_delay_seconds_sum") or 0.0
            short_count = page.value("bolide_loop_delay_seconds_bucket", le="0.025") or 0.0
            long_count = (page.value("bolide_loop_delay_seconds_count") or 0.0) - short_count


@both_loops
async def test_records_that_cannot_be_read_are_counted_by_the_task_that_met_them(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket:
        await created(rocket)
        store, intake = rocket.broker.state.store, rocket.broker.intake
        assert (await scrape(rocket.broker)).value("bolide_passed_over_total") is None
        where = intake.route("Orders", 0, {"DELAY": "1"})
        intake.append([draft(BODY, where.topic, where.queue_id, 0, **where.properties)])
        place, size = place_of(store, "SCHEDULE_TOPIC_XXXX", 0)  # in the same turn, so that nobody delivers it before
        for at in range(size):
            flip(store, place + at)
        await eventually(lambda: store.mishaps.total > 0, 30)
        page = await scrape(rocket.broker)
        for task, count in store.mishaps.counts.items():
            assert page.value("bolide_passed_over_total", task=task) == count


OF_THE_STORE = (
    "rocketmq_topic_number",
    "rocketmq_consumer_group_number",
    "rocketmq_half_messages",
    "rocketmq_timing_messages",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_timer_message_snapshot",
    "rocketmq_consumer_lag_messages",
    "bolide_queue_lag_messages",
    "bolide_delayed_messages",
    "bolide_store_size_bytes",
)
AGES = ("rocketmq_consumer_lag_latency_milliseconds", "rocketmq_storage_message_reserve_time_milliseconds")


@both_loops
async def test_after_a_restart_what_is_kept_has_the_numbers_it_had_and_counting_begins_again(tmp_path: Path) -> None:
    settings = PROM | {"bolideQueueLagMetrics": "true"}
    async with whole(tmp_path, **settings) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(3):
            await producer.send("Orders", BODY)
        async with aio.Consumer("readers", "Orders", rocket.ns.address, start_from=OLDEST) as consumer:
            (await consumer.receive(1))[0].ack()
        await producer.send("Orders", BODY)
        await producer.send("Orders", BODY, delay=600)
        await producer.send("Orders", BODY, delay_level=18)
        async with aio.TransactionProducer("tg", rocket.ns.address, checker=lambda _: aio.Outcome.UNKNOWN) as banker:
            transaction = banker.transaction("Orders", BODY)
            await transaction.start()
            await transaction.unknown()
        meter = rocket.broker.meter
        assert meter is not None
        await eventually(lambda: meter.filed.get("Orders") == 1, 30)
        before = await scrape(rocket.broker)
    async with whole(tmp_path, **settings) as rocket:
        after = await scrape(rocket.broker)
    numbers = {name: before.value(name) for name in OF_THE_STORE}
    assert all(numbers.values()), "each of them has something to keep"
    assert {name: after.value(name) for name in OF_THE_STORE} == numbers
    assert all((after.value(name) or 0) >= (before.value(name) or 1) for name in AGES)
    assert {name for name, _, _ in after.series if name.startswith("rocketmq_") and name.endswith("_total")} == set()


@both_loops
async def test_the_age_of_what_cannot_be_read_is_absent_and_a_group_ahead_of_its_queue_is_not_behind(
    tmp_path: Path,
) -> None:
    lag, late = "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency_milliseconds"
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        await producer.send("Orders", BODY)
        state = rocket.broker.state
        state.offsets.put("behind", "Orders", 0, 0)
        state.offsets.put("ahead", "Orders", 0, 5)
        place, size = place_of(state.store, "Orders", 0)
        for at in range(size):
            flip(state.store, place + at)
        page = await scrape(rocket.broker)
        assert (page.value(lag, consumer_group="behind"), page.value(late, consumer_group="behind")) == (1, None)
        assert (page.value(lag, consumer_group="ahead"), page.value(late, consumer_group="ahead")) == (0, 0)
