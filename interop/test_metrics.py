"""Our page of metrics beside Apache 5.5.0's own, after the same traffic: names, types, labels, steps and numbers.

What differs on purpose stands here by name, with its reason; docs/compat.md has the same for people. A difference that
is not in these tables fails, and so does one of them that is none any more.
"""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bolide import Admin, Consumer, Message, Outcome, Producer, StartFrom, TransactionProducer
from bolide.protocol.bodies import GroupConfig
from interop.cluster import HOST, Station, bolide_up, java_broker, java_name_server
from interop.process import await_that, free_port
from tests.broker.metering import Scraped

RELEASE = "5.5.0"
SETTLED_LIMIT_S = 90.0
TOPIC, FAILING, READERS, GIVERS_UP = "Orders", "Failing", "readers", "failing-cg"
BODY, LARGE = b"x" * 100, b"y" * 2000
COMING = (
    5 + 3 + 2 + 1 + 1 + 4 + 2
)  # what `traffic` sends to be read now: all but what is timed for later and rolled back
COMMON = {"cluster", "node_id", "node_type", "otel_scope_name"}

# Names on Apache's page that are not on ours.
ABSENT = {
    "rocketmq_processor_watermark": "there are no pools of threads that something could wait in",
    "rocketmq_pop_offset_buffer_size": "there are no buffers",
    "rocketmq_pop_checkpoint_buffer_size": "there are no buffers; bolide_pop_checkpoints counts what is out",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "there is no buffer that is scanned",
    "rocketmq_pop_revive_lag_milliseconds": "it counts messages of a revive queue that is not read here",
    "rocketmq_pop_revive_latency_milliseconds": "the age of a reading that there is not",
    "rocketmq_half_messages": "a running count that drifts; ours is of what is undecided, and nothing is",
}
# Series whose numbers are other ones on purpose, or nobody's fault.
_OTHER_NUMBERS = {
    "rocketmq_storage_size_bytes": "the used part of the partition, to which the machine writes",
    "rocketmq_storage_message_reserve_time_milliseconds": "an age",
    "rocketmq_timer_dequeue_latency_milliseconds": "Apache's is some hundreds though nothing is late",
    "rocketmq_topic_number": "each has system topics of its own",
    "target_info": "ours says what is asked; Apache's has no label",
}
_OWN_READING = "messages that the broker reads for itself are not given out"
_OFFSET = "a group that has an offset is shown, online or not"
# By name and by what a label of such a series says.
OTHER_SERIES = {
    ("rocketmq_messages_out_total", "is_system", "true"): _OWN_READING,
    ("rocketmq_throughput_out_total", "is_system", "true"): _OWN_READING,
    ("rocketmq_consumer_lag_messages", "is_system", "true"): _OFFSET,
    ("rocketmq_consumer_lag_latency_milliseconds", "is_system", "true"): _OFFSET,
}
# How often clients ask this depends on when they do.
TIMELY_REQUESTS = {"get_consumer_list_by_group", "heart_beat", "query_consumer_offset", "update_consumer_offset"}
TIMELY_REQUESTS |= {"pull_message", "get_max_offset", "get_min_offset", "unregister_client", "get_broker_cluster_info"}
TIMES = "rocketmq_rpc_latency_milliseconds"

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page_of(port: int) -> Scraped:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return Scraped(text.replace("target_info 1\n", "target_info{} 1\n"))


def kinds_of(page: Scraped) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", page.text, re.MULTILINE))


def labels_of(page: Scraped, name: str, kind: str) -> set[str]:
    suffix = "_count" if kind == "histogram" else ""
    return page.labels(name + suffix)


def steps_of(page: Scraped, name: str) -> set[str]:
    return {labels["le"] for at, labels, _ in page.series if at == f"{name}_bucket"}


def settings_of(port: int) -> dict[str, object]:
    page = {"metricsExporterType": "PROM", "metricsPromExporterHost": HOST, "metricsPromExporterPort": port}
    return {**page, "timerWheelEnable": True}


@contextmanager
def after_traffic(station: Station, port: int) -> Iterator[Scraped]:
    """The page when everything that was sent is read and committed, and all clients are still there."""
    for topic in (TOPIC, FAILING):
        station.make_topic(topic)
    namesrv = station.name_servers
    with Admin(namesrv) as admin:
        admin.set_group(GroupConfig(group_name=READERS))
        admin.set_group(GroupConfig(group_name=GIVERS_UP, retry_max_times=0))
    with (
        Producer("pg", namesrv) as producer,
        TransactionProducer("tg", namesrv, checker=lambda _: Outcome.COMMIT) as banker,
        Consumer(READERS, TOPIC, namesrv, start_from=StartFrom.oldest()) as readers,
        Consumer(GIVERS_UP, FAILING, namesrv, start_from=StartFrom.oldest()) as givers_up,
    ):
        traffic(producer, banker)
        for _, message in zip(range(COMING), readers, strict=False):
            message.ack()
        next(iter(givers_up)).nack()
        await_that("all is counted", lambda: is_settled(page_of(port)), SETTLED_LIMIT_S)
        yield page_of(port)


