"""Sends on connections that their callers write and read themselves: the shortest way for one blocking send."""

from typing import NamedTuple

from bolide import kernel
from bolide.client.blocking.connection import Answer, Connection, ConnectionPool, answer_in
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending.message import SEND_TAIL, SendRules, message_of, send_command, send_head, to_queue
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt, receipt_of
from bolide.client.transactions.checker import Outcome
from bolide.client.transactions.outcomes import end_head
from bolide.clock import Clock
from bolide.errors import ClientError
from bolide.kernel.layout import Item, ReceiptRow
from bolide.model.message import Message
from bolide.model.queue import MessageQueue


class Attempt(NamedTuple):
    """What became of one: a receipt, or none. Then a message that may be tried again, and the broker that failed."""

    receipt: Receipt | None
    message: Message | None = None
    last_broker: str | None = None


class DirectSends:
    """The sends of a blocking producer, each in the thread of its caller."""

    def __init__(self, core: Producer, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._pool = ConnectionPool(core.connect, clock)
        self._heads: dict[tuple[str, str, bool], bytes] = {}
        self._end_heads: dict[tuple[str, str], bytes] = {}

    def close(self) -> None:
        self._pool.close()

    def send_short(
        self,
        route: Route,
        item: Item,
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float,
        rules: SendRules,
    ) -> Attempt:
        """One attempt with a message that needs no thought."""
        core, topic = self._core, route.topic
        chosen = queue or core.choose(route, shard, None)
        address = route.addresses.get(chosen.broker_name, {}).get(MASTER_ID)
        unique_id = core.ids.next()
        if address is None:
            return Attempt(None, message_of(topic, item, unique_id))
        key = topic, chosen.broker_name, rules.is_prepared
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = send_head(topic, rules, chosen.broker_name)
        try:
            connection = self._pool.take(address, timeout_s)
            try:
                answer = send_item(connection, head, chosen.queue_id, item, unique_id, self._clock.now_ms(), timeout_s)
            except BaseException:
                connection.close()
                raise
            self._pool.give_back(connection)
            if isinstance(answer, Answer):
                return Attempt(receipt_of(answer, chosen, unique_id))
        except ClientError as failure:
            if not core.is_tried_again(failure, is_bound=shard is not None or queue is not None):
                raise
            return Attempt(None, message_of(topic, item, unique_id), chosen.broker_name)
        _, queue_id, queue_offset, offset_id = answer
        stored_in = chosen if chosen.queue_id == queue_id else MessageQueue(topic, chosen.broker_name, queue_id)
        return Attempt(Receipt(stored_in, queue_offset, unique_id, offset_id))

    def tell_end(self, receipt: Receipt, outcome: Outcome) -> bool:
        """Tell how a transaction ended; false where no connection rests, or the one that did was of no use."""
        core, queue = self._core, receipt.queue
        if self._pool.is_closed:
            return False
        row = outcome._value_, receipt.queue_offset, receipt.offset_id, receipt.msg_id
        head = self._end_heads.get((queue.topic, queue.broker_name))
        if head is None:
            head = self._end_heads[queue.topic, queue.broker_name] = end_head(
                core.group, queue.topic, queue.broker_name
            )
        address = core.instance.address(queue.broker_name, MASTER_ID)
        connection = None if address is None else self._pool.take_resting(address)
        if connection is None:
            return False
        try:
            connection.write(kernel.write_ends(head, SEND_TAIL, connection.next_opaque(), [row]), core.timeout_s)
        except (ClientError, ValueError):
            connection.close()
            return False
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        return True

    def send(self, message: Message, shard: str | None, queue: MessageQueue | None, timeout_s: float) -> Attempt:
        """One attempt with any message; none is made while its route is not known."""
        core, topic = self._core, message.topic
        route = core.instance.known_route(topic)
        if route is None or not route.publish or topic not in core.topics():
            return Attempt(None, message)
        chosen = queue or core.choose(route, shard, None)
        address = route.addresses.get(chosen.broker_name, {}).get(MASTER_ID)
        if address is None:
            return Attempt(None, message)
        command = to_queue(send_command(message, core.rules, self._clock.now_ms()), chosen)
        core.instance.sign(address, command)
        begun_s = self._clock.monotonic_s()
        try:
            connection = self._pool.take(address, timeout_s)
            try:
                answer = connection.ask(command, timeout_s)
            except BaseException:
                connection.close()
                raise
            self._pool.give_back(connection)
            receipt = receipt_of(answer, chosen, message.unique_id or "")
        except ClientError as failure:
            core.note(chosen, begun_s, failure)
            if not core.is_tried_again(failure, is_bound=shard is not None or queue is not None):
                raise
            return Attempt(None, message, chosen.broker_name)
        core.note(chosen, begun_s, None)
        return Attempt(receipt)


def send_item(
    connection: Connection, head: bytes, queue_id: int, item: Item, unique_id: str, born_ms: int, timeout_s: float
) -> ReceiptRow | Answer:
    """The receipt of an item, or the answer if it says more."""
    opaque = connection.next_opaque()
    connection.write(kernel.write_sends(head, SEND_TAIL, born_ms, opaque, [queue_id], [item], [unique_id]), timeout_s)
    while True:
        frame = connection.receive(timeout_s)
        rows, _ = kernel.read_receipts(frame, [0, len(frame)], (opaque,))
        if rows:
            return rows[0]
        answer = answer_in(frame)
        if answer is not None and answer.opaque == opaque:
            return answer
