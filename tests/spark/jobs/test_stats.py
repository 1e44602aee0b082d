"""`bolide lake stats`: the figures are those of a straightforward count over the same messages."""

import json
from collections import Counter
from uuid import uuid4

import pytest
from click.testing import CliRunner

import bolide
from bolide.cli.lake import app
from bolide.protocol.properties import encode_properties
from bolide.protocol.trace import ConsumeBegun, Published, encode_trace
from bolide.spark.columns import EVERYTHING
from bolide.spark.jobs.export import export
from bolide.spark.jobs.frames import Where
from bolide.spark.jobs.page import page_of
from bolide.spark.jobs.sources import StoreFiles
from bolide.spark.jobs.stats import Statistics, size_bound, statistics
from bolide.store.record import Draft
from tests.cli.processes import until_routed
from tests.store.given import BORN_HOST, START_MS, HeldClock, opened, read_all, small

TOPICS = ("Orders", "Bills")
MINUTE_MS = 60_000


def a_draft(body, topic, queue_id, born_ms, reconsume_times=0, **properties):
    text = encode_properties(properties)
    return Draft(topic, queue_id, body, text, 0, 0, born_ms, BORN_HOST, reconsume_times)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Traffic of seven minutes, failures of two kinds, a trace, and a group that is behind."""
    root = tmp_path_factory.mktemp("stats") / "store"
    clock = HeldClock(START_MS // MINUTE_MS * MINUTE_MS)
    with opened(small(root), clock) as store:
        for i in range(200):
            body = b"x" * (1 + i * 37 % 500)
            tags = {"TAGS": f"t{i % 4}"} if i % 5 else {}
            store.append([a_draft(body, TOPICS[i % 2], i % 3, clock.ms - i % 90, **tags)])
            clock.ms += 2000
        seen = [message for topic in TOPICS for queue_id in range(3) for message in read_all(store, topic, queue_id)]
        for i in range(6):
            store.append([a_draft(b"r", "%RETRY%shop", 0, clock.ms, 1 + i % 2, RETRY_TOPIC="Orders")])
        for i in range(5):
            why = {"DLQ_REASON": "no such customer"} if i % 2 else {}
            store.append([a_draft(b"d", "%DLQ%shop", 0, clock.ms, 16, DLQ_ORIGIN_TOPIC="Orders", **why)])
        told = [
            Published(1000, None, "pg", "Orders", "M1", None, None, None, 3, 1, 0),
            ConsumeBegun(1400, None, "shop", "R1", "M1", 0),
            ConsumeBegun(1900, None, "shop", "R2", "M1", 1),
        ]
        store.append([a_draft(encode_trace(told), "RMQ_SYS_TRACE_TOPIC", 0, clock.ms)])
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"Orders@shop":{0:10,1:30,2:34},"Gone@shop":{0:5}}}'
    )
    return root, seen


@pytest.fixture(scope="module")
def found(spark, stored):
    return statistics(spark, Where(stores=[str(stored[0])]))


def counted(seen, key):
    """The plain way."""
    messages, sizes = Counter(), Counter()
    for message in seen:
        messages[key(message)] += 1
        sizes[key(message)] += len(message.body)
    return {value: (messages[value], sizes[value]) for value in messages}


@pytest.mark.feature("D11")
def test_the_figures_equal_a_plain_count(found, stored):
    _, seen = stored

    def told(rows, *names):
        return {
            tuple(row[name] for name in names): (row["messages"], row["bytes"])
            for row in rows
            if row["topic"] in TOPICS
        }

    assert told(found.topics, "topic") == counted(seen, lambda m: (m.topic,))
    assert told(found.tags, "topic", "tag") == counted(seen, lambda m: (m.topic, m.tags))
    assert told(found.sizes, "topic", "up_to") == counted(seen, lambda m: (m.topic, size_bound(len(m.body))))
    first = min(m.stored_at for m in seen) // MINUTE_MS
    minutes = sorted({row["minute"] for row in found.minutes if row["topic"] in TOPICS})
    numbered = [{**row, "minute": minutes.index(row["minute"])} for row in found.minutes if row["topic"] in TOPICS]
    assert told(numbered, "topic", "minute") == counted(seen, lambda m: (m.topic, m.stored_at // MINUTE_MS - first))
    delays_told = [row for row in found.delays if row["topic"] in TOPICS]
    assert len(delays_told) == 2
    for row in delays_told:
        delays = sorted(m.stored_at - m.born_at for m in seen if m.topic == row["topic"])
        assert (row["max_ms"], row["p50_ms"]) == (delays[-1], delays[len(delays) // 2 - 1])
        assert row["mean_ms"] == round(sum(delays) / len(delays), 1)


@pytest.mark.feature("D11")
def test_lag_retries_dead_letters_and_the_way_to_the_consumer_are_told(found, stored):
    _, seen = stored
    ends = Counter(m.queue_id for m in seen if m.topic == "Orders")
    behind = ends[0] - 10 + ends[1] - 30 + max(ends[2] - 34, 0)
    assert found.lag == [
        {"group": "shop", "topic": "Gone", "behind": 0},
        {"group": "shop", "topic": "Orders", "behind": behind},
    ]
    assert found.retries == [
        {"group": "shop", "topic": "Orders", "attempt": 1, "messages": 3},
        {"group": "shop", "topic": "Orders", "attempt": 2, "messages": 3},
    ]
    assert found.dead_letters == [
        {"group": "shop", "topic": "Orders", "cause": "failed 16 times", "messages": 3},
        {"group": "shop", "topic": "Orders", "cause": "no such customer", "messages": 2},
    ]
    (way,) = found.end_to_end
    assert (way["topic"], way["group"], way["p50_ms"], way["messages"]) == ("Orders", "shop", 400, 1)


@pytest.mark.feature("D11")
def test_a_lake_gives_the_same_figures_and_the_page_needs_nothing_else(spark, stored, tmp_path):
    root, seen = stored
    export(spark, StoreFiles([str(root)], EVERYTHING), tmp_path / "lake")
    words = ["stats", "--lake", str(tmp_path / "lake"), "-o", "json", "--html", str(tmp_path / "page.html")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert {row["topic"]: row["messages"] for row in document["topics"]} == Counter(m.topic for m in seen)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<svg") == 2
    assert "http" not in page
    assert ">Orders</td>" in page


def test_names_on_the_page_are_only_text():
    rows = [{"topic": "<script>", "messages": 1, "bytes": 2}]
    assert "<script>" not in page_of(Statistics(topics=rows), "a <b> title")


def test_topics_of_a_cluster_are_counted_through_its_brokers(spark, rocket):
    topic = f"Stats{uuid4().hex[:8]}"
    with bolide.Producer("stats", rocket.namesrv) as producer:
        for i in range(20):
            producer.send(topic, b"x" * i + b"y", tags=f"t{i % 2}")
    until_routed(rocket.namesrv, topic)
    run = CliRunner().invoke(app, ["stats", "-n", rocket.namesrv, "-o", "json"])
    assert run.exit_code == 0, run.output
    rows = {row["topic"]: row for row in json.loads(run.stdout)["topics"]}
    assert (rows[topic]["messages"], rows[topic]["bytes"]) == (20, 210)
    shown = CliRunner().invoke(app, ["stats", topic, "-n", rocket.namesrv])
    assert "t0" in shown.stdout
    assert "10" in shown.stdout
