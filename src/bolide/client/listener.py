"""Push style: a function of the user's is called for each message, so many at a time.

A function that returns has done its work; one that raises has not, and its message comes again. An ordinary function
runs in a thread, an async one in the loop. In an ordered group one message of a queue is out at a time, and one that
fails is tried again before the next; otherwise calls of one queue overlap up to `concurrency`.

A call that takes longer than `timeout_s` counts as failed, so that one message cannot hold up the progress of its queue
for ever. An async function is cancelled; an ordinary one cannot be, its thread is lost until it returns, and the log
says so.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bolide.client.hooks import tell
from bolide.client.received import Received, Verdict
from bolide.client.replies import Replies
from bolide.client.subscriber import Subscriber
from bolide.client.tracing import EXCEPTION, TIMEOUT
from bolide.errors import Refusal
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.batch import unwrap
from bolide.protocol.bodies import ConsumeResult, DirectConsumption
from bolide.protocol.codes import ResponseCode
from bolide.protocol.records import decode_records, inflate

Function = Callable[[Received], Any]
CONSUME_TIMEOUT_S = 900.0
log = logging.getLogger(__name__)


class ConsumeHook(Protocol):
    """Sees each call; what it raises is logged and goes no further."""

    def before_consume(self, message: Received) -> None: ...

    def after_consume(self, message: Received, problem: BaseException | None) -> None: ...


@dataclass(slots=True)
class _ByHand:
    """The home of a message that an administrator gives: its verdict is the answer, and moves nothing."""

    queue: MessageQueue
    is_dropped: bool = False
    is_paused: bool = False
    verdict: Verdict | None = None
    replier: Replies | None = None

    def decide(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        self.verdict = verdict


class Listener:
    """Feeds the messages of a subscriber to a function until the subscriber closes."""

    def __init__(
        self,
        subscriber: Subscriber,
        function: Function,
        *,
        concurrency: int = 20,
        timeout_s: float = CONSUME_TIMEOUT_S,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._subscriber = subscriber
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._hooks = list(hooks)
        self._threads: ThreadPoolExecutor | None = None
        if inspect.iscoroutinefunction(function):
            self._call: Callable[[Received], Awaitable[Any]] = function
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
        while received := await self._subscriber.receive(1):
            await self._consume(received[0])

    async def _consume(self, message: Received) -> None:
        if message.home.is_dropped:
            return
        self._subscriber.begun(message)
        if self._hooks:
            tell(partial(hook.before_consume, message) for hook in self._hooks)
        problem: Exception | None = None
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                _answer(message, await self._call(message))
        except Exception as failure:
            problem = failure
            if limit.expired():
                log.error("consuming took more than %g s, the message comes again: %r", self._timeout_s, message)
            else:
                log.exception("consuming failed, the message comes again: %r", message)
        if self._hooks:
            tell(partial(hook.after_consume, message, problem) for hook in self._hooks)
        if self._subscriber.tracing is not None and problem is not None:
            self._subscriber.tracing.ended(message, TIMEOUT if limit.expired() else EXCEPTION)
        if message.verdict is None:
            if problem is None:
                message.ack()
            else:
                message.nack()

    async def consume_by_hand(self, body: bytes, broker_name: str) -> bytes:
        """An administrator gives one stored message (309): call the function and tell how it went; nothing moves."""
        stored = next((inflate(item) for record in decode_records(body) for item in unwrap(record)), None)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "there is no message in the request")
        home = _ByHand(MessageQueue(stored.topic, broker_name, stored.queue_id))
        begun_s = self._subscriber.clock.monotonic_s()
        remark = None
        try:
            await self._call(Received.of(stored, home))
            result = ConsumeResult.CR_SUCCESS if home.verdict in (None, Verdict.ACK) else ConsumeResult.CR_LATER
        except Exception as problem:
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, f"{type(problem).__name__}: {problem}"
        return DirectConsumption(
            consume_result=result,
            order=self._subscriber.rules.is_ordered,
            remark=remark,
            spent_time_mills=int((self._subscriber.clock.monotonic_s() - begun_s) * 1000),
        ).encode()

    async def _call_in_thread(self, function: Function, message: Received) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, message)


def _answer(message: Received, result: object) -> None:
    """What a function returns for a request is the reply to it."""
    if isinstance(result, bytes | Message) and message.is_request:
        message.reply(result)
