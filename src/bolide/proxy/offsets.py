"""PullMessage, GetOffset, UpdateOffset and QueryOffset: queues walked by the client itself.

Apache's proxy has none of them, and no released client asks; the protocol names them, and their meaning is plain.
"""

from functools import partial

from bolide.errors import BolideError, ProtocolError
from bolide.model.queue import QueueOffset
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetAnswer,
    PullMessageAnswer,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from bolide.protocol.records import decode_records
from bolide.proxy import messages as m
from bolide.proxy.back import Answer, asked
from bolide.proxy.calls import Call
from bolide.proxy.checks import group_name, millis, topic_name
from bolide.proxy.methods import Handler, status_of
from bolide.proxy.state import ProxyState
from bolide.proxy.statuses import Denied, denial_of, ok
from bolide.proxy.translation import delivered

_ANSWER_LIMIT_S = 3.0
_COUNT_MAX = 32
_SUSPEND, _SUBSCRIPTION = 2, 4  # of a pull's sysFlag
_NOTHING = {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}


class Offsets:
    """Pulls and offsets."""

    def __init__(self, state: ProxyState) -> None:
        self._state = state

    def handlers(self) -> dict[str, Handler]:
        return {
            "PullMessage": Handler(m.PullMessageRequest, m.PullMessageResponse, self.pull, refuse=_refuse_pull),
            "GetOffset": Handler(m.GetOffsetRequest, m.GetOffsetResponse, self.committed),
            "UpdateOffset": Handler(m.UpdateOffsetRequest, m.UpdateOffsetResponse, self.commit),
            "QueryOffset": Handler(m.QueryOffsetRequest, m.QueryOffsetResponse, self.query),
        }

    def pull(self, call: Call, request: m.PullMessageRequest) -> None:
        """Messages of one queue from an offset on; waits for one."""
        client, queue, config = self._state.clients.of(call), request.message_queue, self._state.config
        topic, group = topic_name(queue.topic), group_name(request.group)
        if request.offset < 0:
            raise Denied(m.Code.ILLEGAL_OFFSET, f"offset {request.offset} is below the first")
        poll_ms = min(millis(request.long_polling_timeout), config.polling_max_ms)
        expression = request.filter_expression
        header = PullMessageRequest(
            consumer_group=group,
            topic=topic,
            queue_id=queue.id,
            queue_offset=QueueOffset(request.offset),
            message_count_max=max(1, min(request.batch_size, _COUNT_MAX)),
            sys_flag=_SUBSCRIPTION | (_SUSPEND if poll_ms > 0 else 0),
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=poll_ms,
            subscription=expression.expression or "*",
            subscription_version=self._state.clock.now_ms(),
            expression_type="SQL92" if expression.type == m.FilterType.SQL else "TAG",
        )
        call.is_lasting = True
        command = Command(RequestCode.PULL_MESSAGE, fields=header.encode())
        limit_s = poll_ms / 1000 + _ANSWER_LIMIT_S
        call.when_gone(client.ask(queue.broker.name, command, limit_s, partial(self._pulled, call, topic)))

    def _pulled(self, call: Call, topic: str, answer: Answer) -> None:
        try:
            if isinstance(answer, Command) and answer.code in _NOTHING:
                raise Denied(m.Code.MESSAGE_NOT_FOUND, "no new message")
            if isinstance(answer, Command) and answer.code == ResponseCode.PULL_OFFSET_MOVED:
                raise Denied(m.Code.ILLEGAL_OFFSET, answer.remark or "there is no such offset in the queue")
            denial = denial_of(answer)
            if denial is not None or isinstance(answer, BolideError):
                assert denial is not None, "an error is no success"
                raise denial
            told, records = PullMessageAnswer.decode(answer.fields), decode_records(answer.body)
        except (Denied, BolideError, ProtocolError) as problem:
            _refuse_pull(call, status_of(problem, call))
            return
        call.write(m.PullMessageResponse(status=ok()))
        for record in records:
            call.write(m.PullMessageResponse(message=delivered(record, topic, self._state.clock.now_ms())))
        call.reply(m.PullMessageResponse(next_offset=told.next_offset))

    async def committed(self, call: Call, request: m.GetOffsetRequest) -> m.GetOffsetResponse:
        """How far a group has come in a queue."""
        queue = request.message_queue
        header = QueryConsumerOffsetRequest(
            consumer_group=group_name(request.group),
            topic=topic_name(queue.topic),
            queue_id=queue.id,
            is_zero_if_absent=False,
        )
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=header.encode())
        return m.GetOffsetResponse(status=ok(), offset=await self._offset(call, queue, command))

    async def commit(self, call: Call, request: m.UpdateOffsetRequest) -> m.UpdateOffsetResponse:
        """A group has come so far."""
        queue = request.message_queue
        if request.offset < 0:
            raise Denied(m.Code.ILLEGAL_OFFSET, f"offset {request.offset} is below the first")
        header = UpdateConsumerOffsetRequest(
            consumer_group=group_name(request.group),
            topic=topic_name(queue.topic),
            queue_id=queue.id,
            commit_offset=QueueOffset(request.offset),
        )
        await self._asked(call, queue, Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=header.encode()))
        return m.UpdateOffsetResponse(status=ok())

    async def query(self, call: Call, request: m.QueryOffsetRequest) -> m.QueryOffsetResponse:
        """Where a queue begins, ends, or was at a time."""
        queue, policy = request.message_queue, request.query_offset_policy
        topic, queue_id = topic_name(queue.topic), queue.id
        if policy == m.QueryOffsetPolicy.BEGINNING:
            fields = GetMinOffsetRequest(topic=topic, queue_id=queue_id).encode()
            command = Command(RequestCode.GET_MIN_OFFSET, fields=fields)
        elif policy == m.QueryOffsetPolicy.END:
            fields = GetMaxOffsetRequest(topic=topic, queue_id=queue_id).encode()
            command = Command(RequestCode.GET_MAX_OFFSET, fields=fields)
        else:
            at_ms = millis(request.timestamp)
            fields = SearchOffsetRequest(topic=topic, queue_id=queue_id, timestamp_ms=at_ms).encode()
            command = Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields=fields)
        return m.QueryOffsetResponse(status=ok(), offset=await self._offset(call, queue, command))

    async def _offset(self, call: Call, queue: m.MessageQueue, command: Command) -> int:
        return OffsetAnswer.decode((await self._asked(call, queue, command)).fields).offset

    async def _asked(self, call: Call, queue: m.MessageQueue, command: Command) -> Command:
        client = self._state.clients.of(call)
        answer = await asked(client, queue.broker.name, command, _ANSWER_LIMIT_S)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise Denied(m.Code.OFFSET_NOT_FOUND, answer.remark or "the group has no offset in this queue")
        denial = denial_of(answer)
        if denial is not None:
            raise denial
        return answer


def _refuse_pull(call: Call, found: m.Status) -> None:
    call.reply(m.PullMessageResponse(status=found))
