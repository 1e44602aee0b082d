"""Messages that come back: where they wait, what their records say, when they are dead, and what is refused."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.broker.role import RoleKind, RoleState
from bolide.broker.sending.backoff import level_not_below, own_delay_ms, policy_problem
from bolide.broker.sending.dead_letters import plain_reason
from bolide.broker.sending.send_back import asked_delay_ms, level_of, retry_limit
from bolide.errors import Refusal
from bolide.model.message import StoredMessage
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.groups import GroupConfig, GrowingDelays, ListedDelays, RetryKind, RetryPolicy
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import DELAY_FIELD, REASON_FIELD, SendBackRequest
from bolide.protocol.properties import join_properties
from bolide.store.config import delays_ms_of
from bolide.testing import run as virtually
from tests.broker.delaying import delaying
from tests.broker.senders import DURABLE, Sending, message, sending

SCHEDULE, RETRY, DEAD = "SCHEDULE_TOPIC_XXXX", "%RETRY%cg", "%DLQ%cg"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
OLD_VERSION = 100  # before 3.4.9


def back(of: StoredMessage | int, level: int = 0, group: str = "cg", reason: str = "", **more: Any) -> Command:
    """A message sent back, as a Java client does it."""
    place = of if isinstance(of, int) else of.physical_offset
    version = more.pop("version", 453)
    header = SendBackRequest(physical_offset=place, group=group, delay_level=level, **more)  # type: ignore[arg-type]
    fields = header.encode() | ({REASON_FIELD: reason} if reason else {})
    return Command(36, opaque=2, fields=fields, version=version)


def waiting(room: Sending) -> dict[int, list[StoredMessage]]:
    """What waits, by delay level."""
    found = {level: room.messages(SCHEDULE, level - 1) for level in range(1, 19)}
    return {level: messages for level, messages in found.items() if messages}


def refused(room: Sending, command: Command, **how: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        room.ask(command, **how)
    return caught.value


def scenario(root: Path, check: Any, **settings: Any) -> None:
    async def play() -> None:
        async with sending(root, **settings) as room:
            room.tables.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4))
            await room.open_topics.keep("Orders")
            text = join_properties({"UNIQ_KEY": "U1", "TAGS": "TagA", "KEYS": "k", "own": "x"})
            assert (await room.sent(message(b"hello", queue_id=2, properties=text))).code == 0
            result = check(room, room.messages("Orders", 2)[0])
            if result is not None:
                await result

    asyncio.run(play())


@pytest.mark.feature("F242", "F247", "F249")
def test_a_message_sent_back_waits_as_a_new_record_for_its_retry_topic(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        answer = await room.sent(back(origin, origin_topic="Orders", origin_message_id="U1"))
        assert (answer.code, answer.remark) == (0, None)
        ((waits,),) = waiting(room).values()
        assert list(waiting(room)) == [3]
        assert (waits.body, waits.flag, waits.sys_flag, waits.born_at) == (b"hello", 7, origin.sys_flag, origin.born_at)
        assert (waits.born_host, waits.reconsume_times) == (origin.born_host, 1)
        assert (waits.unique_id, waits.tags, waits.keys) == ("U1", "TagA", ["k"])
        assert waits.offset_id != origin.offset_id
        added = {name: value for name, value in waits.properties.items() if name not in origin.properties}
        assert added == {
            "RETRY_TOPIC": "Orders",
            "ORIGIN_MESSAGE_ID": origin.offset_id,
            "WAIT": "false",
            "DELAY": "3",
            "REAL_TOPIC": RETRY,
            "REAL_QID": "0",
        }
        assert not room.messages(RETRY)
        assert room.stats.view("SNDBCK_PUT_NUMS", "Orders@cg", "C1").stats_minute.sum == 1  # type: ignore[union-attr]
        assert room.stats.view("TOPIC_PUT_NUMS", SCHEDULE, "C1").stats_minute.sum == 1  # type: ignore[union-attr]

    scenario(tmp_path, check)


@pytest.mark.feature("F250")
def test_a_second_failure_keeps_what_the_first_said(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        await room.sent(back(origin))
        (first,) = waiting(room)[3]
        assert (await room.sent(back(first))).code == 0
        (second,) = waiting(room)[4]
        assert second.reconsume_times == 2
        assert (second.properties["RETRY_TOPIC"], second.properties["ORIGIN_MESSAGE_ID"]) == (
            "Orders",
            origin.offset_id,
        )
        view = room.store.record_at(second.physical_offset)
        assert view is not None

    scenario(tmp_path, check)


@pytest.mark.feature("F243", "F244", "F248")
def test_the_levels_are_3_to_18_and_the_17th_failure_is_dead(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        last = origin
        for level in range(3, 19):
            assert (await room.sent(back(last, reason="ValueError: no"))).code == 0
            (last,) = waiting(room)[level]
        assert last.reconsume_times == 16
        assert not room.messages(DEAD)
        assert (await room.sent(back(last, reason="ValueError: no\x02way"))).code == 0
        (dead,) = room.messages(DEAD)
        assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"hello", 17, "0")
        assert dead.properties["DLQ_ORIGIN_TOPIC"] == "Orders"
        assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "U1"
        assert dead.properties["DLQ_REASON"] == "ValueError: no way"
        assert sum(map(len, waiting(room).values())) == 16
        assert room.stats.view("DLQ_PUT_NUMS", "Orders@cg", "C1").stats_minute.sum == 1  # type: ignore[union-attr]
        config = room.tables.topics.find(DEAD)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)

    scenario(tmp_path, check)


@pytest.mark.feature("F243", "F251", "F088")
def test_each_retry_comes_after_10_s_30_s_1_min_and_so_on_to_two_hours(tmp_path: Path) -> None:
    plan_s = [10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]
    assert len(plan_s) == 16

    async def play() -> None:
        async with delaying(tmp_path) as room:
            room.sending.tables.topics.ensure("Orders", 4)
            assert (await room.sending.sent(message(b"hello"))).code == 0
            (last,) = room.come()
            for number, planned_s in enumerate(plan_s):
                assert (await room.sending.sent(back(last))).code == 0
                room.clock.set_wall(room.clock.now_ms() + planned_s * 1000 - 3_000)  # nobody waits for hours
                await asyncio.sleep(1.9)  # virtual
                assert len(room.come(RETRY)) == number
                await asyncio.sleep(1.2)  # virtual
                last = room.come(RETRY)[-1]
                assert (len(room.come(RETRY)), last.reconsume_times) == (number + 1, number + 1)
            assert (await room.sending.sent(back(last))).code == 0
            assert len(room.come(DEAD)) == 1

    virtually(play())


def test_a_delay_that_is_asked_for_counts_and_one_below_zero_gives_up(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        for level in (1, 18, 25):
            assert (await room.sent(back(origin, level))).code == 0
        assert {level: len(found) for level, found in waiting(room).items()} == {1: 1, 18: 2}
        assert (await room.sent(back(origin, -1))).code == 0
        (dead,) = room.messages(DEAD)
        assert dead.reconsume_times == 1
        assert "DLQ_REASON" not in dead.properties

    scenario(tmp_path, check)


def test_a_delay_in_milliseconds_counts_before_the_level_beside_it(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        for delay_ms in ("30000", "45000", "x", "-1"):
            command = back(origin, 7)
            command.fields[DELAY_FIELD] = delay_ms
            assert (await room.sent(command)).code == 0
        # This room has no timer: what is no level waits for the next longer one. What is no number is overlooked.
        assert {level: len(found) for level, found in waiting(room).items()} == {4: 1, 5: 1, 7: 2}

    scenario(tmp_path, check)


def test_nobody_asks_for_a_longer_delay_than_the_timer_allows() -> None:
    assert asked_delay_ms({DELAY_FIELD: "9" * 18}, limit_s=60) == 60_000
    assert asked_delay_ms({DELAY_FIELD: "9" * 5_000}, limit_s=60) is None


@pytest.mark.feature("F245")
def test_a_group_without_retries_is_told_it_is_done_and_nothing_is_stored(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.tables.groups.update(GroupConfig(group_name="cg", retry_queue_nums=0))
        end = room.store.commitlog.end
        assert room.answer(back(origin)).code == 0
        assert room.store.commitlog.end == end
        assert room.tables.topics.find(RETRY) is None

    scenario(tmp_path, check)


@pytest.mark.feature("F246")
def test_the_retry_topic_is_made_with_the_queues_of_its_group_and_a_random_one_is_taken(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.tables.groups.update(GroupConfig(group_name="cg", retry_queue_nums=4))
        for _ in range(60):
            assert (await room.sent(back(origin))).code == 0
        config = room.tables.topics.find(RETRY)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag) == (4, 4, 6, 0)
        assert {each.properties["REAL_QID"] for each in waiting(room)[3]} == {"0", "1", "2", "3"}

    scenario(tmp_path, check)


def test_a_topic_with_fewer_queues_than_its_group_says_gets_messages_only_where_somebody_reads(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.tables.topics.ensure(RETRY, 1)
        room.tables.groups.update(GroupConfig(group_name="cg", retry_queue_nums=4))
        for _ in range(20):
            assert (await room.sent(back(origin))).code == 0
        assert {each.properties["REAL_QID"] for each in waiting(room)[3]} == {"0"}

    scenario(tmp_path, check)


def test_the_answer_comes_when_the_new_topic_would_survive(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        gate = threading.Event()
        room.tables.file_thread.submit(gate.wait)
        answer = asyncio.ensure_future(room.sent(back(origin, -1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not answer.done()
        gate.set()
        assert (await answer).code == 0
        kept = json.loads((room.tables.settings.now.directory / "topics.json").read_text())["topicConfigTable"]
        assert {RETRY, DEAD} <= kept.keys()
        assert room.answer(back(origin, -1)).code == 0  # the second need not wait

    scenario(tmp_path, check)


def test_under_synchronous_flush_it_is_durable_before_the_consumer_counts_it_as_done(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        assert (await room.sent(back(origin, -1))).code == 0
        answer = asyncio.ensure_future(room.sent(back(origin, -1)))
        await asyncio.sleep(0)
        assert not answer.done()
        assert (await answer).code == 0
        assert room.store.progress.flushed >= room.store.commitlog.end

    scenario(tmp_path, check, **DURABLE)


@pytest.mark.parametrize(
    ("limit", "asked", "version", "expected"),
    [(16, None, 453, 16), (16, 3, 453, 3), (16, 3, OLD_VERSION, 16), (2, None, 453, 2), (16, -1, 453, -1)],
)
def test_a_consumers_own_limit_counts_where_its_version_knows_of_it(
    limit: int, asked: int | None, version: int, expected: int
) -> None:
    assert retry_limit(GroupConfig(group_name="cg", retry_max_times=limit), asked, version) == expected


@pytest.mark.feature("F248")
@pytest.mark.parametrize(
    ("times", "limit", "asked", "level"),
    [(0, 16, 0, 3), (15, 16, 0, 18), (16, 16, 0, None), (0, 16, -1, None), (5, 16, 2, 2), (0, 0, 0, None)],
)
def test_the_next_level_or_none(times: int, limit: int, asked: int, level: int | None) -> None:
    assert level_of(times, limit, asked) == level


def test_what_cannot_be_taken_back_is_refused_with_rocketmqs_codes(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        end = room.store.commitlog.end
        for place in (end, end + 1_000_000, -1, origin.physical_offset + 3):
            assert refused(room, back(place)).code == ResponseCode.SYSTEM_ERROR, place
        room.tables.set(autoCreateSubscriptionGroup="false")
        assert refused(room, back(origin, group="nobody")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert refused(room, back(origin), waited_s=3).code == ResponseCode.SYSTEM_BUSY
        room.tables.topics.update(TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1, perm=4))
        assert refused(room, back(origin)).code == ResponseCode.NO_PERMISSION
        room.tables.set(brokerPermission="4")
        assert "brokerPermission" in refused(room, back(origin)).remark
        room.state.role.become(RoleState(RoleKind.SLAVE, 1))
        assert refused(room, back(origin)).code == ResponseCode.SYSTEM_BUSY
        assert room.store.commitlog.end == end

    scenario(tmp_path, check)


# The other way: sent anew to the retry topic


def anew(times: int, limit: int | None = None, **more: Any) -> Command:
    text = join_properties({"UNIQ_KEY": "U1", "RETRY_TOPIC": "Orders", "DELAY": "3", "DLQ_REASON": "why"})
    return message(topic=RETRY, reconsume_times=times, reconsume_times_max=limit, properties=text, **more)


@pytest.mark.parametrize(
    ("times", "limit", "is_dead"), [(16, None, False), (17, None, True), (3, 3, False), (4, 3, True), (1, 0, True)]
)
def test_a_message_sent_anew_is_dead_when_it_failed_more_often_than_the_limit(
    tmp_path: Path, times: int, limit: int | None, is_dead: bool
) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        assert (await room.sent(anew(times, limit))).code == 0
        assert [len(waiting(room)), len(room.messages(DEAD))] == ([0, 1] if is_dead else [1, 0])
        if is_dead:
            (dead,) = room.messages(DEAD)
            assert (dead.properties["DLQ_ORIGIN_TOPIC"], dead.properties["DLQ_ORIGIN_MESSAGE_ID"]) == ("Orders", "U1")
            assert (dead.properties["DLQ_REASON"], "DELAY" in dead.properties) == ("why", False)

    scenario(tmp_path, check)


def test_a_message_sent_anew_by_a_group_that_holds_locks_is_dead_at_once(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.locks.lock("cg", "somebody", [QueueKey("Orders", 0)])
        assert (await room.sent(anew(1))).code == 0
        assert len(room.messages(DEAD)) == 1
        room.locks.unlock("cg", "somebody", [QueueKey("Orders", 0)])
        assert (await room.sent(anew(1))).code == 0
        assert (len(room.messages(DEAD)), len(waiting(room)[3])) == (1, 1)

    scenario(tmp_path, check)


# Policies of groups

LISTED = RetryPolicy(customized_retry_policy=ListedDelays(next=[1_000, 30_000, 45_000]))
GROWING = RetryPolicy(type=RetryKind.EXPONENTIAL, exponential_retry_policy=GrowingDelays(initial=1_000, max=20_000))


@pytest.mark.feature("X31")
def test_a_policy_says_how_long_each_retry_waits() -> None:
    assert [own_delay_ms(LISTED, times) for times in range(5)] == [1_000, 30_000, 45_000, 45_000, 45_000]
    assert [own_delay_ms(GROWING, times) for times in range(7)] == [1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000]
    assert own_delay_ms(RetryPolicy(type=RetryKind.EXPONENTIAL), 0) == 5_000
    assert own_delay_ms(GROWING, 10_000) == 20_000
    assert own_delay_ms(RetryPolicy(), 0) is None
    delays_ms = delays_ms_of(LEVELS)
    assert [level_not_below(delay_ms, delays_ms) for delay_ms in (0, 1_000, 1_001, 45_000, 10**9)] == [1, 1, 2, 5, 18]


@pytest.mark.feature("X31")
def test_a_group_with_a_policy_is_retried_by_it_and_a_delay_that_is_asked_for_still_counts(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.tables.groups.update(GroupConfig(group_name="cg", group_retry_policy=LISTED))
        await room.sent(back(origin))
        (first,) = waiting(room)[1]
        await room.sent(back(first))
        (second,) = waiting(room)[4]
        await room.sent(back(second))
        assert len(waiting(room)[5]) == 1
        await room.sent(back(second, 7))
        assert len(waiting(room)[7]) == 1

    scenario(tmp_path, check)


@pytest.mark.feature("X31")
@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (RetryPolicy(customized_retry_policy=ListedDelays(next=[])), "give 1 to 64"),
        (RetryPolicy(customized_retry_policy=ListedDelays(next=[-1])), "a delay of -1 ms"),
        (RetryPolicy(exponential_retry_policy=GrowingDelays(initial=0)), "more than 0"),
        (RetryPolicy(exponential_retry_policy=GrowingDelays(initial=10, max=9)), "max not less"),
        (RetryPolicy(exponential_retry_policy=GrowingDelays(multiplier=0)), "multiplier = 0"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(policy: RetryPolicy, word: str) -> None:
    assert word in str(policy_problem(policy))


@pytest.mark.feature("X31")
def test_a_policy_is_kept_as_java_keeps_it(tmp_path: Path) -> None:
    async def check(room: Sending, origin: StoredMessage) -> None:
        room.tables.groups.update(GroupConfig(group_name="listed", group_retry_policy=LISTED))
        room.tables.groups.update(GroupConfig(group_name="growing", group_retry_policy=GROWING))
        await room.tables.table_writer.flush()
        text = (room.tables.settings.now.directory / "subscriptionGroup.json").read_text()
        kept = json.loads(text)["subscriptionGroupTable"]
        assert kept["listed"]["groupRetryPolicy"] == {
            "customizedRetryPolicy": {"next": [1_000, 30_000, 45_000]},
            "type": "CUSTOMIZED",
        }
        assert kept["growing"]["groupRetryPolicy"] == {
            "exponentialRetryPolicy": {"initial": 1_000, "max": 20_000, "multiplier": 2},
            "type": "EXPONENTIAL",
        }
        again = msgspec.json.decode(json.dumps(kept["growing"]).encode(), type=GroupConfig)
        assert again.group_retry_policy == GROWING

    scenario(tmp_path, check)


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert plain_reason("a\x01b\nc\x7f ") == "a b c"
    assert len(plain_reason("ä" * 5_000).encode()) == 1024
    assert plain_reason("\ud800 lone") == "lone"
