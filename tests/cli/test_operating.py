"""What operators type every day: brokers, name servers, topics, clients and messages, also in mqadmin's own words."""

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import bolide
from bolide.cli import commands
from bolide.cli.app import app
from bolide.cli.completion import group_names, topic_names
from bolide.cli.mqadmin import TABLE, translated
from bolide.testing import Cluster, cluster
from tests.cli.inside import run, told
from tests.cli.processes import until_routed
from tests.tidy.source import ROOT

MOVED = "group reset g --topic T --to"


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        with bolide.Producer("orders-pg", running.namesrv) as producer:
            for number in range(3):
                producer.send("Orders", b"order %d" % number, keys=f"o-{number}", tags="A", shard="one")
        until_routed(running.namesrv, "Orders")
        yield running


def broker_of(rocket: Cluster) -> str:
    ((row,),) = told(rocket.namesrv, "broker", "list")
    return str(row["broker"])


def test_a_list_of_brokers_has_rates_that_are_numbers_and_an_uptime_without_zeros(rocket: Cluster) -> None:
    ((row,),) = told(rocket.namesrv, "broker", "list")
    for name in ("in_per_s", "out_per_s"):
        assert row[name] == round(float(row[name]), 1)
    assert not row["uptime"].startswith("0 days")
    assert row["uptime"].endswith("seconds")


def test_a_message_is_found_by_id_by_key_by_place_by_time_and_by_content(rocket: Cluster) -> None:
    ((row,),) = told(rocket.namesrv, "message", "query", "Orders", "o-1")
    assert (row["body"], row["keys"], row["tags"]) == ("order 1", ["o-1"], "A")
    place = f"{broker_of(rocket)}:{row['queue']}@{row['offset']}"
    for words in ((row["id"], "-t", "Orders"), (row["offset_id"],), (place, "-t", "Orders")):
        assert told(rocket.namesrv, "message", "get", *words) == [[row]]
    ((found,),) = told(rocket.namesrv, "message", "find", "Orders", "der 2", "--since", "-1h")
    assert found["body"] == "order 2"
    (printed,) = told(rocket.namesrv, "message", "print", "Orders", "--since", "-1h", "--until", "+1h", "--limit", "2")
    assert [each["body"] for each in printed] == ["order 0", "order 1"]
    assert told(rocket.namesrv, "message", "print", "Orders", "--until", "-1h") == [[]]
    assert "born at" in run(rocket.namesrv, "message", "get", row["id"], "-t", "Orders").stdout


def test_what_is_not_there_what_is_refused_and_who_does_not_answer_have_exit_codes_of_their_own(
    rocket: Cluster,
) -> None:
    assert run(rocket.namesrv, "message", "get", "0" * 32, "-t", "Orders").exit_code == 4
    assert run(rocket.namesrv, "topic", "show", "NoSuchTopic").exit_code == 4
    assert run(rocket.namesrv, "broker", "status", "nobody").exit_code == 4
    assert run(rocket.namesrv, "broker", "set", broker_of(rocket), "brokerName=x").exit_code == 5
    assert run(rocket.namesrv, "group", "progress", "nobody").exit_code == 4
    assert run(rocket.namesrv, "group", "delete", "nobody", "--yes").exit_code == 4
    assert run(rocket.namesrv, "group", "clone", "nobody", "somebody").exit_code == 4
    assert run(rocket.namesrv, "broker", "settings", broker_of(rocket), "noSuchKey").exit_code == 4
    assert run(rocket.namesrv, "trace", "7F00").exit_code == 4
    assert run("127.0.0.1:1", "topic", "list").exit_code == 6
    assert run("127.0.0.1:1", "namesrv", "status").exit_code == 6
    assert run(f"{rocket.namesrv};127.0.0.1:1", "namesrv", "status").exit_code == 3
    assert run(rocket.namesrv, "message", "get", "no-id").exit_code == 2
    assert run(rocket.namesrv, "recall", "no-handle").exit_code == 2


