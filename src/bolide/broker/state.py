"""What the broker knows, for everyone who serves a request: passive things only, frozen once they are made.

Nothing here answers a request, and nothing here imports who does: a processor is given this state and the two to four
others it acts on. So every processor is made from the same first argument, and none is wired up after it was made.
"""

from dataclasses import dataclass

from bolide.broker.config import BrokerConfig, LiveConfig
from bolide.broker.members.members import Members
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

    @classmethod
    def open(cls, config: BrokerConfig, store: Store, table_writer: TableWriter, clock: Clock) -> "BrokerState":
        """Read the tables beside an open store."""
        settings = LiveConfig(config)
        topics, groups = Topics(settings, table_writer, clock), Groups(settings, table_writer, clock)
        return cls(
            settings,
            clock,
            store,
            Stats(clock, topics.table.__contains__, groups.table.__contains__),
            topics,
            groups,
            Offsets(config.directory, table_writer, clock, store.durable),
            Members(settings, groups, topics, clock),
        )

    @property
    def is_slave(self) -> bool:
        """Whether another broker writes what this one keeps: its master takes messages, delivers and asks."""
        return self.store.config.role == "SLAVE"

    @property
    def may_write(self) -> bool:
        """Whether an operator lets this broker be written to (brokerPermission)."""
        return bool(self.settings.now.permission & PERM_WRITE)
