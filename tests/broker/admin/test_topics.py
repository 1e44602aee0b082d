"""What administrators ask about topics, at a whole broker with its name server."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.model.queue import QueueKey
from bolide.protocol.bodies.queues import TopicStats
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigList, TopicTable
from bolide.protocol.command import Command
from bolide.remoting.slow_work import Place, SlowWork
from tests.broker.whole import Whole, whole
from tests.namesrv.peers import route_of
from tests.remoting.loops import both_loops, own_loop
from tests.store.given import bodies, draft


async def create(at: Whole, topic: str, read: int = 4, write: int = 4, **more: str) -> Command:
    fields: dict[str, Any] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(read),
        "writeQueueNums": str(write),
    }
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"} | more
    return await at.ask(17, **fields)


def on_disk(root: Path) -> dict[str, dict[str, object]]:
    return json.loads((root / "store" / "config" / "topics.json").read_text())["topicConfigTable"]


async def counts_in_route(at: Whole, topic: str) -> tuple[int, int]:
    (row,) = route_of(await at.ns.look_up(topic))["queueDatas"]
    return row["readQueueNums"], row["writeQueueNums"]


@pytest.mark.feature("F061", "F069")
@both_loops
async def test_17_a_created_topic_is_on_disk_and_routed_when_it_is_answered(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        assert (await create(at, "Orders", 16, 16)).code == 0
        assert on_disk(tmp_path)["Orders"]["writeQueueNums"] == 16
        assert await counts_in_route(at, "Orders") == (16, 16)


@pytest.mark.feature("F011", "F071")
@both_loops
async def test_17_queue_counts_change_while_it_runs(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        for read_count, write_count in ((4, 4), (8, 8), (8, 4), (4, 8), (0, 0)):
            assert (await create(at, "Orders", read_count, write_count)).code == 0
            assert await counts_in_route(at, "Orders") == (read_count, write_count)


@both_loops
async def test_17_the_same_configuration_again_is_no_new_version(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        await create(at, "Orders", attributes="+message.type=FIFO")
        version = at.broker.state.topics.version
        assert (await create(at, "Orders")).code == 0
        assert (await create(at, "Orders", attributes="+message.type=FIFO")).code == 0
        assert at.broker.state.topics.version == version
        assert (await create(at, "Orders", perm="4")).code == 0
        assert at.broker.state.topics.version.counter == version.counter + 1


@pytest.mark.parametrize(
    ("topic", "fields", "part"),
    [
        ("", {}, "blank"),
        ("a.b", {}, "holds '.'"),
        ("x" * 128, {}, "at most 127"),
        ("TBW102", {}, "belongs to RocketMQ itself"),
        ("broker-a", {}, "belongs to RocketMQ itself"),
        ("C1", {}, "belongs to RocketMQ itself"),
        ("rmq_sys_mine", {}, "belongs to RocketMQ itself"),
        ("T", {"readQueueNums": "-1"}, "readQueueNums = -1"),
        ("T", {"writeQueueNums": "65537"}, "0 to 65536 queues"),
        ("T", {"perm": "99"}, "perm = 99"),
        ("T", {"topicFilterType": "NOPE"}, "topicFilterType = [NOPE] value invalid"),
        ("T", {"topicSysFlag": "-1"}, "topicSysFlag = -1"),
        ("T", {"attributes": "+nonsense=1"}, "'nonsense' has no effect here; known are message.type"),
        ("T", {"attributes": "+message.type=LITE"}, "cannot be 'LITE' here; it can be DELAY, FIFO"),
        ("T", {"attributes": "+message.type=MIXED"}, "set enableMixedMessageType=true on the broker first"),
        ("T", {"attributes": "+queue.type=BatchCQ"}, "cannot be 'BatchCQ' here"),
        ("T", {"attributes": "+cleanup.policy=COMPACTION"}, "cannot be 'COMPACTION' here"),
        ("T", {"attributes": "+reserve.time=soon"}, "must be a whole number"),
        ("T", {"attributes": "message.type=FIFO"}, "neither +key=value nor -key"),
        ("T", {"attributes": "+message.type"}, "neither +key=value nor -key"),
        ("T", {"attributes": "-message.type"}, "cannot be taken away: it is not set"),
        ("T", {"attributes": "+message.type=FIFO,+message.type=NORMAL"}, "given twice"),
    ],
)
@both_loops
async def test_17_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(
    tmp_path: Path, topic: str, fields: dict[str, Any], part: str
) -> None:
    async with whole(tmp_path) as at:
        version = at.broker.state.topics.version
        answer = await create(at, topic, **fields)
        assert answer.code == 29
        assert part in (answer.remark or "")
        assert at.broker.state.topics.version == version


@both_loops
async def test_17_attributes_are_added_changed_and_taken_away(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        for change, result in (
            ("+message.type=NORMAL,+reserve.time=72", {"message.type": "NORMAL", "reserve.time": "72"}),
            ("", {"message.type": "NORMAL", "reserve.time": "72"}),
            ("+message.type=FIFO", {"message.type": "FIFO", "reserve.time": "72"}),
            ("-reserve.time", {"message.type": "FIFO"}),
        ):
            assert (await create(at, "T", attributes=change)).code == 0
            assert at.broker.state.topics.table["T"].attributes == result


@both_loops
async def test_17_a_name_server_that_is_gone_delays_the_answer_no_more_than_a_moment(tmp_path: Path) -> None:
    async with whole(tmp_path, namesrvAddr="127.0.0.1:1") as at:
        assert (await create(at, "T")).code == 0


@both_loops
async def test_17_a_topic_that_cannot_be_written_is_not_called_a_success(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        config = tmp_path / "store" / "config"
        config.rename(tmp_path / "aside")
        config.write_text("a file where a directory should be")
        answer = await create(at, "T")
        assert answer.code == 1
        assert "not on disk" in (answer.remark or "")
        config.unlink()
        (tmp_path / "aside").rename(config)
        assert (await create(at, "T")).code == 0
        assert "T" in on_disk(tmp_path)


@both_loops
async def test_18_several_topics_are_created_together_or_not_at_all(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        good = [
            TopicConfig(topic_name="L1", read_queue_nums=2, write_queue_nums=2),
            TopicConfig(topic_name="L2", attributes={"+message.type": "FIFO"}),
        ]
        counter = at.broker.state.topics.version.counter
        assert (await at.ask(18, TopicConfigList(topic_config_list=good).encode())).code == 0
        assert at.broker.state.topics.version.counter == counter + 1
        assert at.broker.state.topics.table["L2"].attributes == {"message.type": "FIFO"}
        assert (await at.ns.look_up("L1")).code == (await at.ns.look_up("L2")).code == 0
        bad = [TopicConfig(topic_name="L3"), TopicConfig(topic_name="bad.x")]
        answer = await at.ask(18, TopicConfigList(topic_config_list=bad).encode())
        assert answer.code == 29
        assert "L3" not in at.broker.state.topics.table
        assert (await at.ask(18, TopicConfigList().encode())).code == 0
        assert (await at.ask(18, b"nonsense")).code == 1


@both_loops
async def test_351_and_21_show_what_topics_are_set_to(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        await create(at, "T", 8, 4)
        shown = TopicConfig.decode((await at.ask(351, topic="T")).body)
        assert shown == at.broker.state.topics.table["T"]
        assert (shown.read_queue_nums, shown.write_queue_nums) == (8, 4)
        answer = await at.ask(351, topic="Nope")
        assert answer.code == 17
        assert "'Nope' is not here" in (answer.remark or "")
        answer = await at.ask(21)
        table = TopicTable.decode(answer.body)
        assert table.topic_config_table == at.broker.state.topics.table
        assert table.data_version == at.broker.state.topics.version
        assert "totalTopicNum" not in answer.fields, "a total would make 5.x ask for pages"


@both_loops
async def test_305_lists_rocketmqs_own_topics(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        listed = set(msgspec.json.decode((await at.ask(305)).body)["topicList"])
        assert {"TBW102", "C1", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC", "C1_REPLY_TOPIC"} <= listed
        assert "Orders" not in listed


@both_loops
async def test_202_shows_each_queue_up_to_the_larger_count_with_its_offsets_and_last_time(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        await create(at, "T", 2, 3)
        at.broker.state.store.append([draft(b"body", "T", 1) for _ in range(5)])
        stats = TopicStats.decode((await at.ask(202, topic="T")).body)
        spans = {queue.queue_id: (span.min_offset, span.max_offset) for queue, span in stats.offset_table.items()}
        assert spans == {0: (0, 0), 1: (0, 5), 2: (0, 0)}
        assert {queue.broker_name for queue in stats.offset_table} == {"broker-a"}
        assert [span.last_update_timestamp > 0 for span in stats.offset_table.values()] == [False, True, False]
        assert len(TopicStats.decode((await at.ask(202, topic="BenchmarkTest")).body).offset_table) == 1024
        assert (await at.ask(202, topic="Nope")).code == 17


@both_loops
async def test_215_a_deleted_topic_leaves_no_configuration_no_offsets_and_no_queues(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        broker = at.broker
        for name in ("T", "%RETRY%cg_T", "%RETRY%cg+T", "%RETRY%cg", "Other"):
            broker.state.topics.ensure(name, 2)
            broker.state.store.append([draft(b"body", name, 1)])
            broker.state.offsets.put("cg", name, 1, 1)
        assert (await at.ask(215, topic="T")).code == 0
        left = [
            name for name in ("T", "%RETRY%cg_T", "%RETRY%cg+T", "%RETRY%cg", "Other") if broker.state.topics.find(name)
        ]
        assert left == ["%RETRY%cg", "Other"]
        assert sorted(broker.state.offsets.topics_of("cg")) == left
        assert [broker.state.store.queue(QueueKey(name, 1)) is not None for name in ("T", "%RETRY%cg_T", "Other")] == [
            False,
            False,
            True,
        ]
        assert "T" not in on_disk(tmp_path)
        assert not (tmp_path / "store" / "consumequeue" / "T").exists()
        assert (await at.ask(215, topic="T")).code == 0, "tools tell every broker of a cluster"


@pytest.mark.parametrize("topic", ["TBW102", "C1", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_REVIVE_LOG_C1", " "])
@both_loops
async def test_215_rocketmqs_own_topics_cannot_be_deleted(tmp_path: Path, topic: str) -> None:
    async with whole(tmp_path) as at:
        answer = await at.ask(215, topic=topic)
        assert answer.code == 29
        assert ("belongs to RocketMQ itself" in (answer.remark or "")) == bool(topic.strip())
        assert at.broker.state.topics.version.counter == 1


@pytest.mark.parametrize(
    "name", ["../victim", "../../victim", "/", "../commitlog", ".", "..", "a/b", "a\0b", "x" * 300]
)
@both_loops
async def test_215_nothing_goes_but_the_queues_of_a_topic(tmp_path: Path, name: str) -> None:
    victims = [tmp_path / "victim", tmp_path / "store" / "victim"]
    for victim in victims:
        victim.mkdir(parents=True)
        (victim / "kept").write_text("kept")
    async with whole(tmp_path) as at:
        await create(at, "T", 1, 1)
        at.broker.state.store.append([draft(b"kept", "T", 0)])
        answer = await at.ask(215, topic=str(victims[0]) if name == "/" else name)
        assert answer.code == 29, answer.remark
        assert "\n" not in (answer.remark or "")
        assert len(answer.remark or "") < 300
        at.broker.state.store.append([draft(b"kept too", "T", 0)])
    assert [(victim / "kept").read_text() for victim in victims] == ["kept", "kept"]
    async with whole(tmp_path) as at:
        assert bodies(at.broker.state.store, "T") == [b"kept", b"kept too"]


@both_loops
async def test_215_a_topic_of_an_odd_name_that_is_in_the_table_may_go(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("odd.name of old", 1)
        at.broker.state.store.append([draft(b"x", "odd.name of old", 0)])
        assert (await at.ask(215, topic="odd.name of old")).code == 0
        assert not (tmp_path / "store" / "consumequeue" / "odd.name of old").exists()
        assert (await at.ask(215, topic="odd.name of old")).code == 29, "now it is one that cannot be made"


@both_loops
async def test_a_topic_that_was_deleted_begins_anew_when_it_comes_back(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        await create(at, "T", 1, 1)
        at.broker.state.store.append([draft(b"old", "T", 0) for _ in range(3)])
        await at.ask(215, topic="T")
        await create(at, "T", 1, 1)
        assert at.broker.state.store.append([draft(b"new", "T", 0)]).queue_offsets == [0]
        (span,) = TopicStats.decode((await at.ask(202, topic="T")).body).offset_table.values()
        assert (span.min_offset, span.max_offset) == (0, 1)


@both_loops
async def test_513_static_topics_are_refused_honestly(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        answer = await at.ask(513, b"{}", topic="Static")
        assert answer.code == 3
        assert "static topics are not here" in (answer.remark or "")


@both_loops
async def test_202_and_208_of_thousands_of_queues_take_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Place] = []
    turn, is_ours = SlowWork.turn, own_loop()

    async def turn_noted(self: SlowWork, place: Place) -> None:
        if is_ours():
            turns.append(place)
        await turn(self, place)

    monkeypatch.setattr(SlowWork, "turn", turn_noted)
    async with whole(tmp_path) as served:
        served.broker.state.topics.update(TopicConfig(topic_name="Wide", read_queue_nums=1_000, write_queue_nums=1_000))
        questions: list[tuple[int, dict[str, Any]]] = [(202, {}), (208, {"consumerGroup": "G"})]
        for code, fields in questions:
            turns.clear()
            assert (await served.ask(code, topic="Wide", **fields)).code == 0
            assert len(turns) > 10
            assert len(set(turns)) == 1
