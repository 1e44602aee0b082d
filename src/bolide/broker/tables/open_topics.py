"""The topics that take messages without a question, in the form the kernel asks for them.

A topic is open when nothing about it needs thought: it may be written to, is no retry or dead-letter topic, and its
entry in topics.json is on disk. That last part is the rule here: the first messages of a new topic are answered only
after the table was written, so that a crash cannot keep an acknowledged message and lose its topic. Sends to any other
topic are judged one by one (`sending/send.py`).

The first dead letter of a group waits for the name servers too: who gives a message up and looks for it then finds it.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from bolide.broker.config import LiveConfig
from bolide.broker.tables.topics import PERM_WRITE, Topics
from bolide.errors import Refusal
from bolide.model.names import topic_problem
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_closed_topic
from bolide.protocol.bodies.topics import TopicConfig

Announced = Callable[[], Awaitable[object]]


class Flushing(Protocol):
    """Knows when tables are where a crash leaves them."""

    async def flush(self) -> None:
        """Raises StoreError where they cannot be, and Refusal where a replica is late."""
        ...


class OpenTopics:
    """Follows the table of topics. `table` is name → name and the number of its queues."""

    def __init__(
        self, topics: Topics, settings: LiveConfig, tables: Flushing, announced: Announced | None = None
    ) -> None:
        """`announced` waits until name servers know the topics; nobody does where there are none."""
        self._topics = topics
        self._settings = settings
        self._tables = tables
        self._kept = set(topics.table)
        self._announced = announced
        self.table: dict[bytes, tuple[str, int]] = {}
        topics.listen(self.follow)
        self.follow_all()

    def follow_all(self) -> None:
        """The settings changed, or this is the start."""
        self.table.clear()
        self.follow(list(self._topics.table))

    def follow(self, names: list[str]) -> None:
        """These topics changed, came or went."""
        for name in names:
            self.table.pop(name.encode(), None)
            config = self._topics.find(name)
            if config is None:
                self._kept.discard(name)
            elif name in self._kept and self._is_open(config):
                self.table[name.encode()] = (name, queue_count(config))

    def _is_open(self, config: TopicConfig) -> bool:
        name = config.topic_name
        return bool(
            config.perm & PERM_WRITE
            and (self._settings.now.permission & PERM_WRITE or not config.order)
            and not is_closed_topic(name)
            and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
            and topic_problem(name) is None
        )

    def is_kept(self, name: str) -> bool:
        """Whether the topic would be there after a crash."""
        return name in self._kept

    async def keep(self, name: str) -> None:
        """Wait until the topic would be there after a crash; raises StoreError when its table cannot be written."""
        config = self._topics.find(name)
        try:
            await self._tables.flush()
        except Refusal:  # a replica is late: the message waits for it too, and it finds the topic by that
            return
        if self._announced is not None and name.startswith(DEAD_LETTER_PREFIX):
            await self._announced()
        if config is not None and self._topics.find(name) is config:
            self._kept.add(name)
            self.follow([name])


def queue_count(config: TopicConfig) -> int:
    """How many queues a message may be sent to: also those that are only read, while a topic shrinks."""
    return max(config.read_queue_nums, config.write_queue_nums)
