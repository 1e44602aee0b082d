"""`bolide admin NAME` beside mqadmin 5.5.0, both asked of one cluster: Apache's and ours. The facts must be the same.

Both print for people, so each answer is read into a set of facts: rows of words here, rows of JSON there. What moves
between two questions (rates, ages, counters of pulls) is looked at for its presence, not for its value. What changes
something is done by both, each on a thing of its own, and what a third asks of the servers must be the same after it.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from click.testing import CliRunner

from bolide.cli.app import app
from interop import wire
from interop.clients import IMPATIENT, JavaAgent, java_agent
from interop.cluster import Station, bolide_up, java_station
from interop.process import await_that

RELEASE = "5.5.0"
TIMEOUT_S = 45.0
COUNT, QUEUE_COUNT = 8, 4
Facts = Any


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster with a topic, a group that has read all of it, and the one that asks."""

    station: Station
    agent: JavaAgent
    sent: dict[str, Any]

    def theirs(self, *words: str) -> str:
        told = self.agent.admin(*self._filled(words))
        assert "Exception" not in told, told
        return told

    def ours(self, *words: str) -> Any:
        """The rows of all answers."""
        environment = {"NAMESRV_ADDR": self.station.name_servers}
        done = CliRunner().invoke(app, ["admin", *self._filled(words), "--output", "json"], env=environment)
        assert done.exit_code == 0, (words, done.output, done.exception)
        return [json.loads(line) for line in done.stdout.splitlines() if line[0] in "[{"]

    def rows(self, *words: str) -> list[dict[str, Any]]:
        (found,) = self.ours(*words)
        return [found] if isinstance(found, dict) else found

    def _filled(self, words: tuple[str, ...]) -> list[str]:
        station = self.station
        names = {"B": station.name, "A": station.endpoint, "C": station.cluster}
        names |= {"ID": self.sent["offsetId"], "UNIQUE": self.sent["id"]}
        return [names.get(word, word) for word in words]


@pytest.fixture(scope="module", params=[pytest.param("bolide", marks=pytest.mark.short), RELEASE])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("names")
    with (
        bolide_up(home) if request.param == "bolide" else java_station(home, request.param) as station,
        java_agent(home, RELEASE, station.name_servers, **IMPATIENT) as agent,
    ):
        station.make_topic("Orders", QUEUE_COUNT)
        agent.do("send", topic="Orders", count=COUNT, prefix="Orders", tag="red")
        sent = agent.events("sent")[0]
        for _ in range(2):  # progress is told when a consumer stops; the second one stays
            agent.do("push", name="kitchen", group="kitchen", topic="Orders")
            if not agent.received("kitchen"):
                agent.await_received("kitchen", COUNT, TIMEOUT_S)
                agent.do("stop", name="kitchen")
        place = Place(station, agent, sent)
        await_that("the group is registered", lambda: "kitchen" in _groups(place), TIMEOUT_S)
        yield place


def _groups(place: Place) -> set[str]:
    return {row["group"] for row in place.rows("consumerProgress") if row["members"]}


def table(text: str) -> list[list[str]]:
    """The words of the lines below a head, until an empty line."""
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("#")), -1)
    below = lines[first + 1 :]
    end = next((number for number, line in enumerate(below) if not line.strip()), len(below))
    return [line.split() for line in below[:end]]


def pairs(text: str, sign: str) -> dict[str, str]:
    found = (line.partition(sign) for line in text.splitlines())
    return {key.strip(): value.strip() for key, separator, value in found if separator and " " not in key.strip()}


def at_ms(day: str, time: str) -> int:
    return round(datetime.fromisoformat(f"{day} {time.replace(',', '.')}").timestamp() * 1000)


def moment_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def values(rows: list[dict[str, Any]], *names: str) -> set[tuple[str, ...]]:
    return {tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows}


def words(rows: list[list[str]], *positions: int) -> set[tuple[str, ...]]:
    return {tuple(row[position] for position in positions) for row in rows}


def ids(text: str) -> set[tuple[str, str, str]]:
    found = re.findall(r"MSGID: (\w+) MessageExt \[.*?queueId=(\d+), .*?queueOffset=(\d+)", text)
    return set(found)


