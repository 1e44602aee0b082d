"""What a doctor has seen of a cluster, as values: gathered by `gather.py`, judged by `checks.py`.

What could not be seen is None or empty, and `unseen` says why: a check that was not made is told and not passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvFacts:
    """One name server: the brokers it knows as (name, id) → address, and its topics."""

    address: str
    problem: str = ""
    brokers: Mapping[tuple[str, int], str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)  # a broker's name → its cluster
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveFacts:
    """Somebody who copies from a master, and the bytes that are missing there."""

    address: str
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker as it tells of itself; `asked_ms` is our clock's when the answer came, after `took_ms`."""

    name: str
    broker_id: int
    address: str
    cluster: str = ""
    problem: str = ""
    is_refused: bool = False  # it answers, and not to who we are
    runtime: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    asked_ms: int = 0
    took_ms: int = 0
    slaves: tuple[SlaveFacts, ...] | None = None  # None where it was not asked, or does not say
    default_user: str = ""  # of RocketMQ's examples, who is let in with their password
    delayed_due_ms: int | None = None  # when the first message that waits in a delay level is due
    sent_ms: int | None = None  # how long a message of ours took to be stored; None where none was sent
    send_problem: str = ""

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFacts:
    """A topic on one broker."""

    broker: str
    read_count: int
    write_count: int
    permission: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic: its shapes, and where it has no route why that is."""

    name: str
    shapes: tuple[ShapeFacts, ...] = ()
    why_absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """How far a group is in a queue; `committed_before` is from a look some moments earlier.

    `waits_ms` is how long the first unread message waits; asked only of queues that stood still between both looks.
    """

    topic: str
    broker: str
    queue_id: int
    end: int
    committed: int
    committed_before: int | None = None
    first: int | None = None
    waits_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One consumer group; members are (client id, address, version)."""

    name: str
    members: tuple[tuple[str, str, int], ...] = ()
    is_pulling: bool = False  # its members pull by themselves, and are not told what to read
    conflicts: tuple[str, ...] = ()
    queues: tuple[QueueFacts, ...] = ()
    dead_count: int = 0
    dead_last_ms: int = 0
    dead_permission: int | None = None
    last_read_ms: int = 0  # when the newest message that it has read was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine of a store."""

    open_files_max: int = 1 << 20
    map_count_max: int = 1 << 20
    memory_free: int = 1 << 34
    fsync_ms: float = 0.0
    file_system: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it."""

    now_ms: int
    namesrvs: tuple[NamesrvFacts, ...] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    topics: tuple[TopicFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    undecided_groups: Mapping[str, int] = field(default_factory=dict)  # producer groups nobody is in → half messages
    wrong_protocols: Mapping[str, str] = field(default_factory=dict)  # address → what is spoken there
    rivals: Mapping[tuple[str, int], tuple[str, str]] = field(default_factory=dict)  # who replaced whom while we looked
    machine: MachineFacts | None = None
    unseen: tuple[str, ...] = ()

    @property
    def masters(self) -> list[BrokerFacts]:
        """Those that answer."""
        return [broker for broker in self.brokers if broker.is_master and not broker.problem]
