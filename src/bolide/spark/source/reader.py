"""What a task does with its ranges, and the batch source on top of it.

A query without pushed filters is planned once for the life of its DataFrame: `latest` is what it was then, and another
`.load()` sees what came since. Filters only ever make the plan smaller; those that it does not keep to the row are
given back to Spark, which checks every row. A reader that takes filters fails while Spark's switch for them is off, and
nobody tells us of the switch; but the module that asks for filters is only loaded where it is on.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from bolide.clock import SystemClock
from bolide.kernel.layout import Buffer
from bolide.model.queue import MessageQueue
from bolide.spark.cluster import Cluster
from bolide.spark.options import SourceOptions, Subscription
from bolide.spark.source.filters import Pruning, is_kept_by_plan, pruning_of
from bolide.spark.source.offsets import EARLIEST, LATEST, Position, Range, ranges
from bolide.spark.source.planner import plan
from bolide.spark.source.positions import offsets_at, resolve
from bolide.spark.source.pulls import RangePulls

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_ASKING_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
# Records are gathered to about this size before they become a batch: Spark likes 10 to 30 thousand rows.
_GATHERED_SIZE = 4 << 20


class Task(InputPartition):
    """What one task reads; carries the addresses, so that a task need not ask a name server."""

    def __init__(self, ranges: Sequence[Range], subscription: Subscription, addresses: dict[str, str]) -> None:
        super().__init__(None)
        self.ranges = list(ranges)
        self.subscription = subscription
        self.addresses = addresses

    def __repr__(self) -> str:
        return f"Task({self.ranges}, {self.subscription.expression!r})"


def read_task(options: SourceOptions, schema: "StructType", task: Task) -> Iterator["pa.RecordBatch"]:
    """The rows of a task as Arrow batches."""
    import pyarrow as pa

    from bolide.spark.columns import Columns
    from bolide.spark.schema import arrow_schema

    arrow, spreading = arrow_schema(schema), dict[str, Columns]()
    with Cluster(options.cluster, task.addresses) as cluster:
        pulls = RangePulls(
            cluster,
            SystemClock(),
            task.subscription,
            options.group,
            fails_on_loss=options.fails_on_loss,
            timeout_s=options.pull_timeout_s,
            count_max=options.pull_count_max,
        )
        for broker_name, records in _gathered(pulls.read(task.ranges)):
            if broker_name not in spreading:
                spreading[broker_name] = Columns(schema.names, broker_name)
            found = spreading[broker_name].batch_of(records)
            yield pa.RecordBatch.from_arrays(found.columns, schema=arrow)  # a user's schema may say NOT NULL


def _gathered(answers: Iterator[tuple[MessageQueue, Buffer]]) -> Iterator[tuple[str, Buffer]]:
    """Answers of one broker joined until they are worth a batch."""
    held: list[Buffer] = []
    name, size = "", 0
    for queue, records in answers:
        if held and (queue.broker_name != name or size + len(records) > _GATHERED_SIZE):
            yield name, held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
        name = queue.broker_name
        held.append(records)
        size += len(records)
    if held:
        yield name, held[0] if len(held) == 1 else b"".join(held)


def batch_reader(options: SourceOptions, schema: "StructType") -> DataSourceReader:
    """A reader that takes filters where Spark gives them."""
    return FilteringReader(options, schema) if _ASKING_MODULE in sys.modules else BatchReader(options, schema)


class BatchReader(DataSourceReader):
    """A snapshot of some ranges."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        options, pruning = self._options, self._pruning
        subscription = options.subscription
        if pruning.tags is not None and not subscription.is_filtered:
            subscription = replace(subscription, expression=" || ".join(sorted(pruning.tags)))
        with Cluster(options.cluster) as cluster:
            queues = [queue for queue in cluster.queues(options.subscription) if pruning.has(queue)]
            found = [] if pruning.is_empty else self._ranges(cluster, queues)
            tasks = plan(found, options.partitions_min)
            # Without a partition Spark would make one up, and read it.
            return [Task(task, subscription, dict(cluster.addresses)) for task in tasks or [[]]]

    def _ranges(self, cluster: Cluster, queues: list[MessageQueue]) -> list[Range]:
        options, pruning = self._options, self._pruning
        if not queues:
            return []
        losses, group = options.fails_on_loss, options.group
        first = options.starting or Position(word=EARLIEST)
        last = options.ending or Position(word=LATEST)
        start = resolve(cluster, queues, first, EARLIEST, fails_on_loss=losses, group=group)
        end = resolve(cluster, queues, last, LATEST, fails_on_loss=losses, group=group)
        if pruning.from_ms is not None:
            after = offsets_at(cluster, queues, pruning.from_ms, cluster.min_offsets(queues), end, group)
            start = {queue: max(start[queue], after[queue]) for queue in queues}
        if pruning.until_ms is not None:
            before = offsets_at(cluster, queues, pruning.until_ms, cluster.min_offsets(queues), end, group)
            end = {queue: min(end[queue], before[queue]) for queue in queues}
        low, high = pruning.offsets
        start = {queue: max(offset, low) for queue, offset in start.items()}
        end = {queue: offset if high is None else min(offset, high) for queue, offset in end.items()}
        return ranges(start, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Task), "partitions() makes no others"
        return read_task(self._options, self._schema, partition)


class FilteringReader(BatchReader):
    """The same with a plan that filters have made smaller."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._pruning = pruning_of(filters)
        return [each for each in filters if not is_kept_by_plan(each)]
