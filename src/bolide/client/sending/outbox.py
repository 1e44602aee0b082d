"""Stages four and five in bulk: requests that were written together, and their answers.

The sends of one turn for one broker are encoded by one call and leave in one write; the answers of one read are read by
one call; one sweep looks for late answers, so no request has a timer of its own.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from bolide import kernel
from bolide.client.sending.receipt import Receipt, receipt_of, receipts_of
from bolide.errors import ClientError, ConnectionLost, RequestTimeout
from bolide.kernel.layout import Item
from bolide.model.queue import MessageQueue
from bolide.protocol.command import Command
from bolide.remoting.session import Session

_SWEEPS = 8  # within one time limit: a late answer is noticed an eighth of it too late


class Sender(Protocol):
    """Whose messages they are: a pipeline."""

    def frames(self, flight: "Flight") -> bytes: ...

    def release(self, count: int) -> None: ...

    def fail(self, flight: "Flight", indexes: Sequence[int], problem: ClientError) -> None: ...


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

    def __init__(self, pipeline: Sender, topic: str, broker_name: str, head: bytes = b"", *, is_batch: bool) -> None:
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
    """The posted requests of one connection (`remoting.pending.BulkPending`)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._flights: dict[int, Flight] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_interval_s = 0.0
        session.pending.bulk = self
        session.when_gone(self._lost)

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, opaque: object) -> bool:
        return opaque in self._flights

    def isdisjoint(self, opaques: Iterable[int], /) -> bool:
        return self._flights.keys().isdisjoint(opaques)

    def post(self, flight: Flight, timeout_s: float) -> None:
        """Write a flight, and wait for its answers."""
        session, pipeline = self._session, flight.pipeline
        count = 1 if flight.is_batch else len(flight.items)
        flight.first = first = session.pending.numbers(count)
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


def _queue_of(queue: MessageQueue, queue_id: int) -> MessageQueue:
    """The queue that was chosen, or the one the broker took instead."""
    return queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id)
