"""Handlers of one application: called together, and without those of others."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import bolide
from bolide import aio
from bolide.client.consuming import handlers
from bolide.testing import Cluster, cluster


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def oldest() -> bolide.StartFrom:
    return bolide.StartFrom.oldest()


def test_an_app_calls_its_own_handlers_and_no_others(rocket: Cluster) -> None:
    app, other = bolide.App(rocket.namesrv), bolide.App(rocket.namesrv)
    came = threading.Event()
    called: list[str] = []

    @app.handler("Apps", group="app-cg", start_from=oldest())
    def mine(message: bolide.Received) -> None:
        called.append(message.json())
        came.set()

    @other.handler("Apps", group="other-cg", start_from=oldest())
    def theirs(message: bolide.Received) -> None:
        called.append("other")

    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send("Apps", json="mine")
    with app as opened:
        assert opened is app
        assert came.wait(30)
    assert called == ["mine"]
    assert handlers.registered == []
    assert repr(app) == f"<App of app-cg at {rocket.namesrv}>"


def test_an_app_is_opened_in_a_loop_too(rocket: Cluster) -> None:
    app = bolide.App(rocket.namesrv)
    came = asyncio.Event()

    @app.handler("AppsToo", group="loop-cg", start_from=oldest())
    async def mine(message: bolide.Received) -> None:
        came.set()

    async def work() -> None:
        async with aio.Producer("pg", rocket.namesrv) as producer, app:
            await producer.send("AppsToo", b"x")
            async with asyncio.timeout(30):
                await came.wait()

    asyncio.run(work())


def test_an_app_without_handlers_says_so(rocket: Cluster) -> None:
    with pytest.raises(bolide.ClientError, match=r"@app\.handler"), bolide.App(rocket.namesrv):
        pass


def test_the_decorator_of_the_module_is_that_of_the_app_that_is_always_there() -> None:
    assert bolide.handler == handlers.default_app.handler
    assert handlers.registered is handlers.default_app.handlers


def test_a_verdict_that_is_awaited_says_what_to_leave_out(rocket: Cluster) -> None:
    async def work() -> None:
        async with (
            aio.Producer("pg", rocket.namesrv) as producer,
            aio.Consumer("await-cg", "Awaited", rocket.namesrv, start_from=oldest()) as consumer,
        ):
            await producer.send("Awaited", b"x")
            (message,) = await consumer.receive(1, 30)
            with pytest.raises(bolide.ClientError, match="leave `await` out"):
                await message.ack()  # type: ignore[misc]

    asyncio.run(work())
