"""The one door in front of every handler: who are you, may you, and how long until you may try again.

A request goes in, and either nothing comes out or a refusal. The signature is checked on every request, and nothing
that a connection proved before makes the next request of it believed. What may be remembered is a verdict: that this
name may do this on this topic, from this address. It lasts as long as the accounts stay as they are, and lets the
kernel admit sends and pulls in bulk (`admit`), after it has checked the signature of each.
"""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial

from bolide import kernel
from bolide.access.config import AccessConfig
from bolide.access.guesses import Guesses
from bolide.access.policies import refusal
from bolide.access.questions import TopicAt, needs_of, of_group, of_topic
from bolide.access.resources import Action
from bolide.access.sources import Caller, Source, Unproven
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY
from bolide.protocol.staging import STAGE_TOPIC
from bolide.remoting.owner import Read, Reply, Request
from bolide.remoting.session import Session
from bolide.remoting.sparse import Sparse

REFRESH_S = 2.0
VERDICTS_MAX = 1_024  # of one connection
_SENDS = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# What may wait for a message: all ask for the same right, that of a consumer on its group and topic.
_WAITING = frozenset(
    (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION)
)
log = logging.getLogger(__name__)
log.addFilter(Sparse())


def no_records(place: int) -> str | None:
    """For servers that keep no messages."""
    return None


