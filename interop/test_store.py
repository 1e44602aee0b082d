"""Store directories change hands: written by Java and opened by ours, written by ours and opened by Java.

After a clean stop and after `kill -9`, with 4.9.7 and 5.5.0. Messages are sent and pulled with raw frames, so that only
the two stores meet. The golden stores under tests/golden are made by the same writer: see `make_golden` below.
"""

import json
import signal
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.protocol.properties import encode_properties
from bolide.store.record import Draft, decode
from bolide.store.store import Store
from interop.cluster import Broker, java_broker
from interop.release import SERVER_RELEASES
from interop.wire import call
from tests.golden.written import COUNT, HOST, QUEUES, SIZES, TOPIC, body_of, check_ours, our_config, properties_of

SEND, PULL, MAX_OFFSET = 310, 11, 30
NOBODY = "127.0.0.1:1"  # no name server is needed

releases = pytest.mark.parametrize("release", SERVER_RELEASES)
endings = pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])


def java_settings(root: Path) -> dict[str, object]:
    """Tiny files; both spellings of each size, for 4.x and 5.x differ."""
    return {
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        "mapedFileSizeCommitLog": SIZES["segment"],
        "mappedFileSizeCommitLog": SIZES["segment"],
        "mapedFileSizeConsumeQueue": SIZES["queue"],
        "mappedFileSizeConsumeQueue": SIZES["queue"],
        "maxHashSlotNum": SIZES["slots"],
        "maxIndexNum": SIZES["entries"],
        "timerWheelEnable": False,
        "diskMaxUsedSpaceRatio": 95,
    }


def send_to(broker: Broker, first: int, count: int) -> None:
    for number in range(first, first + count):
        fields = {
            "a": "pg",
            "b": TOPIC,
            "c": "TBW102",
            "d": str(QUEUES),
            "e": str(number % QUEUES),
            "f": "0",
            "g": "1700000000000",
            "h": "0",
            "j": "0",
            "k": "false",
            "m": "false",
            "i": encode_properties(properties_of(number)).decode(),
        }
        answer = call(broker.address, SEND, fields, body_of(number))
        assert answer.code == 0, answer


def pull_all(broker: Broker, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Queue offset and body of every message, pulled as a consumer pulls."""
    high = call(broker.address, MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
    offset, end = 0, int(high.fields["offset"])
    while offset < end:
        fields = {
            "consumerGroup": "cg",
            "topic": TOPIC,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        answer = call(broker.address, PULL, fields)
        at = 0
        while at < len(answer.body):
            size = int.from_bytes(answer.body[at : at + 4], "big")
            record = decode(answer.body[at : at + size])
            yield record.queue_offset, record.body
            at += size
        assert int(answer.fields["nextBeginOffset"]) > offset, answer
        offset = int(answer.fields["nextBeginOffset"])


def write_by_java(
    directory: Path, release: str, root: Path, is_clean: bool, first: int = 0, count: int = COUNT
) -> None:
    with java_broker(directory, release, NOBODY, java_settings(root)) as broker:
        send_to(broker, first, count)
        end_broker(broker, is_clean)


def end_broker(broker: Broker, is_clean: bool) -> None:
    broker.program.signal(signal.SIGTERM if is_clean else signal.SIGKILL)
    broker.program.wait(60)


def write_by_us(root: Path, is_clean: bool, first: int = 0, count: int = COUNT) -> None:
    store = Store.open(our_config(root), SystemClock(), HOST)
    for number in range(first, first + count):
        properties = encode_properties(properties_of(number))
        store.append([Draft(TOPIC, number % QUEUES, body_of(number), properties, 0, 0, 1_700_000_000_000, HOST)])
    if is_clean:
        store.close()
    else:
        store.abandon()
    write_topics(root)


def write_topics(root: Path) -> None:
    """Tell the Java broker of the topic: that table is the broker's, not the store's."""
    topic = {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "order": False}
    topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {TOPIC: topic}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps(table))


def check_java(broker: Broker, count: int = COUNT) -> None:
    for queue_id in range(QUEUES):
        expected = [body_of(number) for number in range(queue_id, count, QUEUES)]
        assert list(pull_all(broker, queue_id)) == list(enumerate(expected))


@releases
@endings
def test_a_store_written_by_java_opens_in_ours(tmp_path: Path, release: str, is_clean: bool) -> None:
    root = tmp_path / "store"
    write_by_java(tmp_path, release, root, is_clean)
    assert (root / "abort").exists() != is_clean
    check_ours(root)


@releases
@endings
@pytest.mark.short
def test_a_store_written_by_ours_opens_in_java(tmp_path: Path, release: str, is_clean: bool) -> None:
    root = tmp_path / "store"
    write_by_us(root, is_clean)
    with java_broker(tmp_path, release, NOBODY, java_settings(root)) as broker:
        check_java(broker)


@releases
@endings
def test_a_store_goes_back_and_forth(tmp_path: Path, release: str, is_clean: bool) -> None:
    root = tmp_path / "store"
    write_by_us(root, is_clean, 0, 100)
    write_by_java(tmp_path, release, root, is_clean, 100, 60)
    check_ours(root, 160)
    write_by_us(root, is_clean, 160, 80)
    with java_broker(tmp_path, release, NOBODY, java_settings(root)) as broker:
        check_java(broker, 240)


def make_golden(target: Path) -> None:
    """Write tests/golden: python -m interop.test_store tests/golden"""
    for release in SERVER_RELEASES:
        for is_clean in (True, False):
            with tempfile.TemporaryDirectory() as directory:
                root = Path(directory) / "store"
                write_by_java(Path(directory), release, root, is_clean)
                name = f"java-{release}-{'stopped' if is_clean else 'killed'}.tar.gz"
                with tarfile.open(target / name, "w:gz", compresslevel=9) as pack:
                    for part in ("commitlog", "consumequeue", "index", "checkpoint", "abort"):
                        if (root / part).exists():
                            pack.add(root / part, part)


if __name__ == "__main__":
    make_golden(Path(sys.argv[1]))
