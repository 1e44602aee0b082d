"""What operators ask of the broker itself, over a real port and a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bolide.broker.admin.refusals import REASONS, refusals
from bolide.broker.admin.status import Status
from bolide.broker.stats import Stats
from bolide.clock import SystemClock
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.brokers import BrokerStats
from bolide.protocol.bodies.routes import DataVersion, KVTable
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handlers
from bolide.settings import read_properties
from bolide.store.store import Store
from tests.broker.open_tables import Tables, tables
from tests.remoting.ends import Peer, Table, served
from tests.store.given import draft

SMALL = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "64"}
SMALL |= {"maxIndexNum": "256", "diskMaxUsedSpaceRatio": "100", "diskSpaceCleanForciblyRatio": "100"}
SMALL |= {"diskSpaceWarningLevelRatio": "100"}
# What mqadmin brokerStatus of 4.9.7 and 5.5.0 brokers prints, but for what is not counted here.
NOT_COUNTED = {"getMessageEntireTimeMax", "putMessageFailedTimes"}
JAVA_STATUS = """EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
    ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion
    brokerVersionDesc commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset
    consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps
    getMessageEntireTimeMax getMissTps getTotalTps getTransferedTps getTransferredTps litePullThreadPoolQueueCapacity
    litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning msgGetTotalTodayNow
    msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning
    pageCacheLockTimeMills pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize
    putLatency99 putLatency999 putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax
    putMessageFailedTimes putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
    remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
    sendThreadPoolQueueSize startAcceptSendRequestTimeStamp timerCongestNum timerDequeueTps timerEnqueueTps
    timerOffsetBehind timerReadBehind"""
JAVA_KEYS = set(JAVA_STATUS.split())


@dataclass
class Rig:
    kept: Tables
    stats: Stats
    store: Store
    peer: Peer

    async def ask(self, code: int, body: bytes = b"", **fields: str) -> Command:
        return await self.peer.ask(Command(code, opaque=1, fields=fields, body=body))


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Rig]:
    clock = SystemClock()
    async with tables(root, clock, **SMALL) as kept:
        with Store.open(kept.settings.now.store, clock) as store:
            state = kept.state(store)
            status = Status(state, kept.file_thread, timers=None)
            answered = status.handlers()
            handlers = Handlers(answered, refusals(answered))
            async with served(Table(handlers.serve)) as server:
                peer = await Peer.connect(server.port)
                yield Rig(kept, state.stats, store, peer)
                peer.leave()


def with_broker(root: Path, scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving(root) as rig:
            await scenario(rig)

    asyncio.run(main())


def test_the_status_has_every_key_that_tools_of_both_releases_print(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.store.append([draft(b"x" * 100), draft(b"y" * 100)])
        rig.stats.put("T", 2, 400)
        rig.stats.took(2, 3)
        rig.stats.got("G", "T", 1, 200)
        answer = await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(answer.body).table
        directory = rig.kept.settings.now.store.log_directory
        ours = {f"commitLogDiskRatio_{directory}", "passedOverBytesAtStart", "passedOverTotal"}
        ours |= {"brokerRole", "brokerId"}
        assert table.keys() == (JAVA_KEYS - NOT_COUNTED) | ours
        assert all(value for value in table.values())
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("2", "1")
        assert (table["putMessageSizeTotal"], table["putMessageAverageSize"]) == ("400", "200.0")
        assert table["commitLogMaxOffset"] == str(rig.store.commitlog.end)
        assert int(table["earliestMessageTimeStamp"]) >= rig.stats.booted_ms
        # What clusterList parses: three decimals, a ratio.
        rates = {key: [float(word) for word in table[key].split(" ")] for key in ("putTps", "getTransferedTps")}
        assert all(len(rate) == 3 for rate in rates.values())
        assert rates["putTps"][0] > rates["getTransferedTps"][0] > 0
        assert table["getTransferredTps"] == table["getTransferedTps"]
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1

    with_broker(tmp_path, scenario)


def test_the_status_tells_what_was_passed_over_by_whom(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        places = rig.store.append([draft(b"x" * 100), draft(b"y" * 100)]).physical_offsets
        segment = rig.store.segment_at(places[0])
        assert segment is not None
        segment.write(bytes(8), places[0])
        assert len(rig.store.read(QueueKey("T", 0), 0, 8).views) == 1
        table = KVTable.decode((await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert (table["passedOverTotal"], table["passedOver_store.read"]) == ("1", "1")
        assert table["passedOverBytesAtStart"] == "0"

    with_broker(tmp_path, scenario)


def test_an_empty_broker_has_no_earliest_message(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        table = KVTable.decode((await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert table["earliestMessageTimeStamp"] == "-1"

    with_broker(tmp_path, scenario)


def test_a_changed_setting_is_in_force_shown_and_kept_in_the_file(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        heard: list[bool] = []
        rig.kept.settings.listen(lambda: heard.append(rig.kept.settings.now.creates_topics))
        before = await rig.ask(RequestCode.GET_BROKER_CONFIG)
        answer = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false\nfileReservedTime=7\n")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert heard == [False]
        assert rig.store.config.keep_hours == 7
        after = await rig.ask(RequestCode.GET_BROKER_CONFIG)
        texts = read_properties(after.body.decode())
        assert (texts["autoCreateTopicEnable"], texts["fileReservedTime"]) == ("false", "7")
        versions = [DataVersion.decode(answer.fields["version"].encode()) for answer in (before, after)]
        assert [version.counter for version in versions] == [0, 1]
        kept = rig.kept.settings.now.changes_path.read_text()
        assert read_properties(kept) == {"autoCreateTopicEnable": "false", "fileReservedTime": "7"}

    with_broker(tmp_path, scenario)


def test_a_changed_permission_is_news_for_name_servers(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        told: list[str] = []
        rig.kept.topics.update(TopicConfig(topic_name="T"))
        rig.kept.topics.listen(told.extend)
        version = rig.kept.topics.version
        await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=false")
        assert rig.kept.topics.version == version
        await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
        assert rig.kept.topics.version.counter == version.counter + 1
        assert "T" in told

    with_broker(tmp_path, scenario)


def test_one_refused_key_refuses_all(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=false\nlistenPort=1\n")
        assert (answer.code, "read at the start only" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
        assert rig.kept.settings.now.is_traced
        assert not rig.kept.settings.now.changes_path.exists()

    with_broker(tmp_path, scenario)


def test_changes_that_come_together_are_all_in_force(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        bodies = [b"traceOn=false", b"fileReservedTime=9", b"brokerPermission=4"]
        rig.peer.send(*(Command(RequestCode.UPDATE_BROKER_CONFIG, opaque=n, body=b) for n, b in enumerate(bodies)))
        assert [answer.code for answer in await rig.peer.answers(3)] == [0, 0, 0]
        config = rig.kept.settings.now
        assert (config.is_traced, config.store.keep_hours, config.permission) == (False, 9, 4)
        assert len(read_properties(config.changes_path.read_text())) == 3

    with_broker(tmp_path, scenario)


def test_a_setting_that_cannot_be_kept_is_not_in_force(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.kept.settings.now.changes_path.mkdir(parents=True)  # a directory where the file should be
        answer = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=false")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert rig.kept.settings.now.is_traced

    with_broker(tmp_path, scenario)


def test_counters_are_viewed_by_name_and_key(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.stats.put("T", 3, 699)
        answer = await rig.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_SIZE", statsKey="T")
        assert BrokerStats.decode(answer.body).stats_minute.avgpt == 233.0
        answer = await rig.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_SIZE", statsKey="U")
        assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_SIZE> <U> not exist")

    with_broker(tmp_path, scenario)


def test_queues_of_topics_that_are_not_in_the_table_are_deleted(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.kept.topics.update(TopicConfig(topic_name="kept"))
        rig.store.append([draft(b"1", "kept"), draft(b"2", "unused"), draft(b"3", "rmq_sys_own")])
        assert (await rig.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert {topic for topic, _ in rig.store.dispatch.queues} == {"kept", "rmq_sys_own"}
        assert not (tmp_path / "consumequeue" / "unused").exists()
        # Should the topic come back, its queue begins anew.
        assert rig.store.append([draft(b"4", "unused")]).queue_offsets == [0]
        queue = rig.store.queue(QueueKey("unused", 0))
        assert queue is not None
        assert queue.next_offset == 1

    with_broker(tmp_path, scenario)


def test_expired_segments_go_when_asked_whatever_the_hour(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        other_hours = ";".join(f"{hour:02d}" for hour in range(24) if hour != local_hour())
        settings = f"fileReservedTime=0\ndeleteWhen={other_hours}\n".encode()
        assert (await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, settings)).code == 0
        for _ in range(6):
            rig.store.append([draft(b"x" * 8000)])
        rig.store.flush()
        assert rig.store.clean() == []
        assert (await rig.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        assert rig.store.clean()[:1] == [0]
        assert (await rig.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        queue = rig.store.queue(QueueKey("T", 0))
        assert queue is not None
        assert queue.min_offset > 0

    with_broker(tmp_path, scenario)


def local_hour() -> int:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).astimezone().hour


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, "name server"),
        (RequestCode.AUTH_CREATE_USER, "access control"),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, "access control"),
        (RequestCode.RESET_MASTER_FLUSH_OFFSET, "flushed"),
        (RequestCode.CONTROLLER_ELECT_MASTER, "controller"),
        (RequestCode.SUSPEND_CONSUMER, "reserves"),
    ],
)
def test_a_refusal_names_the_request_and_what_is_missing(tmp_path: Path, code: RequestCode, words: str) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.ask(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark is not None
        assert f"request type {code.value} ({code.name}) not supported" in answer.remark
        assert words in answer.remark

    with_broker(tmp_path, scenario)


def test_a_code_that_somebody_answers_is_not_refused() -> None:
    answered = RequestCode.RESET_MASTER_FLUSH_OFFSET
    assert answered in refusals([])
    assert refusals([answered]).keys() == REASONS.keys() - {answered}
