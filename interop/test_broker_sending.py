"""RocketMQ's own producers at our broker: every way to send, and every way to find again what was sent."""

from collections import defaultdict
from pathlib import Path

import pytest

from interop.clients import Event, JavaAgent, java_agent
from interop.cluster import Station

COUNT = 40
QUEUE_COUNT = 4
TIMEOUT_S = 45.0  # a 5.x client whose heartbeat meets its rebalance is refused until the next, for 30 s

pytestmark = pytest.mark.short


def topic_of(station: Station, agent: JavaAgent, name: str, queue_count: int = QUEUE_COUNT) -> str:
    return station.make_topic(f"{name}-{agent.release.replace('.', '-')}", queue_count)


def stored(agent: JavaAgent, topic: str, tags: str = "*") -> list[Event]:
    """All messages of a topic, queue by queue, read with the old pull interface."""
    group = f"reads-{topic}-{abs(hash(tags))}"
    for queue in range(QUEUE_COUNT):
        offset, end = 0, int(agent.do("offset", topic=topic, queue=queue, which="max"))
        while offset < end:
            answer = agent.do("pull", topic=topic, group=group, queue=queue, offset=offset, tags=tags)
            offset = int(answer.split()[1])
    return agent.received(group)


def sent(agent: JavaAgent, prefix: str) -> list[Event]:
    return [event for event in agent.events("sent") if event["body"].startswith(f"{prefix}-")]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_what_is_answered_is_stored_where_the_answer_says(agent: JavaAgent, station: Station, how: str) -> None:
    topic = topic_of(station, agent, f"Sent-{how}")
    assert agent.do("send", topic=topic, how=how, count=COUNT, prefix=topic) == str(COUNT)
    answers = sent(agent, topic)
    assert {event["status"] for event in answers} == {"SEND_OK"}
    found = {event["body"]: event for event in stored(agent, topic)}
    assert len(found) == len(answers) == COUNT
    for answer in answers:
        assert all(found[answer["body"]][key] == answer[key] for key in ("id", "queue", "offset", "broker"))
    if how == "sync":
        assert {event["queue"] for event in answers} == set(range(QUEUE_COUNT)), "a producer goes round"


def test_one_way_messages_arrive_although_nobody_answers(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Oneway")
    group = f"oneway-{agent.release}"
    agent.do("push", name=group, group=group.replace(".", "-"), topic=topic)
    agent.do("send", topic=topic, how="oneway", count=COUNT, prefix=topic)
    bodies = {event["body"] for event in agent.await_received(group, COUNT, TIMEOUT_S)}
    agent.do("stop", name=group)
    assert bodies == {f"{topic}-{number}" for number in range(COUNT)}


def test_a_batch_is_stored_as_its_messages_in_their_order(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Batch")
    agent.do("send", topic=topic, how="batch", count=COUNT, prefix=topic, tag="Aa")
    (answer,) = sent(agent, topic)
    found = stored(agent, topic)
    assert [event["body"] for event in found] == [f"{topic}-{number}" for number in range(COUNT)]
    assert [event["offset"] for event in found] == list(range(COUNT))
    assert {event["queue"] for event in found} == {answer["queue"]}
    assert answer["id"].split(",") == [event["id"] for event in found]
    assert {event["tags"] for event in found} == {"Aa"}
    assert found[7]["keys"] == "key-7"


def test_messages_of_one_key_keep_their_order_in_one_queue(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Selected")
    agent.do("send", topic=topic, how="ordered", count=COUNT, prefix=topic)
    by_queue: dict[int, list[str]] = defaultdict(list)
    for event in stored(agent, topic):
        by_queue[event["queue"]].append(event["body"])
    expected = {q: [f"{topic}-{number}" for number in range(q, COUNT, QUEUE_COUNT)] for q in range(QUEUE_COUNT)}
    assert by_queue == expected


def test_a_topic_is_made_by_its_first_message(agent: JavaAgent) -> None:
    topic = f"Appears-{agent.release.replace('.', '-')}"
    agent.do("send", topic=topic, count=8, prefix=topic)
    assert {event["queue"] for event in sent(agent, topic)} == set(range(4)), "as many queues as the producer asks for"


def test_tags_with_the_same_hash_are_told_apart(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Tags")
    for tag in ("Aa", "BB", "C"):  # the first two have one hash, and the broker knows hashes only
        agent.do("send", topic=topic, count=COUNT, prefix=f"{topic}-{tag}", tag=tag)
    for tags, expected in (("Aa", {"Aa"}), ("BB || C", {"BB", "C"}), ("*", {"Aa", "BB", "C"})):
        found = stored(agent, topic, tags)
        assert {event["tags"] for event in found} == expected
        assert len({event["body"] for event in found}) == len(found) == COUNT * len(expected)
    assert [agent.do("pull", topic=topic, group=f"none-{topic}", queue=0, tags="D").split()[0]] == ["NO_MATCHED_MSG"]


def test_messages_are_found_by_either_id_and_by_key(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Found")
    agent.do("send", topic=topic, count=COUNT, prefix=topic, key=f"order-{agent.release}")
    for event in sent(agent, topic)[::10]:
        assert agent.do("view", topic=topic, id=event["id"]) == event["body"], "the client's id"
        assert agent.do("view", topic=topic, id=event["offsetId"]) == event["body"], "the broker's"
    before = len(agent.received("query"))
    assert agent.do("query", topic=topic, key=f"order-{agent.release}-3") == "1"
    assert [event["body"] for event in agent.received("query")[before:]] == [f"{topic}-3"]


def test_the_ends_of_a_queue_and_a_time_in_it_are_found(agent: JavaAgent, station: Station) -> None:
    topic = topic_of(station, agent, "Ends", 1)
    agent.do("send", topic=topic, count=5, prefix=topic)
    offset = {which: agent.do("offset", topic=topic, which=which) for which in ("min", "max", "0", "9999999999999")}
    assert (offset["min"], offset["max"], offset["0"]) == ("0", "5", "0")
    assert offset["9999999999999"] == "5", "nothing is that late: the next one's offset"


@pytest.mark.parametrize("release", ["4.9.8"])
def test_a_client_with_a_vip_channel_sends_and_receives_by_it(station: Station, tmp_path: Path, release: str) -> None:
    with java_agent(tmp_path, release, station.name_servers, vip=True) as agent:
        topic = topic_of(station, agent, "Vip")
        agent.do("push", name="vip", group="vip", topic=topic)
        agent.do("send", topic=topic, count=COUNT, prefix=topic)
        assert len(sent(agent, topic)) == COUNT
        agent.await_received("vip", COUNT, TIMEOUT_S)
        assert station.address[1] - 2 in connected_ports()


def connected_ports() -> set[int]:
    """The remote ports of all IPv4 and IPv6 connections of this machine that stand."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {int(words[2].rpartition(":")[2], 16) for words in lines if words[3] == "01"}
