"""What the broker knows, for everyone who serves a request: passive things only, frozen once they are made.

Nothing here answers a request, and nothing here imports who does: a processor is given this state and the two to four
others it acts on. So every processor is made from the same first argument, and none is wired up after it was made.
"""

from dataclasses import dataclass, field
from functools import partial

from bolide.broker.config import BrokerConfig, LiveConfig
from bolide.broker.members.members import Members
from bolide.broker.metrics.meter import Meter
from bolide.broker.replication.safety import Safety
from bolide.broker.role import Role, RoleKind, RoleState
from bolide.broker.stats import Stats
from bolide.broker.tables.groups import Groups
from bolide.broker.tables.offsets import Offsets
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import PERM_WRITE, Topics
from bolide.clock import Clock
from bolide.store.store import Store


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Settings, time, messages and tables of one broker."""

    settings: LiveConfig
    clock: Clock
    store: Store
    stats: Stats
    topics: Topics
    groups: Groups
    offsets: Offsets
    members: Members
    role: Role = field(default_factory=Role)
    safety: Safety = field(default_factory=Safety)
    meter: Meter | None = None  # where metrics are shown

    def __post_init__(self) -> None:
        self.role.listen(self._follow_role)
        self._follow_role(self.role.now, self.role.now)

    @classmethod
    def open(cls, config: BrokerConfig, store: Store, table_writer: TableWriter, clock: Clock) -> "BrokerState":
        """Read the tables beside an open store."""
        settings, safety = LiveConfig(config), Safety()
        topics, groups = Topics(settings, table_writer, clock), Groups(settings, table_writer, clock)
        stats = Stats(clock, topics.table.__contains__, groups.table.__contains__)
        stats.forgets_idle = not config.metrics.is_on
        return cls(
            settings,
            clock,
            store,
            stats,
            topics,
            groups,
            Offsets(config.directory, table_writer, clock, partial(safety.kept, store)),
            Members(settings, groups, topics, clock),
            Role(RoleState(RoleKind(config.store.role), config.broker_id)),
            safety,
            meter=Meter(clock.monotonic_s) if config.metrics.is_on else None,
        )

    def _follow_role(self, old: RoleState, new: RoleState) -> None:
        self.topics.is_copy = self.groups.is_copy = not new.is_leading

    @property
    def is_slave(self) -> bool:
        """Whether another broker writes what this one keeps, or may: its master takes messages, delivers and asks."""
        return not self.role.is_leading

    @property
    def is_delivering(self) -> bool:
        """Whether due messages are this broker's to deliver: a master's, and an acting slave's."""
        return self.role.now.is_delivering

    @property
    def may_write(self) -> bool:
        """Whether an operator lets this broker be written to (brokerPermission)."""
        return bool(self.settings.now.permission & PERM_WRITE)
