"""Sends messages: choose a queue, send, and if that fails try another broker, all within one time limit.

At least once: an attempt that was not answered may have been stored, and the next attempt stores it again under the
same id. A stored message whose flush or replica is late is returned with its status and not sent again.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from types import TracebackType
from typing import Self, Unpack

from bolide.client import this_process
from bolide.client.config import Credentials, client_config
from bolide.client.instance import BROKER_NOT_IN_ROUTE, NO_ROUTE, Instance, open_instance
from bolide.client.options import When
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending import unanswered
from bolide.client.sending.attempts import Attempts, routed_in_time
from bolide.client.sending.delays import Recalling, timed
from bolide.client.sending.failures import is_network, is_worth_another
from bolide.client.sending.hooks import SendHook, SendHooks
from bolide.client.sending.message import (
    SendRules,
    batch_command,
    check_message,
    check_topic,
    compression_named,
    given_message,
    item_of,
    send_command,
    to_queue,
    with_id,
)
from bolide.client.sending.pipeline import SendPipeline
from bolide.client.sending.receipt import Receipt, batch_receipts, receipt_of
from bolide.client.sending.requests import Requesting
from bolide.client.sending.selection import Selection, shard_queue
from bolide.client.tracing import tracing_of
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError, ConnectError
from bolide.kernel.layout import Item
from bolide.model.message import Message
from bolide.model.names import group_problem
from bolide.model.queue import MessageQueue
from bolide.protocol.command import Command
from bolide.protocol.ids import UniqueIds
from bolide.remoting.config import ConnectConfig
from bolide.remoting.guests import Guests

_DEFAULT_GROUP = "DEFAULT_PRODUCER"
log = logging.getLogger(__name__)


class Producer(Requesting, Recalling):
    """A member of a producer group. Open while its `async with` block runs; tasks may share it."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        timeout_s: float = 3.0,
        retry_count: int = 2,
        retries_unsafe: bool = False,
        avoids_slow: bool = False,
        compress_over: int = 4096,
        compression: str = "zlib",
        body_size_max: int = 4 << 20,
        linger_ms: float = 0.0,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        hooks: Sequence[SendHook] = (),
        trace: bool | str = False,
        clock: Clock | None = None,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used. `timeout_s` covers all attempts of one send.

        With `linger_ms` messages of a topic wait so long for each other and leave as one batch. `trace` tells of every
        message in RocketMQ's trace topic, or in the one that is named.
        """
        problem = group_problem(group)
        if problem is None and group == _DEFAULT_GROUP:
            problem = f"group {_DEFAULT_GROUP} is RocketMQ's example of a name; choose one of your own"
        if problem is not None:
            raise ClientError(problem)
        self.group = group
        self.timeout_s = timeout_s
        self._config = client_config(namesrv, instance_name=instance_name, credentials=credentials, connect=connect)
        self._clock = clock or SystemClock()
        self.rules = SendRules(
            group=group,
            body_size_max=body_size_max,
            compress_over=compress_over,
            compression=compression_named(compression),
        )
        self._retry_count = retry_count
        self._retries_unsafe = retries_unsafe
        self._avoids_slow = avoids_slow
        self._hooks = SendHooks(hooks)
        self.tracing = tracing_of(group, trace, self._config, self._clock)
        self._linger_ms = linger_ms
        self._short_size = self.rules.short_size
        # Messages that need no thought take the short way; each of these is a thought.
        self._is_plain = not (hooks or trace or credentials or avoids_slow or retries_unsafe)
        self.may_pass_loop = not (hooks or trace)  # a thread may send past the loop where nobody looks on
        self._guests = Guests()
        self._topics: dict[str, None] = {}
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None

    # Life

    async def start(self) -> None:
        """Join: nothing is sent yet, but the name servers and the group are checked."""
        if self._instance is not None:
            return
        instance = await self._stack.enter_async_context(open_instance(self._config, self._clock))
        if self.group in instance.producers:
            await self._stack.aclose()
            raise ClientError(
                f"producer group {self.group} is open already in instance {instance.client_id}; "
                "share that producer, or give this one another instance_name"
            )
        instance.producers[self.group] = self
        self._selection = Selection(instance.chance, avoids_slow=self._avoids_slow)
        ip = ip_address(instance.client_id.partition("@")[0]).packed
        self.ids = UniqueIds(ip, instance.process_id, id(self), self._clock)
        await self._stack.enter_async_context(self._guests)
        if self.tracing is not None:
            await self._stack.enter_async_context(self.tracing)
        self._pipeline = SendPipeline(
            instance,
            self.rules,
            self.ids,
            self._clock,
            self._guests,
            self,
            timeout_s=self.timeout_s,
            linger_ms=self._linger_ms,
        )
        self._instance = instance
        unanswered.watched.add(self._pipeline)

    def unwatch(self) -> None:
        """What has no answer at the end of the program is somebody else's to tell."""
        if self._instance is not None:
            unanswered.watched.discard(self._pipeline)

    async def close(self) -> None:
        """Leave the group. Messages under way get their answer first, within the time limit of a send."""
        instance = self._instance
        if instance is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.timeout_s):
                    await self._pipeline.flush()
            self.unwatch()
            if self._pipeline.held_count:
                log.warning("closed with %d messages without an answer group=%s", self._pipeline.held_count, self.group)
            self._instance = None
            del instance.producers[self.group]
            await instance.leave(producer_group=self.group)
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connect(self) -> ConnectConfig:
        """How brokers are reached."""
        return self._config.connect

    def topics(self) -> Iterable[str]:
        return tuple(self._topics)

    def route_changed(self, topic: str) -> None:
        pass

    # Sending

    async def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        waits_for_store: bool | None = None,
        timeout_s: float | None = None,
        **when: Unpack[When],
    ) -> Receipt:
        """Send one message and wait until a broker has stored it.

        Messages of one `shard` go to one queue, where they keep their order if each is awaited before the next. With
        `delay`, `deliver_at` or `delay_level` it is stored now and delivered then.
        """
        if when:
            topic = timed(when, topic, body, tags, keys, properties, flag, waits_for_store)
        if timeout_s is None:
            short = self.short(topic, body, tags, keys, properties, flag, waits_for_store)
            future = None if short is None else self._pipeline.enqueue(*short, shard, queue)
            if future is not None:
                return await future
        message = self.prepared(topic, body, tags, keys, properties, flag, waits_for_store)
        return await self.send_prepared(message, shard=shard, queue=queue, timeout_s=timeout_s or self.timeout_s)

    async def submit(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        waits_for_store: bool | None = None,
        **when: Unpack[When],
    ) -> asyncio.Future[Receipt]:
        """Hand a message over and go on; the future has its receipt. Waits only while too many are under way.

        Messages of one `shard` that one task submits keep their order. `flush` waits for all of them.
        """
        if when:
            topic = timed(when, topic, body, tags, keys, properties, flag, waits_for_store)
        short = self.short(topic, body, tags, keys, properties, flag, waits_for_store)
        if short is None:
            name = topic.topic if isinstance(topic, Message) else topic
            check_topic(name)
            await self._route_in_time(name, self.timeout_s)
            short = self.short(topic, body, tags, keys, properties, flag, waits_for_store)
        pipeline = self._pipeline
        if pipeline.is_full:
            await pipeline.room()
        future = None if short is None else pipeline.enqueue(*short, shard, queue)
        if future is None:
            message = self.prepared(topic, body, tags, keys, properties, flag, waits_for_store)
            if shard is not None or queue is not None:
                await pipeline.flush()  # the long way must not be overtaken, nor overtake
            future = pipeline.send_aside(message, shard, queue)
            if shard is not None or queue is not None:
                await asyncio.wait((future,))
        return future

    async def flush(self) -> None:
        """Wait until every message that was submitted has its answer; what waits for company leaves now."""
        if self._instance is not None:
            await self._pipeline.flush()

    def short(
        self,
        topic: str | Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        waits_for_store: bool | None,
    ) -> tuple[Route, Item] | None:
        """A message that can take the short way, and its route; any thread may call this."""
        instance = self._instance
        if instance is None or instance.process_id != this_process.process_id:
            return None  # the long way says why
        if not self._is_plain or isinstance(topic, Message) or topic not in self._topics:
            return None
        route = instance.known_route(topic)
        if route is None or not route.publish or waits_for_store is not None:
            return None
        if not (tags or keys or properties or flag) and type(body) is bytes and 0 < len(body) < self._short_size:
            return route, (body, b"", 0)
        item = item_of(self.rules, body, tags, keys, properties, flag)
        return None if item is None else (route, item)

    async def send_prepared(
        self,
        message: Message,
        *,
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None = None,
    ) -> Receipt:
        """Send what `prepared` gave; `last_broker` is one that has failed with it already."""
        command = send_command(message, self.rules, self._clock.now_ms())
        msg_id = message.unique_id or ""

        async def attempt(chosen: MessageQueue, left_s: float) -> list[Receipt]:
            return [receipt_of(await self._request(command, chosen, left_s), chosen, msg_id)]

        return (await self._try(message, attempt, shard, queue, timeout_s, last_broker))[0]

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send and do not ask what became of it: fastest, and lost without a word if the broker refuses."""
        message = self.prepared(topic, body, tags, keys, properties, flag, None)
        command = send_command(message, self.rules, self._clock.now_ms())
        attempts = self._attempts(self.timeout_s, shard, queue)
        route = await self._route_in_time(message.topic, self.timeout_s)
        while True:
            chosen = attempts.choose(route)
            address = await self.instance.found_address(message.topic, chosen.broker_name)
            self._hooks.before(message, chosen)
            try:
                await self.instance.client.send_oneway(address, to_queue(command, chosen), max(attempts.left_s, 0.001))
                return
            except ConnectError as problem:
                told = self.instance.unreachable(chosen.broker_name, address, problem)
                route = await attempts.failed(route, chosen, told)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[Receipt]:
        """Send messages of one topic in one request: stored together, in one queue, in their order."""
        prepared = [self._checked(message) for message in messages]
        return await self.send_together(prepared, shard, queue, timeout_s or self.timeout_s)

    async def send_together(
        self,
        prepared: Sequence[Message],
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None = None,
    ) -> list[Receipt]:
        command = batch_command(prepared, self.rules, self._clock.now_ms())
        msg_ids = [message.unique_id or "" for message in prepared]

        async def attempt(chosen: MessageQueue, left_s: float) -> list[Receipt]:
            return batch_receipts(await self._request(command, chosen, left_s), chosen, msg_ids)

        return await self._try(prepared[0], attempt, shard, queue, timeout_s, last_broker)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages, in the order every client counts them."""
        return (await self._route(topic)).publish

    # One send, attempt by attempt

    async def _try(
        self,
        message: Message,
        attempt: Callable[[MessageQueue, float], Awaitable[list[Receipt]]],
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None = None,
    ) -> list[Receipt]:
        """Attempts within one time limit (`attempts.py`)."""
        attempts = self._attempts(timeout_s, shard, queue, last_broker)
        route = await self._route_in_time(message.topic, timeout_s)
        while True:
            chosen = attempts.choose(route)
            begun_s = self._clock.monotonic_s()
            self._hooks.before(message, chosen)
            try:
                receipts = await attempt(chosen, max(attempts.left_s, 0.001))
            except ClientError as failure:
                self.note(chosen, begun_s, failure)
                self._hooks.after(message, chosen, None, failure)
                route = await attempts.failed(route, chosen, failure)
                continue
            self.note(chosen, begun_s, None)
            self._hooks.after(message, chosen, receipts[0], None)
            if receipts[0].is_ok or not self._retries_unsafe or not attempts.is_stored_elsewhere():
                return receipts

    def _attempts(
        self, timeout_s: float, shard: str | None, queue: MessageQueue | None, last_broker: str | None = None
    ) -> Attempts:
        return Attempts(
            self.instance,
            self._clock,
            self.choose,
            timeout_s=timeout_s,
            retry_count=self._retry_count,
            shard=shard,
            queue=queue,
            last_broker=last_broker,
        )

    async def _request(self, command: Command, queue: MessageQueue, left_s: float) -> Command:
        instance = self.instance
        address = instance.address(queue.broker_name, MASTER_ID)
        if address is None:
            await instance.refresh(queue.topic)
            address = instance.address(queue.broker_name, MASTER_ID)
        if address is None:
            raise ClientError(
                f"broker {queue.broker_name} has no master in the route of {queue.topic}", BROKER_NOT_IN_ROUTE
            )
        begun_ms = self._clock.now_ms()
        try:
            answer = await instance.request(address, to_queue(command, queue), left_s)
        except ConnectError as problem:
            raise instance.unreachable(queue.broker_name, address, problem) from problem
        if self.tracing is not None:
            self.tracing.published(command, queue, address, answer, begun_ms)
        return answer

    def choose(self, route: Route, shard: str | None, last_broker: str | None) -> MessageQueue:
        """The queue for the next message."""
        if not route.publish:
            raise ClientError(
                f"topic {route.topic} has no queue that takes messages: it is read-only, or its master is gone",
                NO_ROUTE,
            )
        if shard is not None:
            return shard_queue(route.publish, shard)
        return self._selection.choose(route.topic, route.publish, self._clock.monotonic_s(), last_broker)

    async def _route_in_time(self, topic: str, timeout_s: float) -> Route:
        return await routed_in_time(self.instance, topic, self._route, timeout_s, is_patient=self._retry_count > 0)

    async def _route(self, topic: str) -> Route:
        instance = self.instance
        is_new = topic not in self._topics
        route = await instance.route(topic, self.rules.queue_count)
        if is_new:
            self._topics[topic] = None
            # Brokers must know us before they ask us back; a topic in use already has been told of by the timer.
            await instance.heartbeat()
        return route

    def note(self, queue: MessageQueue, begun_s: float, failure: ClientError | None) -> None:
        """Remember what an attempt showed of its broker."""
        now_s = self._clock.monotonic_s()
        has_failed = failure is not None
        is_reachable = not is_network(failure)
        self._selection.note(
            queue.broker_name, (now_s - begun_s) * 1000, now_s, has_failed=has_failed, is_reachable=is_reachable
        )

    def is_tried_again(self, failure: ClientError, *, is_bound: bool) -> bool:
        """Whether a message has another attempt; one that is bound to its queue, if this one was not refused."""
        return self._retry_count > 0 and (is_network(failure) if is_bound else is_worth_another(failure))

    # Messages

    def prepared(
        self,
        topic: str | Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        waits_for_store: bool | None,
    ) -> Message:
        """A message that may be sent, with its id; any thread may call this."""
        return self._checked(given_message(topic, body, tags, keys, properties, flag, waits_for_store))

    def _checked(self, message: Message) -> Message:
        check_message(message, self.rules.body_size_max)
        if self._instance is None:
            raise self._not_open()
        return with_id(message, self.ids.next())

    def _not_open(self) -> ClientError:
        return ClientError(f"producer {self.group} is not open: use it inside its `with` block, or call start()")

    @property
    def instance(self) -> Instance:
        """What it shares with others of its client id; only while it is open."""
        instance = self._instance
        if instance is None:
            raise self._not_open()
        if instance.process_id != os.getpid():
            raise ClientError(
                f"producer {self.group} was opened in process {instance.process_id} and does not work in a fork of it; "
                "open one in each process"
            )
        return instance
