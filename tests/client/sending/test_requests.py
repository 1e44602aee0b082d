"""Request and reply: a question by a message, and the answer to it on the requester's own connection."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import bolide
from bolide import aio
from bolide.client.consuming.replies import NO_REPLY_MADE, reply_to
from bolide.client.sending.requests import REQUEST_TIMEOUT
from bolide.model import properties as names
from bolide.testing import cluster, run
from tests.client.scenes import OLDEST, client_clock, collecting, on_uvloop, stage

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def answer_in_capitals(message: aio.Received) -> None:
    message.reply(message.body.upper())


@pytest.mark.feature("X16")
@on_uvloop
async def test_a_request_is_answered_by_whoever_consumes_it() -> None:
    async with (
        stage() as rocket,
        aio.Producer("askers", rocket.namesrv) as producer,
        collecting("answerers", "T", rocket.namesrv, act=answer_in_capitals),
    ):
        reply = await producer.request("T", b"hello", tags="greeting", timeout_s=10)
        assert (reply.topic, reply.body) == (REPLY_TOPIC, b"HELLO")
        assert reply.properties[names.MESSAGE_TYPE] == "reply"
        assert int(reply.properties[names.ARRIVED_AT]) >= int(reply.properties[names.REPLY_PUSHED_AT])


@on_uvloop
async def test_many_requests_are_out_at_once_and_each_gets_its_own_reply() -> None:
    async with (
        stage() as rocket,
        aio.Producer("askers", rocket.namesrv) as producer,
        collecting("answerers", "T", rocket.namesrv, act=answer_in_capitals),
    ):
        bodies = [f"question-{number}".encode() for number in range(200)]
        replies = await asyncio.gather(*(producer.request("T", body, timeout_s=50) for body in bodies))
        assert [reply.body for reply in replies] == [body.upper() for body in bodies]
        assert not producer.instance.replies, "nothing is kept of what is over"


@on_uvloop
async def test_a_large_reply_comes_whole_though_it_travels_compressed() -> None:
    large = b"x" * 100_000

    def act(message: aio.Received) -> None:
        message.reply(large, tags="large", keys=["k1", "k2"], properties={"colour": "red"})

    async with (
        stage() as rocket,
        aio.Producer("askers", rocket.namesrv) as producer,
        collecting("answerers", "T", rocket.namesrv, act=act),
    ):
        reply = await producer.request("T", b"how much?", timeout_s=10)
        assert reply.body == large
        assert (reply.tags, reply.keys, reply.properties["colour"]) == ("large", ["k1", "k2"], "red")


def test_a_request_without_a_reply_says_that_it_was_sent() -> None:
    async def scenario() -> None:
        async with stage() as rocket, aio.Producer("askers", rocket.namesrv, clock=client_clock()) as producer:
            with pytest.raises(aio.ReplyTimeout, match="was sent, and no reply came within 4 s") as caught:
                await producer.request("T", b"anybody?", timeout_s=4)
            assert (caught.value.code, caught.value.is_sent) == (REQUEST_TIMEOUT, True)
            assert not producer.instance.replies

    run(scenario())


def test_a_reply_after_the_time_is_over_is_dropped_and_the_responder_need_not_care() -> None:
    async def scenario() -> None:
        async with stage() as rocket, aio.Producer("askers", rocket.namesrv, clock=client_clock()) as producer:
            with pytest.raises(aio.ReplyTimeout):
                await producer.request("T", b"quick?", timeout_s=1)
            async with aio.Consumer(
                "answerers", "T", rocket.namesrv, start_from=OLDEST, clock=client_clock()
            ) as consumer:
                (message,) = await consumer.receive(1)
                receipt = await message.reply(b"late")
                assert receipt.is_ok
                message.ack()
            assert not producer.instance.replies

    run(scenario())


def test_a_request_that_no_broker_took_says_so() -> None:
    async def scenario() -> None:
        async with stage() as rocket, aio.Producer("askers", rocket.namesrv, clock=client_clock()) as producer:
            await producer.send("T", b"the route is known")
            await rocket.brokers[0].stop()
            with pytest.raises(aio.ClientError) as caught:
                await producer.request("T", b"anybody?", timeout_s=2)
            assert not getattr(caught.value, "is_sent", False)

    run(scenario())


@on_uvloop
async def test_the_reply_topic_keeps_replies() -> None:
    async with (
        stage() as rocket,
        aio.Producer("askers", rocket.namesrv) as producer,
        collecting("answerers", "T", rocket.namesrv, act=answer_in_capitals),
    ):
        await producer.request("T", b"hello", timeout_s=10)
        async with aio.PullConsumer("readers", rocket.namesrv) as reader:
            (queue,) = await reader.queues(REPLY_TOPIC)
            (kept,) = (await reader.pull(queue, 0)).messages
            assert (kept.body, kept.properties[names.MESSAGE_TYPE]) == (b"HELLO", "reply")


@on_uvloop
async def test_a_reply_goes_to_the_broker_that_knows_the_requester() -> None:
    async with cluster(brokers=2) as rocket:
        await rocket.create_topic("T", 2)
        async with (
            aio.Producer("askers", rocket.namesrv) as producer,
            collecting("answerers", "T", rocket.namesrv, act=answer_in_capitals),
        ):
            for queue in await producer.queues("T"):
                reply = await producer.request("T", b"at " + queue.broker_name.encode(), queue=queue, timeout_s=10)
                assert reply.body == b"AT " + queue.broker_name.upper().encode()


@on_uvloop
async def test_after_a_broker_came_back_it_knows_the_requester_again() -> None:
    async with (
        stage() as rocket,
        aio.Producer("askers", rocket.namesrv) as producer,
        collecting("answerers", "T", rocket.namesrv, act=answer_in_capitals),
    ):
        await producer.request("T", b"before", timeout_s=10)
        await rocket.brokers[0].restart()
        await rocket.registered(rocket.brokers[0])

        async def asked() -> bool:
            with suppress(aio.ClientError):
                return (await producer.request("T", b"after", timeout_s=2)).body == b"AFTER"
            return False

        async with asyncio.timeout(30):
            while not await asked():
                pass


@on_uvloop
async def test_what_a_handler_returns_is_the_reply() -> None:
    async def double(message: aio.Received) -> bytes:
        return message.body * 2

    async with stage() as rocket, aio.Producer("askers", rocket.namesrv) as producer:
        handler = aio.Handler(function=double, group="answerers", topics={"T": "*"}, start_from=OLDEST)
        async with aio.listening(rocket.namesrv, [handler]):
            assert (await producer.request("T", b"ab", timeout_s=10)).body == b"abab"
            await producer.send("T", b"no request: what is returned goes nowhere")


def test_threads_ask_and_answer_without_a_loop() -> None:
    with cluster() as rocket:
        rocket.create_topic("T", 4)
        consumer = bolide.Consumer("answerers", "T", rocket.namesrv, start_from=OLDEST)

        def serve() -> None:
            for message in consumer:
                message.reply(message.body.upper()).result(30)

        with bolide.Producer("askers", rocket.namesrv) as producer, consumer:
            server = threading.Thread(target=serve)
            server.start()
            with ThreadPoolExecutor(8) as threads:
                asked = [f"q{number}".encode() for number in range(24)]
                replies = list(threads.map(lambda body: producer.request("T", body, timeout_s=20), asked))
            assert [reply.body for reply in replies] == [body.upper() for body in asked]
            consumer.close()
            server.join()


def test_a_reply_needs_a_request() -> None:
    with pytest.raises(aio.ClientError, match="no request") as caught:
        reply_to({names.CLUSTER: "c"}, b"x")
    assert caught.value.code == NO_REPLY_MADE
    with pytest.raises(aio.ClientError, match="cluster") as caught:
        reply_to({names.CORRELATION_ID: "1", names.REPLY_TO_CLIENT: "me"}, b"x")
    assert caught.value.code == NO_REPLY_MADE
