"""A client whose credentials are refused fails at its start, with the words of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import aio
from bolide.client.access import failure_of
from bolide.client.config import Credentials
from bolide.clock import SystemClock
from bolide.errors import AccessRefused, ClientError
from bolide.protocol.bodies.routes import BrokerRoute, Clusters, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.session import Reply, Request
from bolide.remoting.tls import self_signed_pem
from bolide.testing import cluster
from tests.client.scenes import on_uvloop
from tests.remoting.ends import Table, served

WHO = Credentials(access_key="ada", secret_key="a secret of ada's")
OLD = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=ada, org.apache.X.y(X.java:1)"
REFUSALS = [(16, "check signature failed."), (16, "User:ada is not found."), (1, OLD), (16, "User:ada is disabled.")]


@asynccontextmanager
async def refusing(code: int, remark: str) -> AsyncIterator[tuple[str, list[int]]]:
    """A name server and broker on one port, which takes nobody; also the codes it was asked for."""
    asked: list[int] = []
    address = ""

    def answer(request: Request) -> Reply:
        command = request.command
        asked.append(command.code)
        data = BrokerRoute(cluster="c", broker_name="b", broker_addrs={0: address})
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return command.answer(0, body=Clusters(broker_addr_table={"b": data}).encode())
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            queues = QueueRoute(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=0)
            return command.answer(0, body=TopicRoute(broker_datas=[data], queue_datas=[queues]).encode())
        return command.answer(code, remark=remark)

    async with served(Table(answer)) as server:
        address = f"127.0.0.1:{server.port}"
        yield address, asked


Opened = Callable[[str], Any]
CLIENTS: dict[str, Opened] = {
    "producer": lambda namesrv: aio.Producer("p", namesrv, credentials=WHO),
    "consumer": lambda namesrv: aio.Consumer("c", "T", namesrv, credentials=WHO),
    "pull consumer": lambda namesrv: aio.PullConsumer("c", namesrv, credentials=WHO),
    "handler": lambda namesrv: aio.listening(
        namesrv, [aio.Handler(function=print, group="c", topics={"T": "*"})], credentials=WHO
    ),
}


@pytest.mark.feature("X09", "X10")
@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(("code", "remark"), REFUSALS)
def test_a_client_that_is_refused_fails_at_its_start_with_the_brokers_words(kind: str, code: int, remark: str) -> None:
    @on_uvloop
    async def scene() -> None:
        async with refusing(code, remark) as (namesrv, _):
            with pytest.raises(AccessRefused) as caught:
                async with CLIENTS[kind](namesrv):
                    pass
            assert remark in str(caught.value)
            assert "bolide login" in str(caught.value)
            assert caught.value.code == code

    scene()


@pytest.mark.feature("X10", "X21")
def test_a_handler_speaks_tls_and_signs(tmp_path: Path) -> None:
    shown = tmp_path / "server.pem"
    shown.write_bytes(self_signed_pem(SystemClock()))
    settings: dict[str, object] = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": f'{{"username":"{WHO.access_key}","password":"{WHO.secret_key}"}}',
        "innerClientAuthenticationCredentials": '{"accessKey":"servers","secretKey":"what servers know"}',
        "tls.server.mode": "enforcing",
        "tls.server.certPath": shown,
        "useTLS": True,
    }
    connect = aio.ConnectConfig(is_tls=True, tls_verify=True, tls_trust_path=str(shown))

    @on_uvloop
    async def scene() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        listener = aio.Handler(
            function=lambda message: heard.put_nowait(message.body),
            group="g",
            topics={"T": "*"},
            start_from=aio.StartFrom.oldest(),
        )
        async with cluster(settings=settings) as rocket:
            await rocket.create_topic("T", 1)
            async with (
                aio.Producer("p", rocket.namesrv, credentials=WHO, connect=connect) as producer,
                aio.listening(rocket.namesrv, [listener], credentials=WHO, connect=connect),
            ):
                await producer.send("T", b"over TLS")
                assert await asyncio.wait_for(heard.get(), 60) == b"over TLS"
            with pytest.raises(AccessRefused):
                async with aio.listening(rocket.namesrv, [listener], connect=connect):
                    pass

    scene()


@on_uvloop
async def test_a_consumer_without_credentials_is_told_to_have_some() -> None:
    async with refusing(16, "username cannot be null.") as (namesrv, _):
        with pytest.raises(AccessRefused, match=r"username cannot be null\.; .*bolide login"):
            async with aio.Consumer("c", "T", namesrv):
                pass


@on_uvloop
async def test_a_refused_send_is_not_tried_at_other_brokers() -> None:
    async with refusing(16, "username cannot be null.") as (namesrv, asked), aio.Producer("p", namesrv) as producer:
        with pytest.raises(AccessRefused, match="bolide login"):
            await producer.send("T", b"x")
        assert asked.count(RequestCode.SEND_MESSAGE_V2) == 1


@on_uvloop
async def test_a_producer_starts_while_no_server_is_there() -> None:
    async with aio.Producer("p", "127.0.0.1:1", credentials=WHO):
        pass


@pytest.mark.parametrize("remark", ["the topic[T] sending message is forbidden", "the broker does not take messages"])
def test_a_refusal_that_is_not_about_the_user_is_an_error_like_others(remark: str) -> None:
    problem = failure_of(Command(16, remark=remark))
    assert type(problem) is ClientError
    assert str(problem) == remark


@pytest.mark.parametrize("remark", ["check signature failed.", "AclException: Check signature failed for accessKey=a"])
def test_a_wrong_secret_is_called_one(remark: str) -> None:
    problem = failure_of(Command(16, remark=remark))
    assert isinstance(problem, AccessRefused)
    assert "the secret is not that of this user" in str(problem)


def test_a_missing_right_needs_no_advice_to_log_in() -> None:
    remark = "User:ada has no permission to access Topic:T from 10.0.0.9, no matched policies."
    problem = failure_of(Command(16, remark=remark))
    assert isinstance(problem, AccessRefused)
    assert str(problem) == remark
