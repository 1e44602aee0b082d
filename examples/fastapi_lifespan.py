"""Messages in a FastAPI application: its lifespan opens a producer and a consumer, and closes both with it.

pip install bolide fastapi uvicorn
uvicorn --app-dir examples fastapi_lifespan:app
curl -X POST 'http://127.0.0.1:8000/orders?what=two+teas'    # what was ordered is sent
curl http://127.0.0.1:8000/orders                            # what was consumed
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request

from bolide import aio

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "FastOrders"


async def consume(consumer: aio.Consumer, orders: list[str]) -> None:
    async for message in consumer:
        what = message.json()["what"]
        orders.append(what)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.orders = []
    async with (
        asyncio.TaskGroup() as tasks,  # ends last: the consumer is closed by then, and so its loop is over
        aio.Producer("fast-web", NAMESRV) as app.state.producer,
        aio.Consumer("fast-kitchen", TOPIC, NAMESRV, start_from=aio.StartFrom.oldest()) as consumer,
    ):
        tasks.create_task(consume(consumer, app.state.orders))
        yield


def producer_of(request: Request) -> aio.Producer:
    """One producer serves all requests; tests may put another in its place (`app.dependency_overrides`)."""
    producer: aio.Producer = request.app.state.producer
    return producer


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(what: str, producer: Annotated[aio.Producer, Depends(producer_of)]) -> dict[str, str]:
    try:
        receipt = await producer.send(TOPIC, json={"what": what}, keys=what.split())
    except aio.BolideError as problem:
        raise HTTPException(503 if problem.retriable else 500, str(problem)) from problem
    return {"id": receipt.msg_id}


@app.get("/orders")
async def orders(request: Request) -> list[str]:
    consumed: list[str] = request.app.state.orders
    return consumed
