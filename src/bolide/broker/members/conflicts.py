"""Members of a group that do not want the same: noticed when one of them changes, and told once for each change.

Per group there is a count of each wish that its members have; as long as there is one, a heartbeat costs a comparison
of two sets. A member that names no topic (a consumer that assigns its queues itself) takes no part.

RocketMQ does not notice, and messages are lost in silence. Here it is logged, shown to administrators, and with
`bolideRefuseSubscriptionConflict=true` refused: the member that came last does not become one.
"""

import logging
from dataclasses import dataclass, field

from bolide.errors import Refusal
from bolide.filter.agreement import Wants, differences, wants_of
from bolide.protocol.bodies import ConsumerMember
from bolide.protocol.codes import ResponseCode
from bolide.remoting.session import Session

REFUSED_GROUP_FIELD = "bolideRefusedGroup"
_SHOWN_MAX = 8  # a member may name thousands of topics
_SHOWN_LENGTH = 500
log = logging.getLogger(__name__)


class SubscriptionRefused(Refusal):
    """A member that wants something else than its mates; `group` is the one it may not be in."""

    def __init__(self, group: str, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.group = group


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two members of a group, and what they do not agree on."""

    client_id: str
    mate_id: str
    text: str


@dataclass(slots=True)
class Agreement:
    """What the members of one group want, by connection."""

    group: str
    _wants: dict[Session, tuple[str, Wants]] = field(default_factory=dict)
    _counts: dict[Wants, int] = field(default_factory=dict)

    def check(self, session: Session, client_id: str, told: ConsumerMember) -> None:
        """Raise SubscriptionRefused if the mates of this member want something else."""
        wants = _wants(told)
        if wants and (len(self._counts) > 1 or wants not in self._counts) and self._wants:
            for other, (mate_id, theirs) in self._wants.items():
                if other is not session and mate_id != client_id and theirs != wants:
                    raise SubscriptionRefused(
                        self.group,
                        f"{_said(Conflict(client_id, mate_id, _text(wants, theirs)), self.group)}; it is refused "
                        "(bolideRefuseSubscriptionConflict): give it the same subscription, or another group",
                    )

    def heard(self, session: Session, client_id: str, told: ConsumerMember) -> set[str]:
        """Note what a member wants; one that differs from its mates is logged when that is news.

        Returns the topics that it wants no more.
        """
        wants = _wants(told)
        known = self._wants.get(session)
        if known is not None and known[1] == wants:
            return set()
        was_split = len(self._counts) > 1
        self._forget(session)
        if wants:
            self._wants[session] = client_id, wants
            self._counts[wants] = self._counts.get(wants, 0) + 1
        self._tell(session, was_split=was_split)
        return {topic for topic, *_ in known[1]} - {topic for topic, *_ in wants} if known is not None else set()

    def left(self, session: Session) -> None:
        """A member has gone, and its wish with it."""
        was_split = len(self._counts) > 1
        self._forget(session)
        self._tell(None, was_split=was_split)

    def conflicts(self) -> list[Conflict]:
        """Each wish that is not the first member's, with a member that has it."""
        found: dict[Wants, Conflict] = {}
        if len(self._counts) > 1:
            mate_id, first = next(iter(self._wants.values()))
            for client_id, wants in self._wants.values():
                if wants != first and wants not in found:
                    found[wants] = Conflict(client_id, mate_id, _text(wants, first))
        return list(found.values())

    def _forget(self, session: Session) -> None:
        known = self._wants.pop(session, None)
        if known is not None:
            self._counts[known[1]] -= 1
            if not self._counts[known[1]]:
                del self._counts[known[1]]

    def _tell(self, session: Session | None, *, was_split: bool) -> None:
        is_split = len(self._counts) > 1
        if is_split and session is not None and session in self._wants:
            client_id, wants = self._wants[session]
            mate_id, theirs = next(each for each in self._wants.values() if each[1] != wants)
            conflict = Conflict(client_id, mate_id, _text(wants, theirs))
            log.warning("subscription conflict: %s; messages will be missed", _said(conflict, self.group))
        elif was_split and not is_split:
            log.info("subscription conflict over: the members of group %r want the same again", self.group)


def _wants(told: ConsumerMember) -> Wants:
    return wants_of((each.topic, each.expression_type, each.sub_string) for each in told.subscription_data_set)


def _text(ours: Wants, theirs: Wants) -> str:
    found = differences(ours, theirs)
    more = f"; and {len(found) - _SHOWN_MAX} topics more" if len(found) > _SHOWN_MAX else ""
    return "; ".join(_shown(str(each)) for each in found[:_SHOWN_MAX]) + more


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _said(conflict: Conflict, group: str) -> str:
    who = f"{conflict.client_id!r} does not want the same as {conflict.mate_id!r}, its mate in group {group!r}"
    return f"{who}: {conflict.text}"
