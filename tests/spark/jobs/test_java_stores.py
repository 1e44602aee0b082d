"""Stores that Apache's brokers wrote: read, found clean, and their queues made again as Java made them."""

import tarfile
from pathlib import Path

import pytest

from bolide.spark.jobs.audit import audit
from bolide.spark.jobs.rebuild import rebuild
from bolide.store.verify import findings
from tests.golden.written import COUNT, TOPIC, body_of, our_config
from tests.spark.stores import queue_files

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*-stopped.tar.gz"))


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.removesuffix(".tar.gz"))
def golden(request, tmp_path):
    with tarfile.open(request.param) as pack:
        pack.extractall(tmp_path / "store", filter="data")
    return tmp_path / "store"


@pytest.mark.feature("D05", "D09", "D10")
def test_a_store_of_java_is_read_found_clean_and_rebuilt_to_the_byte(spark, golden):
    rows = spark.read.format("bolide-store").option("subscribe", TOPIC).load(str(golden)).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(body_of(number) for number in range(COUNT))
    found = audit(spark, our_config(golden))
    assert (found.record_count, found.findings) == (COUNT, [])
    before = queue_files(golden)
    rebuild(spark, our_config(golden))
    assert queue_files(golden) == before
    assert findings(our_config(golden)) == []
