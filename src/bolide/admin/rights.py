"""Whether a user may do something, and which entry of its policies says so.

The rules are RocketMQ's, and so the same for its brokers and ours: brokers tell their users and policies, and the
decision is made here with what they would use (`access/policies.py`). Each broker has its own tables, so each has its
own answer.
"""

from typing import TYPE_CHECKING

import msgspec

from bolide.admin.access import DISABLED, SUPER, AccessCalls
from bolide.errors import ClientError

if TYPE_CHECKING:
    from bolide.access.resources import Need
    from bolide.protocol.bodies.access import Acl, AclEntry, User


class Verdict(msgspec.Struct, frozen=True):
    """What one broker says of a right: yes or no, which entry decided, and why."""

    broker: str
    is_allowed: bool
    why: str
    entry: "AclEntry | None" = None
    others: "tuple[AclEntry, ...]" = ()  # entries that fit too, and were not asked


class RightsCalls(AccessCalls):
    """The part of an administrator that explains rights."""

    async def check_right(
        self, username: str, action: str, resource: str, host: str = "127.0.0.1", *, address: str | None = None
    ) -> list[Verdict]:
        """What each broker decides when a user wants to do something (`Pub`, `Topic:Orders`) from a host."""
        need = need_of(action, resource)
        users = await self.users(username, address=address)
        acls = await self.acls(f"User:{username}", address=address)
        return [
            explained(
                broker,
                next((user for user in found if user.username == username), None),
                [acl for acl in acls.get(broker, ()) if acl.subject == f"User:{username}"],
                need,
                host,
            )
            for broker, found in users.items()
        ]


def need_of(action: str, resource: str) -> "Need":
    """What a request would ask for; raises ClientError."""
    from bolide.access.resources import Action, Need, Reach, parse_action, parse_resource

    found, named = parse_action(action), parse_resource(resource)
    if found is None or found is Action.ALL:
        words = ", ".join(each for each in Action if each is not Action.ALL)
        raise ClientError(f"{action} is no action that a request asks for; there are {words}")
    if named is None or named.reach is not Reach.LITERAL:
        raise ClientError(f"{resource} is not one thing to ask for; write Topic:name, Group:name or Cluster:name")
    return Need(named.kind, named.name, frozenset((found,)))


def explained(broker: str, user: "User | None", acls: "list[Acl]", need: "Need", host: str) -> Verdict:
    """The decision of one broker in words."""
    from bolide.access.policies import CUSTOM, DEFAULT, decide, merged

    if user is None:
        return Verdict(broker, False, "there is no such user")
    if (user.user_status or "").lower() == DISABLED:
        return Verdict(broker, False, "the user is disabled")
    if (user.user_type or "").lower() == SUPER.lower():
        return Verdict(broker, True, "a Super user needs no policy")
    policies = merged({}, [policy for acl in acls for policy in acl.policies])
    entry = decide(policies, need, host)
    if entry is None:
        return Verdict(broker, False, f"no entry of its policies fits {need} from {host}")
    fitting = {
        name: [each for each in policies[name].about(need) if each.fits(need, host)] if name in policies else []
        for name in (CUSTOM, DEFAULT)
    }
    name = CUSTOM if fitting[CUSTOM] else DEFAULT
    others = tuple(each.shown() for each in fitting[name] if each is not entry)
    narrow = f", and is the narrowest of {len(fitting[name])} that fit" if others else ""
    word = "allows" if entry.is_allowed else "denies"
    why = f"{entry.resource} of its {name} policy {word} it{narrow}"
    return Verdict(broker, entry.is_allowed, why, entry.shown(), others)
