"""Accounts of ACL 1.0 become users and policies of ACL 2.0, once: those whose name is no user yet.

White lists are not taken over, as in RocketMQ: an address is no proof.
"""

from collections.abc import Mapping

from bolide.access.accounts import Account, AccountTable
from bolide.access.policies import ALLOW, CUSTOM, DEFAULT, DENY
from bolide.access.users import NORMAL, SUPER, UserTable
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy, User

_DENIED, _PUB, _SUB = 1, 4, 8


def migrated(table: UserTable, old: AccountTable) -> UserTable:
    """With the accounts that are no users yet."""
    for account in old.accounts.values():
        if account.access_key in table.users:
            continue
        kind = SUPER if account.is_admin else NORMAL
        user = User(username=account.access_key, password=account.secret_key, user_type=kind)
        table = table.with_user(user).with_policies(f"User:{account.access_key}", _acl(account))
    return table


def _acl(account: Account) -> Acl:
    custom = [*_entries("Topic", account.topics), *_entries("Group", account.groups)]
    default = [
        *_entries("Topic", {"*": account.topic_default}),
        *_entries("Group", {"*": account.group_default}),
    ]
    policies = [AclPolicy(entries=custom, policy_type=CUSTOM)] if custom else []
    return Acl(policies=[*policies, AclPolicy(entries=default, policy_type=DEFAULT)])


def _entries(kind: str, rights: Mapping[str, int]) -> list[AclEntry]:
    entries = []
    for name, right in rights.items():
        words = [word for bit, word in ((_PUB, "Pub"), (_SUB, "Sub")) if right & bit]
        is_denied = bool(right & _DENIED)
        entries.append(
            AclEntry(
                actions=["All"] if is_denied else words,
                decision=DENY if is_denied else ALLOW,
                resource=f"{kind}:{name}",
            )
        )
    return entries
