"""The controllers as a broker asks them: one of them leads and decides.

Who leads is asked of any of them (1005), when it is not known, when one says that it does not lead (2007), and now and
then. A question is asked once: if no answer comes, nobody knows whether it was carried out, and the caller decides.
"""

import logging
from collections.abc import Sequence

from bolide.errors import BolideError, NoAnswer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import GetControllerMetadataAnswer
from bolide.remoting.address import split_address
from bolide.remoting.client import Client

ASK_LIMIT_S = 3.0
log = logging.getLogger(__name__)


class Controllers:
    """Finds the one that leads, and asks it."""

    def __init__(self, client: Client, addresses: Sequence[str]) -> None:
        self._client = client
        self.addresses = list(addresses)
        self.leader = ""

    async def ask(self, command: Command, *, is_repeatable: bool = True) -> Command:
        """Ask the one that leads; another one where the first says that it does not. Raises NoAnswer.

        One that lost the lead in the middle may have carried it out: what must not be asked twice is not asked again.
        """
        for _ in range(2 if is_repeatable else 1):
            address = self.leader or await self.find_leader()
            try:
                answer = await self._client.request(address, command, ASK_LIMIT_S)
            except NoAnswer:
                self.leader = ""
                raise
            if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return answer
            self.leader = ""
        raise NoAnswer("the controller that was asked does not lead any more")

    async def own_host(self) -> str:
        """The host by which the one that leads sees us."""
        session = await self._client.session(self.leader or await self.find_leader(), ASK_LIMIT_S)
        return split_address(session.local)[0]

    async def find_leader(self) -> str:
        """Look for it; raises NoAnswer if nobody knows."""
        problems = []
        for address in self.addresses:
            self._client.hasten(address)
            try:
                leader = await self._leader_by(address)
            except BolideError as problem:
                why = str(problem).removeprefix(f"{address}: ")
                problems.append(f"{address}: {why}")
                continue
            if leader != self.leader:
                log.info("controller found leader=%s", leader)
            self.leader = leader
            return leader
        raise NoAnswer(f"no controller leads ({'; '.join(problems)}); is controllerAddr right, and do they run?")

    async def _leader_by(self, address: str) -> str:
        """Who leads, by the word of one of them; raises BolideError."""
        answer = await self._client.request(address, Command(RequestCode.CONTROLLER_GET_METADATA_INFO), ASK_LIMIT_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise NoAnswer("another server is there, and no controller")
        leader = GetControllerMetadataAnswer.decode(answer.fields).leader_address or ""
        if not leader:
            raise NoAnswer("it knows nobody that leads")
        split_address(leader)
        return leader

    async def beat(self, address: str, command: Command) -> None:
        """Let one of them hear a heartbeat, without an answer."""
        await self._client.send_oneway(address, command, ASK_LIMIT_S)
