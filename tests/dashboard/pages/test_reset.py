"""Resets: shown before they are done, and only with the name typed."""

import pytest

from bolide import Admin, Producer
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
