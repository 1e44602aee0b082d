"""Name servers stop and come back; brokers and clients go on."""

from pathlib import Path

import pytest

from interop import wire
from interop.clients import java_consumer, java_producer, send_messages
from interop.cluster import DEFAULT_TOPIC, known_endpoints
from interop.conftest import StartBroker, StartNameServer
from interop.process import await_that

TOPIC = "Continuous"
TIMEOUT_S = 60.0
HEARTBEAT_PERIOD_S = 10.0
TOLERANCE_S = 5.0


@pytest.mark.short
@pytest.mark.feature("F031", "F034")
def test_one_of_two_stops_and_a_new_client_works_with_the_other(
    start_name_server: StartNameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    first, second = start_name_server(), start_name_server()
    both = f"{first.endpoint};{second.endpoint}"
    broker = start_broker("5.5.0", both)
    broker.await_route(first)
    broker.await_route(second)
    assert wire.topics(first.address) == wire.topics(second.address)
    first.program.stop()
    sent = send_messages(tmp_path, "4.9.8", namesrv=both, topic=TOPIC, count=5)
    assert len(sent) == 5
    await_that("the other learns the new topic", lambda: wire.route(second.address, TOPIC), TIMEOUT_S)


@pytest.mark.short
@pytest.mark.feature("F032", "F035")
def test_a_lone_name_server_stops_clients_go_on_and_it_is_refilled_when_it_is_back(
    start_name_server: StartNameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    server = start_name_server()
    broker = start_broker("4.9.7", server.endpoint)
    broker.await_route(server)
    line = {"namesrv": server.endpoint, "topic": TOPIC, "pollMs": 500}
    with java_producer(tmp_path, "4.9.8", intervalMs=50, **line) as producer:
        producer.await_events("sent", 1, TIMEOUT_S)
        await_that("the topic is routed", lambda: wire.route(server.address, TOPIC), TIMEOUT_S)
        with java_consumer(tmp_path, "5.5.0", **line) as consumer:
            consumer.await_events("received", 1, TIMEOUT_S)
            server.program.stop()
            sent_before = len(producer.events("sent"))
            sent = producer.await_events("sent", sent_before + 40, TIMEOUT_S)
            last = f"message {sent[-1]['number']}"
            await_that("what was sent without a name server arrives", lambda: last in consumer.bodies(), TIMEOUT_S)
            assert producer.events("failed") == []

            again = start_name_server(port=server.address[1])
            assert wire.route(again.address, DEFAULT_TOPIC) is None
            period_s = HEARTBEAT_PERIOD_S + TOLERANCE_S
            await_that("it is refilled", lambda: broker.endpoint in known_endpoints(again), period_s)
            await_that("all topics are back", lambda: wire.route(again.address, TOPIC), period_s)


@pytest.mark.feature("F013")
def test_two_answer_differently_after_a_change_and_alike_after_a_heartbeat(
    start_name_server: StartNameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    first, second = start_name_server(), start_name_server()
    broker = start_broker("4.9.7", f"{first.endpoint};{second.endpoint}")
    broker.await_route(first)
    second.program.stop()
    send_messages(tmp_path, "4.9.8", namesrv=first.endpoint, topic=TOPIC, count=1)
    told = await_that("the first knows", lambda: wire.route(first.address, TOPIC), TIMEOUT_S)
    again = start_name_server(port=second.address[1])
    assert wire.route(again.address, TOPIC) is None
    period_s = HEARTBEAT_PERIOD_S + TOLERANCE_S
    assert await_that("the second knows", lambda: wire.route(again.address, TOPIC), period_s) == told
