"""Arguments that nobody could mean are answered with a sentence that says what to give."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.client.careless import mistake
from bolide.testing import Cluster, cluster


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"body": "text"}, r"the body is text, and messages carry bytes: give body.encode\(\)|give body.encode\(\)"),
    ({"body": {"a": 1}}, "the body is a dict, .*and messages carry bytes: give json=body"),
    ({"topic": 7}, "the topic is a int, 7: give its name as text"),
    ({"tags": ["a"]}, r"tags is a list, \['a'\], and a message has one tag: give a text"),
    ({"tags": ["a", "b"], "keys": "k"}, r"tags is a list, \['a', 'b'\]"),
    ({"keys": 7}, "keys is a int, 7: give a text, or a list of texts"),
    ({"keys": [7]}, r"keys is a list, \[7\]"),
    ({"keys": ["k", ""]}, "a key is empty, and nobody could find the message by it: leave it out"),
    ({"properties": "a=b"}, "properties is a str, 'a=b': give a dict of texts"),
    ({"flag": "1"}, "flag is a str, '1': give a whole number"),
    ({"shard": 7}, r"shard is a int, 7: give a text, as str\(7\)"),
    ({"queue": 3}, "queue is a int, 3: give a MessageQueue"),
]


def test_a_time_limit_that_is_no_number_gets_a_sentence_in_both_faces(rocket: Cluster) -> None:
    given: Any = "3"
    told = "timeout_s is a str, '3': give a number of seconds"
    with bolide.Producer("pg", rocket.namesrv) as producer, pytest.raises(bolide.ClientError, match=told):
        producer.send("T", b"x", timeout_s=given)

    async def sending() -> None:
        async with aio.Producer("pg", rocket.namesrv) as producer:
            with pytest.raises(bolide.ClientError, match=told):
                await producer.send("T", b"x", timeout_s=given)

    asyncio.run(sending())


@pytest.mark.parametrize(("given", "told"), MISTAKES, ids=lambda given: str(given)[:20])
def test_a_careless_argument_gets_a_sentence_in_both_faces(rocket: Cluster, given: dict[str, Any], told: str) -> None:
    options = {"topic": "T", "body": b"x", **given}
    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send("T", b"warm")
        with pytest.raises(bolide.ClientError, match=told):
            producer.send(**options)
        with pytest.raises(bolide.ClientError, match=told):
            producer.submit(**options).result(30)

    async def sending() -> None:
        async with aio.Producer("pg", rocket.namesrv) as producer:
            await producer.send("T", b"warm")
            with pytest.raises(bolide.ClientError, match=told):
                await producer.send(**options)

    asyncio.run(sending())


def test_right_arguments_are_no_mistake() -> None:
    assert mistake(("T", b"x", "a", ("k",), {"p": "v"}, 1, None), "shard", bolide.MessageQueue("T", "b", 1)) is None


def test_a_misspelt_option_is_told_the_nearest(rocket: Cluster) -> None:
    with pytest.raises(TypeError, match=r"Producer has no option 'timeout'; did you mean timeout_s\?"):
        bolide.Producer("pg", rocket.namesrv, timeout=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Consumer has no option 'order'; did you mean ordered\?"):
        aio.Consumer("cg", "T", rocket.namesrv, order=True)  # type: ignore[call-arg]
    with (
        bolide.Producer("pg", rocket.namesrv) as producer,
        pytest.raises(TypeError, match=r"no option 'key'; did you mean keys\?"),
    ):
        producer.send("T", b"x", key="k")  # type: ignore[call-arg]


def test_a_list_of_name_servers_is_told_how_they_are_written() -> None:
    with pytest.raises(bolide.ConfigError, match='"host:9876;other:9876"'):
        bolide.Producer("pg", ["a:9876"])  # type: ignore[arg-type]


def test_ten_thousand_first_sends_at_once_all_arrive(rocket: Cluster) -> None:
    async def sending() -> None:
        async with aio.Producer("pg", rocket.namesrv, timeout_s=30) as producer:
            receipts = await asyncio.gather(*(producer.send("Cold", b"x") for _ in range(10_000)))
            assert len({receipt.msg_id for receipt in receipts}) == 10_000

    asyncio.run(sending())


def test_a_group_a_start_and_a_count_that_are_none_get_a_sentence(rocket: Cluster) -> None:
    nothing: Any = None
    text: Any = "earliest"
    with pytest.raises(bolide.ClientError, match="the group is a NoneType: give its name as text"):
        bolide.Producer(nothing, rocket.namesrv)
    with pytest.raises(bolide.ClientError, match=r"start_from is a str, 'earliest': give StartFrom.oldest\(\)"):
        bolide.Consumer("cg", "T", rocket.namesrv, start_from=text)
    with bolide.Consumer("cg", "T", rocket.namesrv) as consumer:
        for count in (0, -1, "1"):
            wrong: Any = count
            with pytest.raises(bolide.ClientError, match=r"count_max is a .* give a whole number from 1 on"):
                consumer.receive(wrong)
