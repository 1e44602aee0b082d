"""The table of topics: what is born in it, what a send may add, and the file it is kept in."""

import asyncio
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.broker.tables.topics import parse_topics
from bolide.errors import StoreError
from bolide.model.names import topic_problem
from bolide.protocol.bodies.topics import TopicConfig
from bolide.testing.loop import VirtualClock
from tests.broker.open_tables import tables
from tests.remoting.loops import virtual_time

JAVA = Path(__file__).parent / "java"
AUTO = "TBW102"
BORN = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "C1": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "C1_REPLY_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_C1": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "rmq_sys_wheel_timer": (1, 6),
}


def topic(name: str, count: int = 4, **more: object) -> TopicConfig:
    made = TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
    return msgspec.structs.replace(made, **more)


def on_disk(root: Path, name: str = "topics.json") -> dict[str, dict[str, object]]:
    return json.loads((root / "config" / name).read_text())["topicConfigTable"]


@pytest.mark.feature("F066")
@virtual_time
async def test_a_broker_is_born_with_rocketmqs_topics(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        born = {name: (config.read_queue_nums, config.perm) for name, config in kept.topics.table.items()}
        assert all(config.read_queue_nums == config.write_queue_nums for config in kept.topics.table.values())
    assert born == BORN


@virtual_time
async def test_settings_decide_which_topics_are_born(tmp_path: Path) -> None:
    off: dict[str, Any] = {
        "autoCreateTopicEnable": "false",
        "clusterTopicEnable": "false",
        "brokerTopicEnable": "false",
    }
    async with tables(tmp_path, **off, traceTopicEnable="true", msgTraceTopicName="Traces") as kept:
        table = kept.topics.table
        assert AUTO not in table
        assert (table["C1"].perm, table["broker-a"].perm) == (1, 1)
        assert table["Traces"].read_queue_nums == 1
        assert [kept.topics.is_system(name) for name in ("Traces", "C1", "rmq_sys_x", "Orders")] == [True] * 3 + [False]


@pytest.mark.feature("F060", "F061", "F064")
@virtual_time
async def test_br40_a_send_to_an_unknown_topic_makes_it_with_4_queues_and_perm_6(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        made = kept.topics.for_send("Orders", AUTO, 4, 0)
        assert made == topic("Orders", 4)
        assert kept.topics.for_send("Orders", AUTO, 8, 0) is made
    assert on_disk(tmp_path)["Orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }


@pytest.mark.feature("F067", "F068")
@pytest.mark.parametrize(("asked", "given"), [(100, 8), (2, 2), (8, 8), (0, 0), (-3, 0)])
@virtual_time
async def test_a_made_topic_has_what_the_client_asked_for_but_no_more_than_the_example(
    tmp_path: Path, asked: int, given: int
) -> None:
    async with tables(tmp_path) as kept:
        made = kept.topics.for_send("Orders", AUTO, asked, 0)
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums) == (given, given)


@pytest.mark.feature("F068")
@virtual_time
async def test_the_limit_of_made_queues_is_a_setting_that_holds_at_every_start(tmp_path: Path) -> None:
    for setting, given in (("8", 8), ("32", 32), ("3", 3)):
        async with tables(tmp_path, defaultTopicQueueNums=setting) as kept:
            made = kept.topics.for_send(f"T{setting}", AUTO, 100, 0)
            assert made is not None
            assert made.write_queue_nums == given


@pytest.mark.feature("F062", "F065")
@virtual_time
async def test_with_creation_off_an_unknown_topic_is_not_made_and_the_example_is_not_there(tmp_path: Path) -> None:
    async with tables(tmp_path, autoCreateTopicEnable="false") as kept:
        assert kept.topics.for_send("Orders", AUTO, 4, 0) is None
        assert kept.topics.find(AUTO) is None
        assert kept.topics.find("Orders") is None


@virtual_time
async def test_creation_can_be_switched_off_and_on_again_over_restarts(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        assert kept.topics.for_send("T1", AUTO, 4, 0) is not None
    async with tables(tmp_path, autoCreateTopicEnable="false") as kept:
        assert kept.topics.table[AUTO].perm == 6, "nobody may take it for an example"
        assert kept.topics.for_send("T2", AUTO, 4, 0) is None
        assert kept.topics.for_send("T1", AUTO, 4, 0) is not None
    async with tables(tmp_path) as kept:
        assert kept.topics.for_send("T2", AUTO, 4, 0) is not None


@virtual_time
async def test_creation_can_be_switched_while_the_broker_runs(tmp_path: Path) -> None:
    async with tables(tmp_path, autoCreateTopicEnable="false") as kept:
        told: list[list[str]] = []
        kept.topics.listen(told.append)
        kept.set(autoCreateTopicEnable="true")
        kept.topics.touch()
        assert kept.topics.for_send("T1", AUTO, 4, 0) is not None
        assert AUTO in told[0]
        kept.set(autoCreateTopicEnable="false")
        assert kept.topics.for_send("T2", AUTO, 4, 0) is None


@virtual_time
async def test_a_topic_that_may_not_be_inherited_is_no_example(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        assert kept.topics.for_send("T1", "BenchmarkTest", 4, 0) is None
        assert kept.topics.for_send("T1", "Unknown", 4, 0) is None
        kept.topics.update(topic("Mine", 3, perm=7, topic_filter_type="MULTI_TAG", order=True, attributes={"a": "b"}))
        made = kept.topics.for_send("T1", "Mine", 9, 1)
        assert made == topic("T1", 3, topic_filter_type="MULTI_TAG", topic_sys_flag=1)


@virtual_time
async def test_a_retry_topic_is_made_even_with_creation_off(tmp_path: Path) -> None:
    async with tables(tmp_path, autoCreateTopicEnable="false") as kept:
        assert kept.topics.for_send("%RETRY%cg", AUTO, 4, 0) == topic("%RETRY%cg", 1)


@virtual_time
async def test_a_send_makes_no_topic_with_a_bad_name(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        version = kept.topics.version
        for name in ("", " ", "a.b", "x" * 128, "Bestellungen-für-alle", "a b"):
            assert kept.topics.for_send(name, AUTO, 4, 0) is None
        assert kept.topics.version == version
        assert kept.topics.for_send("x" * 127, AUTO, 4, 0) is not None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a.b", "holds '.' at character 1"),
        ("x" * 128, "128 characters; at most 127"),
        ("%RETRY%" + "x" * 249, "256 characters; at most 255"),
        ("topic\n", "holds '\\n'"),
    ],
)
def test_a_bad_name_is_explained(name: str, part: str) -> None:
    assert part in (topic_problem(name) or "")


@pytest.mark.parametrize("name", ["a", "%RETRY%cg", "a|b-c_D9", "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250])
def test_a_good_name_has_no_problem(name: str) -> None:
    assert topic_problem(name) is None


@virtual_time
async def test_the_brokers_own_topics_are_made_once_and_left_as_they_are(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        made = kept.topics.ensure("%DLQ%cg", 1, perm=2)
        assert made == topic("%DLQ%cg", 1, perm=2)
        version = kept.topics.version
        assert kept.topics.ensure("%DLQ%cg", 5) is made
        assert kept.topics.version == version


@pytest.mark.feature("F071")
@virtual_time
async def test_read_and_write_counts_are_separate_and_change_while_it_runs(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        for read_count, write_count in ((8, 4), (4, 8)):
            kept.topics.update(topic("Orders", read_queue_nums=read_count, write_queue_nums=write_count))
            await kept.table_writer.flush()
            stored = on_disk(tmp_path)["Orders"]
            assert (stored["readQueueNums"], stored["writeQueueNums"]) == (read_count, write_count)


@virtual_time
async def test_every_change_is_a_new_version_and_an_equal_configuration_is_none(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with tables(tmp_path, clock) as kept:
        first = kept.topics.version
        await asyncio.sleep(1)  # virtual
        kept.topics.update(topic("A"))
        second = kept.topics.version
        assert (second.counter, second.timestamp) == (first.counter + 1, clock.now_ms())
        kept.topics.update(topic("A"))
        kept.topics.update_all([topic("A")])
        kept.topics.remove("B")
        assert kept.topics.version == second
        kept.topics.update_all([topic("A"), topic("B"), topic("C")])
        kept.topics.remove("A")
        assert kept.topics.version.counter == second.counter + 2


@virtual_time
async def test_listeners_hear_the_names_after_each_change(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        told: list[list[str]] = []
        kept.topics.listen(lambda names: told.append([name for name in names if kept.topics.find(name)]))
        kept.topics.update(topic("A"))
        kept.topics.for_send("B", AUTO, 4, 0)
        kept.topics.update_all([topic("A"), topic("C"), topic("D")])
        kept.topics.remove("A")
    assert told == [["A"], ["B"], ["C", "D"], []]


@pytest.mark.feature("F070", "F014")
@virtual_time
async def test_topics_survive_a_restart_and_the_file_before_stays_as_bak(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        kept.topics.update(topic("Orders", 16, attributes={"message.type": "FIFO"}))
        await kept.table_writer.flush()
        kept.topics.update(topic("Late"))
        table, version = kept.topics.table, kept.topics.version
    assert "Late" not in on_disk(tmp_path, "topics.json.bak")
    async with tables(tmp_path) as kept:
        assert kept.topics.table == table
        assert kept.topics.version == version, "a restart is no change"


@virtual_time
async def test_a_broken_file_is_replaced_by_its_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with tables(tmp_path) as kept:
        kept.topics.update(topic("Orders"))
        await kept.table_writer.flush()
        kept.topics.update(topic("Late"))
    (tmp_path / "config" / "topics.json").write_text('{"dataVersion":{"counter"')
    with caplog.at_level(logging.WARNING):
        async with tables(tmp_path) as kept:
            assert kept.topics.find("Orders") == topic("Orders")
            assert kept.topics.find("Late") is None
    assert "backup taken" in caplog.text


@virtual_time
async def test_a_broker_whose_files_are_both_broken_does_not_start_without_its_topics(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_text("nonsense")
    with pytest.raises(StoreError, match="repair it, or move it away"):
        async with tables(tmp_path):
            pass


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
@virtual_time
async def test_a_file_of_javas_is_read_and_written_back_with_nothing_lost(tmp_path: Path, release: str) -> None:
    (tmp_path / "config").mkdir()
    shutil.copy(JAVA / release / "topics.json", tmp_path / "config")
    before = json.loads((JAVA / release / "topics.json").read_text())
    async with tables(tmp_path) as kept:
        assert kept.topics.find("Zero") == topic("Zero", 0)
        assert kept.topics.find("Neg") == topic("Neg", -1)
        counter = kept.topics.version.counter
        kept.topics.update(topic("Ours"))
        assert kept.topics.version.counter == counter + 1 > before["dataVersion"]["counter"]
    after = on_disk(tmp_path)
    assert {name: {"attributes": {}} | row for name, row in before["topicConfigTable"].items()}.items() <= after.items()
    assert after["Ours"]["perm"] == 6


def test_a_file_with_a_reference_and_without_names_is_read_as_java_would() -> None:
    row = '{"order":false,"perm":6,"readQueueNums":2,"writeQueueNums":3,"topicSysFlag":0}'
    text = '{"topicConfigTable":{"A":ROW,"B":{"$ref":"$.topicConfigTable.A"}}}'.replace("ROW", row)
    table = parse_topics(text).topic_config_table
    assert table["A"] == topic("A", 2, write_queue_nums=3)
    assert table["B"] == topic("B", 2, write_queue_nums=3)


@virtual_time
async def test_ten_thousand_topics_made_in_one_turn_are_written_once(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        await kept.table_writer.flush()
        texts: list[int] = []
        save = kept.table_writer.save

        def counted(path: Path, text: Callable[[], str]) -> None:
            def made() -> str:
                texts.append(1)
                return text()

            save(path, made)

        kept.table_writer.save = counted  # type: ignore[method-assign]
        for number in range(10_000):
            kept.topics.for_send(f"T{number}", AUTO, 4, 0)
        await kept.table_writer.flush()
        assert len(texts) == 1
    assert len(on_disk(tmp_path)) == 10_000 + len(BORN)
