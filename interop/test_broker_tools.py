"""The released mqadmin works on our broker: what it prints is what is so, and what it changes is changed.

mqadmin prints its errors and ends with 0 all the same, so every output is read. The commands run inside the agent, by
the tool's own entry: a process each would cost four seconds a command. `test_broker_status.py` runs some as processes.
"""

import re
import time

import pytest

from interop import wire
from interop.clients import Event, JavaAgent
from interop.cluster import Station
from interop.process import await_that

TIMEOUT_S = 45.0  # a 5.x client whose heartbeat meets its rebalance is refused until the next, for 30 s
COUNT = 8
QUEUE_COUNT = 4
WRITE = 2

short = pytest.mark.short


def run(agent: JavaAgent, *words: str) -> str:
    output = agent.admin(*words)
    assert "Exception" not in output, output
    return output


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


def row(output: str, *first: str) -> list[str]:
    """The one row that begins with these words."""
    (found,) = [words for words in rows(output) if words[: len(first)] == list(first)]
    return found


def named(agent: JavaAgent, name: str) -> str:
    return f"{name}-{agent.release.replace('.', '-')}"


def filled(agent: JavaAgent, station: Station, name: str, **options: object) -> tuple[str, list[Event]]:
    """A topic with two messages a queue, and the answers of their sends."""
    topic = station.make_topic(named(agent, name), QUEUE_COUNT)
    agent.do("send", topic=topic, count=COUNT, prefix=topic, **options)
    return topic, [event for event in agent.events("sent") if event["body"].startswith(f"{topic}-")]


def consumed(agent: JavaAgent, station: Station, name: str) -> tuple[str, str]:
    """A topic and the group of a consumer that runs and has settled all of it; the consumer has the group's name."""
    topic, _ = filled(agent, station, name)
    group = f"of-{topic}"
    agent.do("push", name=group, group=group, topic=topic)
    agent.await_received(group, COUNT, TIMEOUT_S)
    agent.do("stop", name=group)  # progress is told at the stop; while it runs, after 10 s at the soonest
    agent.do("push", name=group, group=group, topic=topic)
    return topic, group


def test_topics_are_made_listed_routed_changed_and_deleted(agent: JavaAgent, station: Station) -> None:
    topic, address = named(agent, "Made"), station.namesrv_address
    assert "success" in run(agent, "updateTopic", "-b", station.endpoint, "-t", topic, "-r", "6", "-w", "5")
    await_that("it is routed", lambda: wire.queue_counts(address, topic) == {station.name: (6, 5, 6)}, TIMEOUT_S)
    assert [topic] in rows(run(agent, "topicList"))
    assert [station.cluster] in rows(run(agent, "topicClusterList", "-t", topic))
    route = wire.parse(re.sub(r"\s", "", run(agent, "topicRoute", "-t", topic)).encode())
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": station.endpoint}
    assert "success" in run(agent, "updateTopicPerm", "-c", station.cluster, "-t", topic, "-p", "4")
    await_that("it is read-only", lambda: wire.queue_counts(address, topic)[station.name][2] == 4, TIMEOUT_S)
    assert "success" in run(agent, "deleteTopic", "-c", station.cluster, "-t", topic)
    await_that("it is gone", lambda: wire.route(address, topic) is None, TIMEOUT_S)


def test_the_cluster_is_listed_with_its_broker(agent: JavaAgent, station: Station) -> None:
    words = row(run(agent, "clusterList"), station.cluster, station.name, "0")
    assert words[3] == station.endpoint
    today = row(run(agent, "clusterList", "-m"), station.cluster, station.name)
    assert len(today) == 6
    assert all(total.isdigit() for total in today[2:])


def test_the_state_of_a_topic_is_that_of_its_queues(agent: JavaAgent, station: Station) -> None:
    topic, _ = filled(agent, station, "State")
    output = run(agent, "topicStatus", "-t", topic)
    for queue in range(QUEUE_COUNT):
        words = row(output, station.name, str(queue))
        assert words[2:4] == ["0", "2"]
        assert words[4] in {time.strftime("%Y-%m-%d", at(time.time())) for at in (time.gmtime, time.localtime)}


