"""The sink: rows of a batch or of a stream become messages.

At least once, the default: a task sends its rows, and a task that is repeated sends them again, under the same
identity. Exactly once, with a Bolide broker: see `staging.py`.

Spark makes a stream's writer again for the commit, in another process; what a task did is known there only by the
message it returned. A batch has no number of its own, so its name is made here, with the writer.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bolide.clock import SystemClock
from bolide.errors import ClientError, ConfigError
from bolide.protocol.staging import Publish
from bolide.spark.cluster import Cluster
from bolide.spark.options import SinkOptions
from bolide.spark.sink.rows import BUNDLE_COUNT_MAX, STAGE_COUNT_MAX, Bundles, check_sink, runs_of
from bolide.spark.sink.sending import Sending, unique_ids
from bolide.spark.sink.staging import Stage, Staging, publish

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class Written(WriterCommitMessage):
    """What a task did: how many rows it sent, or what it staged and where."""

    def __init__(self, query: str, batch: int, count: int) -> None:
        self.query = query
        self.batch = batch
        self.count = count
        self.stages: list[Stage] = []
        self.broker_name: str | None = None
        self.topic = ""


def write_rows(
    options: SinkOptions, query: str, batch: int, partition: int, batches: Iterator["pa.RecordBatch"]
) -> Written:
    """Send or stage all rows of a task."""
    clock = SystemClock()
    with Cluster(options.cluster) as cluster:
        staging = Staging(cluster, options, clock, query, batch, partition) if options.is_exactly_once else None
        sending = staging or Sending(cluster, options, clock)
        count_max = STAGE_COUNT_MAX if options.is_exactly_once else BUNDLE_COUNT_MAX
        bundles, ids = Bundles(sending.route, partition, count_max), unique_ids(clock)
        written = Written(query, batch, 0)
        number = 0
        for each in batches:
            for run in runs_of(each, options.topic, f"{query}/{batch}/{partition}", number, ids):
                written.topic = run.topic
                sending.send(bundles.add(run))
                if staging is not None and staging.is_published:
                    return written  # in an earlier life of the query
            number += each.num_rows
        sending.send(bundles.rest())
        written.count = sending.finish()
        if staging is not None:
            written.stages, written.broker_name = staging.stages, staging.broker_name
        return written


def publish_all(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Publish what the tasks of a batch staged, in one request."""
    written = [each for each in messages if isinstance(each, Written) and each.stages]
    if not written or not options.is_exactly_once:
        return
    names = sorted({each.broker_name or "" for each in written})
    if len(names) > 1:  # a broker has come or gone meanwhile
        raise ClientError(f"tasks staged at {' and '.join(names)}, nothing is published; name one in the option broker")
    first = written[0]
    assert first.broker_name is not None
    stages = [stage for each in written for stage in each.stages]
    publish(options, first.broker_name, first.topic, Publish(query=first.query, batch=batch, stages=stages))


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
        publish_all(self._options, messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a streaming query."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool) -> None:
        check_sink(schema, options.topic)
        if overwrite:
            raise ConfigError("outputMode", "complete", "a message that was sent cannot be replaced; append or update")
        if options.is_exactly_once and options.broker is None:
            why = "is needed, one of `bolide cluster`: started again, the query must find who knows its last batch"
            raise ConfigError("broker", None, why)
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        task = TaskContext.get()
        assert task is not None, "Spark writes within a task"
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        assert query, "Spark names the query of every task of a stream"
        assert batch, "Spark names the batch of every task of a stream"
        return write_rows(self._options, query, int(batch), task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        publish_all(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
