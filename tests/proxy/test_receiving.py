"""What a receive may ask for, and that messages which the kernel encodes are as any others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bolide import kernel
from bolide.kernel import plain_left
from bolide.proxy import http2
from bolide.proxy import messages as m
from bolide.proxy.local import LocalLine
from bolide.proxy.port import Backlog
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import connected
from tests.proxy.serving import ack, message, read_received, receive, receive_request, send, serving
from tests.remoting.loops import eventually, virtual_time

C = m.Code
LABELS: dict[str, Any] = {"tag": "red", "keys": ["one", "two"], "born_host": "here", "properties": {"colour": "green"}}


@virtual_time
async def test_a_message_that_the_kernel_encodes_is_what_the_general_path_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        await send(peer, message("One", b"plain"))
        await send(peer, message("One", b"full", **LABELS))
        first = await receive(peer, "One", "A")
        monkeypatch.setattr(kernel, "encode_received", plain_left.encode_received)
        second = await receive(peer, "One", "B")
        assert first.bodies == second.bodies == [b"plain", b"full"]
        for one, other in zip(first.messages, second.messages, strict=True):
            for each in (one, other):  # of each group's own pop
                each.system_properties.ClearField("receipt_handle")
            assert one == other


@virtual_time
async def test_of_what_the_kernel_encodes_only_what_was_asked_for_is_given(tmp_path: Path) -> None:
    """Two tags of one hash: the broker takes the one for the other."""
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        for tag in ("Aa", "BB", "Aa"):
            await send(peer, message("One", tag.encode(), tag=tag))
        received = await receive(peer, "One", "G", expression="Aa")
        assert received.bodies == [b"Aa", b"Aa"]
        assert (await ack(peer, "One", "G", *received.messages)).status.code == C.OK


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"invisible_duration": {"seconds": 9}}, C.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": {"seconds": 12 * 3600 + 1}}, C.ILLEGAL_INVISIBLE_TIME),
        ({"expression": "||"}, C.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_type": 2, "expression": "colour ="}, C.INTERNAL_SERVER_ERROR),
        ({"group": "a b"}, C.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_X"}, C.ILLEGAL_CONSUMER_GROUP),
        ({"topic": "Missing"}, C.TOPIC_NOT_FOUND),
    ],
)
@virtual_time
async def test_what_cannot_be_received_is_refused_with_its_own_code(
    tmp_path: Path, asked: dict[str, Any], code: m.Code
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        given = {"topic": "Normal", "group": "G", **asked}
        assert (await receive(peer, **given)).status.code == code


@virtual_time
async def test_a_deadline_that_leaves_no_time_to_wait_is_told_in_the_code_that_the_client_knows(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        request = receive_request("Normal", "G", long_polling_timeout={"seconds": 20})
        for version, code in (("5.0.2", C.BAD_REQUEST), ("5.0.3", C.ILLEGAL_POLLING_TIME)):
            headers = {"grpc_timeout": "2S", "x_mq_client_version": version}
            answers = await peer.stream("ReceiveMessage", request, m.ReceiveMessageResponse, **headers)
            assert read_received(answers).status.code == code


@virtual_time
async def test_a_receive_ends_before_the_deadline_of_its_client_though_the_broker_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[int] = []
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        monkeypatch.setattr(LocalLine, "pop", lambda *_: lambda: given_up.append(1))
        request, began_s = receive_request("Normal", "G", long_polling_timeout={"seconds": 20}), clock.monotonic_s()
        answers = await peer.stream("ReceiveMessage", request, m.ReceiveMessageResponse, grpc_timeout="8S")
        assert read_received(answers).status.code == C.MESSAGE_NOT_FOUND
        assert 7 < clock.monotonic_s() - began_s < 8
        assert given_up == [1]


@virtual_time
async def test_while_the_receives_of_a_lost_connection_are_let_go_none_of_them_keeps_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(http2, "_CALLS_LET_GO", 1)
    async with (
        serving(tmp_path, clock := VirtualClock()) as served,
        connected(served.port) as lost,
        connected(served.port) as other,
    ):
        served.add_topic("One", queues=1)
        for _ in range(20):
            lost.open("ReceiveMessage", receive_request("One", "G", invisible_duration={"seconds": 300}))
        await eventually(lambda: served.broker.pop.parked.count == 20)
        monkeypatch.setattr(Backlog, "add", lambda _, go_on: held.append(go_on))
        lost.transport.abort()
        await eventually(lambda: bool(held))
        assert served.broker.pop.parked.count == 19
        await send(other, message("One", b"for another"))
        got: list[bytes] = []
        while not got:
            got = (await receive(other, "One", "G")).bodies
        assert (got, clock.monotonic_s() < 60) == ([b"for another"], True)
        while held:
            held.pop()()
        assert served.broker.pop.parked.count == 0
