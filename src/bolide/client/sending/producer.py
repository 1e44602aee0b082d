"""What a user holds: a producer, whose methods take a message apart and have it sent (`client/sending`)."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from typing import Any, Unpack

from bolide.client.careless import WRONG, explained, naming_the_nearest
from bolide.client.config import Credentials, client_config
from bolide.client.instance import Instance, open_instance
from bolide.client.life import Opened
from bolide.client.options import When
from bolide.client.sending import unanswered
from bolide.client.sending.delays import recall, recalled, timed
from bolide.client.sending.hooks import SendHook, SendHooks
from bolide.client.sending.message import SendRules, compression_named
from bolide.client.sending.parts import Given, Parts
from bolide.client.sending.pipeline import SendPipeline
from bolide.client.sending.placement import Placement
from bolide.client.sending.preparation import Preparation
from bolide.client.sending.receipt import Receipt
from bolide.client.sending.requests import Requests
from bolide.client.sending.retry_path import RetryPath
from bolide.client.sending.shipment import Shipment
from bolide.client.sending.watched_path import WatchedPath
from bolide.client.serializers import JSON, NOTHING, Serializer, body_of
from bolide.client.telemetry import active
from bolide.client.watching import tracing_of
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError
from bolide.model.message import Message
from bolide.model.names import group_problem
from bolide.model.queue import MessageQueue
from bolide.protocol.ids import UniqueIds
from bolide.remoting.config import ConnectConfig
from bolide.remoting.isolated_tasks import IsolatedTasks

_DEFAULT_GROUP = "DEFAULT_PRODUCER"
log = logging.getLogger(__name__)


class Producer(Opened):
    """A member of a producer group. Open while its `async with` block runs; tasks may share it."""

    @naming_the_nearest
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
        serializer: Serializer = JSON,
        clock: Clock | None = None,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used. `timeout_s` covers all attempts of one send.

        With `linger_ms` messages of a topic wait so long for each other and leave as one batch. `trace` tells of every
        message in RocketMQ's trace topic, or in the one that is named. `serializer` writes what is sent as `value=`.
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
            timeout_s=timeout_s,
            retry_count=retry_count,
            retries_unsafe=retries_unsafe,
            linger_s=linger_ms / 1000,
        )
        self.serializer = serializer
        self._avoids_slow = avoids_slow
        self._hooks = SendHooks(hooks)
        self.tracing = tracing_of(group, trace, self._config, self._clock)
        self._telemetry = active()
        is_watched = bool(hooks or trace or self._telemetry)
        # What takes the fast path needs no thought; each of these is one.
        self._is_fast = not (is_watched or self._config.credentials or avoids_slow or retries_unsafe)
        self.may_pass_loop = not is_watched  # a thread may send past the loop where nobody looks on
        self._guests = IsolatedTasks()
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None
        self._pipeline: SendPipeline | None = None  # while it is open

    def __repr__(self) -> str:
        where = ", ".join(self._config.namesrv)
        return f"<{type(self).__name__} {self.group} at {where}{'' if self._pipeline else ', not open'}>"

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
        self._placement = Placement(instance, self.rules, avoids_slow=self._avoids_slow)
        instance.producers[self.group] = self
        try:
            await instance.check_access()
        except BaseException:
            del instance.producers[self.group]
            await self._stack.aclose()
            raise
        ip = ip_address(instance.client_id.partition("@")[0]).packed
        self.ids = UniqueIds(ip, instance.process_id, id(self), self._clock)
        await self._stack.enter_async_context(self._guests)
        if self.tracing is not None:
            await self._stack.enter_async_context(self.tracing)
        self._pipeline = pipeline = self._new_pipeline(
            instance, Preparation(self.rules, self.ids, is_fast=self._is_fast)
        )
        self._requests = Requests(instance, pipeline.path)
        self._instance = instance
        unanswered.watched.add(pipeline)

    def _new_pipeline(self, instance: Instance, preparation: Preparation) -> SendPipeline:
        """One for messages that are prepared in this way."""
        path = RetryPath(instance, self._placement, preparation.rules, self._hooks, self.tracing)
        if self._telemetry is not None:
            path = WatchedPath(path, self._telemetry, instance.client_id)
        return SendPipeline(instance, preparation, path, self._guests)

    def unwatch(self) -> None:
        """What has no answer at the end of the program is somebody else's to tell."""
        if self._pipeline is not None:
            unanswered.watched.discard(self._pipeline)

    async def close(self) -> None:
        """Leave the group. Messages under way get their answer first, within the time limit of a send."""
        instance, pipeline = self._instance, self._pipeline
        if instance is not None and pipeline is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.timeout_s):
                    await pipeline.flush()
            self.unwatch()
            if pipeline.held_count:
                log.warning("closed with %d messages without an answer group=%s", pipeline.held_count, self.group)
            pipeline.close()
            self._instance = self._pipeline = None
            del instance.producers[self.group]
            await instance.leave(producer_group=self.group)
        await self._stack.aclose()

    @property
    def connect(self) -> ConnectConfig:
        """How brokers are reached."""
        return self._config.connect

    def topics(self) -> Iterable[str]:
        return tuple(self._placement.topics)

    def route_changed(self, topic: str) -> None:
        pass

    # Sending

    async def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        json: Any = NOTHING,
        value: Any = NOTHING,
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
        `delay`, `deliver_at` or `delay_level` it is stored now and delivered then. In place of a body of bytes `json`
        takes anything that JSON can say, and `value` what the producer's serializer can.
        """
        if json is not NOTHING or value is not NOTHING:
            body = body_of(body, json, value, self.serializer)
        parts: Given = (topic, body, tags, keys, properties, flag, waits_for_store)
        try:
            if when:
                parts = timed(when, Parts(*parts))
            pipeline = self._pipeline or self.pipeline
            future = None
            if timeout_s is None and not pipeline.is_full:
                future = pipeline.enqueue(parts, shard, queue)
            return await (pipeline.send(Parts(*parts), shard, queue, timeout_s) if future is None else future)
        except WRONG as problem:
            raise explained(problem, parts, shard, queue, timeout_s) from None

    async def submit(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        json: Any = NOTHING,
        value: Any = NOTHING,
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
        if json is not NOTHING or value is not NOTHING:
            body = body_of(body, json, value, self.serializer)
        parts: Given = (topic, body, tags, keys, properties, flag, waits_for_store)
        try:
            if when:
                parts = timed(when, Parts(*parts))
            pipeline = self._pipeline or self.pipeline
            future = None if pipeline.is_full else pipeline.enqueue(parts, shard, queue)
            return await pipeline.submit(Parts(*parts), shard, queue) if future is None else future
        except WRONG as problem:
            raise explained(problem, parts, shard, queue) from None

    async def flush(self) -> None:
        """Wait until every message that was submitted has its answer; what waits for company leaves now."""
        if self._pipeline is not None:
            await self._pipeline.flush()

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        json: Any = NOTHING,
        value: Any = NOTHING,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send and do not ask what became of it: fastest, and lost without a word if the broker refuses."""
        message = self._message(Parts(topic, body, tags, keys, properties, flag), json, value)
        await self.pipeline.path.send_oneway(Shipment([message], self.timeout_s, shard, queue))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[Receipt]:
        """Send messages of one topic in one request: stored together, in one queue, in their order."""
        prepared = [self.pipeline.preparation.checked(message) for message in messages]
        shipment = Shipment(prepared, timeout_s or self.timeout_s, shard, queue, is_batch=True)
        return await self.pipeline.path.send(shipment)

    async def request(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        json: Any = NOTHING,
        value: Any = NOTHING,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Send a request and wait for the reply to it; `timeout_s` covers both.

        Raises ReplyTimeout when no reply came in time; its `is_sent` says whether the request had been stored.
        """
        message = self._message(Parts(topic, body, tags, keys, properties, flag), json, value)
        return await self._requests.ask(message, shard, queue, self.timeout_s if timeout_s is None else timeout_s)

    async def recall(self, handle: str, timeout_s: float | None = None) -> str:
        """Take a timed message back that was not delivered yet; returns its id.

        `handle` is the `recall_handle` of its receipt. The broker must allow it (recallMessageEnable), and knows
        nothing of whether the message was there: an answer says that it will not come from now on.
        """
        instance, known = self.instance, recalled(handle)
        await self._placement.route(known.topic)
        return await recall(instance, self.group, handle, timeout_s or self.timeout_s, self.tracing)

    def _message(self, parts: Parts, json: Any, value: Any) -> Message:
        if json is not NOTHING or value is not NOTHING:
            parts = parts._replace(body=body_of(parts.body, json, value, self.serializer))
        try:
            return self.pipeline.preparation.message(parts)
        except WRONG as problem:
            raise explained(problem, parts, None, None) from None

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages, in the order every client counts them."""
        return (await self.pipeline.placement.route(topic)).publish

    # What is open

    @property
    def pipeline(self) -> SendPipeline:
        """The road of its messages; only while it is open."""
        if self._pipeline is None:
            raise self._not_open()
        return self._pipeline

    @property
    def instance(self) -> Instance:
        """What it shares with others of its client id; only while it is open."""
        if self._instance is None:
            raise self._not_open()
        self._instance.check_process(f"producer {self.group}")
        return self._instance

    def _not_open(self) -> ClientError:
        return ClientError(f"producer {self.group} is not open: use it inside its `with` block, or call start()")
