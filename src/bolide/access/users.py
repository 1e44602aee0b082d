"""ACL 2.0: users and their policies, as a value that changes hand over hand, and as two files.

A change makes a new value and is in force when that is in its place; anyone who asks meanwhile sees the old one whole.
The remarks are RocketMQ's. A password is never shown: the signature needs it as it is, so no hash can stand in the
files, and they are readable for their owner alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from bolide.access.config import KeyPair
from bolide.access.policies import Policies, merged, refusal, shown, without
from bolide.errors import Refusal
from bolide.protocol.bodies.access import Acl
from bolide.protocol.bodies.access import User as UserBody
from bolide.protocol.codes import ResponseCode

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
USERS_MAX = 100_000
ENTRIES_MAX = 10_000  # of one user
NAME_SIZE_MAX = 255
PASSWORD_SIZE_MAX = 1_024
_SUBJECT = "User:"
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class User:
    """Who may sign in, and whether policies are asked at all."""

    name: str
    password: str = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True

    def shown(self, *, with_password: bool = False) -> UserBody:
        return UserBody(
            username=self.name,
            password=self.password if with_password else None,
            user_type=SUPER if self.is_super else NORMAL,
            user_status=ENABLED if self.is_enabled else DISABLED,
        )


@dataclass(frozen=True, slots=True)
class UserTable:
    """All users and policies."""

    users: Mapping[str, User] = field(default_factory=dict)
    policies: Mapping[str, Policies] = field(default_factory=dict)  # by user name

    # Users

    def with_user(self, given: UserBody) -> "UserTable":
        """With one more user; raises Refusal."""
        name = given.username or ""
        _check_name(name)
        if name in self.users:
            raise refusal("The user is existed")
        if not (given.password or "").strip():
            raise refusal("password can not be blank")
        if len(self.users) >= USERS_MAX:
            raise refusal(f"there are {USERS_MAX} users already")
        # What a name was granted goes with its user; a crash or an editor may have left it behind.
        policies = {each: kept for each, kept in self.policies.items() if each != name}
        return replace(self, policies=policies)._with(_changed(User(name, ""), given))

    def with_changed(self, given: UserBody) -> "UserTable":
        """With what is given of a user changed."""
        return self._with(_changed(self.user(given.username), given))

    def without_user(self, name: str | None) -> "UserTable":
        """Without a user and its policies; RocketMQ takes one that is not there for deleted."""
        if not (name or "").strip():
            raise refusal("username can not be blank")
        users = {each: user for each, user in self.users.items() if each != name}
        return UserTable(users, {each: policies for each, policies in self.policies.items() if each != name})

    def user(self, name: str | None) -> User:
        _check_name(name or "")
        found = self.users.get(name or "")
        if found is None:
            raise refusal("The user is not exist")
        return found

    def _with(self, user: User) -> "UserTable":
        return replace(self, users={**self.users, user.name: user})

    def with_first(self, pair: KeyPair | None) -> "UserTable":
        """With a Super user of this name, if it is not there: a password that was changed since stays."""
        if pair is None or pair.access_key in self.users:
            return self
        return self._with(User(pair.access_key, pair.secret_key, is_super=True))

    # Policies

    def with_policies(self, subject: str | None, given: Acl) -> "UserTable":
        """With entries merged into those of a user, resource by resource; raises Refusal."""
        name = name_of(subject)
        if name not in self.users:
            raise refusal(f"The subject of {_SUBJECT}{name} is not exist.")
        if not given.policies:
            raise refusal("The policies is empty.")
        if sum(len(policy.entries) for policy in given.policies) > ENTRIES_MAX:
            raise refusal(f"a user has at most {ENTRIES_MAX} entries")
        policies = merged(self.policies.get(name, {}), given.policies)
        if sum(len(policy.entries) for policy in policies.values()) > ENTRIES_MAX:
            raise refusal(f"a user has at most {ENTRIES_MAX} entries")
        return replace(self, policies={**self.policies, name: policies})

    def without_policies(self, subject: str | None, policy_type: str | None, resource: str | None) -> "UserTable":
        """Without what a user has for a resource, or without all it has."""
        name = name_of(subject)
        if name not in self.users:
            raise refusal("The subject is not exist.")
        if name not in self.policies:
            raise refusal("The acl is not exist.")
        left = without(self.policies[name], policy_type, resource) if resource else {}
        others = {each: policies for each, policies in self.policies.items() if each != name}
        return replace(self, policies=others | ({name: left} if left else {}))

    def acl(self, subject: str | None) -> Acl | None:
        """What a user has, None if that is nothing; raises Refusal for one that is not there."""
        name = name_of(subject)
        if name not in self.users:
            raise refusal("The subject is not exist.")
        return self.told(name)

    def told(self, name: str) -> Acl | None:
        """What stands here under a name, whether or not it is a user's."""
        return shown(_SUBJECT + name, self.policies[name]) if name in self.policies else None

    def acls(self, subject_text: str, resource_text: str) -> list[Acl]:
        found = (
            shown(_SUBJECT + name, policies, resource_text)
            for name, policies in self.policies.items()
            if subject_text in _SUBJECT + name
        )
        return [acl for acl in found if acl.policies]

    # Files

    def users_text(self) -> str:
        users = [user.shown(with_password=True) for user in self.users.values()]
        return msgspec.json.format(msgspec.json.encode({"users": users}), indent=1).decode()

    def policies_text(self) -> str:
        acls = [shown(_SUBJECT + name, policies) for name, policies in self.policies.items()]
        return msgspec.json.format(msgspec.json.encode({"acls": acls}), indent=1).decode()


