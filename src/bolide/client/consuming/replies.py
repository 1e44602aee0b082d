"""The answering side of request and reply: sends what a consumer replies, and takes what is replied to us.

A reply goes to the broker that gave us the request, for there the requester is known; if that one cannot pass it on,
each other broker of the reply topic is tried once. It is sent beside whatever the consumer does, and `Replying` tells
how it went to those who ask: `await message.reply(...)`, or `message.reply(...).result()` without a loop. Who does not
ask finds a failure in the log. A consumer that closes lets its replies leave first.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from bolide.client.routes import MASTER_ID
from bolide.client.sending.message import SendRules, check_message, send_command, to_queue, with_id
from bolide.client.sending.receipt import Receipt, receipt_of
from bolide.errors import ClientError, NoAnswer, ProtocolError, Refusal, RequestTimeout
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.topics import reply_topic
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.compression import compression_of, decompress
from bolide.protocol.headers.callbacks import PushReplyRequest
from bolide.protocol.ids import UniqueIds
from bolide.protocol.properties import parse_properties
from bolide.remoting.session import Reply, Request

if TYPE_CHECKING:
    from bolide.client.instance import Instance

NO_REPLY_MADE = 10007
REPLY_TYPE = "reply"
_SEND_LIMIT_S = 3.0
_PASS_ON_LIMIT_S = 10.0  # the requester's time to take it; the broker answers us only then
_FLUSH_LIMIT_S = 3.0
log = logging.getLogger(__name__)


class Replying(Future[Receipt]):
    """What becomes of a reply; to be awaited, asked for its `result()`, or left alone."""

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self).__await__()


def reply_to(
    properties: Mapping[str, str],
    body: bytes | Message,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    more: Mapping[str, str] | None = None,
) -> Message:
    """The reply to a request with these properties; ClientError if it was none."""
    number, client_id = properties.get(names.CORRELATION_ID), properties.get(names.REPLY_TO_CLIENT)
    if number is None or client_id is None:
        raise ClientError(
            "this message is no request: nobody waits for a reply to it (see `is_request`)", NO_REPLY_MADE
        )
    cluster = properties.get(names.CLUSTER)
    if cluster is None:
        raise ClientError(
            f"the request does not say its cluster (property {names.CLUSTER}): its broker is older than 4.6",
            NO_REPLY_MADE,
        )
    own = {
        names.MESSAGE_TYPE: REPLY_TYPE,
        names.CORRELATION_ID: number,
        names.REPLY_TO_CLIENT: client_id,
    }
    if names.REPLY_TIMEOUT_MS in properties:
        own[names.REPLY_TIMEOUT_MS] = properties[names.REPLY_TIMEOUT_MS]
    if isinstance(body, Message):
        given, flag, body = dict(body.properties), body.flag, body.body
    else:
        given, flag = dict(more or {}), 0
    return Message(reply_topic(cluster), body, tags=tags, keys=keys, properties={**given, **own}, flag=flag)


class Replies:
    """Sends the replies of one consumer group's member; any thread may call `send`."""

    def __init__(self, instance: "Instance", group: str, ids: UniqueIds) -> None:
        self._instance = instance
        self._rules = SendRules(group=group)
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[Replying, asyncio.Task[None] | None] = {}

    def send(self, message: Message, broker_name: str) -> Replying:
        """Have a reply sent, to this broker first."""
        check_message(message, self._rules.body_size_max)
        replying = Replying()
        self._under_way[replying] = None
        self._loop.call_soon_threadsafe(self._begin, with_id(message, self._ids.next()), broker_name, replying)
        return replying

    def _begin(self, message: Message, broker_name: str, replying: Replying) -> None:
        sending = self._send(message, broker_name, replying)
        self._under_way[replying] = self._instance.errands.start(sending, name="client.reply")

    async def _send(self, message: Message, broker_name: str, replying: Replying) -> None:
        replying.set_running_or_notify_cancel()
        problem = ClientError("the consumer was closed before its reply was passed on")
        try:
            receipt = await self._sent(message, broker_name)
            replying.set_result(receipt)
        except TimeoutError:
            problem = ClientError(f"no route of {message.topic} within {_SEND_LIMIT_S:g} s")
        except ClientError as failure:
            problem = failure
        finally:
            del self._under_way[replying]
            if not replying.done():
                log.warning("reply not passed on topic=%s problem=%s", message.topic, problem)
                replying.set_exception(problem)

    async def _sent(self, message: Message, broker_name: str) -> Receipt:
        try:
            return await self._offered(message, broker_name)
        except NoAnswer as failure:
            if isinstance(failure, RequestTimeout):  # the time of the one who asked is over too
                raise
            await self._instance.doubt(message.topic)  # the broker may have moved
            return await self._offered(message, broker_name)

    async def _offered(self, message: Message, broker_name: str) -> Receipt:
        """To one broker after the other, until one has passed it on."""
        instance = self._instance
        async with asyncio.timeout(_SEND_LIMIT_S):
            route = await instance.route(message.topic)
        queues = sorted(route.publish, key=lambda queue: queue.broker_name != broker_name)
        firsts = {queue.broker_name: queue for queue in reversed(queues)}
        problem: ClientError | None = None
        for queue in dict.fromkeys(firsts[queue.broker_name] for queue in queues):
            address = instance.address(queue.broker_name, MASTER_ID)
            if address is None:
                continue
            command = send_command(message, self._rules, instance.clock.now_ms())
            command.code = RequestCode.SEND_REPLY_MESSAGE_V2
            try:
                limit_s = _SEND_LIMIT_S + _PASS_ON_LIMIT_S
                answer = await instance.request(address, to_queue(command, queue), limit_s)
                return receipt_of(answer, queue, message.unique_id or "")
            except ClientError as failure:
                problem = failure
        raise problem or ClientError(f"{message.topic} has no queue that takes replies")

    async def flush(self) -> None:
        """Let what is under way leave, for a moment."""
        await asyncio.sleep(0)  # what another thread has just handed over begins
        tasks = [task for task in self._under_way.values() if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_FLUSH_LIMIT_S)
            for task in late:
                task.cancel()


class ReplyBox:
    """Takes in what brokers push (326) and gives it to who waits for it, by number."""

    def __init__(self, waiting: Mapping[str, "asyncio.Future[Message]"], now_ms: Callable[[], int]) -> None:
        self._waiting = waiting
        self._now_ms = now_ms

    def pushed(self, request: Request) -> Reply:
        """326: a reply to one of our requests; one that nobody waits for is dropped."""
        header = PushReplyRequest.decode(request.command.fields)
        properties = parse_properties(header.properties or "") | {names.ARRIVED_AT: str(self._now_ms())}
        body = request.command.body
        number = properties.get(names.CORRELATION_ID, "")
        reply = self._waiting.get(number)
        if reply is None or reply.done():
            log.info("reply dropped, nobody waits for it any more number=%s topic=%s", number, header.topic)
        else:
            try:
                compression = compression_of(header.sys_flag)
                plain = decompress(body, compression) if compression is not None else body
                reply.set_result(Message(header.topic, plain, properties=properties, flag=header.flag))
            except ProtocolError as problem:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"the reply cannot be read: {problem}") from None
        return request.command.answer(ResponseCode.SUCCESS)
