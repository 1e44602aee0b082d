"""The sink: rows of a batch or of a stream become messages.

At least once, the default: a task sends its rows, and a task that is repeated sends them again, under the same
identity. Exactly once, with a Bolide broker: see `staging.py`.

Spark makes a stream's writer anew for the commit, in another process; what a task did is known there only by the
message it returned. A batch has no number of its own, so its name is made here, with the writer.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bolide.clock import SystemClock
from bolide.errors import ConfigError
from bolide.spark.cluster import Cluster
from bolide.spark.options import SinkOptions
from bolide.spark.rows import Bundles, check_sink, rows_of
from bolide.spark.sending import Sending, unique_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class Written(WriterCommitMessage):
    """What a task did."""

    def __init__(self, query: str, batch: int, count: int) -> None:
        self.query = query
        self.batch = batch
        self.count = count


def write_rows(
    options: SinkOptions, query: str, batch: int, partition: int, batches: Iterator["pa.RecordBatch"]
) -> Written:
    """Send all rows of a task."""
    clock = SystemClock()
    with Cluster(options.cluster) as cluster:
        sending = Sending(cluster, options, clock)
        bundles = Bundles(sending.route, unique_ids(clock), partition)
        number = 0
        for each in batches:
            for row in rows_of(each, options.topic, f"{query}/{batch}/{partition}", number):
                sending.send(bundles.add(row))
            number += each.num_rows
        sending.send(bundles.rest())
        return Written(query, batch, sending.finish())


class BatchWriter(DataSourceArrowWriter):
    """A write of a DataFrame that ends."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool) -> None:
        check_sink(schema, options.topic)
        if overwrite:
            raise ConfigError("mode", "overwrite", 'messages are added to a topic; write with .mode("append")')
        self._options = options
        self._query = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        task = TaskContext.get()
        assert task is not None, "Spark writes within a task"
        return write_rows(self._options, self._query, 0, task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a streaming query."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool) -> None:
        check_sink(schema, options.topic)
        if overwrite:
            raise ConfigError("outputMode", "complete", "a message that was sent cannot be replaced; append or update")
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        task = TaskContext.get()
        assert task is not None, "Spark writes within a task"
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        assert query, "Spark names the query of every task of a stream"
        assert batch, "Spark names the batch of every task of a stream"
        return write_rows(self._options, query, int(batch), task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
