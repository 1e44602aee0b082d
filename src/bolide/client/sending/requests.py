"""Ask by a message and wait for the answer to it: RocketMQ's request and reply.

A request is a message like any other that says who asked (its client id) and under which number. Whoever consumes it
sends a reply to the broker, which passes it on over the connection that the requester opened. So the broker must know
that connection: a request is sent only where we have introduced ourselves on it.

What is sent may be lost on either way, and a request may be consumed twice; a reply that nobody waits for any more is
dropped. A request that timed out says whether a broker had taken it (code 10006) or that is not known.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping

from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending.message import SendRules, replace_properties, send_command
from bolide.client.sending.receipt import Receipt, receipt_of
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError, ReplyTimeout, RequestTimeout
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import reply_topic
from bolide.protocol.command import Command

REQUEST_TIMEOUT = 10006
_SAYING_S = 0.05  # a send that fails says why before our own limit ends it
log = logging.getLogger(__name__)
Attempt = Callable[[MessageQueue, float], Awaitable[list[Receipt]]]


class Requesting:
    """The asking side of a producer; what it is given by the producer is named first."""

    timeout_s: float
    rules: SendRules
    _clock: Clock
    _topics: dict[str, None]

    prepared: Callable[..., Message]
    _route_in_time: Callable[[str, float], Awaitable[Route]]
    _request: Callable[[Command, MessageQueue, float], Awaitable[Command]]
    _try: Callable[..., Awaitable[list[Receipt]]]

    @property
    def instance(self) -> Instance:
        raise NotImplementedError

    async def request(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Send a request and wait for the reply to it; `timeout_s` covers both.

        Raises ReplyTimeout when no reply came in time; its `is_sent` says whether the request had been stored.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        message = self.prepared(topic, body, tags, keys, properties, flag, None)
        number = str(uuid.uuid4())
        own = {
            names.CORRELATION_ID: number,
            names.REPLY_TO_CLIENT: self.instance.client_id,
            names.REPLY_TIMEOUT_MS: str(int(limit_s * 1000)),
        }
        asked = replace_properties(message, {**message.properties, **own})
        return await self._asked(asked, number, shard, queue, limit_s)

    async def _asked(
        self, message: Message, number: str, shard: str | None, queue: MessageQueue | None, limit_s: float
    ) -> Message:
        replies = self.instance.replies
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        replies[number] = reply
        deadline_s = self._clock.monotonic_s() + limit_s
        is_sent = False
        try:
            async with asyncio.timeout(limit_s):
                await self._meet_repliers(message.topic, limit_s)
                left_s = max(deadline_s - self._clock.monotonic_s() - _SAYING_S, 0.001)
                await self._try(message, self._attempt(message), shard, queue, left_s)
                is_sent = True
                return await reply
        except (TimeoutError, ClientError) as problem:
            if reply.done() and not reply.cancelled():  # the broker's own answer was lost, and yet somebody replied
                return reply.result()
            if isinstance(problem, TimeoutError | RequestTimeout):
                raise _late(message.topic, limit_s, is_sent=is_sent) from problem
            raise
        finally:
            del replies[number]

    def _attempt(self, message: Message) -> Attempt:
        command = send_command(message, self.rules, self._clock.now_ms())
        msg_id = message.unique_id or ""

        async def attempt(chosen: MessageQueue, left_s: float) -> list[Receipt]:
            address = self.instance.address(chosen.broker_name, MASTER_ID)
            if address is not None:
                await self.instance.introduce(address)
            return [receipt_of(await self._request(command, chosen, left_s), chosen, msg_id)]

        return attempt

    async def _meet_repliers(self, topic: str, limit_s: float) -> None:
        """Be known to every broker that a reply may be sent to: those that have the reply topic of the cluster."""
        instance = self.instance
        if topic in instance.asked_topics:
            return
        await self._route_in_time(topic, limit_s)
        try:
            told = await instance.namesrv.route(topic)
            for cluster in {data.cluster for data in told.broker_datas} if told is not None else ():
                self._topics[reply_topic(cluster)] = None
                await instance.refresh(reply_topic(cluster))
            await instance.heartbeat()
        except BolideError as problem:
            log.warning("brokers that pass replies on are not all known topic=%s problem=%s", topic, problem)
        instance.asked_topics.add(topic)


def _late(topic: str, limit_s: float, *, is_sent: bool) -> ReplyTimeout:
    if is_sent:
        text = f"{topic}: the request was sent, and no reply came within {limit_s:g} s"
        return ReplyTimeout(text, REQUEST_TIMEOUT, is_sent=True)
    text = f"{topic}: within {limit_s:g} s no broker confirmed the request; whether it was sent is not known"
    return ReplyTimeout(text, is_sent=False)
