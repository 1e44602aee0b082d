"""Replies pass through the broker to whoever asked, and are kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import Heartbeat, ProducerMember
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.properties import join_properties, parse_properties
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.session import Reply, Request
from bolide.store.record import decode
from tests.broker.whole import Whole, whole

TOPIC = "C1_REPLY_TOPIC"
REPLY = {names.MESSAGE_TYPE: "reply", names.CORRELATION_ID: "7", names.REPLY_TO_CLIENT: "asker"}
# A broker writes both into every message, a reply as well.
ADDED = {names.REGION: "DefaultRegion", names.TRACE_ON: "true"}


def reply(code: int, properties: dict[str, str] = REPLY, topic: str = TOPIC, body: bytes = b"42") -> Command:
    header = SendMessageRequest(
        producer_group="answerers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_count=4,
        queue_id=0,
        sys_flag=0,
        born_ms=1_700_000_000_000,
        flag=5,
        properties=join_properties(properties),
        reconsume_times=0,
    )
    return Command(code, fields=header.encode(short=code == 325), body=body)


async def ask(broker: Whole, command: Command) -> Command:
    return await broker.client.request(broker.address, command, 15)


@asynccontextmanager
async def asker(broker: Whole, answer_code: int = 0) -> AsyncIterator[list[Command]]:
    """A producer whose client id is known; gives what was pushed to it."""
    pushed: list[Command] = []

    def take(request: Request) -> Reply:
        pushed.append(request.command)
        return request.command.answer(answer_code, remark="no thanks" if answer_code else None)

    async with Client(ConnectConfig(), SystemClock(), handlers={326: take}) as client:
        heartbeat = Heartbeat(client_id="asker", producer_data_set=[ProducerMember(group_name="askers")])
        await client.request(broker.address, Command(34, body=heartbeat.encode()), 5)
        yield pushed


def kept(broker: Whole) -> list[dict[str, str]]:
    key = QueueKey(TOPIC, 0)
    queue = broker.broker.state.store.queue(key)
    if queue is None or not queue.next_offset:
        return []
    return [dict(decode(view).properties) for view in broker.broker.state.store.read(key, 0, 100).views]


@pytest.mark.feature("X16")
@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_is_pushed_to_the_one_who_asked_and_stored(tmp_path: Path, code: int) -> None:
    async def scenario() -> None:
        async with whole(tmp_path) as broker, asker(broker) as pushed:
            answer = await ask(broker, reply(code))
            assert (answer.code, answer.fields["queueOffset"]) == (0, "0"), answer.remark
            assert len(answer.fields["msgId"]) == 32
            assert answer.fields["MSG_REGION"] == "DefaultRegion"
            (told,) = pushed
            assert told.body == b"42"
            assert (told.fields["topic"], told.fields["flag"]) == (TOPIC, "5")
            assert told.fields["bornHost"].startswith("127.0.0.1:")
            assert told.fields["storeHost"] == broker.address
            properties = parse_properties(told.fields["properties"])
            assert int(properties.pop(names.REPLY_PUSHED_AT)) == int(told.fields["storeTimestamp"])
            assert properties == {**REPLY, **ADDED}
            assert kept(broker) == [{**REPLY, **ADDED}]

    asyncio.run(scenario())


def test_without_storing_the_answer_has_an_id_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with whole(tmp_path, storeReplyMessageEnable="false") as broker, asker(broker) as pushed:
            answer = await ask(broker, reply(325))
            assert (answer.code, answer.fields["msgId"], len(pushed)) == (0, "0", 1)
            assert kept(broker) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({**REPLY, names.REPLY_TO_CLIENT: "gone"}, "'gone', which asked, has no connection"),
        ({names.MESSAGE_TYPE: "reply", names.CORRELATION_ID: "7"}, "does not say whose request"),
    ],
    ids=["nobody of that name", "no name"],
)
def test_a_reply_that_finds_nobody_is_answered_with_1_and_stored(
    tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    async def scenario() -> None:
        async with whole(tmp_path) as broker, asker(broker) as pushed:
            answer = await ask(broker, reply(325, properties))
            assert answer.code == 1
            assert words in (answer.remark or "")
            assert (len(pushed), kept(broker)) == (0, [{**properties, **ADDED}])

    asyncio.run(scenario())


def test_a_requester_that_does_not_want_it_any_more_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with whole(tmp_path) as broker, asker(broker, answer_code=1):
            answer = await ask(broker, reply(325))
            assert answer.code == 1
            assert "refused the reply: no thanks" in (answer.remark or "")

    asyncio.run(scenario())


def test_who_has_left_is_not_looked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with whole(tmp_path) as broker:
            async with asker(broker):
                assert broker.broker.state.members.producer_session("asker") is not None
            assert (await ask(broker, reply(325))).code == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (reply(325, topic="SCHEDULE_TOPIC_XXXX"), 16),
        (reply(325, topic="bad topic"), 29),
        (reply(325, body=b""), 13),
    ],
    ids=["a topic of the broker's own", "an illegal name", "no body"],
)
def test_a_reply_is_checked_like_a_send(tmp_path: Path, command: Command, code: int) -> None:
    async def scenario() -> None:
        async with whole(tmp_path) as broker, asker(broker) as pushed:
            assert (await ask(broker, command)).code == code
            assert pushed == []

    asyncio.run(scenario())
