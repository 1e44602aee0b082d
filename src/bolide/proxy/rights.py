"""What a client that has a name may learn of a topic or a group: no more than its brokers would tell it.

Routes and the settings of groups are at hand here for every question. So the brokers are asked first, in the client's
name: about a topic whether it may send to it, read it or look at it, about a group whether it may consume in it or look
at it. The questions change nothing, and what else is in their answers does not count. Apache's proxy asks the same of
its own copy of the policies; here rights are said in one place.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from bolide.client.access import failure_of
from bolide.errors import AccessRefused, NoAnswer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import GetConsumerListRequest, GetMaxOffsetRequest, QueryMessageRequest
from bolide.protocol.headers.send import RecallMessageRequest
from bolide.proxy import messages as m
from bolide.proxy.back import Back, asked
from bolide.proxy.clients import GrpcClient
from bolide.proxy.statuses import Denied

_ASK_LIMIT_S = 3.0
T = TypeVar("T")


class Rights:
    """Asks brokers what a client may."""

    def __init__(self, back: Back) -> None:
        self._back = back

    def check(self, client: GrpcClient | None, topic: str | None, group: str | None) -> Awaitable[None] | None:
        """None for a client that nobody asks for a name; else raises Denied, once the brokers have said so."""
        if client is None or client.sign is None:
            return None
        return self._check(client, topic, group)

    async def _check(self, client: GrpcClient, topic: str | None, group: str | None) -> None:
        if topic:
            route = self._back.route(topic)
            brokers = self._back.brokers() if route is None else [each.broker for each in route.brokers]
            await _ask(client, brokers, lambda: _about_topic(topic))
        if group:
            await _ask(client, self._back.brokers(), lambda: _about_group(group))


def _about_topic(topic: str) -> Iterable[Command]:
    """The first would do, but Apache's brokers answer it to who may look at the topic and to nobody else."""
    yield Command(RequestCode.GET_MAX_OFFSET, fields=GetMaxOffsetRequest(topic=topic, queue_id=0).encode())
    nothing = QueryMessageRequest(topic=topic, key="-", message_count_max=0, begin_ms=0, end_ms=0)
    yield Command(RequestCode.QUERY_MESSAGE, fields=nothing.encode())
    nowhere = RecallMessageRequest(topic=topic, recall_handle="-")
    yield Command(RequestCode.RECALL_MESSAGE, fields=nowhere.encode())


def _about_group(group: str) -> Iterable[Command]:
    yield Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=GetConsumerListRequest(consumer_group=group).encode())


async def _ask(client: GrpcClient, brokers: list[str], questions: Callable[[], Iterable[Command]]) -> None:
    """One question that is not refused is enough, at the first broker that answers."""
    for broker in brokers:
        try:
            for question in questions():
                answer = await asked(client, broker, question, _ASK_LIMIT_S)
                refusal = None if answer.code == ResponseCode.SUCCESS else failure_of(answer)
                if not isinstance(refusal, AccessRefused):
                    return
        except NoAnswer:
            continue
        raise Denied(m.Code.FORBIDDEN, str(refusal))
    if brokers:
        raise Denied(m.Code.PROXY_TIMEOUT, "no broker could be asked what this client may do; try again")


def told(checking: Awaitable[None] | None, answer: Callable[[], T]) -> T | Awaitable[T]:
    """An answer, at once or after the brokers have allowed it."""
    return answer() if checking is None else _told_later(checking, answer)


async def _told_later(checking: Awaitable[None], answer: Callable[[], T]) -> T:
    await checking
    return answer()