def test_the_cluster_has_the_same_brokers_versions_disk_and_totals(place: Place) -> None:
    (row,) = place.rows("clusterList", "-m")
    (told,) = table(place.theirs("clusterList"))
    assert told[:5] == [str(row[name]) for name in ("cluster", "broker", "id", "address", "version")]
    assert told[-1] == row["active"]
    assert float(told[-2]) == pytest.approx(float(row["disk_used"]), abs=0.02)
    (totals,) = table(place.theirs("clusterList", "-m"))
    assert [int(word) for word in totals[2:]] == [
        row[name] for name in ("in_yesterday", "out_yesterday", "in_today", "out_today")
    ]


def test_topics_their_clusters_and_groups_are_the_same(place: Place) -> None:
    assert {row["topic"] for row in place.rows("topicList")} == set(place.theirs("topicList").split())
    theirs = {(row[1], row[0], " ".join(row[2:])) for row in table(place.theirs("topicList", "-c"))}
    # mqadmin leaves out the topics of groups here.
    ours = values(place.rows("topicList", "-c"), "topic", "clusters", "groups")
    assert {row for row in ours if not row[0].startswith("%")} == theirs
    assert {row["cluster"] for row in place.rows("topicClusterList", "-t", "Orders")} == set(
        place.theirs("topicClusterList", "-t", "Orders").split()
    )


def test_a_route_is_the_same(place: Place) -> None:
    told = wire.parse(re.sub(r"\s", "", place.theirs("topicRoute", "-t", "Orders")).encode())
    (row,) = place.rows("topicRoute", "-t", "Orders")
    (data,), (queues,) = told["brokerDatas"], told["queueDatas"]
    assert row["addresses"] == ", ".join(f"{number}={address}" for number, address in data["brokerAddrs"].items())
    assert (row["broker"], row["cluster"]) == (data["brokerName"], data["cluster"])
    assert (row["read_queues"], row["write_queues"]) == (queues["readQueueNums"], queues["writeQueueNums"])
    assert (row["permission"], queues["perm"]) == ("rw", 6)


def test_the_queues_of_a_topic_are_the_same(place: Place) -> None:
    theirs = {(*row[:4], at_ms(row[4], row[5])) for row in table(place.theirs("topicStatus", "-t", "Orders"))}
    ours = place.rows("topicStatus", "-t", "Orders")
    assert {
        (row["broker"], str(row["queue"]), str(row["min"]), str(row["max"]), moment_ms(row["last_stored"]))
        for row in ours
    } == theirs


def test_progress_of_one_group_of_all_and_of_a_broker_is_the_same(place: Place) -> None:
    columns = ("topic", "broker", "queue", "end", "offset", "behind", "in_flight")
    theirs = table(place.theirs("consumerProgress", "-g", "kitchen"))
    assert values(place.rows("consumerProgress", "-g", "kitchen"), *columns) == words(theirs, *range(7))
    all_theirs = words(table(place.theirs("consumerProgress")), 0, 1, 2, 4, 6)
    ours = place.rows("consumerProgress")
    assert {
        (row["group"], str(row["members"]), row["versions"] or "OFFLINE", row["model"] or "", str(row["behind"]))
        for row in ours
        if row["members"]
    } <= all_theirs
    of_broker = words(table(place.theirs("brokerConsumeStats", "-b", "A")), 0, 1, 2, 3, 4, 5, 6)
    columns = ("topic", "group", "broker", "queue", "end", "offset", "behind")
    assert of_broker <= values(place.rows("brokerConsumeStats", "-b", "A"), *columns)


def test_the_members_of_a_group_are_the_same(place: Place) -> None:
    text = place.theirs("consumerConnection", "-g", "kitchen")
    rows = place.rows("consumerConnection", "-g", "kitchen")
    assert values(rows, "client", "address", "language", "version") == words(table(text), 0, 1, 2, 3)
    assert [row["wants"] for row in rows] == ["Orders: *"]
    assert ["Orders", "*"] in [line.split() for line in text.splitlines()]
    environment = {"NAMESRV_ADDR": place.station.name_servers}
    shown = CliRunner().invoke(app, ["admin", "consumerConnection", "-g", "kitchen"], env=environment).stdout
    for name in ("ConsumeType", "MessageModel", "ConsumeFromWhere"):
        assert pairs(text, ":")[name] in shown


