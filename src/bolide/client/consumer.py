"""What a user holds: a consumer to iterate over.

    async with Consumer("orders-cg", {"Orders": "TagA || TagB"}) as consumer:
        async for message in consumer:
            handle(message.body)

Going on to the next message acknowledges the one before, unless it has its own verdict. An exception that leaves the
loop does not: the message comes again. One message is out at a time, so each queue's order is kept.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from bolide.client.config import Credentials, client_config
from bolide.client.pulling import PullRules
from bolide.client.received import Received
from bolide.client.rules import LOCAL_DIRECTORY, SubscriberRules
from bolide.client.starting import StartFrom
from bolide.client.subscriber import Subscriber
from bolide.client.subscriptions import Topics, parse_topics
from bolide.clock import Clock, SystemClock
from bolide.model.allocation import Strategy, averagely
from bolide.model.queue import MessageQueue
from bolide.remoting.config import ConnectConfig

_HAND_COUNT = 64


class Consumer:
    """A member of a consumer group."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        namesrv: str | None = None,
        *,
        start_from: StartFrom | None = None,
        ordered: bool = False,
        broadcasting: bool = False,
        strategy: Strategy = averagely,
        pull: PullRules | None = None,
        retry_count_max: int | None = None,
        offsets_directory: Path | None = None,
        trace: bool | str = False,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`topics` is a topic, several, or topic → tags or `Sql`. Without `namesrv` NAMESRV_ADDR is used.

        A broadcasting member keeps its progress under `offsets_directory`, RocketMQ's ~/.rocketmq_offsets by default.
        `trace` tells of every message in RocketMQ's trace topic, or in the one that is named.
        """
        rules = SubscriberRules(
            is_broadcasting=broadcasting,
            is_ordered=ordered,
            start_from=start_from or StartFrom.newest(),
            strategy=strategy,
            pull=pull or PullRules(),
            retry_count_max=retry_count_max,
            local_directory=offsets_directory or LOCAL_DIRECTORY,
            trace=trace,
        )
        # The local file of a broadcasting member is found again under its name, so the name must not change.
        name = instance_name or ("DEFAULT" if broadcasting else "")
        config = client_config(namesrv, instance_name=name, credentials=credentials, connect=connect)
        self.group = group
        self.subscriber = Subscriber(group, parse_topics(topics), config, clock or SystemClock(), rules)
        self._hand: deque[Received] = deque()
        self._current: Received | None = None

    async def start(self) -> None:
        """Join the group."""
        await self.subscriber.start()

    async def close(self) -> None:
        """Leave the group; an iteration under way ends."""
        await self.subscriber.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._settle_current()
        await self.close()

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        current = self._current
        if current is not None and current.verdict is None:
            current.ack()
        self._current = None
        while True:
            if not self._hand:
                self._hand.extend(await self.subscriber.receive(_HAND_COUNT))
            if not self._hand:
                raise StopAsyncIteration
            message = self._hand.popleft()
            if message.home.is_paused:
                self._hand = self.hold_back(message, self._hand)
            elif not message.home.is_dropped:
                self.subscriber.begun(message)
                self._current = message
                return message

    def hold_back(self, message: Received, hand: deque[Received]) -> deque[Received]:
        """Its queue is paused: all we took of that queue goes back, in order; returns what is left of the hand."""
        home = message.home
        self.subscriber.untake(home, [message, *(other for other in hand if other.home is home)])
        return deque(other for other in hand if other.home is not home)

    async def receive(self, count_max: int = 32, timeout_s: float | None = None) -> list[Received]:
        """Several messages at once, each with its own verdict to come; none after `timeout_s`, or when closed."""
        try:
            async with asyncio.timeout(timeout_s):
                received = await self.subscriber.receive(count_max)
            self.subscriber.begun(*received)
            return received
        except TimeoutError:
            return []

    def _settle_current(self) -> None:
        message, self._current = self._current, None
        if message is not None and message.verdict is None:
            message.ack()

    # Steering

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self.subscriber.owned)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Give nothing of these queues, or of all, until `resume`."""
        self.subscriber.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on where it was paused."""
        self.subscriber.resume(queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in an owned queue."""
        self.subscriber.seek(queue, offset)

    async def commit(self) -> None:
        """Tell the progress now instead of within seconds."""
        await self.subscriber.tell_progress()
