"""POP: consumers of RocketMQ 5.5.0 that leave the sharing out to our broker, and its broker with what ours has out."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bolide.protocol.headers.poptext import PopHandle, PoppedQueue, PoppedRange, build_handle, parse_popped
from bolide.protocol.records import decode_records
from bolide.testing import cluster
from interop import wire
from interop.clients import JavaClient, java_client
from interop.cluster import bolide_name_server, java_broker, java_name_server
from interop.process import POLL_INTERVAL_S, await_that
from interop.tools import Tool
from interop.wire import Address

RELEASE = "5.5.0"
TOPIC, GROUP = "PopTopic", "PopGroup"
SEND, UPDATE_TOPIC, SET_MODE, POP, ACK, POLLING_COUNT = 310, 17, 401, 200050, 200051, 200055
GET_MAX_OFFSET, QUERY_OFFSET = 30, 14
OUT_OF_CLIENT_MAX = 96 + 32  # its threshold, and one pop more
MESSAGE_COUNT = 300
WAIT_S = 60.0
INVISIBLE_S = 10


@contextmanager
def broker_of(kind: str, directory: Path) -> Iterator[tuple[str, Address]]:
    """A name server and a broker with the topic: ours, or RocketMQ's, which shows that the scenario is fair."""
    if kind == "bolide":
        with cluster(processes=True) as ours:
            ours.create_topic(TOPIC, 4)
            yield ours.namesrv, address_of(ours.brokers[0].address)
        return
    with java_name_server(directory, kind) as server, java_broker(directory, kind, server.endpoint) as broker:
        create_topic(broker.address)
        broker.await_route(server)
        yield server.endpoint, broker.address


def address_of(endpoint: str) -> Address:
    host, _, port = endpoint.partition(":")
    return host, int(port)


def create_topic(broker: Address) -> None:
    fields = {"topic": TOPIC, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false"}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    assert wire.call(broker, UPDATE_TOPIC, fields).code == 0


def send(broker: Address, *bodies: str) -> None:
    numbers = {"d": "4", "f": "0", "g": "0", "h": "0", "j": "0"}
    for number, body in enumerate(bodies):
        fields = {"a": "PG", "b": TOPIC, "c": "TBW102", "e": str(number % 4), "i": "", "k": "false", **numbers}
        assert wire.call(broker, SEND, fields, body.encode()).code == 0


def let_pop(broker: Address) -> None:
    mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC}
    assert wire.call(broker, SET_MODE, body=json.dumps(mode).encode()).code == 0


