"""Where groups are kept: the door that a file and etcd stand behind.

Rule: a group is replaced only by one who read the value that is there now (`revision`) and who leads. So two
controllers, or two requests at one, may decide at the same time, and one of them is told to look again. Nothing else
orders them: no lock, no clock, no opinion on who leads.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from bolide.controller.elections import ReplicaGroup
from bolide.errors import BolideError, StoreError

ABSENT = 0  # the revision of what is not there


class Unreachable(BolideError):
    """The register cannot be read or written now; what was asked last may have happened or not."""


class Node(NamedTuple):
    """One controller: its id, and the address by which brokers reach it."""

    id: str
    address: str


class Kept(NamedTuple):
    """A group as it is kept, None where there is none, and the revision that a change has to name."""

    group: ReplicaGroup | None
    revision: int


class Register(Protocol):
    """What keeps the groups of all names, and chooses which controller leads."""

    @property
    def leader(self) -> Node | None:
        """Who leads as far as is known; None while nobody does."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether the controller that joined here leads."""
        ...

    @property
    def peers(self) -> list[Node]:
        """All controllers that share these groups."""
        ...

    async def join(self, node: Node) -> None:
        """Take part under this address; raises BolideError where that cannot be."""
        ...

    async def lead_forever(self, changed: Callable[[], None]) -> None:
        """Try to lead, and tell each time it becomes another who does; until cancelled."""
        ...

    async def read(self, name: str) -> Kept:
        """The group of a name; raises Unreachable."""
        ...

    async def write(self, name: str, group: ReplicaGroup | None, revision: int) -> bool:
        """Replace what had this revision, or remove it; False if it has another by now, or somebody else leads."""
        ...

    async def groups(self) -> list[ReplicaGroup]:
        """All groups; raises Unreachable."""
        ...

    async def close(self) -> None:
        """Give up the lead, so that another need not wait for it to run out."""
        ...


def encode_group(group: ReplicaGroup) -> bytes:
    """A group as it is kept: JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(group), indent=1) + b"\n"


def decode_group(data: bytes, where: str) -> ReplicaGroup:
    """Read what `encode_group` wrote; raises StoreError for anything else."""
    try:
        group = msgspec.json.decode(data, type=ReplicaGroup)
        if (problem := _problem(group)) is not None:
            raise ValueError(problem)
    except ValueError as problem:
        text = f"{where} holds no group of brokers: {problem}; repair it, or take it away and let its brokers register"
        raise StoreError(text) from None
    return group


def _problem(group: ReplicaGroup) -> str | None:
    """What no decision could have led to."""
    if not set(group.sync_set) <= group.members.keys():
        return f"the set {list(group.sync_set)} names brokers that are not members"
    if group.master_id is not None and group.master_id not in group.sync_set:
        return f"master {group.master_id} is not in the set {list(group.sync_set)}"
    if group.members and not 0 < min(group.members) <= max(group.members) < group.next_id:
        return f"ids {sorted(group.members)} are not below the next one, {group.next_id}"
    return None
