"""Requests about users, policies (3001 to 3010) and accounts (50 to 54); every server that checks access answers them.

No answer holds a secret: passwords are left out, secret keys are `******`. A change is answered when it is on disk, and
is in force then.
"""

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

import msgspec

from bolide.access.door import Door
from bolide.access.policies import refusal
from bolide.access.sources import Accounts, Users
from bolide.access.users import SUPER, UserTable
from bolide.clock import Clock
from bolide.errors import Refusal, StoreError
from bolide.protocol.bodies.access import Acl, User
from bolide.protocol.bodies.body import encode_list
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.access import (
    AuthAclRequest,
    AuthDeleteAclRequest,
    AuthListAclRequest,
    DeleteAclRequest,
    GetAclVersionAnswer,
    ListUsersRequest,
    UpdateAclRequest,
    UpdateWhiteAddressesRequest,
    UserRequest,
)
from bolide.remoting.handlers import Handler, bounded_body
from bolide.remoting.owner import Request

DONE = "not set any response code"  # RocketMQ's words for a success of 3001 to 3010
BODY_SIZE_MAX = 1 << 20  # of users and policies; ten thousand entries have room
log = logging.getLogger(__name__)


class UserRequests:
    """ACL 2.0."""

    def __init__(self, users: Users, door: Door, file_thread: Executor) -> None:
        self._users = users
        self._door = door
        self._file_thread = file_thread
        self.follow: Callable[[], Awaitable[str]] | None = None  # has what the master has, and says where that is

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create,
            RequestCode.AUTH_UPDATE_USER: self.update,
            RequestCode.AUTH_DELETE_USER: self.delete,
            RequestCode.AUTH_GET_USER: self.get,
            RequestCode.AUTH_LIST_USER: self.list,
            RequestCode.AUTH_CREATE_ACL: self.grant,
            RequestCode.AUTH_UPDATE_ACL: self.grant,
            RequestCode.AUTH_DELETE_ACL: self.revoke,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    async def create(self, request: Request) -> Command:
        """3001: a new user."""
        user = self._named(request)

        def make(table: UserTable) -> UserTable:
            return self._allowed(request, table, user, "create").with_user(user)

        def again(table: UserTable) -> UserTable:
            return table.with_changed(user) if user.username in table.users else make(table)

        return await self._change(request, make, again)

    async def update(self, request: Request) -> Command:
        """3002: another password, type or status."""
        user = self._named(request)
        return await self._change(
            request, lambda table: self._allowed(request, table, user, "update").with_changed(user)
        )

    async def delete(self, request: Request) -> Command:
        """3003: without a user and its policies."""
        user = User(username=UserRequest.decode(request.command.fields).username)
        return await self._change(
            request, lambda table: self._allowed(request, table, user, "delete").without_user(user.username)
        )

    def get(self, request: Request) -> Command:
        """3004: one user, without its password; no body if there is none."""
        name = UserRequest.decode(request.command.fields).username
        if not (name or "").strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = self._users.table.users.get(name or "")
        return _done(request, b"" if user is None else user.shown().encode())

    def list(self, request: Request) -> Command:
        """3005: users whose name has a text in it."""
        text = ListUsersRequest.decode(request.command.fields).filter or ""
        found = [user.shown() for name, user in self._users.table.users.items() if text in name]
        return _done(request, encode_list(found) if found else b"")

    async def grant(self, request: Request) -> Command:
        """3006, 3007: entries are merged into those of a subject."""
        subject = AuthAclRequest.decode(request.command.fields).subject
        acl = Acl.decode(bounded_body(request, BODY_SIZE_MAX))
        return await self._change(request, lambda table: table.with_policies(subject, acl))

    async def revoke(self, request: Request) -> Command:
        """3008: without the entry of a resource, or without all of a subject."""
        header = AuthDeleteAclRequest.decode(request.command.fields)

        def make(table: UserTable) -> UserTable:
            return table.without_policies(header.subject, header.policy_type, header.resource)

        def again(table: UserTable) -> UserTable:
            return table if table.acl(header.subject) is None else make(table)

        return await self._change(request, make, again)

    def get_acl(self, request: Request) -> Command:
        """3009: the policies of a subject; no body if it has none."""
        acl = self._users.table.acl(AuthAclRequest.decode(request.command.fields).subject)
        return _done(request, b"" if acl is None else acl.encode())

    def list_acls(self, request: Request) -> Command:
        """3010: policies by what their subjects and resources have in them."""
        header = AuthListAclRequest.decode(request.command.fields)
        found = self._users.table.acls(header.subject_filter or "", header.resource_filter or "")
        return _done(request, encode_list(found) if found else b"")

    def _named(self, request: Request) -> User:
        """The user in the body, under the name in the header."""
        name = UserRequest.decode(request.command.fields).username
        if not (name or "").strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
        return msgspec.structs.replace(User.decode(bounded_body(request, BODY_SIZE_MAX)), username=name)

    def _allowed(self, request: Request, table: UserTable, user: User, what: str) -> UserTable:
        """The table as it is when the change is made, if the caller may: Super users are made by their like."""
        known = table.users.get(user.username or "")
        if (user.user_type or "").lower() == SUPER.lower() or (known is not None and known.is_super):
            caller = self._door.check(request.command, request.session)
            if caller is not None and not caller.is_super:
                raise refusal(f"The super user can only be {what} by super user")
        return table

    async def _change(
        self,
        request: Request,
        make: Callable[[UserTable], UserTable],
        again: Callable[[UserTable], UserTable] | None = None,
    ) -> Command:
        """`again` is asked instead where the master may have done it already; there it must change nothing."""
        master = "" if self.follow is None else await self.follow()

        def followed(table: UserTable) -> UserTable:
            changed = (again or make)(table)
            if changed != table:
                raise refusal(f"this broker is a slave, its users are those of its master {master}: change them there")
            return changed

        await _kept(self._users.change(followed if master else make, self._file_thread))
        log.info("users or policies changed request=%d by=%s", request.command.code, request.session.peer)
        return _done(request, b"")


