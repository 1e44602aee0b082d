"""Java consumers of one group that subscribe differently, at our broker: seen, and refused where that is wanted."""

from pathlib import Path

import pytest

import bolide
from interop.clients import JavaAgent, java_agent
from interop.cluster import Station, bolide_up
from interop.process import await_that
from interop.release import CLIENT_RELEASES

TIMEOUT_S = 40.0


def named(agent: JavaAgent, name: str) -> str:
    return f"{name}-{agent.release.replace('.', '-')}"


@pytest.mark.short
def test_what_java_members_want_is_compared_and_shown(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(named(agent, "Odd"))
    group = f"of-{topic}"
    with bolide.Admin(station.name_servers) as admin:
        agent.do("push", name=f"{topic}-1", group=group, topic=topic, tags="A || B")
        agent.do("push", name=f"{topic}-2", group=group, topic=topic, tags="B||A")
        rows = await_that(
            "two members say what they want",
            lambda: [row for row in admin.member_rows(group) if row.wants] if _count(admin, group) == 2 else None,
            TIMEOUT_S,
        )
        assert [row.differences for row in rows] == [(), ()], "one wish in two spellings"
        agent.do("push", name=f"{topic}-3", group=group, topic=topic, tags="C")
        await_that("the third is there", lambda: _count(admin, group) == 3, TIMEOUT_S)
        found = [each for row in admin.member_rows(group) for each in row.differences]
        (conflict,) = {(each.topic, each.ours, each.theirs) for each in found}
        assert conflict[0] == topic
        assert {conflict[1], conflict[2]} == {"A || B", "C"}
        (listed,) = [row for row in admin.group_rows() if row.group == group]
        assert listed.has_conflict
    for number in (1, 2, 3):
        agent.do("stop", name=f"{topic}-{number}")


def _count(admin: bolide.Admin, group: str) -> int:
    members = admin.members(group)
    return len(members.connection_set) if members is not None else 0


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_a_java_member_that_wants_something_else_is_not_taken(release: str, tmp_path: Path) -> None:
    with (
        bolide_up(tmp_path, {"bolideRefuseSubscriptionConflict": True}) as station,
        java_agent(tmp_path, release, station.name_servers) as agent,
        bolide.Admin(station.name_servers) as admin,
        bolide.Producer("py-senders", station.name_servers) as producer,
    ):
        topic = station.make_topic("Refusing")
        agent.do("push", name="first", group="strict", topic=topic, tags="A")
        await_that("the first is a member", lambda: _count(admin, "strict") == 1, TIMEOUT_S)
        agent.do("push", name="second", group="strict", topic=topic, tags="B")
        for number in range(20):
            producer.send(topic, f"a-{number}".encode(), tags="A")
        agent.await_received("first", 20, TIMEOUT_S)
        assert (_count(admin, "strict"), agent.received("second")) == (1, [])
        with pytest.raises(bolide.ClientError, match=f"of topic {topic} it wants B, its mate A"):
            bolide.Consumer("strict", {topic: "B"}, station.name_servers).start()
