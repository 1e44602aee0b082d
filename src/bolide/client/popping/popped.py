"""A message that is out, and the requests about it: take, wait for something to take, settle, keep for longer."""

import asyncio

from bolide.client.access import failure_of
from bolide.client.instance import Instance
from bolide.model.message import StoredMessage
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.header import read_int64
from bolide.protocol.headers.pop import NotificationAnswer, NotificationRequest, PopMessageRequest
from bolide.protocol.headers.poptext import PopHandle
from bolide.protocol.popped import ack_command, bury_command, change_command, changed_handle, read_popped
from bolide.protocol.records import inflate

COUNT_MAX = 32
_ANY_QUEUE = -1
_POPPED_AT = "popTime"
_FROM_THE_OLDEST = 0
_ANSWER_LATE_S = 5.0
POP_WAIT_S = 2.0
_NOTHING = frozenset((ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL))


class Popped:
    """One message, hidden from others until it is settled or its time is over.

    `handle` changes whenever it is hidden for longer, and only the newest one settles it: `lock` keeps these apart.
    """

    __slots__ = ("handle", "hidden_until_s", "is_settled", "lock", "message", "topic")

    def __init__(self, topic: str, message: StoredMessage, handle: PopHandle, hidden_until_s: float) -> None:
        self.topic = topic
        self.message = message
        self.handle = handle
        self.hidden_until_s = hidden_until_s
        self.is_settled = False
        self.lock = asyncio.Lock()

    @property
    def delivery_count(self) -> int:
        """How often it was given out, this time included."""
        return self.message.reconsume_times + 1

    def __repr__(self) -> str:
        handle = self.handle
        return f"<Popped {self.topic} {handle.broker_name}:{handle.queue_id} offset {handle.queue_offset}>"


class PopRequests:
    """What one group asks of brokers."""

    def __init__(self, instance: Instance, group: str, invisible_s: float) -> None:
        self.instance = instance
        self.group = group
        self.invisible_s = invisible_s
        self._ahead_ms: dict[str, int] = {}  # of our clock, by broker

    async def pop(self, topic: str, broker_name: str, count: int, wait_s: float = POP_WAIT_S) -> list[Popped]:
        """What is there, of any queue of a broker; waits a moment if another member was faster.

        A request says when it was made, and a broker whose clock is ahead takes it for one that is too late. So what it
        tells of its time is remembered, and one that refuses us as late is asked in a later name.
        """
        clock = self.instance.clock
        begun_s, ahead_ms = clock.monotonic_s(), self._ahead_ms.get(broker_name, 0)
        header = PopMessageRequest(
            consumer_group=self.group,
            topic=topic,
            queue_id=_ANY_QUEUE,
            message_count_max=min(count, COUNT_MAX),
            invisible_ms=int(self.invisible_s * 1000),
            poll_ms=int(wait_s * 1000),
            born_ms=clock.now_ms() + ahead_ms,
            init_mode=_FROM_THE_OLDEST,
            expression_type="TAG",
            expression="*",
        )
        command = Command(RequestCode.POP_MESSAGE, fields=header.encode())
        answer = await self._answer(topic, broker_name, command, 2 * POP_WAIT_S + _ANSWER_LATE_S)
        if _POPPED_AT in answer.fields:
            ahead_ms = read_int64(answer.fields[_POPPED_AT]) - clock.now_ms()
        elif answer.code == ResponseCode.POLLING_TIMEOUT:
            ahead_ms += int(POP_WAIT_S * 1000)
        self._ahead_ms[broker_name] = ahead_ms
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        until_s = begun_s + self.invisible_s
        return [
            Popped(topic, inflate(message), handle, until_s) for handle, message in read_popped(answer, broker_name)
        ]

    async def wait(self, topic: str, broker_name: str, wait_s: float) -> bool:
        """Whether there is something to pop; waits at the broker until there is."""
        header = NotificationRequest(
            consumer_group=self.group,
            topic=topic,
            queue_id=_ANY_QUEUE,
            poll_ms=int(wait_s * 1000),
            born_ms=self.instance.clock.now_ms() + self._ahead_ms.get(broker_name, 0),
        )
        command = Command(RequestCode.NOTIFICATION, fields=header.encode())
        answer = await self._answer(topic, broker_name, command, wait_s + _ANSWER_LATE_S)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return NotificationAnswer.decode(answer.fields).has_message

    async def ack(self, popped: Popped) -> None:
        """It is done."""
        await self._asked(popped, ack_command(self.group, popped.topic, popped.handle))

    async def bury(self, popped: Popped) -> None:
        """It becomes a dead letter of the group, and is done then."""
        physical_offset = popped.message.physical_offset
        await self._asked(popped, bury_command(self.group, popped.topic, popped.handle, physical_offset))
        await self.ack(popped)

    async def hide(self, popped: Popped, seconds: float) -> None:
        """Others get it in so many seconds, and not before."""
        begun_s = self.instance.clock.monotonic_s()
        command = change_command(self.group, popped.topic, popped.handle, int(seconds * 1000))
        answer = await self._asked(popped, command)
        popped.handle = changed_handle(popped.handle, answer)
        popped.hidden_until_s = begun_s + seconds

    async def _asked(self, popped: Popped, command: Command) -> Command:
        answer = await self._answer(popped.topic, popped.handle.broker_name, command)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return answer

    async def _answer(self, topic: str, broker_name: str, command: Command, timeout_s: float | None = None) -> Command:
        address = await self.instance.found_address(topic, broker_name)
        limit_s = timeout_s or self.instance.config.request_timeout_s
        return await self.instance.request(address, command, limit_s)
