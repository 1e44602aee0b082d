"""Who is connected: the members of consumer and producer groups, as their heartbeats tell.

A member is a connection, not a client id: it joins with its first heartbeat, stays as long as it says so every two
minutes, and leaves when it says goodbye, falls silent or hangs up. A consumer group is what its members told last: its
topics are those of the latest heartbeat, as in RocketMQ, which is why all members must subscribe alike
(`conflicts.py` notices if they do not).

Whenever the members or the topics of a group change, every member is told (`notices.py`), for they share the queues
among themselves. RocketMQ forgets to tell when silence is the reason; here nobody waits 20 seconds to notice. A client
that is silent in one group and alive in another keeps its connection.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.broker.config import LiveConfig
from bolide.broker.members.conflicts import Agreement, SubscriptionRefused
from bolide.broker.members.notices import Notices, Tell
from bolide.broker.tables.groups import Groups
from bolide.broker.tables.topics import PERM_READ_WRITE, Topics
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.model.topics import retry_topic
from bolide.protocol.bodies import (
    ConsumeFrom,
    ConsumerMember,
    ConsumeType,
    GroupConfig,
    Heartbeat,
    MessageModel,
    Subscription,
)
from bolide.protocol.codes import ResponseCode
from bolide.remoting.session import Session

SCAN_INTERVAL_S = 10
SILENCE_MAX_S = 120
# What one connection may join and subscribe to; the largest known clients stay a hundred times below.
GROUPS_MAX = 1_000
SUBSCRIPTIONS_MAX = 20_000
# Under this many ids one connection is found by who replies to it. A client has one; what joins several has a few.
CLIENT_IDS_MAX = 64
_UNIT_SUBSCRIPTION_FLAG = 2
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One connection in one group. `seen_s` is the steady clock's, `seen_ms` the wall's."""

    client_id: str
    language: int
    version: int
    seen_s: float
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group, and what they want. A group that nobody is in any more is not kept."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.CONSUME_FROM_LAST_OFFSET
    fingerprint: int | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    channels: dict[Session, Member] = field(default_factory=dict)
    agreement: Agreement = field(init=False)

    def __post_init__(self) -> None:
        self.agreement = Agreement(self.name)

    def follow(self, subscriptions: Iterable[Subscription]) -> bool:
        """Take over what a member wants now; true if topics came or went. A newer version alone is no change."""
        wanted = {each.topic: each for each in subscriptions}
        is_changed = wanted.keys() != self.subscriptions.keys()
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is not None and known.sub_version >= subscription.sub_version:
                wanted[topic] = known
        self.subscriptions = wanted
        return is_changed

    def member(self, client_id: str | None) -> tuple[Session, Member] | None:
        """The first member that calls itself so, or the first of all."""
        return next((each for each in self.channels.items() if client_id in (None, each[1].client_id)), None)


@dataclass(slots=True)
class _Joined:
    """The groups a connection is in, and the client ids it produces under, the oldest first."""

    consumers: set[str] = field(default_factory=set)
    producers: set[str] = field(default_factory=set)
    client_ids: dict[str, None] = field(default_factory=dict)


class _Claim(NamedTuple):
    """The connection that a client last produced on, and as which user."""

    session: Session
    user: str


