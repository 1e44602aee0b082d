"""How the ends of transactions are told: one-way, as RocketMQ's own client does, and those of one turn together.

The ends for one broker are encoded by one call and leave with the half messages that this turn of the loop sends to it.
It answers those first, and ends transactions while we are busy with the answers. An end that could not be told is no
loss: the broker will ask.
"""

import asyncio
import logging
from json.encoder import encode_basestring

from bolide import kernel
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID
from bolide.client.sending.message import SEND_TAIL
from bolide.client.sending.receipt import Receipt
from bolide.client.transactions.checker import Outcome
from bolide.errors import BolideError, ConnectError
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.session import Session

log = logging.getLogger(__name__)


class Outcomes:
    """What one producer has to tell."""

    def __init__(self, group: str, instance: Instance, guests: IsolatedTasks, *, is_signed: bool) -> None:
        self._group = group
        self._instance = instance
        self._guests = guests
        self._is_signed = is_signed  # requests one by one, so none can be written with others
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[Receipt, Outcome]] = []
        self._heads: dict[tuple[str, str], bytes] = {}
        self._alone: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def add(self, receipt: Receipt, outcome: Outcome) -> None:
        """Have the broker of a half message told how its transaction ended."""
        if not self._due:
            self._loop.call_soon(self.tell)
        self._due.append((receipt, outcome))

    async def flush(self) -> None:
        """Tell what there is to be told, and wait for those that need a connection first."""
        self.tell()
        await asyncio.gather(*self._alone)

    def close(self) -> None:
        """Tell nothing more."""
        self._is_closed = True

    def tell(self) -> None:
        """Have what is due written now, and not at the end of this turn."""
        due, self._due = self._due, []
        if due and self._is_closed:
            count = len(due)
            log.warning(
                "ends of transactions were not told, the brokers will ask group=%s count=%d", self._group, count
            )
            return
        places: dict[tuple[str, str], list[tuple[Receipt, Outcome]]] = {}
        for end in due:
            queue = end[0].queue
            places.setdefault((queue.topic, queue.broker_name), []).append(end)
        for (topic, broker_name), ends in places.items():
            self._tell_broker(topic, broker_name, ends)

    def _tell_broker(self, topic: str, broker_name: str, ends: list[tuple[Receipt, Outcome]]) -> None:
        session = self._session(broker_name)
        if session is None:
            for end in ends:
                task = self._guests.start(self._tell_alone(*end), name="producer.end")
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
            return
        head = self._heads.get((topic, broker_name))
        if head is None:
            head = self._heads[topic, broker_name] = end_head(self._group, topic, broker_name)
        rows = [(outcome._value_, where.queue_offset, where.offset_id, where.msg_id) for where, outcome in ends]
        try:
            frames = kernel.write_outcomes(head, SEND_TAIL, session.pending.numbers(len(rows)), rows)
        except ValueError as problem:
            log.warning("ends of transactions were not told, %s will ask problem=%s", broker_name, problem)
            return
        session.push(frames)

    def _session(self, broker_name: str) -> Session | None:
        """The connection at hand; none where requests are signed one by one."""
        address = None if self._is_signed else self._instance.address(broker_name, MASTER_ID)
        return None if address is None else self._instance.client.session_at_hand(address)

    async def _tell_alone(self, receipt: Receipt, outcome: Outcome) -> None:
        """With a connection to be made if need be."""
        topic, broker_name = receipt.queue.topic, receipt.queue.broker_name
        command = end_command(self._group, receipt, outcome)
        try:
            address = await self._instance.found_address(topic, broker_name)
            try:
                await self._instance.client.send_oneway(address, command)
            except ConnectError:  # another may lead
                await self._instance.doubt(topic)
                await self._instance.client.send_oneway(await self._instance.found_address(topic, broker_name), command)
        except BolideError as problem:
            log.warning(
                "the end of a transaction was not told, the broker will ask id=%s outcome=%s problem=%s",
                *(receipt.msg_id, outcome.name, problem),
            )


def end_command(group: str, receipt: Receipt, outcome: Outcome) -> Command:
    """37, for the half message of a receipt."""
    header = EndTransactionRequest(
        topic=receipt.queue.topic,
        producer_group=group,
        half_queue_offset=QueueOffset(receipt.queue_offset),
        physical_offset=PhysicalOffset(int(receipt.offset_id[-16:], 16)),
        commit_or_rollback=outcome.value,
        is_from_check=False,
        message_id=receipt.msg_id,
        transaction_id=receipt.msg_id,
        addressed_broker=receipt.queue.broker_name,
    )
    return Command(RequestCode.END_TRANSACTION, flag=ONEWAY_FLAG, fields=header.encode())


def end_head(group: str, topic: str, broker_name: str) -> bytes:
    """The same as bytes, up to what differs between the transactions of one topic at one broker."""
    fields = {"producerGroup": group, "topic": topic, "bname": broker_name, "fromTransactionCheck": "false"}
    pairs = ",".join(f"{encode_basestring(name)}:{encode_basestring(text)}" for name, text in fields.items())
    return f'{{"code":{int(RequestCode.END_TRANSACTION)},"extFields":{{{pairs},'.encode()
