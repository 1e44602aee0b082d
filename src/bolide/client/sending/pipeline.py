"""The road of one producer: parts come in, each message is prepared, placed and posted, and a future has its receipt.

What one turn of the loop sends is written at once (`outbox.py`). With `linger_ms` the messages of a topic wait for each
other, so long at most, and leave as one batch: 64 of them, or 32 KiB. A batch lies in one queue, in the order its
messages were given. What needs more than that, or another attempt, takes the general path (`retry_path.py`) with the
time it has left; messages that must lie in one queue do so in their order (`detours.py`).

The rule: at most `HELD_COUNT_MAX` messages are under way. Anyone who brings more stands in a line (`line.py`), and the
time limit of a send begins when it leaves the line: a hundred thousand at once are late for nobody.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bolide import kernel
from bolide.client import this_process
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending import unanswered
from bolide.client.sending.detours import Again, Detours
from bolide.client.sending.failures import is_network
from bolide.client.sending.line import Line
from bolide.client.sending.message import SEND_TAIL, SHORT_SIZE_MAX, batch_fields, check_topic, message_of, send_head
from bolide.client.sending.openings import Openings
from bolide.client.sending.outbox import Flight, Outbox
from bolide.client.sending.parts import Given, Parts
from bolide.client.sending.preparation import Preparation
from bolide.client.sending.receipt import Receipt
from bolide.client.sending.retry_path import RetryPath
from bolide.client.sending.selection import shard_queue
from bolide.client.sending.shipment import Shipment
from bolide.errors import BolideError, ClientError
from bolide.kernel.layout import Item
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import CLOSED_TOPICS, RETRY_PREFIX
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.isolated_tasks import IsolatedTasks

HELD_COUNT_MAX = 8192
BATCH_COUNT_MAX = 64
BATCH_SIZE_MAX = 32 * 1024


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
            address = route.addresses.get(name, {}).get(MASTER_ID, "")  # one that has none is left to the general path
            head = send_head(route.topic, pipeline.rules, name)
            self.lanes[name] = _Lane(pipeline, route.topic, name, address, head)
        self.is_batched = pipeline.rules.linger_s > 0 and not route.topic.startswith(RETRY_PREFIX)


class SendPipeline:
    """What one producer has under way."""

    def __init__(self, instance: Instance, preparation: Preparation, path: RetryPath, guests: IsolatedTasks) -> None:
        self.preparation = preparation
        self.placement = path.placement
        self.path = path
        self.rules = path.rules
        self.held_count = 0
        self._dropped_count = 0  # left without an answer when their tasks were ended
        self._instance = instance
        self._guests = guests
        self._detours = Detours(guests)
        self._openings = Openings(self.placement, self.rules.timeout_s)
        self._targets: dict[str | Message, _Target] = {}  # by topic; no whole message is ever found here
        # Asked for every message, so without a step between.
        self._known_route: Callable[[Any], Route | None] = instance.known_route
        self._next_queue: Callable[[Any, Sequence[MessageQueue]], MessageQueue] = self.placement.next_queue
        self._loop = asyncio.get_running_loop()
        self._line = Line(self._let_in)
        self._empty = asyncio.Event()
        self._empty.set()

    # In

    async def send(
        self, parts: Parts, shard: str | None, queue: MessageQueue | None, timeout_s: float | None = None
    ) -> Receipt:
        """Send one message by the path it needs."""
        begun_s = self._loop.time()
        if timeout_s is None and self.preparation.item(parts) is not None:
            await self._openings.route(parts.topic_name)
            if self.is_full:
                await self.room()
                begun_s = self._loop.time()
            future = self.enqueue(parts, shard, queue)
            if future is not None:
                return await future
        message = self.preparation.message(parts)
        limit_s = timeout_s or max(self.rules.timeout_s - (self._loop.time() - begun_s), 0.001)
        return await self.path.send_one(Shipment([message], limit_s, shard, queue))

    async def submit(self, parts: Parts, shard: str | None, queue: MessageQueue | None) -> asyncio.Future[Receipt]:
        """Take a message over; waits only while too many are under way."""
        if self.is_full:
            await self.room()
        future = self.enqueue(parts, shard, queue)
        if future is None and self.placement.known(parts.topic_name) is None:
            check_topic(parts.topic_name)
            await self.placement.route_in_time(parts.topic_name, self.rules.timeout_s)
            if self.is_full:
                await self.room()
            future = self.enqueue(parts, shard, queue)
        if future is None:
            shipment = Shipment([self.preparation.message(parts)], self.rules.timeout_s, shard, queue)
            if shipment.is_bound:
                await self.flush()  # the general path must not be overtaken, nor overtake
            future = self._send_aside(shipment)
            if shipment.is_bound:
                await asyncio.wait((future,))
        return future

    def enqueue(self, parts: Given, shard: str | None, queue: MessageQueue | None) -> asyncio.Future[Receipt] | None:
        """Have a message leave with others of this turn; None if it has to take the general path."""
        item = self.preparation.item(parts)
        if item is None:
            return None
        topic = parts[0]
        target = self._targets.get(topic)
        if (
            target is None
            or target.route is not self._known_route(topic)
            or self._instance.process_id != this_process.process_id
        ):
            if not isinstance(topic, str):  # a whole message is no item
                raise TypeError(f"a topic is a text, this is a {type(topic).__name__}")
            target = self._new_target(topic)
            if target is None:
                return None
        if shard is not None and queue is None:
            queue = shard_queue(target.route.publish, shard)
        if queue is not None and queue.broker_name not in target.lanes:
            return None
        self.held_count += 1
        future: asyncio.Future[Receipt] = self._loop.create_future()
        if not target.is_batched:
            chosen = self._next_queue(topic, target.route.publish) if queue is None else queue
            target.lanes[chosen.broker_name].add(item, chosen, queue is not None, future)
            return future
        batch = target.batches.get(queue) or self._new_batch(target, queue)
        batch.items.append(item)
        batch.futures.append(future)
        batch.size += len(item[0]) + len(item[1])
        if batch.size >= BATCH_SIZE_MAX or len(batch.items) >= BATCH_COUNT_MAX:
            self._leave(target, batch)
        return future

    def _new_target(self, topic: str) -> _Target | None:
        """For a topic with a route; None if none is known, or nobody may send to it."""
        route = self.placement.known(topic)
        if route is None or topic in CLOSED_TOPICS:
            return None
        before = self._targets.get(topic)
        if before is not None:
            self._leave_all(before)
        target = self._targets[topic] = _Target(self, route)
        return target

    def _new_batch(self, target: _Target, queue: MessageQueue | None) -> _Batch:
        batch = target.batches[queue] = _Batch(target.route.topic, queue)
        batch.timer = self._loop.call_later(self.rules.linger_s, self._leave, target, batch)
        return batch

    @property
    def is_full(self) -> bool:
        """Anyone who brings more has to wait for `room`."""
        return self.held_count >= HELD_COUNT_MAX or bool(self._line)

    async def room(self) -> None:
        """Wait until fewer messages are under way, and it is one's turn: what is given at once then is in order."""
        if self.is_full:
            await self._line.wait()

    def _let_in(self) -> None:
        """Call the next of the line once half the room is free, so that many leave together."""
        free_count = HELD_COUNT_MAX - self.held_count - self._line.called_count
        if free_count > HELD_COUNT_MAX // 2:
            self._line.call(free_count)
        if not self.held_count and not self._line:
            self._empty.set()

    async def flush(self) -> None:
        """Send what waits for company, and wait until every message has its answer."""
        for target in self._targets.values():
            self._leave_all(target)
        if self.held_count or self._line:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Nobody who stands in line will be served."""
        self._line.turn_away(ClientError(f"producer {self.rules.group} was closed before this message was sent"))

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
        queue = self.placement.choose(target.route) if batch.queue is None else batch.queue
        flight = Flight(self, batch.topic, queue.broker_name, is_batch=True)
        flight.items, flight.futures, flight.queues = batch.items, batch.futures, [queue]
        if batch.queue is not None:
            flight.bound.update(range(len(flight.items)))
        self.post(flight, target.lanes[queue.broker_name].address)

    def post(self, flight: Flight, address: str) -> None:
        """Write a flight to its broker; where there is no connection the general path makes one."""
        flight.ids = self.preparation.ids.many(len(flight.items))
        session = self._instance.client.session_at_hand(address) if address else None
        if session is None or (self._detours and flight.bound and not self._detours.isdisjoint(flight.queues)):
            self._give_back(flight, range(len(flight.items)), None, self.rules.timeout_s)
            return
        outbox = session.pending.bulk
        if not isinstance(outbox, Outbox):
            outbox = Outbox(session)
        outbox.post(flight, self.rules.timeout_s)

    def frames(self, flight: Flight) -> bytes:
        """A flight as bytes."""
        born_ms = self._instance.clock.now_ms()
        if flight.is_batch:
            body = kernel.encode_items(flight.items, flight.ids)
            fields = batch_fields(flight.topic, self.rules, born_ms, flight.queues[0])
            return Command(RequestCode.SEND_BATCH_MESSAGE, opaque=flight.first, fields=fields, body=body).encode()
        queue_ids = [queue.queue_id for queue in flight.queues]
        return kernel.write_sends(flight.head, SEND_TAIL, born_ms, flight.first, queue_ids, flight.items, flight.ids)

    # Back

    def release(self, count: int) -> None:
        """This many messages have their answer."""
        self.held_count -= count
        if self.held_count < HELD_COUNT_MAX // 2 and (self._line or not self.held_count):
            self._let_in()

    def fail(self, flight: Flight, indexes: Sequence[int], problem: ClientError) -> None:
        """Tell of a failure, or try again on the general path: it may be another time, or another broker's turn."""
        left_s = flight.deadline_s - self._loop.time()
        is_bound = indexes[0] in flight.bound
        if left_s > 0 and self.path.is_tried_again(problem, is_bound=is_bound):
            self._give_back(flight, indexes, flight.broker_name, left_s)
            return
        for index in indexes:
            if not flight.futures[index].done():
                flight.futures[index].set_exception(problem)
        self._note_failure(problem)
        self.release(len(indexes))

    def _note_failure(self, problem: BolideError) -> None:
        """A broker that is silent or away fails those too who stood in line about as long as a send may take."""
        if self._line and isinstance(problem, ClientError) and is_network(problem):
            self._line.turn_away(problem, 0.9 * self.rules.timeout_s)

    def _give_back(self, flight: Flight, indexes: Sequence[int], last_broker: str | None, left_s: float) -> None:
        """Have the general path send what the fast one could not."""
        deadline_s = self._loop.time() + left_s
        for part in (indexes,) if flight.is_batch else [(index,) for index in indexes]:
            queue = flight.queues[part[0]] if part[0] in flight.bound else None
            messages = [message_of(flight.topic, flight.items[index], flight.ids[index]) for index in part]
            is_batch = len(messages) > 1
            shipment = Shipment(messages, left_s, queue=queue, last_broker=last_broker, is_batch=is_batch)
            again = Again(self, shipment, [flight.futures[index] for index in part], deadline_s)
            if queue is not None:
                self._detours.add(queue, again)
            else:
                self._guests.start(again.go(), name="producer.again")

    def _send_aside(self, shipment: Shipment) -> asyncio.Future[Receipt]:
        """Send any message in a task of its own; a long one counts as many short ones."""
        weight = 1 + len(shipment.messages[0].body) // SHORT_SIZE_MAX
        self.held_count += weight
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._guests.start(self.finish([future], self.path.send(shipment), weight), name="producer.submit")
        return future

    def send_again(self, shipment: Shipment, deadline_s: float) -> Coroutine[Any, Any, list[Receipt]]:
        """Send one message or one batch in the time that is left."""
        return self.path.send(shipment._replace(timeout_s=max(deadline_s - self._loop.time(), 0.001)))

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
            self._note_failure(problem)
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
