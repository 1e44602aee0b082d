"""Requests about messages that wait: take a timed one back (370), and what slaves copy (45, 60, 61).

A recall is a timed message itself: a mark for the slot of the one it takes back, stored like any other. It is answered
when the mark is stored. Whether there was such a message is not known before its slot is delivered, and is never told.
"""

from bolide.broker.intake import Intake
from bolide.broker.later.delay import Delays
from bolide.broker.later.timers import Timers
from bolide.broker.sending.send import pack_peer
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import RecallMessageAnswer, RecallMessageRequest
from bolide.protocol.ids import RecallHandle, parse_recall_handle
from bolide.protocol.properties import encode_properties
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.record import Draft

_RECALL_TAG = "_RECALL_TAG_"
_UNAVAILABLE = "recall failed, broker service not available"


class LaterRequests:
    """Answers about what waits."""

    def __init__(self, state: BrokerState, intake: Intake, delays: Delays, timers: Timers | None) -> None:
        self._state = state
        self._settings = state.settings
        self._topics = state.topics
        self._intake = intake
        self._delays = delays
        self._timers = timers
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_check,
            RequestCode.GET_TIMER_METRICS: self.timer_counts,
        }

    def recall(self, request: Request) -> Reply:
        """370: a timed message is not to be delivered."""
        try:
            header = RecallMessageRequest.decode(request.command.fields)
            self._check_ready()
            handle = self._handle(header)
            end = self._mark(request, header, handle)
        except Refusal as refusal:
            return self._refused(request.command, refusal)
        fields = RecallMessageAnswer(message_id=handle.unique_id, region=self._settings.now.region).encode()
        answer = request.command.answer(ResponseCode.SUCCESS, fields=fields)
        return self._intake.when_safe(request, end, answer, refuse=self._refused)

    def _refused(self, command: Command, refusal: Refusal) -> Command:
        region = self._settings.now.region
        return command.answer(refusal.code, remark=refusal.remark, fields={names.REGION: region})

    def _check_ready(self) -> None:
        config = self._settings.now
        if not config.recalls:
            remark = "recall failed, operation is forbidden; set recallMessageEnable=true on the broker"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if self._state.is_slave:
            raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, f"{_UNAVAILABLE}: it is a slave")
        if self._clock.now_ms() < config.accepts_sends_from_ms:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{_UNAVAILABLE} yet (startAcceptSendRequestTimeStamp)")
        if not (self._state.may_write or config.recalls_unless_writable):
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{_UNAVAILABLE}: it is closed for writing")

    def _handle(self, header: RecallMessageRequest) -> RecallHandle:
        if self._topics.find(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = parse_recall_handle(header.recall_handle)
        config = self._settings.now
        left_ms = 0 if handle is None else handle.deliver_at - self._clock.now_ms()
        problem = None
        if handle is None:
            problem = "no recall handle"
        elif handle.topic != header.topic:
            problem = f"topic not match: the handle is of {handle.topic}"
        elif handle.broker_name != config.name:
            problem = f"the handle is of broker {handle.broker_name}, this is {config.name}"
        elif not 0 < left_ms < config.store.timer_delay_max_s * 1000:
            problem = "timestamp invalid: the message has been delivered, or was never taken"
        if handle is None or problem is not None:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {problem}")
        return handle

    def _mark(self, request: Request, header: RecallMessageRequest, handle: RecallHandle) -> int:
        """Store the mark; returns up to where the log must be safe for it."""
        now_ms, config = self._clock.now_ms(), self._settings.now.store
        key = f"{handle.topic}+{handle.unique_id}" if config.recall_names_topic else handle.unique_id
        properties = {
            names.TIMER_DELETE_UNIQUE_KEY: key,
            names.UNIQUE_KEY: handle.unique_id,
            names.TIMER_DELIVER_AT: str(handle.deliver_at),
            names.BORN_AT: str(now_ms),
            names.PRODUCER_GROUP: header.producer_group or "",
            names.TAGS: _RECALL_TAG,
        }
        where = self._intake.route(handle.topic, 0, {name: value for name, value in properties.items() if value})
        encoded = encode_properties(where.properties)
        peer = pack_peer(request.session.peer)
        return self._intake.append([Draft(where.topic, where.queue_id, b"0", encoded, 0, 0, now_ms, peer)]).end

    def delay_offsets(self, request: Request) -> Command:
        """45: how far each delay level is delivered."""
        return request.command.answer(ResponseCode.SUCCESS, body=self._delays.encoded())

    def timer_check(self, request: Request) -> Command:
        """60: how far the timer has come."""
        timers = self._required()
        return request.command.answer(ResponseCode.SUCCESS, body=timers.files.told.encoded())

    def timer_counts(self, request: Request) -> Command:
        """61: how many timed messages of each topic wait."""
        timers = self._required()
        return request.command.answer(ResponseCode.SUCCESS, body=timers.files.counts.encoded())

    def _required(self) -> Timers:
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "there is no timer here (timerWheelEnable)")
        return self._timers
