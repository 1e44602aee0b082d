"""Pulls: the checks in their order, the code for each state of a queue, filters, and what is noted on the way."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bolide.broker.pulling.access import subscription_filter
from bolide.broker.role import RoleKind, RoleState
from bolide.kernel import java_hash
from bolide.kernel.layout import BINARY_CODEC
from bolide.protocol.bodies import ConsumeType, GroupConfig, MessageModel, Subscription
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import ONEWAY_FLAG
from bolide.remoting.session import Session
from bolide.store.read import memory_size
from tests.broker.pullers import (
    GROUP,
    TOPIC,
    Rig,
    bodies_of,
    both_paths,
    choose_path,
    connected,
    heartbeat_of,
    place_of,
    pull_of,
    pulling,
    topic_of,
)
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops, eventually, own_loop, virtual_time

on_both_paths = both_paths(choose_path)
PUSH = 0  # no flag: the filter is that of the heartbeat


@pytest.mark.feature("F201", "F211", "F212")
@both_loops
async def test_an_application_walks_a_queue_batch_by_batch(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"%d" % n for n in range(10)])
        peer = await Peer.connect(rig.port)
        offset, seen = 0, []
        while True:
            answer = await peer.ask(pull_of(offset, message_count_max=4))
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                break
            seen.append(bodies_of(answer))
            assert place_of(answer).next_offset == offset + len(seen[-1])
            offset = place_of(answer).next_offset
        assert seen == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]
        place = place_of(answer)
        assert (place.next_offset, place.min_offset, place.max_offset, place.suggested_broker_id) == (10, 0, 10, 0)
        peer.leave()


@pytest.mark.feature("F215")
@virtual_time
async def test_the_first_answer_of_forty_messages_has_thirty_two(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"x"] * 40)
        peer = await Peer.connect(rig.port)
        for count_max in (32, 1000, 2_147_483_647):
            assert len(bodies_of(await peer.ask(pull_of(0, message_count_max=count_max)))) == 32
        for count_max in (0, -1, 1):
            assert len(bodies_of(await peer.ask(pull_of(0, message_count_max=count_max)))) == 1
        peer.leave()


@virtual_time
async def test_the_bytes_a_pull_asks_for_are_a_bound_and_one_message_always_comes(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"x" * 1000] * 5)
        peer = await Peer.connect(rig.port)
        for size_max, count in ((3500, 3), (1, 1), (0, 5), (-5, 5), (2_147_483_647, 5)):
            answer = await peer.ask(pull_of(0, answer_size_max=size_max))
            assert (size_max, len(bodies_of(answer))) == (size_max, count)
        peer.leave()


@both_loops
async def test_a_large_message_comes_alone_and_whole_without_a_copy_here(tmp_path, monkeypatch) -> None:
    pushed: list[object] = []
    push, is_ours = Session.push, own_loop()

    def note(session: Session, frames: bytes | memoryview) -> None:
        if is_ours():
            pushed.append(frames)
        push(session, frames)

    monkeypatch.setattr(Session, "push", note)
    async with pulling(tmp_path, mappedFileSizeCommitLog=str(8 << 20)) as rig:
        large = random.Random(5).randbytes(3 << 20)
        rig.put(b"small")
        rig.put(large)
        rig.put(b"last")
        peer = await connected(rig)
        seen = []
        for codec in (0, BINARY_CODEC):
            for offset in range(3):
                answer = await peer.ask(pull_of(offset, sys_flag=PUSH, codec=codec, opaque=offset))
                assert (answer.code, answer.opaque, answer.codec, answer.remark) == (0, offset, codec, "FOUND")
                seen.append(bodies_of(answer))
        assert seen == [[b"small"], [large], [b"last"]] * 2
        assert sum(isinstance(frames, memoryview) for frames in pushed) == 2
        peer.send(pull_of(3, sys_flag=PUSH | 2))
        await eventually(lambda: rig.parked.count == 1)
        rig.put(large)
        assert bodies_of((await peer.answers(1))[0]) == [large]
        peer.leave()


@virtual_time
async def test_a_message_beyond_what_a_frame_may_hold_is_an_error_and_not_silence(tmp_path) -> None:
    async with pulling(tmp_path, None, **{"com.rocketmq.remoting.frameMaxLength": "300000"}) as rig:
        rig.put(b"x" * 400_000)
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(0))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "limit is 300000" in str(answer.remark)
        peer.leave()


@pytest.mark.parametrize("code", [11, 361])
@pytest.mark.parametrize("codec", [0, BINARY_CODEC])
@virtual_time
async def test_both_codes_are_answered_in_the_codec_of_the_asker(tmp_path, code, codec) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"hello")
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(0, code=code, codec=codec, opaque=7))
        assert (answer.code, answer.codec, answer.opaque, bodies_of(answer)) == (0, codec, 7, [b"hello"])
        assert answer.remark == "FOUND"
        peer.leave()


@virtual_time
async def test_every_state_of_a_queue_has_its_code_and_its_next_offset(tmp_path) -> None:
    async with pulling(tmp_path, fileReservedTime="0", deleteWhen=";".join(map(str, range(24)))) as rig:
        peer = await Peer.connect(rig.port)

        async def told(offset: int, **changes: Any) -> tuple[int, int, str | None]:
            answer = await peer.ask(pull_of(offset, **changes))
            return answer.code, place_of(answer).next_offset, answer.remark

        assert await told(0) == (19, 0, "NO_MATCHED_LOGIC_QUEUE")
        assert await told(5) == (21, 0, "NO_MATCHED_LOGIC_QUEUE")
        for _ in range(30):
            rig.put(b"x" * 100_000)
        rig.store.flush()
        rig.store._clock.now_ms = lambda: 1 << 42  # type: ignore[method-assign]
        rig.store.clean()
        queue = rig.store.dispatch.queues[TOPIC, 0]
        low = queue.min_offset
        assert 0 < low < 30
        assert await told(0) == (21, low, "OFFSET_TOO_SMALL")
        assert await told(30) == (19, 30, "OFFSET_OVERFLOW_ONE")
        assert await told(31) == (21, 30, "OFFSET_OVERFLOW_BADLY")
        assert await told(low, subscription="Nobody") == (20, 30, "NO_MATCHED_MESSAGE")
        assert (await told(low, message_count_max=1))[:2] == (0, low + 1)
        queue.min_offset = 0  # as between the deletion of a log file and that of the entries for it
        assert await told(0, message_count_max=1) == (0, low + 1, "FOUND")
        peer.leave()


@virtual_time
async def test_messages_that_are_gone_from_the_log_are_passed_over(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"gone", b"gone")
        rig.store.commitlog.segments.bases[0] = rig.store.commitlog.end  # the log begins after them now
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(0))
        assert (answer.code, place_of(answer).next_offset) == (20, 2)
        assert answer.remark == "MESSAGE_WAS_REMOVING"
        rig.store.commitlog.segments.bases[0] = 0
        peer.leave()


# The checks


@virtual_time
async def test_the_checks_come_in_rocketmqs_order_and_each_says_what_it_found(tmp_path) -> None:
    async with pulling(tmp_path, autoCreateSubscriptionGroup="false", brokerPermission="2") as rig:
        rig.put(b"x")
        peer = await Peer.connect(rig.port)
        pull: dict[str, Any] = {"sys_flag": PUSH, "queue_id": 4, "topic": "Closed", "subscription_version": 5}

        async def refused(word: str) -> int:
            answer = await peer.ask(pull_of(0, **pull))
            assert answer.remark is not None
            assert word in answer.remark, answer.remark
            return answer.code

        assert await refused("brokerPermission") == ResponseCode.NO_PERMISSION
        rig.settings.now = replace(rig.settings.now, permission=6)
        assert await refused("'G'") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        rig.groups.update(GroupConfig(group_name=GROUP, consume_enable=False))
        assert await refused("consumeEnable") == ResponseCode.NO_PERMISSION
        rig.groups.update(GroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        assert await refused("'Closed'") == ResponseCode.TOPIC_NOT_EXIST
        rig.topics.update(topic_of("Closed", perm=2))
        assert await refused("permission is 2") == ResponseCode.NO_PERMISSION
        rig.topics.update(topic_of("Closed"))
        assert await refused("it has 4") == ResponseCode.INVALID_PARAMETER
        pull["queue_id"] = -1
        assert await refused("it has 4") == ResponseCode.INVALID_PARAMETER
        pull["queue_id"] = 3
        assert await refused("no member") == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await peer.ask(heartbeat_of(model=MessageModel.BROADCASTING))
        assert await refused("consumeBroadcastEnable") == ResponseCode.NO_PERMISSION
        rig.groups.update(GroupConfig(group_name=GROUP))
        assert await refused("did not subscribe") == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await peer.ask(heartbeat_of(topic="Closed", version=4))
        assert await refused("version 4") == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await peer.ask(heartbeat_of(topic="Closed", version=5))
        rig.groups.forbid(GROUP, "Closed", 2, True)
        assert await refused("forbade") == ResponseCode.NO_PERMISSION
        rig.groups.forbid(GROUP, "Closed", 2, False)
        assert (await peer.ask(pull_of(0, **pull))).code == ResponseCode.PULL_NOT_FOUND
        peer.leave()


CHANGES: dict[str, tuple[Callable[[Rig], None], int]] = {
    "the broker's permission": (
        lambda rig: setattr(rig.settings, "now", replace(rig.settings.now, permission=2)),
        ResponseCode.NO_PERMISSION,
    ),
    "pull consumers refused": (
        lambda rig: setattr(rig.settings, "now", replace(rig.settings.now, refuses_pulls=True)),
        ResponseCode.SUCCESS,
    ),
    "the topic's permission": (lambda rig: rig.topics.update(topic_of(perm=2)), ResponseCode.NO_PERMISSION),
    "the topic's queues": (lambda rig: rig.topics.update(topic_of(queue_count=0)), ResponseCode.INVALID_PARAMETER),
    "the topic": (lambda rig: rig.topics.remove(TOPIC), ResponseCode.TOPIC_NOT_EXIST),
    "the group": (
        lambda rig: rig.groups.update(GroupConfig(group_name=GROUP, consume_enable=False)),
        ResponseCode.NO_PERMISSION,
    ),
    "forbidden": (lambda rig: rig.groups.forbid(GROUP, TOPIC, 2, True), ResponseCode.NO_PERMISSION),
    "the group's members": (
        lambda rig: rig.members.disconnected(rig.sessions[0]),
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ),
    "the group's topics": (
        lambda rig: rig.members.consumer_groups[GROUP].subscriptions.clear(),
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ),
    "nothing": (lambda rig: None, ResponseCode.SUCCESS),
}


@pytest.mark.parametrize("name", CHANGES)
@virtual_time
async def test_what_changed_between_two_pulls_counts_for_the_second(tmp_path, name) -> None:
    change, code = CHANGES[name]
    async with pulling(tmp_path) as rig:
        rig.put(b"x")
        peer = await connected(rig)
        for _ in range(2):
            assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == ResponseCode.SUCCESS
        change(rig)
        assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == code
        peer.leave()


@pytest.mark.parametrize(
    "name", ["the topic's permission", "the topic's queues", "the topic", "the group", "forbidden"]
)
@virtual_time
async def test_a_pull_that_brings_its_expression_is_judged_anew_after_a_change(tmp_path, name) -> None:
    change, code = CHANGES[name]
    async with pulling(tmp_path) as rig:
        rig.put(b"x", TAGS="A")
        peer = await connected(rig)
        for _ in range(2):
            assert bodies_of(await peer.ask(pull_of(0, subscription="A"))) == [b"x"]
            assert (await peer.ask(pull_of(0, subscription="B"))).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        change(rig)
        assert (await peer.ask(pull_of(0, subscription="A"))).code == code
        peer.leave()


@virtual_time
async def test_a_group_that_begins_to_broadcast_is_judged_anew(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"x")
        rig.groups.update(GroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        peer = await connected(rig)
        assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == ResponseCode.SUCCESS
        await peer.ask(heartbeat_of(model=MessageModel.BROADCASTING))
        assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == ResponseCode.NO_PERMISSION
        peer.leave()


@virtual_time
async def test_a_field_that_is_missing_or_no_number_is_told_by_name(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await Peer.connect(rig.port)
        for key, text in (("queueOffset", None), ("queueId", "one"), ("topic", None)):
            command = pull_of(0)
            del command.fields[key]
            if text is not None:
                command.fields[key] = text
            answer = await peer.ask(command)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert key in str(answer.remark)
        peer.leave()


@virtual_time
async def test_pull_consumers_can_be_kept_out_and_push_consumers_stay(tmp_path) -> None:
    async with pulling(tmp_path, rejectPullConsumerEnable="true") as rig:
        rig.put(b"x")
        stranger = await Peer.connect(rig.port)
        assert (await stranger.ask(pull_of(0))).code == ResponseCode.NO_PERMISSION
        await stranger.ask(heartbeat_of(consume_type=ConsumeType.CONSUME_ACTIVELY))
        assert (await stranger.ask(pull_of(0))).code == ResponseCode.NO_PERMISSION
        assert (await stranger.ask(pull_of(0, consumer_group="TOOLS_CONSUMER"))).code == 0
        pushed = await connected(rig, group="Pushed")
        assert (await pushed.ask(pull_of(0, consumer_group="Pushed", sys_flag=PUSH))).code == 0
        stranger.leave()
        pushed.leave()


@pytest.mark.feature("F205", "F209")
@both_loops
async def test_without_subscription_and_without_a_pull_nothing_is_delivered(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await Peer.connect(rig.port)
        rig.put(b"x")
        assert (await peer.ask(pull_of(0, sys_flag=PUSH))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await peer.ask(heartbeat_of("*"))
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH))) == [b"x"]
        rig.put(b"y")
        await peer.ask(heartbeat_of("*"))
        # Two more messages and not one byte but the heartbeats' answers: the initiative is the consumer's.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await peer.answers(1)
        peer.leave()


# The filter


@pytest.mark.feature("F265", "F266", "F272")
@virtual_time
async def test_only_wanted_tags_cross_the_wire(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        for tag in "ABC" * 3:
            rig.put(f"body of {tag}".encode(), TAGS=tag)
        rig.put(b"untagged")
        peer = await connected(rig, expression="A || B")
        for changes in ({"sys_flag": PUSH}, {"subscription": "A||B"}):
            answer = await peer.ask(pull_of(0, **changes))
            assert bodies_of(answer) == [b"body of A", b"body of B"] * 3
            assert b"body of C" not in answer.body
            assert place_of(answer).next_offset == 10
        assert len(bodies_of(await peer.ask(pull_of(0, subscription="*")))) == 10
        peer.leave()


@pytest.mark.feature("F273")
@virtual_time
async def test_tags_with_the_same_hash_are_sent_for_each_other(tmp_path) -> None:
    assert java_hash("Aa") == java_hash("BB") == 2112
    async with pulling(tmp_path) as rig:
        for tag in ("Aa", "BB", "CC"):
            rig.put(tag.encode(), TAGS=tag)
        peer = await Peer.connect(rig.port)
        assert bodies_of(await peer.ask(pull_of(0, subscription="Aa"))) == [b"Aa", b"BB"]
        peer.leave()


@pytest.mark.feature("F269", "F270", "F271")
@virtual_time
async def test_the_flag_of_a_pull_says_whose_expression_counts_and_a_bad_one_is_refused(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", TAGS="A")
        rig.put(b"b", TAGS="B")
        peer = await connected(rig, expression="A")
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription="B"))) == [b"a"]
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=4, subscription="B"))) == [b"b"]
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=4, subscription=None))) == [b"a", b"b"]
        bad = await peer.ask(pull_of(0, sys_flag=4, subscription="||"))
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "separators" in str(bad.remark)
        # The next pull has its own filter again.
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH))) == [b"a"]
        peer.leave()


@pytest.mark.feature("F268")
@virtual_time
async def test_the_expression_of_the_newest_heartbeat_is_the_groups_filter(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", TAGS="A")
        rig.put(b"b", TAGS="B")
        peer = await connected(rig, expression="A", version=1)
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=1))) == [b"a"]
        # The client has changed its mind and pulls before its heartbeat: it must not pass over a message it wants.
        early = await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=2))
        assert early.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await peer.ask(heartbeat_of("B", version=2))
        assert bodies_of(await peer.ask(pull_of(0, sys_flag=PUSH, subscription_version=2))) == [b"b"]
        peer.leave()


@pytest.mark.feature("F267")
@virtual_time
async def test_sql_is_refused_by_default_and_never_taken_for_a_tag(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", TAGS="A")
        peer = await connected(rig, expression="a > 5", expression_type="SQL92")
        for changes in ({"sys_flag": PUSH}, {"subscription": "a > 5", "expression_type": "SQL92"}):
            answer = await peer.ask(pull_of(0, **changes))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "SQL92: set enablePropertyFilter=true" in str(answer.remark)
        peer.leave()


def test_the_filter_of_a_heartbeat_takes_its_hashes_and_hashes_its_tags_itself():
    other = 12345
    filters = [
        (Subscription(sub_string="*", code_set=[other]), None),
        (Subscription(sub_string=""), None),
        (Subscription(sub_string="A", class_filter_mode=True), None),
        (Subscription(sub_string="A || B"), {java_hash("A"), java_hash("B")}),
        (Subscription(sub_string="A", code_set=[other]), {java_hash("A"), other}),
    ]
    assert [subscription_filter(subscription) for subscription, _ in filters] == [wanted for _, wanted in filters]


# What is noted


@virtual_time
async def test_a_pull_commits_with_the_flag_and_only_then(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"x")
        peer = await Peer.connect(rig.port)
        await peer.ask(pull_of(0, sys_flag=4, commit_offset=5))
        assert rig.offsets.get(GROUP, TOPIC, 0) is None
        await peer.ask(pull_of(0, sys_flag=5, commit_offset=-1))
        assert rig.offsets.get(GROUP, TOPIC, 0) is None
        await peer.ask(pull_of(0, sys_flag=5, commit_offset=5))
        assert rig.offsets.get(GROUP, TOPIC, 0) == 5
        await peer.ask(pull_of(7, sys_flag=5, commit_offset=6))  # moved, and the commit counts all the same
        assert rig.offsets.get(GROUP, TOPIC, 0) == 6
        assert rig.offsets.get_pulled(GROUP, TOPIC, 0) == 1
        peer.leave()


@virtual_time
async def test_a_reset_is_told_once_and_not_undone_by_the_commit_that_comes_with_the_pull(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"x"] * 10)
        rig.offsets.reset(GROUP, TOPIC, 0, 3)
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(10, sys_flag=7, commit_offset=10))
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        place = place_of(answer)
        assert (place.next_offset, place.min_offset, place.max_offset) == (3, 0, 10)
        assert rig.offsets.get(GROUP, TOPIC, 0) == 3
        assert len(bodies_of(await peer.ask(pull_of(3, sys_flag=7, commit_offset=3)))) == 7
        peer.leave()


@virtual_time
async def test_what_is_read_is_counted_for_its_group(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", b"b")
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(0))
        await peer.ask(pull_of(2))
        assert (rig.stats.got_total.count, rig.stats.got_total.size) == (2, len(answer.body))
        assert rig.stats.missed_count == 1
        peer.leave()


@virtual_time
async def test_a_slave_is_suggested_to_slow_readers_only_when_slaves_may_be_read(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"x")
        rig.groups.update(GroupConfig(group_name=GROUP, which_broker_when_consume_slowly=3, broker_id=2))
        peer = await Peer.connect(rig.port)

        async def suggested(offset: int = 0) -> int:
            return place_of(await peer.ask(pull_of(offset))).suggested_broker_id

        assert await suggested() == 0
        rig.settings.now = replace(rig.settings.now, reads_from_slave=True)
        assert await suggested() == 2
        assert rig.store.reader._near_size == memory_size() * 40 // 100
        rig.store.reader._near_size = 0
        assert await suggested() == 3
        rig.state.role.become(RoleState(RoleKind.SLAVE, 1))
        assert await suggested() == 3
        assert await suggested(1) == 0
        peer.leave()


@virtual_time
async def test_a_slave_leaves_corrections_to_its_master_and_stores_what_is_committed(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.state.role.become(RoleState(RoleKind.SLAVE, 1))
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(5, sys_flag=5, commit_offset=4))
        assert (answer.code, place_of(answer).next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 5)
        assert rig.offsets.get(GROUP, TOPIC, 0) == 4
        peer.leave()


@virtual_time
async def test_a_one_way_pull_is_neither_answered_nor_parked(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        peer = await Peer.connect(rig.port)
        command = pull_of(0, sys_flag=7, commit_offset=1)
        command.flag |= ONEWAY_FLAG
        peer.send(command)
        await eventually(lambda: rig.offsets.get(GROUP, TOPIC, 0) == 1)
        assert rig.parked.count == 0
        peer.leave()


@pytest.mark.feature("F203")
@virtual_time
async def test_each_group_has_its_own_place_in_a_queue(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", b"b")
        peer = await Peer.connect(rig.port)
        for group in ("G1", "G2"):
            answer = await peer.ask(pull_of(0, consumer_group=group, sys_flag=5, commit_offset=0))
            assert bodies_of(answer) == [b"a", b"b"]
        await peer.ask(pull_of(2, consumer_group="G1", sys_flag=5, commit_offset=2))
        assert (rig.offsets.get("G1", TOPIC, 0), rig.offsets.get("G2", TOPIC, 0)) == (2, 0)
        peer.leave()
