"""Questions of an administrator that only a client can answer: the broker asks it and passes the answer on.

The client is asked on the connection it opened, and has a limit in time. Only the fields of the question are passed on:
the asker's signature is no business of the client's.
"""

import asyncio
import logging

from bolide.broker.members.members import Member
from bolide.broker.state import BrokerState
from bolide.errors import ClientError, Refusal, RequestTimeout
from bolide.model.message import parse_offset_id
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import ConsumerStatus
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import ConsumeDirectlyRequest, GetConsumerStateRequest, GetConsumerStatusRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request, Session
from bolide.store.record import decode

CALL_LIMIT_S = 10.0
STATUS_LIMIT_S = 5.0
_ASKED_MAX = 1_000
_STATUS_SIZE_MAX = 256 * 1024
log = logging.getLogger(__name__)


class Forwarding:
    """Asks clients on behalf of administrators."""

    def __init__(self, state: BrokerState) -> None:
        self._settings = state.settings
        self._members = state.members
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_state,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    async def running_state(self, request: Request) -> Command:
        """307: everything a consumer can say about itself."""
        header = GetConsumerStateRequest.decode(request.command.fields)
        question = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields=header.encode())
        return await self._pass_on(request.command, question, header.consumer_group, header.client_id)

    async def consume_directly(self, request: Request) -> Command:
        """309: have one message consumed now, by the member that is named or else the first."""
        header = ConsumeDirectlyRequest.decode(request.command.fields)
        place = parse_offset_id(header.message_id or "")
        record = self._store.record_at(place.physical_offset) if place is not None else None
        if record is None:
            remark = f"message {header.message_id!r} is not here: give the offset id of a message of this broker"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        config = self._topics.find(header.topic or decode(record).topic)
        group = self._groups.get(header.consumer_group)
        fields = header.encode() | {
            "brokerName": self._settings.now.name,
            "topicSysFlag": str(config.topic_sys_flag if config is not None else 0),
            "groupSysFlag": str(group.group_sys_flag if group is not None else 0),
        }
        question = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields=fields, body=bytes(record))
        return await self._pass_on(request.command, question, header.consumer_group, header.client_id)

    async def status(self, request: Request) -> Command:
        """223: which offsets the members of a group are at, or the one that is named; who is slow is left out."""
        header = GetConsumerStatusRequest.decode(request.command.fields)
        group = self._members.consumers(header.group)
        wanted = header.client_address or ""
        channels = group.channels.items() if group is not None else ()
        members = [each for each in channels if not wanted or each[1].client_id == wanted]
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no {wanted or 'member'} of group {header.group!r} is online")
        fields = GetConsumerStatusRequest(topic=header.topic, group=header.group).encode()
        found: dict[str, dict[MessageQueue, int]] = {}
        async with asyncio.TaskGroup() as asking:
            for session, member in members[:_ASKED_MAX]:
                question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields=fields)
                asking.create_task(_ask_status(session, member, question, found), name="forwarding.status")
        return request.command.answer(ResponseCode.SUCCESS, body=ConsumerStatus(consumer_table=found).encode())

    async def _pass_on(self, command: Command, question: Command, group: str, client_id: str | None) -> Command:
        members = self._members.consumers(group)
        found = members.member(client_id) if members is not None else None
        who = f"client {client_id!r} of group {group!r}" if client_id else f"group {group!r}"
        if found is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"{who} is not online here")
        session, _ = found
        try:
            answer = await session.request(question, CALL_LIMIT_S)
        except RequestTimeout:
            remark = f"{who} did not answer within {CALL_LIMIT_S:g} s"
            raise Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except ClientError as problem:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"{who} left before it answered: {problem}") from None
        return command.answer(answer.code, remark=answer.remark, fields=answer.fields, body=answer.body)


async def _ask_status(
    session: Session, member: Member, question: Command, found: dict[str, dict[MessageQueue, int]]
) -> None:
    try:
        answer = await session.request(question, STATUS_LIMIT_S)
        if answer.code == ResponseCode.SUCCESS and 0 < len(answer.body) <= _STATUS_SIZE_MAX:
            found[member.client_id] = ConsumerStatus.decode(answer.body).message_queue_table
    except (ClientError, Refusal) as problem:
        log.info("client left out client=%s peer=%s: %s", member.client_id, session.peer, problem)
