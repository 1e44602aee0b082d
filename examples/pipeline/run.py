"""Runs the pipeline in `transformations/` once: `python examples/pipeline/run.py --work DIRECTORY`.

`spark-pipelines` wants absolute paths, a catalog that outlives the run and its settings in SPARK_CONF_DIR: this writes
them into the directory, and starts it there with the same Python and a Java that works. A second run in the same
directory reads only what came since. With `--remote sc://HOST:15002` the pipeline runs on the Spark Connect server
there, and its tables are in that server's catalog.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bolide.spark.java import java_home, spark_home

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where tables, checkpoints and the catalog are kept")
    parser.add_argument("--remote", help="a Spark Connect server that runs it; without one a Spark is started here")
    given = parser.parse_args()
    work: Path = given.work.resolve()
    (work / "conf").mkdir(parents=True, exist_ok=True)
    (work / "conf" / "spark-defaults.conf").write_text(
        f"spark.sql.catalogImplementation hive\n"
        f"spark.sql.warehouse.dir {work / 'warehouse'}\n"
        f"spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={work / 'metastore'};create=true\n"
        f"spark.ui.enabled false\n"
        f"spark.ui.showConsoleProgress false\n"
        f"spark.sql.shuffle.partitions 2\n"
    )
    if not (work / "transformations").exists():
        (work / "transformations").symlink_to(HERE / "transformations")
    (work / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: {(work / 'storage').as_uri()}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    home = spark_home(os.environ)  # with quicker Python workers; None where SPARK_HOME says which Spark it is to be
    environment = {
        **os.environ,
        **({"SPARK_HOME": str(home)} if home else {}),
        "JAVA_HOME": str(java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(work / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    command = ["spark-pipelines", "run", *(["--remote", given.remote] if given.remote else [])]
    return subprocess.run(command, cwd=work, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
