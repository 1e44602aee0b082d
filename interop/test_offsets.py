"""Offsets of groups change hands: our file opened by a Java broker, and the one it writes opened by ours."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bolide.broker.tables.offsets import FILE_NAME, Offsets
from bolide.broker.tables.table_files import TableWriter
from bolide.clock import SystemClock
from interop.cluster import Broker, java_broker
from interop.release import SERVER_RELEASES
from interop.wire import call

NOBODY = "127.0.0.1:1"  # no name server is needed
UPDATE_TOPIC, UPDATE_GROUP, QUERY_OFFSET, UPDATE_OFFSET = 17, 200, 14, 15
TOPIC, GROUP = "OffsetTest", "cg"


def write_ours(directory: Path, offsets: dict[int, int]) -> None:
    async def write() -> None:
        with ThreadPoolExecutor(1) as file_thread:
            table_writer = TableWriter(file_thread)
            ours = Offsets(directory, table_writer, SystemClock())
            for queue_id, offset in offsets.items():
                ours.put(GROUP, TOPIC, queue_id, offset)
                ours.put("订单-group", TOPIC, queue_id, offset + 1)
            await ours.stop()
            await table_writer.write_due()

    asyncio.run(write())


def read_by_ours(directory: Path) -> dict[str, dict[int, int]]:
    async def read() -> dict[str, dict[int, int]]:
        with ThreadPoolExecutor(1) as file_thread:
            return Offsets(directory, TableWriter(file_thread), SystemClock()).table

    return asyncio.run(read())


def queue_fields(queue_id: int, **more: str) -> dict[str, str]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id), **more}


def stored_offset(broker: Broker, queue_id: int) -> int:
    answer = call(broker.address, QUERY_OFFSET, queue_fields(queue_id))
    assert answer.code == 0, answer
    return int(answer.fields["offset"])


def make_topic_and_group(broker: Broker) -> None:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert call(broker.address, UPDATE_TOPIC, fields).code == 0
    assert call(broker.address, UPDATE_GROUP, body=b'{"groupName":"%s"}' % GROUP.encode()).code == 0


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_offsets_go_from_ours_to_java_and_back(tmp_path: Path, release: str) -> None:
    root = tmp_path / "store"
    directory = root / "config"
    write_ours(directory, {0: 12, 1: 9})
    settings = {"storePathRootDir": root, "storePathCommitLog": root / "commitlog", "diskMaxUsedSpaceRatio": 95}
    with java_broker(tmp_path, release, NOBODY, settings) as broker:
        assert [stored_offset(broker, queue_id) for queue_id in range(2)] == [12, 9]
        make_topic_and_group(broker)
        assert call(broker.address, UPDATE_OFFSET, queue_fields(1, commitOffset="5000000000")).code == 0
        broker.program.stop(60)
    text = (directory / FILE_NAME).read_text("utf-8")
    assert re.search(r"[{,]\s*1\s*:\s*5000000000", text), "Java leaves queue ids bare"
    assert read_by_ours(directory) == {
        f"{TOPIC}@{GROUP}": {0: 12, 1: 5_000_000_000},
        f"{TOPIC}@订单-group": {0: 13, 1: 10},
    }
