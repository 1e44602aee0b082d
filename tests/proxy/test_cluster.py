"""The same service before a cluster: name server, broker and proxy, each with its own port."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bolide.access.sources import Users
from bolide.access.users import User
from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config as read_broker_config
from bolide.clock import Clock
from bolide.errors import ConfigError
from bolide.namesrv.config import read_config as read_namesrv_config
from bolide.namesrv.server import serve as serve_namesrv
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.proxy import messages as m
from bolide.proxy.config import read_config
from bolide.proxy.server import serve_before
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected, framed
from tests.proxy.serving import (
    BROKER_SETTINGS,
    ack,
    consumer_settings,
    message,
    producer_settings,
    read_received,
    receive,
    receive_request,
    resource,
    send,
    tell_settings,
)
from tests.proxy.signing import KNOWING, known_of, signed
from tests.remoting.loops import eventually, virtual_time

C = m.Code
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"a-long-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}
READER = '{"users":[{"username":"reader","password":"its secret"},{"username":"admin","password":"a-long-secret"}]}'


@asynccontextmanager
async def standing(
    root: Path, clock: Clock, proxy: Mapping[str, str] | None = None, **settings: str
) -> AsyncIterator[tuple[Broker, int]]:
    """A broker with a topic of each of two types, and the port of a proxy before it."""
    here = {"bindAddress": "127.0.0.1", "listenPort": "0"}
    of_namesrv = read_namesrv_config({**here, "kvConfigPath": str(root / "kv.json")})
    async with serve_namesrv(of_namesrv, clock) as (_, namesrv):
        address = f"127.0.0.1:{namesrv.port}"
        given = {**BROKER_SETTINGS, **settings, "storePathRootDir": str(root / "store"), "namesrvAddr": address}
        proxying = read_config({**here, "namesrvAddr": address, **(proxy or {})})[0]
        async with (
            serve(read_broker_config(given), clock) as (broker, _),
            serve_before(proxying, clock) as (_, server),
        ):
            for name, kind in (("Normal", "NORMAL"), ("Transaction", "TRANSACTION")):
                config = TopicConfig(
                    topic_name=name, read_queue_nums=2, write_queue_nums=2, attributes={"message.type": kind}
                )
                broker.state.topics.update(config)
            await broker.registration.announced()
            yield broker, server.port


@virtual_time
@pytest.mark.feature("X08")
async def test_a_message_goes_through_the_proxy_and_back_and_its_client_is_a_member(tmp_path: Path) -> None:
    async with standing(tmp_path, VirtualClock()) as (broker, port), connected(port, "one") as peer:
        route = m.QueryRouteRequest(topic=resource("Transaction"))
        queues = (await peer.call("QueryRoute", route, m.QueryRouteResponse)).message_queues
        assert [(queue.id, list(queue.accept_message_types)) for queue in queues] == [(0, [4]), (1, [4])]
        await tell_settings(peer, consumer_settings("G", "Normal"))
        await eventually(lambda: broker.state.members.consumers("G") is not None)
        assert (await send(peer, message("Normal", b"body", tag="A"))).status.code == C.OK
        (got,) = (await receive(peer, "Normal", "G")).messages
        assert (got.body, got.system_properties.tag) == (b"body", "A")
        assert (await ack(peer, "Normal", "G", got)).status.code == C.OK
        goodbye = m.NotifyClientTerminationRequest(group=resource("G"))
        await peer.call("NotifyClientTermination", goodbye, m.NotifyClientTerminationResponse)
        await eventually(lambda: broker.state.members.consumers("G") is None)


@virtual_time
async def test_receives_that_wait_cost_no_task_and_each_is_woken_by_a_message(tmp_path: Path) -> None:
    async with standing(tmp_path, VirtualClock()) as (broker, port), connected(port) as peer:
        assert (await receive(peer, "Normal", "G")).messages == []
        before = len(asyncio.all_tasks())
        calls = [peer.open("ReceiveMessage", receive_request("Normal", "G", batch_size=1)) for _ in range(50)]
        await eventually(lambda: broker.pop.parked.count == 50)
        assert len(asyncio.all_tasks()) == before
        for number in range(50):
            await send(peer, message("Normal", b"m%d" % number))
        await peer.until(lambda: all(each.is_over for each in calls))
        found = [read_received(each.messages(m.ReceiveMessageResponse)).bodies for each in calls]
        assert sorted(found) == sorted([b"m%d" % number] for number in range(50))


@virtual_time
async def test_a_topic_that_is_made_later_is_found_at_once(tmp_path: Path) -> None:
    async with standing(tmp_path, VirtualClock()) as (broker, port), connected(port) as peer:
        assert (await send(peer, message("Late"))).status.code == C.TOPIC_NOT_FOUND
        broker.state.topics.update(TopicConfig(topic_name="Late"))
        await broker.registration.announced()
        assert (await send(peer, message("Late"))).status.code == C.OK


@virtual_time
async def test_the_settings_of_a_group_are_the_brokers(tmp_path: Path) -> None:
    async with standing(tmp_path, VirtualClock()) as (broker, port), connected(port) as peer:
        broker.state.groups.update(GroupConfig(group_name="O", consume_message_orderly=True, retry_max_times=3))
        talk = await tell_settings(peer, consumer_settings("O", "Normal"))
        told = (await talk.hear(1)).settings
        assert (told.subscription.fifo, told.backoff_policy.max_attempts) == (True, 4)


@virtual_time
async def test_a_producer_behind_the_proxy_is_asked_about_an_orphaned_transaction(tmp_path: Path) -> None:
    settings = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
    async with standing(tmp_path, VirtualClock(), None, **settings) as (_, port), connected(port) as alive:
        async with connected(port) as dead:
            await send(dead, message("Transaction", b"orphan", message_type=m.MessageType.TRANSACTION))
        talk = await tell_settings(alive, producer_settings("Transaction"))
        asked = (await talk.hear(2)).recover_orphaned_transaction_command
        request = m.EndTransactionRequest(
            topic=resource("Transaction"),
            transaction_id=asked.transaction_id,
            resolution=m.TransactionResolution.COMMIT,
        )
        assert (await alive.call("EndTransaction", request, m.EndTransactionResponse)).status.code == C.OK
        assert (await receive(alive, "Transaction", "G")).bodies == [b"orphan"]


@virtual_time
async def test_what_was_popped_for_a_client_that_left_comes_again_soon(tmp_path: Path) -> None:
    async with standing(tmp_path, clock := VirtualClock()) as (broker, port), connected(port) as peer:
        number = peer.begin("ReceiveMessage")
        peer.send(number, framed(receive_request("Normal", "G", invisible_duration={"seconds": 300})))
        await eventually(lambda: broker.pop.parked.count == 1)
        peer.frames.reset_stream(number)
        peer.flush()
        await send(peer, message("Normal", b"given back"))
        for _ in range(5):
            received = await receive(peer, "Normal", "G")
            if received.messages:
                break
        assert received.bodies == [b"given back"]
        assert clock.monotonic_s() < 60


def test_without_a_name_server_it_does_not_start() -> None:
    @virtual_time
    async def scenario() -> None:
        async with serve_before(read_config({})[0], VirtualClock()):
            pass

    with pytest.raises(ConfigError, match="names no name server"):
        scenario()


async def sent(peer: Peer, headers: dict[str, str]) -> m.Status:
    request = m.SendMessageRequest(messages=[message("Normal")])
    return (await peer.call("SendMessage", request, m.SendMessageResponse, **headers)).status


@virtual_time
@pytest.mark.feature("X10")
async def test_a_proxy_knows_its_clients_and_asks_brokers_that_check_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "users.json").write_text(READER)
    here = {**ON, "authConfigPath": str(tmp_path / "users")}
    async with standing(tmp_path, VirtualClock(), here, **ON) as (broker, port):
        users = broker.admission.door._source  # type: ignore[union-attr]
        assert isinstance(users, Users)
        users.table = replace(users.table, users={**users.table.users, "reader": User("reader", "its secret")})
        async with connected(port, "one") as peer:
            for headers in ({}, signed(secret="wrong"), signed(name="nobody")):
                assert (await sent(peer, headers)).code == C.UNAUTHORIZED
            assert (await sent(peer, signed())).code == C.OK
        async with connected(port, "two") as peer:
            refused = await sent(peer, signed("reader", "its secret"))
            assert (refused.code, "User:reader has no permission" in refused.message) == (C.FORBIDDEN, True)


@virtual_time
async def test_a_proxy_asks_its_brokers_before_it_tells_of_a_topic_or_a_group(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "users.json").write_text(READER)
    here = {**ON, "authConfigPath": str(tmp_path / "users")}
    async with standing(tmp_path, VirtualClock(), here, **ON) as (broker, port):
        users = broker.admission.door._source  # type: ignore[union-attr]
        assert isinstance(users, Users)
        broker.state.groups.update(GroupConfig(group_name="G", retry_max_times=7))
        known = replace(users.table, users={**users.table.users, "reader": User("reader", "its secret")})
        for grants, wanted in KNOWING.items():
            entries = [AclEntry(resource=name, actions=[action], decision="Allow") for name, action in grants]
            acl = Acl(policies=[AclPolicy(entries=entries)])
            users.table = known.with_policies("User:reader", acl) if entries else known
            users.version += 1
            async with connected(port) as peer:
                assert await known_of(peer, "Normal", "G", signed("reader", "its secret")) == wanted, grants


@virtual_time
async def test_a_proxy_that_asks_nobody_for_a_name_signs_with_its_own(tmp_path: Path) -> None:
    inner = {key: ON[key] for key in ("innerClientAuthenticationCredentials",)}
    async with standing(tmp_path, VirtualClock(), inner, **ON) as (_, port), connected(port) as peer:
        assert (await sent(peer, {})).code == C.OK
        await tell_settings(peer, consumer_settings("G", "Normal"))
        assert (await receive(peer, "Normal", "G")).bodies == [b"hello"]


def test_a_proxy_that_is_to_know_its_clients_needs_a_place_for_their_secrets() -> None:
    with pytest.raises(ConfigError, match="authConfigPath"):
        read_config({"authenticationEnabled": "true"})
    with pytest.raises(ConfigError, match="rocketmqHome"):
        read_config({"aclEnable": "true"})
