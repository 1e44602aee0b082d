"""Who gRPC clients are, and what they may do: the broker's own users and its own door."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bolide.access.users import User
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.proxy import messages as m
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected
from tests.proxy.serving import Serving, Talk, message, producer_settings, receive_request, resource, serving
from tests.proxy.signing import signed
from tests.remoting.loops import virtual_time

C = m.Code
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"a-long-secret"}',
}


async def sent(peer: Peer, headers: dict[str, str]) -> m.Status:
    request = m.SendMessageRequest(messages=[message("Normal")])
    return (await peer.call("SendMessage", request, m.SendMessageResponse, **headers)).status


@virtual_time
@pytest.mark.feature("X08")
async def test_only_a_right_signature_of_a_user_is_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), SETTINGS) as served, connected(served.port) as peer:
        empty = {"authorization": "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature="}
        for headers in ({}, empty, signed(secret="wrong"), signed(name="nobody"), {"authorization": "Basic x"}):
            assert (await sent(peer, headers)).code == C.UNAUTHORIZED
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
