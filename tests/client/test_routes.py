"""What a name server says of queues is believed as far as a client could hold it."""

import tracemalloc

import pytest

from bolide.client.routes import QUEUES_MAX, route_of, route_to_create
from bolide.errors import ClientError
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.bodies import BrokerRoute, QueueRoute, TopicRoute


def answer(**counts: int) -> TopicRoute:
    return TopicRoute(
        broker_datas=[BrokerRoute(cluster="C", broker_name=name, broker_addrs={0: f"{name}:1"}) for name in counts],
        queue_datas=[
            QueueRoute(broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=6)
            for name, count in counts.items()
        ],
    )


def test_a_broker_that_claims_too_many_queues_is_left_out_and_the_others_serve() -> None:
    tracemalloc.start()
    try:
        route = route_of("Orders", answer(evil=5_000_000, honest=4))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [queue.broker_name for queue in route.publish] == ["honest"] * 4
    assert route.subscribe == route.publish
    assert route.left_out == ("evil",)
    assert peak < 1 << 20


def test_a_route_of_such_brokers_alone_is_refused_with_a_sentence() -> None:
    with pytest.raises(ClientError, match=f"evil claims more than {QUEUE_COUNT_MAX}"):
        route_of("Orders", answer(evil=QUEUE_COUNT_MAX + 1))


def test_the_largest_topic_is_taken_whole_and_one_of_too_many_brokers_is_refused() -> None:
    assert len(route_of("T", answer(a=QUEUE_COUNT_MAX)).publish) == QUEUE_COUNT_MAX
    many = {f"b{number}": QUEUE_COUNT_MAX for number in range(5)}
    with pytest.raises(ClientError, match=f"{QUEUES_MAX} can be used"):
        route_of("T", answer(**many, low=-(10**9)))


def test_an_order_text_with_absurd_counts_makes_no_more_queues_than_there_can_be() -> None:
    told = answer(a=4)
    told = TopicRoute(
        broker_datas=told.broker_datas,
        queue_datas=told.queue_datas,
        order_topic_conf="a:99999999;b:٣;c:" + "9" * 5000 + ";d:2",
    )
    route = route_of("T", told)
    assert {name: sum(queue.broker_name == name for queue in route.publish) for name in "abcd"} == {
        "a": QUEUE_COUNT_MAX,
        "b": 0,
        "c": 0,
        "d": 2,
    }


def test_a_topic_to_be_made_has_as_many_queues_as_were_asked_for_whatever_the_default_topic_claims() -> None:
    assert len(route_to_create("New", answer(a=5_000_000), 4).publish) == 4
