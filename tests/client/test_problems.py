"""Errors that help: each says what was found, what it waited for and what to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import bolide
from bolide import aio
from bolide.clock import SystemClock
from bolide.errors import BolideError, ClientError, ConnectError, RequestTimeout
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.testing import cluster
from bolide.testing.nodes import free_port
from tests.client.scenes import client_clock
from tests.namesrv.brokers import RW
from tests.namesrv.peers import registration_body
from tests.remoting.loops import both_loops, virtual_time


@asynccontextmanager
async def stranger(answer: bytes, *, is_silent: bool = False) -> AsyncIterator[str]:
    """A port that speaks something else, or nothing."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)
        if is_silent:
            await reader.read()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"


async def send_to(namesrv: str) -> BolideError:
    async with aio.Producer("pg", namesrv, clock=client_clock()) as producer:
        with pytest.raises(BolideError) as caught:
            await producer.send("T", b"x")
    return caught.value


@both_loops
async def test_no_name_server_there_names_what_was_tried_and_what_starts_one() -> None:
    address = f"127.0.0.1:{free_port()}"
    problem = await send_to(address)
    assert isinstance(problem, ConnectError)
    assert address in str(problem)
    assert "`bolide up` starts one" in str(problem)


def test_no_name_server_at_all_names_the_ways_to_tell_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ClientError, match=r'pass namesrv="host:9876" or set NAMESRV_ADDR') as caught:
        bolide.Producer("pg")
    assert caught.value.code == 10004


@both_loops
async def test_a_port_that_answers_http_is_told_as_such() -> None:
    async with stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        problem = await send_to(address)
        assert address in str(problem)
        assert "HTTP" in str(problem)


@both_loops
async def test_the_grpc_port_of_a_5x_proxy_is_told_as_such() -> None:
    settings = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18
    async with stranger(settings) as address:
        problem = await send_to(address)
        assert address in str(problem)
        assert "gRPC" in str(problem)


@virtual_time
async def test_a_name_server_that_never_answers_is_named_with_the_seconds_waited() -> None:
    async with stranger(b"", is_silent=True) as address:
        began_s = asyncio.get_running_loop().time()
        problem = await send_to(address)
        assert isinstance(problem, RequestTimeout | ConnectError)
        assert address in str(problem)
        assert "3 s" in str(problem)
        assert asyncio.get_running_loop().time() - began_s <= 15


@both_loops
async def test_a_topic_that_is_absent_where_none_is_created_says_so() -> None:
    async with cluster(settings={"autoCreateTopicEnable": "false"}) as rocket:
        problem = await send_to(rocket.namesrv)
        assert "topic T has no route" in str(problem)
        assert str(problem).endswith("create it with `bolide topic create T`")
        assert str(problem).count("create it with") == 1
        assert getattr(problem, "code", None) == 10005


@both_loops
async def test_a_cluster_without_a_broker_says_so() -> None:
    async with cluster(brokers=0) as rocket:
        problem = await send_to(rocket.namesrv)
        assert f"no broker is registered at {rocket.namesrv}" in str(problem)


@both_loops
async def test_a_broker_that_left_is_told_in_the_name_servers_words() -> None:
    async with cluster(settings={"autoCreateTopicEnable": "false"}) as rocket:
        await rocket.create_topic("T")
        await rocket.add_broker("other")
        await rocket.brokers[0].kill()
        async with aio.PullConsumer("g", rocket.namesrv) as walker:
            with pytest.raises(ClientError, match=r"broker-0.*which had it"):
                await walker.queues("T")


@both_loops
async def test_an_advertised_address_out_of_reach_is_told_with_the_key_that_sets_it() -> None:
    """A broker in a container that advertises an address of its own looks like this."""
    body = registration_body({"T": RW, "TBW102": RW})
    fields = {
        "brokerName": "far",
        "brokerAddr": f"127.0.0.1:{free_port()}",
        "clusterName": "DefaultCluster",
        "haServerAddr": "192.0.2.1:10912",
        "brokerId": "0",
    }
    async with cluster(brokers=0) as rocket, Client(ConnectConfig(), SystemClock()) as broker:
        command = Command(RequestCode.REGISTER_BROKER, fields=fields, body=body)
        assert (await broker.request(rocket.namesrv, command, 5)).code == 0
        async with aio.Producer("pg", rocket.namesrv) as producer:
            with pytest.raises(ConnectError, match=r"broker far cannot be reached at the address it gave.*brokerIP1"):
                await producer.send("T", b"x", timeout_s=2)
