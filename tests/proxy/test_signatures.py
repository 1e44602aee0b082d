"""Who gRPC clients are, and what they may do: the broker's own users and its own door."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bolide.access.guesses import FREE_COUNT, STEP_S
from bolide.access.users import User
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.proxy import messages as m
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected
from tests.proxy.serving import (
    Serving,
    Talk,
    consumer_settings,
    message,
    producer_settings,
    read_received,
    receive_request,
    resource,
    serving,
)
from tests.proxy.signing import KNOWING, known_of, signed
from tests.remoting.loops import virtual_time

C = m.Code
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"a-long-secret"}',
}


def allow(served: Serving, name: str, *grants: tuple[str, str]) -> None:
    """A user with these rights: resource and action."""
    users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
    table = replace(users.table, users={**users.table.users, name: User(name, "its secret")})
    entries = [AclEntry(resource=resource, actions=[action], decision="Allow") for resource, action in grants]
    users.table = table.with_policies(f"User:{name}", Acl(policies=[AclPolicy(entries=entries)])) if entries else table
    users.version += 1


async def sent(peer: Peer, headers: dict[str, str]) -> m.Status:
    request = m.SendMessageRequest(messages=[message("Normal")])
    return (await peer.call("SendMessage", request, m.SendMessageResponse, **headers)).status


@virtual_time
@pytest.mark.feature("X08")
async def test_only_a_right_signature_of_a_user_is_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        empty = {"authorization": "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature="}
        undated = signed(at="")
        wrong = (signed(secret="wrong"), signed(name="nobody"), {"authorization": "Basic x"})
        for headers in ({}, empty, undated, *wrong):
            assert (await sent(peer, headers)).code == C.UNAUTHORIZED
        assert (await sent(peer, signed())).code == C.OK
        users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
        gone = replace(users.table.users["admin"], is_enabled=False)
        users.table = replace(users.table, users={**users.table.users, "admin": gone})
        assert (await sent(peer, signed())).code == C.UNAUTHORIZED


@virtual_time
async def test_guesses_are_slowed_here_too(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        for _ in range(FREE_COUNT):
            assert (await sent(peer, signed(secret="wrong"))).code == C.UNAUTHORIZED
        began_s = asyncio.get_running_loop().time()
        assert (await sent(peer, signed(secret="wrong"))).code == C.UNAUTHORIZED
        assert asyncio.get_running_loop().time() - began_s >= STEP_S
        assert (await sent(peer, signed())).code == C.OK


@virtual_time
async def test_a_user_does_what_its_grants_allow_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
        users.table = replace(users.table, users={**users.table.users, "reader": User("reader", "its secret")})
        refused = await sent(peer, signed("reader", "its secret"))
        assert (refused.code, "reader" in refused.message) == (C.FORBIDDEN, True)
        queues = [QueueKey("Normal", number) for number in range(4)]
        assert [served.broker.state.store.max_offset(queue) for queue in queues] == [0] * 4


@virtual_time
async def test_a_client_id_belongs_to_the_user_that_used_it_first(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port, "one") as peer:
        assert (await sent(peer, signed())).code == C.OK
        client = served.proxy.clients.find("one")
        assert client is not None
        client.access_key = "another"
        assert (await sent(peer, signed())).code == C.UNAUTHORIZED


@virtual_time
async def test_settings_and_receives_are_refused_in_the_words_that_clients_know(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        talk = Talk(peer, peer.begin("Telemetry"))
        talk.say(m.TelemetryCommand(settings=producer_settings("Normal")))
        answer = await talk.hear(1)
        assert (answer.status.code, answer.HasField("settings")) == (C.UNAUTHORIZED, False)
        answers = await peer.stream("ReceiveMessage", receive_request("Normal", "G"), m.ReceiveMessageResponse)
        assert answers[0].status.code == C.UNAUTHORIZED
        route = m.QueryRouteRequest(topic=resource("Normal"))
        assert (await peer.call("QueryRoute", route, m.QueryRouteResponse)).status.code == C.UNAUTHORIZED


def let_in(served: Serving, address: str) -> None:
    """Have an address pass without a name, as a white list of 4.x does."""
    source: Any = served.broker.admission.door._source  # type: ignore[union-attr]
    source.is_white = lambda host: host == address


@virtual_time
async def test_an_address_that_a_proxy_header_claims_opens_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served:
        let_in(served, "10.9.9.9")
        claim = b"PROXY TCP4 10.9.9.9 127.0.0.1 4000 8081\r\n"
        async with connected(served.port, first=claim) as peer:
            assert (await sent(peer, {})).code == C.UNAUTHORIZED


@virtual_time
async def test_the_client_id_of_one_who_needs_no_name_is_nothing_to_others(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served:
        let_in(served, "127.0.0.2")
        async with connected(served.port, "one", local_addr=("127.0.0.2", 0)) as peer:
            assert (await sent(peer, {})).code == C.OK
        async with connected(served.port, "one") as other:
            assert (await sent(other, {})).code == C.UNAUTHORIZED
            assert (await sent(other, signed())).code == C.UNAUTHORIZED


@virtual_time
async def test_a_right_that_holds_at_one_address_is_not_taken_elsewhere_with_a_client_id(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served:
        users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
        entry = AclEntry(resource="Topic:Normal", actions=["Pub"], decision="Allow", source_ips=["127.0.0.2"])
        table = replace(users.table, users={**users.table.users, "sender": User("sender", "its secret")})
        users.table = table.with_policies("User:sender", Acl(policies=[AclPolicy(entries=[entry])]))
        headers = signed("sender", "its secret")
        async with connected(served.port, "one", local_addr=("127.0.0.2", 0)) as peer:
            assert (await sent(peer, headers)).code == C.OK
        async with connected(served.port, "one") as other:
            assert (await sent(other, headers)).code == C.FORBIDDEN


@virtual_time
async def test_who_is_not_let_in_is_no_client(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        assert (await sent(peer, signed(secret="wrong"))).code == C.UNAUTHORIZED
        assert len(served.proxy.clients) == 0


@virtual_time
async def test_handles_and_transactions_of_others_are_settled_by_nobody_else(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served:
        users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
        users.table = replace(users.table, users={**users.table.users, "plain": User("plain", "its secret")})
        served.add_topic("Trans", "TRANSACTION")
        thief, owner = signed("plain", "its secret"), signed()
        async with connected(served.port, "owner") as peer, connected(served.port, "thief") as other:
            receive = receive_request("Normal", "G")
            await peer.stream("ReceiveMessage", receive, m.ReceiveMessageResponse, **owner)  # the group begins here
            assert (await sent(peer, owner)).code == C.OK
            received = read_received(await peer.stream("ReceiveMessage", receive, m.ReceiveMessageResponse, **owner))
            handle = received.messages[0].system_properties.receipt_handle
            entry = m.AckMessageEntry(message_id="x", receipt_handle=handle)
            about: dict[str, Any] = {"group": resource("G"), "topic": resource("Normal")}
            taken = m.AckMessageRequest(entries=[entry], **about)
            later = m.ChangeInvisibleDurationRequest(receipt_handle=handle, **about)
            later.invisible_duration.seconds = 60
            dead = m.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle, message_id="x", **about)
            broker = m.Broker(name=served.broker.state.settings.now.name)
            queue = m.MessageQueue(topic=resource("Normal"), broker=broker)
            member: dict[str, Any] = {"group": resource("G"), "message_queue": queue}
            calls: list[tuple[str, Any, Any]] = [
                ("AckMessage", taken, m.AckMessageResponse),
                ("ChangeInvisibleDuration", later, m.ChangeInvisibleDurationResponse),
                ("ForwardMessageToDeadLetterQueue", dead, m.ForwardMessageToDeadLetterQueueResponse),
                ("GetOffset", m.GetOffsetRequest(**member), m.GetOffsetResponse),
                (
                    "UpdateOffset",
                    m.UpdateOffsetRequest(**member),
                    m.UpdateOffsetResponse,
                ),
                ("QueryOffset", m.QueryOffsetRequest(message_queue=queue), m.QueryOffsetResponse),
            ]
            for name, asked, answer in calls:
                status = (await other.call(name, asked, answer, **thief)).status
                assert status.code == C.FORBIDDEN, (name, status)
            half = message("Trans", message_type=m.MessageType.TRANSACTION)
            begun = await peer.call(
                "SendMessage", m.SendMessageRequest(messages=[half]), m.SendMessageResponse, **owner
            )
            assert begun.status.code == C.OK, begun.status
            end = m.EndTransactionRequest(
                topic=resource("Trans"),
                message_id=begun.entries[0].message_id,
                transaction_id=begun.entries[0].transaction_id,
                resolution=m.TransactionResolution.COMMIT,
            )
            ended = await other.call("EndTransaction", end, m.EndTransactionResponse, **thief)
            assert ended.status.code == C.FORBIDDEN
            assert (await peer.call("EndTransaction", end, m.EndTransactionResponse, **owner)).status.code == C.OK
            assert (await peer.call("AckMessage", taken, m.AckMessageResponse, **owner)).status.code == C.OK


@virtual_time
async def test_routes_and_settings_are_told_to_who_has_a_right_on_the_topic_and_the_group(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served:
        served.add_group("G", retries=7)
        for number, (grants, wanted) in enumerate(KNOWING.items()):
            name = f"user{number}"
            allow(served, name, *grants)
            async with connected(served.port) as peer:
                assert await known_of(peer, "Normal", "G", signed(name, "its secret")) == wanted, grants
        async with connected(served.port) as peer:
            assert await known_of(peer, "Normal", "G", signed()) == (C.OK, C.OK, 8)


@virtual_time
async def test_a_topic_that_is_not_there_is_no_other_answer_for_who_may_not_know(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        allow(served, "plain")
        asked = m.QueryRouteRequest(topic=resource("Nowhere"))
        for headers, code in ((signed("plain", "its secret"), C.FORBIDDEN), (signed(), C.TOPIC_NOT_FOUND)):
            async with connected(served.port) as peer:
                assert (await peer.call("QueryRoute", asked, m.QueryRouteResponse, **headers)).status.code == code


@virtual_time
async def test_a_user_without_rights_makes_no_groups_by_naming_them(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        users: Any = served.broker.admission.door._source  # type: ignore[union-attr]
        users.table = replace(users.table, users={**users.table.users, "plain": User("plain", "its secret")})
        headers, groups = signed("plain", "its secret"), served.broker.state.groups
        before = set(groups.table)
        receive = receive_request("Normal", "A")
        answers = await peer.stream("ReceiveMessage", receive, m.ReceiveMessageResponse, **headers)
        assert answers[0].status.code == C.FORBIDDEN
        asked = m.QueryAssignmentRequest(topic=resource("Normal"), group=resource("B"))
        await peer.call("QueryAssignment", asked, m.QueryAssignmentResponse, **headers)
        talk = Talk(peer, peer.begin("Telemetry", **headers))
        talk.say(m.TelemetryCommand(settings=consumer_settings("C", "Normal")))
        await talk.hear(1)
        assert set(groups.table) == before
        assert served.broker.state.members.consumers("C") is None
        async with connected(served.port, "another") as other:
            await other.stream("ReceiveMessage", receive, m.ReceiveMessageResponse, **signed())
        assert set(groups.table) - before == {"A"}
