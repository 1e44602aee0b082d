"""Dead letters: who has some, which fit, a dry run, and sending them again."""

import json
import re

import pytest

from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.letters import bury
from tests.dashboard.site import Site

COUNT = 12


@pytest.fixture(scope="module")
def dead(rocket: Cluster) -> str:
    """A group with twelve dead letters of two reasons."""
    rocket.create_topic("Died", 2)
    reasons = {f"dead-{n}": "no stock" if n % 3 else "bad <b>json</b>" for n in range(COUNT)}
    bury(rocket.namesrv, "dead-cg", "Died", reasons)
    return "dead-cg"


def test_groups_with_dead_letters_are_those_of_the_command(rocket: Cluster, pages: Site, dead: str) -> None:
    text = pages.wait_for("/dead", lambda text: f'href="/dead/{dead}"' in text)
    assert "no stock" in text
    (expected,) = told(rocket.namesrv, "dlq", "list")
    assert pages.rows("/dead") == expected


def test_letters_are_filtered_by_all_that_is_known_of_them(pages: Site, dead: str) -> None:
    assert len(pages.rows(f"/dead/{dead}")) == COUNT
    assert len(pages.rows(f"/dead/{dead}", reason="json")) == 4
    assert [row["keys"] for row in pages.rows(f"/dead/{dead}", key="dead-5")] == [["dead-5"]]
    assert len(pages.rows(f"/dead/{dead}", text="letter 1")) == 3
    assert pages.rows(f"/dead/{dead}", topic="Other") == []
    text = pages.text(f"/dead/{dead}", reason="json")
    assert "bad &lt;b&gt;json&lt;/b&gt;" in text
    assert "Dry run" not in text, "read only"
    assert 'method="post"' not in text, "and so there is no form"


def test_a_dry_run_counts_and_then_they_are_sent_and_marked(changing: Site, dead: str) -> None:
    dry = changing.post(f"/dead/{dead}/dry", which="all", to="topic", rate="0", reason="no stock")
    assert "8 letters would be sent" in dry.text
    begun = changing.post(f"/dead/{dead}/resend", which="all", to="topic", rate="0", reason="no stock", total="8")
    job = begun.headers["location"]
    changing.wait_for(job, lambda text: "done" in text and ">8</strong> of 8" in text)
    with changing.client.stream("GET", job.replace("/dead/", "/dead-jobs/").replace("/jobs/", "/")) as answer:
        lines = "".join(answer.iter_text())
    assert "event: done" in lines
    text = changing.text(f"/dead/{dead}")
    assert text.count("sent again</span>") == 8
    assert [row["body"] for row in changing.rows("/messages", topic="Died", key="dead-1")] == ["letter 1"] * 2
    assert "8 sent, 0 failed" in changing.text("/settings")


def test_marked_letters_alone_are_sent(changing: Site, dead: str) -> None:
    row = changing.rows(f"/dead/{dead}", key="dead-3")[0]
    dry = changing.post(f"/dead/{dead}/dry", which="chosen", to="group", rate="0", id=row["offset_id"])
    assert "1 letter would be sent" in dry.text
    assert "the group alone" in dry.text
    assert "no letter was chosen" in changing.post(f"/dead/{dead}/dry", which="chosen", to="group").text


def test_a_resending_is_stopped(changing: Site, dead: str) -> None:
    begun = changing.post(f"/dead/{dead}/resend", which="all", to="topic", rate="1", total=str(COUNT))
    job = begun.headers["location"]
    changing.wait_for(job, lambda text: ">1</strong> of 12" in text or ">2</strong> of 12" in text)
    assert changing.post(f"{job}/stop").status_code == 303
    text = changing.wait_for(job, lambda text: "stopped" in text)
    assert int(re.search(r"<strong>(\d+)</strong> of 12", text)[1]) < COUNT  # type: ignore[index]


def test_letters_are_exported_as_lines(pages: Site, dead: str) -> None:
    answer = pages.client.get(f"/dead-export/{dead}?reason=json")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert [json.loads(line)["topic"] for line in answer.text.splitlines()] == ["Died"] * 4
