"""The broker's page: each number against what was done."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bolide import aio
from bolide.broker.metrics.versions import version_name
from bolide.protocol.codes import RequestCode
from bolide.remoting.inside import InsideSession, InsideTurn
from bolide.remoting.owner import Read
from bolide.remoting.session import Session
from tests.broker.metering import PROM, ask, scrape
from tests.broker.reads import Peer
from tests.broker.senders import message
from tests.broker.whole import Whole, whole
from tests.kernel.send_frames import bounds_of
from tests.remoting.loops import both_loops, eventually

OLDEST = aio.StartFrom.oldest()
BODY = b"x" * 100


async def created(rocket: Whole, topic: str = "Orders", queue_count: int = 2) -> None:
    async with aio.Admin(rocket.ns.address) as admin:
        await admin.create_topic(topic, queue_count)


async def read_all(rocket: Whole, group: str, count: int, topic: str = "Orders") -> None:
    async with aio.Consumer(group, topic, rocket.ns.address, start_from=OLDEST) as consumer:
        while count:
            for message in await consumer.receive(count):
                message.ack()
                count -= 1


@pytest.mark.feature("X20")
@both_loops
async def test_what_comes_in_is_counted_by_topic_and_kind_and_what_goes_out_by_group(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(3):
            await producer.send("Orders", BODY)
        for _ in range(2):
            await producer.send("Orders", BODY, properties={"__SHARDINGKEY": "a customer"})
        await producer.send_batch([aio.Message("Orders", BODY) for _ in range(4)])
        page = await scrape(rocket.broker)
        sent = "rocketmq_messages_in_total"
        assert page.value(sent, topic="Orders", message_type="normal", is_system="false") == 7
        assert page.value(sent, topic="Orders", message_type="fifo") == 2
        assert page.value("rocketmq_throughput_in_total") == rocket.broker.state.stats.put_total.size
        assert page.value("rocketmq_message_size_count") == 3 + 2 + 1  # once for each request
        assert page.value("rocketmq_message_size_bucket", le="1024.0") == 6
        await producer.send("Orders", BODY, delay_level=1)
        await eventually(lambda: rocket.broker.state.stats.put_total.count == 11, 30)
        levels = rocket.broker.metrics_port.shown.delays.table
        await eventually(lambda: levels.get(1) == 1, 30)
        assert (await scrape(rocket.broker)).value("bolide_delayed_messages", level="1") == 0
        await read_all(rocket, "readers", 10)
        page = await scrape(rocket.broker)
        assert page.value(sent, topic="SCHEDULE_TOPIC_XXXX", message_type="delay", is_system="true") == 1
        assert page.value(sent, topic="Orders", message_type="delay") == 1  # delivered
        assert page.value("rocketmq_throughput_in_total") == rocket.broker.state.stats.put_total.size
        assert page.value("rocketmq_message_size_count") == 3 + 2 + 1 + 1 + 1  # and once when it is delivered
        assert page.value("rocketmq_messages_out_total", topic="Orders", consumer_group="readers") == 10
        common = {"cluster", "node_id", "node_type", "otel_scope_name"}
        assert page.labels(sent) == common | {"topic", "message_type", "is_system"}
        assert page.value("rocketmq_messages_in_total", cluster="C1", node_id="broker-a", node_type="broker") == 11


@both_loops
async def test_requests_are_timed_by_code_and_answer_and_what_is_refused_is_counted(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(5):
            await producer.send("Orders", BODY)
        await rocket.ask(4711)
        await rocket.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        page = await scrape(rocket.broker)
        rpc = "rocketmq_rpc_latency_milliseconds_count"
        about = {"protocol_type": "remoting", "is_long_polling": "false", "result": "success"}
        sends = [page.value(rpc, request_code=code, response_code="success", **about) or 0
                 for code in ("send_message_v2", "send_message")]  # fmt: skip
        assert sum(sends) == 5
        assert page.value(rpc, request_code="get_broker_runtime_info", response_code="success", **about) == 1
        refused = {"request_code": "unknown", "response_code": "request_code_not_supported"}
        assert page.value("bolide_refused_requests_total", **refused) == 1
        assert page.value("rocketmq_topic_create_execution_time_milliseconds_count", invocation_status="success") == 1


@both_loops
async def test_what_is_answered_with_a_turn_is_timed_from_its_arrival(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        await producer.send("Orders", BODY)  # the first of a topic is served by itself
        stream = message().encode()
        session = Peer(frame_began_s=rocket.broker.state.clock.monotonic_s() - 1_000)
        read = Read(cast(Session, session), memoryview(stream), bounds_of(stream))
        assert [left for _, left in rocket.broker.handle_turn([read])] == [[]]
        page, sends = await scrape(rocket.broker), {"request_code": "send_message_v2"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **sends) == 2
        assert (page.value("rocketmq_rpc_latency_milliseconds_sum", **sends) or 0) >= 1_000_000


@both_loops
async def test_what_a_client_inside_posts_is_timed_from_then_and_not_from_its_first_request(tmp_path: Path) -> None:
    async with (
        whole(tmp_path, **PROM) as rocket,
        aio.Producer("pg", rocket.ns.address) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        await created(rocket)
        await producer.send("Orders", BODY)
        clock, answers = rocket.broker.state.clock, list[object]()
        session = InsideSession(InsideTurn(rocket.broker), clock, tasks, "10.0.0.9:7", lambda _: None)
        session.frame_began_s -= 1_000
        session.post(message(), answers.append)
        await eventually(lambda: len(answers) == 1, 30)
        page, sends = await scrape(rocket.broker), {"request_code": "send_message_v2"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **sends) == 2
        assert (page.value("rocketmq_rpc_latency_milliseconds_sum", **sends) or 0) < 1_000_000


@both_loops
async def test_under_synchronous_flush_sends_are_timed_with_their_wait(tmp_path: Path) -> None:
    settings = PROM | {"flushDiskType": "SYNC_FLUSH"}
    async with whole(tmp_path, **settings) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(5):
            await producer.send("Orders", BODY)
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_rpc_latency_milliseconds_count", request_code="send_message_v2") == 5
        assert page.value("rocketmq_messages_in_total", topic="Orders") == 5
        assert (page.value("bolide_fsync_seconds_count") or 0) >= 5


@pytest.mark.feature("X20")
@both_loops
async def test_a_group_keeps_its_lag_while_nobody_is_there_and_after_a_restart(tmp_path: Path) -> None:
    lag, late = "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency_milliseconds"
    settings = PROM | {"bolideQueueLagMetrics": "true"}
    async with whole(tmp_path, **settings) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket, queue_count=1)
        for _ in range(4):
            await producer.send("Orders", BODY)
        await read_all(rocket, "readers", 4)
        of_group = {"consumer_group": "readers", "topic": "Orders", "is_retry": "false", "is_system": "false"}
        page = await scrape(rocket.broker)
        assert (page.value(lag, **of_group), page.value(late, **of_group)) == (0, 0)
        for _ in range(3):
            await producer.send("Orders", BODY)
        page = await scrape(rocket.broker)
        assert page.value(lag, **of_group) == 3
        assert page.value("rocketmq_consumer_inflight_messages", **of_group) == 0
        assert page.value("rocketmq_consumer_ready_messages", **of_group) == 3
        assert page.value("bolide_queue_lag_messages", queue_id="0", **of_group) == 3
        assert (page.value(late, **of_group) or -1) >= 0
    async with whole(tmp_path, **settings) as rocket:
        page = await scrape(rocket.broker)
        assert page.value(lag, consumer_group="readers", topic="Orders") == 3
        # What was pulled is not known after a restart, and what is not known is absent.
        assert page.value("rocketmq_consumer_inflight_messages", consumer_group="readers") is None
        assert [value for _, _, value in page.series if value < 0] == []


@both_loops
async def test_members_and_tables_are_counted(tmp_path: Path) -> None:
    async with (
        whole(tmp_path, **PROM) as rocket,
        aio.Producer("pg", rocket.ns.address) as producer,
        aio.Consumer("readers", "Orders", rocket.ns.address),
    ):
        await created(rocket)
        await producer.send("Orders", BODY)
        members = rocket.broker.state.members
        await eventually(lambda: bool(members.producer_groups and members.consumer_groups), 30)
        page = await scrape(rocket.broker)
        assert (page.value("rocketmq_producer_connections", language="python", protocol_type="remoting") or 0) >= 1
        assert page.value("rocketmq_consumer_connections", consumer_group="readers", consume_mode="push") == 1
        assert page.value("rocketmq_topic_number") == len(rocket.broker.state.topics.table)
        assert page.value("rocketmq_broker_permission") == 6
        assert page.value("target_info", service_name="bolide") == page.value("bolide_build_info") == 1
        assert page.value("bolide_broker_role", role="ASYNC_MASTER", is_fenced="false") == 1
        store = rocket.broker.state.store
        assert page.value("bolide_store_size_bytes", storage_type="local") == store.log_end - store.log_start
        assert 0 < (page.value("bolide_disk_used_ratio") or 0) <= 1


@both_loops
async def test_a_deleted_topic_leaves_no_series_behind(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        await producer.send("Orders", BODY)
        async with aio.Admin(rocket.ns.address) as admin:
            await admin.delete_topic("Orders")
        assert 'topic="Orders"' not in (await scrape(rocket.broker)).text


@both_loops
async def test_transactions_are_counted_by_how_they_end_and_those_undecided_wait(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket:
        await created(rocket)
        async with aio.TransactionProducer("tg", rocket.ns.address, checker=lambda _: aio.Outcome.UNKNOWN) as producer:
            for outcome in ("commit", "commit", "rollback", "unknown"):
                transaction = producer.transaction("Orders", BODY)
                await transaction.start()
                await getattr(transaction, outcome)()
            meter = rocket.broker.meter
            assert meter is not None
            await eventually(lambda: (meter.commits, meter.rollbacks) == ({"Orders": 2}, {"Orders": 1}), 30)
        page = await scrape(rocket.broker)
        half = "RMQ_SYS_TRANS_HALF_TOPIC"
        assert page.value("rocketmq_messages_in_total", topic=half, message_type="transaction", is_system="true") == 4
        assert page.value("rocketmq_messages_in_total", topic="Orders") is None
        assert page.value("rocketmq_commit_messages_total", topic="Orders") == 2
        assert page.value("rocketmq_rollback_messages_total", topic="Orders") == 1
        assert page.value("rocketmq_finish_message_latency_milliseconds_count", topic="Orders") == 2
        assert page.value("rocketmq_half_messages", topic="Orders") == 1
        ends = {"request_code": "end_transaction", "response_code": "success", "result": "oneway"}
        assert (page.value("rocketmq_rpc_latency_milliseconds_count", **ends) or 0) >= 3


@both_loops
async def test_sends_without_an_answer_are_told_from_those_that_had_one(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(3):
            await producer.send_oneway("Orders", BODY)
        await producer.send("Orders", BODY)
        await eventually(lambda: rocket.broker.state.stats.put_total.count == 4, 30)
        page = await scrape(rocket.broker)
        sends = {"request_code": "send_message_v2", "response_code": "success"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **sends, result="oneway") == 3
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **sends, result="success") == 1


@both_loops
async def test_the_older_exporters_names_are_there_on_request(tmp_path: Path) -> None:
    settings = PROM | {"bolideMetricsNames": "exporter"}
    async with whole(tmp_path, **settings) as rocket, aio.Producer("pg", rocket.ns.address) as producer:
        await created(rocket)
        for _ in range(3):
            await producer.send("Orders", BODY)
        await read_all(rocket, "readers", 3)
        await producer.send("Orders", BODY)
        page = await scrape(rocket.broker)
        assert page.value("rocketmq_producer_offset", cluster="C1", broker="broker-a", topic="Orders") == 4
        assert page.value("rocketmq_consumer_offset", topic="Orders", group="readers") == 3
        offline = {"countOfOnlineConsumers": "0", "msgModel": "1"}
        assert page.value("rocketmq_group_diff", topic="Orders", group="readers", **offline) == 1
        assert (page.value("rocketmq_broker_tps") or 0) > 0
        assert page.value("rocketmq_messages_in_total", topic="Orders") == 4


@both_loops
async def test_a_broker_says_whether_it_is_ready(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket:
        assert rocket.broker.metrics_port.server is not None
        address = rocket.broker.metrics_port.server.addresses[0]
        assert await ask(address, "/readyz") == (200, "ready\n")
        rocket.broker.state.store.is_disk_full = True
        status, why = await ask(address, "/readyz")
        assert (status, "full" in why) == (503, True)
        assert await ask(address, "/healthz") == (200, "alive\n")


@both_loops
async def test_a_broker_whose_disk_failed_or_whose_role_is_open_lives_and_is_not_ready(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket:
        assert rocket.broker.metrics_port.server is not None
        address, state = rocket.broker.metrics_port.server.addresses[0], rocket.broker.state
        state.store.log_flush.failure = OSError("gone")
        assert await ask(address, "/readyz") == (
            503,
            "the disk failed to keep the log: nothing more is taken until a restart\n",
        )
        assert await ask(address, "/healthz") == (200, "alive\n")
        state.store.log_flush.failure, role = None, state.role.now
        state.role.now = replace(role, is_fenced=True)
        assert await ask(address, "/readyz") == (503, "it is not decided whether this broker leads or follows\n")
        assert await ask(address, "/healthz") == (200, "alive\n")
        state.role.now = role
        assert await ask(address, "/readyz") == (200, "ready\n")


@both_loops
async def test_without_the_setting_nothing_is_counted_and_no_port_is_open(tmp_path: Path) -> None:
    async with whole(tmp_path) as rocket:
        assert rocket.broker.meter is None
        assert rocket.broker.metrics_port.server is None


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (409, "v4_9_8"),
        (433, "v5_1_0"),
        (477, "v5_3_2"),
        (232, "v4_1_0_snapshot"),
        (121, "121"),
        (612, "higher_version"),
    ],
)
def test_versions_have_rocketmqs_names(number: int, name: str) -> None:
    assert version_name(number) == name


@pytest.mark.feature("X20")
@both_loops
async def test_under_load_every_page_agrees_with_what_was_acknowledged_and_read(tmp_path: Path) -> None:
    """Pages are read all the while: no number goes back, none is ahead of what was sent, and the last are the truth."""
    sent, out, lag = "rocketmq_messages_in_total", "rocketmq_messages_out_total", "rocketmq_consumer_lag_messages"
    seen: list[tuple[float, int]] = []
    begun_count = acknowledged = 0

    async def send(producer: aio.Producer) -> None:
        nonlocal begun_count, acknowledged
        for _ in range(5):
            begun_count += 20
            futures = [await producer.submit("Orders", BODY) for _ in range(20)]
            receipts = await asyncio.gather(*futures)
            acknowledged += sum(receipt.is_ok for receipt in receipts)

    async with whole(tmp_path, **PROM) as rocket:
        await created(rocket)

        async def scrape_on() -> None:
            while acknowledged < 400:
                before = acknowledged
                page = await scrape(rocket.broker)
                seen.append((page.value(sent, topic="Orders") or 0, begun_count))
                assert seen[-1][0] >= before

        async with contextlib.AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(aio.Producer(f"pg-{number}", rocket.ns.address)) for number in range(4)
            ]
            await asyncio.gather(scrape_on(), read_all(rocket, "readers", 400), *map(send, producers))
        page = await scrape(rocket.broker)
        assert acknowledged == page.value(sent, topic="Orders") == 400
        assert page.value("rocketmq_throughput_in_total", topic="Orders") == rocket.broker.state.stats.put_total.size
        assert page.value(out, topic="Orders", consumer_group="readers") == 400
        assert page.value(lag, topic="Orders", consumer_group="readers") == 0
        assert [count for count, _ in seen] == sorted(count for count, _ in seen)
        assert all(count <= begun for count, begun in seen)
        topics = page.value("rocketmq_topic_number")
    async with whole(tmp_path, **PROM) as rocket:
        page = await scrape(rocket.broker)
        assert page.value(sent, topic="Orders") is None  # counters count what this process did
        assert page.value(lag, topic="Orders", consumer_group="readers") == 0
        assert page.value("rocketmq_topic_number") == topics
