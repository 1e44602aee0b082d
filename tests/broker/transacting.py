"""A broker's transactions without a socket: real tables, a real store, held time, and producers that can be asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolide.broker.transactions.transactions import Transactions
from bolide.errors import Refusal
from bolide.model.message import StoredMessage, parse_offset_id
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from bolide.protocol.bodies import Heartbeat, ProducerMember
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import CheckTransactionRequest
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.properties import join_properties
from bolide.protocol.records import decode_record
from bolide.remoting.handlers import Handlers
from bolide.remoting.session import Request
from bolide.testing import VirtualClock
from tests.broker.senders import Sending, message, sending

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "transfers"


@dataclass(eq=False)
class Producer:
    """As much of a connected producer as being asked takes."""

    peer: str = "192.168.1.9:51234"
    is_open: bool = True
    is_writable: bool = True
    asked: list[Command] = field(default_factory=list)

    def send(self, command: Command) -> None:
        self.asked.append(command)

    def questions(self) -> list[tuple[CheckTransactionRequest, StoredMessage]]:
        """What it was asked, but for what names a topic that nothing can be called: it is damaged, and passed over."""
        asked, self.asked = self.asked, []
        found = []
        for each in asked:
            with suppress(Refusal):
                found.append((CheckTransactionRequest.decode(each.fields), decode_record(each.body)))
        return found


@dataclass
class Sent:
    """Where a half message lies, as its sender was told."""

    queue_offset: int
    physical_offset: int
    unique_id: str


class Transacting:
    """Everything a transaction goes through."""

    def __init__(self, room: Sending, clock: VirtualClock) -> None:
        self.room = room
        self.clock = clock
        self.offsets, self.members = room.state.offsets, room.state.members
        self.transactions = Transactions(room.state, room.intake)
        self._handlers = Handlers(self.transactions.handlers())
        self._count = 0
        self.is_killed = False  # nothing is written any more when it ends

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # virtual

    def join(self, producer: Producer, group: str = GROUP) -> Producer:
        session: Any = producer
        heartbeat = Heartbeat(client_id=producer.peer, producer_data_set=[ProducerMember(group_name=group)])
        self.members.heard(session, heartbeat, 0, 0)
        return producer

    async def prepare(self, body: bytes = b"pay", queue_id: int = 2, group: str = GROUP, **own: Any) -> Sent:
        """Send a half message."""
        self._count += 1
        unique_id = f"7F00000100{self._count:02X}"
        properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": unique_id, **own}
        command = message(
            body, sys_flag=4, queue_id=queue_id, properties=join_properties(properties), born_ms=self.clock.now_ms()
        )
        answer = await self.room.sent(command)
        assert answer.code == 0, answer.remark
        assert answer.fields["queueId"] == str(queue_id)
        found = parse_offset_id(answer.fields["msgId"])
        assert found is not None
        return Sent(int(answer.fields["queueOffset"]), found.physical_offset, unique_id)

    def end(self, half: Sent, how: int, *, oneway: bool = False, **changes: Any) -> Command:
        """End a transaction; refusals are raised."""
        return self.ask(self.end_command(half, how, oneway=oneway, **changes))

    def end_command(self, half: Sent, how: int, *, oneway: bool = False, **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "producer_group": GROUP,
            "half_queue_offset": half.queue_offset,
            "physical_offset": half.physical_offset,
            "commit_or_rollback": how,
            "message_id": half.unique_id,
        }
        return Command(37, flag=2 * oneway, fields=EndTransactionRequest(**fields | changes).encode())

    def ask(self, command: Command) -> Any:
        session: Any = Producer()
        return self._handlers.serve(Request(command, session, self.clock.monotonic_s()))

    def answer(self, question: CheckTransactionRequest, how: int) -> None:
        """What a producer sends when it was asked."""
        half = Sent(question.half_queue_offset, question.physical_offset, question.message_id or "")
        self.end(half, how, is_from_check=True)

    def messages(self, topic: str = "Orders", queue_id: int = 2) -> list[StoredMessage]:
        return self.room.messages(topic, queue_id)

    @property
    def halves(self) -> list[StoredMessage]:
        return self.messages(HALF_TOPIC, 0)

    @property
    def operations(self) -> list[bytes]:
        return [each.body for each in self.messages(OP_HALF_TOPIC, 0)]

    @property
    def given_up(self) -> list[StoredMessage]:
        return self.messages(CHECK_EXHAUSTED_TOPIC, 0)


@asynccontextmanager
async def transacting(root: Path, **settings: Any) -> AsyncIterator[Transacting]:
    """In virtual time: for a coroutine that `bolide.testing.run` runs."""
    clock = VirtualClock()
    async with sending(root, clock=clock, **settings) as room:
        topic = TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4, perm=6)
        room.tables.topics.update(topic)
        await room.open_topics.keep("Orders")
        rig = Transacting(room, clock)
        await rig.transactions.load()
        yield rig
        if not rig.is_killed:
            await rig.transactions.save()
            await rig.offsets.stop()
