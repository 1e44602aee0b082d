"""Which entry of a user's policies decides: RocketMQ's rules of 5.3, as a function of values.

Entries of the Custom policy that fit are looked at; only if none fits, those of the Default one. The narrowest decides:
a typed resource before `*`, a name before a prefix before all, the longer prefix first, and on a tie a Deny. So a
literal Allow is stronger than a prefix Deny.

A policy has one entry for a resource, so that few can decide about a name: they are looked up, narrowest first, and a
user with thousands of entries waits no longer than one with three.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bolide.access.resources import (
    Action,
    Kind,
    Need,
    Reach,
    Resource,
    is_from,
    is_source,
    parse_action,
    parse_resource,
)
from bolide.errors import Refusal
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.protocol.codes import ResponseCode

CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY = "Allow", "Deny"
SOURCES_MAX = 256  # of one entry; they are compared one by one


@dataclass(frozen=True, slots=True)
class Entry:
    """Allows or denies some actions on a resource, from some addresses."""

    resource: Resource
    actions: frozenset[Action]
    sources: tuple[str, ...]
    is_allowed: bool

    def fits(self, need: Need, host: str) -> bool:
        """Whether it says something about these actions from there; the resource is the caller's to look at."""
        is_asked = Action.ALL in self.actions or bool(self.actions & need.actions)
        return is_asked and is_from(host, self.sources)

    def shown(self) -> AclEntry:
        actions = [action.value for action in Action if action in self.actions]
        return AclEntry(
            actions=actions,
            decision=ALLOW if self.is_allowed else DENY,
            resource=str(self.resource),
            source_ips=list(self.sources) or None,
        )


_EVERYTHING = Resource(Kind.ANY, Reach.ALL, "")


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries by their resources."""

    entries: Mapping[Resource, Entry]
    prefix_sizes: tuple[int, ...] = field(init=False)  # the longest first

    def __post_init__(self) -> None:
        sizes = {len(resource.name) for resource in self.entries if resource.reach is Reach.PREFIX}
        object.__setattr__(self, "prefix_sizes", tuple(sorted(sizes, reverse=True)))

    def about(self, need: Need) -> Iterator[Entry]:
        """The entries whose resource has what is asked for, the narrowest first."""
        kind, name = need.kind, need.name
        prefixes = (Resource(kind, Reach.PREFIX, name[:size]) for size in self.prefix_sizes if size <= len(name))
        for resource in (Resource(kind, Reach.LITERAL, name), *prefixes, Resource(kind, Reach.ALL, ""), _EVERYTHING):
            if (entry := self.entries.get(resource)) is not None:
                yield entry


# Of one user, by the name of the policy (Custom, Default).
Policies = dict[str, Policy]


def decide(policies: Policies, need: Need, host: str) -> Entry | None:
    """The entry that decides; None where no entry fits, which is a refusal."""
    found = (policies[name] for name in (CUSTOM, DEFAULT) if name in policies)
    return next((entry for policy in found for entry in policy.about(need) if entry.fits(need, host)), None)


def merged(policies: Policies, more: Iterable[AclPolicy]) -> Policies:
    """With further entries; one for a resource that is there replaces it. Raises Refusal in RocketMQ's words."""
    policies = dict(policies)
    for policy in more:
        name = _policy_name(policy.policy_type)
        entries = dict(policies[name].entries) if name in policies else {}
        if not policy.entries:
            raise refusal("The policy entries is empty.")
        for given in policy.entries:
            entry = _entry(given)
            entries[entry.resource] = entry
        policies[name] = Policy(entries)
    return policies


def without(policies: Policies, policy_type: str | None, resource: str) -> Policies:
    """Without the entry for a resource; RocketMQ takes one that is not there for deleted."""
    name, found = _policy_name(policy_type), parse_resource(resource)
    before = policies[name].entries if name in policies else {}
    left = {**policies, name: Policy({resource: entry for resource, entry in before.items() if resource != found})}
    return {name: policy for name, policy in left.items() if policy.entries}


def shown(subject: str, policies: Policies, resource_text: str = "") -> Acl:
    """As it goes over the wire; with a text only the entries whose resource has it."""
    parts = [
        AclPolicy(entries=found, policy_type=name)
        for name, policy in policies.items()
        if (found := [entry.shown() for entry in policy.entries.values() if resource_text in str(entry.resource)])
    ]
    return Acl(policies=parts, subject=subject)


def refusal(text: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, text)


def _policy_name(text: str | None) -> str:
    name = next((name for name in (CUSTOM, DEFAULT) if (text or CUSTOM).lower() == name.lower()), None)
    if name is None:
        raise refusal(f"The policy type {text!r} is neither {CUSTOM} nor {DEFAULT}.")
    return name


def _entry(given: AclEntry) -> Entry:
    resource = parse_resource(given.resource or "")
    actions = [parse_action(text) for text in given.actions]
    sources = tuple(source.strip() for source in given.source_ips or ())
    if resource is None:
        raise refusal("The resource is null.")
    if any(text.lower() == "any" for text in given.actions):
        raise refusal("The actions can not be Any.")
    if not actions or None in actions:
        raise refusal("The actions is empty.")
    if len(sources) > SOURCES_MAX:
        raise refusal(f"an entry has at most {SOURCES_MAX} addresses; a network in CIDR is one")
    if not all(map(is_source, sources)):
        raise refusal("The source ip is invalid.")
    if (given.decision or "").lower() not in (ALLOW.lower(), DENY.lower()):
        raise refusal("The decision is null or illegal.")
    is_allowed = (given.decision or "").lower() == ALLOW.lower()
    return Entry(resource, frozenset(action for action in actions if action is not None), sources, is_allowed)
