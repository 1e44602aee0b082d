"""Dead letters are counted, looked at and sent again, on both faces."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.admin.deadletters import DeadLetter, DeadLetterFilter, reborn
from bolide.errors import ClientError
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue, PhysicalOffset, QueueOffset
from bolide.testing import AsyncCluster, cluster
from tests.client.scenes import collecting, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually

BIG = b"z" * 20_000  # compressed on the way


async def bury(rocket: AsyncCluster, act: Callable[[aio.Received], Any], count: int, group: str = "g") -> None:
    """Let a group give up messages of T, until all are among its dead letters."""
    async with collecting(group, "T", rocket.namesrv, act=act) as member:
        await eventually(lambda: len(member.taken) == count)


def give_up(message: aio.Received) -> None:
    message.dead_letter(f"bad {message.body[:1].decode()}")


@pytest.mark.feature("F248")
@both_loops
async def test_dead_letters_tell_why_and_where_from_and_looking_changes_nothing() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer, aio.Admin(rocket.namesrv) as admin:
        assert await admin.dead_letter_groups() == []
        assert [letter async for letter in admin.dead_letters("g")] == []
        receipts = await send_all(producer, "T", [*numbers(0, 4), BIG], tags="A", keys="k-1", properties={"own": "x"})
        await bury(rocket, give_up, 5)
        (row,) = await admin.dead_letter_groups()
        assert (row.group, row.count, row.last_ms > 0) == ("g", 5, True)
        for _ in range(2):
            letters = [letter async for letter in admin.dead_letters("g")]
            assert {letter.id for letter in letters} == {receipt.msg_id for receipt in receipts}
        by_body = {letter.message.body: letter for letter in letters}
        assert by_body.keys() == {*numbers(0, 4), BIG}
        one = by_body[b"1"]
        assert (one.origin_topic, one.reason, one.failure_count) == ("T", "bad 1", 1)
        assert (one.message.tags, one.message.keys, one.message.properties["own"]) == ("A", ["k-1"], "x")
        assert one.message.born_at <= one.died_ms
        assert [group.dead_count for group in await admin.group_rows() if group.group == "g"] == [5]


@both_loops
async def test_they_are_sent_again_whole_to_their_topic_and_say_that_they_were() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer, aio.Admin(rocket.namesrv) as admin:
        sent = await send_all(producer, "T", [*numbers(0, 300), BIG], tags="A", keys="k-1", flag=3)
        await bury(rocket, give_up, 301)
        seen = []
        dry = await admin.resend_dead_letters("g", is_dry=True)
        assert (dry.sent_count, dry.failed_count) == (301, 0)
        told = await admin.resend_dead_letters("g", on_progress=lambda told: seen.append(told.sent_count))
        assert (told.examined_count, told.sent_count, told.failed_count) == (301, 301, 0)
        assert seen[0] == 256
        assert seen[-1] == 301
        async with collecting("g", "T", rocket.namesrv) as again, collecting("h", "T", rocket.namesrv) as other:
            await eventually(lambda: len(again.taken) == 301)
            assert sorted(again.bodies) == sorted([*numbers(0, 300), BIG])
            assert {message.msg_id for message in again.taken} == {receipt.msg_id for receipt in sent}
            message = again.taken[0]
            assert (message.tags, message.keys, message.flag, message.attempt) == ("A", ["k-1"], 3, 1)
            assert message.properties["BOLIDE_RESENT_FROM"] == "%DLQ%g"
            assert len(message.properties["BOLIDE_RESENT_ID"]) == 32
            assert not message.properties.keys() & {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_REASON", "DELAY"}
            await eventually(lambda: len(other.taken) == 602)  # the others of the topic get them a second time


@both_loops
async def test_they_can_be_sent_to_their_own_group_alone() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer, aio.Admin(rocket.namesrv) as admin:
        await send_all(producer, "T", numbers(0, 3))
        await bury(rocket, give_up, 3)
        wanted = DeadLetterFilter(reason="BAD 2")
        assert (await admin.resend_dead_letters("g", wanted, is_for_group=True)).sent_count == 1
        async with collecting("g", "T", rocket.namesrv) as again, collecting("h", "T", rocket.namesrv) as other:
            await eventually(lambda: any(message.is_retry for message in again.taken))
            assert [(m.body, m.topic) for m in again.taken if m.is_retry] == [(b"2", "T")]
            await eventually(lambda: len(other.taken) == 3)


@both_loops
async def test_a_filter_chooses_by_id_topic_reason_and_time() -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv) as producer, aio.Admin(rocket.namesrv) as admin:
        receipts = await send_all(producer, "T", numbers(0, 3))
        await bury(rocket, give_up, 3)
        everything = [letter async for letter in admin.dead_letters("g")]

        async def found(**wanted: Any) -> list[bytes]:
            letters = admin.dead_letters("g", DeadLetterFilter(**wanted))
            return sorted([letter.message.body async for letter in letters])

        assert await found(ids=[receipts[1].msg_id]) == [b"1"]
        assert await found(ids=[everything[0].message.offset_id]) == [everything[0].message.body]
        assert await found(topic="T", reason="bad 0") == [b"0"]
        assert await found(topic="Other") == []
        died = [letter.died_ms for letter in everything]
        assert await found(since_ms=max(died) + 1) == []
        assert await found(until_ms=min(died)) == []
        assert await found(since_ms=min(died), until_ms=max(died) + 1) == numbers(0, 3)


def test_the_blocking_face_does_the_same() -> None:
    with cluster() as rocket, bolide.Producer("pg", rocket.namesrv) as producer, bolide.Admin(rocket.namesrv) as admin:
        for body in numbers(0, 100):
            producer.send("T", body)
        with bolide.Consumer("g", "T", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
            left = 100
            for message in consumer:
                message.dead_letter("no")
                left -= 1
                if not left:
                    break
            assert admin.group_config("g").retry_max_times == 16
        assert sum(row.count for row in admin.dead_letter_groups()) == 100
        assert sorted(letter.message.body for letter in admin.dead_letters("g")) == sorted(numbers(0, 100))
        assert next(iter(admin.dead_letters("g"))).reason == "no"
        assert admin.resend_dead_letters("g").sent_count == 100


def test_one_that_does_not_say_where_it_came_from_is_not_sent_and_says_so() -> None:
    host = Host("127.0.0.1", 1)
    stored = StoredMessage(
        "%DLQ%g", b"x", 0, QueueOffset(0), PhysicalOffset(0), 0, host, 0, host, {"UNIQ_KEY": "U", "TAGS": "t"}
    )
    letter = DeadLetter("g", MessageQueue("%DLQ%g", "a", 0), stored)
    with pytest.raises(ClientError, match="does not say which topic"):
        reborn(letter, is_for_group=False)


def test_the_administrator_is_asked_for_a_group_that_is_not_there() -> None:
    async def ask() -> None:
        async with cluster() as rocket, aio.Admin(rocket.namesrv) as admin:
            with pytest.raises(ClientError, match="group nobody does not exist"):
                await admin.group_config("nobody")

    asyncio.run(ask())
