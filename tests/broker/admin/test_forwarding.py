"""Questions of administrators that only clients can answer."""

import asyncio
from pathlib import Path

import pytest

from bolide.model.host import Host
from bolide.model.message import encode_offset_id
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import ConsumerStatus
from bolide.protocol.command import Command
from bolide.remoting.session import Reply, Request
from bolide.store.record import decode
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, consumer, meeting

STATE = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}


async def patiently(guest: Guest, code: int, fields: dict[str, str]) -> Command:
    """Ask as a tool does that has all the time in the world."""
    session = await guest.client.session(guest.address, 3)
    return await session.request(Command(code, fields=fields), 60)


async def never(request: Request) -> Reply:
    await asyncio.sleep(1000)  # virtual
    return None


def test_the_state_of_a_consumer_is_asked_of_it_and_passed_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as client, broker.guest() as admin:
            await client.beat("c1", consumer("g", "T"))
            client.answers[307] = lambda request: request.command.answer(0, body=b'{"properties":{}}', remark="fine")
            answer = await admin.ask(307, {**STATE, "AccessKey": "admin", "Signature": "secret"})
            assert (answer.code, answer.body, answer.remark) == (0, b'{"properties":{}}', "fine")
            (question,) = [command for command in client.told if command.code == 307]
            assert question.fields == STATE, "and nothing of the signature"

    run(scenario())


def test_a_refusal_of_the_client_is_passed_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as client, broker.guest() as admin:
            await client.beat("c1", consumer("g", "T"))
            client.answers[307] = lambda request: request.command.answer(1, remark="not in this client")
            answer = await admin.ask(307, STATE)
            assert (answer.code, answer.remark) == (1, "not in this client")

    run(scenario())


@pytest.mark.parametrize("fields", [{"clientId": "c2"}, {"consumerGroup": "other"}])
def test_a_client_that_is_not_online_is_said_so(tmp_path: Path, fields: dict[str, str]) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as client:
            await client.beat("c1", consumer("g", "T"))
            answer = await client.ask(307, STATE | fields)
            assert answer.code == 206
            assert "not online" in (answer.remark or "")

    run(scenario())


def test_a_client_that_does_not_answer_is_waited_for_10_s(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with meeting(tmp_path, clock) as broker, broker.guest() as client, broker.guest() as admin:
            await client.beat("c1", consumer("g", "T"))
            client.answers[307] = never
            started_s = clock.monotonic_s()
            answer = await patiently(admin, 307, STATE)
            assert answer.code == 207
            assert 10 <= clock.monotonic_s() - started_s < 11

    run(scenario())


def test_a_client_that_leaves_instead_of_answering_is_not_online(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as admin:
            async with broker.guest() as client:
                await client.beat("c1", consumer("g", "T"))
                client.answers[307] = lambda request: client.client.close(broker.address, "gone")
                async with asyncio.TaskGroup() as group:
                    asking = group.create_task(patiently(admin, 307, STATE))
            assert asking.result().code == 206

    run(scenario())


@pytest.mark.parametrize("client_id", ["c2", None], ids=["named", "any"])
def test_a_message_is_given_to_one_consumer_by_hand(tmp_path: Path, client_id: str | None) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            broker.topic("T")
            broker.store_messages("T", 1, 3)
            physical_offset, _, _ = broker.store.dispatch.queues["T", 1].entry(2)
            for guest, name in ((one, "c1"), (two, "c2")):
                await guest.beat(name, consumer("g", "T"))
                guest.answers[309] = lambda request: request.command.answer(0, body=b'{"consumeResult":"CR_SUCCESS"}')
            fields = {"consumerGroup": "g", "msgId": encode_offset_id(Host("10.0.0.1", 10911), physical_offset)}
            answer = await one.ask(309, fields | ({"clientId": client_id} if client_id else {}))
            assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
            asked = two if client_id else one
            (question,) = [command for command in asked.told if command.code == 309]
            message = decode(question.body)
            assert (message.topic, message.queue.queue_id, message.queue_offset) == ("T", 1, 2)
            assert question.fields["brokerName"] == "broker-a"

    run(scenario())


@pytest.mark.parametrize("message_id", ["", "what", encode_offset_id(Host("10.0.0.1", 10911), 7)])
def test_a_message_that_is_not_here_is_not_given_to_anybody(tmp_path: Path, message_id: str) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as client:
            await client.beat("c1", consumer("g", "T"))
            answer = await client.ask(309, {"consumerGroup": "g", "clientId": "c1", "msgId": message_id})
            assert answer.code == 1
            assert "offset id" in (answer.remark or "")

    run(scenario())


def _status(offset: int) -> object:
    body = f'{{"messageQueueTable":{{{{"brokerName":"broker-a","queueId":1,"topic":"T"}}:{offset}}}}}'.encode()
    return lambda request: request.command.answer(0, body=body)


def test_the_offsets_of_all_members_are_gathered_and_the_slow_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with (
            meeting(tmp_path, clock) as broker,
            broker.guest() as one,
            broker.guest() as two,
            broker.guest() as slow,
        ):
            for guest, name, answer in ((one, "c1", _status(3)), (two, "c2", _status(5)), (slow, "c3", never)):
                await guest.beat(name, consumer("g", "T"))
                guest.answers[221] = answer  # type: ignore[assignment]
            queue = MessageQueue("T", "broker-a", 1)
            found = await patiently(one, 223, {"topic": "T", "group": "g"})
            assert ConsumerStatus.decode(found.body).consumer_table == {"c1": {queue: 3}, "c2": {queue: 5}}
            assert clock.monotonic_s() < 6, "all are asked at once"
            found = await patiently(one, 223, {"topic": "T", "group": "g", "clientAddr": "c2"})
            assert ConsumerStatus.decode(found.body).consumer_table == {"c2": {queue: 5}}
            assert (await one.ask(223, {"topic": "T", "group": "nobody"})).code == 1

    run(scenario())
