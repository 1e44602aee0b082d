"""Members of a group that subscribe otherwise are noticed, shown, and refused where that is wanted."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.broker.members.conflicts import REFUSED_GROUP_FIELD
from bolide.protocol.bodies import ConsumerConnections, ConsumerMember, ConsumeType, Subscription
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, Meeting, consumer, meeting

REFUSING = {"bolideRefuseSubscriptionConflict": "true"}


def wanting(group: str = "g", **tags: str) -> ConsumerMember:
    wanted = [Subscription(topic=topic, sub_string=text) for topic, text in tags.items()]
    retries = Subscription(topic=f"%RETRY%{group}", sub_string="*")
    return msgspec.structs.replace(consumer(group), subscription_data_set=[*wanted, retries])


async def conflicts(guest: Guest, group: str = "g") -> list[tuple[str, str, str]]:
    answer = await guest.ask(203, {"consumerGroup": group})
    found = ConsumerConnections.decode(answer.body).bolide_conflicts
    return [(each.client_id, each.mate_id, each.text) for each in found or []]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "subscription conflict:" in record.message]


def test_a_conflict_is_logged_once_for_each_change_and_shown_while_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as first, broker.guest() as second:
            broker.topic("T")
            await first.beat("c1", wanting(T="A || B"))
            await second.beat("c2", wanting(T="B||A"))
            assert (await conflicts(first), warnings(caplog)) == ([], [])
            for _ in range(3):
                await second.beat("c2", wanting(T="C"))
                await first.beat("c1", wanting(T="A || B"))
            assert await conflicts(first) == [("c2", "c1", "of topic T it wants C, its mate A || B")]
            (said,) = warnings(caplog)
            assert (
                "'c2' does not want the same as 'c1', its mate in group 'g': of topic T it wants C, its mate A || B"
                in said
            )
            await second.beat("c2", wanting(T="D"))
            assert len(warnings(caplog)) == 2
            await first.beat("c1", wanting(T="D"))
            assert await conflicts(first) == []
            assert "want the same again" in caplog.text

    with caplog.at_level(logging.INFO):
        run(scenario())


@pytest.mark.parametrize(
    "other",
    [
        wanting(T="*", U="*"),
        wanting(U="*"),
        ConsumerMember(
            group_name="g",
            subscription_data_set=[Subscription(topic="T", sub_string="a > 1", expression_type="SQL92")],
        ),
    ],
    ids=["one topic more", "another topic", "another kind"],
)
def test_topics_and_kinds_count_like_expressions(tmp_path: Path, other: ConsumerMember) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as first, broker.guest() as second:
            await first.beat("c1", wanting(T="*"))
            await second.beat("c2", other)
            assert len(await conflicts(first)) == 1

    run(scenario())


def test_of_members_that_name_thousands_of_topics_some_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as first, broker.guest() as second:
            await first.beat("c1", wanting(T="*"))
            await second.beat("c2", wanting(T="x" * 10_000, **{f"T{number}": "*" for number in range(2_000)}))
            ((_, _, text),) = await conflicts(first)
            assert len(text) < 6_000
            assert text.endswith("; and 1993 topics more")

    run(scenario())
    assert max(map(len, warnings(caplog))) < 6_000


def test_a_conflict_ends_when_one_of_them_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as first:
            async with broker.guest() as second:
                await first.beat("c1", wanting(T="A"))
                await second.beat("c2", wanting(T="B"))
                assert len(await conflicts(first)) == 1
            await broker.settle()
            assert await conflicts(first) == []

    run(scenario())


def test_who_names_no_topic_takes_no_part(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as first, broker.guest() as second:
            await first.beat("c1", wanting(T="A"))
            await second.beat("c2", consumer("g", consume_type=ConsumeType.CONSUME_ACTIVELY))
            assert await conflicts(first) == []

    run(scenario())


def ids(broker: Meeting, group: str) -> list[Any]:
    found = broker.members.consumers(group)
    return [member.client_id for member in found.channels.values()] if found is not None else []


def test_where_it_is_refused_the_one_that_came_last_is_no_member(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), **REFUSING) as broker,
            broker.guest() as first,
            broker.guest() as second,
        ):
            await first.beat("c1", wanting(T="A"))
            answer = await second.beat("c2", wanting(T="B"), wanting("other", T="B"), producers="pg")
            assert (answer.code, answer.fields[REFUSED_GROUP_FIELD]) == (16, "g")
            remark = answer.remark or ""
            conflict = "'c2' does not want the same as 'c1', its mate in group 'g': of topic T it wants B, its mate A"
            assert conflict in remark
            assert ids(broker, "g") == ["c1"]
            assert ids(broker, "other") == ["c2"], "what else it said was heard"
            assert broker.members.producer_session("c2") is not None
            assert (await second.beat("c2", wanting(T="A"))).code == 0
            assert (await first.beat("c1", wanting(T="A"))).code == 0
            assert ids(broker, "g") == ["c1", "c2"]

    run(scenario())


def test_who_comes_again_on_a_new_connection_is_not_its_own_mate(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), **REFUSING) as broker,
            broker.guest() as before,
            broker.guest() as after,
        ):
            await before.beat("c1", wanting(T="A"))
            assert (await after.beat("c1", wanting(T="B"))).code == 0

    run(scenario())