def test_a_broker_is_looked_at_changed_drained_and_restored(rocket: Cluster) -> None:
    name = broker_of(rocket)
    status = {row["what"]: row["value"] for row in told(rocket.namesrv, "broker", "status", name)[0]}
    assert status["brokerVersionDesc"].startswith("Bolide")
    assert "changed" in run(rocket.namesrv, "broker", "set", name, "fileReservedTime=99").output
    assert told(rocket.namesrv, "broker", "settings", name, "fileReservedTime") == [
        [{"key": "fileReservedTime", "value": "99"}]
    ]
    misspelt = run(rocket.namesrv, "broker", "settings", name, "fileReserveTime")
    assert (misspelt.exit_code, "did you mean fileReservedTime?" in misspelt.stderr) == (4, True)
    assert run(rocket.namesrv, "broker", "drain", name).exit_code == 0
    assert {row["permission"] for row in told(rocket.namesrv, "topic", "route", "Orders")[0]} == {"r"}
    assert run(rocket.namesrv, "broker", "restore", name).exit_code == 0
    assert {row["permission"] for row in told(rocket.namesrv, "topic", "route", "Orders")[0]} == {"rw"}


def test_name_servers_are_looked_at_and_keep_values(rocket: Cluster) -> None:
    ((row,),) = told(rocket.namesrv, "namesrv", "status")
    assert (row["address"], row["answers"], row["brokers"]) == (rocket.namesrv, "yes", 1)
    assert {each["key"] for each in told(rocket.namesrv, "namesrv", "settings")[0]} >= {"listenPort"}
    assert told(rocket.namesrv, "namesrv", "kv", "ORDERS", "a=1", "b=2") == [
        [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    ]
    assert told(rocket.namesrv, "namesrv", "kv", "ORDERS", "--delete", "a") == [[{"key": "b", "value": "2"}]]


def test_who_sends_and_who_consumes_is_shown(rocket: Cluster) -> None:
    start = bolide.StartFrom.oldest()
    with (
        bolide.Producer("live-pg", rocket.namesrv) as producer,
        bolide.Consumer("live-cg", "Orders", rocket.namesrv, start_from=start) as consumer,
    ):
        producer.send("Orders", b"x")
        consumer.receive(1, 30)
        (rows,) = told(rocket.namesrv, "clients")
        assert {("live-pg", "sends"), ("live-cg", "consumes")} <= {(row["group"], row["does"]) for row in rows}
        assert {row["group"] for row in told(rocket.namesrv, "clients", "-g", "live-cg")[0]} == {"live-cg"}
        consumer.commit()
    assert "live-cg" in {row["group"] for row in told(rocket.namesrv, "topic", "groups", "Orders")[0]}
    (stats,) = told(rocket.namesrv, "topic", "stats", "Orders")
    assert stats[0]["messages"] >= 4
    context = click.Context(app)
    context.params["namesrv"] = rocket.namesrv
    parameter = click.Argument(["topic"])
    assert topic_names(context, parameter, "Ord") == ["Orders"]
    assert group_names(context, parameter, "live") == ["live-cg"]


def test_what_was_done_is_told_to_programs_too(rocket: Cluster) -> None:
    (made,) = told(rocket.namesrv, "topic", "create", "Made", "--queues", "2")
    assert (made["topic"], made["queues"], len(made["brokers"])) == ("Made", 2, 1)
    assert told(rocket.namesrv, "topic", "delete", "Made", "--yes") == [{"topic": "Made", "deleted": True}]
    assert told(rocket.namesrv, "group", "set", "made-cg")[0][0]["group"] == "made-cg"
    assert told(rocket.namesrv, "group", "delete", "made-cg", "--yes") == [{"group": "made-cg", "deleted": True}]
    (changed,) = told(rocket.namesrv, "broker", "set", broker_of(rocket), "fileReservedTime=98")
    assert changed["changed"] == {"fileReservedTime": "98"}


def commands_below(command: click.Command | None, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, servers and mqadmin's own names left out."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (*path, name) not in {("up",), ("filtersrv",), ("proxy",), ("admin",)}:
                yield from commands_below(command.get_command(click.Context(command), name), (*path, name))
    elif command is not None:
        yield " ".join(path), command


def test_an_option_has_one_spelling_in_all_commands() -> None:
    spellings: dict[str, set[tuple[str, ...]]] = {}
    for _, command in commands_below(app, ()):
        for each in command.params:
            if isinstance(each, click.Option):
                spellings.setdefault(max(each.opts, key=len), set()).add(tuple(sorted(each.opts)))
    assert {name: forms for name, forms in spellings.items() if len(forms) > 1} == {}
    assert spellings["--group"] == {("--group", "-g")}
    assert spellings["--topic"] == {("--topic", "-t")}
    assert not {"--max-messages", "--json", "--format"} & spellings.keys()


def test_every_help_page_fits_a_narrow_terminal_and_a_wrong_option_is_a_usage_error() -> None:
    for name, _ in commands_below(app, ()):
        page = CliRunner().invoke(app, [*name.split(), "-h"], terminal_width=60)
        assert page.exit_code == 0, (name, page.output)
        assert [line for line in page.output.splitlines() if len(line) > 60] == [], name
        wrong = CliRunner().invoke(app, [*name.split(), "--no-such-option"])
        assert (wrong.exit_code, "--no-such-option" in wrong.output) == (2, True), (name, wrong.output)


def test_answers_come_as_yaml_and_csv_too(rocket: Cluster) -> None:
    words = ("message", "query", "Orders", "o-0", "-o")
    csv = run(rocket.namesrv, *words, "csv").stdout.splitlines()
    assert csv[0].startswith("id,offset_id,topic,queue")
    assert csv[1].endswith(",order 0")
    yaml = run(rocket.namesrv, *words, "yaml").stdout.splitlines()
    assert yaml[0].startswith('- id: "')
    assert yaml[2] == '  topic: "Orders"'


def test_a_watched_command_is_shown_again_and_again(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise click.Abort

    monkeypatch.setattr(commands, "pause", pause)
    done = run(rocket.namesrv, "topic", "list", "-w", "2", "-o", "json")
    assert pauses == [2.0, 2.0, 2.0]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[{"topic": "Orders"}]] * 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(shell: str) -> None:
    assert "_BOLIDE_COMPLETE" in run("", "completion", shell).stdout


@pytest.mark.feature("X33")
@pytest.mark.parametrize(
    ("name", "flags", "ours"),
    [
        ("topicRoute", "-t T -n a:1", "topic route T -n a:1"),
        ("queryMsgByOffset", "-t T -b vm -i 3 -o 7", "message get vm:3@7 --topic T --more"),
        ("updateBrokerConfig", "-b a:1 -k x -v 2", "broker set a:1 x=2"),
        # Flags' letters are also letters of the values.
        ("queryMsgByOffset", "-t T -b broker-o -i 0 -o 7", "message get broker-o:0@7 --topic T --more"),
        ("updateBrokerConfig", "-b a:1 -k saveVeryOften -v 2", "broker set a:1 saveVeryOften=2"),
        ("printMsgByQueue", "-t T -a ibiza -i 3", "message print T --queue ibiza:3"),
        ("consumerProgress", "", "group list --more"),
        ("consumerProgress", "-g g", "group progress g"),
        ("updateTopicPerm", "-t T -p 4", "topic set T --permission r --yes"),
        (
            "resetOffsetByTime",
            "-g g -t T -s 2026-05-01#12:00:00:000",
            "group reset g --topic T --to 2026-05-01T12:00:00.000",
        ),
        ("resetOffsetByTime", "-g g -t T -s 1777636800000", f"{MOVED} 2026-05-01T12:00:00.000+00:00"),
        ("resetOffsetByTime", "-g g -t T -s -1", "group reset g --topic T --to latest"),
        ("printMsgByQueue", "-t T -a vm -i 3 -p true -d true", "message print T --queue vm:3"),
        ("deleteTopic", "-c C -t T", "topic delete T --yes"),
        (
            "updateTopic",
            "-c C -t T -r 8 -w 8 --yes",
            "topic set T --queues 8 --read-queues 8 --cluster C --create --yes",
        ),
        ("updateTopicPerm", "-b a:1 -t T -p 6", "topic set T --permission rw --broker a:1 --yes"),
        ("clusterList", "-m -i 5", "cluster --watch 5 --more"),
        ("topicList", "-c -n a:1", "topic list --all --more -n a:1"),
        ("updateSubGroup", "-g g -s false -r 3", "group set g --retry-max 3 --no-consume"),
        ("updateOrderConf", "-m put -t T -v vm:4", "namesrv kv ORDER_TOPIC_CONFIG T=vm:4"),
        ("updateOrderConf", "-m delete -t T", "namesrv kv ORDER_TOPIC_CONFIG --delete T"),
        ("cleanExpiredCQ", "-b a:1", "broker clean queues a:1"),
        # Whose progress is taken for whom does not depend on the order of the flags.
        ("cloneGroupOffset", "-d other -s first -t T -o true", "group clone first other --topic T"),
        ("sendMessage", "-p body -t T -c tag -k key", "send T body --keys key --tags tag"),
        ("queryMsgByKey", "-k key -t T", "message query T key"),
        # The one flag of two letters; -n are the name servers, which no controller asks for.
        ("electMaster", "-a a:1 -bn vm -b 2 -c C -n b:1", "controller elect vm 2 --address a:1"),
        ("cleanBrokerMetadata", "-a a:1 -b 1;2 -bn vm -l", "controller clean vm 1 2 --address a:1 --living"),
    ],
)
def test_what_mqadmin_says_is_one_of_our_commands(name: str, flags: str, ours: str) -> None:
    assert translated(name, flags.split()) == ours.split()


@pytest.mark.feature("X33")
def test_what_mqadmin_would_not_take_is_refused(rocket: Cluster) -> None:
    assert "needs -t" in run(rocket.namesrv, "admin", "topicRoute").output
    assert "needs -m" in run(rocket.namesrv, "admin", "updateOrderConf", "-t", "T").output
    assert "Other is not known" in run(rocket.namesrv, "admin", "brokerStatus", "-c", "Other").stderr
    assert "not in Other alone" in run(rocket.namesrv, "admin", "deleteTopic", "-c", "Other", "-t", "Orders").output
    assert "has no flag -z" in run(rocket.namesrv, "admin", "topicRoute", "-z", "1").output
    assert "'topicRoute'" in run(rocket.namesrv, "admin", "topicRout").output


@pytest.mark.feature("X33")
def test_mqadmins_commands_answer(rocket: Cluster) -> None:
    name = broker_of(rocket)
    for words in (
        ("clusterList",),
        ("clusterList", "-m"),
        ("topicList",),
        ("topicList", "-c"),
        ("brokerStatus", "-c", "DefaultCluster"),
        ("updateTopic", "-t", "Made", "-w", "2", "-r", "2"),
        ("updateTopic", "-t", "Made", "-w", "4", "-r", "4", "--yes"),
        ("updateOrderConf", "-m", "put", "-t", "Made", "-v", "x:4"),
        ("updateOrderConf", "-m", "get", "-t", "Made"),
        ("cleanExpiredCQ", "-c", "DefaultCluster"),
        ("cleanUnusedTopic", "-b", name),
        ("deleteExpiredCommitLog", "-b", name),
        ("brokerConsumeStats", "-b", name),
        ("topicStatus", "-t", "Orders"),
        ("brokerStatus", "-b", name),
        ("getBrokerConfig", "-b", name),
        ("queryMsgByKey", "-t", "Orders", "-k", "o-0"),
        ("getNamesrvConfig",),
        ("statsAll",),
    ):
        done = run(rocket.namesrv, "admin", *words)
        assert done.exit_code == 0, (words, done.output)
        assert done.stdout


def _command(words: str) -> str:
    """The words before those that are arguments or options."""
    return " ".join(words.split()[: 1 if words == "cluster" else 2])


@pytest.mark.feature("X33")
def test_the_page_of_mqadmin_has_every_command_and_ours() -> None:
    page = (ROOT / "docs" / "mqadmin.md").read_text("utf-8")
    for name, ours in TABLE.items():
        assert f"| `{name}` |" in page, name
        assert all(f"`bolide {_command(words)}" in page for words in ours.words.split("|")), name
    for ours in TABLE.values():
        for words in ours.words.split("|"):
            command: click.Command | None = app
            for word in _command(words).split():
                assert isinstance(command, click.Group)
                command = command.get_command(click.Context(command), word)
            assert command is not None, words
