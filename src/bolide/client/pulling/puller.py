"""The application takes the initiative: it walks the queues, asks for messages at offsets, and keeps them itself.

    async with PullConsumer("reports") as consumer:
        for queue in await consumer.queues("Orders"):
            pulled = await consumer.pull(queue, await consumer.min_offset(queue))
            print(len(pulled.messages), pulled.next_offset)

No group is joined and nothing is shared, so a verdict on a message has nobody to go to. `committed` and `commit` keep
offsets at the brokers under the group's name, for those who like.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum

from bolide.client.access import failure_of
from bolide.client.config import Credentials, client_config
from bolide.client.consuming.positions import BrokerPositions
from bolide.client.consuming.pulling import decode_pulled
from bolide.client.consuming.received import Received, Verdict
from bolide.client.consuming.replies import Replies
from bolide.client.consuming.start_from import max_offset, min_offset, offset_at
from bolide.client.consuming.subscriptions import EVERYTHING, Expression, subscription_of, tag_test
from bolide.client.instance import Instance, open_instance
from bolide.client.life import Opened
from bolide.client.serializers import JSON, Serializer
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError
from bolide.model.names import group_problem
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import PullMessageAnswer, PullMessageRequest
from bolide.remoting.config import ConnectConfig

_SUSPEND, _SUBSCRIPTION = 2, 4
_ANSWER_LATE_S = 10.0  # a broker looks at waiting pulls every 5 s only


class PullStatus(Enum):
    """How a pull went; the names are RocketMQ's."""

    FOUND = int(ResponseCode.SUCCESS)
    NO_NEW_MSG = int(ResponseCode.PULL_NOT_FOUND)
    NO_MATCHED_MSG = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
    OFFSET_ILLEGAL = int(ResponseCode.PULL_OFFSET_MOVED)


_STATUSES = {status.value: status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought, and where the next one should begin."""

    status: PullStatus
    messages: list[Received]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(slots=True)
class _Nowhere:
    """The home of a message that no group has to settle."""

    queue: MessageQueue
    is_dropped: bool = False
    is_paused: bool = False
    replier: Replies | None = None
    serializer: Serializer = JSON

    def decide(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        raise ClientError("a pulled message has no verdict: keep the offset yourself, or use commit()")


class PullConsumer(Opened):
    """Reads queues wherever the application wants to."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        timeout_s: float = 10.0,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`group` is the name under which offsets may be kept. Without `namesrv` NAMESRV_ADDR is used."""
        if problem := group_problem(group):
            raise ClientError(problem)
        self.group = group
        self._timeout_s = timeout_s
        self._config = client_config(namesrv, instance_name=instance_name, credentials=credentials, connect=connect)
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None

    async def start(self) -> None:
        """Be ready to pull; `async with` does it."""
        instance = await self._stack.enter_async_context(open_instance(self._config, self._clock))
        try:
            await instance.check_access()
        except BaseException:
            await self._stack.aclose()
            raise
        self._instance = instance
        self._positions = BrokerPositions(self._instance, self.group)

    async def close(self) -> None:
        """End all connections."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.replier(self.group).flush()
        await self._stack.aclose()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return sorted((await self._opened().route(topic)).subscribe)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset a queue still has."""
        return await min_offset(await self._routed(queue), queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await max_offset(await self._routed(queue), queue)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at a time (ms of the epoch) or later."""
        return await offset_at(await self._routed(queue), queue, time_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """What was kept with `commit`, None if nothing was."""
        await self._routed(queue)
        return await self._positions.read(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Keep an offset at the broker, under the group's name."""
        await self._routed(queue)
        try:
            await self._positions.tell(queue, offset)
        except ClientError as problem:
            if problem.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self.pull(queue, max(offset, 0), 1)  # a broker that makes groups by itself does it now
            await self._positions.tell(queue, offset)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count_max: int = 32,
        expression: Expression = EVERYTHING,
        wait_s: float = 0.0,
    ) -> Pulled:
        """Messages of a queue from an offset on; with `wait_s` the broker waits so long for one to come.

        `expression` names tags, or is a `Sql`. Who finds NO_MATCHED_MSG goes on at the offset in the answer.
        """
        if offset < 0 or count_max <= 0:
            raise ClientError(f"offset {offset} and count {count_max}: neither may be negative, nor the count 0")
        instance = await self._routed(queue)
        subscription = subscription_of(queue.topic, expression, self._clock.now_ms())
        header = PullMessageRequest(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=QueueOffset(offset),
            message_count_max=count_max,
            sys_flag=_SUBSCRIPTION | (_SUSPEND if wait_s > 0 else 0),
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=int(wait_s * 1000),
            subscription=subscription.sub_string,
            subscription_version=subscription.sub_version,
            expression_type=subscription.expression_type,
        )
        address = await instance.found_address(queue.topic, queue.broker_name)
        command = Command(RequestCode.PULL_MESSAGE, fields=header.encode())
        limit_s = wait_s + _ANSWER_LATE_S if wait_s > 0 else self._timeout_s
        answer = await instance.request(address, command, limit_s)
        status = _STATUSES.get(answer.code)
        if status is None:
            raise failure_of(answer)
        told = PullMessageAnswer.decode(answer.fields)
        home = _Nowhere(queue, replier=instance.replier(self.group))
        messages = decode_pulled(answer.body, home, tag_test(subscription)) if answer.body else []
        return Pulled(status, messages, told.next_offset, told.min_offset, told.max_offset)

    async def _routed(self, queue: MessageQueue) -> Instance:
        instance = self._opened()
        await instance.route(queue.topic)
        return instance

    def _opened(self) -> Instance:
        if self._instance is None:
            raise ClientError(f"consumer {self.group} is not open: use it inside its `with` block, or call start()")
        return self._instance
