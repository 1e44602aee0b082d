"""Spans and counters of OpenTelemetry, by its conventions for messaging; the extra `otel` brings its library.

    import bolide
    bolide.instrument()                       # every producer and consumer that is made from now on

A send is a span `send TOPIC`, all its attempts within. Its context travels in the message (`traceparent` and
`tracestate` among the user's properties, where OpenTelemetry puts them for Java's clients too). A message in a
consumer's hands is a span `process TOPIC` that ends with its verdict, and links to the send. While a handler runs, its
span is the current one; in a loop, `span_of(message)` has it. What was merely pulled ahead has no span, and an
acknowledgement none either, for it is a number that is told now and then. How a transaction ended is a span `commit
TOPIC`, `rollback TOPIC` or `unknown TOPIC`; where a checker said it, it links to the send.

Who does not call `instrument` pays nothing: the library is not imported, and no path asks for it a message.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from bolide.errors import BolideError, ClientError
from bolide.model import properties as names
from bolide.model.message import Message, parse_offset_id
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, TracerProvider

_DURATION_S_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_SCOPE = "bolide"
_UNENDED_MAX = 10_000
_NAMESPACE = ""  # the conventions want it; here a topic has no name but its own
_active: "Telemetry | None" = None


class Taken(Protocol):
    """A message in a consumer's hands."""

    @property
    def topic(self) -> str: ...

    @property
    def msg_id(self) -> str: ...

    @property
    def offset_id(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def queue(self) -> MessageQueue: ...


def instrument(tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None) -> None:
    """Have producers and consumers that are made from now on tell OpenTelemetry what they do.

    Without providers, those of the process are used. Raises ClientError where the library is not installed.
    """
    global _active
    try:
        import opentelemetry  # noqa: F401
    except ImportError:
        raise ClientError("OpenTelemetry is not installed: pip install 'bolide[otel]'") from None
    _active = Telemetry(tracer_provider, meter_provider)


def uninstrument() -> None:
    """Those that are made from now on tell nothing."""
    global _active
    _active = None


def active() -> "Telemetry | None":
    """Who is told by a producer or a consumer that is made now."""
    return _active


def span_of(message: Taken) -> "Span":
    """The span of a message in your hands, for `opentelemetry.trace.use_span`; one that records nothing without."""
    from opentelemetry import trace

    return trace.INVALID_SPAN if _active is None else _active.span_of(message)


class Telemetry:
    """The instruments; any thread may use them."""

    def __init__(self, tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None") -> None:
        from opentelemetry import metrics, propagate, trace

        from bolide import __version__

        self._trace = trace
        self._propagate = propagate
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self._operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of a send, all attempts together.",
            explicit_bucket_boundaries_advisory=_DURATION_S_BOUNDS,
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "From a message's arrival in the user's hands to its verdict.",
            explicit_bucket_boundaries_advisory=_DURATION_S_BOUNDS,
        )
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages sent.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Messages given out.")
        self._spans: dict[Taken, tuple[Span, float]] = {}
        self._lock = threading.Lock()

    # Sending

    @contextmanager
    def sending(self, messages: Sequence[Message], client_id: str) -> Iterator[list[Message]]:
        """The span of a send; yields the messages with its context in them."""
        first = messages[0]
        counted = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.destination.name": first.topic,
        }
        shown = {**counted, **_described(first.properties), "messaging.operation.type": "send"}
        shown["messaging.rocketmq.namespace"] = _NAMESPACE
        shown["messaging.client.id"] = client_id
        if len(messages) > 1:
            shown["messaging.batch.message_count"] = len(messages)
        elif first.unique_id:
            shown["messaging.message.id"] = first.unique_id
        began_s, problem = perf_counter(), ""
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(
            f"send {first.topic}", kind=kind, attributes=shown, set_status_on_exception=False
        ) as span:
            carrier: dict[str, str] = {}
            self._propagate.inject(carrier)
            try:
                yield [_with(message, carrier) for message in messages]
            except BaseException as raised:
                problem = _error_type(raised)
                span.set_attribute("error.type", problem)
                span.set_status(self._trace.StatusCode.ERROR, str(raised))
                raise
            finally:
                failed = {"error.type": problem} if problem else {}
                self._operation_duration.record(
                    perf_counter() - began_s, {**counted, "messaging.operation.type": "send", **failed}
                )
                self._sent.add(len(messages), {**counted, **failed})

    def placed(self, queue: MessageQueue, offset_id: str) -> None:
        """The send that is under way was answered: its span has where the message lies."""
        place = {"messaging.destination.partition.id": str(queue.queue_id), **_server(offset_id)}
        self._trace.get_current_span().set_attributes(place)

    def settled(
        self, outcome: str, topic: str, message_id: str, client_id: str, asked: Mapping[str, str] | None = None
    ) -> None:
        """A transaction ended; `asked` has the properties of the half message if a broker asked about it."""
        name = outcome.lower()
        shown = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": name,
            "messaging.operation.type": "settle",
            "messaging.destination.name": topic,
            "messaging.rocketmq.namespace": _NAMESPACE,
            "messaging.rocketmq.message.type": "transaction",
            "messaging.message.id": message_id,
            "messaging.client.id": client_id,
        }
        kind = self._trace.SpanKind.CLIENT
        self._tracer.start_span(f"{name} {topic}", kind=kind, attributes=shown, links=self._links(asked or {})).end()

    # Consuming

    def begun(self, message: Taken, group: str, client_id: str, *, is_broadcasting: bool = False) -> None:
        """A message was given to the user."""
        counted = self._counted(message, group)
        shown = {
            **counted,
            **_described(message.properties),
            **_server(message.offset_id),
            "messaging.operation.type": "process",
            "messaging.rocketmq.namespace": _NAMESPACE,
            "messaging.rocketmq.consumption_model": "broadcasting" if is_broadcasting else "clustering",
            "messaging.destination.partition.id": str(message.queue.queue_id),
            "messaging.client.id": client_id,
            "messaging.message.id": message.msg_id,
        }
        span = self._tracer.start_span(
            f"process {message.topic}",
            kind=self._trace.SpanKind.CONSUMER,
            attributes=shown,
            links=self._links(message.properties),
        )
        with self._lock:
            if len(self._spans) >= _UNENDED_MAX:  # messages of queues that were lost have no end
                del self._spans[next(iter(self._spans))]
            self._spans[message] = span, perf_counter()
        self._consumed.add(1, counted)

    def ended(self, message: Taken, group: str, problem: str) -> None:
        """The user said what becomes of it; `problem` is empty where all is well. Only the first word counts."""
        with self._lock:
            span, began_s = self._spans.pop(message, (None, 0.0))
        if span is None:
            return
        if problem:
            span.set_attribute("error.type", problem)
            span.set_status(self._trace.StatusCode.ERROR, problem)
        span.end()
        failed = {"error.type": problem} if problem else {}
        self._process_duration.record(perf_counter() - began_s, {**self._counted(message, group), **failed})

    def span_of(self, message: Taken) -> "Span":
        with self._lock:
            return self._spans.get(message, (self._trace.INVALID_SPAN, 0.0))[0]

    @contextmanager
    def current(self, messages: Sequence[Taken]) -> Iterator[None]:
        """While a handler runs: a single message's span is the current one."""
        if len(messages) != 1:
            yield
            return
        with self._trace.use_span(self.span_of(messages[0]), record_exception=True, set_status_on_exception=False):
            yield

    def _links(self, properties: Mapping[str, str]) -> "list[Link]":
        """To the send whose context travelled in a message."""
        origin = self._trace.get_current_span(self._propagate.extract(properties)).get_span_context()
        return [self._trace.Link(origin)] if origin.is_valid else []

    def _counted(self, message: Taken, group: str) -> dict[str, str]:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "process",
            "messaging.destination.name": message.topic,
            "messaging.consumer.group.name": group,
        }


