"""Reading ranges: exactly what lies in them, over TLS, past a broker's death, and never in silence when it is gone."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bolide
from bolide.clock import SystemClock
from bolide.model.queue import MessageQueue
from bolide.protocol.records import decode_records
from bolide.spark.cluster import Cluster
from bolide.spark.options import SourceOptions, Subscription, source_options
from bolide.spark.source.offsets import Range
from bolide.spark.source.pulls import LostMessages, RangePulls, records_before
from bolide.testing import cluster

COUNT = 2500
QUEUE = MessageQueue("Pulls", "broker-0", 0)


@pytest.fixture(scope="module")
def filled(rocket) -> str:
    rocket.create_topic("Pulls", 1)
    with bolide.Producer("pulls-pg", rocket.namesrv) as producer:
        for first in range(0, COUNT, 100):
            numbers = range(first, first + 100)
            producer.send_batch([bolide.Message("Pulls", b"%d" % n, tags="AB"[n % 2]) for n in numbers])
    return rocket.namesrv


def options(namesrv: str, **more: str) -> SourceOptions:
    return source_options({"nameServer": namesrv, "subscribe": "Pulls"} | more)


def numbers(given: SourceOptions, ranges: list[Range], **more: object) -> list[int]:
    with Cluster(given.cluster) as reached:
        subscription = more.pop("subscription", given.subscription)
        pulls = RangePulls(reached, SystemClock(), subscription, None, **more)  # type: ignore[arg-type]
        answers = list(pulls.read(ranges))
    return [int(message.body) for _, records in answers for message in decode_records(records)]


def test_any_ranges_are_read_to_the_row_with_any_size_of_a_pull(filled) -> None:
    given = options(filled)
    for count_max in (1, 7, 32, 1000, None):
        ranges = [Range(QUEUE, 5, 40), Range(QUEUE, 100, 101), Range(QUEUE, 990, 1210)]
        assert numbers(given, ranges, count_max=count_max) == [*range(5, 40), 100, *range(990, 1210)]
    assert numbers(given, [Range(QUEUE, 0, COUNT)]) == list(range(COUNT))
    assert numbers(given, []) == []


@pytest.mark.feature("D06")
def test_a_filtered_range_ends_where_it_ends_though_the_broker_looks_further(filled) -> None:
    tagged = Subscription(topics=("Pulls",), expression="B")
    for count_max in (10, 500, None):
        found = numbers(options(filled), [Range(QUEUE, 10, 51)], subscription=tagged, count_max=count_max)
        assert found == list(range(11, 51, 2))


def test_offsets_that_are_not_there_are_an_error_or_are_passed_over_as_asked(filled) -> None:
    beyond = [Range(QUEUE, COUNT - 1, COUNT + 5)]
    with pytest.raises(LostMessages, match="failOnDataLoss=false"):
        numbers(options(filled), beyond)
    assert numbers(options(filled), beyond, fails_on_loss=False) == [COUNT - 1]


def test_topics_are_read_over_tls(filled) -> None:
    pytest.importorskip("cryptography")
    assert numbers(options(filled, useTLS="true"), [Range(QUEUE, 0, 100)]) == list(range(100))


@pytest.mark.feature("D03")
def test_a_range_goes_on_when_its_broker_is_back() -> None:
    with cluster() as own, ThreadPoolExecutor(1) as pool:
        own.create_topic("Pulls", 1)
        with bolide.Producer("pulls-pg", own.namesrv) as producer:
            for n in range(200):
                producer.send("Pulls", b"%d" % n)
        given = options(own.namesrv)
        with Cluster(given.cluster) as reached:
            pulls = RangePulls(reached, SystemClock(), given.subscription, None, count_max=20)
            answers = pulls.read([Range(QUEUE, 0, 200)])
            found = [next(answers)]
            own.brokers[0].kill()
            rest = pool.submit(lambda: list(answers))
            own.brokers[0].start()
            found += rest.result(60)
        bodies = [int(message.body) for _, records in found for message in decode_records(records)]
        assert bodies == list(range(200))


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(0, 25))
def test_records_are_cut_at_an_offset(sizes, end) -> None:
    records = b"".join(
        (28 + size).to_bytes(4, "big") + bytes(16) + number.to_bytes(8, "big") + bytes(size)
        for number, size in enumerate(sizes)
    )
    kept = records_before(records, end)
    assert len(kept) == sum(28 + size for size in sizes[:end])
