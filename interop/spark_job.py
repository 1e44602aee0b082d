"""A job that does not know where it runs: `python -m interop.spark_job MASTER NAMESRV TOPIC RESULT`."""

import json
import sys
from pathlib import Path

from bolide.spark import session

HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


def main(master: str, namesrv: str, topic: str, result: Path) -> None:
    spark = session("job", master, **HERE, **{"spark.sql.shuffle.partitions": 2, "spark.log.level": "ERROR"})
    reader = spark.read.format("bolide").option("bolide.bootstrap.servers", namesrv).option("subscribe", topic)
    rows = reader.option("minPartitions", 4).load().groupBy("tags").count().orderBy("tags").collect()
    result.write_text(json.dumps({row["tags"]: row["count"] for row in rows}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
