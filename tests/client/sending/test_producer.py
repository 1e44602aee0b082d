"""A producer and its brokers: which queue, which attempt, what is asked of name servers, and what happens to those
that move, fail or send one away."""

import asyncio
import os
from collections import Counter
from ipaddress import ip_address
from typing import Any

import pytest

from bolide import aio
from bolide.client.config import client_config
from bolide.client.instance import GO_AWAY, client_id_of
from bolide.errors import BolideError, ClientError, ConnectError, ConnectionLost
from bolide.protocol.bodies import ProducerConnections
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.testing import open_link
from bolide.testing.nodes import free_port
from tests.client.relay import relaying
from tests.client.scenes import client_clock, collecting, numbers, reach_through, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time


def watch(producer: aio.Producer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every request of a producer, with its address."""
    seen: list[tuple[str, int]] = []
    client = producer.instance.client
    real = client.request

    async def request(address: str, command: Command, timeout_s: float) -> Command:
        seen.append((address, command.code))
        return await real(address, command, timeout_s)

    monkeypatch.setattr(client, "request", request)
    return seen


@pytest.mark.feature("F003", "F107", "F108")
@both_loops
async def test_a_route_is_asked_for_before_the_first_send_and_then_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(queue_count=4, brokers=2) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        seen = watch(producer, monkeypatch)
        receipts = await send_all(producer, "T", numbers(0, 16))
        asked = [code for address, code in seen if address == rocket.namesrv]
        assert asked == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
        assert seen[0] == (rocket.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC)
        order = [(queue.broker_name, queue.queue_id) for queue in await producer.queues("T")]
        assert order == [(f"broker-{broker}", queue) for broker in range(2) for queue in range(4)]
        assert set(Counter(receipt.queue for receipt in receipts).values()) == {2}


@pytest.mark.feature("F080", "F081", "F082")
@both_loops
async def test_hundreds_of_first_sends_at_once_introduce_themselves_in_two_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bolide.client.instance._FIRST_HEARTBEAT_S", 600)  # that of the timer is none of theirs
    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        seen = watch(producer, monkeypatch)
        await asyncio.gather(*(producer.send("T", b"%d" % number) for number in range(300)))
        assert 1 <= sum(code == RequestCode.HEART_BEAT for _, code in seen) <= 2


@both_loops
async def test_a_message_has_a_topic_and_a_body_and_may_have_tags_and_keys() -> None:
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        await producer.send(aio.Message("T", b"plain"))
        await producer.send(aio.Message("T", b"tagged", tags="A"))
        await producer.send(aio.Message("T", b"keyed", tags="A", keys=["k1", "k2"]))
        await eventually(lambda: len(member.taken) == 3)
        assert [(message.body, message.tags, message.keys) for message in member.taken] == [
            (b"plain", None, []),
            (b"tagged", "A", []),
            (b"keyed", "A", ["k1", "k2"]),
        ]


@pytest.mark.feature("F100", "F102")
def test_a_client_id_has_the_address_and_the_process_of_its_client_and_is_never_given_twice() -> None:
    config = client_config("127.0.0.1:9876")
    ids = [client_id_of(config) for _ in range(3)]
    assert len(set(ids)) == 3
    for text in ids:
        address, _, name = text.partition("@")
        assert str(ip_address(address)) == address
        assert name.partition("#")[0] == str(os.getpid())
    named = client_config("127.0.0.1:9876", instance_name="mine")
    assert client_id_of(named) == client_id_of(named) == f"{ids[0].partition('@')[0]}@mine"


@pytest.mark.feature("F109")
@both_loops
async def test_8_sends_use_8_queues() -> None:
    async with stage(queue_count=8) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        assert len({receipt.queue for receipt in await send_all(producer, "T", numbers(0, 8))}) == 8


@pytest.mark.feature("F115", "F122", "F121")
@both_loops
async def test_with_one_of_two_brokers_dead_every_send_ends_at_the_other() -> None:
    async with stage(queue_count=2, brokers=2) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 4))
        await rocket.brokers[0].kill()
        receipts = await send_all(producer, "T", numbers(4, 24))
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-1"}


SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@pytest.mark.feature("F116")
@pytest.mark.parametrize(
    ("options", "lost_count", "is_sent"), [({}, 2, True), ({}, 3, False), ({"retry_count": 4}, 4, True)]
)
@virtual_time
async def test_a_submitted_message_whose_answers_are_lost_is_tried_as_often_again_as_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], lost_count: int, is_sent: bool
) -> None:
    clock = client_clock()
    async with stage(queue_count=1) as rocket, relaying(rocket.brokers[0].address, clock) as relay:
        reach_through(monkeypatch, rocket.brokers[0].address, relay.address)
        async with aio.Producer("pg", rocket.namesrv, timeout_s=30, clock=clock, **options) as producer:
            await producer.send("T", b"first")
            relay.asked.clear()
            relay.is_lost = lambda command: command.code in SENDS and len(relay.of(*SENDS)) <= lost_count
            answer = await producer.submit("T", b"again and again")
            if is_sent:
                assert (await answer).queue_offset == 1, "what was lost never came to the broker"
            else:
                with pytest.raises(ConnectionLost):
                    await answer
            assert [command.body for command in relay.of(*SENDS)] == [b"again and again"] * (
                1 + options.get("retry_count", 2)
            )


@pytest.mark.parametrize("options", [{}, {"shard": "s"}], ids=str)
@virtual_time
async def test_a_broker_that_hangs_up_on_everybody_for_a_moment_costs_no_send(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Its attempts are few, for each may be stored: the last of them waits for what becomes of the broker."""
    clock = client_clock()
    async with stage(queue_count=1) as rocket, relaying(rocket.brokers[0].address, clock) as relay:
        reach_through(monkeypatch, rocket.brokers[0].address, relay.address)
        async with aio.Producer("pg", rocket.namesrv, timeout_s=15, clock=clock) as producer:
            await producer.send("T", b"first")
            back_s = clock.monotonic_s() + 5
            relay.is_lost = lambda command: command.code in SENDS and clock.monotonic_s() < back_s
            assert (await producer.send("T", b"second", **options)).is_ok


@pytest.mark.feature("F110")
@both_loops
async def test_an_unknown_broker_is_an_error_after_one_look() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        with pytest.raises(ClientError, match="broker nobody has no master in the route of T") as caught:
            await producer.send("T", b"x", queue=aio.MessageQueue("T", "nobody", 0))
        assert caught.value.code == 10003


@both_loops
async def test_a_broker_that_moved_is_found_within_one_send() -> None:
    async with (
        stage(queue_count=2) as rocket,
        aio.Producer("pg", rocket.namesrv, timeout_s=10, retry_count=20) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        await send_all(producer, "T", numbers(0, 4))
        await eventually(lambda: len(member.taken) == 4)
        (broker,) = rocket.brokers
        before = broker.address
        await broker.stop()
        broker.port = free_port()
        await broker.start()
        assert broker.address != before
        await rocket.registered(broker)
        await producer.send("T", b"4")
        await eventually(lambda: set(member.bodies) == set(numbers(0, 5)), 20)


@pytest.mark.feature("F113")
@both_loops
async def test_hooks_see_every_attempt_and_what_they_raise_changes_nothing() -> None:
    seen: list[str] = []

    class Hook:
        def before_send(self, message: aio.Message, queue: aio.MessageQueue) -> None:
            seen.append("before")
            raise RuntimeError("a hook that fails")

        def after_send(
            self,
            message: aio.Message,
            queue: aio.MessageQueue,
            receipt: aio.Receipt | None,
            problem: BolideError | None,
        ) -> None:
            seen.append("stored" if receipt else "failed")

    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, hooks=[Hook()]) as producer:
        await producer.send("T", b"x")
        assert seen == ["before", "stored"]
        await rocket.brokers[0].kill()
        with pytest.raises(BolideError):
            await producer.send("T", b"x", timeout_s=2)
        attempt_count = len(seen) // 2 - 1  # as many as the time allows: nothing has left us
        assert attempt_count >= 2
        assert seen[2:] == ["before", "failed"] * attempt_count


@pytest.mark.feature("F120")
@virtual_time
async def test_a_producer_is_known_to_every_master_of_its_topic_and_gone_when_it_closes() -> None:
    async with stage(queue_count=2, brokers=2) as rocket, aio.Admin(rocket.namesrv, clock=client_clock()) as admin:
        async with aio.Producer("known", rocket.namesrv, clock=client_clock()) as producer:
            await producer.send("T", b"x")
            await asyncio.sleep(130)  # virtual: longer than a broker keeps a silent client
            for broker in rocket.brokers:
                found = await members(producer, broker.address)
                assert [one.client_id for one in found] == [producer.instance.client_id]
        async with aio.Producer("asker", rocket.namesrv, clock=client_clock()) as asker:
            for broker in rocket.brokers:
                assert await members(asker, broker.address) == []
        assert len(await admin.brokers()) == 2


async def members(producer: aio.Producer, address: str) -> list[Any]:
    fields = {"producerGroup": "known"}
    command = Command(RequestCode.GET_PRODUCER_CONNECTION_LIST, fields=fields)
    answer = await producer.instance.request(address, command, 3)
    return ProducerConnections.decode(answer.body).connection_set if answer.code == 0 else []


@pytest.mark.feature("F054")
@both_loops
async def test_one_name_server_is_asked_and_over_many_starts_all_of_them_are() -> None:
    used: set[str] = set()
    async with stage(namesrvs=3) as rocket:
        addresses = {node.address for node in rocket.namesrvs}
        for _ in range(30):
            async with aio.Producer("pg", rocket.namesrv) as producer:
                await producer.queues("T")
                asked = {session.peer for session in producer.instance.client.sessions()} & addresses
                assert len(asked) == 1
                used |= asked
            if used == addresses:
                break
        assert used == addresses


@both_loops
async def test_name_servers_that_fail_are_passed_by_many_who_ask_at_once() -> None:
    async with stage(namesrvs=2) as rocket:
        for number in range(20):
            await rocket.create_topic(f"T{number}", 1)
        await rocket.namesrvs[0].kill()
        for _ in range(4):
            async with aio.Producer("pg", rocket.namesrv) as producer:
                found = await asyncio.gather(*(producer.queues(f"T{number}") for number in range(20)))
                assert [len(queues) for queues in found] == [1] * 20


@both_loops
async def test_a_broker_that_sends_one_away_is_asked_once_more_on_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.send("T", b"x")
        address = rocket.brokers[0].address
        client = producer.instance.client
        before = await client.session(address, 3)
        real, answers = client.request, [GO_AWAY]

        async def request(address: str, command: Command, timeout_s: float) -> Command:
            return command.answer(answers.pop()) if answers else await real(address, command, timeout_s)

        monkeypatch.setattr(client, "request", request)
        answer = await producer.instance.request(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 3)
        assert answer.code == 0
        assert await client.session(address, 3) is not before


@pytest.mark.feature("F099", "F105", "F106")
@both_loops
async def test_what_no_broker_would_take_is_refused_before_it_leaves() -> None:
    for group in ("", "no blanks", "DEFAULT_PRODUCER", "x" * 300):
        with pytest.raises(ClientError):
            aio.Producer(group, "127.0.0.1:1")
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        for topic, body in (
            ("", b"x"),
            ("no blanks", b"x"),
            ("x" * 128, b"x"),
            ("SCHEDULE_TOPIC_XXXX", b"x"),
            ("T", b""),
        ):
            with pytest.raises(ClientError):
                await producer.send(topic, body)
        with pytest.raises(ClientError, match="RocketMQ's own") as caught:
            await producer.send("T", b"x", properties={"KEYS": "k"})
        assert caught.value.code == 13
        assert (await producer.send("T", bytes(4 << 20))).is_ok
        with pytest.raises(ClientError, match="at most 4194304"):
            await producer.send("T", bytes((4 << 20) + 1))
        for batch in (
            [],
            [aio.Message("T", b"x"), aio.Message("U", b"x")],
            [aio.Message("T", bytes(3 << 20)), aio.Message("T", bytes(3 << 20))],
            [aio.Message("%RETRY%g", b"x")],
        ):
            with pytest.raises(BolideError):
                await producer.send_batch(batch)


@virtual_time
async def test_a_send_that_is_not_answered_says_who_was_asked_and_how_long() -> None:
    async with stage() as rocket, open_link(rocket.brokers[0].address) as link:
        link.freeze()
        async with aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
            await producer.queues("T")
            producer.instance._brokers = {"broker-0": {0: link.address}}
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(BolideError, match=rf"{link.address}.*within"):
                await producer.send("T", b"x", keys="k", timeout_s=2)
            assert asyncio.get_running_loop().time() - began_s <= 2.5


@both_loops
async def test_a_closed_producer_says_how_to_open_one() -> None:
    async with stage() as rocket:
        producer = aio.Producer("pg", rocket.namesrv)
        with pytest.raises(ClientError, match="is not open"):
            await producer.send("T", b"x")
        await producer.start()
        await producer.close()
        with pytest.raises(ClientError, match="is not open"):
            await producer.send("T", b"x")


@both_loops
async def test_a_second_producer_of_a_group_in_one_instance_is_refused() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, instance_name="one"):
        with pytest.raises(ClientError, match="open already in instance"):
            await aio.Producer("pg", rocket.namesrv, instance_name="one").start()
        async with aio.Producer("other", rocket.namesrv, instance_name="one") as other:
            assert (await other.send("T", b"x")).is_ok


@virtual_time
async def test_a_connection_that_cannot_be_made_costs_one_time_limit_for_all_attempts() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.queues("T")
        await rocket.brokers[0].kill()
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(ConnectError, match="broker broker-0 was reached before and is not there now"):
            await producer.send("T", b"x", keys="k")
        assert asyncio.get_running_loop().time() - began_s <= 3.1