def _with(message: Message, carrier: Mapping[str, str]) -> Message:
    return Message(message.topic, message.body, properties={**message.properties, **carrier}, flag=message.flag)


def _described(properties: Mapping[str, str]) -> dict[str, Any]:
    """What RocketMQ's own attributes say of a message."""
    shown: dict[str, Any] = {"messaging.rocketmq.message.type": _kind(properties)}
    if tag := properties.get(names.TAGS):
        shown["messaging.rocketmq.message.tag"] = tag
    if keys := properties.get(names.KEYS, "").split():
        shown["messaging.rocketmq.message.keys"] = keys
    if shard := properties.get(names.SHARDING_KEY):
        shown["messaging.rocketmq.message.group"] = shard
    level, at = properties.get(names.DELAY, ""), properties.get(names.TIMER_DELIVER_AT, "")
    if level.isdecimal():
        shown["messaging.rocketmq.message.delay_time_level"] = int(level)
    if at.isdecimal():
        shown["messaging.rocketmq.message.delivery_timestamp"] = int(at)
    return shown


def _server(offset_id: str) -> dict[str, Any]:
    """The broker that gave the id to a message; nothing where it gave none."""
    found = parse_offset_id(offset_id)
    return {} if found is None else {"server.address": found.host.ip, "server.port": found.host.port}


def _kind(properties: Mapping[str, str]) -> str:
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if any(name in properties for name in (names.DELAY, names.START_DELIVER_AT, *names.TIMED_NAMES)):
        return "delay"
    return "fifo" if names.SHARDING_KEY in properties else "normal"


def _error_type(problem: BaseException) -> str:
    """RocketMQ's name of the answer, or the exception's own."""
    code = problem.code if isinstance(problem, BolideError) else None
    try:
        return ResponseCode(code).name if code is not None else type(problem).__qualname__
    except ValueError:
        return str(code)
