"""Stages four and five of the general path: one request, and another attempt if that failed, all within one time limit.

At least once: an attempt that was not answered may have been stored, and the next attempt stores it again under the
same id. A stored message whose flush or replica is late is returned with its status and not sent again.
"""

from typing import TYPE_CHECKING

from bolide.client.instance import BROKER_NOT_IN_ROUTE, Instance
from bolide.client.routes import MASTER_ID
from bolide.client.sending.attempts import Attempts
from bolide.client.sending.failures import is_network, is_without_lead, is_worth_another
from bolide.client.sending.hooks import SendHooks
from bolide.client.sending.message import SendRules, batch_command, send_command, to_queue
from bolide.client.sending.placement import Placement
from bolide.client.sending.receipt import Receipt, batch_receipts, receipt_of
from bolide.client.sending.shipment import Shipment
from bolide.errors import ClientError, ConnectError
from bolide.model.queue import MessageQueue
from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.client.tracing import Tracing


class RetryPath:
    """That of one producer, for any message; half messages have one with rules of their own."""

    def __init__(
        self, instance: Instance, placement: Placement, rules: SendRules, hooks: SendHooks, tracing: "Tracing | None"
    ) -> None:
        self.placement = placement
        self.rules = rules
        self._instance = instance
        self._hooks = hooks
        self._tracing = tracing

    def is_tried_again(self, failure: ClientError, *, is_bound: bool) -> bool:
        """Whether a message has another attempt; one that is bound to its queue, if this one was not refused."""
        is_another = is_network(failure) or is_without_lead(failure) if is_bound else is_worth_another(failure)
        return self.rules.retry_count > 0 and is_another

    async def send(self, shipment: Shipment) -> list[Receipt]:
        """The receipts, after as many attempts as are needed (`attempts.py`)."""
        command = self._command(shipment)
        clock, placement, first = self._instance.clock, self.placement, shipment.messages[0]
        ids = [message.unique_id or "" for message in shipment.messages]
        attempts = Attempts(self._instance, placement.choose, self.rules.retry_count, shipment)
        route = await placement.route_in_time(first.topic, shipment.timeout_s)
        while True:
            chosen = attempts.choose(route)
            begun_s = clock.monotonic_s()
            self._hooks.before(first, chosen)
            try:
                answer = await self._post(command, chosen, max(attempts.left_s, 0.001), is_request=shipment.is_request)
                receipts = (
                    batch_receipts(answer, chosen, ids) if shipment.is_batch else [receipt_of(answer, chosen, ids[0])]
                )
            except ClientError as failure:
                placement.note(chosen, begun_s, failure)
                self._hooks.after(first, chosen, None, failure)
                route = await attempts.failed(route, chosen, failure)
                continue
            placement.note(chosen, begun_s, None)
            self._hooks.after(first, chosen, receipts[0], None)
            if receipts[0].is_ok or not self.rules.retries_unsafe or not attempts.is_stored_elsewhere():
                return receipts

    async def send_one(self, shipment: Shipment) -> Receipt:
        """The receipt of a single message."""
        return (await self.send(shipment))[0]

    async def send_oneway(self, shipment: Shipment) -> None:
        """Without an answer: only what could not be written at all has another attempt."""
        instance, (message,) = self._instance, shipment.messages
        command = self._command(shipment)
        attempts = Attempts(instance, self.placement.choose, self.rules.retry_count, shipment)
        route = await self.placement.route_in_time(message.topic, shipment.timeout_s)
        while True:
            chosen = attempts.choose(route)
            address = await instance.found_address(message.topic, chosen.broker_name)
            self._hooks.before(message, chosen)
            try:
                await instance.client.send_oneway(address, to_queue(command, chosen), max(attempts.left_s, 0.001))
                return
            except ConnectError as problem:
                told = instance.unreachable(chosen.broker_name, address, problem)
                route = await attempts.failed(route, chosen, told)

    def _command(self, shipment: Shipment) -> Command:
        born_ms = self._instance.clock.now_ms()
        if shipment.is_batch:
            return batch_command(shipment.messages, self.rules, born_ms)
        return send_command(shipment.messages[0], self.rules, born_ms)

    async def _post(self, command: Command, queue: MessageQueue, left_s: float, *, is_request: bool) -> Command:
        """One request to the master of a queue, and its answer."""
        instance = self._instance
        address = instance.address(queue.broker_name, MASTER_ID)
        if address is None:
            await instance.refresh(queue.topic)
            address = instance.address(queue.broker_name, MASTER_ID)
        if address is None:
            raise ClientError(
                f"broker {queue.broker_name} has no master in the route of {queue.topic}", BROKER_NOT_IN_ROUTE
            )
        if is_request:
            await instance.introduce(address)
        begun_ms = instance.clock.now_ms()
        try:
            answer = await instance.request(address, to_queue(command, queue), left_s)
        except ConnectError as problem:
            raise instance.unreachable(queue.broker_name, address, problem) from problem
        if self._tracing is not None:
            self._tracing.published(command, queue, address, answer, begun_ms)
        return answer
