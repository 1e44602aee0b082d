"""`bolide send`, `consume`, `tail`, `run`, `topic`, `group` and `cluster` as people and programs type them."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bolide
from bolide.cli import messages
from bolide.client.pulling.puller import PullConsumer
from bolide.errors import ClientError
from bolide.testing import Cluster, cluster
from bolide.testing.nodes import free_port
from tests.cli import processes
from tests.cli.inside import run, told
from tests.cli.processes import COMMAND, LIMIT_S, client_environment, until_routed, wait_for


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def test_what_is_sent_is_consumed_with_all_that_belongs_to_it(rocket: Cluster) -> None:
    options = ("--tags", "drinks", "--keys", "o-1", "--keys", "c-2", "--property", "shop=harbour", "--shard", "ada")
    (receipt,) = processes.told(rocket.namesrv, "send", "Orders", "two teas", *options)
    assert receipt["status"] == "SEND_OK"
    (row,) = processes.told(rocket.namesrv, "consume", "Orders", "--group", "k", "--from-beginning", "--limit", "1")
    assert (row["body"], row["tags"], row["keys"]) == ("two teas", "drinks", ["o-1", "c-2"])
    assert row["properties"]["shop"] == "harbour"
    assert (row["id"], row["queue"], row["offset"]) == (receipt["id"], receipt["queue"], receipt["offset"])


def test_lines_of_standard_input_and_a_file_are_messages(rocket: Cluster, tmp_path: Path) -> None:
    assert len(told(rocket.namesrv, "send", "Lines", given="one\ntwo\n\nthree\n")) == 3
    (tmp_path / "body").write_bytes(b"a whole file\n")
    assert len(told(rocket.namesrv, "send", "Lines", "--file", str(tmp_path / "body"))) == 1
    rows = told(rocket.namesrv, "consume", "Lines", "--group", "lines", "--from-beginning", "--limit", "4")
    assert sorted(row["body"] for row in rows) == ["a whole file\n", "one", "three", "two"]


@pytest.mark.feature("F267")
def test_messages_are_chosen_by_sql() -> None:
    with cluster(settings={"enablePropertyFilter": "true"}) as rocket:
        for price in (5, 15, 25):
            told(rocket.namesrv, "send", "Prices", str(price), "--property", f"price={price}")
        wanted = ("--sql", "price > 10", "--group", "rich", "--from-beginning", "--limit", "2")
        rows = told(rocket.namesrv, "consume", "Prices", *wanted)
        assert sorted(row["body"] for row in rows) == ["15", "25"]
        bad = run(rocket.namesrv, "tail", "Prices", "--sql", "price >")
        assert "the end at character 7" in bad.stderr
        both = run(rocket.namesrv, "consume", "Prices", "--sql", "price > 1", "--tags", "A")
        assert "--tags or --sql, not both" in both.stderr
        assert "Traceback" not in bad.stderr + both.stderr


def test_what_cannot_be_sent_says_why(rocket: Cluster) -> None:
    for words, given, complaint in (
        (("send", "T"), "", "nothing to send"),
        (("send", "no blanks", "x"), None, "topic"),
        (("send", "T", "x", "--property", "noequals"), None, "must be name=value"),
    ):
        done = run(rocket.namesrv, *words, given=given)
        assert done.exit_code != 0
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("send", "T", "x"), ("topic", "list"), ("consume", "T"), ("cluster",)])
def test_without_a_name_server_every_command_says_what_was_tried_and_what_starts_one(words: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = processes.run(address, *words)
    assert done.returncode == 6
    assert address in done.stderr
    assert "`bolide up` starts one" in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_a_reader_who_has_seen_enough_ends_a_command_without_a_word(rocket: Cluster) -> None:
    run(rocket.namesrv, "send", "Read", given="1\n2\n")
    reader, writer = os.pipe()
    os.close(reader)
    words = [*COMMAND, "consume", "Read", "--group", "headless", "--from-beginning"]
    try:
        done = subprocess.run(
            words,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
            env=client_environment(rocket.namesrv),
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_tail_shows_what_is_sent_from_now_on(rocket: Cluster) -> None:
    rocket.create_topic("Tailed", 2)
    command = [*COMMAND, "tail", "Tailed", "--limit", "2", "--output", "json"]
    with (
        bolide.Producer("pg", rocket.namesrv) as producer,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=client_environment(rocket.namesrv)) as tail,
    ):
        producer.send("Tailed", b"before")
        number = 0

        def is_over() -> bool:
            nonlocal number
            number += 1
            producer.send("Tailed", b"%d" % number)
            return tail.poll() is not None

        wait_for(is_over, LIMIT_S)
        assert tail.stdout is not None
        rows = [json.loads(line) for line in tail.stdout]
    assert len(rows) == 2
    assert "before" not in [row["body"] for row in rows]


def test_a_topic_whose_first_message_is_just_making_it_is_waited_for(
    rocket: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = PullConsumer.queues
    asked_count = 0

    async def sent_meanwhile(self: PullConsumer, topic: str) -> list[bolide.MessageQueue]:
        """The first time it has no route, and its first message is sent then."""
        nonlocal asked_count
        asked_count += 1
        try:
            return await queues(self, topic)
        except ClientError:
            if asked_count == 1:
                await asyncio.to_thread(told, rocket.namesrv, "send", topic, "first")
            raise

    monkeypatch.setattr(PullConsumer, "queues", sent_meanwhile)
    monkeypatch.setattr(messages, "_PAUSES_MAX", 600)
    (row,) = told(rocket.namesrv, "consume", "JustMade", "--from-beginning", "--limit", "1")
    assert row["body"] == "first"
    assert asked_count > 1


def test_a_topic_that_nobody_makes_is_waited_for_with_a_word(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_ROUTE_PAUSE_S", 0.001)
    for command in ("consume", "tail"):
        done = run(rocket.namesrv, command, "NeverMade")
        assert done.exit_code == 4
        said, problem = done.stderr.splitlines()
        assert said.startswith("topic NeverMade has no route yet, waiting for ")
        assert problem.startswith("error: topic NeverMade has no route at ")


def test_who_was_told_that_we_wait_sees_all_that_comes(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bolide tail` of a topic that is not there yet: the message that makes it is one of those from now on."""
    queues = PullConsumer.queues
    calls: list[str] = []

    async def made_late(self: PullConsumer, topic: str) -> list[bolide.MessageQueue]:
        if len(calls) == 8:
            await asyncio.to_thread(told, rocket.namesrv, "send", topic, "first")
            await asyncio.to_thread(until_routed, rocket.namesrv, topic)
        calls.append(topic)
        return await queues(self, topic)

    monkeypatch.setattr(PullConsumer, "queues", made_late)
    monkeypatch.setattr(messages, "_ROUTE_PAUSE_S", 0.001)
    (row,) = told(rocket.namesrv, "tail", "MadeLate", "--limit", "1")
    assert row["body"] == "first"


