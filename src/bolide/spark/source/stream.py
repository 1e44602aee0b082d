"""The streaming source: how far it may go, and what lies in between.

One of these lives in a process of its own for as long as its query runs, and Spark asks it in turn: how far is there to
read, what are the parts, and, once a batch is done, please note it. Spark's log of offsets is the only truth; what a
group shows to operators is told from it, late and for the eye alone.

Asked again and again while nothing comes, it waits inside the question (`watch.py`), so an idle query costs next to
nothing, and a message is seen when it arrives. A broker that is away leaves its queues where they were: the query goes
on with the others, and with it when it is back.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bolide.clock import SystemClock
from bolide.errors import ClientError, NoAnswer
from bolide.model.queue import MessageQueue
from bolide.spark.cluster import Cluster
from bolide.spark.options import SourceOptions, Subscription
from bolide.spark.source import offsets
from bolide.spark.source.offsets import LATEST, Document, Position
from bolide.spark.source.planner import plan
from bolide.spark.source.positions import resolve
from bolide.spark.source.pulls import LostMessages, pull_command
from bolide.spark.source.reader import Task, read_task
from bolide.spark.source.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_SAMPLED = 32  # messages of a queue by which the size of the rest is guessed
_SIZE_GUESSED = 1024


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and parts of one streaming query."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._life: _Life | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_life": None}  # sockets stay here

    @property
    def _here(self) -> "_Life":
        if self._life is None:
            self._life = _Life(self._options)
        return self._life

    # How far

    def initialOffset(self) -> Document:  # noqa: N802 (Spark's name, as all of them here)
        return self._here.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        return self._here.latest(start, limit)

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        return self._here.report()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._here.fix_target()

    # What

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        return self._here.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Task), "partitions() makes no others"
        return read_task(self._options, self._schema, partition)

    # Afterwards

    def commit(self, end: Document) -> None:
        self._here.tell(end)

    def stop(self) -> None:
        if self._life is not None:
            self._life.close()


class _Life:
    """What the reader's own process holds: connections, the known queues, and where the query began."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._cluster = Cluster(options.cluster)
        self._watch = Watch(options.cluster, options.group, self._clock)
        self._queues: list[MessageQueue] = []
        self._looked_s: float | None = None
        self._initial: dict[MessageQueue, int] | None = None
        self._target: dict[MessageQueue, int] | None = None
        self._known_ends: dict[MessageQueue, int] = {}
        self._away: set[str] = set()

    def close(self) -> None:
        self._watch.close()
        self._cluster.close()

    def initial(self) -> Document:
        """Where the query begins. Spark asks more than once, and the answer must not move."""
        if self._initial is None:
            options = self._options
            queues = self._cluster.queues(options.subscription)
            first = options.starting or Position(word=LATEST)
            self._initial = resolve(
                self._cluster, queues, first, LATEST, fails_on_loss=options.fails_on_loss, group=options.group
            )
        return offsets.write(self._initial)

    def latest(self, start: Document, limit: ReadLimit) -> Document:
        """How far the next batch goes; the very same document when there is nothing to read."""
        begin = offsets.read(start)
        end = self._end_of(begin, limit)
        if self._target is None and end == begin and self._options.poll_timeout_s:
            here = {queue: offset for queue, offset in end.items() if queue.broker_name not in self._away}
            if self._watch.wait(here, self._cluster.addresses, self._options.poll_timeout_s):
                end = self._end_of(begin, limit)
        if self._initial is not None and start == offsets.write(self._initial):
            return offsets.write(end, begin)  # into Spark's log with it: see `offsets`
        return start if end == begin else offsets.write(end)

    def _end_of(self, begin: dict[MessageQueue, int], limit: ReadLimit) -> dict[MessageQueue, int]:
        ends = self._ends(begin)
        end = offsets.advanced(begin, ends, self._target)
        fresh = [queue for queue in end if queue not in begin]
        whole = begin | self._first_offsets(fresh)
        end = {queue: max(offset, whole[queue]) for queue, offset in end.items() if queue in whole}
        if isinstance(limit, ReadMaxRows):
            return offsets.limited(whole, end, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return offsets.limited(whole, end, max(1, limit.max_bytes // self._size_of_a_row(whole, end)))
        return end

    def _first_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        """Queues that came to be after the query began are read from their first message on."""
        return self._cluster.min_offsets(queues) if queues else {}

    def _ends(self, begin: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The end of every queue that can be asked."""
        self._look_for_queues()
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted({*self._queues, *begin}):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        ends: dict[MessageQueue, int] = {}
        for broker_name, queues in by_broker.items():
            try:
                ends |= self._cluster.max_offsets(queues)
                self._away.discard(broker_name)
            except NoAnswer as problem:
                if broker_name not in self._away:
                    log.warning("broker away, its queues stay where they are broker=%s: %s", broker_name, problem)
                self._away.add(broker_name)
            except ClientError as problem:
                log.warning("queues not there, they stay where they are broker=%s: %s", broker_name, problem)
        self._check_for_loss(begin, ends)
        self._known_ends |= ends
        return ends

    def _check_for_loss(self, begin: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> None:
        behind = [queue for queue in ends if ends[queue] < begin.get(queue, 0)]
        if behind and self._options.fails_on_loss:
            queue = behind[0]
            raise LostMessages(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at {ends[queue]}, and the query "
                f"has read to {begin[queue]}: it was made again, or lost its end. With failOnDataLoss=false the query "
                "waits until it is past that"
            )

    def _look_for_queues(self) -> None:
        """Ask the name server now and then which queues there are; what was known stays if it does not answer."""
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < self._options.route_interval_s:
            return
        try:
            self._queues = self._cluster.queues(self._options.subscription)
        except ClientError as problem:
            if self._looked_s is None and not isinstance(problem, NoAnswer):
                raise
            log.warning("queues not looked up, the known ones stay: %s", problem)
        self._looked_s = now_s

    def _size_of_a_row(self, begin: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
        """About how large a record is: the mean of the first few of each queue that has some."""
        queues = [queue for queue in end if end[queue] > begin[queue]]
        try:
            sampled = self._cluster.ask_queues(
                queues,
                lambda queue: pull_command(queue, begin[queue], _SAMPLED, Subscription(), self._options.group),
                lambda queue, answer: (len(answer.body), int(answer.fields.get("nextBeginOffset", 0)) - begin[queue]),
            )
        except ClientError:
            return _SIZE_GUESSED
        found = [(size, count) for size, count in sampled.values() if size and count > 0]
        return max(1, sum(size for size, _ in found) // sum(count for _, count in found)) if found else _SIZE_GUESSED

    def report(self) -> Document | None:
        """The ends as they were last seen: what is behind them is the lag that Spark shows."""
        return offsets.write(self._known_ends) if self._known_ends else None

    def fix_target(self) -> None:
        """The query ends where the queues end now."""
        self._look_for_queues()
        self._target = self._cluster.max_offsets(self._queues)
        self._known_ends |= self._target

    def tasks(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """The parts of a batch; the same for the same two documents, for as long as the messages are kept."""
        begin = offsets.start_of(end)
        if begin is None:
            begin = offsets.read(start)
        reached = offsets.read(end)
        begin = begin | self._first_offsets([queue for queue in reached if queue not in begin])
        options, addresses = self._options, dict(self._cluster.addresses)
        found = offsets.ranges(begin, reached)
        tasks = plan(found, options.partitions_min)
        return [Task(task, options.subscription, addresses) for task in tasks or [[]]]

    def tell(self, end: Document) -> None:
        if self._options.group is None:
            return
        try:
            self._cluster.tell_progress(self._options.group, offsets.read(end))
        except ClientError as problem:
            log.warning("progress not told group=%s: %s", self._options.group, problem)
