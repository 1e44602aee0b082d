"""Requests of and about connected clients: heartbeats, members of groups, queue locks.

Bodies are bounded, and a large one is read in a thread and in turns (`slow_work.py`): the C++ client's spelling needs
the mild reader, which takes a tenth of a second for a few hundred kilobytes.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bolide.broker.members.conflicts import REFUSED_GROUP_FIELD, SubscriptionRefused
from bolide.broker.members.locks import Locks
from bolide.broker.members.members import Member
from bolide.broker.state import BrokerState
from bolide.broker.tables.filters import Filters
from bolide.errors import Refusal
from bolide.filter.tokens import SqlError
from bolide.kernel.layout import LANGUAGES
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import (
    Body,
    ClientCheck,
    ConnectedProducer,
    Connection,
    ConsumerConnections,
    ConsumerList,
    GroupSubscription,
    Heartbeat,
    LockAnswer,
    LockRequest,
    ProducerConnections,
    ProducerTable,
    QueueName,
    SubscriptionConflict,
    UnlockRequest,
)
from bolide.protocol.bodies.body import decode_breathing
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import GetConsumerListRequest, HeartbeatAnswer, UnregisterClientRequest
from bolide.protocol.headers.groups import (
    GetConsumerConnectionsRequest,
    GetProducerConnectionsRequest,
    QuerySubscriptionRequest,
)
from bolide.remoting.handlers import Handler, bounded_body
from bolide.remoting.session import Request, Session
from bolide.remoting.slow_work import alone, place_of

BODY_SIZE_MAX = 1 << 20
_AT_ONCE_SIZE_MAX = 32 * 1024
_TAG_TYPES = ("", "TAG")

B = TypeVar("B", bound=Body)


class Clients:
    """What clients say of themselves, and what others ask about them."""

    def __init__(self, state: BrokerState, locks: Locks, filters: Filters) -> None:
        self._settings = state.settings
        self._filters = filters
        self._members = state.members
        self._locks = locks
        self._topics = state.topics
        self._groups = state.groups

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._filters.expressions.serving(self.check),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.client_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def heartbeat(self, request: Request) -> Command | Awaitable[Command]:
        """34: a client is alive, and this is what it is a member of."""
        return _with_body(request, Heartbeat, lambda heartbeat: self._heard(request, heartbeat))

    def _heard(self, request: Request, heartbeat: Heartbeat) -> Command | Awaitable[Command]:
        told = heartbeat.consumer_data_set
        texts = [text for each in told for text in self._filters.slow(each.group_name, each.subscription_data_set)]
        return self._hear_in_turns(request, heartbeat, texts) if texts else self._hear(request, heartbeat)

    async def _hear_in_turns(self, request: Request, heartbeat: Heartbeat, texts: list[str]) -> Command:
        expressions = self._filters.expressions
        held = [await expressions.compile_in_turns(text, request.session) for text in texts]
        answer = self._hear(request, heartbeat)
        del held  # by now anyone who needs them has them
        return answer

    def _hear(self, request: Request, heartbeat: Heartbeat) -> Command:
        command = request.command
        try:
            wants_more = self._members.heard(request.session, heartbeat, command.language, command.version)
        except SubscriptionRefused as refusal:
            return command.answer(refusal.code, remark=refusal.remark, fields={REFUSED_GROUP_FIELD: refusal.group})
        fields = HeartbeatAnswer(is_v2_supported=True, is_subscription_changed=wants_more).encode()
        return command.answer(ResponseCode.SUCCESS, fields=fields)

    def unregister(self, request: Request) -> Command:
        """35: a client leaves a group."""
        header = UnregisterClientRequest.decode(request.command.fields)
        self._members.leave(request.session, header.producer_group, header.consumer_group)
        return request.command.answer(ResponseCode.SUCCESS)

    def check(self, request: Request) -> Command | Awaitable[Command]:
        """46: would this subscription work here? Nothing asked is nothing wrong."""
        if not request.command.body:
            return request.command.answer(ResponseCode.SUCCESS)
        return _with_body(request, ClientCheck, lambda asked: self._checked(request.command, asked))

    def _checked(self, command: Command, asked: ClientCheck) -> Command:
        subscription = asked.subscription_data
        if subscription is None or subscription.expression_type in _TAG_TYPES:
            return command.answer(ResponseCode.SUCCESS)
        kind = subscription.expression_type
        if not self._settings.now.has_property_filter:
            remark = f"this broker does not filter by {kind}: set enablePropertyFilter=true, or subscribe by tags"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        try:
            self._filters.expressions.compiled(subscription.sub_string, kind)
        except SqlError as problem:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription: {problem}") from None
        return command.answer(ResponseCode.SUCCESS)

    def client_ids(self, request: Request) -> Command:
        """38: the members of a consumer group, one entry a connection, in the same order for all who ask.

        After a start, those who held queues before it are among them until they are back or their locks are over.
        """
        header = GetConsumerListRequest.decode(request.command.fields)
        group = self._members.consumers(header.consumer_group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"nobody is in consumer group {header.consumer_group!r}")
        connected = [member.client_id for member in group.channels.values()]
        awaited = self._locks.awaited(header.consumer_group).difference(connected)
        body = ConsumerList(consumer_id_list=connected + sorted(awaited)).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def consumer_connections(self, request: Request) -> Command:
        """203: who consumes in a group, and what."""
        header = GetConsumerConnectionsRequest.decode(request.command.fields)
        group = self._members.consumers(header.consumer_group)
        if group is None:
            remark = f"consumer group {header.consumer_group!r} is not online: none of its members is connected here"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        connections = ConsumerConnections(
            connection_set=_connections(group.channels),
            consume_from_where=group.consume_from,
            consume_type=group.consume_type,
            message_model=group.model,
            subscription_table=group.subscriptions,
            bolide_conflicts=[
                SubscriptionConflict(client_id=each.client_id, mate_id=each.mate_id, text=each.text)
                for each in group.agreement.conflicts()
            ]
            or None,
        )
        return request.command.answer(ResponseCode.SUCCESS, body=connections.encode())

    def producer_connections(self, request: Request) -> Command:
        """204: who produces in a group."""
        header = GetProducerConnectionsRequest.decode(request.command.fields)
        members = self._members.producers(header.producer_group)
        if not members:
            remark = f"nobody is in producer group {header.producer_group!r}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        body = ProducerConnections(connection_set=_connections(members)).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def all_producers(self, request: Request) -> Command:
        """328: all producer groups."""
        groups = {
            name: [
                ConnectedProducer(
                    client_id=member.client_id,
                    language=LANGUAGES[member.language],
                    last_update_timestamp=member.seen_ms,
                    remote_ip=session.peer,
                    version=member.version,
                )
                for session, member in members.items()
            ]
            for name, members in self._members.producer_groups.items()
        }
        return request.command.answer(ResponseCode.SUCCESS, body=ProducerTable(data=groups).encode())

    def subscription(self, request: Request) -> Command:
        """345: what a group wants of a topic."""
        header = QuerySubscriptionRequest.decode(request.command.fields)
        group = self._members.consumers(header.group)
        topic = header.topic or ""
        found = group.subscriptions.get(topic) if group is not None else None
        body = GroupSubscription(group=header.group, subscription_data=found, topic=topic).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def lock(self, request: Request) -> Command | Awaitable[Command]:
        """41: a member of an ordered group wants queues for itself; the answer names those it has."""
        return _with_body(request, LockRequest, lambda wanted: self._locked(request.command, wanted))

    def _locked(self, command: Command, wanted: LockRequest) -> Command | Awaitable[Command]:
        if self._groups.find(wanted.consumer_group) is None:
            remark = f"subscription group {wanted.consumer_group!r} is not here; create it or check the spelling"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        # Queues that are not here are not granted, so there are never more locks than groups times queues.
        names = {QueueKey(name.topic, name.queue_id): name for name in wanted.mq_set if self._is_here(name)}
        held = self._locks.lock(wanted.consumer_group, wanted.client_id, names)
        body = LockAnswer(lock_ok_mq_set=[names[queue] for queue in held]).encode()
        answer = command.answer(ResponseCode.SUCCESS, body=body)
        return answer if self._locks.is_kept else self._when_kept(answer)

    async def _when_kept(self, answer: Command) -> Command:
        """A holder is told when a start would know of it too: who was told has begun to work."""
        await self._locks.kept()
        return answer

    def _is_here(self, name: QueueName) -> bool:
        topic = self._topics.find(name.topic)
        return topic is not None and 0 <= name.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)

    def unlock(self, request: Request) -> Command | Awaitable[Command]:
        """42: a member gives queues back."""
        return _with_body(request, UnlockRequest, lambda given: self._unlocked(request.command, given))

    def _unlocked(self, command: Command, given: UnlockRequest) -> Command:
        queues = [QueueKey(name.topic, name.queue_id) for name in given.mq_set]
        self._locks.unlock(given.consumer_group, given.client_id, queues)
        return command.answer(ResponseCode.SUCCESS)


def _with_body(
    request: Request, kind: type[B], answer: Callable[[B], Command | Awaitable[Command]]
) -> Command | Awaitable[Command]:
    body = bounded_body(request, BODY_SIZE_MAX)
    if len(body) <= _AT_ONCE_SIZE_MAX:
        return answer(kind.decode(body))
    return _with_large_body(request, kind, answer)


async def _with_large_body(
    request: Request, kind: type[B], answer: Callable[[B], Command | Awaitable[Command]]
) -> Command:
    body, session = request.command.body, request.session
    with place_of(session, len(body)) as place, alone(session):
        breathe = place.breather()
        read = await place.in_thread(lambda: decode_breathing(kind, body, breathe))
    answered = answer(read)
    return answered if isinstance(answered, Command) else await answered


def _connections(members: dict[Session, Member]) -> list[Connection]:
    return [
        Connection(
            client_addr=session.peer,
            client_id=member.client_id,
            language=LANGUAGES[member.language],
            version=member.version,
        )
        for session, member in members.items()
    ]
