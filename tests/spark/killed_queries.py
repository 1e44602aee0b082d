"""Two streaming queries that somebody kills: run as a program, they go on where they were.

    python -m tests.spark.killed_queries NAMESRV SOURCE TARGET DIRECTORY

One writes a topic to Parquet, the other to a topic, exactly once. A query that fails is started again, as a supervisor
would. When the file `finish` appears in the directory, both read what is left and the program ends.
"""

import sys
import time
from pathlib import Path

from bolide.spark import session
from tests.spark.conftest import TEST_SETTINGS

POLL_INTERVAL_S = 0.1


def main(namesrv: str, source: str, target: str, directory: Path) -> None:
    spark = session("killed", "local[2]", **TEST_SETTINGS)

    def begin(name: str, is_last: bool):
        reader = spark.readStream.format("bolide").option("bolide.bootstrap.servers", namesrv)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", 200).option("columns", "body,queue_id,queue_offset").load()
        writer = frame.writeStream.option("checkpointLocation", str(directory / f"checkpoint-{name}"))
        if name == "files":
            writer = writer.format("parquet").option("path", str(directory / "rows"))
        else:
            writer = writer.format("bolide").option("bolide.bootstrap.servers", namesrv).option("topic", target)
            writer = writer.option("deliveryGuarantee", "exactly-once")
        return (writer.trigger(availableNow=True) if is_last else writer).start()

    names = ("files", "topic")
    queries = {name: begin(name, False) for name in names}
    while not (directory / "finish").exists():
        for name in names:
            if not queries[name].isActive:
                queries[name] = begin(name, False)
        time.sleep(POLL_INTERVAL_S)
    for name in names:
        queries[name].stop()
        begin(name, True).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
