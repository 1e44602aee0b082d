"""Producers and consumers tell of every message in the trace topic, and disturb nobody by it."""

import asyncio
import logging
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.client import tracing as room
from bolide.client.config import client_config
from bolide.client.tracing import Tracing, parts
from bolide.model.topics import TRACE_TOPIC
from bolide.protocol.ids import RecallHandle, encode_recall_handle
from bolide.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TraceRecord,
    encode_trace,
    parse_trace,
)
from bolide.testing import AsyncCluster, VirtualClock, cluster, run
from tests.client.scenes import OLDEST, client_clock, collecting, on_uvloop, stage
from tests.remoting.loops import REAL_LIMIT_S, eventually

TRACED = {"traceTopicEnable": "true"}


async def records_in(rocket: AsyncCluster, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    """All that was told so far, in the order of the queues."""
    found: list[TraceRecord] = []
    async with aio.PullConsumer("trace-readers", rocket.namesrv, clock=client_clock()) as reader:
        for queue in await reader.queues(topic):
            pulled = await reader.pull(queue, 0)
            for message in pulled.messages:
                found += parse_trace(message.body)
    return found


def of_kind(records: list[TraceRecord], kind: type) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


@pytest.mark.feature("X17")
@on_uvloop
async def test_a_message_is_told_of_from_sending_to_the_end_of_its_consumption() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket:
        async with (
            aio.Producer("pg", rocket.namesrv, trace=True) as producer,
            collecting("cg", "T", rocket.namesrv, trace=True) as member,
        ):
            receipt = await producer.send("T", b"hello", tags="A", keys=["k1", "k2"])
            await eventually(lambda: len(member.taken) == 1)
        records = await records_in(rocket)
        (sent,) = of_kind(records, Published)
        (begun,) = of_kind(records, ConsumeBegun)
        (ended,) = of_kind(records, ConsumeEnded)
        assert sent.message_id == begun.message_id == ended.message_id == receipt.msg_id
        assert (sent.group, sent.topic, sent.tags, sent.keys, sent.body_size) == ("pg", "T", "A", "k1 k2", 5)
        assert (sent.region, sent.store_host, sent.message_type) == ("DefaultRegion", rocket.brokers[0].address, 0)
        assert (sent.offset_id, sent.is_success) == (receipt.offset_id, True)
        assert (begun.group, begun.region, begun.retry_times, begun.keys) == ("cg", "DefaultRegion", 0, "k1 k2")
        assert (ended.request_id, ended.group, ended.outcome, ended.is_success) == (begun.request_id, "cg", 0, True)
        assert sent.at <= begun.at <= ended.at


@on_uvloop
async def test_records_are_found_under_ids_and_keys_and_the_way_is_put_together() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket, aio.Admin(rocket.namesrv) as admin:
        async with (
            aio.Producer("pg", rocket.namesrv, trace=True) as producer,
            collecting("cg", "T", rocket.namesrv, trace=True) as member,
        ):
            receipt = await producer.send("T", b"hello", keys="order-7")
            await producer.send("T", b"another", keys="order-8")
            await eventually(lambda: len(member.taken) == 2)
        for wanted in (receipt.msg_id, receipt.offset_id, "order-7"):
            (found,) = await admin.trace(wanted)
            assert (found.message_id, found.topic, found.keys) == (receipt.msg_id, "T", ["order-7"])
            assert [(step.what, step.group, step.status) for step in found.steps] == [
                ("sent", "pg", "success"),
                ("consumed", "cg", "success"),
            ]
            assert (found.steps[0].where, found.steps[1].attempt) == (rocket.brokers[0].address, 1)
        assert await admin.trace("order-9") == []


@on_uvloop
async def test_every_message_of_a_batch_is_told_of_under_its_own_id() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket:
        await rocket.create_topic("Own-Traces", 1)
        async with aio.Producer("pg", rocket.namesrv, trace="Own-Traces") as producer:
            messages = [aio.Message("T", b"%d" % number, keys=f"k{number}") for number in range(3)]
            receipts = await producer.send_batch(messages)
        records = of_kind(await records_in(rocket, "Own-Traces"), Published)
        assert [(record.message_id, record.offset_id, record.keys) for record in records] == [
            (receipt.msg_id, receipt.offset_id, f"k{number}") for number, receipt in enumerate(receipts)
        ]


@pytest.mark.parametrize(("failure", "outcome"), [("raise", 2), ("hang", 1), ("nack", 4)])
def test_how_a_consumption_failed_is_told(failure: str, outcome: int) -> None:
    async def scenario() -> None:
        tried = asyncio.Event()

        async def fail(message: aio.Received) -> None:
            tried.set()
            if failure == "raise":
                raise ValueError("not today")
            if failure == "hang":
                await asyncio.Event().wait()
            message.nack()

        async with stage(queue_count=1, settings=TRACED) as rocket:
            async with aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
                await producer.send("T", b"x")
            handler = aio.Handler(
                function=fail, group="cg", topics={"T": "*"}, start_from=OLDEST, timeout_s=2, trace=True
            )
            async with aio.listening(rocket.namesrv, [handler], clock=client_clock()):
                await tried.wait()
                await asyncio.sleep(3)  # virtual
            records = await records_in(rocket)
            first = of_kind(records, ConsumeBegun)[0]
            ended = next(one for one in of_kind(records, ConsumeEnded) if one.request_id == first.request_id)
            assert (ended.is_success, ended.outcome) == (False, outcome)

    run(scenario())


@on_uvloop
async def test_the_trace_topic_is_not_traced_nor_is_a_broker_that_does_not_want_it() -> None:
    async with stage(queue_count=1, settings={**TRACED, "traceOn": "false"}) as rocket:
        async with (
            aio.Producer("pg", rocket.namesrv, trace=True) as producer,
            collecting("cg", "T", rocket.namesrv, trace=True) as member,
        ):
            await producer.send("T", b"hello")
            await producer.send(TRACE_TOPIC, b"by hand")
            await eventually(lambda: len(member.taken) == 1)
        assert await records_in(rocket) == []


def test_a_trace_topic_that_cannot_be_written_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        settings = {"autoCreateTopicEnable": "false"}
        async with stage(queue_count=1, settings=settings) as rocket:
            with caplog.at_level(logging.WARNING):
                async with aio.Producer("pg", rocket.namesrv, trace=True, clock=client_clock()) as producer:
                    for _ in range(3):
                        assert (await producer.send("T", b"hello")).is_ok
                        await asyncio.sleep(2)  # virtual
            lost = [record for record in caplog.records if "trace records lost" in record.message]
            assert len(lost) == 1, "said once, not for every message"

    run(scenario())


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a broker takes to start on a busy machine, records are tried until it is there."""
    for name in ("_SEND_LIMIT_S", "_CLOSE_LIMIT_S"):
        monkeypatch.setattr(room, name, REAL_LIMIT_S)


@on_uvloop
@pytest.mark.usefixtures("patience")
async def test_records_find_a_broker_that_moved() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket:
        async with aio.Producer("pg", rocket.namesrv, trace=True) as producer:
            await producer.send("T", b"before")
            await eventually(lambda: not producer.tracing._waiting)  # type: ignore[union-attr]
            await rocket.brokers[0].restart()
            await rocket.registered(rocket.brokers[0])
            await producer.send("T", b"after", timeout_s=10)
        assert len({record.message_id for record in of_kind(await records_in(rocket), Published)}) == 2


@on_uvloop
@pytest.mark.usefixtures("patience")
async def test_records_outlast_a_broker_that_restarts() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket:
        async with aio.Producer("pg", rocket.namesrv, trace=True) as producer:
            tracing = producer.tracing
            assert tracing is not None
            await producer.send("T", b"before")
            await eventually(lambda: tracing._had_route)
            await rocket.brokers[0].stop()
            tracing.recalled("T", "id", None, is_success=True)
            await eventually(lambda: not tracing._waiting)  # an attempt was begun while nobody is there
            await rocket.brokers[0].start()
            await rocket.registered(rocket.brokers[0])
        assert [record.message_id for record in of_kind(await records_in(rocket), Recalled)] == ["id"]


def test_more_records_than_can_wait_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with stage(queue_count=1, settings=TRACED) as rocket:
            tracing = Tracing("g", True, client_config(rocket.namesrv), VirtualClock())
            async with tracing:
                with caplog.at_level(logging.WARNING):
                    for _ in range(room.WAITING_MAX + 500):
                        tracing.recalled("T", "id", None, is_success=True)
            assert len(await records_in(rocket)) == room.WAITING_MAX
            assert "count=500" in caplog.text

    run(scenario())


def test_records_are_cut_where_a_message_or_its_keys_would_be_too_large() -> None:
    large = [published(f"id-{number}", tags="t" * 50_000) for number in range(5)]
    assert [len(part) for part in parts(large)] == [2, 2, 1]
    many_keys = [published(f"id-{number}", keys="k" * 9_000) for number in range(3)]
    assert [len(part) for part in parts(many_keys)] == [1, 1, 1]
    assert [record for part in parts(large) for record in part] == large
    assert all(len(encode_trace(part)) < 128_000 for part in parts(large))


def published(message_id: str, **more: Any) -> Published:
    given = {"tags": None, "keys": None, **more}
    return Published(1, "r", "g", "T", message_id, store_host="h", body_size=1, cost_ms=1, message_type=0, **given)


@on_uvloop
async def test_the_ends_of_transactions_are_told() -> None:
    async def check(message: object) -> aio.Outcome:
        return aio.Outcome.COMMIT

    async with stage(queue_count=1, settings=TRACED) as rocket, aio.Admin(rocket.namesrv) as admin:
        async with aio.TransactionProducer("pg", rocket.namesrv, checker=check, trace=True) as producer:
            async with producer.transaction("T", b"paid", keys="t-1") as kept:
                pass
            with pytest.raises(ValueError, match="no money"):
                async with producer.transaction("T", b"unpaid", keys="t-2"):
                    raise ValueError("no money")
        (found,) = await admin.trace("t-1")
        assert (found.message_id, found.kind) == (kept.id, "half")
        assert [(step.what, step.status) for step in found.steps] == [
            ("sent", "success"),
            ("decided", "COMMIT_MESSAGE"),
        ]
        (found,) = await admin.trace("t-2")
        assert [step.status for step in found.steps] == ["success", "ROLLBACK_MESSAGE"]


@on_uvloop
async def test_a_recall_is_told_of_whether_it_was_allowed_or_not() -> None:
    async with stage(queue_count=1, settings=TRACED) as rocket:
        async with aio.Producer("pg", rocket.namesrv, trace=True) as producer:
            handle = encode_recall_handle(RecallHandle("T", "broker-0", 1_900_000_000_000, "0A0B"))
            outcome = "done"
            try:
                await producer.recall(handle)
            except aio.ClientError:
                outcome = "refused"
        (told,) = of_kind(await records_in(rocket), Recalled)
        assert (told.group, told.topic, told.message_id) == ("pg", "T", "0A0B")
        assert told.is_success == (outcome == "done")


def test_threads_trace_as_well() -> None:
    with cluster(settings=TRACED) as rocket, bolide.Admin(rocket.namesrv) as admin:
        rocket.create_topic("T", 1)
        with bolide.Producer("pg", rocket.namesrv, trace=True) as producer:
            receipt = producer.send("T", b"x")
        with bolide.Consumer("cg", "T", rocket.namesrv, start_from=OLDEST, trace=True) as consumer:
            next(iter(consumer)).ack()
        (found,) = admin.trace(receipt.msg_id)
        assert [step.what for step in found.steps] == ["sent", "consumed"]
        assert found.steps[1].status == "success"
