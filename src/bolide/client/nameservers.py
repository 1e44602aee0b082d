"""The name servers of a client: one is asked, and stays the one until it fails; then the next.

The order is shuffled at the start, so that many clients spread. Name servers do not know of each other: while a topic
is young one may know it and the next may not, hence "no route" is an answer and moves us nowhere.
"""

import logging
import random
from collections.abc import Sequence

from bolide.client.access import failure_of
from bolide.client.tally import count_request
from bolide.errors import ClientError, ConnectError, ConnectionLost, NoAnswer, ProtocolError
from bolide.protocol.bodies.routes import Clusters, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.routes import GetRouteRequest
from bolide.remoting.client import Client

log = logging.getLogger(__name__)


def advice_on(problem: str, is_tls: bool, was_lost: bool) -> str:
    """What to do about a name server that is not reached; `was_lost` says that it took a connection and hung up."""
    if is_tls and "CERTIFICATE_VERIFY_FAILED" in problem:
        return (
            "Its certificate is not of the authority that was given: by --tls-ca, by tls_trust_path, or by a profile "
            "(an empty BOLIDE_PROFILE leaves profiles aside)"
        )
    if was_lost and not is_tls:
        return (
            "A server that takes TLS alone hangs up like this: speak it with --tls-ca FILE or --tls, with a profile "
            "(`bolide login`), or with connect=ConnectConfig(is_tls=True)"
        )
    return "Is one running there? `bolide up` starts one"


class NameServers:
    """Asks the current one, and moves on when it fails."""

    def __init__(self, client: Client, addresses: Sequence[str], timeout_s: float, chance: random.Random) -> None:
        self.addresses = list(addresses)
        chance.shuffle(self.addresses)
        self._client = client
        self._timeout_s = timeout_s
        self._current = 0

    async def ask(self, command: Command) -> Command:
        """The answer of the first name server that gives one."""
        count_request()
        problems: list[str] = []
        was_lost = False  # somebody took the connection and hung up
        first = self._current  # others may ask at the same time, and each goes round once
        for step in range(len(self.addresses)):
            number = (first + step) % len(self.addresses)
            address = self.addresses[number]
            try:
                answer = await self._client.request(address, command, self._timeout_s)
            except NoAnswer as problem:
                log.debug("name server failed address=%s problem=%s", address, problem)
                problems.append(str(problem))
                was_lost |= isinstance(problem, ConnectionLost) or "hung up" in str(problem)
            else:
                self._current = number
                return answer
        tried = "; ".join(dict.fromkeys(problems))
        raise ConnectError(f"no name server answers: {tried}. {advice_on(tried, self._client.is_tls, was_lost)}")

    async def route(self, topic: str) -> TopicRoute | None:
        """Where a topic is; None when no broker registered it."""
        fields = GetRouteRequest(topic=topic, is_standard_json=True).encode()
        answer = await self.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=fields))
        if answer.code == ResponseCode.SUCCESS:
            return TopicRoute.decode(answer.body)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise failure_of(answer, f"the name server refused to tell where {topic} is", "name server")

    async def absence(self, topic: str) -> str:
        """What a name server says of a topic it has no route for, in one line."""
        try:
            answer = await self.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": topic}))
        except ClientError as problem:
            return str(problem)
        return (answer.remark or "").partition("\n")[0]

    async def has_brokers(self) -> bool:
        """Whether any broker is registered; who cannot tell says yes."""
        try:
            answer = await self.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
            return answer.code != ResponseCode.SUCCESS or bool(Clusters.decode(answer.body).broker_addr_table)
        except (ClientError, ProtocolError, ValueError):
            return True
