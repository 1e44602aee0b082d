"""The transport of kombu: queues are topics, deliveries are popped messages, and broadcasts are read by everyone.

A task is acknowledged to the broker when Celery acknowledges it: with `task_acks_late` after it ran. Until then the
broker hides it from others for `visibility_timeout`, which is renewed while this process lives.

Two threads meet here: Celery's, which calls everything, and Bolide's loop, which takes messages and tells verdicts.
"""

import os
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, NamedTuple

from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

import bolide
from bolide.celery.arrivals import Arrivals
from bolide.celery.broadcast import Offsets
from bolide.celery.line import Line
from bolide.celery.names import check_arguments, check_priority, is_broadcast
from bolide.celery.place import PORT, place_of
from bolide.client.blocking.loop import keep_of_parent
from bolide.client.popping.popped import Popped
from bolide.client.popping.popper import Popper
from bolide.errors import BolideError, NoAnswer
from bolide.model.message import StoredMessage

_ROUTING_KEY = "routing_key"


class Binding(NamedTuple):
    """A queue that hears an exchange: the keys it wants, and from where on."""

    exchange: str
    wants: Callable[[str], bool]
    begins: Offsets


class QoS(virtual.QoS):
    """What a channel was given and did not settle."""

    channel: "Channel"

    def ack(self, delivery_tag: str) -> None:
        """It is done."""
        self.channel.settle(delivery_tag, "ack")
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Others get it, or nobody does: then it is a dead letter."""
        self.channel.settle(delivery_tag, "release" if requeue else "bury")
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Others get all of it."""
        self._flush()
        for delivery_tag in list(self._delivered):
            self.channel.settle(delivery_tag, "release")
        self._delivered.clear()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """The same when the channel ends; a fork of the worker has nothing to give back."""
        self._on_collect.cancel()
        if not self.channel.is_of_parent:
            self.restore_unacked()