def count_waiting(broker: Address) -> int:
    answer = wire.call(broker, POLLING_COUNT, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"})
    assert answer.code == 0
    return int(answer.fields["pollingNum"])


@contextmanager
def popper(directory: Path, namesrv: str, instance: str, **arguments: object) -> Iterator[JavaClient]:
    named = {"namesrv": namesrv, "topic": TOPIC, "group": GROUP, "instance": instance}
    with java_client(directory, RELEASE, "PopConsume", {**named, **arguments}) as consumer:
        consumer.program.await_output('"started"', WAIT_S)
        yield consumer


def received(*consumers: JavaClient) -> list[tuple[str, int]]:
    """Body and number of the try, of everything so far."""
    return [(event["body"], event["times"]) for one in consumers for event in one.events("received")]


def for_longer_than_invisible(holds: Callable[[], bool]) -> None:
    """What is claimed goes on to be so while anything that was not acknowledged would come again."""
    deadline_s = time.monotonic() + INVISIBLE_S + 2
    while time.monotonic() < deadline_s:
        assert holds()
        time.sleep(POLL_INTERVAL_S)


@pytest.mark.feature("X01", "X24")
@pytest.mark.parametrize("kind", ["bolide", RELEASE])
def test_consumers_share_all_queues_and_get_failed_messages_again(tmp_path: Path, kind: str) -> None:
    with broker_of(kind, tmp_path) as (namesrv, broker):
        let_pop(broker)
        with (
            popper(tmp_path, namesrv, "one", invisibleMs=INVISIBLE_S * 1000, slowMs=15_000) as one,
            popper(tmp_path, namesrv, "two", invisibleMs=INVISIBLE_S * 1000, slowMs=15_000) as two,
        ):
            await_that("both wait for messages", lambda: count_waiting(broker) == 2 or None, WAIT_S)
            plain = {f"message {number}" for number in range(MESSAGE_COUNT)}
            send(broker, *plain, "fail 1", "fail 2", "slow 1")
            failing = {("fail 1", 1), ("fail 2", 1), ("slow 1", 1)}
            await_that("all came, the failed ones twice", lambda: failing <= set(received(one, two)) or None, WAIT_S)
            await_that("all came", lambda: plain <= {body for body, _ in received(one, two)} or None, WAIT_S)
            assert one.events("received")
            assert two.events("received")
            expected = Counter([*plain, *2 * ["fail 1", "fail 2", "slow 1"]])
            for_longer_than_invisible(lambda: Counter(body for body, _ in received(one, two)) == expected)
            assert {event["topic"] for event in one.events("received") + two.events("received")} == {TOPIC}


@pytest.mark.feature("X01")
def test_a_broker_killed_under_poppers_loses_nothing_and_gives_little_twice(tmp_path: Path) -> None:
    with cluster(processes=True) as ours:
        ours.create_topic(TOPIC, 4)
        broker = address_of(ours.brokers[0].address)
        let_pop(broker)
        bodies = [f"message {number}" for number in range(MESSAGE_COUNT)]
        early, late = bodies[: MESSAGE_COUNT // 2], bodies[MESSAGE_COUNT // 2 :]
        with popper(tmp_path, ours.namesrv, "one", invisibleMs=INVISIBLE_S * 1000) as one:
            send(broker, *early)
            one.await_events("received", len(early), WAIT_S)
            await_that("all is acknowledged", lambda: is_settled(broker) or None, WAIT_S)
            send(broker, *late)
            ours.brokers[0].kill()
            ours.brokers[0].start()
            await_that("all came", lambda: set(bodies) <= {body for body, _ in received(one)} or None, WAIT_S)

            def is_fair() -> bool:
                """What was acknowledged comes once; what was out may come again, no more than a client keeps."""
                counts = Counter(body for body, _ in received(one))
                again = sum(counts[body] - 1 for body in late)
                return {counts[body] for body in early} == {1} and again <= OUT_OF_CLIENT_MAX

            for_longer_than_invisible(is_fair)


def is_settled(broker: Address) -> bool:
    """Whether nothing is out: every record of the revive topic is behind its group."""
    for queue_id in range(8):
        place = {"topic": "rmq_sys_REVIVE_LOG_DefaultCluster", "queueId": str(queue_id)}
        end = int(wire.call(broker, GET_MAX_OFFSET, place).fields["offset"])
        asked = {**place, "consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP", "setZeroIfNotFound": "false"}
        answer = wire.call(broker, QUERY_OFFSET, asked)
        if end and (answer.code or int(answer.fields["offset"]) != end - 1):
            return False
    return True


@pytest.mark.feature("X24")
def test_mqadmin_sets_how_a_group_consumes(tmp_path: Path) -> None:
    with cluster(processes=True) as ours:
        ours.create_topic(TOPIC, 4)
        tool, broker = Tool(RELEASE, ours.namesrv, tmp_path), ours.brokers[0]
        words = ("setConsumeMode", "-b", broker.address, "-t", TOPIC, "-g", GROUP, "-m")
        assert "success" in tool.run(*words, "POP", "-q", "3")
        kept = json.loads((broker.directory / "store" / "config" / "messageRequestMode.json").read_text())
        mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3, "topic": TOPIC}
        assert kept == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
        broker.restart()
        assert "success" in tool.run(*words, "PULL")


# Between the brokers


def pop(broker: Address, broker_name: str, invisible_ms: int) -> dict[str, PopHandle]:
    """Messages by body, with their handles."""
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "32", "pollTime": "0"}
    fields |= {"invisibleTime": str(invisible_ms), "bornTime": str(time.time_ns() // 1_000_000), "initMode": "0"}
    answer = wire.call(broker, POP, {**fields, "expType": "TAG", "exp": "*", "order": "false"})
    if answer.code:
        return {}
    told = answer.fields
    starts = {queue.queue_id: each.start for queue, each in _ranges(told).items()}
    return {
        message.body.decode(): PopHandle(
            start_offset=starts[message.queue_id],
            popped_ms=int(told["popTime"]),
            invisible_ms=invisible_ms,
            revive_queue_id=int(told["reviveQid"]),
            mark=next(iter(_ranges(told))).mark,
            broker_name=broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
        )
        for message in decode_records(answer.body)
    }


def _ranges(fields: dict[str, str]) -> dict[PoppedQueue, PoppedRange]:
    return parse_popped(fields["startOffsetInfo"], fields["msgOffsetInfo"])


def ack(broker: Address, handle: PopHandle) -> None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(handle.queue_id)}
    fields |= {"extraInfo": build_handle(handle), "offset": str(handle.queue_offset)}
    assert wire.call(broker, ACK, fields).code == 0


@pytest.mark.feature("X01")
def test_what_ours_has_out_comes_back_from_a_java_broker(tmp_path: Path) -> None:
    with cluster(processes=True, directory=tmp_path / "ours") as ours:
        node = ours.brokers[0]
        ours.create_topic(TOPIC, 4)
        broker, name = address_of(node.address), node.name
        send(broker, *[f"message {number}" for number in range(8)])
        out = pop(broker, name, 15_000)
        assert len(out) == 8
        for body in ("message 0", "message 5", "message 6"):
            ack(broker, out[body])
        root = node.directory / "store"
        node.stop()
        settings = {"brokerName": name, "brokerClusterName": "DefaultCluster", "storePathRootDir": root}
        settings |= {"storePathCommitLog": root / "commitlog", "mappedFileSizeCommitLog": 8 << 20}
        settings |= {"mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000, "maxIndexNum": 4000}
        with (
            bolide_name_server(tmp_path) as server,
            java_broker(tmp_path, RELEASE, server.endpoint, settings) as java,
        ):
            found: set[str] = set()

            def all_back() -> bool | None:
                found.update(pop(java.address, name, 60_000))
                return len(found) >= 5 or None

            await_that("the five that were out are back", all_back, WAIT_S)
            for_longer_than_invisible(lambda: not pop(java.address, name, 60_000))
            assert found == {f"message {number}" for number in (1, 2, 3, 4, 7)}
