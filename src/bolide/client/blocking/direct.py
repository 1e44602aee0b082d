"""Connections that their callers write and read themselves: the shortest way for one blocking send.

Through a loop in another thread a send pays two thread switches; here it pays two system calls. A line serves one
request at a time and is lent to one thread; lines that rested too long are not trusted, because brokers close
connections that are silent for two minutes, and a send into a closed one is in doubt.
"""

import socket
import struct
from collections import deque
from typing import NamedTuple

from bolide import kernel
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending.message import SEND_TAIL, SendRules, message_of, send_command, send_head, to_queue
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt, receipt_of
from bolide.client.transactions.checker import Outcome
from bolide.client.transactions.outcomes import end_head
from bolide.clock import Clock
from bolide.errors import ClientError, ConnectError, ConnectionLost, ProtocolError, RequestTimeout
from bolide.kernel.layout import EndRow, Item, ReceiptRow
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.command import FRAME_SIZE_MAX, Command, read_commands
from bolide.remoting.address import reason_of, split_address

REST_MAX_S = 60.0
_READ_SIZE = 4096
_OPAQUE_MAX = 0x7FFF_FFFF


class Line:
    """One blocking connection."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.rests_since_s = 0.0
        self._opaque = 0
        self._limit_s = 0.0
        try:
            self._socket = socket.create_connection(split_address(address), timeout_s)
        except OSError as problem:
            raise ConnectError(f"{address}: {reason_of(problem)}") from problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)

    def ask(self, command: Command, timeout_s: float) -> Command:
        """The answer to one request; after any error the line is of no more use."""
        command.opaque = self._next_opaque()
        received, bounds = self._exchange(command.encode(), timeout_s)
        while True:
            for answer in read_commands(received, bounds):
                if answer.is_response and answer.opaque == command.opaque:
                    return answer
            received, bounds = self._receive()

    def send(
        self, head: bytes, queue_id: int, item: Item, unique_id: str, born_ms: int, timeout_s: float
    ) -> ReceiptRow | Command:
        """The receipt of a short send, or the answer if it says more; after any error the line is of no more use."""
        opaque = self._next_opaque()
        frame = kernel.write_sends(head, SEND_TAIL, born_ms, opaque, [queue_id], [item], [unique_id])
        received, bounds = self._exchange(frame, timeout_s)
        while True:
            rows, left = kernel.read_receipts(received, bounds, (opaque,))
            if rows:
                return rows[0]
            for answer in read_commands(received, left):
                if answer.is_response and answer.opaque == opaque:
                    return answer
            received, bounds = self._receive()

    def tell_end(self, head: bytes, row: EndRow, timeout_s: float) -> None:
        """Say how a transaction ended; after any error the line is of no more use."""
        self._write(kernel.write_ends(head, SEND_TAIL, self._next_opaque(), [row]), timeout_s)

    def _next_opaque(self) -> int:
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

    def _exchange(self, frame: bytes, timeout_s: float) -> tuple[bytes, list[int]]:
        self._write(frame, timeout_s)
        return self._receive()

    def _write(self, frame: bytes, timeout_s: float) -> None:
        if timeout_s != self._limit_s:
            self._limit(timeout_s)
        try:
            self._socket.sendall(frame)
        except BlockingIOError:
            raise RequestTimeout(f"{self.address} took no bytes for {timeout_s:g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem

    def _receive(self) -> tuple[bytes, list[int]]:
        """What came, once it holds whole frames."""
        received = b""
        while True:
            try:
                more = self._socket.recv(_READ_SIZE)
            except BlockingIOError:
                raise RequestTimeout(f"{self.address} did not answer within {self._limit_s:g} s") from None
            except OSError as problem:
                raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem
            if not more:
                raise ConnectionLost(f"{self.address} closed the connection before it answered")
            received = received + more if received else more
            bounds, taken, wrong = kernel.cut_frames(received, len(received), FRAME_SIZE_MAX)
            if wrong is not None:
                raise ProtocolError(f"{self.address} sent {wrong}")
            if bounds and taken == len(received):
                return received, bounds

    def _limit(self, timeout_s: float) -> None:
        """The kernel's own limit: Python's would cost a further system call for each one."""
        self._limit_s = timeout_s
        seconds = int(timeout_s)
        packed = struct.pack("ll", seconds, max(int((timeout_s - seconds) * 1_000_000), 1))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)

    def close(self) -> None:
        self._socket.close()


class Lines:
    """Lines that rest, by address; each thread takes one and gives it back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: dict[str, deque[Line]] = {}
        self.is_closed = False

    def take(self, address: str, timeout_s: float) -> Line:
        """A line of our own, until `give_back` or its end."""
        return self.take_resting(address) or Line(address, timeout_s)

    def take_resting(self, address: str) -> Line | None:
        """The same if there is one, the one that was used last."""
        resting = self._resting.get(address)
        while resting:
            try:
                line = resting.pop()  # one step, so threads need no lock
            except IndexError:
                break
            if self._clock.monotonic_s() - line.rests_since_s < REST_MAX_S:
                return line
            line.close()
        return None

    def give_back(self, line: Line) -> None:
        """The line has no request under way, and somebody else may have it."""
        line.rests_since_s = self._clock.monotonic_s()
        if self.is_closed:
            line.close()
        else:
            self._resting.setdefault(line.address, deque()).append(line)

    def close(self) -> None:
        self.is_closed = True
        for resting in self._resting.values():
            while resting:
                resting.pop().close()


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
        self._lines = Lines(clock)
        self._heads: dict[tuple[str, str, bool], bytes] = {}
        self._end_heads: dict[tuple[str, str], bytes] = {}

    def close(self) -> None:
        self._lines.close()

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
            line = self._lines.take(address, timeout_s)
            try:
                answer = line.send(head, chosen.queue_id, item, unique_id, self._clock.now_ms(), timeout_s)
            except BaseException:
                line.close()
                raise
            self._lines.give_back(line)
            if isinstance(answer, Command):
                return Attempt(receipt_of(answer, chosen, unique_id))
        except ClientError as failure:
            if not core.is_tried_again(failure, is_bound=shard is not None or queue is not None):
                raise
            return Attempt(None, message_of(topic, item, unique_id), chosen.broker_name)
        _, queue_id, queue_offset, offset_id = answer
        stored_in = chosen if chosen.queue_id == queue_id else MessageQueue(topic, chosen.broker_name, queue_id)
        return Attempt(Receipt(stored_in, queue_offset, unique_id, offset_id))

    def tell_end(self, receipt: Receipt, outcome: Outcome) -> bool:
        """Tell how a transaction ended; false where no line rests, or the one that did was of no use."""
        core, queue = self._core, receipt.queue
        if self._lines.is_closed:
            return False
        row = outcome._value_, receipt.queue_offset, receipt.offset_id, receipt.msg_id
        head = self._end_heads.get((queue.topic, queue.broker_name))
        if head is None:
            head = self._end_heads[queue.topic, queue.broker_name] = end_head(
                core.group, queue.topic, queue.broker_name
            )
        address = core.instance.address(queue.broker_name, MASTER_ID)
        line = None if address is None else self._lines.take_resting(address)
        if line is None:
            return False
        try:
            line.tell_end(head, row, core.timeout_s)
        except (ClientError, ValueError):
            line.close()
            return False
        except BaseException:
            line.close()
            raise
        self._lines.give_back(line)
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
            line = self._lines.take(address, timeout_s)
            try:
                answer = line.ask(command, timeout_s)
            except BaseException:
                line.close()
                raise
            self._lines.give_back(line)
            receipt = receipt_of(answer, chosen, message.unique_id or "")
        except ClientError as failure:
            core.note(chosen, begun_s, failure)
            if not core.is_tried_again(failure, is_bound=shard is not None or queue is not None):
                raise
            return Attempt(None, message, chosen.broker_name)
        core.note(chosen, begun_s, None)
        return Attempt(receipt)