class Channel(virtual.Channel):
    """Declares, sends and receives."""

    QoS = QoS
    supports_fanout = True
    connection: "Transport"

    def __init__(self, connection: "Transport", **options: Any) -> None:
        super().__init__(connection, **options)
        self._line = connection.line
        self._arrivals = connection.arrivals
        self._popper: Popper | None = None
        self._out: dict[str, Popped] = {}
        self._queue_of_topic: dict[str, tuple[str, bool]] = {}
        self._bindings: dict[str, list[Binding]] = {}

    @property
    def is_of_parent(self) -> bool:
        return self._line.is_of_parent

    # Declaring

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        if options.get("max_priority"):
            arguments = {**(arguments or {}), "x-max-priority": options["max_priority"]}
        return arguments

    def _new_queue(self, queue: str, **options: Any) -> None:
        check_arguments(queue, options.get("arguments"))
        if not options.get("auto_delete"):
            self._line.ensure_topic(self._line.place.topic(queue))

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return bool(self._line.run(self._line.admin.topic_shapes(self._line.place.topic(queue))))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        """After kombu's own table has it: an exchange that everyone hears is heard from now on."""
        if not self._is_broadcast(exchange):
            self._line.ensure_topic(self._line.place.topic(queue))
            return
        kind = self.state.exchanges[exchange]["type"]
        matches = self.exchange_types["topic"]._match
        wants: Callable[[str], bool] = {
            "fanout": lambda key: True,
            "topic": lambda key: bool(matches(pattern, key)),
        }.get(kind, lambda key: key == routing_key)
        begins = self._line.run(self._line.listener.now(self._line.place.topic(exchange)))
        self._bindings.setdefault(queue, []).append(Binding(exchange, wants, begins))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """What is in it goes; the topic stays, for others may send to it."""
        if self._bindings.pop(queue, None) is not None:
            self.state.queue_bindings_delete(queue)
        elif not (if_empty and self._size(queue)):
            self._purge(queue)

    def _is_broadcast(self, exchange: str) -> bool:
        return is_broadcast(exchange, self.state.exchanges.get(exchange))

    def _size(self, queue: str) -> int:
        if queue in self._bindings or not self._has_queue(queue):
            return 0
        return self._line.run(self._line.listener.backlog(self._line.place.topic(queue)))

    def _purge(self, queue: str) -> int:
        return self._line.purge(self._line.place.topic(queue)) if self._has_queue(queue) else 0

    # Sending

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Text stands in the message as it is: base64 is for bytes."""
        return (body, "utf-8") if isinstance(body, str) else super().encode_body(body, encoding)

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> None:
        """To the queues that are bound, or to everyone who hears the exchange."""
        check_priority(message["properties"].get("priority"))
        if not exchange or not self._is_broadcast(exchange):
            super().basic_publish(message, exchange, routing_key, **options)
            return
        self._inplace_augment_message(message, exchange, routing_key)
        topic = self._line.place.topic(exchange)
        if topic not in self.connection.heard:
            self._line.run(self._line.listener.now(topic))
            self.connection.heard.add(topic)
        self._line.send(topic, dumps(message).encode(), {})

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        found = super()._lookup(exchange, routing_key, default)
        if not found:
            raise ChannelError(
                f"no queue is bound to exchange {exchange!r} with key {routing_key!r}, so the message would be lost; "
                "declare the queue where the message is sent (`task_queues`)"
            )
        return found

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        topic = self._line.place.topic(queue)
        self._line.ensure_topic(topic)
        self._line.send(topic, dumps(message).encode(), message.get("headers") or {})

    # Receiving

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[..., Any], consumer_tag: str, **options: Any
    ) -> None:
        """Deliver what comes."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        bindings = self._bindings.get(queue)
        if bindings is not None:
            for binding in bindings:
                hear = partial(self._hear, queue, binding)
                self._line.run(self._line.listener.listen(consumer_tag, binding.begins, hear))
            return
        topic = self._line.place.topic(queue)
        if not self._has_queue(queue):
            raise ChannelError(
                f"queue {queue!r} would live as long as its consumer, and topics do not: there is no `rpc://` here, "
                "use another result back end (db+sqlite://, redis://, ...)"
            )
        self._queue_of_topic[topic] = queue, no_ack
        popper = self._opened_popper()
        self._in_loop(partial(popper.subscribe, topic))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Deliver no more; what is out stays out until it is settled."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or self.is_of_parent:
            return
        if queue in self._bindings:
            self._line.run(self._line.listener.leave(consumer_tag))
        elif self._popper is not None:
            self._line.run(self._popper.unsubscribe(self._line.place.topic(queue)))

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """How many messages may be out."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        if self._popper is not None:
            self._in_loop(partial(setattr, self._popper, "limit", prefetch_count))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        popped = self._line.run(self._opened_popper().take(self._line.place.topic(queue)))
        if popped is None:
            raise Empty
        return self._raw(popped)

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """Everything comes by the transport's own way."""
        raise Empty

    def _arrived(self, popped: Popped) -> None:
        """In Celery's thread."""
        queue, no_ack = self._queue_of_topic[popped.topic]
        raw = self._raw(popped)
        if queue not in self.connection._callbacks:
            self.settle(raw["properties"]["delivery_tag"], "release")  # its consumer has been cancelled meanwhile
            return
        if no_ack:
            self.settle(raw["properties"]["delivery_tag"], "ack")
        self.connection._deliver(raw, queue)

    def _raw(self, popped: Popped) -> dict[str, Any]:
        raw: dict[str, Any] = loads(popped.message.body)
        # Its own each time: a message may come again while the first delivery is still out.
        tag = raw["properties"]["delivery_tag"] = uuid()
        raw["properties"]["redelivered"] = popped.delivery_count > 1
        raw["properties"].setdefault("delivery_info", {})["redelivered"] = popped.delivery_count > 1
        self._out[tag] = popped
        return raw

    def _hear(self, queue: str, binding: Binding, message: StoredMessage) -> None:
        """In Bolide's loop."""
        raw: dict[str, Any] = loads(message.body)
        if binding.wants(raw["properties"]["delivery_info"].get(_ROUTING_KEY) or ""):
            self._arrivals.put(partial(self._heard, queue, raw))

    def _heard(self, queue: str, raw: dict[str, Any]) -> None:
        if queue in self.connection._callbacks:
            self.connection._deliver(raw, queue)

    def settle(self, delivery_tag: str, verdict: str) -> None:
        """From any thread: a pool's threads acknowledge too."""
        popped = self._out.pop(delivery_tag, None)
        popper = self._popper
        if popped is not None and popper is not None and not self.is_of_parent:
            self._in_loop(partial(popper.settle_later, popped, getattr(popper, verdict)))

    def close(self) -> None:
        """Give back what was not settled."""
        if self.is_of_parent:
            keep_of_parent(self._popper, self._line, self._arrivals)
            self._popper = None
        super().close()
        popper, self._popper = self._popper, None
        if popper is not None:
            self._line.run(popper.close())

    def _opened_popper(self) -> Popper:
        if self._popper is None:
            place = self._line.place
            popper = Popper(
                place.group,
                lambda popped: self._arrivals.put(partial(self._arrived, popped)),
                place.namesrv,
                limit=self.qos.prefetch_count,
                invisible_s=place.visibility_s,
                **place.options(),
            )
            self._line.run(popper.start())
            self._popper = popper
        return self._popper

    def _in_loop(self, call: Callable[[], object]) -> None:
        self._line.in_loop(call)


class Transport(virtual.Transport):
    """A connection: one line to a place, and what came by it."""

    Channel = Channel
    default_port = PORT
    driver_type = "bolide"
    driver_name = "bolide"
    connection_errors = (*virtual.Transport.connection_errors, NoAnswer)
    channel_errors = (*virtual.Transport.channel_errors, BolideError)
    recoverable_connection_errors = (NoAnswer,)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.line = Line(place_of(client))
        self.arrivals = Arrivals()
        self.heard: set[str] = set()  # topics of exchanges that are there

    def driver_version(self) -> str:
        return bolide.__version__

    def establish_connection(self) -> Any:
        self.line.check()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        self.line.close()
        if self.arrivals.process_id == os.getpid():
            self.arrivals.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message; raises `socket.timeout` if none comes in time."""
        if not self.arrivals.wait(timeout):
            raise TimeoutError
        self.arrivals.deliver(1)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self.arrivals.fileno(), self._on_arrival)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        loop.remove_reader(self.arrivals.fileno())

    def _on_arrival(self) -> None:
        self.arrivals.deliver(_TURN_COUNT_MAX)


_TURN_COUNT_MAX = 256