class _UsersFile(msgspec.Struct):
    users: list[UserBody] = []


class _AclsFile(msgspec.Struct):
    acls: list[Acl] = []


def parse_users(text: str) -> dict[str, User]:
    """The file of users; raises ValueError that names the line and the user."""
    found: dict[str, User] = {}
    for given in _decoded(text, _UsersFile).users:
        name = given.username or ""
        try:
            if not given.password:
                raise refusal("password can not be blank")
            _check_name(name)
            found[name] = _changed(User(name, ""), given)
        except Refusal as problem:
            raise ValueError(f"{_line_with(text, name)}user {name!r}: {problem.remark}") from None
    return found


def parse_policies(text: str) -> dict[str, Policies]:
    """The file of policies; raises ValueError that names the line and the subject."""
    found: dict[str, Policies] = {}
    for given in _decoded(text, _AclsFile).acls:
        try:
            found[name_of(given.subject)] = merged({}, given.policies)
        except Refusal as problem:
            subject = given.subject or ""
            raise ValueError(f"{_line_with(text, subject)}subject {subject!r}: {problem.remark}") from None
    return found


def _decoded(text: str, kind: type[F]) -> F:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as problem:
        place = re.search(r"\(byte (\d+)\)", str(problem))
        if place is None:
            raise
        line = text.encode()[: int(place[1])].count(b"\n") + 1
        raise ValueError(f"line {line}: {problem}") from None


def _line_with(text: str, name: str) -> str:
    """Where a name stands in a file; nothing if it is written in another way there."""
    place = text.find(msgspec.json.encode(name).decode()) if name else -1
    return "" if place < 0 else f"line {text[:place].count(chr(10)) + 1}: "


def name_of(subject: str | None) -> str:
    """The user of a subject (`User:bob`); raises Refusal."""
    kind, colon, name = (subject or "").partition(":")
    if not (subject or "").strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The subject is blank")
    if not colon or kind.lower() != "user" or not name:
        raise refusal("The subject is null.")
    return name


def _changed(user: User, given: UserBody) -> User:
    """With what is given; words are compared without case."""
    kind, status = (given.user_type or "").lower(), (given.user_status or "").lower()
    if kind not in ("", SUPER.lower(), NORMAL.lower()):
        raise refusal(f"The user type {given.user_type!r} is neither {SUPER} nor {NORMAL}.")
    if status not in ("", ENABLED, DISABLED):
        raise refusal(f"The user status {given.user_status!r} is neither {ENABLED} nor {DISABLED}.")
    if given.password and len(given.password) > PASSWORD_SIZE_MAX:
        raise refusal(f"a password has at most {PASSWORD_SIZE_MAX} characters")
    return User(
        user.name,
        given.password or user.password,
        kind == SUPER.lower() if kind else user.is_super,
        status == ENABLED if status else user.is_enabled,
    )


def _check_name(name: str) -> None:
    if not name.strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    if len(name.encode("utf-8", "replace")) > NAME_SIZE_MAX or not name.isprintable():
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"a user name has at most {NAME_SIZE_MAX} printable bytes")
