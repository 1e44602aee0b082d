"""What the route tables hold, what brokers tell them and what they answer: values without behaviour of their own.

Only `Plan` does a little work: it compares the topics of one registration with those at hand, some at a time. A
connection is an opaque thing here; the tables tell one from another and hand it back to be closed.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import msgspec

from bolide.namesrv.shares import TOPIC_SIZE
from bolide.protocol.bodies.routes import DataVersion

MASTER_ID = 0
HEARTBEAT_TIMEOUT_MS = 120_000
PERM_WRITE = 2
PERM_READ = 4


class QueueRow(msgspec.Struct, frozen=True, gc=False):
    """What one broker has of one topic (RocketMQ's QueueData). Not tracked by the garbage collector: there are many."""

    read_count: int
    write_count: int
    perm: int
    flags: int = 0

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def with_perm(self, perm: int) -> "QueueRow":
        return QueueRow(self.read_count, self.write_count, perm, self.flags)

    def without_write(self) -> "QueueRow":
        return self.with_perm(self.perm & ~PERM_WRITE)


@dataclass(slots=True)
class Broker:
    """All that share one brokerName: a master (id 0) and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    has_acting_master: bool = False
    zone: str | None = None

    @property
    def is_without_master(self) -> bool:
        return MASTER_ID not in self.addresses


LiveKey = tuple[str, str]  # cluster, address


@dataclass(slots=True)
class Live:
    """One broker process that is heard of."""

    name: str
    heard_ms: int
    timeout_ms: int
    version: DataVersion
    connection: Hashable
    ha_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a broker says of itself when it registers. `acting_master` is None for brokers before 5.0."""

    cluster: str
    name: str
    address: str
    broker_id: int
    version: DataVersion
    topics: Mapping[str, QueueRow]
    connection: Hashable
    ha_address: str = ""
    filter_servers: list[str] | None = None
    acting_master: bool | None = None
    zone: str | None = None
    timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    mappings: Mapping[str, msgspec.Raw] = field(default_factory=dict)

    @property
    def key(self) -> LiveKey:
        return self.cluster, self.address

    @property
    def mappings_size(self) -> int:
        return sum(map(len, map(bytes, self.mappings.values())))


@dataclass(frozen=True, slots=True)
class MinIdNotice:
    """The smallest id of a broker name is another one now; `receivers` are the addresses to tell."""

    name: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline_address: str = ""
    ha_address: str = ""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """How a registration went; both addresses are empty for a master."""

    master_address: str = ""
    ha_address: str = ""
    is_new: bool = False
    is_ignored: bool = False
    written_count: int = 0
    removed_count: int = 0
    notice: MinIdNotice | None = None


class Cause(StrEnum):
    """Why a broker left; the words go into logs and remarks."""

    UNREGISTERED = "unregistered"
    EXPIRED = "stopped sending heartbeats"
    DISCONNECTED = "closed its connection"


@dataclass(frozen=True, slots=True)
class Departure:
    """One address that left. `rows` is what went with it: empty as long as another address of the name stays."""

    cluster: str
    name: str
    address: str
    cause: Cause
    at_ms: int
    silent_ms: int = 0
    rows: Mapping[str, QueueRow] = field(default_factory=dict)
    connection: Hashable = None
    notice: MinIdNotice | None = None


class Plan:
    """A registration that was admitted, and what it will change."""

    def __init__(self, announcement: Announcement, revision: int) -> None:
        self.announcement = announcement
        self.revision = revision
        self.changed: dict[str, QueueRow] = {}
        self.gone: set[str] = set()
        self.is_first = False
        self.is_ignored = False
        self.takes_mappings = False
        self.wipes_write = False
        self.added_count = 0
        self.added_size = 0  # as `shares.py` reckons
        self._rows: Mapping[str, QueueRow] = {}
        self._writes_all = False
        self._left: Iterator[tuple[str, QueueRow]] = iter(())
        self._left_count = 0

    def take_topics(self, rows: Mapping[str, QueueRow], *, writes_all: bool, wipes_write: bool) -> None:
        """Compare the announced topics with `rows`: all fields of them, or only whether they are there."""
        self._rows = rows
        self._writes_all = writes_all
        self.wipes_write = wipes_write
        self.takes_mappings = writes_all
        self._left = iter(self.announcement.topics.items())
        self._left_count = len(self.announcement.topics)

    def compare(self, count: int) -> bool:
        """Look at up to `count` more topics; says whether some are left."""
        for topic, row in islice(self._left, count):
            known = self._rows.get(topic)
            if known is not None and not self._writes_all:
                continue
            wanted = row.without_write() if self.wipes_write else row
            if known is None:
                self.added_count += 1
                self.added_size += TOPIC_SIZE + len(topic)
            if wanted != known:
                self.changed[topic] = wanted
        self._left_count -= count
        return self._left_count > 0
