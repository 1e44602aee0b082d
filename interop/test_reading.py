"""The same questions to RocketMQ's broker and to ours: pulls in every state of a queue, offsets by time, keys and ids.

What is compared is what a client acts on: the code, the fields, the messages, not the words beside them. Java's index
follows the log in a thread of its own, so what it finds is waited for. Two things differ and are not asked: Java passes
over `maxMsgBytes`, which is kept here, and filters by SQL where that is switched on.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import pytest

from bolide.protocol.records import decode_records
from bolide.testing import cluster
from interop import wire
from interop.cluster import java_broker
from interop.process import await_that
from interop.wire import Address, Answer

RELEASE = "5.5.0"
NOBODY = "127.0.0.1:1"  # no name server is needed
TOPIC, GROUP = "ReadTopic", "ReadGroup"
SEND, PULL, UPDATE_TOPIC, HEARTBEAT, QUERY_OFFSET, MEMBERS_CHANGED = 310, 11, 17, 34, 14, 40
QUERY_KEY, SEARCH, MAX_OFFSET, MIN_OFFSET, EARLIEST, VIEW, ENTRIES = 12, 29, 30, 31, 32, 33, 321
TAGS = ("Aa", "BB", "C", "Aa", "", "C", "Aa", "BB", "C", "Aa")
SUCCESS, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
WAIT_S = 60.0


class Talk:
    """One connection that is kept, for a consumer's membership is that of its connection."""

    def __init__(self, address: Address) -> None:
        self._connection = socket.create_connection(address, wire.TIMEOUT_S)
        self._opaques = count(1_000_000)  # far from the numbers of a broker's own requests

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        opaque = next(self._opaques)
        self.send(wire.request_frame(code, fields, body, opaque=opaque))
        return self.answer(opaque)

    def send(self, frame: bytes) -> None:
        self._connection.sendall(frame)

    def answer(self, opaque: int) -> Answer:
        """The answer to a request; what the broker says of its own accord is passed over."""
        while (answer := wire.decode(wire.read_frame(self._connection))).opaque != opaque:
            assert answer.code == MEMBERS_CHANGED
        return answer

    def pull(self, offset: int, **changes: object) -> Answer:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
        fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
        fields |= {"expressionType": "TAG"} | changes
        return self.ask(PULL, {key: str(value) for key, value in fields.items() if value is not None})

    def heartbeat(self, expression: str, version: int = 0) -> None:
        subscription = {"topic": TOPIC, "subString": expression, "subVersion": version, "expressionType": "TAG"}
        tags = [] if expression == "*" else [tag.strip() for tag in expression.split("||")]
        subscription |= {"tagsSet": tags, "codeSet": [2112] if "Aa" in tags else [], "classFilterMode": False}
        member: dict[str, object] = {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
        }
        member |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription]}
        told = {"clientID": "reader", "consumerDataSet": [member], "producerDataSet": []}
        assert self.ask(HEARTBEAT, body=json.dumps(told).encode()).code == SUCCESS

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Address]]:
    """Java's and ours, with the same messages in queue 0 of the topic."""
    directory = tmp_path_factory.mktemp("reading")
    settings = {"storePathRootDir": directory / "store", "storePathCommitLog": directory / "store" / "commitlog"}
    with ExitStack() as stack:
        java = stack.enter_context(java_broker(directory, RELEASE, NOBODY, settings | {"diskMaxUsedSpaceRatio": 95}))
        ours = stack.enter_context(cluster(processes=True))
        host, _, port = ours.brokers[0].address.partition(":")
        addresses = {"java": java.address, "ours": (host, int(port))}
        for address in addresses.values():
            fill(address)
        yield addresses


