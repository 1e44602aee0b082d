"""Handlers are tried without a cluster."""

from typing import Any

import pytest
from faststream import FastStream, TestApp
from faststream.exceptions import SubscriberNotFound

from bolide import StartFrom
from bolide.faststream import BolideBroker, BolideMessage, TestBolideBroker
from bolide.testing import cluster
from tests.cli.processes import LIMIT_S
from tests.client.scenes import on_uvloop
from tests.remoting.loops import eventually

broker = BolideBroker("127.0.0.1:9")
app = FastStream(broker)


@broker.subscriber("Orders", group="kitchen")
@broker.publisher("Bills")
async def cook(order: dict[str, Any], message: BolideMessage) -> str:
    if order["name"] == "nothing":
        raise ValueError("no such dish")
    return f"{order['name']} {message.correlation_id} {message.headers.get('table')}"


@broker.subscriber("Orders", group="kitchen")
async def mate(order: dict[str, Any]) -> None:
    """Of the same group: the other one has it."""


@broker.subscriber("Orders", group="counting")
async def count(order: dict[str, Any]) -> None:
    """Of another group, which gets everything too."""


@on_uvloop
async def test_handlers_are_called_and_what_they_publish_is_seen() -> None:
    async with TestBolideBroker(broker) as tested:
        await tested.publish({"name": "tea"}, "Orders", correlation_id="c1", headers={"table": 7})
        called = [each.mock.call_count for each in (cook, mate)]
        assert sorted(called) == [0, 1]
        count.mock.assert_called_once_with({"name": "tea"})
        await tested.publish_batch({"name": "cake"}, {"name": "bread"}, topic="Orders")
        assert count.mock.call_count == 3


alone = BolideBroker("127.0.0.1:9")


@alone.subscriber("Questions", group="answering")
@alone.publisher("Copies")
async def answer(text: str) -> str:
    if text == "?":
        raise ValueError("what?")
    return text.upper()


@on_uvloop
async def test_requests_publishers_and_errors() -> None:
    async with TestBolideBroker(alone) as tested:
        reply = await tested.request("why", "Questions")
        assert await reply.decode() == "WHY"
        copies = next(iter(alone.publishers))
        copies.mock.assert_called_once_with("WHY")
        with pytest.raises(ValueError, match="what"):
            await tested.publish("?", "Questions")
        with pytest.raises(SubscriberNotFound, match="nobody in this process subscribes to Elsewhere"):
            await tested.request("why", "Elsewhere")
        receipt = await tested.publish("to nobody", "Elsewhere")
        assert receipt.queue.topic == "Elsewhere"


@on_uvloop
async def test_with_a_real_cluster_the_mocks_are_there_too() -> None:
    async with cluster() as rocket:
        for topic in ("Orders", "Bills"):
            await rocket.create_topic(topic)
        real = BolideBroker(rocket.namesrv)
        bills = real.publisher("Bills")

        @real.subscriber("Orders", group="kitchen", start_from=StartFrom.oldest())
        @bills
        async def cook_really(name: str) -> str:
            return f"bill for {name}"

        async with TestBolideBroker(real, with_real=True) as tested:
            await tested.publish("tea", "Orders")
            await cook_really.wait_call(LIMIT_S)
            cook_really.mock.assert_called_once_with("tea")
            await eventually(lambda: bills.mock.called, LIMIT_S)
            bills.mock.assert_called_once_with("bill for tea")


@on_uvloop
async def test_an_application_starts_on_it() -> None:
    async with TestBolideBroker(broker), TestApp(app):
        await broker.publish({"name": "tea"}, "Orders")
        count.mock.assert_called_once()