def test_members_of_a_group_are_alike_or_not(place: Place) -> None:
    text = place.theirs("consumerStatus", "-g", "kitchen")
    rows = place.rows("consumerStatus", "-g", "kitchen")
    listed = [line.split() for line in text.splitlines() if re.match(r"\d+\s", line)]
    assert values(rows, "client", "version") == words(listed, 1, 2)
    assert "Same subscription in the same group of consumer" in text
    assert [row["conflict"] for row in rows] == [None]


def test_who_sends_is_the_same(place: Place) -> None:
    found = re.findall(
        r"producer group \((\S+)\) instance : clientId=(\S+?),remoteIP=/?(\S+?), language=(\w+), version=(\d+)",
        place.theirs("producer", "-b", "A"),
    )
    rows = [row for row in place.rows("producer", "-b", "A") if row["does"] == "sends"]
    assert values(rows, "group", "client", "address", "language") == {row[:4] for row in found}
    (theirs,) = [
        row.split()
        for row in place.theirs("producerConnection", "-g", "agent-producers", "-t", "Orders").splitlines()
        if row
    ]
    (row,) = place.rows("producerConnection", "-g", "agent-producers", "-t", "Orders")
    assert [row["client"], row["address"], row["language"], row["version"]] == theirs[1:]


def test_settings_of_brokers_name_servers_and_groups_are_the_same(place: Place) -> None:
    theirs = pairs(place.theirs("getBrokerConfig", "-b", "A"), " = ")
    assert {row["key"]: row["value"] for row in place.rows("getBrokerConfig", "-c", "C")} == theirs
    theirs = pairs(place.theirs("getNamesrvConfig"), " = ")
    assert {row["key"]: row["value"] for row in place.rows("getNamesrvConfig")} == theirs
    theirs = pairs(place.theirs("getConsumerConfig", "-g", "kitchen"), " = ")
    ours = {row["key"]: row["value"] for row in place.rows("getConsumerConfig", "-g", "kitchen")}
    simple = {key: value for key, value in theirs.items() if key not in {"groupRetryPolicy", "subscriptionDataSet"}}
    assert simple.items() <= ours.items()
    assert "CUSTOMIZED" in theirs["groupRetryPolicy"]
    assert "CUSTOMIZED" in ours["groupRetryPolicy"]


def test_the_status_of_a_broker_has_the_same_lines(place: Place) -> None:
    theirs = pairs(place.theirs("brokerStatus", "-b", "A"), ": ")
    ours = {row["what"]: row["value"] for row in place.rows("brokerStatus", "-b", "A")}
    assert ours.keys() == theirs.keys()
    for key in (
        "bootTimestamp",
        "brokerVersionDesc",
        "commitLogMaxOffset",
        "msgPutTotalTodayNow",
        "putMessageTimesTotal",
    ):
        assert ours[key] == theirs[key]


def test_printed_messages_are_the_same(place: Place) -> None:
    for command in (
        ("printMsg", "-t", "Orders", "-d", "true"),
        ("printMsgByQueue", "-t", "Orders", "-a", "B", "-i", "0", "-p", "true", "-d", "true"),
        ("consumeMessage", "-t", "Orders"),
    ):
        found = ids(place.theirs(*command))
        assert values(place.rows(*command), "id", "queue", "offset") == found
        assert found


