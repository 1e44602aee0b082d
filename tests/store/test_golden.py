"""Stores written by Java open in ours, with every message, tag and key: without a Java at hand."""

import tarfile
from pathlib import Path

import pytest

from bolide.store.inspect import StoreView
from bolide.store.store import Store
from tests.golden.written import COUNT, TOPIC, body_of, check_ours, our_config
from tests.store.given import HOST, HeldClock, draft

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.tar.gz"))


def test_there_is_one_of_each_kind():
    names = [path.name.removesuffix(".tar.gz") for path in GOLDEN]
    assert names == ["java-4.9.7-killed", "java-4.9.7-stopped", "java-5.5.0-killed", "java-5.5.0-stopped"]


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.removesuffix(".tar.gz"))
def golden(request, tmp_path):
    with tarfile.open(request.param) as pack:
        pack.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_store_written_by_java_opens_with_every_message(golden):
    was_killed = (golden / "abort").exists()
    check_ours(golden)
    assert not (golden / "abort").exists()
    check_ours(golden)  # and once more, after our own clean stop
    assert was_killed or not (golden / "abort").exists()


def test_a_store_written_by_java_goes_on_where_it_stood(golden):
    with Store.open(our_config(golden), HeldClock(1 << 42), HOST) as store:
        appended = store.append([draft(b"more", TOPIC, 1)])
        assert appended.queue_offsets == [COUNT // 4]


def test_a_store_written_by_java_can_be_looked_at_as_it_is(golden):
    view = StoreView(our_config(golden))
    queues = {(row["topic"], row["queue_id"]): row["max_offset"] for row in view.summary()["queues"]}
    assert {queues[TOPIC, queue_id] for queue_id in range(4)} == {COUNT // 4}
    assert [record.body for record in view.messages(TOPIC, 2, 5, 2)] == [body_of(22), body_of(26)]
