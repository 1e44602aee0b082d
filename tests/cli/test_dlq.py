"""`bolide dlq`, and what groups are set to, as people and programs type them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import bolide
from bolide.testing import Cluster, cluster
from tests.cli import processes
from tests.cli.inside import run, told


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    """A cluster where the group `payments` gave up three payments."""
    with cluster() as running:
        with bolide.Producer("pg", running.namesrv) as producer:
            for body in (b"10", b"20", b"\xff30"):
                producer.send("Payments", body, tags="card", keys=[f"k-{body[-2:].decode()}"])
        start = bolide.StartFrom.oldest()
        with bolide.Consumer("payments", "Payments", running.namesrv, start_from=start) as consumer:
            for _ in range(3):
                message = next(consumer)
                message.dead_letter(f"no account for {message.body[-2:].decode()}")
        yield running


@pytest.mark.feature("F248")
def test_the_groups_with_dead_letters_are_listed_and_each_letter_is_shown_with_its_cause(rocket: Cluster) -> None:
    (rows,) = processes.told(rocket.namesrv, "dlq", "list")
    assert [(row["group"], row["dead_letters"]) for row in rows] == [("payments", 3)]
    (letters,) = told(rocket.namesrv, "dlq", "show", "payments")
    assert sorted(letter["reason"] for letter in letters) == [f"no account for {n}" for n in (10, 20, 30)]
    assert {letter["topic"] for letter in letters} == {"Payments"}
    assert {letter.get("body") or letter["body_hex"] for letter in letters} == {"10", "20", "ff3330"}
    ((one,),) = told(rocket.namesrv, "dlq", "show", "payments", letters[0]["id"])
    assert one == letters[0]
    assert len(told(rocket.namesrv, "dlq", "show", "payments", "--limit", "2")[0]) == 2
    table = run(rocket.namesrv, "dlq", "show", "payments", "--reason", "for 20").stdout
    assert "no account for 20" in table
    assert "for 10" not in table
    (groups,) = told(rocket.namesrv, "group", "list")
    assert [row["dead_letters"] for row in groups if row["group"] == "payments"] == [3]


def test_resending_wants_to_know_which_and_can_be_tried_dry(rocket: Cluster) -> None:
    refused = run(rocket.namesrv, "dlq", "resend", "payments")
    assert refused.exit_code != 0
    assert "--all" in refused.stderr
    (dry,) = told(rocket.namesrv, "dlq", "resend", "payments", "--all", "--dry-run")
    assert (dry["sent"], dry["failed"], dry["dry_run"]) == (3, 0, True)
    missing = run(rocket.namesrv, "dlq", "resend", "payments", "NOSUCHID")
    assert missing.exit_code == 1
    assert "bolide dlq show payments" in missing.stderr
    late = run(rocket.namesrv, "dlq", "resend", "payments", "--since", "yesterday")
    assert "must be a time" in late.stderr
    ((letter,),) = told(rocket.namesrv, "dlq", "show", "payments", "--reason", "for 10")
    (done,) = told(rocket.namesrv, "dlq", "resend", "payments", letter["id"], "--only-group")
    assert (done["sent"], done["failed"]) == (1, 0)
    with bolide.Consumer("payments", "Payments", rocket.namesrv) as consumer:
        message = next(consumer)
        assert (message.body, message.topic) == (b"10", "Payments")
    done_all = run(rocket.namesrv, "dlq", "resend", "payments", "--all")
    assert done_all.stdout == "3 sent again, 0 failed\n"


def test_dead_letters_are_exported_as_json_lines(rocket: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "dead.jsonl"
    done = run(rocket.namesrv, "dlq", "export", "payments", str(file))
    assert done.exit_code == 0, done.stderr
    assert str(file) in done.stdout
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["keys"][0] for row in rows) == ["k-10", "k-20", "k-30"]
    assert run(rocket.namesrv, "dlq", "export", "payments", "--reason", "for 30").stdout.count("\n") == 1
    nowhere = run(rocket.namesrv, "dlq", "export", "payments", str(tmp_path / "no" / "where"))
    assert "cannot be written" in nowhere.stderr


def test_a_group_without_dead_letters_says_so(rocket: Cluster) -> None:
    assert told(rocket.namesrv, "dlq", "show", "nobody") == [[]]
    assert "bolide dlq list" in run(rocket.namesrv, "dlq", "show", "nobody").stdout


@pytest.mark.feature("X31")
def test_a_groups_retries_are_set_and_shown(rocket: Cluster) -> None:
    options = ("--retry-max", "3", "--retry-delays", "500ms,10s,5m")
    ((row,),) = told(rocket.namesrv, "group", "set", "careful", *options)
    assert (row["retries"], row["delays"]) == (3, "500ms, 10s, 5m")
    ((row,),) = told(rocket.namesrv, "group", "set", "careful", "--backoff", "1s:1h:3")
    assert (row["retries"], row["delays"]) == (3, "1s, × 3 each time, at most 1h")
    assert told(rocket.namesrv, "group", "settings", "careful") == [[row]]
    ((row,),) = told(rocket.namesrv, "group", "set", "careful", "--backoff", "levels", "--retry-queues", "0")
    assert (row["retries"], row["delays"]) == (0, "levels (10s to 2h)")
    for wrong in ("5s", "1s:x:2", "1s:2s:x"):
        assert "--backoff" in run(rocket.namesrv, "group", "set", "careful", "--backoff", wrong).stderr
    refused = run(rocket.namesrv, "group", "set", "careful", "--backoff", "2h:1h:2")
    assert refused.exit_code == 5
    assert "max not less" in refused.stderr
    assert "bolide group list" in run(rocket.namesrv, "group", "settings", "nobody").stderr


@pytest.mark.feature("X38")
def test_a_group_is_kept_from_a_topic_while_its_members_wait_and_goes_on_where_it_was(rocket: Cluster) -> None:
    topic, group = "Secret", "curious"
    which = (rocket.namesrv, "group")
    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send(topic, b"before")
        start = bolide.StartFrom.oldest()
        with bolide.Consumer(group, topic, rocket.namesrv, start_from=start) as consumer:
            first = next(consumer)
            assert first.body == b"before"
            first.ack()
            (done,) = told(*which, "forbid", group, "-t", topic)
            assert (done["readable"], len(done["brokers"])) == (False, 1)
            ((row,),) = told(*which, "settings", group)
            assert row["may_not_read"] == topic
            producer.send(topic, b"meanwhile")
            assert consumer.receive(1, timeout_s=1) == []
            assert run(*which, "allow", group, "-t", topic).stdout == f"group {group} may read {topic}\n"
            ((row,),) = told(*which, "settings", group)
            assert row["may_not_read"] is None
            assert next(consumer).body == b"meanwhile"


def test_what_is_forbidden_must_be_there(rocket: Cluster) -> None:
    assert "check the spelling" in run(rocket.namesrv, "group", "forbid", "payments", "-t", "Paiments").stderr
    assert "paiments" in run(rocket.namesrv, "group", "forbid", "paiments", "-t", "Payments").stderr
