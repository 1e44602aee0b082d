"""The administrator for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TypeVar

from bolide.admin import admin
from bolide.admin.admin import BrokerRow, GroupRow, ProgressRow
from bolide.admin.backtracking import LATEST_MS, Move
from bolide.admin.deadletters import DeadGroupRow, DeadLetter, DeadLetterFilter, Resent
from bolide.admin.membership import MemberRow
from bolide.admin.reach import SilentBroker
from bolide.admin.topics import READ_WRITE, TopicQueueRow, TopicShape
from bolide.admin.traces import MessageTrace
from bolide.admin.transactions import OpenTransaction
from bolide.client.blocking.loop import Blocking
from bolide.client.config import Credentials
from bolide.clock import Clock
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue
from bolide.model.topics import TRACE_TOPIC
from bolide.protocol.bodies import Clusters, ConsumerConnections, GroupConfig, TopicRoute
from bolide.remoting.config import ConnectConfig

T = TypeVar("T")
_PAGE_COUNT = 64


class Admin(Blocking[admin.Admin]):
    """An administrator of one cluster. Open while its `with` block runs; threads may share it."""

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        timeout_s: float = 5.0,
        partial: bool = False,
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used."""
        core = admin.Admin(
            namesrv, timeout_s=timeout_s, partial=partial, credentials=credentials, connect=connect, clock=clock
        )
        super().__init__(core)

    @property
    def silent(self) -> dict[str, SilentBroker]:
        """The brokers whose part was missing in what was answered so far, by name."""
        return self._core.silent

    # The cluster

    def clusters(self) -> Clusters:
        """All brokers by cluster, as the name server knows them."""
        return self._background.run(self._core.clusters())

    def brokers(self) -> list[BrokerRow]:
        """All brokers with what they tell of themselves; one that does not answer is listed too."""
        return self._background.run(self._core.brokers())

    # Topics

    def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics; without those that RocketMQ keeps for itself, unless asked for."""
        return self._background.run(self._core.topics(with_system=with_system))

    def create_topic(
        self,
        topic: str,
        queue_count: int = 8,
        *,
        read_queue_count: int | None = None,
        permission: int = READ_WRITE,
        cluster: str | None = None,
    ) -> list[str]:
        """Create a topic on every master of a cluster (of all, if none is named); returns their addresses.

        One that is there already is left as it is: with the same queues that is well, with others it is an error.
        """
        creating = self._core.create_topic(
            topic, queue_count, read_queue_count=read_queue_count, permission=permission, cluster=cluster
        )
        return self._background.run(creating)

    def topic_shapes(self, topic: str) -> dict[str, TopicShape]:
        """How a topic is laid out, by the name of the broker; nothing if no broker that is known has it."""
        return self._background.run(self._core.topic_shapes(topic))

    def set_topic(
        self,
        topic: str,
        *,
        queue_count: int | None = None,
        read_queue_count: int | None = None,
        permission: int | None = None,
        cluster: str | None = None,
    ) -> dict[str, TopicShape]:
        """Change a topic on the brokers that have it; what is not given stays. Returns how it is now, by broker.

        Fewer queues hide what lies in those that go, and another number moves shards to other queues.
        """
        changing = self._core.set_topic(
            topic, queue_count=queue_count, read_queue_count=read_queue_count, permission=permission, cluster=cluster
        )
        return self._background.run(changing)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic on every broker that has it, and then at the name servers."""
        self._background.run(self._core.delete_topic(topic))

    def route(self, topic: str) -> TopicRoute:
        """Where a topic is."""
        return self._background.run(self._core.route(topic))

    def topic_queues(self, topic: str) -> list[TopicQueueRow]:
        """Every queue of a topic with what it holds."""
        return self._background.run(self._core.topic_queues(topic))

    # Messages

    def messages_by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = admin.EVER_MS
    ) -> list[StoredMessage]:
        """The messages of a topic that were sent with a key, oldest first; times are those of storing."""
        asking = self._core.messages_by_key(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        return self._background.run(asking)

    def messages_by_id(self, topic: str, msg_id: str) -> list[StoredMessage]:
        """The messages with an id that a producer gave: one, or several if it was sent again."""
        return self._background.run(self._core.messages_by_id(topic, msg_id))

    def message_at(self, offset_id: str) -> StoredMessage:
        """The message under an id that a broker gave (`Receipt.offset_id`), which says where it lies."""
        return self._background.run(self._core.message_at(offset_id))

    def trace(
        self, wanted: str, topic: str = TRACE_TOPIC, *, begin_ms: int = 0, end_ms: int = admin.EVER_MS
    ) -> list[MessageTrace]:
        """What producers and consumers with `trace=True` told of a message: by its id, the broker's id, or a key."""
        return self._background.run(self._core.trace(wanted, topic, begin_ms=begin_ms, end_ms=end_ms))

    # Groups

    def groups(self) -> list[str]:
        """The names of all consumer groups; without those that RocketMQ keeps for itself."""
        return self._background.run(self._core.groups())

    def group_rows(self) -> list[GroupRow]:
        """All consumer groups with their members and how far they are behind."""
        return self._background.run(self._core.group_rows())

    def members(self, group: str) -> ConsumerConnections | None:
        """Who is in a group; None when nobody is."""
        return self._background.run(self._core.members(group))

    def member_rows(self, group: str) -> list[MemberRow]:
        """Who is in a group and what each wants, as each tells itself; and whether that is what its mates want."""
        return self._background.run(self._core.member_rows(group))

    def group_progress(self, group: str) -> list[ProgressRow]:
        """How far a group has come in every queue it has read."""
        return self._background.run(self._core.group_progress(group))

    def plan_reset(
        self,
        group: str,
        topic: str,
        time_ms: int = LATEST_MS,
        *,
        offset: int | None = None,
        queue: MessageQueue | None = None,
    ) -> list[Move]:
        """What `reset_group` would do, queue by queue; nothing is changed."""
        return self._background.run(self._core.plan_reset(group, topic, time_ms, offset=offset, queue=queue))

    def reset_group(
        self,
        group: str,
        topic: str,
        time_ms: int = LATEST_MS,
        *,
        offset: int | None = None,
        queue: MessageQueue | None = None,
    ) -> dict[MessageQueue, int]:
        """Have a group go on at a time (in ms of the epoch; -1 skips to the newest), whether its members run or not.

        With `offset` it goes on there instead, or at the nearest a queue still has; with `queue` only that one moves.
        """
        return self._background.run(self._core.reset_group(group, topic, time_ms, offset=offset, queue=queue))

    def skip_backlog(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group pass over all it has not consumed yet."""
        return self._background.run(self._core.skip_backlog(group, topic))

    def clone_group(self, source: str, destination: str, topic: str | None = None) -> None:
        """Let a group be where another is, in one topic or in all that one has read.

        Members of the destination would go on where they are and undo it, so there must be none.
        """
        self._background.run(self._core.clone_group(source, destination, topic))

    def delete_group(self, group: str, *, with_offsets: bool = True) -> None:
        """Delete a group on every master, with its retry topic."""
        self._background.run(self._core.delete_group(group, with_offsets=with_offsets))

    def group_config(self, group: str) -> GroupConfig:
        """What a group is set to, as the first broker that has it says."""
        return self._background.run(self._core.group_config(group))

    def set_group(self, config: GroupConfig) -> list[str]:
        """Create or change a group on every master; returns their addresses."""
        return self._background.run(self._core.set_group(config))

    # Dead letters

    def dead_letter_groups(self) -> list[DeadGroupRow]:
        """The groups that have dead letters, with how many."""
        return self._background.run(self._core.dead_letter_groups())

    def dead_letters(self, group: str, wanted: DeadLetterFilter | None = None) -> Iterator[DeadLetter]:
        """The dead letters of a group that are there now, oldest first; nothing is consumed by looking."""
        return self._paged(self._core.dead_letters(group, wanted))

    def resend_dead_letters(
        self,
        group: str,
        wanted: DeadLetterFilter | None = None,
        *,
        is_dry: bool = False,
        is_for_group: bool = False,
        on_progress: Callable[[Resent], None] = lambda _: None,
    ) -> Resent:
        """Send dead letters to the topics they came from, or with `is_for_group` to their own group alone."""
        resending = self._core.resend_dead_letters(
            group, wanted, is_dry=is_dry, is_for_group=is_for_group, on_progress=on_progress
        )
        return self._background.run(resending)

    # Transactions

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Half messages that nobody decided, oldest first, broker by broker."""
        return self._paged(self._core.open_transactions())

    def given_up_transactions(self) -> Iterator[OpenTransaction]:
        """Half messages that were asked about too often, oldest first, broker by broker."""
        return self._paged(self._core.given_up_transactions())

    def resume_transaction(self, offset_id: str) -> None:
        """Have a transaction that was given up asked about again, by the broker's id of its message."""
        self._background.run(self._core.resume_transaction(offset_id))

    def _paged(self, found: AsyncIterator[T]) -> Iterator[T]:
        try:
            while page := self._background.run(_page(found)):
                yield from page
        finally:
            self._background.run(_closed(found))


async def _page(letters: AsyncIterator[T]) -> list[T]:
    """The next few, so that not each of them costs a switch between threads; an empty list at the end."""
    found: list[T] = []
    async for letter in letters:
        found.append(letter)
        if len(found) == _PAGE_COUNT:
            break
    return found


async def _closed(letters: AsyncIterator[T]) -> None:
    if isinstance(letters, AsyncGenerator):
        await letters.aclose()
