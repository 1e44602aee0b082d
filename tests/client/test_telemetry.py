"""Producers and consumers tell OpenTelemetry: its SDK, a real broker, spans and numbers as exporters get them."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import bolide
from bolide import aio
from bolide.testing import cluster
from tests.cli.processes import wait_for
from tests.client.scenes import OLDEST


class Told:
    """What OpenTelemetry heard."""

    def __init__(self) -> None:
        self._spans, self._numbers = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._numbers])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def numbers(self) -> dict[str, list[Any]]:
        """Each instrument's points: (attributes, value or how many)."""
        found = self._numbers.get_metrics_data()
        metrics = found.resource_metrics[0].scope_metrics[0].metrics if found else []
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
                for point in metric.data.data_points
            ]
            for metric in metrics
        }


def _message_of(span: ReadableSpan) -> object:
    return (span.attributes or {})["messaging.message.id"]


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    bolide.instrument(told.tracers, told.meters)
    yield told
    bolide.uninstrument()


@pytest.mark.feature("X18")
def test_a_send_and_its_processing_are_spans_that_belong_together(told: Told) -> None:
    with cluster() as rocket:
        with (
            bolide.Producer("p", rocket.namesrv) as producer,
            told.tracers.get_tracer("user").start_as_current_span("order") as order,
        ):
            receipt = producer.send("T", b"x", tags="A", keys=["k1", "k2"], shard="s")
        host, _, port = rocket.brokers[0].address.partition(":")
        with bolide.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            message = next(iter(consumer))
            assert bolide.span_of(message).is_recording()
            message.ack()
    (sent,), (processed,) = told.spans("send T"), told.spans("process T")
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent == order.get_span_context()
    place = {"server.address": host, "server.port": int(port), "messaging.rocketmq.namespace": ""}
    place["messaging.destination.partition.id"] = str(receipt.queue.queue_id)
    assert dict(sent.attributes or {}) == {
        **place,
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.client.id": (sent.attributes or {})["messaging.client.id"],
        "messaging.message.id": receipt.msg_id,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "A",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
    }
    # The context travelled as W3C has it, and the consumer links to it; it is no child, for it begins on its own.
    assert message.properties["traceparent"].split("-")[1] == f"{sent.context.trace_id:032x}"
    assert processed.kind is SpanKind.CONSUMER
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert processed.parent is None
    shown = dict(processed.attributes or {})
    assert shown["messaging.consumer.group.name"] == "g"
    assert shown["messaging.message.id"] == receipt.msg_id
    assert place.items() <= shown.items()
    assert shown["messaging.rocketmq.consumption_model"] == "clustering"

    numbers = told.numbers()
    send = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.destination.name": "T",
    }
    process = {**send, "messaging.operation.name": "process", "messaging.consumer.group.name": "g"}
    assert numbers["messaging.client.sent.messages"] == [(send, 1)]
    assert numbers["messaging.client.consumed.messages"] == [(process, 1)]
    assert numbers["messaging.client.operation.duration"] == [({**send, "messaging.operation.type": "send"}, 1)]
    assert numbers["messaging.process.duration"] == [(process, 1)]


def test_context_of_anybody_elses_is_taken_from_a_message(told: Told) -> None:
    """As a Java service with OpenTelemetry's agent sends it."""
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    bolide.uninstrument()
    with cluster() as rocket:
        with bolide.Producer("p", rocket.namesrv) as producer:
            producer.send("T", b"x", properties={"traceparent": parent, "tracestate": "v=1"})
        bolide.instrument(told.tracers, told.meters)
        with bolide.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            next(iter(consumer)).ack()
    assert told.spans("send T") == []
    (processed,) = told.spans("process T")
    (link,) = processed.links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == parent[3:-3]
    assert link.context.trace_state.get("v") == "1"


@pytest.mark.feature("X18")
def test_how_a_transaction_ended_is_a_span_also_where_a_checker_said_it(told: Told) -> None:
    with (
        cluster(settings={"transactionCheckInterval": "50", "transactionTimeOut": "50"}) as rocket,
        bolide.TransactionProducer("p", rocket.namesrv, checker=lambda _: bolide.Outcome.COMMIT) as producer,
    ):
        with producer.transaction("T", b"kept") as kept:
            pass
        with producer.transaction("T", b"taken back") as taken_back:
            taken_back.rollback()
        with producer.transaction("T", b"asked about") as asked:
            asked.unknown()
        wait_for(lambda: any(span.links and _message_of(span) == asked.id for span in told.spans("commit T")))
    # A broker may ask about the first two as well, if they take their time; what a checker says has a link.
    (own,) = (span for span in told.spans("commit T") if not span.links)
    shown = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "T",
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.message.type": "transaction",
        "messaging.message.id": kept.id,
        "messaging.client.id": (own.attributes or {})["messaging.client.id"],
    }
    assert (own.kind, dict(own.attributes or {})) == (SpanKind.CLIENT, shown)
    assert [_message_of(span) for span in told.spans("rollback T")] == [taken_back.id]
    assert [_message_of(span) for span in told.spans("unknown T")] == [asked.id]
    checked = next(span for span in told.spans("commit T") if span.links and _message_of(span) == asked.id)
    sent = {_message_of(span): span.context.span_id for span in told.spans("send T")}
    assert dict(checked.attributes or {}) == {**shown, "messaging.message.id": asked.id}
    assert [link.context.span_id for link in checked.links] == [sent[asked.id]]
    assert {(span.attributes or {})["messaging.rocketmq.message.type"] for span in told.spans("send T")} == {
        "transaction"
    }


