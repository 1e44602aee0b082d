"""Subscriptions by SQL: what comes, what does not, and what is said before the start when it cannot work."""

import pytest

import bolide
from bolide import aio
from bolide.client.consuming.subscriptions import parse_topics, subscription_of
from bolide.errors import ClientError
from bolide.protocol.codes import ResponseCode
from bolide.testing import cluster
from tests.client.scenes import client_clock, collecting, stage
from tests.remoting.loops import eventually, virtual_time

ON = {"enablePropertyFilter": "true"}


def test_a_topic_is_wanted_by_tags_or_by_sql() -> None:
    wanted = parse_topics({"T": aio.Sql("a > 5"), "U": "TagA"})
    by_sql, by_tags = (subscription_of(topic, text, 7) for topic, text in wanted.items())
    assert (by_sql.expression_type, by_sql.sub_string, by_sql.tags_set) == ("SQL92", "a > 5", [])
    assert (by_tags.expression_type, by_tags.sub_string, by_tags.tags_set) == ("TAG", "TagA", ["TagA"])


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a > 5 AND", "the end at character 9"),
        ("a == 5", "'=' at character 3"),
        ("price > 5 ? 1", r"'\?' at character 10"),
        ("", "empty"),
    ],
)
def test_an_expression_that_is_none_is_refused_at_once_with_the_place(expression: str, why: str) -> None:
    with pytest.raises(ClientError, match=f"subscription of T: .*{why}"):
        aio.Consumer("g", {"T": aio.Sql(expression)}, "127.0.0.1:1")


@pytest.mark.feature("F267", "F268")
@virtual_time
async def test_a_consumer_gets_what_satisfies_its_expression_and_nothing_else() -> None:
    async with stage(queue_count=2, settings=ON) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        for number in range(10):
            await producer.send("T", b"%d" % number, properties={"a": str(number)})
        async with collecting("g", {"T": aio.Sql("a >= 5")}, rocket.namesrv) as found:
            await eventually(lambda: len(found.taken) == 5)
            for number in range(10, 14):
                await producer.send("T", b"%d" % number, properties={"a": str(number % 12)})
            await eventually(lambda: len(found.taken) == 7)
            assert sorted(map(int, found.bodies)) == [5, 6, 7, 8, 9, 10, 11]


@virtual_time
async def test_a_broker_that_does_not_filter_by_sql_is_told_of_before_the_start() -> None:
    async with stage() as rocket:
        consumer = aio.Consumer("g", {"T": aio.Sql("a > 1")}, rocket.namesrv, clock=client_clock())
        with pytest.raises(ClientError, match="enablePropertyFilter=true") as refused:
            await consumer.start()
        assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_a_walk_may_choose_by_sql_too() -> None:
    with cluster(settings=ON) as rocket, bolide.Producer("pg", rocket.namesrv) as producer:
        rocket.create_topic("T", 1)
        for number in range(40):
            producer.send("T", b"%d" % number, properties={"a": str(number)})
        with bolide.PullConsumer("walk", rocket.namesrv) as walker:
            (queue,) = walker.queues("T")
            pulled = walker.pull(queue, 0, expression=bolide.Sql("a BETWEEN 3 AND 5"))
            assert [message.body for message in pulled.messages] == [b"3", b"4", b"5"]
            assert pulled.next_offset == 40
            nothing = walker.pull(queue, 0, expression=bolide.Sql("a > 100"))
            assert (nothing.status, nothing.next_offset) == (bolide.PullStatus.NO_MATCHED_MSG, 40)