def test_a_group_is_made_changed_and_deleted(agent: JavaAgent, station: Station) -> None:
    group = named(agent, "made-group")
    output = run(agent, "updateSubGroup", "-b", station.endpoint, "-g", group, "-r", "7", "-s", "false")
    assert "success" in output
    table = wire.parse(wire.call(station.address, 201).body)["subscriptionGroupTable"]
    assert (table[group]["retryMaxTimes"], table[group]["consumeEnable"]) == (7, False)
    assert "success" in run(agent, "deleteSubGroup", "-b", station.endpoint, "-g", group)
    table = wire.parse(wire.call(station.address, 201).body)["subscriptionGroupTable"]
    assert table.get(group, {}).get("retryMaxTimes") != 7, "Java's broker makes it anew at once, as a default one"


@short
def test_progress_and_connections_of_a_group_that_runs(agent: JavaAgent, station: Station) -> None:
    topic, group = consumed(agent, station, "Progress")
    output = run(agent, "consumerProgress", "-g", group)
    for queue in range(QUEUE_COUNT):
        assert row(output, topic, station.name, str(queue))[3:6] == ["2", "2", "0"]
    assert row(run(agent, "consumerProgress"), group)[1] == "1", "one client is on line"
    connections = run(agent, "consumerConnection", "-g", group)
    assert re.search(r"JAVA\s+V" + agent.release.replace(".", "_"), connections)
    assert [topic, "*"] in rows(connections)
    assert ["ConsumeFromWhere:", "CONSUME_FROM_FIRST_OFFSET"] in rows(connections)
    assert ["MessageModel:", "CLUSTERING"] in rows(connections)
    producers = run(agent, "producerConnection", "-g", "agent-producers", "-t", topic)
    assert re.search(r"JAVA\s+V" + agent.release.replace(".", "_"), producers)
    status = run(agent, "consumerStatus", "-g", group)
    assert "Same subscription in the same group of consumer" in status
    assert "Rebalance OK" in status
    agent.do("stop", name=group)


def test_a_group_that_is_away_is_reset_to_a_time(agent: JavaAgent, station: Station) -> None:
    topic, group = consumed(agent, station, "Reset")
    agent.do("stop", name=group)
    output = run(agent, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    for queue in range(QUEUE_COUNT):
        assert row(output, station.name, str(queue))[2] == "0"
    for queue in range(QUEUE_COUNT):
        assert row(run(agent, "consumerProgress", "-g", group), topic, station.name, str(queue))[3:6] == ["2", "0", "2"]


@short
def test_messages_are_found_by_id_key_and_offset(agent: JavaAgent, station: Station) -> None:
    topic, answers = filled(agent, station, "Query", key="order", tag="Aa")
    third = answers[3]
    topic_word = [] if agent.release == "4.9.8" else ["-t", topic]  # the older one ends its process at an unknown word
    by_id = run(agent, "queryMsgById", *topic_word, "-i", third["offsetId"])
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in by_id.splitlines())}
    assert (fields["Topic"], fields["Tags"], fields["Keys"]) == (topic, "[Aa]", "[order-3]")
    assert (fields["Queue ID"], fields["Queue Offset"]) == (str(third["queue"]), str(third["offset"]))
    by_unique_key = run(agent, "queryMsgByUniqueKey", "-t", topic, "-i", third["id"])
    assert ["Keys:", "[order-3]"] in rows(by_unique_key)
    by_key = run(agent, "queryMsgByKey", "-t", topic, "-k", "order-3")
    assert row(by_key, third["id"])[1:3] == [str(third["queue"]), str(third["offset"])]
    place = ["-i", str(third["queue"]), "-o", str(third["offset"])]
    by_offset = run(agent, "queryMsgByOffset", "-t", topic, "-b", station.name, *place)
    assert third["id"] in by_offset
    assert "order-3" in by_offset


def test_messages_are_sent_and_printed(agent: JavaAgent, station: Station) -> None:
    topic = station.make_topic(named(agent, "Printed"), QUEUE_COUNT)
    output = run(agent, "sendMessage", "-t", topic, "-p", "from-mqadmin", "-k", "k1", "-c", "TagA")
    assert re.search(rf"{station.name}\s+\d\s+SEND_OK\s+\w{{32}}", output), output
    printed = run(agent, "printMsg", "-t", topic)
    assert printed.count("from-mqadmin") == 1
    assert "TagA" in printed