class Members:
    """All groups with somebody in them."""

    def __init__(
        self, settings: LiveConfig, groups: Groups, topics: Topics, clock: Clock, tell: Tell = Session.send
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._clock = clock
        self.notices = Notices(self._sessions_of, tell)
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.producer_groups: dict[str, dict[Session, Member]] = {}
        self._joined: dict[Session, _Joined] = {}
        self._producing: dict[str, _Claim] = {}  # by client id
        # where access is checked: may it send to a topic, and who is it
        self.may_send: Callable[[Session, str], bool] | None = None
        self.user_of: Callable[[Session], str] | None = None
        self._turn = 0
        self._on_subscribed: list[Callable[[str, list[Subscription]], None]] = []
        self._on_empty: list[Callable[[str], None]] = []
        self._on_parted: list[Callable[[Session, str, str | None], None]] = []

    def listen(self, on_subscribed: Callable[[str, list[Subscription]], None], on_empty: Callable[[str], None]) -> None:
        """Have it told with each heartbeat what a consumer group subscribes to, and when its last member left."""
        self._on_subscribed.append(on_subscribed)
        self._on_empty.append(on_empty)

    def when_parted(self, tell: Callable[[Session, str, str | None], None]) -> None:
        """Have it told which connection consumes a topic of a group no more; None: any topic of it."""
        self._on_parted.append(tell)

    def consumers(self, group: str) -> ConsumerGroup | None:
        """The group, if anybody is in it."""
        return self.consumer_groups.get(group)

    def producers(self, group: str) -> dict[Session, Member]:
        """The members of a producer group by connection; empty if nobody is in it."""
        return self.producer_groups.get(group, {})

    def producer_session(self, client_id: str) -> Session | None:
        """The connection of a client that is a producer here."""
        claim = self._producing.get(client_id)
        return None if claim is None else claim.session

    def has_producer(self, group: str) -> bool:
        """Whether anybody of the group is connected."""
        return any(session.is_open for session in self.producer_groups.get(group, ()))

    def producer(self, group: str, topic: str) -> Session | None:
        """One producer of the group who may send to the topic, another each time.

        One that reads what it is sent, if there is such a one. Anybody can say that he is of a group.
        """
        live = [session for session in self.producer_groups.get(group, ()) if session.is_open]
        if self.may_send is not None:
            live = [session for session in live if self.may_send(session, topic)]
        if not live:
            return None
        self._turn += 1
        willing = [session for session in live if session.is_writable] or live
        return willing[self._turn % len(willing)]

    def _sessions_of(self, group: str) -> Iterable[Session]:
        members = self.consumer_groups.get(group)
        return members.channels if members is not None else ()

    # Coming

    def heard(self, session: Session, heartbeat: Heartbeat, language: int, version: int) -> bool:
        """A heartbeat; returns whether the client should send its subscriptions with the next one."""
        self._check_size(session, heartbeat)
        wants_more = heartbeat.heartbeat_fingerprint == 0
        refused: SubscriptionRefused | None = None
        for told in heartbeat.consumer_data_set:
            if told.consume_type is ConsumeType.CONSUME_ACTIVELY and self._settings.now.refuses_pulls:
                continue
            config = self._groups.find(told.group_name)
            if config is None:
                log.info("heartbeat passed over: no group %r, client=%s", told.group_name, heartbeat.client_id)
                continue
            sys_flag = _UNIT_SUBSCRIPTION_FLAG if told.unit_mode else 0
            self._topics.ensure(
                retry_topic(told.group_name), max(1, config.retry_queue_nums), PERM_READ_WRITE, sys_flag
            )
            member = self._member(heartbeat.client_id, language, version)
            try:
                wants_more |= self._consume(session, member, told, config, heartbeat)
            except SubscriptionRefused as refusal:
                refused = refusal
        for producer in heartbeat.producer_data_set:
            self._produce(session, self._member(heartbeat.client_id, language, version), producer.group_name)
        if refused is not None:
            raise refused  # its other groups, and what it produces, have been heard
        return wants_more

    def _check_size(self, session: Session, heartbeat: Heartbeat) -> None:
        joined = self._joined.get(session) or _Joined()
        consumers = joined.consumers | {told.group_name for told in heartbeat.consumer_data_set}
        producers = joined.producers | {told.group_name for told in heartbeat.producer_data_set}
        subscription_count = sum(len(told.subscription_data_set) for told in heartbeat.consumer_data_set)
        if max(len(consumers), len(producers)) > GROUPS_MAX or subscription_count > SUBSCRIPTIONS_MAX:
            remark = (
                f"{len(consumers)} consumer groups, {len(producers)} producer groups and {subscription_count} "
                f"subscriptions on one connection; at most {GROUPS_MAX} of each and {SUBSCRIPTIONS_MAX} subscriptions "
                "are kept: use several clients"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _member(self, client_id: str, language: int, version: int) -> Member:
        return Member(client_id, language, version, self._clock.monotonic_s(), self._clock.now_ms())

    def _consume(
        self, session: Session, member: Member, told: ConsumerMember, config: GroupConfig, heartbeat: Heartbeat
    ) -> bool:
        group = self.consumer_groups.get(told.group_name)
        if group is not None and self._settings.now.refuses_conflicts and not heartbeat.without_sub:
            group.agreement.check(session, member.client_id, told)
        if group is None:
            group = self.consumer_groups[told.group_name] = ConsumerGroup(told.group_name)
        group.consume_type = told.consume_type or group.consume_type
        group.model = told.message_model or group.model
        group.consume_from = told.consume_from_where or group.consume_from
        is_changed = _join(group.channels, session, member, told.group_name)
        self._joined.setdefault(session, _Joined()).consumers.add(told.group_name)
        is_known = group.fingerprint == heartbeat.heartbeat_fingerprint
        if not heartbeat.without_sub:
            is_known = group.fingerprint is None or is_known
            group.fingerprint = heartbeat.heartbeat_fingerprint
            is_changed |= group.follow(told.subscription_data_set)
            for topic in group.agreement.heard(session, member.client_id, told):
                self._tell_parted(session, group.name, topic)
            for tell in self._on_subscribed:
                tell(group.name, told.subscription_data_set)
        if is_changed:
            log.info(
                "group changed group=%s client=%s members=%d topics=%d",
                *(group.name, member.client_id, len(group.channels), len(group.subscriptions)),
            )
            self._notify(group, config)
        return not is_known

    def _produce(self, session: Session, member: Member, group: str) -> None:
        if _join(self.producer_groups.setdefault(group, {}), session, member, group):
            log.info("producer joined group=%s client=%s peer=%s", group, member.client_id, session.peer)
        joined = self._joined.setdefault(session, _Joined())
        joined.producers.add(group)
        if self._claim_id(session, member.client_id):
            joined.client_ids[member.client_id] = None
        if len(joined.client_ids) > CLIENT_IDS_MAX:
            self._forget_ids(session, joined, [next(iter(joined.client_ids))])

    def _claim_id(self, session: Session, client_id: str) -> bool:
        """Have replies to this client go there; false where they are another user's, who is connected."""
        user = "" if self.user_of is None else self.user_of(session)
        known = self._producing.get(client_id)
        if known is not None and known.session is not session and known.user != user and known.session.is_open:
            log.warning("client id %s of user %r claimed by %r from %s", client_id, known.user, user, session.peer)
            return False
        self._producing[client_id] = _Claim(session, user)
        return True

    def _forget_ids(self, session: Session, joined: _Joined, client_ids: list[str]) -> None:
        for client_id in client_ids:
            del joined.client_ids[client_id]
            if self.producer_session(client_id) is session:
                del self._producing[client_id]

    # Leaving

    def leave(self, session: Session, producer_group: str | None, consumer_group: str | None) -> None:
        """A member says goodbye."""
        if producer_group:
            self._leave_producers(session, producer_group)
        if consumer_group:
            self._leave_consumers(session, consumer_group)

    def disconnected(self, session: Session) -> None:
        """A connection is gone, and its members with it."""
        joined = self._joined.get(session)
        if joined is not None:
            for group in list(joined.consumers):
                self._leave_consumers(session, group)
            for group in list(joined.producers):
                self._leave_producers(session, group)

    def _leave_consumers(self, session: Session, name: str) -> None:
        group = self.consumer_groups.get(name)
        if group is None or group.channels.pop(session, None) is None:
            return
        group.agreement.left(session)
        self._tell_parted(session, name, None)
        self._part(session, self._joined[session].consumers, name)
        log.info("consumer left group=%s peer=%s members=%d", name, session.peer, len(group.channels))
        if group.channels:
            self._notify(group, self._groups.get(name))
        else:
            del self.consumer_groups[name]
            for tell in self._on_empty:
                tell(name)

    def _tell_parted(self, session: Session, group: str, topic: str | None) -> None:
        for tell in self._on_parted:
            tell(session, group, topic)

    def _leave_producers(self, session: Session, name: str) -> None:
        members = self.producer_groups.get(name)
        if members is None or members.pop(session, None) is None:
            return
        joined = self._joined[session]
        self._part(session, joined.producers, name)
        if not joined.producers:
            self._forget_ids(session, joined, list(joined.client_ids))
        log.info("producer left group=%s peer=%s members=%d", name, session.peer, len(members))
        if not members:
            del self.producer_groups[name]

    def _part(self, session: Session, names: set[str], name: str) -> None:
        names.discard(name)
        joined = self._joined[session]
        if not joined.consumers and not joined.producers:
            del self._joined[session]

    def _notify(self, group: ConsumerGroup, config: GroupConfig | None) -> None:
        is_wanted = self._settings.now.notifies_members and (
            config is None or config.notify_consumer_ids_changed_enable
        )
        # Members of a broadcasting group share nothing.
        if is_wanted and group.model is not MessageModel.BROADCASTING:
            self.notices.add(group.name)

    # Falling silent

    async def scan_forever(self) -> None:
        """Look for silent members every 10 s."""
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            self.scan()

    def scan(self) -> int:
        """Remove who was silent for two minutes, close connections with nobody left on them; returns how many left."""
        silent_since_s = self._clock.monotonic_s() - SILENCE_MAX_S
        consumers = [
            (session, group.name)
            for group in self.consumer_groups.values()
            for session in _silent(group.channels, silent_since_s)
        ]
        producers = [
            (session, name)
            for name, members in self.producer_groups.items()
            for session in _silent(members, silent_since_s)
        ]
        for session, name in consumers:
            self._leave_consumers(session, name)
        for session, name in producers:
            self._leave_producers(session, name)
        for session in {session for session, _ in consumers + producers} - self._joined.keys():
            log.warning("connection closed: peer=%s sent no heartbeat for %d s", session.peer, SILENCE_MAX_S)
            session.close("silent")
        return len(consumers) + len(producers)


def _join(channels: dict[Session, Member], session: Session, member: Member, group: str) -> bool:
    """Note a heartbeat; true if the connection is new to the group."""
    known = channels.get(session)
    channels[session] = member
    if known is not None and known.client_id != member.client_id:
        log.warning(
            "two clients on one connection group=%s peer=%s: %s was %s",
            *(group, session.peer, member.client_id, known.client_id),
        )
    return known is None


def _silent(channels: dict[Session, Member], since_s: float) -> list[Session]:
    return [session for session, member in channels.items() if member.seen_s < since_s]
