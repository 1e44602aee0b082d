"""Numbers of what waits, failed, was popped and is stored: each against what was done, and after a restart."""

from pathlib import Path

from bolide import aio
from bolide.protocol.bodies import GroupConfig
from tests.broker.metering import PROM, scrape
from tests.broker.whole import Whole, whole
from tests.remoting.loops import both_loops, eventually

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
        await eventually(lambda: meter.timed.get("Orders") == 1, 30)
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
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
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
