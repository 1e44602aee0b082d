"""Users, policies and accounts of access control, on our brokers and on Apache's.

Each broker of RocketMQ keeps its own table, so a change goes to every broker, slaves too, and a list is told broker by
broker. With `address` one broker is asked alone. 5.3 and later have users and policies (3001 to 3010), 4.4 to 5.3.2
accounts in files (50 to 54); the methods for the second kind have *account* or *white* in their names.

Ours never answers a secret: in what it lists, passwords are None and secret keys are `******`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bolide.admin.reach import Reach
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.protocol.bodies.access import Accounts, Acl, User
    from bolide.protocol.headers.access import GetAclVersionAnswer, UpdateAclRequest

NORMAL, SUPER = "Normal", "Super"
ENABLED, DISABLED = "enable", "disable"
ALLOW, DENY = "Allow", "Deny"
CUSTOM, DEFAULT = "Custom", "Default"


class AccessCalls(Reach):
    """The part of an administrator that asks who may do what, and changes it."""

    # Users

    async def users(self, text: str = "", *, address: str | None = None) -> "dict[str, list[User]]":
        """The users whose name has `text` in it, by the name of the broker that knows them."""
        from bolide.protocol.bodies.access import User
        from bolide.protocol.bodies.body import decode_list
        from bolide.protocol.headers.access import ListUsersRequest

        header = ListUsersRequest(filter=text or None)
        answers = await self._each_broker(Command(RequestCode.AUTH_LIST_USER, fields=header.encode()), address)
        return {name: decode_list(User, answer.body) if answer.body else [] for name, answer in answers.items()}

    async def user(self, username: str, *, address: str | None = None) -> "User | None":
        """One user, as the first broker that knows it says; None if none does."""
        from bolide.protocol.bodies.access import User
        from bolide.protocol.headers.access import UserRequest

        command = Command(RequestCode.AUTH_GET_USER, fields=UserRequest(username=username).encode())
        answers = (await self._each_broker(command, address)).values()
        return next((User.decode(answer.body) for answer in answers if answer.body), None)

    async def create_user(
        self, username: str, password: str, *, user_type: str = NORMAL, address: str | None = None
    ) -> list[str]:
        """Make a user on every broker; returns their names. A `Super` one needs no policies."""
        from bolide.protocol.bodies.access import User

        user = User(username=username, password=password, user_type=user_type, user_status=ENABLED)
        return await self._put_user(RequestCode.AUTH_CREATE_USER, user, address)

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Change what is given of a user, on every broker; returns their names."""
        from bolide.protocol.bodies.access import User

        user = User(username=username, password=password, user_type=user_type, user_status=user_status)
        return await self._put_user(RequestCode.AUTH_UPDATE_USER, user, address)

    async def delete_user(self, username: str, *, address: str | None = None) -> list[str]:
        """Delete a user and its policies on every broker; returns their names."""
        from bolide.protocol.headers.access import UserRequest

        command = Command(RequestCode.AUTH_DELETE_USER, fields=UserRequest(username=username).encode())
        return list(await self._each_broker(command, address))

    async def _put_user(self, code: RequestCode, user: "User", address: str | None) -> list[str]:
        from bolide.protocol.headers.access import UserRequest

        fields = UserRequest(username=user.username).encode()
        return list(await self._each_broker(Command(code, fields=fields, body=user.encode()), address))

    # Policies

    async def acls(
        self, subject: str = "", resource: str = "", *, address: str | None = None
    ) -> "dict[str, list[Acl]]":
        """The policies whose subject and resource have these texts in them, by broker name."""
        from bolide.protocol.bodies.access import Acl
        from bolide.protocol.bodies.body import decode_list
        from bolide.protocol.headers.access import AuthListAclRequest

        header = AuthListAclRequest(subject_filter=subject or None, resource_filter=resource or None)
        answers = await self._each_broker(Command(RequestCode.AUTH_LIST_ACL, fields=header.encode()), address)
        return {name: decode_list(Acl, answer.body) if answer.body else [] for name, answer in answers.items()}

    async def acl(self, subject: str, *, address: str | None = None) -> "Acl | None":
        """The policies of a subject (`User:name`), as the first broker that has any says; None if none has."""
        from bolide.protocol.bodies.access import Acl
        from bolide.protocol.headers.access import AuthAclRequest

        command = Command(RequestCode.AUTH_GET_ACL, fields=AuthAclRequest(subject=subject).encode())
        answers = (await self._each_broker(command, address)).values()
        return next((Acl.decode(answer.body) for answer in answers if answer.body), None)

    async def grant(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        decision: str = ALLOW,
        source_ips: Iterable[str] = (),
        policy_type: str = CUSTOM,
        address: str | None = None,
    ) -> list[str]:
        """Allow (or, by `decision`, deny) actions on resources; returns the names of the brokers that know it.

        What the subject had for one of these resources is replaced, the rest stays.
        """
        from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy

        actions, source_ips = list(actions), list(source_ips)
        entries = [
            AclEntry(actions=actions, decision=decision, resource=resource, source_ips=source_ips or None)
            for resource in resources
        ]
        acl = Acl(subject=subject, policies=[AclPolicy(entries=entries, policy_type=policy_type)])
        return await self.put_acl(acl, address=address)

    async def put_acl(self, acl: "Acl", *, address: str | None = None) -> list[str]:
        """Merge policies into those of a subject, resource by resource."""
        from bolide.protocol.headers.access import AuthAclRequest

        fields = AuthAclRequest(subject=acl.subject).encode()
        command = Command(RequestCode.AUTH_UPDATE_ACL, fields=fields, body=acl.encode())
        return list(await self._each_broker(command, address))

    async def revoke(
        self,
        subject: str,
        resource: str | None = None,
        *,
        policy_type: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Delete what a subject has for a resource, or all it has."""
        from bolide.protocol.headers.access import AuthDeleteAclRequest

        header = AuthDeleteAclRequest(subject=subject, policy_type=policy_type, resource=resource)
        return list(await self._each_broker(Command(RequestCode.AUTH_DELETE_ACL, fields=header.encode()), address))

    # Accounts of 4.x

    async def set_account(self, account: "UpdateAclRequest", *, address: str | None = None) -> list[str]:
        """Make an account or change it. RocketMQ wants both keys, and takes an absent `is_admin` for False."""
        command = Command(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields=account.encode())
        return list(await self._each_broker(command, address))

    async def delete_account(self, access_key: str, *, address: str | None = None) -> list[str]:
        """Delete an account."""
        from bolide.protocol.headers.access import DeleteAclRequest

        header = DeleteAclRequest(access_key=access_key)
        return list(await self._each_broker(Command(RequestCode.DELETE_ACL_CONFIG, fields=header.encode()), address))

    async def account_versions(self, *, address: str | None = None) -> "dict[str, GetAclVersionAnswer]":
        """Which version of its account files each broker follows, by broker name."""
        from bolide.protocol.headers.access import GetAclVersionAnswer

        answers = await self._each_broker(Command(RequestCode.GET_BROKER_CLUSTER_ACL_INFO), address)
        return {name: GetAclVersionAnswer.decode(answer.fields) for name, answer in answers.items()}

    async def accounts(self, *, address: str | None = None) -> "dict[str, Accounts]":
        """All accounts and white lists, by broker name; brokers of 4.9.8, 5.2 and later refuse to tell."""
        from bolide.protocol.bodies.access import Accounts

        answers = await self._each_broker(Command(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG), address)
        return {name: Accounts.decode(answer.body) for name, answer in answers.items()}

    async def set_white_addresses(
        self, patterns: Iterable[str], *, file: str | None = None, address: str | None = None
    ) -> list[str]:
        """Replace the addresses that need no account, in the default file or in another of the broker's."""
        from bolide.protocol.headers.access import UpdateWhiteAddressesRequest

        header = UpdateWhiteAddressesRequest(global_white_addresses=",".join(patterns), acl_file=file or "")
        command = Command(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields=header.encode())
        return list(await self._each_broker(command, address))

    async def broker_places(self) -> dict[str, str]:
        """The addresses of all brokers by name, each master before its slaves (which have their number behind it)."""
        known = (await self.clusters()).broker_addr_table
        return {
            name if number == 0 else f"{name} {number}": place
            for name, data in sorted(known.items())
            for number, place in sorted(data.broker_addrs.items())
        }

    async def _each_broker(self, command: Command, address: str | None) -> dict[str, Command]:
        """The answers of all brokers by name (a slave's with its number), or that of one by its address."""
        if address is not None:
            return {address: await self._ask(address, command)}
        found = {}
        for name, place in (await self.broker_places()).items():
            answer = await self._noting(name, place, self._ask(place, command))
            if answer is not None:
                found[name] = answer
        return found
