"""Resets: shown before they are done, and only with the name typed."""

import pytest

from bolide import Admin, Consumer, Producer
from bolide.protocol.bodies import GroupConfig
from bolide.testing.blocking import Cluster
from tests.dashboard.site import Site


@pytest.fixture(scope="module")
def group(rocket: Cluster) -> str:
    rocket.create_topic("Moved", 1)
    with Producer("moved", rocket.namesrv) as producer:
        for number in range(10):
            producer.send("Moved", str(number).encode())
    with Admin(rocket.namesrv) as admin:
        admin.set_group(GroupConfig(group_name="moved-cg"))
        admin.reset_group("moved-cg", "Moved", offset=6)
    return "moved-cg"


def test_a_preview_says_what_comes_again_and_what_is_skipped_and_changes_nothing(changing: Site, group: str) -> None:
    path = f"/groups/{group}/reset"
    assert "6 messages will be consumed again" in changing.text(path, topic="Moved", to="earliest")
    assert "4 messages will be skipped" in changing.text(path, topic="Moved", to="latest")
    assert "2 messages will be skipped" in changing.text(path, topic="Moved", to="offset", offset="8")
    assert "nothing moves" in changing.text(path, topic="Moved", to="offset", offset="6")
    rows = changing.rows(path, topic="Moved", to="earliest")
    assert [(row["from"], row["to"]) for row in rows] == [(6, 0)]
    assert changing.rows(f"/groups/{group}")["progress"][0]["offset"] == 6


def test_it_is_done_with_the_name_typed_and_the_table_shows_what_is_there_then(changing: Site, group: str) -> None:
    form = {"topic": "Moved", "to": "offset", "offset": "2", "at": "", "queue": ""}
    wrong = changing.post(f"/groups/{group}/reset", typed="another", **form)
    assert "nothing was moved" in wrong.text
    done = changing.post(f"/groups/{group}/reset", typed=group, **form)
    assert done.status_code == 303
    assert "Where it is now" in changing.content(done.headers["location"]).text
    assert changing.rows(f"/groups/{group}")["progress"][0]["offset"] == 2
    changes = changing.text("/settings")
    assert "reset" in changes
    assert "=6" in changes
    assert "=2" in changes


NO_TARGETS = [{"to": "time", "at": ""}, {"to": "time", "at": "soon"}, {"to": "offset", "offset": "-1"}]


@pytest.mark.parametrize("fields", NO_TARGETS)
def test_a_target_that_is_none_is_told(changing: Site, group: str, fields: dict[str, str]) -> None:
    answer = changing.content(f"/groups/{group}/reset", topic="Moved", **fields)
    assert "It did not work" in answer.text


def test_read_only_shows_the_preview_and_the_command(pages: Site, group: str) -> None:
    text = pages.text(f"/groups/{group}/reset", topic="Moved", to="earliest")
    assert "will be consumed again" in text
    assert "bolide group reset" in text
    assert "typed" not in text


def test_one_queue_alone_is_moved_and_who_is_online_is_named_with_the_advice_to_stop(
    rocket: Cluster, changing: Site
) -> None:
    rocket.create_topic("Split", 2)
    with Producer("splitting", rocket.namesrv) as producer, Admin(rocket.namesrv) as admin:
        queues = producer.queues("Split")
        for number in range(10):
            producer.send("Split", b"x", queue=queues[number % 2])
        admin.set_group(GroupConfig(group_name="split-cg"))
        admin.reset_group("split-cg", "Split", offset=3)
    path, one = "/groups/split-cg/reset", f"{queues[0].broker_name}:0"
    rows = changing.rows(path, topic="Split", to="earliest", queue=one)
    assert [(row["queue"], row["from"], row["to"]) for row in rows] == [(0, 3, 0)]
    hours = changing.text(path, topic="Split", to="time", at="-2h")
    assert "6 messages of the last 2 h will be consumed again as soon as a member comes" in hours
    with Consumer("split-cg", "Split", rocket.namesrv, instance_name="splitter"):
        text = changing.wait_for(path, lambda text: "1 member online" in text, topic="Split", to="earliest", queue=one)
        assert "stop them first where you can" in text
        assert "@splitter" in text
