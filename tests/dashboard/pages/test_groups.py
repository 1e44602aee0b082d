"""Groups: who is behind, who differs, and what is not known."""

import pytest

from bolide import Admin, Consumer, Producer
from bolide.protocol.bodies import GroupConfig
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.site import Site


@pytest.fixture(scope="module")
def behind(rocket: Cluster) -> str:
    """A group that read 3 of 10 messages and left."""
    rocket.create_topic("Half", 1)
    with Producer("half", rocket.namesrv) as producer:
        for number in range(10):
            producer.send("Half", str(number).encode())
    with Admin(rocket.namesrv) as admin:
        admin.set_group(GroupConfig(group_name="half-cg"))
        admin.reset_group("half-cg", "Half", offset=3)
    return "half-cg"


def test_a_group_that_left_is_listed_greyed_with_how_far_it_is_behind(pages: Site, behind: str) -> None:
    text = pages.wait_for("/groups", lambda text: f">{behind}<" in text, q=behind)
    assert 'class="offline"' in text
    assert "nobody there" in text
    assert pages.rows("/groups", q=behind) == [
        {
            "group": behind,
            "members": 0,
            "behind": 7,
            "retries_behind": 0,
            "dead_letters": 0,
            "subscriptions": "",
        }
    ]


def test_json_of_groups_is_what_the_command_says(rocket: Cluster, pages: Site, behind: str) -> None:
    (expected,) = told(rocket.namesrv, "group", "list")
    pages.wait_for("/groups", lambda text: f">{behind}<" in text)
    rows = {row["group"]: row for row in pages.rows("/groups", size="500")}
    assert rows[behind] == next(row for row in expected if row["group"] == behind)
    (progress,) = told(rocket.namesrv, "group", "progress", behind)
    assert pages.rows(f"/groups/{behind}")["progress"] == progress


def test_a_group_shows_its_queues_and_how_long_the_first_unread_waits(pages: Site, behind: str) -> None:
    text = pages.text(f"/groups/{behind}")
    assert "first unread waits" in text
    assert '<td class="num some">7' in text
    assert "Nobody is in the group now" in text


def test_members_that_differ_are_told_in_words(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Torn", 2)
    with (
        Consumer("torn-cg", {"Torn": "a"}, rocket.namesrv),
        Consumer("torn-cg", {"Torn": "b"}, rocket.namesrv),
    ):
        text = pages.wait_for("/groups/torn-cg", lambda text: "differs" in text)
        assert "of Torn it wants" in text
        assert "messages are missed" in text
        assert "conflict" in pages.wait_for("/groups", lambda text: ">conflict<" in text, q="torn-cg")


def test_a_group_that_is_not_there_says_so(pages: Site) -> None:
    answer = pages.content("/groups/nobody-knows-it")
    assert answer.status_code == 404
    assert "bolide group list" in answer.text


def test_another_group_is_put_where_one_is_unless_somebody_is_in_it(rocket: Cluster, changing: Site) -> None:
    rocket.create_topic("Cloned", 1)
    with Producer("cloning", rocket.namesrv) as producer, Admin(rocket.namesrv) as admin:
        for _ in range(5):
            producer.send("Cloned", b"x")
        for group in ("source-cg", "copy-cg"):
            admin.set_group(GroupConfig(group_name=group))
        admin.reset_group("source-cg", "Cloned", offset=3)
        answer = changing.post("/groups/source-cg/clone", to="copy-cg")
        assert (answer.status_code, answer.headers["location"]) == (303, "/groups/copy-cg?cloned=1")
        assert [row.consumer_offset for row in admin.group_progress("copy-cg")] == [3]
    with Consumer("copy-cg", "Cloned", rocket.namesrv):
        assert "has members online" in changing.post("/groups/source-cg/clone", to="copy-cg").text
    for name in ("", "has space", "source-cg"):
        assert changing.post("/groups/source-cg/clone", to=name).status_code == 502
