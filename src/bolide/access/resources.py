"""What rights are about: a topic, a group, the cluster; named by a policy (`Topic:pre*`), asked for by a request."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from ipaddress import ip_address, ip_network


class Kind(StrEnum):
    """What a resource is."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    """What somebody wants to do with it. `ALL` stands in policies alone."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Reach(IntEnum):
    """How many names a pattern has; in a decision the narrower one comes first."""

    LITERAL = 0
    PREFIX = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a request asks for: any of the actions on the resource is enough."""

    kind: Kind
    name: str
    actions: frozenset[Action]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What an entry of a policy is about."""

    kind: Kind
    reach: Reach
    name: str  # without its star

    def __str__(self) -> str:
        if self.kind is Kind.ANY:
            return "*"
        return f"{self.kind}:{self.name}{'' if self.reach is Reach.LITERAL else '*'}"


def parse_resource(text: str) -> Resource | None:
    """`Topic:T`, `Group:pre*`, `Cluster:*` or `*`; None for anything else."""
    if text == "*":
        return Resource(Kind.ANY, Reach.ALL, "")
    word, colon, name = text.partition(":")
    kind = next((kind for kind in Kind if kind.lower() == word.lower() and kind is not Kind.ANY), None)
    if not colon or not name or kind is None:
        return None
    if name == "*":
        return Resource(kind, Reach.ALL, "")
    return Resource(kind, Reach.PREFIX, name[:-1]) if name.endswith("*") else Resource(kind, Reach.LITERAL, name)


def parse_action(text: str) -> Action | None:
    return next((action for action in Action if action.lower() == text.lower()), None)


def is_source(text: str) -> bool:
    """Whether this is an address, or a network in CIDR."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def is_from(host: str, sources: tuple[str, ...]) -> bool:
    """Whether an address is one of these, or in one of these networks; no sources are all."""
    if not sources or host in sources:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    networks = (ip_network(source, strict=False) for source in sources if "/" in source)
    return any(address in network for network in networks)
