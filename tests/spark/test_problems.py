"""An error of ours comes out of Spark as the sentence that it was, whichever way Spark wraps it."""

import pytest

from bolide.errors import ClientError, StoreError
from bolide.spark.problems import own_error, plain_tasks

TRACEBACK = """Job aborted due to stage failure: Traceback (most recent call last):
  File "rebuild.py", line 160, in _walked
bolide.errors.StoreError: 00000: no whole record at byte 7

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_the_error_keeps_its_sentence_and_its_kind_where_it_can() -> None:
    found = own_error(TRACEBACK)
    assert (type(found), str(found)) == (StoreError, "00000: no whole record at byte 7")
    found = own_error("x: bolide.errors.ConfigError: topic = None: is missing")
    assert (type(found), str(found)) == (ClientError, "topic = None: is missing")
    assert own_error("java.lang.OutOfMemoryError: Java heap space") is None


def test_two_stages_that_fail_at_once_give_one_sentence(spark) -> None:
    """Spark has a bare error of the JVM for this, with the failures behind it."""
    from py4j.protocol import Py4JJavaError

    jvm = spark.sparkContext._jvm
    failures = jvm.java.util.ArrayList()
    for _ in range(2):
        failures.add(jvm.org.apache.spark.SparkException(TRACEBACK))
    errors = jvm.org.apache.spark.sql.errors.QueryExecutionErrors
    both = errors.multiFailuresInStageMaterializationError(jvm.PythonUtils.toSeq(failures))
    assert "STAGE_MATERIALIZATION_MULTIPLE_FAILURES" in both.getMessage()
    with pytest.raises(StoreError, match=r"^00000: no whole record at byte 7$"), plain_tasks():
        raise Py4JJavaError("An error occurred while calling collect", both)


def test_what_is_not_ours_stays_as_spark_says_it(spark) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="nowhere"), plain_tasks():
        spark.table("nowhere").collect()
