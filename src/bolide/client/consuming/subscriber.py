"""A member of a consumer group: shares the queues with the others, keeps its own pulled, tells how far it has come.

What a user holds stands on this: an iterating consumer, functions that are called, a puller. Here is no thread and no
lock; `receive` gives messages out, the verdicts on them come back through `decide`.

Queues change hands while members come and go. Each member computes its share alone, so for a moment two may own a
queue, or nobody; at-least-once absorbs the first and the next round the second. A queue that is given up is dropped
first and its progress told after, so nothing settled late can move it.

An ordered queue goes to another member when no message of it is in the user's hand (`handover.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from bolide.client.config import ClientConfig
from bolide.client.consuming.absences import Absences
from bolide.client.consuming.class_filters import ClassFilters
from bolide.client.consuming.handover import Handover, progress_of
from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.locks import QueueLocks, renew_forever
from bolide.client.consuming.membership import members_of
from bolide.client.consuming.positions import BrokerPositions, FilePositions
from bolide.client.consuming.pulling import QueuePull
from bolide.client.consuming.received import Decide, Home, Received, Verdict
from bolide.client.consuming.retrying import Returns
from bolide.client.consuming.rules import SubscriberRules
from bolide.client.consuming.send_back import SendBack
from bolide.client.consuming.standstill import Standstill
from bolide.client.consuming.start_from import start_offset
from bolide.client.consuming.state import queues_at_work, running_state
from bolide.client.consuming.subscriptions import EVERYTHING, Expression, subscription_of
from bolide.client.instance import Instance, open_instance
from bolide.client.telemetry import active
from bolide.client.watching import FAILED, OUTCOMES, SUCCESS, tracing_of
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError, Refusal
from bolide.model.allocation import allocate
from bolide.model.names import group_problem
from bolide.model.queue import MessageQueue
from bolide.model.topics import retry_topic
from bolide.protocol.bodies import ConsumerMember, ConsumeType, MessageModel, RunningConsumer
from bolide.protocol.codes import ResponseCode
from bolide.remoting.isolated_tasks import IsolatedTasks

REBALANCE_INTERVAL_S = 20.0
UNSHARED_INTERVAL_S = 1.0  # while a topic has no route, which a first message may change, or a queue is not given free
HAND_OVER_S = 0.5
_SPACING_S = 0.3
_DEFAULT_GROUP = "DEFAULT_CONSUMER"
log = logging.getLogger(__name__)


class Subscriber:
    """One member. `topics` is topic → what is wanted of it."""

    def __init__(
        self, group: str, topics: Mapping[str, Expression], config: ClientConfig, clock: Clock, rules: SubscriberRules
    ) -> None:
        problem = group_problem(group)
        if problem is None and group == _DEFAULT_GROUP:
            problem = f"group {_DEFAULT_GROUP} is RocketMQ's example of a name; choose one of your own"
        if problem is None and not topics:
            problem = f"group {group} subscribes to nothing; name at least one topic"
        if problem is not None:
            raise ClientError(problem)
        self.group = group
        self.rules = rules
        self._is_ordered = rules.is_ordered
        self.owned: dict[MessageQueue, InFlight] = {}
        self._config = config
        self.clock = clock
        self._tracing = tracing_of(group, rules.trace, config, clock)
        self.telemetry = active()
        self.is_watched = self._tracing is not None or self.telemetry is not None
        version_ms = clock.now_ms()
        subscribed = dict(topics)
        if not rules.is_broadcasting:
            subscribed.setdefault(retry_topic(group), EVERYTHING)
        self._filters = ClassFilters(group, topics)
        self.subscriptions = {topic: subscription_of(topic, text, version_ms) for topic, text in subscribed.items()}
        self._absences = Absences(group)
        self._has_company = False
        self._is_shared = False  # everything that is our share by the last count is ours
        self._standstill = Standstill(group, rules.pull, is_ordered=rules.is_ordered)
        self._is_asked = False  # somebody asked for messages, and there was none
        self._ready: deque[InFlight] = deque()  # queues that have something to hand out, each once
        self._arrival = asyncio.Event()
        self._change = asyncio.Event()
        self._stack = AsyncExitStack()
        self._guests = IsolatedTasks()
        self._tasks: list[asyncio.Task[None]] = []
        self._instance: Instance | None = None
        self._sharing = asyncio.Lock()
        self._started_ms = 0
        self.is_stopping = self.is_closed = False
        # Where a function of the user's is called: how many times at once, and how to do it once by hand.
        self.concurrency = 1
        self.consume_once: Callable[[bytes, str], Awaitable[bytes]] | None = None
        # A face for other threads puts functions of its own here: to take verdicts, and to bring those it still has.
        self.on_verdict: Decide = self.carry_out
        self.collect: Callable[[], None] = lambda: None
        # What takes messages ahead gives back those of a queue that nobody works on.
        self.let_go: Callable[[InFlight], Sequence[Received]] = lambda inflight: ()

    # Life

    async def start(self) -> None:
        """Join the group: routes, heartbeat, the first share of queues."""
        instance = await self._stack.enter_async_context(open_instance(self._config, self.clock))
        try:
            await self._join(instance)
        except BaseException:
            if instance.consumers.get(self.group) is self:
                del instance.consumers[self.group]
            await self._stack.aclose()
            raise

    async def _join(self, instance: Instance) -> None:
        if self.group in instance.consumers:
            raise ClientError(
                f"consumer group {self.group} is open already in instance {instance.client_id}; "
                "give this consumer another instance_name, or none"
            )
        for topic in self.subscriptions:
            await instance.refresh(topic)  # a topic that is not there yet may come; no name server at all is an error
        await self._filters.start(instance, self.subscriptions.values())
        self._instance = instance
        self._started_ms = self.clock.now_ms()
        self._positions = (
            FilePositions(self.rules.local_directory.expanduser(), instance.client_id, self.group)
            if self.rules.is_broadcasting
            else BrokerPositions(instance, self.group, is_zero_if_young=not self.rules.start_from.is_time)
        )
        self._locks = QueueLocks(instance, self.group)
        self._handover = Handover(
            self._positions, self._locks if self.rules.needs_lock else None, self._guests, self._change.set
        )
        self._returns = Returns(
            SendBack(instance, self.group, self.rules.retry_count_max), self._guests, self.found, self.rules
        )
        instance.consumers[self.group] = self
        await instance.heartbeat()
        if self.group in instance.refusals:
            raise instance.refusals[self.group][1]
        for denial in instance.denials.values():
            raise denial
        if not instance.has_met_brokers:  # no topic is there yet, so nobody was told of us
            await instance.check_access()
        await self._stack.enter_async_context(self._guests)
        if self._tracing is not None:
            await self._stack.enter_async_context(self._tracing)
        await self._rebalance()
        self._start_task(self._rebalance_forever(), "rebalance")
        self._start_task(self._tell_forever(), "progress")
        self._start_task(self._filters.upload_forever(), "filters")
        if self.rules.needs_lock:
            self._start_task(renew_forever(self._locks, self.owned, self._regain), "locks")

    def _start_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(self._guests.start(coroutine, name=f"consumer.{self.group}.{name}"))

    def stop_handing_out(self) -> None:
        """Anyone who waits for messages gets none any more; what is out may still be settled."""
        self.is_stopping = True
        self._arrival.set()

    async def close(self) -> None:
        """Leave: hand out nothing more, tell the progress, let others have the queues."""
        if self.is_closed:
            return
        self.is_closed = True
        self.stop_handing_out()
        with suppress(TimeoutError):
            # A queue that is just being handed over is not left half-way: its progress and its lock go to others.
            async with asyncio.timeout(self._config.request_timeout_s), self._sharing:
                pass
        for task in self._tasks:
            task.cancel()
        instance = self._instance
        if instance is not None:
            self.collect()
            await self._returns.finish(self._config.request_timeout_s)
            await self._give_up([*self.owned.values(), *self._handover.leaving.values()])
            del instance.consumers[self.group]
            await instance.leave(consumer_group=self.group)
        await self._stack.aclose()

    # What brokers hear

    def topics(self) -> Iterable[str]:
        return tuple(self.subscriptions)

    def route_changed(self, topic: str) -> None:
        self._change.set()
        self._filters.route_changed()

    def members_changed(self) -> None:
        """Somebody joined or left: share again."""
        self._change.set()

    def heartbeat(self) -> ConsumerMember:
        return ConsumerMember(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING if self.rules.is_broadcasting else MessageModel.CLUSTERING,
            consume_from_where=self.rules.start_from.where,
            subscription_data_set=list(self.subscriptions.values()),
        )

    # Sharing

    async def _rebalance_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_INTERVAL_S if self._is_shared else UNSHARED_INTERVAL_S):
                    await self._change.wait()
            self._change.clear()  # a notice that comes from here on is for the next round
            await self._rebalance()
            await asyncio.sleep(_SPACING_S)

    async def _rebalance(self) -> None:
        """Compute our share of every topic and make it so; where something is not known, leave things as they are."""
        before = set(self.owned)
        async with self._sharing:
            plan = {topic: await self._tried_share(topic) for topic in self.subscriptions}
            await self._follow({topic: wanted for topic, wanted in plan.items() if wanted is not None})
            self._is_shared = all(wanted is not None and wanted <= self.owned.keys() for wanted in plan.values())
        if set(self.owned) != before:
            log.info("group=%s owns %d queues", self.group, len(self.owned))

    async def _tried_share(self, topic: str) -> set[MessageQueue] | None:
        try:
            return await self._share(topic)
        except BolideError as problem:
            log.log(self._level, "queues not shared group=%s topic=%s problem=%s", self.group, topic, problem)
            return None

    async def _share(self, topic: str) -> set[MessageQueue] | None:
        instance = self.instance
        route = instance.known_route(topic)
        if route is None:
            await instance.refresh(topic)
            route = instance.known_route(topic)
            if route is not None:
                await instance.heartbeat()  # its brokers have not heard of us, and would not count us as a member
        if route is None or not route.subscribe:
            self._absences.note(topic, self.clock.monotonic_s())
            return None
        self._absences.end(topic)
        if self.rules.is_broadcasting:
            return set(route.subscribe)
        members = await members_of(instance, self.group, route)
        if members is not None and instance.client_id not in members:
            await instance.heartbeat()  # a broker that was started again has not heard of us yet
            members = await members_of(instance, self.group, route)
        if members is None:
            return None
        self._has_company = len(members) > 1
        return set(allocate(self.rules.strategy, route.subscribe, members, instance.client_id))

    async def _follow(self, plan: Mapping[str, set[MessageQueue]]) -> None:
        """Give up what is not wanted any more, and take what is."""
        wanted = {queue for share in plan.values() for queue in share}
        await self._give_up([self.owned[q] for q in list(self.owned) if q.topic in plan and q not in wanted])
        self._handover.forget_old()
        fresh = wanted - self.owned.keys() - self._handover.leaving.keys()
        if fresh and self._has_company:
            # Who had them hears of it as we do, and tells how far he came: what he settled is not delivered again.
            await asyncio.sleep(HAND_OVER_S)
            if self.is_closed:
                return
        if self.rules.needs_lock and fresh:
            granted, _ = await self._locks.ask(fresh)
            fresh &= granted
        for queue in sorted(fresh):
            try:
                await self._take(queue)
            except BolideError as problem:
                log.log(self._level, "queue not taken, trying again later queue=%s problem=%s", queue, problem)

    async def _take(self, queue: MessageQueue) -> None:
        offset = await self._positions.read(queue)
        if offset is None:
            offset = await start_offset(self.instance, queue, self.rules.start_from)
        self._begin(queue, offset)

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        """Own a queue from an offset on."""
        instance = self.instance
        inflight = InFlight(
            queue, offset, self.on_verdict, out_count_max=self.rules.page_count_max if self.rules.is_ordered else None
        )
        inflight.locked_s = self.clock.monotonic_s()
        self.owned[queue] = inflight
        pull = QueuePull(instance, self, inflight, self.subscriptions[queue.topic], self._filters)
        task = self._guests.start(pull.run(), name=f"consumer.{self.group}.{queue.topic}.{queue.queue_id}")
        inflight.on_drop = task.cancel  # a pull that waits at the broker need not be waited for
        log.debug("queue taken queue=%s offset=%d", queue, offset)

    async def _give_up(self, leaving: list[InFlight]) -> None:
        self.collect()
        for inflight in leaving:
            self.owned.pop(inflight.queue, None)
        await self._handover.give_up(leaving, self.let_go, is_closing=self.is_closed)

    async def _regain(self, inflight: InFlight) -> None:
        """A queue is locked for us again: go on, but not behind what another may have done in between."""
        offset = await self._positions.read(inflight.queue)
        if self.owned.get(inflight.queue) is not inflight:
            return
        inflight.is_locked = True
        if offset is not None and offset > inflight.commit_offset:
            self.seek(inflight.queue, offset)
        else:
            inflight.wake()
            self.found(inflight)

    def moved(self, inflight: InFlight, offset: int) -> None:
        """The broker has other offsets than we thought, or was told to reset ours: begin again where it says."""
        level = logging.DEBUG if offset == inflight.next_offset else logging.WARNING
        log.log(level, "offset moved queue=%s from=%d to=%d", inflight.queue, inflight.next_offset, offset)
        self.seek(inflight.queue, offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in an owned queue; what was handed out of it before counts for nothing."""
        before = self._owned(queue)
        before.drop()
        self._begin(queue, offset)
        self.owned[queue].is_paused = before.is_paused
        self.owned[queue].is_locked, self.owned[queue].locked_s = before.is_locked, before.locked_s

    def _owned(self, queue: MessageQueue) -> InFlight:
        inflight = self.owned.get(queue)
        if inflight is None:
            raise ClientError(f"{queue} is not owned by this consumer now")
        return inflight

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An administrator moved the group: go on there, and keep it at once."""
        moved = {queue: offset for queue, offset in offsets.items() if queue in self.owned}
        for queue, offset in moved.items():
            log.warning("offset reset queue=%s to=%d", queue, offset)
            self.seek(queue, offset)
        await self._positions.write(moved)

    def progress(self, topic: str) -> dict[MessageQueue, int]:
        """How far the owned queues of a topic are settled."""
        return {queue: inflight.commit_offset for queue, inflight in self.owned.items() if queue.topic == topic}

    # Handing out

    def found(self, inflight: InFlight) -> None:
        """A queue has something to hand out."""
        self._ready.append(inflight)
        self._arrival.set()

    def take_ready(self, count_max: int, *, is_page: bool = False) -> list[Received]:
        """Messages at hand, at most this many; of several queues in turn, of each in order. A page is of one queue."""
        taken: list[Received] = []
        now_s = self.clock.monotonic_s()
        for _ in range(len(self._ready)):
            if len(taken) >= count_max:
                break
            inflight = self._ready.popleft()
            taken += inflight.take(count_max - len(taken))
            inflight.taken_s = now_s
            if inflight.has_ready:
                self._ready.append(inflight)
            if taken and is_page:
                break
        return taken

    def begun(self, *messages: Received) -> None:
        """The user has them now; for those who look on."""
        if not self.is_watched:
            return
        for message in messages:
            if self._tracing is not None:
                self._tracing.begun(message)
            if self.telemetry is not None:
                self.telemetry.begun(message, self.group, self.client_id, is_broadcasting=self.rules.is_broadcasting)

    def ended(self, message: Received, outcome: int) -> None:
        """The user is done with it, well (0) or not; for those who look on."""
        if self._tracing is not None:
            self._tracing.ended(message, outcome)
        if self.telemetry is not None:
            self.telemetry.ended(message, self.group, OUTCOMES[outcome])

    def untake(self, home: Home, messages: Sequence[Received]) -> None:
        """Messages that were taken, and given to nobody."""
        if isinstance(home, InFlight):
            home.untake(messages)

    async def receive(self, count_max: int = 1, *, is_page: bool = False) -> list[Received]:
        """Wait for messages; an empty list once the consumer is closed."""
        while not self.is_stopping:
            taken = self.take_ready(count_max, is_page=is_page)
            self._is_asked = not taken
            if taken:
                return taken
            self._arrival.clear()
            await self._arrival.wait()
        return []

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Neither pull nor hand out, until `resume`."""
        for queue in queues if queues is not None else list(self.owned):
            self._owned(queue).is_paused = True

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on where it was paused."""
        for queue in queues if queues is not None else list(self.owned):
            inflight = self._owned(queue)
            inflight.is_paused = False
            inflight.wake()
            self.found(inflight)

    # Verdicts

    def carry_out(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        """Do what a user said of a message."""
        if self.is_watched:
            self.ended(message, SUCCESS if verdict is Verdict.ACK else FAILED)
        home = message.home
        if home.is_dropped or not isinstance(home, InFlight):
            return  # the queue went to another member, who gets the message again
        if verdict is Verdict.ACK:
            home.settle(message)
            if self._is_ordered and home.has_ready:
                self.found(home)
        else:
            self._returns.take(home, message, verdict, delay_s, reason)

    # Progress

    async def _tell_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.offset_interval_s)
            await self.tell_progress()
            if self.consume_once is None:  # functions that are called always come to a verdict
                self._standstill.look(self.owned.values(), is_asked=self._is_asked)

    async def tell_progress(self) -> None:
        """Keep how far every owned queue is settled."""
        self.collect()
        await self._positions.write(progress_of(self.owned.values()))

    # What an administrator may ask

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        """Everything about this member."""
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._config.namesrv),
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency),
            "PROP_CONSUMEORDERLY": str(self.rules.is_ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
        }
        queues = queues_at_work(self.owned.values(), self.rules.needs_lock, self.clock)
        return running_state(properties, self.subscriptions.values(), queues, with_stacks=with_stacks)

    async def consume_by_hand(self, body: bytes, broker_name: str) -> bytes:
        """Give one message to the user's function, without any progress."""
        if self.consume_once is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"consumer {self.group} iterates: it has no function to call")
        return await self.consume_once(body, broker_name)

    @property
    def _level(self) -> int:
        """What cannot be done while we are leaving need not worry anybody."""
        return logging.DEBUG if self.is_closed else logging.WARNING

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    @property
    def instance(self) -> Instance:
        """What it shares with others of its client id; only while it is open."""
        if self._instance is None or self.is_closed:
            raise self._not_open()
        return self._instance

    @property
    def is_started(self) -> bool:
        return self._instance is not None

    def check_started(self) -> None:
        """Raise where nothing could ever come; a consumer that was closed has had its time, and gives nothing."""
        if self._instance is None:
            raise self._not_open()

    def _not_open(self) -> ClientError:
        return ClientError(f"consumer {self.group} is not open: use it inside its `with` block, or call start()")