@pytest.mark.parametrize("is_async", [True, False])
def test_in_a_handler_the_messages_span_is_the_current_one(told: Told, is_async: bool) -> None:
    seen: list[tuple[bytes, int]] = []

    def handle(message: bolide.Received) -> None:
        seen.append((message.body, trace.get_current_span().get_span_context().span_id))
        if message.body == b"bad" and message.attempt == 1:
            raise ValueError("no")

    async def handle_async(message: bolide.Received) -> None:
        handle(message)

    with cluster() as rocket:
        with bolide.Producer("p", rocket.namesrv) as producer:
            producer.send("T", b"good")
            producer.send("T", b"bad")
        app = bolide.App(rocket.namesrv)
        app.handler("T", group="g", start_from=OLDEST)(handle_async if is_async else handle)
        with app:
            wait_for(lambda: len(told.spans("process T")) >= 2)
    spans = {span.context.span_id: span for span in told.spans("process T")}
    by_body = {body: spans[span_id] for body, span_id in seen if span_id in spans}
    assert by_body[b"good"].status.status_code is StatusCode.UNSET
    failed = by_body[b"bad"]
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "exception"
    assert [event.name for event in failed.events] == ["exception"]


def test_a_send_that_is_refused_is_a_failed_span(told: Told) -> None:
    with (
        cluster(settings={"autoCreateTopicEnable": "false"}) as rocket,
        bolide.Producer("p", rocket.namesrv, timeout_s=1) as producer,
        pytest.raises(bolide.ClientError),
    ):
        producer.send("Missing", b"x")
    (sent,) = told.spans("send Missing")
    assert sent.status.status_code is StatusCode.ERROR
    assert (sent.attributes or {})["error.type"]
    ((attributes, count),) = told.numbers()["messaging.client.sent.messages"]
    assert count == 1
    assert "error.type" in attributes


@pytest.mark.feature("X18")
def test_batches_one_way_sends_and_what_is_received_in_bulk_are_told_too(told: Told) -> None:
    async def scene() -> None:
        async with cluster() as rocket:
            async with aio.Producer("p", rocket.namesrv) as producer:
                await producer.send_batch([aio.Message("T", b"1"), aio.Message("T", b"2")])
                await producer.send_oneway("T", b"3")
                await (await producer.submit("T", b"4"))
            found: list[aio.Received] = []
            async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
                while len(found) < 4:
                    found += await consumer.receive(timeout_s=30)
                found[0].nack()
                await consumer.commit()

    asyncio.run(scene())
    batches = [dict(span.attributes or {}).get("messaging.batch.message_count") for span in told.spans("send T")]
    assert batches == [2, None, None]
    processed = told.spans("process T")
    assert sorted(span.status.status_code.name for span in processed) == ["ERROR", "UNSET", "UNSET", "UNSET"]
    assert {link.context.span_id for span in processed for link in span.links} == {
        span.context.span_id for span in told.spans("send T")
    }
    ((_, sent_count),) = told.numbers()["messaging.client.sent.messages"]
    assert sent_count == 4


@pytest.mark.feature("X18")
def test_the_queue_and_the_model_of_what_is_processed_are_its_own(told: Told, tmp_path: Path) -> None:
    with cluster() as rocket:
        rocket.create_topic("T", 4)
        with bolide.Producer("p", rocket.namesrv) as producer:
            queues = [str(producer.send("T", b"x").queue.queue_id) for _ in range(4)]
        with bolide.Consumer(
            "g", "T", rocket.namesrv, start_from=OLDEST, broadcasting=True, offsets_directory=tmp_path
        ) as consumer:
            for _, message in zip(range(4), consumer, strict=False):
                message.ack()
    shown = [dict(span.attributes or {}) for span in told.spans("process T")]
    assert sorted(str(each["messaging.destination.partition.id"]) for each in shown) == sorted(queues)
    assert len(set(queues)) > 1
    assert {each["messaging.rocketmq.consumption_model"] for each in shown} == {"broadcasting"}


def test_who_did_not_ask_for_it_does_not_load_it() -> None:
    program = (
        "import sys, bolide\n"
        "from bolide.testing import cluster\n"
        "with cluster() as rocket, bolide.Producer('p', rocket.namesrv) as producer:\n"
        "    producer.send('T', b'x')\n"
        ""
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(bolide.ClientError, match=r"pip install 'bolide\[otel\]'"):
        bolide.instrument()
