"""Bodies as values: JSON without a choice, other forms by a serializer."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import bolide
from bolide.client.serializers import JSON, NOTHING, body_of, value_of
from bolide.testing import Cluster, cluster


@dataclass
class Order:
    number: int
    placed: datetime


class Line(msgspec.Struct):
    text: str
    count: int = 1


ORDER = Order(7, datetime(2026, 5, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def test_what_is_sent_as_json_is_read_as_the_type_that_is_asked_for(rocket: Cluster) -> None:
    start = bolide.StartFrom.oldest()
    with (
        bolide.Producer("pg", rocket.namesrv) as producer,
        bolide.Consumer("cg", "Orders", rocket.namesrv, start_from=start) as consumer,
    ):
        producer.send("Orders", json=ORDER)
        (message,) = consumer.receive(1, 30)
    assert message.body == b'{"number":7,"placed":"2026-05-01T00:00:00Z"}'
    assert message.json(Order) == message.value(Order) == ORDER
    assert message.json() == {"number": 7, "placed": "2026-05-01T00:00:00Z"}
    with pytest.raises(bolide.ClientError, match="missing required field `text`"):
        message.json(Line)


def test_a_serializer_writes_and_reads_values(rocket: Cluster) -> None:
    pack = bolide.MessagePack()
    start = bolide.StartFrom.oldest()
    with (
        bolide.Producer("pg", rocket.namesrv, serializer=pack) as producer,
        bolide.Consumer("cg", "Lines", rocket.namesrv, start_from=start, serializer=pack) as consumer,
    ):
        producer.submit("Lines", value=Line("tea", 2)).result(30)
        (message,) = consumer.receive(1, 30)
    assert message.value(Line) == Line("tea", 2)
    assert "[" not in repr(message)
    assert "tea" in repr(message)


@pytest.mark.parametrize(("body", "json", "value"), [(b"x", 1, NOTHING), (b"", 1, 2), (b"x", NOTHING, 2)])
def test_a_message_has_one_body(body: bytes, json: Any, value: Any) -> None:
    with pytest.raises(bolide.ClientError, match="one of body, json and value"):
        body_of(body, json, value, JSON)


def test_none_is_a_value() -> None:
    assert body_of(b"", None, NOTHING, JSON) == b"null"
    assert value_of(b"null", Any, JSON, "it") is None


def test_what_cannot_be_written_or_read_says_so() -> None:
    with pytest.raises(bolide.ClientError, match="json is a object that cannot be written"):
        body_of(b"", object(), NOTHING, JSON)
    with pytest.raises(bolide.ClientError, match="the body of message 1 is not what was asked for"):
        value_of(b"{", Any, JSON, "message 1")