@short
def test_the_broker_tells_and_changes_its_settings(agent: JavaAgent, station: Station) -> None:
    status = run(agent, "brokerStatus", "-b", station.endpoint)
    assert re.search(r"msgPutTotalTodayNow\s*:\s*\d+", status)
    assert re.search(r"^putTps\s*:", status, re.MULTILINE)
    before = run(agent, "getBrokerConfig", "-b", station.endpoint)
    assert re.search(rf"^brokerName\s+=\s+{station.name}\s*$", before, re.MULTILINE)
    change = ("updateBrokerConfig", "-b", station.endpoint, "-k", "shortPollingTimeMills", "-v")
    assert "success" in run(agent, *change, "777")
    after = run(agent, "getBrokerConfig", "-b", station.endpoint)
    assert re.search(r"^shortPollingTimeMills\s+=\s+777\s*$", after, re.MULTILINE)
    run(agent, *change, "1000")


def test_a_setting_that_is_read_at_the_start_only_is_refused(
    agent: JavaAgent, station: Station, broker_kind: str
) -> None:
    if broker_kind != "bolide":
        pytest.skip("a Java broker takes it and is lost to its clients")
    output = agent.admin("updateBrokerConfig", "-b", station.endpoint, "-k", "listenPort", "-v", "1")
    assert "CODE: 1" in output
    assert "listenPort" in output


def test_write_permission_is_wiped_and_given_back(agent: JavaAgent, station: Station) -> None:
    topic, address = station.make_topic(named(agent, "Wiped")), station.namesrv_address
    wiped = run(agent, "wipeWritePerm", "-b", station.name)
    assert int(re.search(r"OK, (\d+)", wiped)[1]) > 1  # type: ignore[index]
    assert wire.queue_counts(address, topic)[station.name][2] & WRITE == 0
    run(agent, "addWritePerm", "-b", station.name)
    assert wire.queue_counts(address, topic)[station.name][2] & WRITE


def test_statistics_of_all_topics_count_what_went_through(agent: JavaAgent, station: Station) -> None:
    topic, group = consumed(agent, station, "Counted")
    words = row(run(agent, "statsAll", "-t", topic), topic, group)
    assert words[2] == "0", "nothing is left"
    assert words[-2:] == [str(COUNT), str(COUNT)]
    agent.do("stop", name=group)


def test_a_message_is_given_to_a_member_by_hand(agent: JavaAgent, station: Station) -> None:
    topic, group = consumed(agent, station, "ByHand")
    one = next(event for event in agent.events("sent") if event["body"].startswith(f"{topic}-"))
    members = [words[0] for words in rows(run(agent, "consumerConnection", "-g", group)) if "JAVA" in words]
    topic_word = [] if agent.release == "4.9.8" else ["-t", topic]
    by_hand = ("queryMsgById", *topic_word, "-i", one["offsetId"], "-g", group, "-d")
    assert "consumeResult=CR_SUCCESS" in run(agent, *by_hand, members[0])
    agent.await_received(group, COUNT + 1, TIMEOUT_S)
    assert "not online" in agent.admin(*by_hand, "nobody")
    agent.do("stop", name=group)


@pytest.mark.feature("X31")
def test_a_group_is_given_a_plan_for_its_retries(agent: JavaAgent, station: Station) -> None:
    if agent.release != "5.5.0":
        pytest.skip("4.9 knows no such plans")
    plan = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":4000,"multiplier":2}}'
    assert "success" in run(agent, "updateSubGroup", "-b", station.endpoint, "-g", "planned", "-r", "5", "-p", plan)
    shown = run(agent, "getConsumerConfig", "-g", "planned")
    assert "type=EXPONENTIAL" in shown
    assert "initial=1000, max=4000, multiplier=2" in shown


def test_a_way_to_consume_is_set_for_a_topic_that_is_there_alone(agent: JavaAgent, station: Station) -> None:
    if agent.release != "5.5.0":
        pytest.skip("4.9 does not pop")
    topic = station.make_topic("Modes")
    setting = ("setConsumeMode", "-b", station.endpoint, "-g", "modes", "-m", "POP", "-t")
    assert "success" in run(agent, *setting, topic)
    assert "CODE: 17" in agent.admin(*setting, "NowhereAtAll")


def test_sends_are_timed_and_a_queue_is_printed(agent: JavaAgent, station: Station) -> None:
    topic, _ = filled(agent, station, "Timed")
    timed = run(agent, "checkMsgSendRT", "-t", topic, "-a", "4", "-s", "64")
    assert sum(words[:1] == [station.name] and words[2] == "true" for words in rows(timed)) == 4
    printed = run(agent, "printMsgByQueue", "-t", topic, "-a", station.name, "-i", "0", "-p", "true", "-d", "true")
    assert len(re.findall(rf"BODY: {topic}-\d", printed)) == COUNT // QUEUE_COUNT