def test_run_calls_the_handlers_of_a_module_until_it_is_stopped(rocket: Cluster, tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(
        "import bolide\n\n\n@bolide.handler('Calls', group='calls', start_from=bolide.StartFrom.oldest())\n"
        "def on_call(message):\n    print(message.body.decode(), flush=True)\n"
    )
    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send("Calls", b"ring")
    command = [*COMMAND, "run", "service"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=client_environment(rocket.namesrv)
    ) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "ring\n"
        service.send_signal(signal.SIGTERM)
        assert service.wait(LIMIT_S) == 0


def test_run_without_a_name_server_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lonely.py").write_text(
        "import bolide\n\n\n@bolide.handler('T', group='lonely')\ndef on_call(message):\n    pass\n"
    )
    done = subprocess.run(
        [*COMMAND, "run", "lonely"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
        env=client_environment(f"127.0.0.1:{free_port()}"),
    )
    assert done.returncode == 6
    assert "Traceback" not in done.stderr
    assert "`bolide up` starts one" in done.stderr


def test_topics_are_created_listed_shown_and_deleted(rocket: Cluster) -> None:
    assert run(rocket.namesrv, "topic", "create", "Shown", "--queues", "3").exit_code == 0
    wait_for(lambda: {"topic": "Shown"} in told(rocket.namesrv, "topic", "list")[0])
    told(rocket.namesrv, "send", "Shown", "x")
    (rows,) = told(rocket.namesrv, "topic", "show", "Shown")
    assert sum(row["messages"] for row in rows) == 1
    assert len(rows) == 3
    assert "Shown" in run(rocket.namesrv, "topic", "list").stdout
    assert run(rocket.namesrv, "topic", "delete", "Shown", "--yes").exit_code == 0
    done = run(rocket.namesrv, "topic", "show", "Shown")
    assert done.exit_code == 4
    assert "`bolide topic list` shows those that do" in done.stderr


def test_creating_never_changes_a_topic_and_setting_shows_what_goes_out_of_sight(rocket: Cluster) -> None:
    assert run(rocket.namesrv, "topic", "create", "Shrunk", "--queues", "4").exit_code == 0
    with bolide.Producer("pg", rocket.namesrv) as producer:
        for queue in producer.queues("Shrunk"):
            producer.send("Shrunk", b"x", queue=queue)
    done = run(rocket.namesrv, "topic", "create", "Shrunk", "--queues", "2")
    assert done.exit_code == 2
    assert "exists with 4 queues" in done.stderr
    assert "`bolide topic set Shrunk` changes it" in done.stderr
    assert len(told(rocket.namesrv, "topic", "show", "Shrunk")[0]) == 4
    asked = run(rocket.namesrv, "topic", "set", "Shrunk", "--queues", "2", given="n\n")
    assert asked.exit_code == 1
    assert "out of sight from then on: 1 message in queue 3 of broker-0" in asked.stdout
    assert len(told(rocket.namesrv, "topic", "show", "Shrunk")[0]) == 4
    assert run(rocket.namesrv, "topic", "set", "Shrunk", "--queues", "2", "--yes").exit_code == 0
    wait_for(lambda: len(told(rocket.namesrv, "topic", "show", "Shrunk")[0]) == 2)
    refused = run(rocket.namesrv, "topic", "create", "%RETRY%x")
    assert refused.exit_code == 2
    assert "belongs to a group" in refused.stderr


def test_brokers_that_are_down_are_named_and_the_answer_has_its_own_exit_code() -> None:
    with cluster(brokers=2) as two:
        two.create_topic("Halved", 1)
        two.brokers[1].kill()
        for words in (("topic", "show", "Halved"), ("topic", "list"), ("group", "list"), ("cluster",), ("dlq", "list")):
            done = run(two.namesrv, *words)
            assert done.exit_code == 3, (words, done.stdout, done.stderr)
            assert "broker broker-1" in done.stderr
            assert "s ago; its part is missing below" in done.stderr
        two.brokers[0].kill()
        for words in (("topic", "show", "Halved"), ("topic", "list"), ("group", "list"), ("cluster",), ("dlq", "list")):
            done = run(two.namesrv, *words)
            assert (done.exit_code, done.stdout) == (6, ""), (words, done.stdout, done.stderr)
            assert "broker-0" in done.stderr
        for words in (("send", "Halved", "x"), ("consume", "Halved")):
            done = run(two.namesrv, *words)
            assert done.exit_code == 6, (words, done.stdout, done.stderr)
            assert "no broker is registered at" in done.stderr


def test_without_a_group_consuming_leaves_no_trace_and_begins_again(rocket: Cluster) -> None:
    told(rocket.namesrv, "send", "Twice", given="a\nb\n")
    until_routed(rocket.namesrv, "Twice")
    for _ in range(2):
        rows = told(rocket.namesrv, "consume", "Twice", "--from-beginning", "--limit", "2")
        assert sorted(row["body"] for row in rows) == ["a", "b"]
    groups = ("consume", "Twice", "--group", "twice", "--from-beginning", "--limit", "1")
    assert "has read Twice before" not in run(rocket.namesrv, *groups).stderr
    assert "`bolide group reset twice --topic Twice --to earliest`" in run(rocket.namesrv, *groups).stderr


def test_what_a_message_holds_does_nothing_to_a_terminal(rocket: Cluster) -> None:
    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send("Nasty", b"\x1b[31mred\x1b]0;title\x07\n\xc2\x9b2J", tags="\x1b[1m")
    until_routed(rocket.namesrv, "Nasty")
    for words in ((), ("--output", "json")):
        done = run(rocket.namesrv, "consume", "Nasty", "--from-beginning", "--limit", "1", *words)
        assert not [character for character in done.stdout.rstrip("\n") if not character.isprintable()]
        assert "title" in done.stdout
    (row,) = told(rocket.namesrv, "consume", "Nasty", "--from-beginning", "--limit", "1")
    assert row["body"] == "\x1b[31mred\x1b]0;title\x07\n\x9b2J"


def test_groups_are_listed_measured_and_moved(rocket: Cluster) -> None:
    told(rocket.namesrv, "send", "Grouped", given="a\nb\nc\n")
    told(rocket.namesrv, "consume", "Grouped", "--group", "movers", "--from-beginning", "--limit", "3")
    (rows,) = told(rocket.namesrv, "group", "list")
    row = {"group": "movers", "members": 0, "behind": 0, "retries_behind": 0, "dead_letters": 0, "subscriptions": ""}
    assert row in rows
    (rows,) = told(rocket.namesrv, "group", "progress", "movers")
    assert sum(row["offset"] for row in rows if row["topic"] == "Grouped") == 3
    (rows,) = told(rocket.namesrv, "group", "reset", "movers", "--topic", "Grouped", "--to", "oldest")
    assert {row["to"] for row in rows} == {0}
    assert sum(row["from"] or 0 for row in rows) == 3
    again = told(rocket.namesrv, "consume", "Grouped", "--group", "movers", "--limit", "3")
    assert sorted(row["body"] for row in again) == ["a", "b", "c"]
    beyond = run(rocket.namesrv, "group", "reset", "movers", "--topic", "Grouped", "--to", "99999", "--dry-run")
    assert f"{len(rows)} of {len(rows)} queues have no offset 99999" in beyond.stderr
    done = run(rocket.namesrv, "group", "reset", "movers", "--topic", "Grouped", "--to", "soon")
    assert "must be earliest, latest, a time" in done.stderr
    assert run(rocket.namesrv, "group", "delete", "movers", "--yes").exit_code == 0
    assert "movers" not in [each["group"] for each in told(rocket.namesrv, "group", "list")[0]]


def test_the_cluster_is_shown_as_a_table_and_as_json(rocket: Cluster) -> None:
    (rows,) = told(rocket.namesrv, "cluster")
    assert [(row["broker"], row["address"]) for row in rows] == [("broker-0", rocket.brokers[0].address)]
    assert rocket.brokers[0].address in run(rocket.namesrv, "cluster").stdout


def test_a_message_is_sent_for_later_and_taken_back() -> None:
    with cluster(settings={"recallMessageEnable": "true"}) as running:
        (receipt,) = told(running.namesrv, "send", "Later", "tea", "--delay", "1m")
        assert told(running.namesrv, "recall", receipt["recall_handle"]) == [{"id": receipt["id"]}]
        done = run(running.namesrv, "send", "Later", "tea", "--deliver-at", "tomorrow")
        assert (done.exit_code, "must be a time like" in done.stderr) == (2, True)
        done = run(running.namesrv, "send", "Later", "tea", "--delay", "1", "--delay-level", "2")
        assert "one of them says when" in done.stderr
        assert "is no recall handle" in run(running.namesrv, "recall", "nonsense").stderr
        (level,) = told(running.namesrv, "send", "Later", "soon", "--delay-level", "1")
        assert level["recall_handle"] is None
        until_routed(running.namesrv, "Later")
        (row,) = told(running.namesrv, "consume", "Later", "--from-beginning", "--limit", "1")
        assert row["body"] == "soon"
