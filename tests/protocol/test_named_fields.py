"""Every text that comes over the wire says what it names, and is held to it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from bolide.errors import Refusal
from bolide.model.names import CLIENT, GROUP, KINDS, LABEL, TOPIC, Kind
from bolide.protocol import bodies
from bolide.protocol.bodies import Body, Heartbeat, LockRequest
from bolide.protocol.bodies.pop import BatchAcks
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers import (
    DeleteTopicRequest,
    GetConsumerListRequest,
    QueryMessageRequest,
    UnregisterClientRequest,
    WireField,
    header_of,
)
from tests.tidy.source import PACKAGE, dotted, nodes

REQUESTS = {code: found for code in RequestCode if (found := header_of(code).request) is not None}
# Names by what they are called on the wire, but for those that only look like one.
NAMED = {r".*[tT]opic": TOPIC, r"(.*[gG]roup|groupName)": GROUP, r"(.*[cC]lientI[dD]|clientAddr)": CLIENT}
OTHERWISE = {"liteTopic": LABEL}


def text_fields(code: int) -> list[WireField]:
    header = REQUESTS[RequestCode(code)]
    return [field for field in header.wire_fields if field.kind in KINDS]


@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
def test_every_field_of_a_request_that_names_a_topic_a_group_or_a_client_says_so(code: RequestCode) -> None:
    for field in REQUESTS[code].wire_fields:
        for key in field.keys:
            wanted = next((kind for pattern, kind in NAMED.items() if re.fullmatch(pattern, key)), None)
            if wanted is not None:
                assert KINDS.get(field.kind) is OTHERWISE.get(key, wanted), f"{key} of {code.name}"


@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
def test_no_request_brings_a_name_that_is_none_of_its_kind(code: RequestCode) -> None:
    request = REQUESTS[code]
    fine = {key: "1" for field in request.wire_fields for key in field.keys}
    request.decode(fine)
    for field in text_fields(code):
        kind = KINDS[field.kind]
        bad = [] if kind.length_max is None else ["x" * (kind.length_max + 1)]
        bad += ["a\nb", "a\x1b[2J", "a\0"] if kind.is_printable else []
        bad += [] if kind.may_have_slash else ["../x", "/etc", "..", "."]
        for text in bad:
            with pytest.raises(Refusal) as refused:
                request.decode(fine | dict.fromkeys(field.keys, text))
            assert refused.value.code == 29
            assert refused.value.remark.isprintable()
            assert len(refused.value.remark) < 400


def types_of(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """All types inside a type, with where they are."""
    if get_origin(kind) is Annotated:
        yield path, kind
    elif get_args(kind):
        for part in get_args(kind):
            yield from types_of(part, path)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        for name in kind.__struct_fields__:
            yield from types_of(hints[name], f"{path}.{name}")
    else:
        yield path, kind


# Answers that a broker gets.
READ_ELSEWHERE = {"TopicRoute", "KVTable", "ConsumerStatus", "Clusters", "ElectedMaster", "BrokerMembersAnswer"}


@cache
def broker_bodies() -> dict[str, type[Body]]:
    """The bodies that the broker reads from the wire: `Kind.decode(...)`, or `_with_body(request, Kind, ...)`."""
    named = {name: getattr(bodies, name) for name in bodies.__all__}  # they are loaded when they are asked for
    known = {name: each for name, each in named.items() if isinstance(each, type) and issubclass(each, Body)}
    found = set()
    for _, call in nodes(ast.Call, folder=PACKAGE / "broker"):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "decode":
            found.add(dotted(call.func.value))
        elif dotted(call.func) == "_with_body":
            found.add(dotted(call.args[1]))
    return {name: known[name] for name in found & known.keys() - READ_ELSEWHERE}


def test_the_bodies_of_requests_are_found() -> None:
    found = broker_bodies().keys()
    assert {"Heartbeat", "ClientCheck", "LockRequest", "UnlockRequest", "BatchAcks", "AssignmentRequest"} <= found
    assert {"GroupRequestMode", "GroupConfig", "GroupConfigList", "TopicConfigList"} <= found


def test_every_text_in_the_body_of_a_request_says_what_it_names() -> None:
    wanted = {"topic": TOPIC, "topic_name": TOPIC, "group": GROUP, "group_name": GROUP, "client_id": CLIENT}
    wanted |= {"consumer_group": GROUP}
    for name, body in broker_bodies().items():
        assert body.is_request, f"nobody looks at what a {name} names"
        types = list(types_of(body, name))
        assert [path for path, kind in types if kind is str] == []
        for path, kind in types:
            if get_origin(kind) is Annotated and isinstance(get_args(kind)[1], Kind):
                member = path.rpartition(".")[2]
                assert get_args(kind)[1] is wanted.get(member, get_args(kind)[1]), path


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (Heartbeat, b'{"clientID":"%s"}' % (b"x" * 256)),
        (Heartbeat, b'{"clientID":"a\\nb"}'),
        (Heartbeat, b'{"producerDataSet":[{"groupName":"../x"}]}'),
        (Heartbeat, b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"a\\u0000"}]}]}'),
        (Heartbeat, b"{clientID:'a\\nb'}"),  # as the mild reader finds it
        (LockRequest, b'{"mqSet":[{"topic":"/etc"}]}'),
        (BatchAcks, b'{"acks":[{"c":"g","t":"%s"}]}' % (b"t" * 300)),
    ],
)
def test_a_body_that_names_what_nothing_is_called_is_refused(body: type[Body], data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        body.decode(data)
    assert refused.value.code == 29
    assert refused.value.remark.isprintable()
    assert len(refused.value.remark) < 400


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "9223372036854775808", "-9223372036854775809", "1" + "0" * 390]
)
def test_a_number_beyond_64_bits_enters_nothing(number: str) -> None:
    with pytest.raises(Refusal) as refused:
        BatchAcks.decode(b'{"acks":[{"c":"g","t":"t","so":%s}]}' % number.encode())
    assert len(refused.value.remark) < 200


@pytest.mark.parametrize(
    "client_id",
    ["10.0.0.7@DEFAULT", "10.0.0.7@4711#1234567890123456@unit@STREAM", "host-7@4711@0@7kj1", "a/b@c", "ns%10.0.0.7@1"],
)
def test_client_ids_of_every_client_pass(client_id: str) -> None:
    fields = {"clientID": client_id, "producerGroup": "p" * 255, "consumerGroup": "ns%" + "g" * 200}
    assert UnregisterClientRequest.decode(fields).client_id == client_id


@pytest.mark.parametrize(
    "topic",
    ["%RETRY%" + "g" * 120 + "_" + "t" * 127, "%RETRY%g+t", "%LMQ%home%room", "ns%topic", "a|b", "old name.x", "$x"],
)
def test_names_that_some_rocketmq_has_pass(topic: str) -> None:
    assert DeleteTopicRequest.decode({"topic": topic}).topic == topic


def test_an_empty_name_is_the_business_of_who_needs_one() -> None:
    assert GetConsumerListRequest.decode({"consumerGroup": ""}).consumer_group == ""


def test_a_key_may_have_any_character_and_an_end() -> None:
    fields = {"topic": "T", "key": "a\n/b \x01", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    assert QueryMessageRequest.decode(fields).key == "a\n/b \x01"
    with pytest.raises(Refusal, match="32767"):
        QueryMessageRequest.decode(fields | {"key": "k" * 32_768})
