"""Kombu's connection on Bolide: what is declared, sent, received, settled and refused."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from kombu.exceptions import ChannelError

import bolide
from bolide.errors import ClientError, ConfigError, ConnectError
from bolide.testing import Cluster, cluster
from tests.cli.processes import wait_for

LIMIT_S = 30


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def connection(rocket: Cluster) -> Iterator[Connection]:
    with Connection(f"bolide://{rocket.namesrv}", transport_options={"visibility_timeout": 2}) as opened:
        yield opened


def receive(connection: Connection, queue: Queue, count: int = 1, **options: Any) -> list[Any]:
    """Messages of a queue, not settled."""
    found: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: found.append(message)], **options):
        while len(found) < count:
            connection.drain_events(timeout=LIMIT_S)
    return found


def test_a_task_goes_through_and_its_id_finds_it(rocket: Cluster, connection: Connection) -> None:
    queue = Queue("orders.new")
    headers = {"id": "t-17", "task": "shop.add"}
    connection.Producer().publish({"a": [1, "ü"]}, routing_key="orders.new", declare=[queue], headers=headers)
    (message,) = receive(connection, queue)
    assert (message.payload, message.headers["id"], message.delivery_info["redelivered"]) == (
        {"a": [1, "ü"]},
        "t-17",
        False,
    )
    message.ack()
    with bolide.Admin(rocket.namesrv) as admin:
        (stored,) = admin.messages_by_key("orders%2Enew", "t-17")
    assert stored.tags == "shop.add"


def test_bytes_of_any_serializer_come_as_they_were(connection: Connection) -> None:
    queue = Queue("bytes")
    connection.Producer().publish(
        b"\x00\xff", routing_key="bytes", declare=[queue], content_type="application/data", content_encoding="binary"
    )
    connection.Producer().publish({"a": 1}, routing_key="bytes", serializer="msgspec")
    both = receive(connection, queue, 2, accept=["application/data", "msgspec"])
    assert sorted(str(message.payload) for message in both) == [str(b"\x00\xff"), str({"a": 1})]
    for message in both:
        message.ack()


def test_what_is_requeued_comes_again_and_what_is_rejected_is_a_dead_letter(
    rocket: Cluster, connection: Connection
) -> None:
    queue = Queue("verdicts")
    connection.Producer().publish("x", routing_key="verdicts", declare=[queue])
    (message,) = receive(connection, queue)
    message.requeue()
    (again,) = receive(connection, queue)
    assert again.delivery_info["redelivered"]
    again.reject()
    with bolide.Admin(rocket.namesrv) as admin:
        wait_for(lambda: len(list(admin.dead_letters("celery-workers"))) == 1)


def test_what_a_connection_did_not_settle_comes_to_the_next_when_it_is_closed(rocket: Cluster) -> None:
    queue = Queue("handed")
    with Connection(f"bolide://{rocket.namesrv}") as first:
        first.Producer().publish("x", routing_key="handed", declare=[queue])
        receive(first, queue)
    with Connection(f"bolide://{rocket.namesrv}") as second:
        (message,) = receive(second, queue)
        message.ack()


def test_no_more_than_the_prefetch_count_is_out(connection: Connection) -> None:
    queue, found = Queue("few"), []
    for number in range(6):
        connection.Producer().publish(number, routing_key="few", declare=[queue])
    with connection.Consumer(queue, callbacks=[lambda body, message: found.append(message)], prefetch_count=2):
        while len(found) < 2:
            connection.drain_events(timeout=LIMIT_S)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        found[0].ack()
        connection.drain_events(timeout=LIMIT_S)
        assert len(found) == 3


def test_a_simple_queue_tells_its_size_and_is_purged(connection: Connection) -> None:
    simple = connection.SimpleQueue("simple")
    for number in range(5):
        simple.put(number)
    assert simple.qsize() == 5
    assert simple.clear() == 5
    simple.close()
    assert connection.default_channel.basic_get("simple") is None


def test_one_message_is_taken_by_name(connection: Connection) -> None:
    queue = Queue("by-name")
    connection.Producer().publish("x", routing_key="by-name", declare=[queue])
    message = connection.default_channel.basic_get("by-name")
    assert message.payload == "x"
    message.ack()


def test_a_fanout_is_heard_by_everyone_who_listens_and_by_nobody_later(rocket: Cluster) -> None:
    exchange = Exchange("news", type="fanout")
    heard: list[tuple[int, str]] = []
    with Connection(f"bolide://{rocket.namesrv}") as one, Connection(f"bolide://{rocket.namesrv}") as other:
        queues = [Queue(f"news-{number}", exchange, auto_delete=True) for number in range(3)]
        consumers = [
            each.Consumer(queue, callbacks=[lambda body, message, number=number: heard.append((number, body))])
            for number, (each, queue) in enumerate(zip((one, other), queues, strict=False))
        ]
        for consumer in consumers:
            consumer.consume()
        one.Producer().publish("hello", exchange=exchange)
        one.drain_events(timeout=LIMIT_S)
        other.drain_events(timeout=LIMIT_S)
        assert sorted(heard) == [(0, "hello"), (1, "hello")]
        with one.Consumer(queues[2], callbacks=[lambda body, message: heard.append((2, body))]):
            one.Producer().publish("again", exchange=exchange)
            while (2, "again") not in heard:
                one.drain_events(timeout=LIMIT_S)
        assert (2, "hello") not in heard


def test_a_message_that_no_queue_would_get_is_refused(connection: Connection) -> None:
    exchange = Exchange("nobody", type="direct")
    with pytest.raises(ChannelError, match="no queue is bound to exchange 'nobody' with key 'k'"):
        connection.Producer().publish("x", exchange=exchange, routing_key="k", declare=[exchange])


def test_a_queue_that_ends_with_its_consumer_is_refused(connection: Connection) -> None:
    with pytest.raises(ChannelError, match="there is no `rpc://` here"):
        receive(connection, Queue("reply-to-me", auto_delete=True, durable=False))


def test_a_virtual_host_is_a_namespace(rocket: Cluster) -> None:
    queue = Queue("celery")
    with Connection(f"bolide://{rocket.namesrv}/blue") as blue, Connection(f"bolide://{rocket.namesrv}/red") as red:
        blue.Producer().publish("for blue", routing_key="celery", declare=[queue])
        assert queue(red.default_channel).queue_declare().message_count == 0
        assert queue(blue.default_channel).queue_declare().message_count == 1
    with bolide.Admin(rocket.namesrv) as admin:
        assert {"blue%celery", "red%celery"} <= set(admin.topics())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"visibility_timout": 3}, "did you mean visibility_timeout"),
        ({"visibility_timeout": 0}, "must be 1 to 86400 seconds"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(rocket: Cluster, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Connection(f"bolide://{rocket.namesrv}", transport_options=options).connect()


def test_a_queue_with_priorities_is_refused(connection: Connection) -> None:
    with pytest.raises(ClientError, match="x-max-priority"):
        Queue("urgent", max_priority=10)(connection.default_channel).declare()


def test_a_place_where_nobody_is_raises_what_kombu_tries_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nowhere = Connection(f"bolide://127.0.0.1:{port}")
    with pytest.raises(ConnectError) as caught:
        nowhere.transport.establish_connection()
    assert isinstance(caught.value, nowhere.recoverable_connection_errors)


def test_a_fork_neither_uses_nor_closes_what_its_parent_holds(connection: Connection) -> None:
    queue = Queue("forked")
    connection.Producer().publish("x", routing_key="forked", declare=[queue])
    (message,) = receive(connection, queue)
    child = os.fork()
    if child == 0:
        connection.release()
        with connection.clone() as own:
            own.Producer().publish("from the child", routing_key="forked", declare=[queue])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (other,) = receive(connection, queue)
    assert other.payload == "from the child"  # the first was not given back by the child
    message.ack()
    other.ack()
