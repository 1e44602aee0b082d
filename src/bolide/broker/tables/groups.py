"""The subscription groups of this broker: what each may do, and how its failures are retried.

Kept as RocketMQ's config/subscriptionGroup.json. The rule is that of `topics.py`: the table changes only through the
methods here, each change is one new version, one save and one word to its listeners, and a group's configuration is a
value that never changes.

Forbidden bits are RocketMQ's: group → topic → bits, numbered like those of a topic's permission, and a set bit forbids.
"""

from collections.abc import Callable, Iterable

import msgspec

from bolide.broker.config import LiveConfig
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import next_version
from bolide.clock import Clock
from bolide.files import read_whole
from bolide.model.names import group_problem
from bolide.model.topics import SYSTEM_GROUP_PREFIX
from bolide.protocol.bodies.body import read
from bolide.protocol.bodies.groups import GroupConfig, GroupTable
from bolide.protocol.bodies.routes import DataVersion

READ_BIT = 2

BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class Groups:
    """The table and its file. Built before the broker listens: reading the file blocks."""

    def __init__(self, settings: LiveConfig, table_writer: TableWriter, clock: Clock) -> None:
        self._settings = settings
        self._table_writer = table_writer
        self._clock = clock
        self._path = settings.now.directory / "subscriptionGroup.json"
        self._on_change: list[Callable[[list[str]], None]] = []
        self.is_copy = False  # of a master's table: nothing is made here
        born = GroupTable(data_version=DataVersion(timestamp=clock.now_ms()))
        kept = read_whole(self._path, parse_groups, born)
        self.version: DataVersion = kept.data_version
        built_in = {group: GroupConfig(group_name=group) for group in BUILT_IN_GROUPS}
        self.table: dict[str, GroupConfig] = {**built_in, **kept.subscription_group_table}
        self._forbidden = kept.forbidden_table
        if len(self.table) > len(kept.subscription_group_table):
            self._save()

    def listen(self, tell: Callable[[list[str]], None]) -> None:
        """Have it told the names of those that changed, came or went."""
        self._on_change.append(tell)

    def get(self, group: str) -> GroupConfig | None:
        """The group if it is there."""
        return self.table.get(group)

    def find(self, group: str) -> GroupConfig | None:
        """The group, made with RocketMQ's defaults where that is allowed; None if it is not."""
        config = self.look_up(group)
        if config is not None and group not in self.table and not self.is_copy:
            self.update(config)
        return config

    def look_up(self, group: str) -> GroupConfig | None:
        """The group as `find` gives it; nothing is made, for those who look need no right to use it."""
        config = self.table.get(group)
        if config is None and self._may_create(group) and not group_problem(group):
            config = GroupConfig(group_name=group)
        return config

    def _may_create(self, group: str) -> bool:
        return self._settings.now.creates_groups or group.startswith(SYSTEM_GROUP_PREFIX)

    def update(self, config: GroupConfig) -> None:
        """Put a group there, or another configuration in its place; an equal one changes nothing."""
        self.update_all([config])

    def update_all(self, configs: Iterable[GroupConfig]) -> None:
        """Several at once, as one change."""
        changed = {each.group_name: each for each in configs if self.table.get(each.group_name) != each}
        if changed:
            self.table.update(changed)
            self._changed(list(changed))

    def remove(self, group: str) -> None:
        """Forget the group and what was forbidden to it."""
        forbidden = self._forbidden.pop(group, None)
        if self.table.pop(group, None) is not None or forbidden is not None:
            self._changed([group])

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        topics = self._forbidden.get(group)
        return bool(topics and topics.get(topic, 0) >> bit & 1)

    def forbid(self, group: str, topic: str, bit: int, is_forbidden: bool) -> None:
        """Set or clear one bit."""
        if self.is_forbidden(group, topic, bit) == is_forbidden:
            return
        bits = self._forbidden.get(group, {}).get(topic, 0) ^ 1 << bit
        topics = {**self._forbidden.get(group, {}), topic: bits}
        if not bits:
            del topics[topic]
        if topics:
            self._forbidden[group] = topics
        else:
            self._forbidden.pop(group, None)
        self._changed([group])

    def adopt(self, told: GroupTable) -> None:
        """A slave has its master's table, and its version; those that are not in it are gone."""
        if told.data_version == self.version:
            return
        table = told.subscription_group_table
        changed = [name for name, config in table.items() if self.table.get(name) != config]
        changed += [name for name in self.table if name not in table]
        self.table = dict(table)
        self._forbidden = dict(told.forbidden_table)
        self.version = told.data_version
        self._save()
        for listener in self._on_change:
            listener(changed)

    def count_state(self, epoch: int) -> None:
        """Another master, or the same in another epoch: what it changes counts from here."""
        self.version = msgspec.structs.replace(self.version, state_version=epoch)
        self._changed([])

    def snapshot(self) -> GroupTable:
        """The whole table as it is now; taken in no time, to be written elsewhere."""
        return GroupTable(
            data_version=self.version,
            forbidden_table=self._forbidden.copy(),
            subscription_group_table=self.table.copy(),
        )

    def _changed(self, groups: list[str]) -> None:
        self.version = next_version(self.version, self._clock)
        self._save()
        for listener in self._on_change:
            listener(groups)

    def _save(self) -> None:
        self._table_writer.save(self._path, lambda: self.snapshot().encode().decode())


def parse_groups(text: str) -> GroupTable:
    """Read a subscriptionGroup.json of 4.9, 5.x or our own; raises ValueError."""
    kept = read(GroupTable, text.encode())
    table = {
        name: config if config.group_name == name else msgspec.structs.replace(config, group_name=name)
        for name, config in kept.subscription_group_table.items()
    }
    return msgspec.structs.replace(kept, subscription_group_table=table)
