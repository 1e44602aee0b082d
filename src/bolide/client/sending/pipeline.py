"""Many messages as few requests: what one turn of the loop sends is written at once, or joined to batches.

The way of every message that needs no thought; what does (a first message of its topic, a long body to compress, hooks,
signatures) takes the producer's long way. Three things make it cheap: the sends of one turn for one broker are encoded
by one call and leave in one write; the answers of one read are read by one call; one sweep looks for late answers, so
no request has a timer of its own.

With `linger_ms` the messages of a topic wait for each other, so long at most, and leave as one batch: 64 of them, or 32
KiB. A batch lies in one queue, in the order its messages were given.

The rule: at most `HELD_COUNT_MAX` messages that were submitted are under way; who brings more waits (`room`). A message
that has another attempt goes back to the producer (`RetryPath`), with the time it has left; those that must lie in one
queue do so in their order (`detours.py`).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from bolide import kernel
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending import unanswered
from bolide.client.sending.detours import Again, Detours
from bolide.client.sending.message import SEND_TAIL, SHORT_SIZE_MAX, SendRules, batch_fields, message_of, send_head
from bolide.client.sending.receipt import Receipt, receipt_of, receipts_of
from bolide.client.sending.retry_path import RetryPath
from bolide.client.sending.selection import shard_queue
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError, ConnectionLost, RequestTimeout
from bolide.kernel.layout import Item
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import CLOSED_TOPICS, RETRY_PREFIX
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.ids import UniqueIds
from bolide.remoting.guests import Guests
from bolide.remoting.session import Session

HELD_COUNT_MAX = 8192
BATCH_COUNT_MAX = 64
BATCH_SIZE_MAX = 32 * 1024
_SWEEPS = 8  # within one time limit: a late answer is noticed an eighth of it too late


class Flight:
    """Messages that were posted together: one request each with numbers from `first` on, or all in one batch."""

    __slots__ = (
        "bound",
        "broker_name",
        "deadline_s",
        "first",
        "futures",
        "head",
        "ids",
        "is_batch",
        "items",
        "pipeline",
        "queues",
        "read_count",
        "timeout_s",
        "topic",
    )

    def __init__(
        self, pipeline: "SendPipeline", topic: str, broker_name: str, head: bytes = b"", *, is_batch: bool
    ) -> None:
        self.pipeline = pipeline
        self.head = head
        self.topic = topic
        self.broker_name = broker_name
        self.is_batch = is_batch
        self.items: list[Item] = []
        self.futures: list[asyncio.Future[Receipt]] = []
        self.queues: list[MessageQueue] = []  # of a batch: one
        self.bound: set[int] = set()  # those that must lie in their queue
        self.ids: list[str] = []
        self.first = 0
        self.timeout_s = self.deadline_s = 0.0
        self.read_count = 0


class Outbox:
    """The posted requests of one connection (`remoting.asked.Posted`)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._flights: dict[int, Flight] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_interval_s = 0.0
        session.asked.posted = self
        session.when_gone(self._lost)

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, opaque: object) -> bool:
        return opaque in self._flights

    def isdisjoint(self, opaques: Iterable[int], /) -> bool:
        return self._flights.keys().isdisjoint(opaques)

    def post(self, flight: Flight, timeout_s: float) -> None:
        """Write a run, and wait for its answers."""
        session, pipeline = self._session, flight.pipeline
        count = 1 if flight.is_batch else len(flight.items)
        flight.first = first = session.asked.numbers(count)
        flight.read_count = session.read_count
        flight.timeout_s = timeout_s
        flight.deadline_s = self._loop.time() + timeout_s
        frames = pipeline.frames(flight)
        if flight.is_batch:
            self._flights[first] = flight
        else:
            self._flights.update(dict.fromkeys(range(first, first + count), flight))
        session.push(frames)
        if not flight.is_batch:  # all of this turn are in it; of batches more may come
            session.flush()
        if self._sweep is None or timeout_s / _SWEEPS < self._sweep_interval_s:
            self._sweep_within(timeout_s / _SWEEPS)

    def take(self, stream: memoryview, bounds: list[int]) -> list[int]:
        """Settle the plain receipts of one read."""
        flights = self._flights
        rows, left = kernel.read_receipts(stream, bounds, flights)
        for opaque, queue_id, queue_offset, offset_ids in rows:
            flight = flights.pop(opaque)
            if flight.is_batch:
                queue = _queue_of(flight.queues[0], queue_id)
                receipts = receipts_of(queue, queue_offset, offset_ids, flight.ids)
                for future, receipt in zip(flight.futures, receipts, strict=True):
                    if not future.done():
                        future.set_result(receipt)
                flight.pipeline.release(len(receipts))
                continue
            index = opaque - flight.first
            queue, future = flight.queues[index], flight.futures[index]
            if queue.queue_id != queue_id:
                queue = _queue_of(queue, queue_id)
            if not future.done():
                future.set_result(Receipt(queue, queue_offset, flight.ids[index], offset_ids))
            flight.pipeline.release(1)
        return left

    def settle(self, answer: Command) -> bool:
        """An answer with more to say than where the message lies: a refusal, or a status."""
        flight = self._flights.pop(answer.opaque, None)
        if flight is None:
            return False
        indexes = range(len(flight.items)) if flight.is_batch else (answer.opaque - flight.first,)
        try:
            whole = receipt_of(answer, flight.queues[indexes[0]], "")
        except ClientError as refusal:
            flight.pipeline.fail(flight, indexes, refusal)
            return True
        ids = [flight.ids[index] for index in indexes]
        receipts = receipts_of(whole.queue, whole.queue_offset, whole.offset_id, ids, whole.status)
        for index, receipt in zip(indexes, receipts, strict=True):
            if not flight.futures[index].done():
                flight.futures[index].set_result(receipt)
        flight.pipeline.release(len(receipts))
        return True

    def _sweep_within(self, interval_s: float) -> None:
        """Look for late answers soon, and so often as the shortest limit needs."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_interval_s = interval_s
        self._sweep = self._loop.call_later(interval_s, self._fail_late)

    def _fail_late(self) -> None:
        self._sweep = None
        now_s = self._loop.time()
        late = [opaque for opaque, flight in self._flights.items() if flight.deadline_s <= now_s]
        for opaque in late:
            flight = self._flights.pop(opaque)
            text = f"{self._session.peer} did not answer a send within {flight.timeout_s:g} s"
            self._fail(flight, opaque, RequestTimeout(text))
            if opaque == late[-1]:
                self._session.note_silence(flight.read_count, text)
        if self._flights and self._sweep is None:
            self._sweep_within(min(flight.timeout_s for flight in self._flights.values()) / _SWEEPS)

    def _lost(self) -> None:
        flights, self._flights = self._flights, {}
        for opaque, flight in flights.items():
            self._fail(flight, opaque, ConnectionLost(f"the connection to {self._session.peer} is gone"))

    def _fail(self, flight: Flight, opaque: int, problem: ClientError) -> None:
        flight.pipeline.fail(flight, range(len(flight.items)) if flight.is_batch else (opaque - flight.first,), problem)


class _Lane:
    """The way of one topic to one broker, and what this turn of the loop sends there."""

    def __init__(self, pipeline: "SendPipeline", topic: str, broker_name: str, address: str, head: bytes) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.address = address
        self.head = head
        self._pipeline = pipeline
        self._flight: Flight | None = None

    def add(self, item: Item, queue: MessageQueue, is_bound: bool, future: asyncio.Future[Receipt]) -> None:
        flight = self._flight
        if flight is None:
            flight = self._flight = Flight(self._pipeline, self.topic, self.broker_name, self.head, is_batch=False)
            future.get_loop().call_soon(self._leave)
        if is_bound:
            flight.bound.add(len(flight.items))
        flight.items.append(item)
        flight.queues.append(queue)
        flight.futures.append(future)

    def _leave(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            self._pipeline.post(flight, self.address)


class _Batch:
    """Messages of one topic that wait for each other; with a queue, those that must lie there."""

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue
        self.items: list[Item] = []
        self.futures: list[asyncio.Future[Receipt]] = []
        self.size = 0
        self.timer: asyncio.TimerHandle | None = None


class _Target:
    """A topic with a route: its lanes and its open batches."""

    def __init__(self, pipeline: "SendPipeline", route: Route) -> None:
        self.route = route
        self.batches: dict[MessageQueue | None, _Batch] = {}
        self.lanes: dict[str, _Lane] = {}
        for name in {queue.broker_name for queue in route.publish}:
            address = route.addresses.get(name, {}).get(MASTER_ID, "")  # one that has none is left to the long way
            head = send_head(route.topic, pipeline.rules, name)
            self.lanes[name] = _Lane(pipeline, route.topic, name, address, head)
        self.is_batched = pipeline.linger_s > 0 and not route.topic.startswith(RETRY_PREFIX)


class SendPipeline:
    """What one producer has under way."""

    def __init__(
        self,
        instance: Instance,
        rules: SendRules,
        ids: UniqueIds,
        clock: Clock,
        guests: Guests,
        long_way: RetryPath,
        *,
        timeout_s: float,
        linger_ms: float,
    ) -> None:
        self.rules = rules
        self.linger_s = linger_ms / 1000
        self.held_count = 0
        self._dropped_count = 0  # left without an answer when their tasks were ended
        self._instance = instance
        self._ids = ids
        self._clock = clock
        self._guests = guests
        self._long_way = long_way
        self._detours = Detours(guests)
        self._timeout_s = timeout_s
        self._targets: dict[str, _Target] = {}
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    # In

    def enqueue(
        self, route: Route, item: Item, shard: str | None, queue: MessageQueue | None
    ) -> asyncio.Future[Receipt] | None:
        """Have a message sent; None if this topic or queue takes another way."""
        target = self._targets.get(route.topic)
        if target is None or target.route is not route:
            target = self._new_target(route)
            if target is None:
                return None
        if shard is not None and queue is None:
            queue = shard_queue(route.publish, shard)
        if queue is not None and queue.broker_name not in target.lanes:
            return None
        self.held_count += 1
        future: asyncio.Future[Receipt] = self._loop.create_future()
        if not target.is_batched:
            chosen = self._long_way.choose(route, None, None) if queue is None else queue
            target.lanes[chosen.broker_name].add(item, chosen, queue is not None, future)
            return future
        batch = target.batches.get(queue) or self._new_batch(target, queue)
        batch.items.append(item)
        batch.futures.append(future)
        batch.size += len(item[0]) + len(item[1])
        if batch.size >= BATCH_SIZE_MAX or len(batch.items) >= BATCH_COUNT_MAX:
            self._leave(target, batch)
        return future

    def _new_target(self, route: Route) -> _Target | None:
        before = self._targets.get(route.topic)
        if before is not None:
            self._leave_all(before)
        if not route.publish or route.topic in CLOSED_TOPICS:
            return None
        target = self._targets[route.topic] = _Target(self, route)
        return target

    def _new_batch(self, target: _Target, queue: MessageQueue | None) -> _Batch:
        batch = target.batches[queue] = _Batch(target.route.topic, queue)
        batch.timer = self._loop.call_later(self.linger_s, self._leave, target, batch)
        return batch

    @property
    def is_full(self) -> bool:
        """Who brings more has to wait for `room`."""
        return self.held_count >= HELD_COUNT_MAX

    async def room(self) -> None:
        """Wait until fewer messages are under way."""
        while self.held_count >= HELD_COUNT_MAX:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Send what waits for company, and wait until every message has its answer."""
        for target in self._targets.values():
            self._leave_all(target)
        if self.held_count:
            self._empty.clear()
            await self._empty.wait()

    # Out

    def _leave_all(self, target: _Target) -> None:
        for batch in list(target.batches.values()):
            self._leave(target, batch)

    def _leave(self, target: _Target, batch: _Batch) -> None:
        if target.batches.get(batch.queue) is not batch:
            return
        del target.batches[batch.queue]
        if batch.timer is not None:
            batch.timer.cancel()
        queue = self._long_way.choose(target.route, None, None) if batch.queue is None else batch.queue
        flight = Flight(self, batch.topic, queue.broker_name, is_batch=True)
        flight.items, flight.futures, flight.queues = batch.items, batch.futures, [queue]
        if batch.queue is not None:
            flight.bound.update(range(len(flight.items)))
        self.post(flight, target.lanes[queue.broker_name].address)

    def post(self, flight: Flight, address: str) -> None:
        """Write a run to its broker, or have it sent the long way where there is no connection."""
        flight.ids = self._ids.many(len(flight.items))
        session = self._instance.client.session_at_hand(address) if address else None
        if session is None or (self._detours and flight.bound and not self._detours.isdisjoint(flight.queues)):
            self._give_back(flight, range(len(flight.items)), None, self._timeout_s)
            return
        outbox = session.asked.posted
        if not isinstance(outbox, Outbox):
            outbox = Outbox(session)
        outbox.post(flight, self._timeout_s)

    def frames(self, flight: Flight) -> bytes:
        """A run as bytes."""
        born_ms = self._clock.now_ms()
        if flight.is_batch:
            body = kernel.lay_items(flight.items, flight.ids)
            fields = batch_fields(flight.topic, self.rules, born_ms, flight.queues[0])
            return Command(RequestCode.SEND_BATCH_MESSAGE, opaque=flight.first, fields=fields, body=body).encode()
        queue_ids = [queue.queue_id for queue in flight.queues]
        return kernel.write_sends(flight.head, SEND_TAIL, born_ms, flight.first, queue_ids, flight.items, flight.ids)

    # Back

    def release(self, count: int) -> None:
        """So many messages have their answer."""
        self.held_count -= count
        if self.held_count < HELD_COUNT_MAX // 2:
            self._room.set()
            if not self.held_count:
                self._empty.set()

    def fail(self, flight: Flight, indexes: Sequence[int], problem: ClientError) -> None:
        """Tell of a failure, or have the long way try again: it may be another time, or another broker's turn."""
        left_s = flight.deadline_s - self._loop.time()
        is_bound = indexes[0] in flight.bound
        if left_s > 0 and self._long_way.is_tried_again(problem, is_bound=is_bound):
            self._give_back(flight, indexes, flight.broker_name, left_s)
            return
        for index in indexes:
            if not flight.futures[index].done():
                flight.futures[index].set_exception(problem)
        self.release(len(indexes))

    def _give_back(self, flight: Flight, indexes: Sequence[int], last_broker: str | None, left_s: float) -> None:
        """Send the long way what the short one could not."""
        deadline_s = self._loop.time() + left_s
        for part in (indexes,) if flight.is_batch else [(index,) for index in indexes]:
            queue = flight.queues[part[0]] if part[0] in flight.bound else None
            messages = [message_of(flight.topic, flight.items[index], flight.ids[index]) for index in part]
            again = Again(self, messages, [flight.futures[index] for index in part], queue, last_broker, deadline_s)
            if queue is not None:
                self._detours.add(queue, again)
            else:
                self._guests.invite(again.go(), name="producer.again")

    def send_aside(self, message: Message, shard: str | None, queue: MessageQueue | None) -> asyncio.Future[Receipt]:
        """Send any message the long way, in a task of its own; a long one counts as many short ones."""
        weight = 1 + len(message.body) // SHORT_SIZE_MAX
        self.held_count += weight
        future: asyncio.Future[Receipt] = self._loop.create_future()
        sending = self._send_alone(message, shard, queue, self._timeout_s, None)
        self._guests.invite(self.finish([future], sending, weight), name="producer.submit")
        return future

    async def _send_alone(
        self,
        message: Message,
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        last_broker: str | None,
    ) -> list[Receipt]:
        way = self._long_way
        return [
            await way.send_prepared(message, shard=shard, queue=queue, timeout_s=timeout_s, last_broker=last_broker)
        ]

    def send_again(
        self, messages: Sequence[Message], queue: MessageQueue | None, last_broker: str | None, deadline_s: float
    ) -> Coroutine[Any, Any, list[Receipt]]:
        """Send one message or one batch the long way."""
        left_s = max(deadline_s - self._loop.time(), 0.001)
        if len(messages) > 1:
            return self._long_way.send_together(messages, None, queue, left_s, last_broker)
        return self._send_alone(messages[0], None, queue, left_s, last_broker)

    async def finish(
        self, futures: Sequence[asyncio.Future[Receipt]], sending: Coroutine[Any, Any, list[Receipt]], weight: int
    ) -> None:
        """Settle futures with what becomes of them."""
        try:
            receipts = await sending
        except BolideError as problem:
            for future in futures:
                if not future.done():
                    future.set_exception(problem)
        else:
            for future, receipt in zip(futures, receipts, strict=True):
                if not future.done():
                    future.set_result(receipt)
        finally:
            sending.close()
            self.drop(futures, weight)

    def drop(self, futures: Sequence[asyncio.Future[Receipt]], weight: int) -> None:
        """None is left without an answer, whatever happened."""
        self._dropped_count += sum([future.cancel() for future in futures])
        self.release(weight)

    def end(self) -> None:
        """The program ends, and nobody closed the producer: say what has no answer."""
        count = self.held_count + self._dropped_count
        if count:
            unanswered.say(self.rules.group, count, count)


def _queue_of(queue: MessageQueue, queue_id: int) -> MessageQueue:
    """The queue that was chosen, or the one the broker took instead."""
    return queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id)