def traffic(producer: Producer, banker: TransactionProducer) -> None:
    for _ in range(5):
        producer.send(TOPIC, BODY)
    for _ in range(3):
        producer.send(TOPIC, BODY, properties={"__SHARDINGKEY": "a customer"})
    for _ in range(2):
        producer.send(TOPIC, BODY, delay_level=1)
    producer.send(TOPIC, BODY, delay=1)
    producer.send(TOPIC, LARGE)
    producer.send_batch([Message(TOPIC, b"small") for _ in range(4)])
    producer.send(TOPIC, BODY, delay=600)  # waits
    for _ in range(2):
        with banker.transaction(TOPIC, BODY):
            pass
    with suppress(ValueError), banker.transaction(TOPIC, BODY):
        raise ValueError
    producer.send(FAILING, BODY)


def is_settled(page: Scraped) -> bool:
    """Offsets are committed now and then, ends of transactions come one-way, and a page may be some moments old."""
    lags = [page.value("rocketmq_consumer_lag_messages", consumer_group=name) for name in (READERS, GIVERS_UP)]
    ends = [page.value(f"rocketmq_{name}_messages_total", topic=TOPIC) for name in ("commit", "rollback")]
    dead = page.value("rocketmq_send_to_dlq_messages_total", consumer_group=GIVERS_UP)
    behind = page.value("rocketmq_storage_flush_behind_bytes")
    ready = [page.value("rocketmq_consumer_ready_messages", consumer_group=name) for name in (READERS, GIVERS_UP)]
    timed = [page.value(f"rocketmq_timer_{name}_total", topic=TOPIC) for name in ("enqueue", "dequeue")]
    return (lags, ready, ends, dead, behind, timed) == ([0, 0], [0, 0], [2, 1], 1, 0, [2, 1])


def compared(page: Scraped) -> Series:
    """Numbers that the same traffic makes the same, by name and labels: counts of histograms, not what was timed."""
    kinds = kinds_of(page)
    found: Series = {}
    for name, labels, value in page.series:
        family = name.removesuffix("_count")
        is_count = kinds.get(family) == "histogram" and name.endswith("_count")
        if kinds.get(name) is None and not is_count:
            continue  # steps and sums
        if name.startswith("bolide_") or family in _OTHER_NUMBERS | ABSENT:
            continue
        if any(family == other and labels.get(label) == text for other, label, text in OTHER_SERIES):
            continue
        if family == TIMES and labels["request_code"] in TIMELY_REQUESTS:
            continue
        found[name, tuple(sorted((label, text) for label, text in labels.items() if label not in COMMON))] = value
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scraped, Scraped]:
    """Apache's and ours."""
    directory, port = tmp_path_factory.mktemp("metrics"), free_port()
    with (
        java_name_server(directory, RELEASE) as server,
        java_broker(directory, RELEASE, server.endpoint, settings_of(port)) as broker,
    ):
        broker.await_route(server)
        station = Station(broker.program, broker.name, broker.cluster, broker.endpoint, server.endpoint)
        with after_traffic(station, port) as apaches:
            pass
    port = free_port()
    with bolide_up(directory, settings_of(port)) as station, after_traffic(station, port) as ours:
        pass
    for name, page in (("apache", apaches), ("ours", ours)):
        Path(directory, f"{name}.txt").write_text(page.text)
    return apaches, ours


def test_the_names_and_types_are_apaches_but_for_those_that_have_a_reason(pages: tuple[Scraped, Scraped]) -> None:
    apaches, ours = map(kinds_of, pages)
    assert set(apaches) - set(ours) == set(ABSENT)
    more = {name for name in set(ours) - set(apaches) if not name.startswith("bolide_")}
    assert more == set()
    assert {name: ours[name] for name in apaches if name in ours} == {
        name: kind for name, kind in apaches.items() if name in ours
    }


def test_each_metric_has_the_labels_and_each_histogram_the_steps_of_apaches(pages: tuple[Scraped, Scraped]) -> None:
    apaches, ours = pages
    kinds = {name: kind for name, kind in kinds_of(apaches).items() if name not in ABSENT and name != "target_info"}
    assert {name: labels_of(ours, name, kind) for name, kind in kinds.items()} == {
        name: labels_of(apaches, name, kind) for name, kind in kinds.items()
    }
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    assert len(histograms) >= 6
    assert {name: steps_of(ours, name) for name in histograms} == {name: steps_of(apaches, name) for name in histograms}


@pytest.mark.feature("X20")
def test_the_same_traffic_makes_the_same_numbers(pages: tuple[Scraped, Scraped]) -> None:
    apaches, ours = map(compared, pages)
    assert len(apaches) > 40
    assert ours == apaches


def test_what_is_said_to_differ_does_so(pages: tuple[Scraped, Scraped]) -> None:
    """Or else it need not stand in the table."""
    apaches, ours = pages
    for (name, label, text), reason in OTHER_SERIES.items():
        if reason == _OWN_READING:
            assert apaches.value(name, **{label: text}), name
            assert ours.value(name, **{label: text}) is None, name
    assert kinds_of(apaches).keys() >= _OTHER_NUMBERS.keys()
    assert ours.value("rocketmq_half_messages") is None, "nothing is undecided"
    assert apaches.value("rocketmq_half_messages") == 0