class Door:
    """Lets requests in, or says why not."""

    def __init__(
        self, config: AccessConfig, source: Source, clock: Clock, cluster: str, topic_at: TopicAt = no_records
    ) -> None:
        self._source = source
        self._cluster = cluster
        self._topic_at = topic_at
        self._guesses = Guesses(clock)
        self._unauthenticated = config.unauthenticated_codes
        self._unauthorized = config.unauthorized_codes
        self._is_authorizing = config.has_accounts or config.is_authorizing
        self._verdicts: dict[Session, dict[bytes, bool]] = {}
        self._callers: dict[Session, Caller] = {}  # who proved itself last
        self._version = 0
        self._states: dict[bytes, bytes] = {}  # of each name, its secret as the kernel takes it

    def enter(self, request: Request) -> Awaitable[Reply] | None:
        """None for a request that may be served; raises Refusal, or returns one that comes late."""
        try:
            self.check(request.command, request.session)
        except Unproven as problem:
            host = host_of(request.session)
            delay_s = self._guesses.delay_s(host)
            log.info("[AUTHENTICATION] refused request=%d from=%s: %s", request.command.code, host, problem.remark)
            if delay_s is None:
                request.session.abort("too many wrong signatures")
                raise
            if delay_s > 0:
                return _late(problem, delay_s)
            raise
        asked = _asked(request.command)
        if asked is not None and request.command.code in _WAITING:
            secret = self._source.secret_of(request.command.fields.get(ACCESS_KEY, ""))
            request.recheck = partial(self._recheck, asked, secret)
        return None

    def _recheck(self, asked: bytes, secret: str | None, request: Request) -> None:
        """A request that waited is about to be answered: raises Refusal if it would not be let in any more.

        Its fields are gone by then (thousands wait), so the secret must be the one that its signature was proven by.
        """
        host, code = host_of(request.session), request.command.code
        if self._version != self._source.version:
            self._follow()
        if asked in self._verdicts.get(request.session, ()) or self._source.is_white(host):
            return
        name, topic, group = asked.decode().split("\0", 2)
        if not name and code in self._unauthenticated:
            return
        caller = self._source.known(name, host)
        if caller is None or self._source.secret_of(name) != secret:
            raise refusal(f"User:{name} is not who it was when this request came.")
        if code not in self._unauthorized:
            needs = (of_group(group, Action.SUB), of_topic(topic, Action.SUB))
            self._source.judge(caller, code, needs, host)

    def check(self, command: Command, session: Session) -> Caller | None:
        """Who asks, if it may; None for an address or a code that needs no name. Raises Refusal."""
        host, code = host_of(session), command.code
        if self._source.is_white(host):
            return None
        is_nobody = code in self._unauthenticated and ACCESS_KEY not in command.fields
        if is_nobody and (code in self._unauthorized or not self._is_authorizing):
            return None
        caller = self._source.caller(command, host)
        if self._version != self._source.version:
            self._follow()
        self._callers[session] = caller
        if code in self._unauthorized:
            return caller  # nothing was judged, so there is no verdict to remember
        if not caller.is_super:
            try:
                self._source.judge(caller, code, needs_of(command, self._cluster, self._topic_at), host)
            except Refusal as problem:
                log.info("[AUTHORIZATION] refused request=%d name=%s from=%s: %s", code, caller.name, host, problem)
                raise
        self._remember(command, session)
        return caller

    def may_send(self, session: Session, topic: str) -> bool:
        """Whether the one at the other end, as it proved to be since the accounts last changed, may send to a topic."""
        host, caller = host_of(session), self._callers.get(session)
        if self._source.is_white(host):
            return True
        if caller is None or self._version != self._source.version:
            return False
        try:
            self._source.judge(caller, RequestCode.SEND_MESSAGE_V2, (of_topic(topic, Action.PUB),), host)
        except Refusal:
            return False
        return True

    def user_of(self, session: Session) -> str:
        """The name that was last proven on a connection; empty where none was needed."""
        caller = self._callers.get(session)
        return "" if caller is None else caller.name

    # For who checks signatures of another protocol, and asks in the name of the one who signed

    def is_white(self, host: str) -> bool:
        """Whether an address passes without a name."""
        return self._source.is_white(host)

    def secret_of(self, name: str) -> str | None:
        """The secret of a name; None if it may not sign."""
        return self._source.secret_of(name)

    def guess_delay_s(self, host: str) -> float | None:
        """A wrong signature came from there: how long its refusal waits; None if there were too many."""
        return self._guesses.delay_s(host)

    # In bulk

    def admit(self, read: Read) -> tuple[list[int], list[int]]:
        """The bounds of the frames of a read that may be answered in bulk, and of those that go in one by one."""
        session = read.session
        if self._version != self._source.version:
            self._follow()
        if self._source.is_white(host_of(session)):
            return read.bounds, []
        verdicts = self._verdicts.get(session)
        if verdicts is None:
            return [], read.bounds
        return kernel.admit_signed(read.stream, read.bounds, self._states, verdicts)

    def left(self, session: Session) -> None:
        """The connection is gone."""
        self._verdicts.pop(session, None)
        self._callers.pop(session, None)

    def _remember(self, command: Command, session: Session) -> None:
        """A send or a pull was let in: others like it may be, if their signatures are right."""
        asked, name = _asked(command), command.fields.get(ACCESS_KEY, "")
        if asked is None:
            return
        verdicts = self._verdicts.setdefault(session, {})
        if len(verdicts) < VERDICTS_MAX:
            verdicts[asked] = True
        key = name.encode("utf-8", "replace")
        if key not in self._states and (secret := self._source.secret_of(name)) is not None:
            self._states[key] = kernel.signing_state(secret.encode())

    def _follow(self) -> None:
        """The accounts changed: what was decided before is forgotten."""
        self._verdicts.clear()
        self._callers.clear()
        self._states.clear()
        self._version = self._source.version

    async def refresh_forever(self) -> None:
        """Follow files that somebody edits."""
        while True:
            await asyncio.sleep(REFRESH_S)
            self._source.refresh()


def _asked(command: Command) -> bytes | None:
    """What a verdict is kept under: access key, topic and, of a consumer, group; None where none is kept."""
    code, fields = command.code, command.fields
    if code in _SENDS:
        topic = fields.get("topic" if code == RequestCode.SEND_MESSAGE else "b", "")
        if topic == STAGE_TOPIC:  # where it goes stands in its properties
            return None
        names: tuple[str, ...] = (fields.get(ACCESS_KEY, ""), topic)
    elif code in _WAITING:
        names = (fields.get(ACCESS_KEY, ""), fields.get("topic", ""), fields.get("consumerGroup", ""))
    else:
        return None
    return "\0".join(names).encode("utf-8", "replace")


async def _late(problem: Refusal, delay_s: float) -> Reply:
    await asyncio.sleep(delay_s)
    raise problem


def host_of(session: Session) -> str:
    """The address that the connection itself has, whatever a PROXY header says."""
    return session.origin.strip("[]")