@pytest.mark.parametrize(
    "command",
    [
        ("queryMsgById", "-t", "Orders", "-i", "ID"),
        ("queryMsgByUniqueKey", "-t", "Orders", "-i", "UNIQUE"),
        ("queryMsgByOffset", "-t", "Orders", "-b", "B", "-i", "1", "-o", "0"),
    ],
    ids=lambda command: command[0],
)
def test_one_message_is_the_same(place: Place, command: tuple[str, ...]) -> None:
    text = place.theirs(*command)
    theirs = dict(re.findall(r"^([A-Z][\w ]*):\s+(.*)$", text, re.MULTILINE))
    (row,) = place.rows(*command)
    assert theirs["Topic"] == row["topic"]
    assert (theirs["Tags"], theirs["Keys"]) == (f"[{row['tags']}]", f"[{' '.join(row['keys'])}]")
    for theirs_name, name in (
        ("Queue ID", "queue"),
        ("Queue Offset", "offset"),
        ("CommitLog Offset", "log_offset"),
        ("Reconsume Times", "retries"),
        ("System Flag", "system_flag"),
        ("Born Host", "born_host"),
        ("Store Host", "store_host"),
    ):
        assert theirs[theirs_name] == str(row[name]), theirs_name
    for theirs_name, name in (("Born Timestamp", "born_at"), ("Store Timestamp", "stored_at")):
        assert at_ms(*theirs[theirs_name].split()) == moment_ms(row[name])
    properties = dict(each.split("=", 1) for each in theirs["Properties"].strip("{}").split(", "))
    assert {key: value for key, value in properties.items() if not key.endswith("_OFFSET")} == row["properties"]
    assert "consumerGroup=kitchen, trackType=CONSUMED," in text
    assert row["groups"] == {"kitchen": "consumed"}


def test_messages_are_found_by_key(place: Place) -> None:
    theirs = place.theirs("queryMsgByKey", "-t", "Orders", "-k", "key-1")
    assert {row["id"] for row in place.rows("queryMsgByKey", "-t", "Orders", "-k", "key-1")} == set(
        re.findall(r"^(\w{32,})\s", theirs, re.MULTILINE)
    )


def test_what_passed_a_topic_is_the_same(place: Place) -> None:
    (theirs,) = table(place.theirs("statsAll", "-t", "Orders"))
    (row,) = place.rows("statsAll", "-t", "Orders")
    assert [row["topic"], row["group"], str(row["behind"])] == theirs[:3]
    assert [str(row["in_24h"]), str(row["out_24h"])] == theirs[5:7]


def twice(place: Place, command: Callable[[str], tuple[str, ...]], state: Callable[[str], Facts]) -> Facts:
    """The same done by both, each under a name of its own; what is so afterwards must be the same."""
    place.theirs(*command("OfTheirs"))
    theirs = state("OfTheirs")
    place.ours(*command("OfOurs"))
    await_that("ours did the same", lambda: state("OfOurs") == theirs, TIMEOUT_S)
    return theirs


def test_topics_are_made_changed_and_deleted_alike(place: Place) -> None:
    station = place.station

    def counts(topic: str) -> Facts:
        return wire.queue_counts(station.namesrv_address, topic)

    def made(topic: str, count: str) -> tuple[str, ...]:
        return ("updateTopic", "-c", "C", "-t", topic, "-r", count, "-w", count)

    def settle(command: Callable[[str], tuple[str, ...]], expected: Facts) -> None:
        place.theirs(*command("OfTheirs"))
        place.ours(*command("OfOurs"), *(["--yes"] if command("")[0] == "updateTopic" else []))
        for topic in ("OfTheirs", "OfOurs"):
            await_that(f"{topic} is so", lambda topic=topic: counts(topic) == expected, TIMEOUT_S)  # type: ignore[misc]

    settle(lambda topic: made(topic, "3"), {station.name: (3, 3, 6)})
    settle(lambda topic: made(topic, "5"), {station.name: (5, 5, 6)})
    settle(lambda topic: ("updateTopicPerm", "-b", "A", "-t", topic, "-p", "4"), {station.name: (5, 5, 4)})
    settle(lambda topic: ("deleteTopic", "-c", "C", "-t", topic), {})


def test_groups_are_made_and_deleted_alike(place: Place) -> None:
    def of(group: str) -> Facts:
        table = wire.parse(wire.call(place.station.address, 201).body)["subscriptionGroupTable"]
        config = dict(table.get(group, {}))
        return [config.get(key) for key in ("retryMaxTimes", "retryQueueNums", "consumeEnable")]

    made = twice(
        place, lambda group: ("updateSubGroup", "-c", "C", "-g", group, "-r", "7", "-q", "2", "-s", "false"), of
    )
    assert made == [7, 2, False]
    twice(place, lambda group: ("deleteSubGroup", "-c", "C", "-g", group), lambda group: of(group)[0] != 7)