class AccountRequests:
    """ACL 1.0."""

    def __init__(self, accounts: Accounts, clock: Clock, file_thread: Executor, names: tuple[str, str, str]) -> None:
        """`names` are those of the broker, its address (empty: the one that it is asked at) and its cluster."""
        self._accounts = accounts
        self._clock = clock
        self._file_thread = file_thread
        self._names = names

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.version,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.all,
        }

    async def update(self, request: Request) -> Command:
        """50: an account is made or changed."""
        given = UpdateAclRequest.decode(request.command.fields)
        change = self._accounts.change(lambda table: table.with_account(given, self._clock.now_ms()), self._file_thread)
        return await self._changed(request, change)

    async def delete(self, request: Request) -> Command:
        """51: without an account."""
        name = DeleteAclRequest.decode(request.command.fields).access_key
        change = self._accounts.change(
            lambda table: table.without_account(name, self._clock.now_ms()), self._file_thread
        )
        return await self._changed(request, change)

    async def update_white(self, request: Request) -> Command:
        """53: another global white list."""
        header = UpdateWhiteAddressesRequest.decode(request.command.fields)
        patterns, file = header.global_white_addresses.split(","), header.acl_file or ""
        change = self._accounts.change(
            lambda table: table.with_white(patterns, file, self._clock.now_ms()), self._file_thread
        )
        return await self._changed(request, change)

    def version(self, request: Request) -> Command:
        """52: the version of each file."""
        versions = {
            str(path): {"counter": file.counter, "timestamp": file.changed_ms}
            for path, file in self._accounts.table.files.items()
        }
        name, address, cluster = self._names
        answer = GetAclVersionAnswer(
            version=msgspec.json.encode(next(iter(versions.values()))).decode(),
            all_versions=msgspec.json.encode(versions).decode(),
            broker_name=name,
            broker_address=address or request.session.local,
            cluster_name=cluster,
        )
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

    def all(self, request: Request) -> Command:
        """54: all accounts, without their secrets."""
        return request.command.answer(ResponseCode.SUCCESS, body=self._accounts.table.shown().encode())

    async def _changed(self, request: Request, change: Awaitable[None]) -> Command:
        await _kept(change)
        log.info("accounts changed request=%d by=%s", request.command.code, request.session.peer)
        return request.command.answer(ResponseCode.SUCCESS)


async def _kept(change: Awaitable[None]) -> None:
    try:
        await change
    except StoreError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None


def _done(request: Request, body: bytes) -> Command:
    return request.command.answer(ResponseCode.SUCCESS, remark=DONE, body=body)
