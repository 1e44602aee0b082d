"""Groups: who is behind, who differs, and what is not known."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bolide import Admin, Consumer, Producer
from bolide.dashboard.pages.groups import dead_count
from bolide.dashboard.shown import number, rate, size, span
from bolide.dashboard.walk import Snapshot
from bolide.protocol.bodies import GroupConfig
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.site import Site


@pytest.fixture(scope="module")
def behind(rocket: Cluster, pages: Site) -> str:
    """A group that read 3 of 10 messages and left, once a walk saw all of that: one may pass before it is reset."""
    rocket.create_topic("Half", 1)
    with Producer("half", rocket.namesrv) as producer:
        for number in range(10):
            producer.send("Half", str(number).encode())
    with Admin(rocket.namesrv) as admin:
        admin.set_group(GroupConfig(group_name="half-cg"))
        admin.reset_group("half-cg", "Half", offset=3)
    pages.wait_for("/groups", lambda text: '"behind":7' in text.replace(" ", ""), q="half-cg", format="json")
    return "half-cg"


def test_a_group_that_left_is_listed_greyed_with_how_far_it_is_behind(pages: Site, behind: str) -> None:
    text = pages.text("/groups", q=behind)
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


def test_a_queue_far_behind_its_mates_is_marked(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Uneven", 4)
    with Producer("uneven", rocket.namesrv) as producer, Admin(rocket.namesrv) as admin:
        queues = producer.queues("Uneven")
        for _ in range(130):
            producer.send("Uneven", b"x", queue=queues[1])
        for queue in queues:
            producer.send("Uneven", b"x", queue=queue)
        admin.set_group(GroupConfig(group_name="uneven-cg"))
        admin.reset_group("uneven-cg", "Uneven", offset=0)
    text = pages.text("/groups/uneven-cg")
    assert text.count(">far behind<") == 1
    assert re.search(r'131 <span class="mark bad"[^>]*>far behind<', text)


def test_a_broadcasting_group_has_no_lag_and_says_why(rocket: Cluster, pages: Site, tmp_path: Path) -> None:
    rocket.create_topic("Cast", 1)
    with Consumer("cast-cg", "Cast", rocket.namesrv, broadcasting=True, offsets_directory=tmp_path):
        text = pages.wait_for("/groups", lambda text: "broadcasting" in text, q="cast-cg")
        assert "keeps its offsets at its members, so nobody else knows how far it is" in text
        one = pages.text("/groups/cast-cg")
        assert ">at its members<" in one
        assert "chart-group" not in one


def test_what_was_not_looked_at_yet_is_a_dash_and_never_0() -> None:
    walk = SimpleNamespace(topics={}, snapshot=Snapshot(configs={"%DLQ%a": {}}))
    assert dead_count(walk, "a") is None  # type: ignore[arg-type]
    assert dead_count(walk, "b") == 0  # type: ignore[arg-type]
    assert number(None) == rate(None) == span(None) == size(None) == "–"
