"""Joining, leaving and falling silent, over real connections and in virtual time."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bolide.protocol.bodies import ConsumerList, ConsumeType, Heartbeat, MessageModel, ProducerMember
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, consumer, meeting

# Longer than any test takes, so that only missing heartbeats can end a connection.
NEVER_IDLE = {"serverChannelMaxIdleTimeSeconds": "100000"}
SILENCE_MAX_S = 120


async def client_ids(guest: Guest, group: str) -> list[str]:
    answer = await guest.ask(38, {"consumerGroup": group})
    assert answer.code == 0
    return ConsumerList.decode(answer.body).consumer_id_list


async def beat_for(guest: Guest, client_id: str, seconds: int, group: str = "g", **more: str) -> None:
    """Live on for so long with a heartbeat every 30 s."""
    for _ in range(seconds // 30):
        await asyncio.sleep(30)  # virtual
        await guest.beat(client_id, consumer(group, "T"), **more)


def test_a_heartbeat_makes_the_group_and_its_retry_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            answer = await guest.beat("c1", consumer("g", "T"))
            assert answer.code == 0
            assert answer.version >= 232, "below, Java's clients refuse SQL filters"
            assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
            assert broker.tables.groups.get("g") is not None
            retry = broker.tables.topics.find("%RETRY%g")
            assert retry is not None
            assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)

    run(scenario())


def test_a_group_that_may_not_be_made_has_no_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), autoCreateSubscriptionGroup="false") as broker,
            broker.guest() as guest,
        ):
            assert (await guest.beat("c1", consumer("g", "T"), producers="pg")).code == 0
            assert broker.members.consumers("g") is None
            assert broker.tables.topics.find("%RETRY%g") is None
            assert len(broker.members.producers("pg")) == 1, "the rest of the heartbeat counts"

    run(scenario())


@pytest.mark.feature("F008", "F075")
def test_members_are_listed_one_a_connection_and_alike_for_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock()) as broker,
            broker.guest() as first,
            broker.guest() as second,
            broker.guest() as third,
        ):
            for guest, client_id in ((first, "b"), (second, "a"), (third, "b")):
                await guest.beat(client_id, consumer("g", "T"))
            lists = [await client_ids(guest, "g") for guest in (first, second, third)]
            assert lists == [["b", "a", "b"]] * 3
            await first.beat("b", consumer("g", "T"))
            assert await client_ids(second, "g") == ["b", "a", "b"], "a heartbeat does not change the order"

    run(scenario())


def test_the_list_of_an_empty_group_is_refused_with_1(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            answer = await guest.ask(38, {"consumerGroup": "g"})
            assert answer.code == 1
            assert "'g'" in (answer.remark or "")

    run(scenario())


def test_every_member_is_told_of_a_new_one_the_new_one_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as old, broker.guest() as new:
            await old.beat("c1", consumer("g", "T"))
            await broker.settle()
            assert old.notices() == ["g"]
            assert (await new.beat("c2", consumer("g", "T"))).code == 0
            await broker.settle()
            assert old.notices() == new.notices() == ["g"]

    run(scenario())


@pytest.mark.parametrize(
    ("then", "is_change"),
    [
        (consumer("g", "T"), False),
        (consumer("g", "T", version=2), False),
        (consumer("g", "T", "U"), True),
        (consumer("g", "U"), True),
        (consumer("g"), True),
    ],
    ids=["the same", "a newer version", "one more topic", "another topic", "no topic"],
)
def test_only_a_change_of_topics_is_told(tmp_path: Path, then: object, is_change: bool) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            await guest.beat("c1", consumer("g", "T"))
            await broker.settle()
            guest.notices()
            await guest.beat("c1", then)  # type: ignore[arg-type]
            await broker.settle()
            assert guest.notices() == ["g"] * is_change

    run(scenario())


def test_a_subscription_is_replaced_by_a_newer_version_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            for version, kept in ((5, 5), (4, 5), (6, 6)):
                await guest.beat("c1", consumer("g", "T", version=version))
                group = broker.members.consumers("g")
                assert group is not None
                assert group.subscriptions["T"].sub_version == kept

    run(scenario())


def test_a_second_client_id_on_a_connection_is_no_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            await guest.beat("c1", consumer("g", "T"))
            await broker.settle()
            guest.notices()
            await guest.beat("c2", consumer("g", "T"))
            await broker.settle()
            assert guest.notices() == []
            assert await client_ids(guest, "g") == ["c2"]

    run(scenario())
    assert "two clients on one connection" in caplog.text


@pytest.mark.feature("F204")
def test_members_of_a_broadcasting_group_are_told_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one:
            member = consumer("g", "T", message_model=MessageModel.BROADCASTING)
            await one.beat("c1", member)
            async with broker.guest() as two:
                await two.beat("c2", member)
                assert await client_ids(one, "g") == ["c1", "c2"]
            await broker.settle()
            assert one.notices() == []
            assert await client_ids(one, "g") == ["c1"]

    run(scenario())


@pytest.mark.parametrize("place", ["broker", "group"])
def test_notices_can_be_switched_off(tmp_path: Path, place: str) -> None:
    async def scenario() -> None:
        settings = {"notifyConsumerIdsChangedEnable": "false"} if place == "broker" else {}
        async with meeting(tmp_path, VirtualClock(), **settings) as broker, broker.guest() as guest:
            if place == "group":
                config = broker.tables.groups.find("g")
                assert config is not None
                broker.tables.groups.update(type(config)(group_name="g", notify_consumer_ids_changed_enable=False))
            await guest.beat("c1", consumer("g", "T"))
            await broker.settle()
            assert guest.notices() == []

    run(scenario())


def test_a_pull_consumer_may_be_refused_while_the_rest_joins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), rejectPullConsumerEnable="true") as broker,
            broker.guest() as guest,
        ):
            pulling = consumer("pull", "T", consume_type=ConsumeType.CONSUME_ACTIVELY)
            await guest.beat("c1", pulling, consumer("push", "T"))
            assert list(broker.members.consumer_groups) == ["push"]

    run(scenario())


def test_goodbye_leaves_one_group_and_tells_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as staying, broker.guest() as leaving:
            await staying.beat("c1", consumer("g", "T"))
            await leaving.beat("c2", consumer("g", "T"), producers="pg")
            await broker.settle()
            staying.notices()
            answer = await leaving.ask(35, {"clientID": "c2", "consumerGroup": "g"})
            assert answer.code == 0
            await broker.settle()
            assert staying.notices() == ["g"]
            assert await client_ids(leaving, "g") == ["c1"]
            assert len(broker.members.producers("pg")) == 1
            await leaving.ask(35, {"clientID": "c2", "producerGroup": "pg"})
            assert not broker.members.producer_groups

    run(scenario())


@pytest.mark.feature("F074")
def test_a_closed_connection_leaves_at_once_and_the_others_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with meeting(tmp_path, clock) as broker, broker.guest() as staying:
            await staying.beat("c1", consumer("g", "T"))
            async with broker.guest() as leaving:
                await leaving.beat("c2", consumer("g", "T"), consumer("alone", "T"), producers="pg")
                await broker.settle()
                staying.notices()
            left_s = clock.monotonic_s()
            await broker.settle()
            assert staying.notices() == ["g"]
            assert clock.monotonic_s() - left_s < 1
            assert await client_ids(staying, "g") == ["c1"]
            assert list(broker.members.consumer_groups) == ["g"], "a group without members is not kept"
            assert not broker.members.producer_groups

    run(scenario())


@pytest.mark.feature("F130", "F131")
def test_a_silent_consumer_is_dropped_within_130_s_and_the_others_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), **NEVER_IDLE) as broker,
            broker.guest() as alive,
            broker.guest() as frozen,
        ):
            await frozen.beat("frozen", consumer("g", "T"))
            await beat_for(alive, "alive", 90)
            await asyncio.sleep(SILENCE_MAX_S - 90 - 5)  # virtual
            alive.notices()
            assert await client_ids(alive, "g") == ["frozen", "alive"], "it may be silent for two minutes"
            await alive.beat("alive", consumer("g", "T"))
            await asyncio.sleep(16)  # virtual
            assert alive.notices() == ["g"]
            assert await client_ids(alive, "g") == ["alive"]
            assert list(frozen.client.sessions()) == [], "its connection is closed"

    run(scenario())


@pytest.mark.feature("F132")
def test_a_silent_producer_is_dropped_within_130_s(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(), **NEVER_IDLE) as broker, broker.guest() as guest:
            await guest.beat("p1", producers="pg")
            await asyncio.sleep(SILENCE_MAX_S)  # virtual
            assert len(broker.members.producers("pg")) == 1
            await asyncio.sleep(10.5)  # virtual
            assert not broker.members.producers("pg")
            assert list(guest.client.sessions()) == []

    run(scenario())


def test_who_is_silent_in_one_group_and_alive_in_another_stays_connected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(), **NEVER_IDLE) as broker, broker.guest() as guest:
            await guest.beat("c1", consumer("old", "T"))
            connections = list(guest.client.sessions())
            await beat_for(guest, "c1", 150, "new")
            assert list(broker.members.consumer_groups) == ["new"]
            assert await client_ids(guest, "new") == ["c1"]
            assert list(guest.client.sessions()) == connections

    run(scenario())


def test_a_connection_that_says_nothing_at_all_is_dropped_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            await guest.beat("c1", consumer("g", "T"))
            await asyncio.sleep(SILENCE_MAX_S + 11)  # virtual
            assert not broker.members.consumer_groups

    run(scenario())


def test_a_short_heartbeat_keeps_what_the_long_one_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(), **NEVER_IDLE) as broker, broker.guest() as guest:
            answer = await guest.beat("c1", consumer("g", "T"), heartbeat_fingerprint=7)
            assert answer.fields["IS_SUB_CHANGE"] == "false"
            for _ in range(5):
                await asyncio.sleep(50)  # virtual
                answer = await guest.beat("c1", consumer("g"), heartbeat_fingerprint=7, without_sub=True)
                assert answer.fields["IS_SUB_CHANGE"] == "false"
            group = broker.members.consumers("g")
            assert group is not None
            assert list(group.subscriptions) == ["T"]

    run(scenario())


def test_a_short_heartbeat_that_says_nothing_known_is_asked_for_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            short = consumer("g")
            answer = await guest.beat("c1", short, heartbeat_fingerprint=7, without_sub=True)
            assert answer.fields["IS_SUB_CHANGE"] == "true", "the broker has restarted, say"
            await guest.beat("c1", consumer("g", "T"), heartbeat_fingerprint=7)
            answer = await guest.beat("c1", short, heartbeat_fingerprint=8, without_sub=True)
            assert answer.fields["IS_SUB_CHANGE"] == "true"

    run(scenario())


def test_heartbeats_of_the_cpp_client_are_understood(tmp_path: Path) -> None:
    body = (
        b'{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"TagA","subVersion":"1556","tagsSet":["TagA"],'
        b'"topic":"T"}]}],"producerDataSet":[]}'
    )

    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            assert (await guest.ask(34, body=body, language=1)).code == 0
            group = broker.members.consumers("g")
            assert group is not None
            assert group.model is MessageModel.BROADCASTING
            assert group.subscriptions["T"].code_set == [2598919]

    run(scenario())


def test_one_connection_cannot_join_without_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            for first in (0, 600):
                told = [ProducerMember(group_name=f"pg{n}") for n in range(first, first + 600)]
                answer = await guest.ask(34, body=Heartbeat(client_id="c1", producer_data_set=told).encode())
            assert answer.code == 1
            assert "1200 producer groups" in (answer.remark or "")
            assert len(broker.members.producer_groups) == 600
            answer = await guest.ask(34, body=b'{"clientID":"' + b"c" * (1 << 20) + b'"}')
            assert answer.code == 1
            assert (await guest.beat("c1", consumer("g", "T"))).code == 0, "the connection lives on"

    run(scenario())


def test_a_large_heartbeat_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            assert (await guest.beat("c1", consumer("g", *(f"T{n}" for n in range(1000))))).code == 0
            group = broker.members.consumers("g")
            assert group is not None
            assert len(group.subscriptions) == 1000

    run(scenario())


def test_members_that_come_together_are_told_together(tmp_path: Path) -> None:
    """A hundred that join would make 5,050 notices if each were told at once."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(meeting(tmp_path, VirtualClock()))
            guests = [await stack.enter_async_context(broker.guest()) for _ in range(100)]
            for n, guest in enumerate(guests):
                await guest.beat(f"c{n}", consumer("g", "T"))
            await broker.settle()
            counts = [len(guest.notices()) for guest in guests]
            assert min(counts) >= 1, "everybody heard of it"
            assert sum(counts) < 1000

    run(scenario())
