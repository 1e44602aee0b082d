"""Replies to requests (324, 325): what a responder sends goes straight on to the one who asked, on its own connection.

The requester is found by the client id that its request named; it must be a producer that has sent a heartbeat here. It
has ten seconds to take the reply (326), and the responder is told whether it did. Independently of that the reply is
stored in the topic it was sent to, `<cluster>_REPLY_TOPIC`, unless `storeReplyMessageEnable=false`; what cannot be
stored is logged and hides nothing of how the push went, as in RocketMQ.

Stored before the push is awaited, so that replies of one connection lie in the order in which they came.
"""

import logging

from bolide.broker.intake import Intake
from bolide.broker.sending.send import Sends, broker_properties, pack_peer
from bolide.broker.state import BrokerState
from bolide.errors import BolideError, ClientError, Refusal
from bolide.model import properties as names
from bolide.model.host import Host, unpack_ip
from bolide.model.queue import QueueOffset
from bolide.protocol import sysflags
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import PushReplyRequest
from bolide.protocol.headers.send import RefusedSendAnswer, SendMessageAnswer, SendMessageRequest
from bolide.protocol.properties import encode_properties, join_properties, parse_properties
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.record import Appended, Draft

PUSH_LIMIT_S = 10.0
NOT_STORED = "0"  # Java's client takes an id apart, so there must be one
log = logging.getLogger(__name__)


class Replies:
    """Passes replies on."""

    def __init__(self, state: BrokerState, intake: Intake, sends: Sends) -> None:
        self._intake = intake
        self._sends = sends
        self._members = state.members
        self._store = state.store
        self._settings = state.settings
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys((RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply)

    async def reply(self, request: Request) -> Reply:
        """324, 325: a reply, with the checks of a send."""
        command = request.command
        try:
            header, queue_id = self._sends.admitted(request, short=command.code != RequestCode.SEND_REPLY_MESSAGE)
        except Refusal as refusal:
            return self._intake.refused(command, refusal)
        properties = parse_properties(header.properties or "") | self._added()
        stored = self._stored(request, header, queue_id, properties) if self._may_store(request, header) else None
        problem = await self._push(request, header, properties)
        fields = self._fields(queue_id, stored, is_pushed=problem is None)
        if problem is not None:
            log.warning("reply not passed on: %s", problem)
            return command.answer(ResponseCode.SYSTEM_ERROR, remark=problem, fields=fields)
        answer = command.answer(ResponseCode.SUCCESS, fields=fields)
        if stored is None:
            return answer

        def lost(command: Command, refusal: Refusal) -> Command:
            log.warning("reply not stored topic=%s problem=%s", header.topic, refusal)
            return command.answer(ResponseCode.SUCCESS, fields=self._fields(queue_id, None, is_pushed=True))

        return self._intake.when_safe(request, stored.end, answer, refuse=lost)

    def _may_store(self, request: Request, header: SendMessageRequest) -> bool:
        """To pass a reply on needs no right, to store something does."""
        may_send = self._members.may_send
        return self._settings.now.stores_replies and (may_send is None or may_send(request.session, header.topic))

    def _added(self) -> dict[str, str]:
        """What a broker writes into a reply: as into every message, but for the cluster, as 5.x does."""
        added = broker_properties(self._settings.now)
        del added[names.CLUSTER]
        return added

    def _fields(self, queue_id: int, stored: Appended | None, *, is_pushed: bool) -> dict[str, str]:
        settings = self._settings.now
        if stored is None and not is_pushed:
            return RefusedSendAnswer(region=settings.region, is_traced=settings.is_traced).encode()
        offset_id, queue_offset = NOT_STORED, 0
        if stored is not None:
            place, queue_offset = stored.physical_offsets[0], stored.queue_offsets[0]
            offset_id = (self._store.store_host + place.to_bytes(8, "big")).hex().upper()
        return SendMessageAnswer(
            region=settings.region,
            is_traced=settings.is_traced,
            message_id=offset_id,
            queue_id=queue_id,
            queue_offset=QueueOffset(queue_offset),
        ).encode()

    def _stored(
        self, request: Request, header: SendMessageRequest, queue_id: int, properties: dict[str, str]
    ) -> Appended | None:
        """Where the reply lies in its topic; None if it could not be stored."""
        draft = Draft(
            header.topic,
            queue_id,
            request.command.body,
            encode_properties(properties),
            header.flag,
            header.sys_flag & ~sysflags.TRANSACTION_MASK,
            header.born_ms,
            pack_peer(request.session.peer),
            header.reconsume_times or 0,
        )
        try:
            return self._intake.append([draft])
        except BolideError as problem:
            log.warning("reply not stored topic=%s problem=%s", header.topic, problem)
            return None

    async def _push(self, request: Request, header: SendMessageRequest, properties: dict[str, str]) -> str | None:
        """Hand the reply to the one who asked; returns what went wrong, None if it was taken."""
        client_id = properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"the reply does not say whose request it answers (property {names.REPLY_TO_CLIENT})"
        session = self._members.producer_session(client_id)
        if session is None:
            return f"client {client_id!r}, which asked, has no connection to this broker"
        now_ms = self._clock.now_ms()
        pushed = PushReplyRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_count=header.default_topic_queue_count,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_ms=header.born_ms,
            flag=header.flag,
            properties=join_properties({**properties, names.REPLY_PUSHED_AT: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            is_unit_mode=header.is_unit_mode,
            born_host=request.session.peer,
            store_host=_host(self._store.store_host),
            stored_ms=now_ms,
        )
        question = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields=pushed.encode(), body=request.command.body)
        try:
            answer = await session.request(question, PUSH_LIMIT_S)
        except ClientError as problem:
            return f"client {client_id!r}, which asked, did not take the reply: {problem}"
        if answer.code != ResponseCode.SUCCESS:
            return f"client {client_id!r}, which asked, refused the reply: {answer.remark or answer.code}"
        return None


def _host(packed: bytes) -> str:
    return str(Host(unpack_ip(packed[:-4]), int.from_bytes(packed[-4:], "big")))
