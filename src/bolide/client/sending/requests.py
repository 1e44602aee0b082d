"""Ask by a message and wait for the answer to it: RocketMQ's request and reply.

A request is a message like any other that says who asked (its client id) and under which number. Anyone who consumes it
sends a reply to the broker, which passes it on over the connection that the requester opened. So the broker must know
that connection: a request is sent only where we have introduced ourselves on it.

What is sent may be lost on either way, and a request may be consumed twice; a reply that nobody waits for any more is
dropped. A request that timed out says whether a broker had taken it (code 10006) or that is not known.
"""

import asyncio
import logging
import uuid

from bolide.client.instance import Instance
from bolide.client.sending.message import replace_properties
from bolide.client.sending.retry_path import RetryPath
from bolide.client.sending.shipment import Shipment
from bolide.errors import BolideError, ClientError, ReplyTimeout, RequestTimeout
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import reply_topic

REQUEST_TIMEOUT = 10006
_SAYING_S = 0.05  # a send that fails says why before our own limit ends it
log = logging.getLogger(__name__)


class Requests:
    """The asking side of a producer."""

    def __init__(self, instance: Instance, path: RetryPath) -> None:
        self._instance = instance
        self._path = path

    async def ask(self, message: Message, shard: str | None, queue: MessageQueue | None, limit_s: float) -> Message:
        """Send a prepared message as a request, and wait for the reply to it."""
        number = str(uuid.uuid4())
        own = {
            names.CORRELATION_ID: number,
            names.REPLY_TO_CLIENT: self._instance.client_id,
            names.REPLY_TIMEOUT_MS: str(int(limit_s * 1000)),
        }
        asked = replace_properties(message, {**message.properties, **own})
        replies = self._instance.replies
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        replies[number] = reply
        clock = self._instance.clock
        deadline_s = clock.monotonic_s() + limit_s
        is_sent = False
        try:
            async with asyncio.timeout(limit_s):
                await self._meet_repliers(asked.topic, limit_s)
                left_s = max(deadline_s - clock.monotonic_s() - _SAYING_S, 0.001)
                await self._path.send(Shipment([asked], left_s, shard, queue, is_request=True))
                is_sent = True
                return await reply
        except (TimeoutError, ClientError) as problem:
            if reply.done() and not reply.cancelled():  # the broker's own answer was lost, and yet somebody replied
                return reply.result()
            if isinstance(problem, TimeoutError | RequestTimeout):
                raise _late(asked.topic, limit_s, is_sent=is_sent) from problem
            raise
        finally:
            del replies[number]

    async def _meet_repliers(self, topic: str, limit_s: float) -> None:
        """Be known to every broker that a reply may be sent to: those that have the reply topic of the cluster."""
        instance, placement = self._instance, self._path.placement
        if topic in instance.asked_topics:
            return
        await placement.route_in_time(topic, limit_s)
        try:
            told = await instance.namesrv.route(topic)
            for cluster in {data.cluster for data in told.broker_datas} if told is not None else ():
                placement.topics[reply_topic(cluster)] = None
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
