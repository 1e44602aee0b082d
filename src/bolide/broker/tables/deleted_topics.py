"""Queues without a topic: those that a recovery makes again though their topic was deleted, and a slave's.

The records of a deleted topic stay in the log until they expire, and a start after a crash reads the log again from
well before its end and makes queues for all it finds. The topic, made again, would begin with messages that went with
it; in RocketMQ it does.

Removed is only what nobody can miss: queues that were not on disk before the start, of a topic that the table does not
know, for a send is confirmed when its topic is in the table on disk. Topics that the broker makes for itself are left
alone, and a store without a table (a log that was copied alone) keeps all that was found.

The other way round, dead letters whose topic is not in the table get it back: popped messages die in the background,
and a crash may come between the message and the table. And a slave has messages before it is told of their topic: if
it is to lead, they were acknowledged, and their topic comes back with the queues that are there.
"""

import logging

from bolide.broker.config import BrokerConfig
from bolide.broker.tables.topics import TABLE_NAME, Topics
from bolide.model.topics import DEAD_LETTER_PREFIX
from bolide.store.store import Store

_OWN_PREFIX = "%"  # retries and dead letters
log = logging.getLogger(__name__)


def topics_before(config: BrokerConfig) -> frozenset[str] | None:
    """The topics that have queues on disk before the store is opened; None if there is no table of topics."""
    if not (config.directory / TABLE_NAME).exists():
        return None
    directory = config.store.root / "consumequeue"
    return frozenset(path.name for path in directory.iterdir()) if directory.is_dir() else frozenset()


def remove_deleted_topics(store: Store, topics: Topics, before: frozenset[str] | None) -> None:
    """Remove queues that were made by opening the store and belong to no topic."""
    if before is None:
        return
    found = store.topics
    for topic in sorted(found - before - topics.table.keys()):
        if not topic.startswith(_OWN_PREFIX) and not topics.is_system(topic):
            store.remove_topic(topic)
            log.info("queues of a deleted topic were found in the log and removed topic=%s", topic)
    for topic in sorted((found & before) - topics.table.keys()):
        if topic.startswith(DEAD_LETTER_PREFIX):
            topics.ensure(topic, 1)
            log.info("dead letters were found whose topic was not in the table topic=%s", topic)


def restore_topics(store: Store, topics: Topics, queue_count_min: int) -> None:
    """Put the topics of a log that was copied into the table, as far as nobody told of them.

    How many queues they had is not known: they get as many as a topic usually has, and all that have messages.
    """
    counts: dict[str, int] = {}
    for key in store.queue_keys:
        if key.topic not in topics.table and store.next_offset(key):
            counts[key.topic] = max(counts.get(key.topic, queue_count_min), key.queue_id + 1)
    for topic, queue_count in sorted(counts.items()):
        if not topics.is_system(topic):
            topics.ensure(topic, queue_count)
            log.warning("a topic that this broker was not told of came back topic=%s queues=%d", topic, queue_count)