def fill(address: Address) -> None:
    fields = {"topic": TOPIC, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false"}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    assert wire.call(address, UPDATE_TOPIC, fields).code == SUCCESS
    for number, tag in enumerate(TAGS):
        properties = f"KEYS\x01key-{number} all\x02UNIQ_KEY\x01unique-{number}\x02"
        properties += f"TAGS\x01{tag}\x02" if tag else ""
        numbers = {"d": "4", "e": "0", "f": "0", "g": str(1_700_000_000_000 + number), "h": "0", "j": "0"}
        sent = {"a": "PG", "b": TOPIC, "c": "TBW102", "i": properties, "k": "false", **numbers}
        assert wire.call(address, SEND, sent, f"body {number}".encode()).code == SUCCESS
    await_that("all messages can be read", lambda: len(stored(address)) == len(TAGS) or None, WAIT_S)


def stored(address: Address) -> list[Any]:
    talk = Talk(address)
    answer = talk.pull(0)
    talk.close()
    return decode_records(answer.body) if answer.code == SUCCESS else []


def told(answer: Answer) -> tuple[object, ...]:
    """What a client acts on."""
    if answer.code not in (SUCCESS, NOT_FOUND, RETRY, MOVED):
        return (answer.code,)
    place = [answer.fields[key] for key in ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")]
    return answer.code, *place, [message.body for message in decode_records(answer.body)]


PULLS: dict[str, tuple[int, dict[str, object]]] = {
    "before the first": (-1, {}),
    "all": (0, {}),
    "from the middle": (5, {}),
    "the last": (9, {}),
    "at the end": (10, {}),
    "behind the end": (11, {}),
    "far behind the end": (1_000_000, {}),
    "one": (0, {"maxMsgNums": 1}),
    "three": (2, {"maxMsgNums": 3}),
    "no message at all": (0, {"maxMsgNums": 0}),
    "many": (0, {"maxMsgNums": 1000}),
    "colliding tags": (0, {"subscription": "Aa"}),
    "two tags": (0, {"subscription": " Aa || C "}),
    "two tags, few messages": (0, {"subscription": "Aa||C", "maxMsgNums": 2}),
    "a tag nobody has": (3, {"subscription": "Nobody"}),
    "no expression": (0, {"subscription": None}),
    "an empty expression": (0, {"subscription": ""}),
    "a blank": (0, {"subscription": " "}),
    "separators only": (0, {"subscription": "||"}),
    "no type": (0, {"expressionType": None}),
    "class filter": (0, {"sysFlag": 12}),
    "an empty queue": (0, {"queueId": 1}),
    "behind an empty queue": (5, {"queueId": 1}),
    "a queue that is not there": (0, {"queueId": 4}),
    "a queue below all": (0, {"queueId": -1}),
    "a topic that is not there": (0, {"topic": "Nobody"}),
    "a group without members": (0, {"sysFlag": 0}),
}


@pytest.mark.short
@pytest.mark.feature("F212", "F266", "F270")
@pytest.mark.parametrize("name", PULLS)
def test_a_pull_is_told_the_same_by_both(brokers: dict[str, Address], name: str) -> None:
    offset, changes = PULLS[name]
    answers = {}
    for kind, address in brokers.items():
        talk = Talk(address)
        answers[kind] = told(talk.pull(offset, **changes))
        talk.close()
    assert answers["ours"] == answers["java"]


@pytest.mark.feature("F205", "F268")
def test_a_push_consumers_filter_and_version_count_the_same_for_both(brokers: dict[str, Address]) -> None:
    answers: dict[str, list[object]] = {}
    for kind, address in brokers.items():
        talk = Talk(address)
        talk.heartbeat("Aa", version=5)
        asked = [talk.pull(0, sysFlag=0, subVersion=version, subscription=None) for version in (0, 5, 6)]
        talk.heartbeat("*", version=6)
        asked += [talk.pull(0, sysFlag=0, subVersion=6), talk.pull(0, sysFlag=0, topic="TBW102")]
        answers[kind] = [told(answer) for answer in asked]
        talk.close()
    assert answers["ours"] == answers["java"]
    assert [answer[0] for answer in answers["ours"]] == [0, 0, 25, 0, 24]  # type: ignore[index]


def test_a_pull_that_commits_moves_the_group_in_both(brokers: dict[str, Address]) -> None:
    place = {"consumerGroup": "Committing", "topic": TOPIC, "queueId": "0"}
    for address in brokers.values():
        talk = Talk(address)
        for flag, offset, expected in ((5, 4, "4"), (4, 6, "4"), (5, 2, "2")):
            assert talk.pull(0, consumerGroup="Committing", sysFlag=flag, commitOffset=offset).code == SUCCESS
            assert talk.ask(QUERY_OFFSET, place).fields == {"offset": expected}
        talk.close()


@pytest.mark.feature("F208")
def test_a_waiting_pull_is_answered_by_the_message_in_both(brokers: dict[str, Address]) -> None:
    for address in brokers.values():
        talk, sender = Talk(address), Talk(address)
        frame = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "3", "queueOffset": "0", "maxMsgNums": "32"}
        frame |= {"sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0"}
        talk.send(wire.request_frame(PULL, frame | {"subscription": "*"}, opaque=77))
        numbers = {"d": "4", "e": "3", "f": "0", "g": "0", "h": "0", "j": "0"}
        sent = {"a": "PG", "b": TOPIC, "c": "TBW102", "i": "", "k": "false", **numbers}
        assert sender.ask(SEND, sent, b"awaited").code == SUCCESS
        answer = talk.answer(77)
        assert answer.code == SUCCESS
        assert [message.body for message in decode_records(answer.body)] == [b"awaited"]
        talk.close()
        sender.close()


def test_offsets_of_a_queue_are_the_same_and_times_find_them_by_the_same_rule(brokers: dict[str, Address]) -> None:
    answers = {}
    for kind, address in brokers.items():
        talk = Talk(address)
        asked = [
            talk.ask(code, {"topic": topic, "queueId": str(queue_id)})
            for code in (MAX_OFFSET, MIN_OFFSET)
            for topic, queue_id in ((TOPIC, 0), (TOPIC, 1), ("Nobody", 0))
        ]
        answers[kind] = [(answer.code, answer.fields) for answer in asked]
        times_ms = [message.stored_at for message in stored(address)]
        earliest = talk.ask(EARLIEST, {"topic": TOPIC, "queueId": "0"})
        assert earliest.fields == {"timestamp": str(times_ms[0])}
        for time_ms in {times_ms[0] - 1, *times_ms, times_ms[-1] + 1}:
            place = {"topic": TOPIC, "queueId": "0", "timestamp": str(time_ms)}
            later = sum(each < time_ms for each in times_ms)
            last = max(sum(each <= time_ms for each in times_ms) - 1, 0)
            assert talk.ask(SEARCH, place).fields == {"offset": str(later)}, kind
            assert talk.ask(SEARCH, place | {"boundaryType": "LOWER"}).fields == {"offset": str(later)}, kind
            assert talk.ask(SEARCH, place | {"boundaryType": "UPPER"}).fields == {"offset": str(last)}, kind
        talk.close()
    assert answers["ours"] == answers["java"]


def is_indexed(found: Callable[[str], tuple[int, list[bytes], list[str]]]) -> bool | None:
    return found(f"key-{len(TAGS) - 1}")[0] == SUCCESS or None


@pytest.mark.feature("F128")
def test_keys_and_places_find_the_same_messages_in_both(brokers: dict[str, Address]) -> None:
    answers = {}
    for kind, address in brokers.items():
        talk = Talk(address)

        def found(
            key: str, talk: Talk = talk, unique: bool = False, count_max: int = 32
        ) -> tuple[int, list[bytes], list[str]]:
            fields = {"topic": TOPIC, "key": key, "maxNum": str(count_max), "beginTimestamp": "0"}
            fields |= {"endTimestamp": str((1 << 63) - 1), "_UNIQUE_KEY_QUERY": str(unique).lower()}
            answer = talk.ask(QUERY_KEY, fields)
            return answer.code, [message.body for message in decode_records(answer.body)], sorted(answer.fields)

        await_that("the last key is indexed", partial(is_indexed, found), WAIT_S)
        answers[kind] = [found("key-3"), found("all"), found("all", count_max=2), found("nobody's")]
        answers[kind] += [found("unique-4", unique=True), found("unique-4")]
        third = stored(address)[3]
        view = talk.ask(VIEW, {"offset": str(third.physical_offset), "topic": TOPIC})
        assert [message.body for message in decode_records(view.body)] == [b"body 3"]
        assert talk.ask(VIEW, {"offset": str(1 << 40), "topic": TOPIC}).code == 1
        talk.close()
    assert answers["ours"] == answers["java"]


def test_entries_of_a_queue_look_the_same(brokers: dict[str, Address]) -> None:
    shown = {}
    for kind, address in brokers.items():
        talk = Talk(address)
        talk.heartbeat("Aa")
        answer = talk.ask(ENTRIES, {"topic": TOPIC, "queueId": "0", "index": "2", "count": "3", "consumerGroup": GROUP})
        content = wire.parse(answer.body)
        # Whether a group would get them is said here for tags too; Java says it where queues have extensions only.
        entries = [entry["tagsCode"] for entry in content["queueData"]]
        shown[kind] = answer.code, content["minQueueIndex"], content["maxQueueIndex"], entries
        talk.close()
    assert shown["ours"] == shown["java"]
