"""The topics of this broker: which there are, how many queues each has, what may be done with them.

Kept as RocketMQ's config/topics.json, written by either, so a store directory can change hands. Rule: the table changes
only through the methods here, and each change is one new version, one save and one word to its listeners. A topic's
configuration is a value that never changes; a changed topic is another value in its place, so who holds one for the
length of a request sees one state of it.

The topics RocketMQ's brokers are born with are there after every start; what the file says of them wins. One does not
follow the file but the settings, at every start: TBW102, the example for topics made by a send. (Java keeps the one of
the first start, so switching automatic creation on again, or another queue count, has no effect there.)
"""

from collections.abc import Callable, Iterable

import msgspec

from bolide.broker.config import BrokerConfig, LiveConfig
from bolide.broker.tables.table_files import TableWriter
from bolide.clock import Clock
from bolide.files import read_whole
from bolide.model import topics as names
from bolide.model.names import topic_problem
from bolide.protocol.bodies.body import read
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.bodies.topics import TopicConfig, TopicTable

TABLE_NAME = "topics.json"
PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
PERM_ALL = PERM_READ_WRITE | PERM_INHERIT

_BENCHMARK_QUEUE_COUNT = 1024
_CLUSTER_QUEUE_COUNT = 16
_DELAY_LEVEL_COUNT = 18


