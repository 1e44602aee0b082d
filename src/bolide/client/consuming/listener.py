"""Push style: a function of the user's is called for each message, or for a page of them, this many calls at a time.

A function that returns has done its work; one that raises has not, and its message comes again. An ordinary function
runs in a thread, an async one in the loop. In an ordered group one message of a queue is out at a time, and one that
fails is tried again before the next; otherwise calls of one queue overlap up to `concurrency`.

With `batch_max` the function is called with a list: up to this many messages of one queue, in its order (RocketMQ's
consumeMessageBatchMaxSize). All are done when it returns, none when it raises, but for those with a verdict of their
own. It may return the index of the last that is done (RocketMQ's ackIndex): those after it come again.

A call that takes longer than `timeout_s` counts as failed, so that one message cannot hold up the progress of its queue
for ever. An async function is cancelled; an ordinary one cannot be, its thread is lost until it returns, and the log
says so.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bolide.client.consuming.received import Received, Verdict
from bolide.client.consuming.replies import Replies
from bolide.client.consuming.subscriber import Subscriber
from bolide.client.sending.hooks import tell
from bolide.client.serializers import JSON, Serializer
from bolide.client.watching import EXCEPTION, TIMEOUT
from bolide.errors import Refusal
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.batch import unwrap
from bolide.protocol.bodies.consumers import ConsumeResult, DirectConsumption
from bolide.protocol.codes import ResponseCode
from bolide.protocol.records import decode_records, inflate

Function = Callable[[Received], Any]
PageFunction = Callable[[list[Received]], Any]
CONSUME_TIMEOUT_S = 900.0
log = logging.getLogger(__name__)


class ConsumeHook(Protocol):
    """Sees each call; what it raises is logged and goes no further."""

    def before_consume(self, message: Received) -> None:
        """The function is about to be called with it."""

    def after_consume(self, message: Received, problem: BaseException | None) -> None:
        """The function returned, or raised the problem."""


@dataclass(slots=True)
class _ByHand:
    """The home of a message that an administrator gives: its verdict is the answer, and moves nothing."""

    queue: MessageQueue
    is_dropped: bool = False
    is_paused: bool = False
    verdict: Verdict | None = None
    replier: Replies | None = None
    serializer: Serializer = JSON

    def decide(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        self.verdict = verdict


class Listener:
    """Feeds the messages of a subscriber to a function until the subscriber closes."""

    def __init__(
        self,
        subscriber: Subscriber,
        function: Function | PageFunction,
        *,
        concurrency: int = 20,
        batch_max: int | None = None,
        timeout_s: float = CONSUME_TIMEOUT_S,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self._subscriber = subscriber
        self._concurrency = concurrency
        self._batch_max = batch_max
        self._timeout_s = timeout_s
        self._hooks = list(hooks)
        self._telemetry = subscriber.telemetry
        self._threads: ThreadPoolExecutor | None = None
        if inspect.iscoroutinefunction(function):
            self._call: Callable[[Any], Awaitable[Any]] = function
        else:
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"consumer.{subscriber.group}")
            self._call = partial(self._call_in_thread, function)
        subscriber.consume_once = self.consume_by_hand
        subscriber.concurrency = concurrency

    async def run(self) -> None:
        """Until the subscriber is closed and the calls under way have returned."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._concurrency):
                    group.create_task(self._work(), name=f"consumer.{self._subscriber.group}.call.{number}")
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        while received := await self._subscriber.receive(self._batch_max or 1, is_page=True):
            await self._consume(received)

    async def _consume(self, page: list[Received]) -> None:
        page = [message for message in page if not message.home.is_dropped]
        if not page:
            return
        self._subscriber.begun(*page)
        if self._hooks:
            tell(partial(hook.before_consume, message) for hook in self._hooks for message in page)
        problem, last_done = await self._called(page)
        if self._hooks:
            tell(partial(hook.after_consume, message, problem) for hook in self._hooks for message in page)
        for index, message in enumerate(page):
            if message.verdict is None:
                if index <= last_done:
                    message.ack()
                else:
                    message.nack(reason=None if problem is None else _said(problem))

    async def _called(self, page: list[Received]) -> tuple[Exception | None, int]:
        """Call the function: what it raised, and the index of the last message that is done."""
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                with nullcontext() if self._telemetry is None else self._telemetry.current(page):
                    told = await self._call(self._argument(page))
                if self._batch_max is None:
                    _answer(page[0], told)
            return None, self._ack_index(told, len(page) - 1)
        except Exception as failure:
            self._note_failure(page, is_late=limit.expired())
            return failure, -1

    def _argument(self, page: list[Received]) -> Received | list[Received]:
        """A function that asked for pages gets a list, also of one message."""
        return page[0] if self._batch_max is None else page

    def _ack_index(self, told: object, last: int) -> int:
        """How far a page is done; what a function for single messages returns says nothing."""
        if self._batch_max is None or not isinstance(told, int) or isinstance(told, bool):
            return last
        return min(told, last)

    def _note_failure(self, page: list[Received], *, is_late: bool) -> None:
        for message in page:
            self._subscriber.ended(message, TIMEOUT if is_late else EXCEPTION)
        what = repr(page[0]) if len(page) == 1 else f"{page[0]!r} and {len(page) - 1} more"
        if is_late:
            log.error("consuming took more than %g s, it comes again: %s", self._timeout_s, what)
        else:
            log.exception("consuming failed, it comes again: %s", what)

    async def consume_by_hand(self, body: bytes, broker_name: str) -> bytes:
        """An administrator gives one stored message (309): call the function and tell how it went; nothing moves."""
        stored = next((inflate(item) for record in decode_records(body) for item in unwrap(record)), None)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "there is no message in the request")
        home = _ByHand(MessageQueue(stored.topic, broker_name, stored.queue_id))
        begun_s = self._subscriber.clock.monotonic_s()
        remark = None
        try:
            await self._call(self._argument([Received.of(stored, home)]))
            result = ConsumeResult.CR_SUCCESS if home.verdict in (None, Verdict.ACK) else ConsumeResult.CR_LATER
        except Exception as problem:
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, _said(problem)
        return DirectConsumption(
            consume_result=result,
            order=self._subscriber.rules.is_ordered,
            remark=remark,
            spent_time_mills=int((self._subscriber.clock.monotonic_s() - begun_s) * 1000),
        ).encode()

    async def _call_in_thread(self, function: Callable[[Any], Any], argument: Received | list[Received]) -> Any:
        loop = asyncio.get_running_loop()
        if self._telemetry is None:
            return await loop.run_in_executor(self._threads, function, argument)
        # The thread has the message's span, too.
        return await loop.run_in_executor(self._threads, copy_context().run, function, argument)


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _answer(message: Received, result: object) -> None:
    """What a function returns for a request is the reply to it."""
    if isinstance(result, bytes | Message) and message.is_request:
        message.reply(result)
