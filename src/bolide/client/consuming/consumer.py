"""What a user holds: a consumer to iterate over.

    async with Consumer("orders-cg", {"Orders": "TagA || TagB"}) as consumer:
        async for message in consumer:
            handle(message.body)

Going on to the next message acknowledges the one before, unless it has its own verdict. An exception that leaves the
loop does not: the message comes again, also when another loop is begun (`loops.py`). One message is out at a time, so
each queue's order is kept. What `receive` and `anext` give is settled by its user: `ack()` for one, `commit()` for all.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType

from bolide.client.careless import demand_count, naming_the_nearest
from bolide.client.config import Credentials, client_config
from bolide.client.consuming.hand import Hand
from bolide.client.consuming.loops import Loop
from bolide.client.consuming.received import Received
from bolide.client.consuming.rules import LOCAL_DIRECTORY, PullRules, SubscriberRules
from bolide.client.consuming.start_from import StartFrom, chosen_start
from bolide.client.consuming.subscriber import Subscriber
from bolide.client.consuming.subscriptions import Topics, parse_topics
from bolide.client.life import Opened
from bolide.client.serializers import JSON, Serializer
from bolide.clock import Clock, SystemClock
from bolide.model.allocation import Strategy, averagely
from bolide.model.queue import MessageQueue
from bolide.remoting.config import ConnectConfig

_HAND_COUNT = 64


class Consumer(Opened):
    """A member of a consumer group."""

    @naming_the_nearest
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
        serializer: Serializer = JSON,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`topics` is a topic, several, or topic → tags or `Sql`. Without `namesrv` NAMESRV_ADDR is used.

        A broadcasting member keeps its progress under `offsets_directory`, RocketMQ's ~/.rocketmq_offsets by default.
        `trace` tells of every message in RocketMQ's trace topic, or in the one that is named. `serializer` reads what
        `message.value()` is asked for.
        """
        rules = SubscriberRules(
            is_broadcasting=broadcasting,
            is_ordered=ordered,
            start_from=chosen_start(start_from),
            strategy=strategy,
            pull=pull or PullRules(),
            retry_count_max=retry_count_max,
            local_directory=offsets_directory or LOCAL_DIRECTORY,
            trace=trace,
            serializer=serializer,
        )
        # The local file of a broadcasting member is found again under its name, so the name must not change.
        name = instance_name or ("DEFAULT" if broadcasting else "")
        config = client_config(namesrv, instance_name=name, credentials=credentials, connect=connect)
        self.group = group
        self.subscriber = Subscriber(group, parse_topics(topics), config, clock or SystemClock(), rules)
        self._where = f"{', '.join(parse_topics(topics))} at {', '.join(config.namesrv)}"
        self._hand = Hand()
        self.subscriber.let_go = self._hand.let_go

    def __repr__(self) -> str:
        return f"<Consumer {self.group} of {self._where}{'' if self.subscriber.is_started else ', not open'}>"

    async def start(self) -> None:
        """Join the group."""
        await self.subscriber.start()

    async def close(self) -> None:
        """Leave the group; an iteration under way ends.

        An ordered queue whose message a loop in another task is at goes to nobody before its lock has grown old.
        """
        self._hand.close(asyncio.current_task())
        await self.subscriber.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._hand.settle_done()
        await self.close()

    # Messages

    def __aiter__(self) -> AsyncIterator[Received]:
        self._enter()
        return _Messages(self, self._hand)

    async def __anext__(self) -> Received:
        """The next message, by hand: `ack()` it, or `commit()` what was taken so far. Ends when the consumer closes."""
        self._enter()
        message = await self.next_message()
        self._hand.give((message,))
        return message

    async def receive(self, count_max: int = 32, timeout_s: float | None = None) -> list[Received]:
        """Several messages at once; none after `timeout_s`, or when closed.

        The verdict is yours: `ack()`, `nack()` or `dead_letter()` each, or `commit()` when you are done with all.
        """
        self._enter()
        demand_count("count_max", count_max)
        received = self._take_ahead(count_max)
        if not received:
            try:
                async with asyncio.timeout(timeout_s):
                    received = await self.subscriber.receive(count_max)
            except TimeoutError:
                return []
        self.subscriber.begun(*received)
        self._hand.give(received)
        return received

    async def commit(self) -> None:
        """Acknowledge all that `receive` and `anext` gave and that has no verdict, and tell the progress now.

        For those who acknowledge one by one it only tells. The message that a loop is at stays as it is.
        """
        self._enter()
        self._hand.ack_given()
        await self.subscriber.tell_progress()

    def _enter(self) -> None:
        """Somebody goes on: whatever loops were left with is settled."""
        self.subscriber.check_started()
        self._hand.settle()

    def _take_ahead(self, count_max: int) -> list[Received]:
        """What iterating took ahead comes first."""
        taken: list[Received] = []
        while self._hand.ahead and len(taken) < count_max:
            message = self._hand.ahead.popleft()
            if message.home.is_paused:
                self.hold_back(self._hand, message)
            elif not message.home.is_dropped:
                taken.append(message)
        return taken

    async def next_message(self) -> Received:
        """The next one, taken ahead or waited for."""
        ahead = self._hand.ahead
        while True:
            if not ahead:
                self._hand.settle()
                ahead.extend(await self.subscriber.receive(_HAND_COUNT))
            if not ahead:
                raise StopAsyncIteration
            message = ahead.popleft()
            if message.home.is_paused:
                self.hold_back(self._hand, message)
            elif not message.home.is_dropped:
                self.subscriber.begun(message)
                return message

    def hold_back(self, hand: Hand, message: Received) -> None:
        """Its queue is paused: all we took of that queue goes back, in order."""
        self.subscriber.untake(message.home, hand.of_queue(message))

    # Steering

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self.subscriber.owned)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Give nothing of these queues, or of all, until `resume`."""
        self.subscriber.check_started()
        self.subscriber.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on where it was paused."""
        self.subscriber.check_started()
        self.subscriber.resume(queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in an owned queue."""
        self.subscriber.check_started()
        self.subscriber.seek(queue, offset)


class _Messages(Loop):
    """One loop over a consumer."""

    __slots__ = ("_ahead", "_consumer", "_subscriber")

    def __init__(self, consumer: Consumer, hand: Hand) -> None:
        super().__init__(hand, asyncio.current_task())
        self._consumer = consumer
        self._subscriber = consumer.subscriber
        self._ahead = hand.ahead

    def __aiter__(self) -> AsyncIterator[Received]:
        self._enter_again()
        return self

    async def __anext__(self) -> Received:
        current = self.current
        if current is not None:
            self.current = None
            if current.verdict is None:
                current.ack()
        ahead = self._ahead
        if ahead and not ahead[0].home.is_paused and not ahead[0].home.is_dropped:
            message = self.current = ahead.popleft()  # nearly every message comes here: no further call than is needed
            if self._subscriber.is_watched:
                self._subscriber.begun(message)
        else:
            message = self.current = await self._consumer.next_message()
        return message
