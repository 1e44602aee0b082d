"""`bolide.Consumer`, for callers without a loop; every method does what its namesake in `bolide.aio` does.

What waits runs in the process's background loop. Messages and verdicts cross the threads many at a time, so iterating
costs a switch for hundreds of messages and not for each.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Unpack

from bolide.client.blocking.loop import Blocking, forward_plain
from bolide.client.careless import demand_count
from bolide.client.consuming import consumer as asynchronous_consumer
from bolide.client.consuming.hand import Hand
from bolide.client.consuming.loops import Loop
from bolide.client.consuming.received import Received, Verdict
from bolide.client.consuming.subscriber import Subscriber
from bolide.client.consuming.subscriptions import Topics
from bolide.client.options import ConsumerOptions
from bolide.model.queue import MessageQueue

_HAND_COUNT = 256
_VERDICTS_MAX = 64


class Consumer(Blocking[asynchronous_consumer.Consumer]):
    """A member of a consumer group, to iterate over in one thread; any thread may close it."""

    def __init__(
        self, group: str, topics: Topics, namesrv: str | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        """`topics` is a topic, several, or topic → tags or `Sql`. Without `namesrv` NAMESRV_ADDR is used.

        The options are those of `ConsumerOptions`; `help(bolide.aio.Consumer)` shows the defaults. A broadcasting
        member keeps its progress under `offsets_directory`, RocketMQ's ~/.rocketmq_offsets by default. `trace` tells of
        every message in RocketMQ's trace topic, or in the one that is named.
        """
        super().__init__(asynchronous_consumer.Consumer(group, topics, namesrv, **options))
        self.group = group
        self._subscriber = self._core.subscriber
        self._subscriber.on_verdict = self._decide
        self._subscriber.collect = self._collect
        self._verdicts: deque[tuple[Received, Verdict, float | None, str | None]] = deque()
        self._hand = Hand()
        self._subscriber.let_go = self._hand.let_go

    def close(self) -> None:
        """Leave the group; an iteration under way ends.

        An ordered queue whose message a loop in another thread is at goes to nobody before its lock has grown old.
        """
        self._hand.close(threading.get_ident())
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._hand.settle_done()
        super().__exit__(kind, problem, trace)

    # Messages

    def __iter__(self) -> Iterator[Received]:
        self._enter()
        return _Messages(self, self._subscriber, self._hand)

    def __next__(self) -> Received:
        """The next message, by hand: `ack()` it, or `commit()` what was taken so far. Ends when the consumer closes."""
        self._enter()
        message = self.next_message()
        self._hand.give((message,))
        return message

    def receive(self, count_max: int = 32, timeout_s: float | None = None) -> list[Received]:
        """Several messages at once; none when nothing comes within `timeout_s`, or the consumer is closed.

        The verdict is yours: `ack()`, `nack()` or `dead_letter()` each, or `commit()` when you are done with all.
        """
        self._enter()
        demand_count("count_max", count_max)
        received = self._take_ahead(count_max)
        if not received:
            self._background.run(self._fill(count_max, timeout_s))
            received = self._take_ahead(count_max)
        self._subscriber.begun(*received)
        self._hand.give(received)
        return received

    def commit(self) -> None:
        """Acknowledge all that `receive` and `next` gave and that has no verdict, and tell the progress now.

        For those who acknowledge one by one it only tells. The message that a loop is at stays as it is.
        """
        self._enter()
        self._hand.ack_given()
        self._background.run(self._subscriber.tell_progress())

    def next_message(self) -> Received:
        """The next one, taken ahead or waited for."""
        ahead = self._hand.ahead
        while True:
            if not ahead:
                self._hand.settle()
                self._background.run(self._fill(_HAND_COUNT))
                if not ahead and self._subscriber.is_stopping:
                    raise StopIteration
            message = self._hand.pop()
            if message is not None and self._is_free(message):
                self._subscriber.begun(message)
                return message

    def _enter(self) -> None:
        """Somebody goes on: whatever loops were left with is settled."""
        self._subscriber.check_started()
        self._hand.settle()

    def _take_ahead(self, count_max: int) -> list[Received]:
        taken: list[Received] = []
        while len(taken) < count_max and (message := self._hand.pop()) is not None:
            if self._is_free(message):
                taken.append(message)
        return taken

    def _is_free(self, message: Received) -> bool:
        """Whether a message may be given out: its queue is ours, and not paused."""
        if message.home.is_paused:
            self._background.run(self._hold_back(message))
            return False
        return not message.home.is_dropped

    async def _fill(self, count_max: int, timeout_s: float | None = None) -> None:
        """Wait for messages. They are put down here, so anyone who is interrupted while he waits finds them later."""
        self._collect()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                self._hand.ahead.extend(await self._subscriber.receive(count_max))

    async def _hold_back(self, message: Received) -> None:
        self._core.hold_back(self._hand, message)

    # Verdicts cross to the loop many at a time

    def _decide(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        self._verdicts.append((message, verdict, delay_s, reason))
        # What others wait for goes at once: a retry, or the next message of an ordered queue.
        is_urgent = verdict is not Verdict.ACK or self._subscriber.rules.is_ordered
        if is_urgent or len(self._verdicts) >= _VERDICTS_MAX:
            self._background.bound.loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        while self._verdicts:
            self._subscriber.carry_out(*self._verdicts.popleft())

    # Steering

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._core.queues

    pause = forward_plain(asynchronous_consumer.Consumer.pause)
    resume = forward_plain(asynchronous_consumer.Consumer.resume)
    seek = forward_plain(asynchronous_consumer.Consumer.seek)


class _Messages(Loop):
    """One loop over a consumer."""

    __slots__ = ("_ahead", "_consumer", "_subscriber")

    def __init__(self, consumer: Consumer, subscriber: Subscriber, hand: Hand) -> None:
        super().__init__(hand, threading.get_ident())
        self._consumer = consumer
        self._subscriber = subscriber
        self._ahead = hand.ahead

    def __iter__(self) -> Iterator[Received]:
        self._enter_again()
        return self

    def __next__(self) -> Received:
        current = self.current
        if current is not None:
            self.current = None
            if current.verdict is None:
                current.ack()
        try:
            message = self._ahead.popleft()  # nearly every message comes here: no further call than is needed
        except IndexError:
            message = self._consumer.next_message()
        else:
            if message.home.is_paused or message.home.is_dropped:
                self._ahead.appendleft(message)
                message = self._consumer.next_message()
            elif self._subscriber.is_watched:
                self._subscriber.begun(message)
        self.current = message
        return message
