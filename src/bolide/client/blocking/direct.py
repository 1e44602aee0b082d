"""Stage four for callers without a loop: a send is posted, and its receipt read, in the thread of its caller.

What cannot be sent so, and what has another attempt after this one, goes through the loop on the general path.
"""

from typing import TYPE_CHECKING

from bolide import kernel
from bolide.client.blocking.connection import Answer, Connection, ConnectionPool, answer_in
from bolide.client.blocking.loop import LoopOfFirstUse
from bolide.client.routes import MASTER_ID
from bolide.client.sending.message import SEND_TAIL, message_of, send_command, send_head, to_queue
from bolide.client.sending.parts import Given, Parts
from bolide.client.sending.pipeline import SendPipeline
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt, receipt_of
from bolide.client.sending.shipment import Shipment
from bolide.clock import Clock
from bolide.errors import ClientError
from bolide.kernel.layout import Item, ReceiptRow
from bolide.model.message import Message
from bolide.model.queue import MessageQueue

if TYPE_CHECKING:
    from bolide.client.transactions.checker import Outcome


class DirectSends:
    """The sends of a blocking producer."""

    def __init__(self, core: Producer, background: LoopOfFirstUse, clock: Clock) -> None:
        self._core = core
        self._background = background
        self._clock = clock
        self._pool = ConnectionPool(core.connect, clock)
        self._heads: dict[tuple[str, str, bool], bytes] = {}
        self._end_heads: dict[tuple[str, str], bytes] = {}

    def close(self) -> None:
        self._pool.close()

    def send(
        self,
        pipeline: SendPipeline,
        parts: Given,
        shard: str | None,
        queue: MessageQueue | None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """The stages of `pipeline`, with the first attempt here and all others in the loop."""
        self._background.bound.check()
        limit_s = timeout_s or pipeline.rules.timeout_s
        begun_s = self._clock.monotonic_s()
        topic = parts[0].topic if isinstance(parts[0], Message) else parts[0]
        route = pipeline.placement.known(topic) if self._core.may_pass_loop else None
        item = None if route is None else pipeline.preparation.item(parts)
        message = pipeline.preparation.message(Parts(*parts)) if item is None else None
        unique_id = pipeline.preparation.ids.next() if message is None else message.unique_id or ""
        last_broker = None
        if route is not None:
            chosen = queue or pipeline.placement.choose(route, shard)
            address = route.addresses.get(chosen.broker_name, {}).get(MASTER_ID)
            if address is not None:
                try:
                    if message is not None:
                        return receipt_of(
                            self._post_message(pipeline, message, chosen, address, limit_s), chosen, unique_id
                        )
                    assert item is not None, "what is no message is an item"
                    return self._post_item(pipeline, item, unique_id, chosen, address, limit_s)
                except ClientError as failure:
                    if not pipeline.path.is_tried_again(failure, is_bound=shard is not None or queue is not None):
                        raise
                    last_broker = chosen.broker_name
        if message is None:
            assert item is not None, "what is no message is an item"
            message = message_of(topic, item, unique_id)
        left_s = max(limit_s - (self._clock.monotonic_s() - begun_s), 0.001)
        shipment = Shipment([message], left_s, shard, queue, last_broker)
        return self._background.run(pipeline.path.send_one(shipment))

    def _post_item(
        self, pipeline: SendPipeline, item: Item, unique_id: str, queue: MessageQueue, address: str, limit_s: float
    ) -> Receipt:
        """One request on a connection of the caller's, and what came back."""
        key = queue.topic, queue.broker_name, pipeline.rules.is_prepared
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = send_head(queue.topic, pipeline.rules, queue.broker_name)
        connection = self._pool.take(address, limit_s)
        try:
            answer = send_item(connection, head, queue.queue_id, item, unique_id, self._clock.now_ms(), limit_s)
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        if isinstance(answer, Answer):
            return receipt_of(answer, queue, unique_id)
        _, queue_id, queue_offset, offset_id = answer
        stored_in = queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id)
        return Receipt(stored_in, queue_offset, unique_id, offset_id)

    def _post_message(
        self, pipeline: SendPipeline, message: Message, queue: MessageQueue, address: str, limit_s: float
    ) -> Answer:
        """The same for what needs a thought; how its broker did is remembered."""
        command = to_queue(send_command(message, pipeline.rules, self._clock.now_ms()), queue)
        self._core.instance.sign(address, command)
        begun_s = self._clock.monotonic_s()
        failure: ClientError | None = None
        try:
            connection = self._pool.take(address, limit_s)
            try:
                answer = connection.ask(command, limit_s)
            except BaseException:
                connection.close()
                raise
            self._pool.give_back(connection)
            receipt_of(answer, queue, "")  # a refusal is a failure of its broker too
            return answer
        except ClientError as problem:
            failure = problem
            raise
        finally:
            pipeline.placement.note(queue, begun_s, failure)

    def tell_end(self, receipt: Receipt, outcome: "Outcome") -> bool:
        """Tell how a transaction ended; false where no connection rests, or the one that did was of no use."""
        core, queue = self._core, receipt.queue
        if self._pool.is_closed:
            return False
        row = outcome._value_, receipt.queue_offset, receipt.offset_id, receipt.msg_id
        head = self._end_heads.get((queue.topic, queue.broker_name))
        if head is None:
            from bolide.client.transactions.outcomes import end_head

            head = self._end_heads[queue.topic, queue.broker_name] = end_head(
                core.group, queue.topic, queue.broker_name
            )
        address = core.instance.address(queue.broker_name, MASTER_ID)
        connection = None if address is None else self._pool.take_resting(address)
        if connection is None:
            return False
        try:
            connection.write(kernel.write_outcomes(head, SEND_TAIL, connection.next_opaque(), [row]), core.timeout_s)
        except (ClientError, ValueError):
            connection.close()
            return False
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        return True


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
