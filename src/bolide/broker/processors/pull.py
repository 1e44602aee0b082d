"""Requests 11 and 361: messages of one queue from an offset on.

Nothing is delivered without one: a push consumer is a client that always has a pull with us. The order of the checks
and the code for each state of the queue are RocketMQ's, for every client reads its next step from them: 19 means wait
here, 20 go on from the offset in the answer, 21 jump to it. A pull that would be answered with 19 is parked instead
(`longpoll.py`) if it says so; when it is resumed all checks run again, but it commits nothing and is not parked twice.

Pulls are answered a read at a time (`take`): the kernel reads the requests and copies the records into one frame. What
it leaves goes the plain way, with the same bytes as its result.

Whether a message is wanted is decided by the tag hash in its queue entry; the message itself is not looked at. A
group's filter comes with its heartbeats, and a pull that knows a newer one than we do is turned away (25): filtered by
the older, it would pass over messages it wants.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from bolide import kernel
from bolide.broker.config import BrokerConfig, CurrentConfig
from bolide.broker.groups import BUILT_IN_GROUPS, READ_BIT, Groups
from bolide.broker.longpoll import ParkedPull, ParkedPulls
from bolide.broker.members import Members
from bolide.broker.offsets import Offsets
from bolide.broker.stats import Stats
from bolide.broker.topics import PERM_READ, Topics
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.filter.tags import is_tag_type, parse_tags, tag_hashes
from bolide.kernel.plain_pulls import Pull as PullFields
from bolide.model.queue import QueueKey, QueueOffset
from bolide.model.topics import SYSTEM_GROUP_PREFIX
from bolide.protocol.bodies import ConsumeType, GroupConfig, MessageModel, Subscription, TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import VERSION, Command
from bolide.protocol.headers import PullMessageAnswer, PullMessageRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import LARGE_SIZE, Session
from bolide.store.read import PullStatus
from bolide.store.store import Store

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4
_LANES_MAX = 10_000
_EXPRESSION_LENGTH_MAX = 256
# What one pull may ask for: entries are looked at on the loop, and a frame of 16 MiB ends a connection.
_COUNT_MAX = 8_000
_SIZE_MAX = 15 << 20
_TAKEN_SIZE_MAX = 1 << 20  # answered at once to what one read brought

_CODES = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    PullStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    # Nothing was ever stored there: for who begins, there is nothing yet; for others, their offset is of another queue.
    PullStatus.NO_MATCHED_LOGIC_QUEUE: None,
    PullStatus.NO_MESSAGE_IN_QUEUE: None,
}
_RESET = "OFFSET_RESET"


class Pull(NamedTuple):
    """What a pull asks for. `expression` and its type count only with SUBSCRIPTION_FLAG."""

    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    size_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    version: int
    expression: str | None
    expression_type: str | None

    @property
    def limits(self) -> tuple[int, int]:
        """How many messages and how many bytes of them it may get at most."""
        size_max = min(self.size_max, _SIZE_MAX) if self.size_max > 0 else _SIZE_MAX
        return min(self.count_max, _COUNT_MAX), size_max


class _Allowed(NamedTuple):
    """A pull that passed the checks: the tag hashes it wants (None: all), and what it is about."""

    wanted: frozenset[int] | None
    topic: TopicConfig
    group: GroupConfig
    is_special: bool  # its answers say more than those of others


class _Lane(NamedTuple):
    """What was found of a group that pulls a topic again and again, and what it was found from."""

    allowed: _Allowed
    config: BrokerConfig
    subscription: Subscription
    model: MessageModel


class _Found(NamedTuple):
    """What a pull is told: the code, why, and where to go on."""

    code: ResponseCode
    remark: str
    views: list[memoryview]
    next_offset: int
    min_offset: int
    max_offset: int


class Pulls:
    """Answers pulls; the first run of each and, for those parked, the second."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: Offsets,
        store: Store,
        parked: ParkedPulls,
        current: CurrentConfig,
        stats: Stats,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._store = store
        self._parked = parked
        self._current = current
        self._stats = stats
        self._clock = clock
        self._lanes: dict[tuple[str, str], _Lane] = {}
        # The same for pulls that bring their expression along: by group, topic, expression and its type.
        self._asked: dict[tuple[str, str, str | None, str | None], tuple[_Allowed, BrokerConfig]] = {}
        topics.on_change.append(self._forget_lanes)
        groups.on_change.append(self._forget_lanes)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def take(self, session: Session, stream: memoryview, bounds: list[int]) -> tuple[bytes, list[int]]:
        """Answer the pulls of one read; returns the answers and the bounds of what is left to be served one by one.

        Those that wait are parked and done with; those to be refused are left, for refusals are told there. So are
        those beyond a measure of answers: there, whoever does not take what he has been given gets no more.
        """
        requests = kernel.read_pulls(stream, bounds)
        if not any(requests):
            return b"", bounds
        frames: list[bytes] = []
        left: list[int] = []
        size = 0
        for i, read in enumerate(requests):
            frame = None if read is None or size > _TAKEN_SIZE_MAX else self._take(session, *read)
            if frame is None:
                left += bounds[2 * i : 2 * i + 2]
            else:
                frames.append(frame)
                size += len(frame)
        return b"".join(frames), left

    def _take(self, session: Session, codec: int, code: int, opaque: int, fields: PullFields) -> bytes | None:
        pull = Pull._make(fields)
        try:
            allowed = self._check(pull)
            frame = self._gather(codec, opaque, pull, allowed)
            if frame is not None:
                self._commit(pull)
                return frame
            request = Request(Command(code, opaque=opaque, codec=codec), session, self._clock.monotonic_s())
            reply = self._first(request, pull, allowed)
        except Refusal:
            return None
        if reply is None:
            return b""
        answer = reply.encode()
        return answer if len(answer) <= self._current.config.listen.frame_size_max else None

    def pull(self, request: Request) -> Reply:
        """11 and 361."""
        pull = read_pull(PullMessageRequest.decode(request.command.fields))
        return self._first(request, pull, self._check(pull))

    def _first(self, request: Request, pull: Pull, allowed: _Allowed) -> Reply:
        """The first run of a pull: it may commit an offset, and it may be parked."""
        found = self._find(pull, allowed)
        self._note(pull, found)
        if found.remark != _RESET:  # who was just reset commits where he was before: that must not undo it
            self._commit(pull)
        if (
            found.code is ResponseCode.PULL_NOT_FOUND
            and pull.sys_flag & SUSPEND_FLAG
            and found.next_offset == pull.offset
            and not request.command.is_oneway
        ):
            self._park(request, pull, allowed)
            return None
        return self._reply(request, allowed, found)

    def _park(self, request: Request, pull: Pull, allowed: _Allowed) -> None:
        # The fields were read: a pull that waits need not keep their texts.
        request.command.fields = {}
        place = pull.topic, pull.queue_id
        resume = functools.partial(self._resume, request, pull)
        parked = ParkedPull(request, place, pull.offset, allowed.wanted, resume, pull.group)
        self._parked.park(parked, pull.suspend_ms)

    def _resume(self, request: Request, pull: Pull) -> Reply:
        """The second run of a parked pull: it is answered, whatever is found."""
        allowed = self._check(pull)
        frame = self._gather(request.command.codec, request.command.opaque, pull, allowed)
        if frame is not None:
            request.session.push(frame)
            return None
        found = self._find(pull, allowed)
        self._note(pull, found)
        return self._reply(request, allowed, found)

    # May it?

    def _check(self, pull: Pull) -> _Allowed:
        """All checks; those that cannot have changed since the group's last pull are not made again."""
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            known = self._asked.get((pull.group, pull.topic, pull.expression, pull.expression_type))
            is_same = known is not None and known[1] is self._current.config
            if known is None or not is_same or not 0 <= pull.queue_id < known[0].topic.read_queue_nums:
                return self._judge(pull)
            return known[0]
        lane = self._lanes.get((pull.group, pull.topic))
        if lane is None or not self._is_in(lane, pull):
            return self._judge(pull)
        return lane.allowed

    def _is_in(self, lane: _Lane, pull: Pull) -> bool:
        # Changes of topics and groups have cleared the lanes, so these are all that is left to compare.
        members = self._members.consumers(pull.group)
        return (
            members is not None
            and members.subscriptions.get(pull.topic) is lane.subscription
            and members.model is lane.model
            and pull.version <= lane.subscription.sub_version
            and 0 <= pull.queue_id < lane.allowed.topic.read_queue_nums
            and self._current.config is lane.config
        )

    def _forget_lanes(self, names: list[str]) -> None:
        self._lanes.clear()
        self._asked.clear()

    def _judge(self, pull: Pull) -> _Allowed:
        config = self._current.config
        if not config.permission & PERM_READ:
            raise _forbidden(f"this broker, {config.name}, may not be read: brokerPermission is {config.permission}")
        group = self._groups.find(pull.group)
        if group is None:
            remark = f"there is no subscription group {pull.group!r}, and it may not be made by itself; create it"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise _forbidden(f"group {pull.group!r} may not consume: its consumeEnable is false")
        topic = self._topics.find(pull.topic)
        if topic is None:
            remark = f"topic {pull.topic!r} is not here; create it or check the spelling"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            raise _forbidden(f"topic {pull.topic!r} may not be read: its permission is {topic.perm}")
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            remark = f"queue {pull.queue_id} of {pull.topic!r} is not there: it has {topic.read_queue_nums} to read"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        wanted, subscription, model = self._wanted(pull, group)
        if self._groups.is_forbidden(pull.group, pull.topic, READ_BIT):
            raise _forbidden(f"group {pull.group!r} may not read topic {pull.topic!r}: an administrator forbade it")
        is_special = bool(config.reads_from_slave or topic.topic_sys_flag or group.group_sys_flag)
        allowed = _Allowed(wanted, topic, group, is_special)
        if not config.refuses_pulls:
            self._remember(pull, allowed, subscription, model)
        return allowed

    def _remember(self, pull: Pull, allowed: _Allowed, subscription: Subscription | None, model: MessageModel) -> None:
        """The next pull of its kind need not be judged; what is remembered has a bound, in number and in size."""
        if len(self._lanes) + len(self._asked) >= _LANES_MAX:
            self._forget_lanes([])
        config = self._current.config
        if subscription is not None:
            self._lanes[pull.group, pull.topic] = _Lane(allowed, config, subscription, model)
        elif len(pull.expression or "") <= _EXPRESSION_LENGTH_MAX:
            self._asked[pull.group, pull.topic, pull.expression, pull.expression_type] = allowed, config

    def _wanted(
        self, pull: Pull, group: GroupConfig
    ) -> tuple[frozenset[int] | None, Subscription | None, MessageModel]:
        """The tag hashes to filter by, and whose they are if they came with a heartbeat."""
        members = self._members.consumers(pull.group)
        is_active = members is None or members.consume_type is ConsumeType.CONSUME_ACTIVELY
        if is_active and self._current.config.refuses_pulls and not _is_system(pull.group):
            raise _forbidden("pull consumers are refused here: rejectPullConsumerEnable is true")
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            self._check_type(pull.expression_type)
            return _parsed(lambda: tag_hashes(parse_tags(pull.expression))), None, MessageModel.CLUSTERING
        if members is None:
            remark = f"group {pull.group!r} has no member here; a heartbeat must come first"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if members.model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise _forbidden(f"group {pull.group!r} may not broadcast: its consumeBroadcastEnable is false")
        subscription = members.subscriptions.get(pull.topic)
        if subscription is None:
            remark = f"group {pull.group!r} did not subscribe to {pull.topic!r}; its last heartbeat names other topics"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < pull.version:
            remark = (
                f"the subscription of {pull.group!r} to {pull.topic!r} has version {subscription.sub_version} here and "
                f"{pull.version} in the pull; a heartbeat with the newer one must come first"
            )
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        self._check_type(subscription.expression_type)
        return _parsed(lambda: subscription_filter(subscription)), subscription, members.model

    def _check_type(self, expression_type: str | None) -> None:
        if is_tag_type(expression_type):
            return
        reason = "this version of the broker filters by tags only"
        if not self._current.config.has_property_filter:
            reason = "enablePropertyFilter is false"
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"messages are not filtered by {expression_type} here: {reason}")

    # What is there?

    def _find(self, pull: Pull, allowed: _Allowed) -> _Found:
        reset = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id)
        if reset is not None:
            queue = self._store.queue(QueueKey(pull.topic, pull.queue_id))
            low, high = (0, 0) if queue is None else (queue.min_offset, queue.next_offset)
            return _Found(ResponseCode.PULL_OFFSET_MOVED, _RESET, [], reset, low, high)
        count_max, size_max = pull.limits
        key = QueueKey(pull.topic, pull.queue_id)
        slices = self._store.read(key, pull.offset, count_max, allowed.wanted, size_max=size_max)
        code = _CODES[slices.status]
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if pull.offset else ResponseCode.PULL_NOT_FOUND
        next_offset = slices.next_offset
        if code is ResponseCode.PULL_OFFSET_MOVED and self._store.config.role == "SLAVE":
            # A slave may lag behind: the master knows better which offsets there are.
            code, next_offset = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.offset
        return _Found(code, slices.status.value, slices.views, next_offset, slices.min_offset, slices.max_offset)

    def _gather(self, codec: int, opaque: int, pull: Pull, allowed: _Allowed) -> bytes | None:
        """The usual case in one piece: a frame with messages, as `_find` and `_answer` would make it; else None."""
        queue = self._store.dispatch.queues.get((pull.topic, pull.queue_id))
        if queue is None or not queue.min_offset <= pull.offset < queue.next_offset:
            return None
        if allowed.is_special or self._offsets.has_reset(pull.group, pull.topic, pull.queue_id):
            return None
        count_max, size_max = pull.limits
        stretch = self._store.reader.stretch(queue, pull.offset, count_max, allowed.wanted is not None)
        if stretch is None or stretch.first_size >= LARGE_SIZE:
            return None
        answer = kernel.answer_pull(
            codec,
            opaque,
            VERSION,
            0,
            pull.offset,
            queue.min_offset,
            queue.next_offset,
            stretch.entries,
            allowed.wanted,
            stretch.log_min,
            stretch.near_from,
            count_max,
            size_max,
            stretch.near_limits,
            stretch.far_limits,
            stretch.log,
            stretch.log_base,
        )
        if answer is None or len(answer[0]) > self._current.config.listen.frame_size_max:
            return None
        frame, count, size, scanned = answer
        self._stats.got(pull.group, pull.topic, count, size)
        self._offsets.put_pulled(pull.group, pull.topic, pull.queue_id, pull.offset + scanned)
        return frame

    def _note(self, pull: Pull, found: _Found) -> None:
        if found.code is ResponseCode.SUCCESS:
            self._stats.got(pull.group, pull.topic, len(found.views), sum(map(len, found.views)))
        else:
            self._stats.missed()
        self._offsets.put_pulled(pull.group, pull.topic, pull.queue_id, found.next_offset)

    def _commit(self, pull: Pull) -> None:
        if pull.sys_flag & COMMIT_FLAG and pull.commit_offset >= 0 and self._store.config.role != "SLAVE":
            self._offsets.put(pull.group, pull.topic, pull.queue_id, pull.commit_offset)

    def _reply(self, request: Request, allowed: _Allowed, found: _Found) -> Reply:
        """The answer; a message too large for company is sent from where it lies in the log, without a copy."""
        if len(found.views) != 1 or len(found.views[0]) < LARGE_SIZE or request.command.is_oneway:
            return self._answer(request.command, allowed, found, b"".join(found.views))
        head = bytearray(self._answer(request.command, allowed, found, b"").encode())
        size = len(head) + len(found.views[0])
        if size > self._current.config.listen.frame_size_max:
            return self._answer(request.command, allowed, found, bytes(found.views[0]))  # to be refused by the session
        head[:4] = (size - 4).to_bytes(4, "big")
        request.session.push(bytes(head))
        request.session.push(found.views[0])
        return None

    def _answer(self, command: Command, allowed: _Allowed, found: _Found, body: bytes) -> Command:
        header = PullMessageAnswer(
            suggested_broker_id=self._suggested(allowed.group, found),
            next_offset=QueueOffset(found.next_offset),
            min_offset=QueueOffset(found.min_offset),
            max_offset=QueueOffset(found.max_offset),
            topic_sys_flag=allowed.topic.topic_sys_flag or None,
            group_sys_flag=allowed.group.group_sys_flag or None,
        )
        return command.answer(found.code, remark=found.remark, fields=header.encode(), body=body)

    def _suggested(self, group: GroupConfig, found: _Found) -> int:
        """Where the next pull should go: who reads far behind the end of the log may be sent to a slave."""
        config = self._current.config
        if not config.reads_from_slave:
            return 0
        is_slow = bool(found.views) and self._store.reader.is_far(physical_offset_of(found.views[-1]))
        if config.broker_id and not is_slow:
            return 0
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id


def read_pull(header: PullMessageRequest) -> Pull:
    """What a request's fields ask for."""
    return Pull(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.message_count_max,
        header.answer_size_max or 0,
        header.sys_flag,
        header.commit_offset,
        header.suspend_timeout_ms,
        header.subscription_version,
        header.subscription,
        header.expression_type,
    )


def subscription_filter(subscription: Subscription) -> frozenset[int] | None:
    """The tag hashes of a subscription that came with a heartbeat.

    Its tags are hashed here too: the Go client hashes others than ASCII otherwise than Java does. A group in class
    filter mode gets everything, for its filter stands between us and the consumer.
    """
    tags = parse_tags(subscription.sub_string)
    if tags is None or subscription.class_filter_mode:
        return None
    return frozenset(subscription.code_set) | (tag_hashes(tags) or frozenset())


def _parsed(parse: Callable[[], frozenset[int] | None]) -> frozenset[int] | None:
    try:
        return parse()
    except ValueError as problem:
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription: {problem}") from None


def physical_offset_of(record: memoryview) -> int:
    """Where a record lies in the log, as it says itself."""
    return int.from_bytes(record[28:36], "big")


def _is_system(group: str) -> bool:
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def _forbidden(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)
