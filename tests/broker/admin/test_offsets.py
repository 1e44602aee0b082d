"""Asking for offsets, committing them, and comparing them with what there is."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from bolide.broker.tables.offsets import FILE_NAME, parse
from bolide.protocol.bodies import (
    ConsumerOffsets,
    ConsumeStats,
    ConsumeStatsList,
    CorrectionOffsets,
    GroupList,
    QueueProgress,
    TimeSpans,
    TopicList,
)
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, Meeting, consumer, meeting, queue_fields
from tests.store.given import START_MS


async def query(guest: Guest, group: str, topic: str, queue_id: int, **more: str) -> tuple[int, str | None]:
    answer = await guest.ask(14, queue_fields(group, topic, queue_id, **more))
    return answer.code, answer.fields.get("offset")


async def commit(guest: Guest, group: str, topic: str, queue_id: int, offset: int) -> int:
    return (await guest.ask(15, queue_fields(group, topic, queue_id, commitOffset=offset))).code


def prepare(broker: Meeting, *groups: str, topic: str = "T") -> None:
    broker.topic(topic)
    for group in groups or ("g",):
        broker.tables.groups.find(group)


def test_what_is_committed_is_answered_also_backwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            for offset in (5, 9, 3):
                assert await commit(guest, "g", "T", 1, offset) == 0
                assert await query(guest, "g", "T", 1) == (0, str(offset))

    run(scenario())


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "code"),
    [("nobody", "T", 0, 26), ("g", "nothing", 0, 17), ("g", "T", 4, 29), ("g", "T", -1, 29)],
)
def test_a_commit_for_what_is_not_here_is_refused(
    tmp_path: Path, group: str, topic: str, queue_id: int, code: int
) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            assert await commit(guest, group, topic, queue_id, 1) == code
            assert await commit(guest, "g", "T", 0, -1) == 29
            assert not broker.offsets.table

    run(scenario())


def test_a_queue_of_a_topic_that_shrank_can_be_worked_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            await commit(guest, "g", "T", 3, 1)
            broker.topic("T", 2)
            assert await commit(guest, "g", "T", 3, 2) == 0
            assert await commit(guest, "g", "T", 2, 1) == 29

    run(scenario())


def test_a_new_group_begins_at_0_while_the_first_message_is_at_hand(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            assert await query(guest, "g", "T", 0) == (22, None), "an empty queue has no first message"
            broker.store_messages("T", 0, 3)
            assert await query(guest, "g", "T", 0) == (0, "0")
            assert await query(guest, "g", "T", 0, setZeroIfNotFound="false") == (22, None)
            assert await query(guest, "g", "T", 0, setZeroIfNotFound="true") == (0, "0")
            assert await query(guest, "g", "T", 1) == (22, None)

    run(scenario())


def test_a_new_group_is_on_its_own_when_the_first_message_is_far_or_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            broker.store_messages("T", 0, 3)
            broker.store.reader._near_size = 10  # as on a machine with hardly any memory
            assert await query(guest, "g", "T", 0) == (22, None)
            broker.store.reader._near_size = 1 << 30
            queue = broker.store.dispatch.queues["T", 0]
            queue.min_offset = 1
            assert await query(guest, "g", "T", 0) == (22, None)

    run(scenario())


@pytest.mark.feature("F014")
def test_committed_offsets_survive_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            await commit(guest, "g", "T", 0, 42)
        assert parse((tmp_path / "config" / FILE_NAME).read_text()).offset_table == {"T@g": {0: 42}}
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            assert await query(guest, "g", "T", 0) == (0, "42")

    run(scenario())


def test_a_slave_gets_the_whole_table(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker)
            await commit(guest, "g", "T", 0, 5)
            await commit(guest, "g", "T", 1, 9)
            answer = await guest.ask(43)
            assert ConsumerOffsets.decode(answer.body).offset_table == {"T@g": {0: 5, 1: 9}}
            document = msgspec.json.decode(answer.body)
            assert sorted(document) == ["dataVersion", "offsetTable"]

    run(scenario())


@pytest.mark.feature("F125", "F203")
def test_who_consumes_a_topic_are_those_online_and_those_with_an_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker, "gone")
            await commit(guest, "gone", "T", 0, 1)
            await guest.beat("c1", consumer("online", "T"), consumer("elsewhere", "U"))
            answer = await guest.ask(300, {"topic": "T"})
            assert GroupList.decode(answer.body).group_list == ["online", "gone"]
            answer = await guest.ask(343, {"group": "gone"})
            topics = TopicList.decode(answer.body)
            assert (topics.topic_list, topics.broker_addr) == (["T"], broker.address)

    run(scenario())


def test_progress_compares_what_was_settled_with_what_there_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with meeting(tmp_path, clock) as broker, broker.guest() as guest:
            prepare(broker)
            broker.topic("T", 2)
            for _ in range(10):
                await asyncio.sleep(1)  # virtual
                broker.store_messages("T", 0, 1)
            await commit(guest, "g", "T", 0, 8)
            broker.offsets.put_pulled("g", "T", 0, 9)
            answer = await guest.ask(208, {"consumerGroup": "g"})
            assert answer.code == 0
            stats = ConsumeStats.decode(answer.body)
            assert {queue.queue_id: progress for queue, progress in stats.offset_table.items()} == {
                0: QueueProgress(broker_offset=10, consumer_offset=8, last_timestamp=START_MS + 8_000, pull_offset=9),
                1: QueueProgress(),
            }
            assert {(queue.topic, queue.broker_name) for queue in stats.offset_table} == {("T", "broker-a")}
            assert stats.consume_tps == 0.0

    run(scenario())


async def _topics_in_progress(guest: Guest, **fields: str) -> set[str]:
    answer = await guest.ask(208, {"consumerGroup": "g", **fields})
    return {queue.topic for queue in ConsumeStats.decode(answer.body).offset_table}


def test_progress_is_shown_for_the_topics_a_group_still_wants(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            for topic in ("T", "U", "V"):
                prepare(broker, topic=topic)
                await commit(guest, "g", topic, 0, 1)
            broker.tables.topics.remove("V")
            assert await _topics_in_progress(guest) == {"T", "U"}
            assert await _topics_in_progress(guest, topic="U") == {"U"}
            assert await _topics_in_progress(guest, topicList="T;U;V") == {"T", "U"}
            await guest.beat("c1", consumer("g", "U"))
            assert await _topics_in_progress(guest) == {"U"}

    run(scenario())


def test_the_progress_of_all_groups_is_summed_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker, "g1", "g2")
            broker.topic("Ordered", 1, order=True)
            broker.store_messages("T", 0, 10)
            broker.store_messages("Ordered", 0, 4)
            await commit(guest, "g1", "T", 0, 7)
            await commit(guest, "g2", "T", 0, 10)
            await commit(guest, "g2", "Ordered", 0, 1)
            broker.offsets.put_pulled("g1", "T", 0, 9)
            stats = ConsumeStatsList.decode((await guest.ask(317, {"isOrder": "false"})).body)
            assert (stats.total_diff, stats.total_inflight_diff) == (3 + 3, 2)
            groups = {group: topics for each in stats.consume_stats_list for group, topics in each.items()}
            assert (len(groups["g1"]), len(groups["g2"]), groups["TOOLS_CONSUMER"]) == (1, 2, [])
            assert stats.broker_addr == broker.address
            stats = ConsumeStatsList.decode((await guest.ask(317, {"isOrder": "true"})).body)
            assert stats.total_diff == 3

    run(scenario())


def test_time_spans_tell_how_long_the_next_message_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with meeting(tmp_path, clock) as broker, broker.guest() as guest:
            prepare(broker)
            broker.topic("T", 2)
            for _ in range(5):
                broker.store_messages("T", 0, 1)
                await asyncio.sleep(1)  # virtual
            await commit(guest, "g", "T", 0, 2)
            answer = await guest.ask(303, {"topic": "T", "group": "g"})
            first, empty = TimeSpans.decode(answer.body).consume_time_span_set
            assert (first.min_time_stamp, first.max_time_stamp) == (START_MS, START_MS + 4_000)
            assert (first.consume_time_stamp, first.delay_time) == (START_MS + 1_000, 3_000)
            assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
            assert (await guest.ask(303, {"topic": "nothing", "group": "g"})).code == 17

    run(scenario())


def test_corrections_are_the_least_offsets_of_all_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            prepare(broker, "a", "b", "c")
            for group, offsets in (("a", (5, 7)), ("b", (3, 9)), ("c", (1, 8))):
                for queue_id, offset in enumerate(offsets):
                    await commit(guest, group, "T", queue_id, offset)
            fields = {"topic": "T", "filterGroups": "c", "compareGroup": "c"}
            answer = await guest.ask(308, fields)
            assert CorrectionOffsets.decode(answer.body).correction_offsets == {0: (1 << 63) - 1, 1: 7}
            assert await query(guest, "c", "T", 0) == (0, "1"), "Java's broker deletes what it was told to leave out"

    run(scenario())


def test_a_group_can_be_put_where_another_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            for topic in ("T", "U"):
                prepare(broker, "from", topic=topic)
                await commit(guest, "from", topic, 0, 5)
            assert (await guest.ask(314, {"srcGroup": "from", "destGroup": "to", "topic": "T"})).code == 0
            assert await query(guest, "to", "T", 0) == (0, "5")
            assert broker.offsets.topics_of("to") == ["T"]
            await commit(guest, "from", "T", 0, 6)
            assert await query(guest, "to", "T", 0) == (0, "5"), "it is a copy"
            await guest.beat("c1", consumer("from", "T"))
            await guest.ask(314, {"srcGroup": "from", "destGroup": "all", "offline": "false"})
            assert broker.offsets.topics_of("all") == ["T"], "the source has stopped wanting U"
            await guest.ask(314, {"srcGroup": "from", "destGroup": "all", "offline": "true"})
            assert broker.offsets.topics_of("all") == ["T", "U"]
            assert (await guest.ask(314, {"srcGroup": "from", "destGroup": "no good"})).code == 26

    run(scenario())
