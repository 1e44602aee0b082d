"""Two streaming queries that somebody kills: run as a program, they go on where they were.

    python -m tests.spark.killed_queries NAMESRV BROKER SOURCE TARGET DIRECTORY

One writes a topic to Parquet, the other to a topic, exactly once. A query that fails is started again, as a supervisor
would, and the program never ends by itself: whoever started it sees in the checkpoints how far it is.
"""

import sys
import time

from pyspark.sql.streaming.query import StreamingQuery

from bolide.spark import session
from tests.spark.conftest import TEST_SETTINGS

POLL_INTERVAL_S = 0.1


def main(namesrv: str, broker: str, source: str, target: str, directory: str) -> None:
    spark = session("killed", "local[2]", **TEST_SETTINGS)

    def begin(name: str) -> StreamingQuery:
        reader = spark.readStream.format("bolide").option("bolide.bootstrap.servers", namesrv)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", 100).option("columns", "body,queue_id,queue_offset").load()
        writer = frame.writeStream.option("checkpointLocation", f"{directory}/checkpoint-{name}")
        if name == "files":
            writer = writer.format("parquet").option("path", f"{directory}/rows")
        else:
            writer = writer.format("bolide").option("bolide.bootstrap.servers", namesrv).option("topic", target)
            writer = writer.option("deliveryGuarantee", "exactly-once").option("broker", broker)
        return writer.start()

    queries = {name: begin(name) for name in ("files", "topic")}
    while True:
        for name, query in queries.items():
            if not query.isActive:
                queries[name] = begin(name)
        time.sleep(POLL_INTERVAL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
