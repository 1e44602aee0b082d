"""A slave's users and policies are its master's: after a failover nobody is a stranger who was none before.

RocketMQ's brokers have a table each, and a slave that is promoted knows nobody but its own first user. Ours asks its
master every few seconds, and at once when it is told of a change itself: `bolide user create` goes to every broker, the
master first. What a slave is told that its master was not is refused, for it would not last. A master that cannot be
asked, or is Apache's, leaves a slave with the table it has, and that can be changed then.

Both sides need `innerClientAuthenticationCredentials`, the same ones, as copies of the log do.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

import msgspec

from bolide.access.config import KeyPair
from bolide.access.sealing import Wanted, digest, seal, unseal, wanted
from bolide.access.sources import Users
from bolide.access.users import UserTable
from bolide.broker.replication.catalog_copy import ask
from bolide.broker.state import BrokerState
from bolide.errors import BolideError, Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handler, bounded_body
from bolide.remoting.owner import Request

EVERY_S = 3.0
RETRY_S = 1.0
ASK_LIMIT_S = 3.0
_QUESTION_SIZE_MAX = 1_024
log = logging.getLogger(__name__)


class UserCopy:
    """Tells slaves the users of this broker, or follows those of its master."""

    def __init__(self, state: BrokerState, client: Client, users: Users, pair: KeyPair, file_thread: Executor) -> None:
        self._role = state.role
        self._client = client
        self._users = users
        self._pair = pair
        self._file_thread = file_thread
        self._woken = asyncio.Event()
        self._trouble = ""
        state.role.listen(lambda old, new: self._woken.set())

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_SEALED_USERS: self.tell}

    def tell(self, request: Request) -> Command:
        """27002: users and policies for a slave that knows the inner secret; nothing if it has them."""
        if not self._role.now.is_leading:  # what a slave has may be old
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this broker is no master; its users are for others to tell")
        try:
            asked = msgspec.json.decode(bounded_body(request, _QUESTION_SIZE_MAX), type=Wanted)
            number = asked.number
        except ValueError as problem:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"no question for users: {problem}") from None
        table, secret = self._users.table, self._pair.secret_key
        body = b"" if asked.have == digest(table, secret) else seal(table, secret, number)
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    async def run_forever(self) -> None:
        """Follow the master, whichever it is, until cancelled."""
        while True:
            self._woken.clear()
            wait_s: float | None = None
            if self._role.now.is_following:
                wait_s = EVERY_S if await self.sync() else RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def sync(self) -> str:
        """Have what the master has; its address, or nothing where there is none, or it does not tell."""
        role = self._role.now
        if not role.is_following:
            return ""
        try:
            question = wanted(self._users.table, self._pair.secret_key)
            command = Command(RequestCode.GET_SEALED_USERS, body=msgspec.json.encode(question))
            answer = await ask(self._client, role.master_address, command, ASK_LIMIT_S)
            if answer is None:
                raise ValueError("it does not tell its users; copy them with `bolide user copy`")
            if answer.body:
                table = unseal(answer.body, self._pair.secret_key, question.number).with_first(self._pair)
                await self._users.change(self._replacing(table, role.master_address), self._file_thread)
        except (BolideError, OSError, ValueError) as problem:
            self._tell_once(f"master={role.master_address} problem={problem}")
            return ""
        self._trouble = ""
        return role.master_address

    def _replacing(self, table: UserTable, master: str) -> Callable[[UserTable], UserTable]:
        def replaced(own: UserTable) -> UserTable:
            if self._role.now.master_address != master:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "another master is followed now")
            if own != table:
                log.info("users follow the master=%s users=%d, before %d", master, len(table.users), len(own.users))
            return table

        return replaced

    def _tell_once(self, trouble: str) -> None:
        level = logging.DEBUG if trouble == self._trouble else logging.WARNING
        self._trouble = trouble
        log.log(level, "users are not those of the master, trying on: %s", trouble)
