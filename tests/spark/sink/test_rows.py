"""Rows of a DataFrame become bundles of messages, each for its queue: no Spark and no broker is needed to see it."""

import pyarrow as pa
import pytest

from bolide.client.routes import Route
from bolide.clock import SystemClock
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue
from bolide.protocol.batch import split_batch
from bolide.spark.sink.rows import Bundles, runs_of
from bolide.spark.sink.sending import unique_ids

IDS = unique_ids(SystemClock())
MAP = pa.map_(pa.string(), pa.string())


def route(topic: str) -> Route:
    return Route(topic, tuple(MessageQueue(topic, "broker-a", queue_id) for queue_id in range(4)), (), {})


def bundles(*batches: pa.RecordBatch, topic: str | None = None, count_max: int = 4096) -> list:
    gathering, first = Bundles(route, 0, count_max), 0
    found: list = []
    for batch in batches:
        for run in runs_of(batch, topic, "q/0/0", first, IDS):
            found += gathering.add(run)
        first += batch.num_rows
    return [*found, *gathering.rest()]


def messages(found: list) -> dict[bytes, dict]:
    """Each message by its body: where it went, and its properties."""
    return {
        item.body: {"topic": bundle.queue.topic, "queue": bundle.queue.queue_id, **item.properties}
        for bundle in found
        for item in split_batch(bundle.body)
    }


def rows(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_go_to_their_topic_and_those_of_a_shard_to_one_queue_in_order() -> None:
    topics, shards = ["A", "B", "A", "B", "A", "A"] * 50, ["x", None, "y", "x", "x", None] * 50
    batch = rows(topic=topics, shard=shards, body=[b"%d" % i for i in range(300)])
    found = bundles(batch)
    by_body = messages(found)
    assert [by_body[b"%d" % i]["topic"] for i in range(300)] == topics
    assert [by_body[b"%d" % i]["BOLIDE_TXN"] for i in range(300)] == [f"q/0/0/{i}" for i in range(300)]
    sharded = [bundle for bundle in found if bundle.is_sharded]
    assert sorted(bundle.row_count for bundle in sharded) == [50, 50, 100]
    for bundle in sharded:
        bodies = [int(item.body) for item in split_batch(bundle.body)]
        assert bodies == sorted(bodies)
        assert len({(topics[i], shards[i]) for i in bodies}) == 1
    assert sum(bundle.row_count for bundle in found) == 300


def test_a_bundle_is_filled_by_count_and_by_size_over_the_batches_it_comes_from() -> None:
    batch = rows(body=[b"x" * 100] * 10)
    assert [bundle.row_count for bundle in bundles(batch, batch, batch, topic="T", count_max=12)] == [12, 12, 6]
    large = rows(body=[b"x" * (100 << 10)] * 5 + [b"y" * (300 << 10)] + [b"x"])
    found = bundles(large, large, topic="T")
    assert [bundle.row_count for bundle in found] == [2, 2, 1, 1, 3, 2, 1, 1, 1]
    assert all(len(split_batch(bundle.body)) == bundle.row_count for bundle in found)
    queues = [bundle.queue.queue_id for bundle in found]
    assert queues[:5] == [1, 2, 3, 0, 1], "in turn"


def test_a_slice_of_larger_columns_is_read_where_it_lies() -> None:
    whole = rows(
        tags=pa.array(["a", None] * 20),
        keys=pa.array([["k", None, "l"], None] * 20, pa.list_(pa.string())),
        properties=pa.array([[("p", "q"), ("n", None)], None, [("UNIQ_KEY", "old")], []] * 10, MAP),
        body=pa.array([b"%d" % i for i in range(40)], pa.large_binary()),
    )
    found = messages(bundles(whole.slice(3, 0), whole.slice(5, 6), topic="T"))
    assert list(found) == [b"5", b"6", b"7", b"8", b"9", b"10"]
    assert [said.get("TAGS") for said in found.values()] == [None, "a", None, "a", None, "a"]
    assert [said.get("KEYS") for said in found.values()] == [None, "k l", None, "k l", None, "k l"]
    assert [said.get("p") for said in found.values()] == [None, None, None, "q", None, None]
    assert all(said["UNIQ_KEY"] != "old" for said in found.values())


def test_tags_and_keys_come_from_the_properties_where_no_column_has_them() -> None:
    properties = pa.array([[("TAGS", "t"), ("KEYS", "k"), ("BOLIDE_TXN", "old")]], MAP)
    (said,) = messages(bundles(rows(body=[b"x"], properties=properties), topic="T")).values()
    assert (said["TAGS"], said["KEYS"], said["BOLIDE_TXN"]) == ("t", "k", "q/0/0/0")
    (said,) = messages(
        bundles(rows(body=[b"x"], properties=properties, tags=pa.array([None], pa.string())), topic="T")
    ).values()
    assert "TAGS" not in said


def test_delayed_rows_go_one_by_one_and_the_others_together() -> None:
    found = bundles(rows(body=["a", "b", "c", "d"], delay=[None, 1.0, 0.0, 1.5]), topic="T")
    assert sorted((bundle.row_count, bundle.is_delayed) for bundle in found) == [(1, True), (1, True), (2, False)]
    said = messages(found)
    assert (said[b"b"]["DELAY"], said[b"d"]["TIMER_DELAY_MS"]) == ("1", "1500")
    assert not {"DELAY", "TIMER_DELAY_MS"} & said[b"a"].keys()


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"topic": ["T", ""], "body": [b"x", b"y"]}, "row 1 has no topic; fill the column"),
        ({"topic": ["T", None], "body": [b"x", b"y"]}, "row 1 has no topic; fill the column"),
        ({"topic": ["B", "A", "B"], "body": [b"x", b"y", None]}, "row 2 has an empty body"),
        ({"topic": ["B", "A"], "body": [b"x", b"y" * (4 << 20)]}, "row 1: a message of .* at most 4194304 are taken"),
    ],
)
def test_a_row_that_is_no_message_is_named_by_its_number(columns, complaint) -> None:
    with pytest.raises(ClientError, match=complaint):
        bundles(rows(**columns))


def test_a_string_that_is_no_text_is_refused() -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(ClientError, match="column tags is no text: Invalid UTF8"):
        bundles(rows(body=[b"x"], tags=wrong), topic="T")