class Topics:
    """The table and its file. Built before the broker listens: reading the file blocks."""

    def __init__(self, settings: LiveConfig, table_writer: TableWriter, clock: Clock) -> None:
        self._settings = settings
        self._table_writer = table_writer
        self._clock = clock
        self._path = settings.now.directory / TABLE_NAME
        self._on_change: list[Callable[[list[str]], None]] = []
        self.is_copy = False  # of a master's table: nothing is made here
        built_in = {config.topic_name: config for config in built_in_topics(settings.now)}
        self.system_names = frozenset(built_in) | names.SYSTEM_TOPICS
        born = TopicTable(data_version=DataVersion(timestamp=clock.now_ms()))
        kept = read_whole(self._path, parse_topics, born)
        self.version: DataVersion = kept.data_version
        self.table: dict[str, TopicConfig] = {**built_in, **kept.topic_config_table}
        self._follow_settings()
        if self.table != kept.topic_config_table:
            self._changed([])

    def listen(self, tell: Callable[[list[str]], None]) -> None:
        """Have it told the names of those that changed, came or went."""
        self._on_change.append(tell)

    def find(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        """A topic that belongs to RocketMQ itself: nobody creates or deletes it by name."""
        return topic in self.system_names or topic.startswith(names.SYSTEM_PREFIX)

    def for_send(self, topic: str, default_topic: str, queue_count: int, sys_flag: int) -> TopicConfig | None:
        """The topic a message is for, made after the example of `default_topic` where that allows it; None if not.

        It gets as many queues as the sender asks for, but no more than the example has for writing.
        """
        config = self.table.get(topic)
        if config is not None or topic_problem(topic) or self.is_copy:
            return config
        example = self.table.get(default_topic)
        if example is not None and example.perm & PERM_INHERIT and self._is_example(default_topic):
            count = max(0, min(queue_count, example.write_queue_nums))
            made = msgspec.structs.replace(
                example,
                attributes={},
                mapping_detail=None,
                order=False,
                perm=example.perm & ~PERM_INHERIT,
                read_queue_nums=count,
                topic_name=topic,
                topic_sys_flag=sys_flag,
                write_queue_nums=count,
            )
            self._put(made)
            return made
        if topic.startswith(names.RETRY_PREFIX):
            return self.ensure(topic, 1, PERM_READ_WRITE, sys_flag)
        return None

    def _is_example(self, default_topic: str) -> bool:
        return default_topic != names.AUTO_CREATE_TOPIC or self._settings.now.creates_topics

    def ensure(self, topic: str, queue_count: int, perm: int = PERM_READ_WRITE, sys_flag: int = 0) -> TopicConfig:
        """A topic the broker itself needs: the one that is there, else a new one."""
        config = self.table.get(topic)
        if config is None:
            config = _topic(topic, queue_count, perm, sys_flag)
            if not self.is_copy:
                self._put(config)
        return config

    def update(self, config: TopicConfig) -> None:
        """Put a topic there, or another configuration in its place; an equal one changes nothing."""
        if self.table.get(config.topic_name) != config:
            self._put(config)

    def update_all(self, configs: Iterable[TopicConfig]) -> None:
        """Several at once, as one change."""
        changed = {each.topic_name: each for each in configs if self.table.get(each.topic_name) != each}
        if changed:
            self.table.update(changed)
            self._changed(list(changed))

    def remove(self, topic: str) -> None:
        if self.table.pop(topic, None) is not None:
            self._changed([topic])

    def adopt(self, told: TopicTable) -> None:
        """A slave has its master's table, and its version; those that are not in it are gone."""
        if told.data_version == self.version:
            return
        table = told.topic_config_table
        changed = [name for name, config in table.items() if self.table.get(name) != config]
        changed += [name for name in self.table if name not in table]
        self.table = dict(table)
        self.version = told.data_version
        self._save()
        for listener in self._on_change:
            listener(changed)

    def count_state(self, epoch: int) -> None:
        """Another master, or the same in another epoch: its table wins over those of earlier ones at name servers."""
        self.version = msgspec.structs.replace(self.version, state_version=epoch)
        self._changed([])

    def touch(self) -> None:
        """The settings changed: a new version, for what name servers are told of any topic may be another now."""
        self._follow_settings()
        self._changed(list(self.table))

    def _follow_settings(self) -> None:
        example = self.table.get(names.AUTO_CREATE_TOPIC)
        if self._settings.now.creates_topics:
            self.table[names.AUTO_CREATE_TOPIC] = _example_topic(self._settings.now)
        elif example is not None:
            perm = example.perm & ~PERM_INHERIT
            self.table[names.AUTO_CREATE_TOPIC] = msgspec.structs.replace(example, perm=perm)

    def snapshot(self) -> TopicTable:
        """The whole table as it is now; taken in no time, to be written elsewhere."""
        return TopicTable(data_version=self.version, topic_config_table=self.table.copy())

    def _put(self, config: TopicConfig) -> None:
        self.table[config.topic_name] = config
        self._changed([config.topic_name])

    def _changed(self, topics: list[str]) -> None:
        self.version = next_version(self.version, self._clock)
        self._save()
        for listener in self._on_change:
            listener(topics)

    def _save(self) -> None:
        self._table_writer.save(self._path, lambda: self.snapshot().encode().decode())


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics every broker has, as 5.x makes them."""
    cluster, broker = config.cluster, config.name
    made = [
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUE_COUNT),
        _topic(cluster, _CLUSTER_QUEUE_COUNT, PERM_ALL if config.has_cluster_topic else PERM_INHERIT),
        _topic(broker, 1, PERM_ALL if config.has_broker_topic else PERM_INHERIT),
        _topic(names.OFFSET_MOVED_TOPIC, 1),
        _topic(names.SCHEDULE_TOPIC, _DELAY_LEVEL_COUNT),
        _topic(names.reply_topic(cluster), 1),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.OP_HALF_TOPIC, 1),
        _topic(revive_topic(cluster), config.revive_queue_count),
        _topic(f"{names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
    ]
    if config.creates_topics:
        made.append(_example_topic(config))
    if config.store.timer_enabled:
        made.append(_topic(names.TIMER_TOPIC, 1))
    if config.has_trace_topic:
        made.append(_topic(config.trace_topic, 1))
    return made


def revive_topic(cluster: str) -> str:
    """Where the checkpoints and acknowledgements of popped messages are kept."""
    return f"{names.SYSTEM_PREFIX}REVIVE_LOG_{cluster}"


def parse_topics(text: str) -> TopicTable:
    """Read a topics.json of 4.9, 5.x or our own; raises ValueError."""
    kept = read(TopicTable, text.encode())
    table = {
        name: config if config.topic_name == name else msgspec.structs.replace(config, topic_name=name)
        for name, config in kept.topic_config_table.items()
    }
    return TopicTable(data_version=kept.data_version, topic_config_table=table)


def next_version(version: DataVersion, clock: Clock) -> DataVersion:
    """The version after a change, as Java counts."""
    return msgspec.structs.replace(version, counter=version.counter + 1, timestamp=clock.now_ms())


def _example_topic(config: BrokerConfig) -> TopicConfig:
    return _topic(names.AUTO_CREATE_TOPIC, config.topic_queue_count, PERM_ALL)


def _topic(name: str, queue_count: int, perm: int = PERM_READ_WRITE, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        perm=perm,
        read_queue_nums=queue_count,
        topic_name=name,
        topic_sys_flag=sys_flag,
        write_queue_nums=queue_count,
    )
