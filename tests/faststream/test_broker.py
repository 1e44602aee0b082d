"""FastStream's own application on a cluster: decoding, verdicts, answers, and what a killed worker held."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faststream import FastStream
from faststream.exceptions import NackMessage, RejectMessage, SetupError, StopConsume
from faststream.middlewares import AckPolicy, BaseMiddleware
from pydantic import BaseModel

from bolide.aio import Admin, StartFrom
from bolide.errors import ClientError, ReplyTimeout
from bolide.faststream import BolideBroker, BolideMessage, BolideResponse, BolideRouter
from bolide.protocol.bodies.groups import GroupConfig, ListedDelays, RetryKind, RetryPolicy
from bolide.testing import cluster
from tests.cli.processes import LIMIT_S
from tests.client.scenes import on_uvloop
from tests.remoting.loops import eventually
from tests.tidy.source import ROOT

OLDEST = StartFrom.oldest()
AT_ONCE = RetryPolicy(type=RetryKind.CUSTOMIZED, customized_retry_policy=ListedDelays(next=[100]))


class Order(BaseModel):
    name: str
    count: int = 1


@on_uvloop
async def test_a_handler_gets_what_was_published_and_its_answer_goes_on() -> None:
    async with cluster() as rocket:
        for topic in ("Orders", "Bills"):
            await rocket.create_topic(topic)
        broker = BolideBroker(rocket.namesrv)
        orders: list[tuple[Order, str, dict[str, Any], str]] = []
        bills: list[tuple[str, str, str | None]] = []

        @broker.subscriber("Orders", group="kitchen", start_from=OLDEST)
        @broker.publisher("Bills", headers={"from": "kitchen"}, tags="new")
        async def cook(order: Order, message: BolideMessage) -> str:
            orders.append((order, message.correlation_id, message.headers, message.message_id))
            return f"bill for {order.name}"

        @broker.subscriber("Bills", group="desk", expression="new", start_from=OLDEST)
        async def print_bill(text: str, message: BolideMessage) -> None:
            bills.append((text, message.correlation_id, message.headers.get("from")))

        async with broker:
            await broker.start()
            receipt = await broker.publish(
                Order(name="tea"), "Orders", headers={"table": 7}, correlation_id="c1", keys=["order-1"]
            )
            await eventually(lambda: bool(bills), LIMIT_S)
            assert await broker.ping(5)
        assert orders == [(Order(name="tea"), "c1", {"table": "7"}, receipt.msg_id)]
        assert bills == [("bill for tea", "c1", "kitchen")]
        assert not await broker.ping(5)


@on_uvloop
async def test_bodies_of_every_kind_come_as_they_were() -> None:
    async with cluster() as rocket:
        await rocket.create_topic("Things")
        broker = BolideBroker(rocket.namesrv)
        subscriber = broker.subscriber("Things", group="readers", start_from=OLDEST)
        sent = [b"\xff bytes", "text", {"a": [1, None]}, [1, 2], 7, None]
        async with broker:
            await broker.start()
            for each in sent:
                await broker.publish(each, "Things", shard="one")
            receipts = await broker.publish_batch("x", {"y": 1}, topic="Things", shard="one")
            assert [receipt.queue_offset for receipt in receipts] == [6, 7]
            got = []
            for _ in range(8):
                message = await subscriber.get_one(timeout=LIMIT_S)
                assert message is not None
                got.append(await message.decode())
                await message.ack()
            assert await subscriber.get_one(timeout=0.01) is None
        assert got == [*sent, "x", {"y": 1}]


@on_uvloop
async def test_a_message_whose_handler_raised_comes_again_and_a_rejected_one_is_a_dead_letter() -> None:
    async with cluster() as rocket, Admin(rocket.namesrv) as admin:
        await rocket.create_topic("Jobs")
        broker = BolideBroker(rocket.namesrv)
        attempts: dict[str, list[int]] = {}

        @broker.subscriber("Jobs", group="workers", start_from=OLDEST)
        async def work(name: str, message: BolideMessage) -> None:
            attempts.setdefault(name, []).append(message.raw_message.attempt)
            if name == "refused" and len(attempts[name]) == 1:
                raise NackMessage(delay=0.1)
            if name == "raises" and len(attempts[name]) == 1:
                raise ValueError("not this time")
            if name == "rejected":
                raise RejectMessage(reason="no such name")

        async with broker:
            await admin.set_group(GroupConfig(group_name="workers", group_retry_policy=AT_ONCE))
            await broker.start()
            for name in ("fine", "refused", "raises", "rejected"):
                await broker.publish(name, "Jobs")
            wanted = {"fine": [1], "refused": [1, 2], "raises": [1, 2], "rejected": [1]}
            await eventually(lambda: attempts == wanted, LIMIT_S)
        dead = [letter async for letter in admin.dead_letters("workers")]
        assert [(letter.message.body, letter.reason) for letter in dead] == [(b"rejected", "no such name")]


@pytest.mark.parametrize(
    ("policy", "attempts", "letters"),
    [(AckPolicy.ACK, 1, 0), (AckPolicy.ACK_FIRST, 1, 0), (AckPolicy.REJECT_ON_ERROR, 1, 1), (AckPolicy.MANUAL, 1, 0)],
)
def test_a_policy_is_a_verdict(policy: AckPolicy, attempts: int, letters: int) -> None:
    @on_uvloop
    async def scene() -> None:
        async with cluster() as rocket, Admin(rocket.namesrv) as admin:
            await rocket.create_topic("Jobs")
            seen: list[str] = []
            broker = BolideBroker(rocket.namesrv, ack_policy=policy)

            @broker.subscriber("Jobs", group="workers", start_from=OLDEST)
            async def work(name: str) -> None:
                seen.append(name)
                raise ValueError("never")

            async with broker:
                await broker.start()
                await broker.publish("a", "Jobs", shard="one")
                await broker.publish("b", "Jobs", shard="one")
                await eventually(lambda: len(seen) == 2 * attempts, LIMIT_S)
            reasons = [letter.reason async for letter in admin.dead_letters("workers")]
            assert reasons == ["ValueError: never"] * 2 * letters
            # What has no verdict is there for the next member; what has one is not.
            again: list[str] = []
            second = BolideBroker(rocket.namesrv)
            second.subscriber("Jobs", group="workers")(lambda name: again.append(name))
            async with second:
                await second.start()
                await second.publish("c", "Jobs", shard="one")
                await eventually(lambda: "c" in again, LIMIT_S)
            assert again == (["a", "b", "c"] if policy is AckPolicy.MANUAL else ["c"])

    scene()


@on_uvloop
async def test_requests_are_answered_and_a_message_may_name_where_its_answer_goes() -> None:
    async with cluster() as rocket:
        for topic in ("Prices", "Answers"):
            await rocket.create_topic(topic)
        broker = BolideBroker(rocket.namesrv)
        answers: list[tuple[float, str]] = []

        @broker.subscriber("Prices", group="prices", start_from=OLDEST, max_workers=4)
        async def price(name: str) -> Any:
            if name == "nothing":
                return None
            return BolideResponse({"tea": 3.5}[name], headers={"currency": "EUR"})

        @broker.subscriber("Answers", group="answers", start_from=OLDEST)
        async def answered(price: float, message: BolideMessage) -> None:
            answers.append((price, message.correlation_id))

        asking = broker.publisher("Prices")
        async with broker:
            await broker.start()
            reply = await broker.request("tea", "Prices", correlation_id="c9", timeout=LIMIT_S)
            assert (await reply.decode(), reply.headers, reply.correlation_id) == (3.5, {"currency": "EUR"}, "c9")
            several = await asyncio.gather(*(asking.request("tea", timeout=LIMIT_S) for _ in range(8)))
            assert [await each.decode() for each in several] == [3.5] * 8
            assert await (await broker.request("nothing", "Prices", timeout=LIMIT_S)).decode() is None
            await broker.publish("tea", "Prices", reply_to="Answers", correlation_id="c10")
            await eventually(lambda: answers == [(3.5, "c10")], LIMIT_S)
            with pytest.raises(ReplyTimeout):
                await broker.request("coffee", "Prices", timeout=0.3)


@on_uvloop
async def test_a_router_has_a_prefix_and_middlewares_see_what_comes_and_goes() -> None:
    seen: list[str] = []

    class Noting(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append("came")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(f"to {cmd.destination}")
            return await call_next(cmd)

    async with cluster() as rocket:
        await rocket.create_topic("shop-Orders")
        router = BolideRouter("shop-")
        got: list[str] = []

        @router.subscriber("Orders", group="routed", start_from=OLDEST)
        async def on_order(name: str) -> None:
            got.append(name)

        broker = BolideBroker(rocket.namesrv, middlewares=[Noting], routers=[router])
        async with broker:
            await broker.start()
            await broker.publish("tea", "shop-Orders")
            await eventually(lambda: got == ["tea"], LIMIT_S)
        assert seen == ["to shop-Orders", "came"]


@on_uvloop
async def test_a_handler_may_stop_its_subscriber_and_order_is_kept_by_one_worker() -> None:
    async with cluster() as rocket:
        await rocket.create_topic("Lines")
        broker = BolideBroker(rocket.namesrv)
        got: list[int] = []

        @broker.subscriber("Lines", group="readers", start_from=OLDEST, ack_policy=AckPolicy.ACK)
        async def read(number: int) -> None:
            got.append(number)
            if number == 20:
                raise StopConsume

        async with broker:
            await broker.start()
            for number in range(30):
                await broker.publish(number, "Lines", shard="one")
            (subscriber,) = broker.subscribers
            await eventually(lambda: not subscriber.running and subscriber._consumer is None, LIMIT_S)
        assert got == list(range(21))


@on_uvloop
async def test_a_handler_that_does_not_end_in_time_is_given_up_and_its_message_comes_to_another() -> None:
    async with cluster() as rocket:
        await rocket.create_topic("Slow")
        begun: list[str] = []

        def member(end: asyncio.Event) -> BolideBroker:
            broker = BolideBroker(rocket.namesrv, graceful_timeout=0.1)

            @broker.subscriber("Slow", group="slow", start_from=OLDEST)
            async def work(name: str) -> None:
                begun.append(name)
                await end.wait()

            return broker

        end = asyncio.Event()
        async with member(end) as first:
            await first.start()
            await first.publish("one", "Slow")
            await eventually(lambda: begun == ["one"], LIMIT_S)
        end.set()
        async with member(end) as second:
            await second.start()
            await eventually(lambda: begun == ["one", "one"], LIMIT_S)


@on_uvloop
async def test_what_cannot_be_is_said() -> None:
    broker = BolideBroker("127.0.0.1:9")
    with pytest.raises(SetupError, match="needs a topic"):
        broker.subscriber(group="g")
    with pytest.raises(SetupError, match="max_workers is 0"):
        broker.subscriber("T", group="g", max_workers=0)
    with pytest.raises(SetupError, match="a router of Bolide"):
        broker.include_router(object())
    for topic in ("A", "B"):
        broker.subscriber(topic, group="both")
    with pytest.raises(SetupError, match="two subscribers of group both want different topics or tags"):
        await broker.start()
    async with cluster() as rocket, BolideBroker(rocket.namesrv) as connected:
        with pytest.raises(ClientError, match="the body is empty"):
            await connected.publish("", "Orders")
        with pytest.raises(ClientError, match="'TAGS' is RocketMQ's own"):
            await connected.publish("tea", "Orders", headers={"TAGS": "x"})


def test_the_document_of_an_application_names_topics_and_models() -> None:
    broker = BolideBroker("127.0.0.1:9876")

    @broker.subscriber("Orders", "LateOrders", group="kitchen")
    @broker.publisher("Bills")
    async def cook(order: Order) -> str:
        return order.name

    document = FastStream(broker).schema.to_specification().to_jsonable()
    assert {channel["address"] for channel in document["channels"].values()} == {"Orders", "LateOrders", "Bills"}
    assert document["servers"]["development"]["protocol"] == "rocketmq"
    assert "Order" in document["components"]["schemas"]


@contextmanager
def worker(namesrv: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "SHOP_DIRECTORY": str(directory)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    program = "import asyncio; from tests.faststream.shop import app; asyncio.run(app.run())"
    with (directory / "worker.log").open("a") as log:
        process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            assert process.wait(LIMIT_S) == 0, "it ends at SIGTERM as FastStream's do"


@on_uvloop
async def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    def is_done() -> bool:
        return all((tmp_path / f"done-{number}").exists() for number in range(20))

    async with cluster() as rocket:
        await rocket.create_topic("Orders")
        with worker(rocket.namesrv, tmp_path) as first:
            async with BolideBroker(rocket.namesrv) as broker:
                for number in range(20):
                    await broker.publish(number, "Orders")
            await eventually((tmp_path / "began").exists, LIMIT_S)
            first.send_signal(signal.SIGKILL)
            first.wait(LIMIT_S)
        assert not is_done()
        with worker(rocket.namesrv, tmp_path):
            await eventually(is_done, LIMIT_S)
