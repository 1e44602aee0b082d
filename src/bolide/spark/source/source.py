"""`format("bolide")`: topics as batch and streaming source, and as batch and streaming sink.

Spark makes one of these in many processes and pickles it between them, so it holds the options and nothing else. What
it hands out is imported when it is asked for: every worker imports this module to learn the format's name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from bolide.spark.options import sink_options, source_options
from bolide.spark.schema import COLUMNS, checked, checked_names, ddl

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class BolideSource(DataSource):
    """Topics of a Bolide or Apache RocketMQ cluster."""

    @classmethod
    def name(cls) -> str:
        return "bolide"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    def schema(self) -> str:
        options = source_options(self._given)
        if options.columns is not None:
            return ddl(checked_names(options.columns, COLUMNS))
        return ddl([name for name in COLUMNS if options.has_properties or name != "properties"])

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from bolide.spark.source.reader import batch_reader

        return batch_reader(source_options(self._given), checked(schema, COLUMNS))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 (Spark's name)
        from bolide.spark.source.stream import StreamReader

        return StreamReader(source_options(self._given), checked(schema, COLUMNS))

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from bolide.spark.sink.writer import BatchWriter

        return BatchWriter(sink_options(self._given), schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":  # noqa: N802
        from bolide.spark.sink.writer import StreamWriter

        return StreamWriter(sink_options(self._given), schema, overwrite)


class RocketmqSource(BolideSource):
    """The same under the name that users of RocketMQ will try first."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"