def test_name_servers_keep_and_forget_alike(place: Place) -> None:
    address = place.station.namesrv_address

    def kept(namespace: str) -> Facts:
        answer = wire.call(address, wire.GET_KV_LIST, {"namespace": namespace})
        return wire.parse(answer.body)["table"] if answer.code == 0 else {}

    put = twice(place, lambda name: ("updateKvConfig", "-s", name, "-k", "savour", "-v", "blue"), kept)
    assert put == {"savour": "blue"}
    assert twice(place, lambda name: ("deleteKvConfig", "-s", name, "-k", "savour"), kept) == {}

    def order(topic: str) -> Facts:
        return kept("ORDER_TOPIC_CONFIG").get(topic)

    assert twice(place, lambda name: ("updateOrderConf", "-m", "put", "-t", name, "-v", "vm:4"), order) == "vm:4"
    assert "orderConf=[vm:4]" in place.theirs("updateOrderConf", "-m", "get", "-t", "OfOurs")
    assert {"key": "OfTheirs", "value": "vm:4"} in place.rows("updateOrderConf", "-m", "get", "-t", "OfTheirs")
    assert twice(place, lambda name: ("updateOrderConf", "-m", "delete", "-t", name), order) is None


def test_settings_are_changed_alike(place: Place) -> None:
    def of_broker(_: str) -> Facts:
        return re.findall(rb"^fileReservedTime=(\d+)", wire.call(place.station.address, 26).body, re.MULTILINE)

    twice(place, lambda _: ("updateBrokerConfig", "-b", "A", "-k", "fileReservedTime", "-v", "71"), of_broker)
    assert of_broker("") == [b"71"]
    place.ours("updateBrokerConfig", "-c", "C", "-k", "fileReservedTime", "-v", "70")
    assert of_broker("") == [b"70"]

    def of_namesrv(_: str) -> Facts:
        return b"orderMessageEnable=true" in wire.call(place.station.namesrv_address, 319).body

    assert twice(place, lambda _: ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"), of_namesrv)


def test_a_broker_is_closed_and_opened_alike(place: Place) -> None:
    for name, word in (("wipeWritePerm", "wipe"), ("addWritePerm", "add")):
        found = re.search(
            rf"{word} write perm of broker\[\S+\] in name server\[(\S+)\] OK, (\d+)", place.theirs(name, "-b", "B")
        )
        assert found is not None
        (told,) = place.ours(name, "-b", "B")
        assert told["told"] == {found[1]: int(found[2])}


def test_groups_are_moved_alike(place: Place) -> None:
    for command in (
        ("resetOffsetByTime", "-g", "kitchen", "-t", "Orders", "-s", "-1"),
        ("skipAccumulatedMessage", "-g", "kitchen", "-t", "Orders"),
    ):
        theirs = words(table(place.theirs(*command)), 0, 1, 2)
        assert values(place.rows(*command), "broker", "queue", "to") == theirs
    place.theirs("updateSubGroup", "-c", "C", "-g", "OfTheirs")
    place.theirs("updateSubGroup", "-c", "C", "-g", "OfOurs")

    def offsets(group: str) -> Facts:
        columns = ("topic", "broker", "queue", "offset")
        return values(place.rows("consumerProgress", "-g", group, "-t", "Orders"), *columns)

    assert (
        len(twice(place, lambda group: ("cloneGroupOffset", "-s", "kitchen", "-d", group, "-t", "Orders"), offsets))
        == 4
    )


def test_a_message_is_sent_alike(place: Place) -> None:
    place.station.make_topic("Sent", 1)
    found = []
    (row,) = table(place.theirs("sendMessage", "-t", "Sent", "-p", "hello", "-k", "key7", "-c", "blue"))
    assert row[2] == "SEND_OK"
    (told,) = place.ours("sendMessage", "-t", "Sent", "-p", "hello", "-k", "key7", "-c", "blue")
    for number in (row[3], told["id"]):
        (message,) = place.rows("queryMsgByUniqueKey", "-t", "Sent", "-i", number)
        found.append((message["body"], message["keys"], message["tags"], message["queue"]))
    assert found == [("hello", ["key7"], "blue", 0)] * 2


def test_brokers_clean_up_alike(place: Place) -> None:
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in place.theirs(name, "-b", "A")
        (told,) = place.ours(name, "-b", "A")
        assert told["address"] == place.station.endpoint
