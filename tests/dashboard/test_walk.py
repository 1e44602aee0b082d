"""The walk behind the lists: one at a time, few calls, and pages that ask about their own rows alone."""

import asyncio
from typing import Any

import pytest

from bolide import Admin as BlockingAdmin
from bolide import Producer
from bolide.admin.admin import Admin, ProgressRow
from bolide.admin.calls import AT_ONCE_MAX, gathered
from bolide.clock import SystemClock
from bolide.dashboard.history import History
from bolide.dashboard.pages.groups import worst_first
from bolide.dashboard.walk import GroupLook, Walk, _group_look
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import GroupConfig, QueueTimeSpan
from bolide.testing.blocking import Cluster
from tests.dashboard.site import POLL_INTERVAL_S, site

GROUPS = 2_500


def progress(count: int) -> dict[str, list[ProgressRow]]:
    queue = MessageQueue("SELF_TEST_TOPIC", "broker-0", 0)
    return {f"group-{number:04}": [ProgressRow(queue, number, 0, 0)] for number in range(count)}


def test_a_page_of_2500_groups_asks_about_fifty(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Crowded(Admin):
        """Of this test's dashboard alone; others may be at work in the same process."""

        async def all_progress(self) -> dict[str, list[ProgressRow]]:
            return progress(GROUPS)

        async def members(self, group: str) -> None:
            asked.append(group)

    monkeypatch.setattr("bolide.dashboard.desks.Admin", Crowded)
    with site(rocket.namesrv) as pages:
        text = pages.wait_for("/groups", lambda text: "1–50 of 2\u202f500 groups" in text)
        assert text.count("<tr") == 51
        assert len(set(asked)) == 50
        rows = pages.rows("/groups", order="name", page="50")
        assert [row["group"] for row in rows] == [f"group-{number:04}" for number in range(2450, 2500)]
        assert [row["group"] for row in pages.rows("/groups", order="behind")][:2] == ["group-2499", "group-2498"]
        asked.clear()
        assert [row["group"] for row in pages.rows("/groups", q="GROUP-123", size="500")] == [
            f"group-123{number}" for number in range(9, -1, -1)
        ]
        assert len(asked) == 10


def test_the_worst_group_is_first_by_how_long_messages_wait_then_by_how_many() -> None:
    looks = [
        GroupLook("fine", 0, 0, 0, 9),
        GroupLook("many", 900, 0, 5_000, 0),
        GroupLook("unknown", 70, 0, None, 0),
        GroupLook("late", 3, 0, 60_000, 0),
        GroupLook("few", 800, 0, 5_000, 0),
    ]
    assert [look.group for look in worst_first(looks)] == ["late", "many", "few", "unknown", "fine"]


def test_what_a_group_consumes_is_counted_over_four_seconds_however_often_one_walks() -> None:
    queue, look = MessageQueue("T", "b", 0), None
    rates = []
    for second in range(9):
        rows = [ProgressRow(queue, 1000, second * 10, 0)]
        look = _group_look("g", rows, second * 1000, look)
        rates.append(look.out_rate)
    assert rates == [None] * 4 + [10.0] * 5


def test_there_is_never_more_than_one_walk(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages wait, and however often somebody asks for a new one."""
    running = most = 0

    async def scene() -> int:
        async with Admin(rocket.namesrv, partial=True) as admin:
            walk = Walk(admin, History(), SystemClock(), 0.0)
            whole = walk._look

            async def look(before: Any) -> Any:
                nonlocal running, most
                running += 1
                most = max(most, running)
                try:
                    await asyncio.sleep(0)
                    return await whole(before)
                finally:
                    running -= 1

            monkeypatch.setattr(walk, "_look", look)  # of this one: other tests' dashboards walk beside it
            walking = asyncio.create_task(walk.run())
            async with asyncio.timeout(30):
                while walk.walk_count < 5:
                    walk.hurry()
                    await asyncio.gather(*(walk.first() for _ in range(10)))
                    await asyncio.sleep(POLL_INTERVAL_S)
            walking.cancel()
            return walk.walk_count

    assert asyncio.run(scene()) >= 5
    assert most == 1


def test_a_list_does_not_wait_for_the_oldest_message_of_a_topic_that_takes_long_and_the_next_walk_asks_it(
    rocket: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer("hands", rocket.namesrv) as producer:
        for topic in ("slow", "quick"):
            rocket.create_topic(topic, 1)
            producer.send(topic, b"x")
    is_quick = asyncio.Event()

    async def time_spans(_: Admin, group: str, topic: str) -> dict[int, QueueTimeSpan]:
        if topic == "slow":
            await is_quick.wait()
        return {0: QueueTimeSpan(min_time_stamp=7)}

    monkeypatch.setattr(Admin, "time_spans", time_spans)

    async def scene() -> None:
        async with Admin(rocket.namesrv) as admin:
            walk = Walk(admin, History(), SystemClock(), 15.0)
            assert await walk.oldest_of(["slow", "quick"]) == {"slow": None, "quick": 7}
            is_quick.set()
            walking = asyncio.ensure_future(walk.run())
            await walk.first()
            walking.cancel()
            is_quick.clear()
            assert await walk.oldest_of(["slow", "quick"]) == {"slow": 7, "quick": 7}

    asyncio.run(scene())


def test_groups_are_asked_one_by_one_where_a_broker_does_not_tell_all(
    rocket: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(Admin):
        async def all_progress(self) -> dict[str, list[ProgressRow]]:
            raise ClientError("request type 317 not supported", 3)

    monkeypatch.setattr("bolide.dashboard.desks.Admin", Older)
    rocket.create_topic("OneByOne", 1)

    with BlockingAdmin(rocket.namesrv) as admin:
        admin.set_group(GroupConfig(group_name="one-by-one-cg"))
        admin.reset_group("one-by-one-cg", "OneByOne", offset=0)
    with site(rocket.namesrv) as pages:
        pages.wait_for("/groups", lambda text: "one-by-one-cg" in text, q="one-by-one")


def test_sixteen_calls_run_at_once_each_has_a_limit_and_one_that_fails_says_so() -> None:
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            if number == 7:
                raise ClientError("no such group", 26)
            if number == 8:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
        finally:
            running -= 1
        return number

    found = asyncio.run(gathered({number: call(number) for number in range(100)}, limit_s=0.2))
    assert most == AT_ONCE_MAX == 16
    assert str(found[7]) == "no such group"
    assert isinstance(found[8], TimeoutError)
    assert [found[number] for number in range(100) if number not in (7, 8)] == [
        number for number in range(100) if number not in (7, 8)
    ]
