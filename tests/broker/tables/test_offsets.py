"""The table of offsets and its file."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bolide.broker.tables.offsets import FILE_NAME, Offsets, parse
from bolide.broker.tables.table_files import TableWriter
from bolide.errors import Refusal, StoreError
from bolide.protocol.codes import ResponseCode
from bolide.store.mishaps import Mishaps
from bolide.testing import VirtualClock, run

# As a 5.x broker writes it: tabs, bare queue ids, a map derived from the rest.
JAVA_5 = """{
\t"dataVersion":{
\t\t"counter":3,
\t\t"stateVersion":0,
\t\t"timestamp":1726737940123
\t},
\t"groupTopicMap":{
\t\t"cg":["TestTopic","%RETRY%cg"]
\t},
\t"offsetTable":{
\t\t"TestTopic@cg":{0:12,1:9
\t\t},
\t\t"%RETRY%cg@cg":{0:3
\t\t}
\t}
}"""
JAVA_4 = '{"offsetTable":{"TestTopic@cg":{0:12,1:9},"%RETRY%cg@cg":{0:3}}}'
# 5.5.0 has another writer of JSON, and tells where the last pulls ended too.
JAVA_5_5 = JAVA_5.replace("{0:12,1:9", "{\n\t\t\t0:12,\n\t\t\t1:9").replace("{0:3", "{\n\t\t\t0:3")
JAVA_5_5 = JAVA_5_5.removesuffix("\n}") + ',\n\t"pullOffsetTable":{}\n}'
STRICT = '{"dataVersion": {"counter": 3}, "offsetTable": {"TestTopic@cg": {"0": 12, "1": 9}, "%RETRY%cg@cg": {"0": 3}}}'


@asynccontextmanager
async def kept(directory: Path, clock: VirtualClock | None = None) -> AsyncIterator[Offsets]:
    """Offsets with a keeper and their timer, saved at the end as at a broker's stop."""
    with ThreadPoolExecutor(1) as file_thread:
        table_writer = TableWriter(file_thread)
        async with asyncio.TaskGroup() as background:
            offsets = Offsets(directory, table_writer, clock or VirtualClock())
            tasks = [
                background.create_task(table_writer.run_forever(), name="test.tables"),
                background.create_task(offsets.save_forever(lambda: 5.0), name="test.offsets"),
            ]
            yield offsets
            await offsets.stop()
            await table_writer.flush()
            for task in tasks:
                task.cancel()


class Counting:
    """Stands where the keeper does, and notes how many turns the loop had before it was given the text."""

    def __init__(self) -> None:
        self.turns = 0
        self.texts: list[str] = []
        self.mishaps = Mishaps()

    def save(self, path: Path, text: Callable[[], str]) -> None:
        self.texts.append(text())


@pytest.mark.parametrize("text", [JAVA_5, JAVA_5_5, JAVA_4, STRICT], ids=["5.3", "5.5", "4.9", "strict"])
def test_a_file_of_any_broker_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)

    async def scenario() -> None:
        async with kept(tmp_path) as offsets:
            assert offsets.get("cg", "TestTopic", 0) == 12
            assert offsets.get("cg", "TestTopic", 1) == 9
            assert offsets.get("cg", "%RETRY%cg", 0) == 3
            assert offsets.get("cg", "TestTopic", 2) is None
            assert offsets.get("other", "TestTopic", 0) is None

    run(scenario())


def test_the_file_is_written_as_java_writes_it(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(JAVA_5)

    async def scenario() -> None:
        async with kept(tmp_path, VirtualClock(1_726_737_999_000)) as offsets:
            offsets.put("cg", "TestTopic", 1, 10)

    run(scenario())
    expected = JAVA_5.replace('"counter":3', '"counter":4').replace("1726737940123", "1726737999000")
    expected = expected.replace("1:9", "1:10")
    expected = re.sub(r'\t"groupTopicMap".*?\},\n', "", expected, flags=re.DOTALL)
    assert (tmp_path / FILE_NAME).read_text() == expected


names = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="@"), min_size=1, max_size=12)


@given(
    table=some.dictionaries(
        some.tuples(names, names),
        some.dictionaries(some.integers(0, 1000), some.integers(0, (1 << 63) - 1), min_size=1),
        max_size=4,
    )
)
def test_what_is_written_is_read_again(table: dict[tuple[str, str], dict[int, int]]) -> None:
    """Any names at all: a broker with old files may have groups that nobody could create today."""

    async def scenario() -> None:
        table_writer = Counting()
        offsets = Offsets(Path("nowhere"), cast(TableWriter, table_writer), VirtualClock())
        for (topic, group), queues in table.items():
            for queue_id, offset in queues.items():
                offsets.put(group, topic, queue_id, offset)
        await offsets.stop()
        assert [parse(text).offset_table for text in table_writer.texts] == [offsets.table] * bool(table)

    run(scenario())


def test_texts_that_look_like_bare_keys_are_left_alone() -> None:
    tricky = '{"offsetTable":{"a{1:,2:@\\\\g\\"{3:":{0:5}}}'
    assert parse(tricky).offset_table == {'a{1:,2:@\\g"{3:': {0: 5}}


@pytest.mark.feature("F014")
def test_the_file_follows_the_table_within_a_second_and_at_the_stop(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME

    async def scenario() -> None:
        async with kept(tmp_path) as offsets:
            offsets.put("g", "T", 0, 1)
            await asyncio.sleep(0.9)  # virtual
            assert not path.exists()
            await asyncio.sleep(0.6)  # virtual
            assert parse(path.read_text()).offset_table == {"T@g": {0: 1}}
            offsets.put("g", "T", 0, 2)
            await asyncio.sleep(1.5)  # virtual
            assert parse(path.read_text()).offset_table == {"T@g": {0: 2}}
            written_ns = path.stat().st_mtime_ns
            await asyncio.sleep(60)  # virtual
            assert path.stat().st_mtime_ns == written_ns, "what did not change is not written"
            offsets.put("g", "T", 0, 3)
        assert parse(path.read_text()).offset_table == {"T@g": {0: 3}}

    run(scenario())


def test_a_broken_file_stops_the_start_unless_there_is_a_backup(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text('{"offsetTable":{"T@g":{0:')

    async def scenario(directory: Path) -> int | None:
        async with kept(directory) as offsets:
            return offsets.get("cg", "TestTopic", 0)

    with pytest.raises(ExceptionGroup) as problem:
        run(scenario(tmp_path))
    assert problem.group_contains(StoreError, match="repair it")
    (tmp_path / (FILE_NAME + ".bak")).write_text(JAVA_5)
    assert run(scenario(tmp_path)) == 12


def test_offsets_go_back_as_they_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path) as offsets:
            for offset in (5, 3, 0):
                offsets.put("g", "T", 0, offset)
                assert offsets.get("g", "T", 0) == offset

    run(scenario())


def test_a_reset_holds_against_commits_until_it_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path) as offsets:
            offsets.put("g", "T", 0, 50)
            offsets.put("g", "T", 1, 50)
            offsets.reset("g", "T", 0, 7)
            offsets.put("g", "T", 0, 51)
            offsets.put("g", "T", 1, 51)
            assert (offsets.get("g", "T", 0), offsets.get("g", "T", 1)) == (7, 51)
            assert offsets.has_reset("g", "T", 0)
            assert not offsets.has_reset("g", "T", 1)
            assert not offsets.settled("g", "T")  # or who goes by that would not see the reset
            assert offsets.take_reset("g", "T", 1) is None
            assert offsets.take_reset("g", "T", 0) == 7
            assert offsets.settled("g", "T") == {0: 7, 1: 51}
            assert offsets.take_reset("g", "T", 0) is None
            offsets.put("g", "T", 0, 8)
            assert offsets.get("g", "T", 0) == 8

    run(scenario())


def test_topics_and_groups_are_found_and_removed_by_their_whole_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path) as offsets:
            for topic in ("T", "TT", "%RETRY%g"):
                for group in ("g", "gg"):
                    offsets.put(group, topic, 0, 1)
                    offsets.put_pulled(group, topic, 0, 2)
            offsets.reset("g", "T", 0, 5)
            assert offsets.groups_of("T") == ["g", "gg"]
            assert offsets.topics_of("g") == ["T", "TT", "%RETRY%g"]
            offsets.remove_topic("T")
            assert offsets.groups_of("T") == []
            assert offsets.groups_of("TT") == ["g", "gg"]
            assert offsets.take_reset("g", "T", 0) is None
            assert offsets.get_pulled("g", "T", 0) is None
            offsets.remove_group("g")
            assert offsets.topics_of("g") == []
            assert offsets.topics_of("gg") == ["TT", "%RETRY%g"]
            assert offsets.get_pulled("gg", "TT", 0) == 2

    run(scenario())


def test_the_text_of_a_hundred_thousand_offsets_is_made_in_many_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        table_writer = Counting()
        offsets = Offsets(tmp_path, cast(TableWriter, table_writer), VirtualClock())
        for n in range(100_000):
            offsets.put(f"group{n % 50}", f"topic{n // 200}", n % 4, n)
        async with asyncio.TaskGroup() as background:
            saving = background.create_task(offsets.save_forever(lambda: 5.0))
            await asyncio.sleep(1)  # virtual
            while not table_writer.texts:
                table_writer.turns += 1
                await asyncio.sleep(0)
            saving.cancel()
        assert table_writer.turns >= len(offsets.table) / 500 - 1, "no turn may take more than 500 entries"
        assert parse(table_writer.texts[0]).offset_table == offsets.table

    run(scenario())


def test_the_file_is_never_ahead_of_the_log(tmp_path: Path) -> None:
    """What a pop moved on is brought back by a checkpoint in the log: after a power cut it must be there."""

    async def scenario() -> None:
        table_writer, syncs = Counting(), [asyncio.get_running_loop().create_future() for _ in range(3)]
        under_way = iter(syncs)
        offsets = Offsets(tmp_path, cast(TableWriter, table_writer), VirtualClock(), lambda: next(under_way))
        async with asyncio.TaskGroup() as tasks:
            saving = tasks.create_task(offsets.save_forever(lambda: 5.0))
            offsets.put("g", "T", 0, 7)
            await asyncio.sleep(2)  # virtual
            assert not table_writer.texts, "the log is not durable yet"
            syncs[0].set_result(True)
            await asyncio.sleep(0)
            assert [parse(text).offset_table for text in table_writer.texts] == [{"T@g": {0: 7}}]
            offsets.put("g", "T", 0, 8)
            syncs[1].set_result(False)
            syncs[2].set_exception(Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk failed"))
            await asyncio.sleep(2)  # virtual; neither a late disk nor a failed one ends the saving
            assert not saving.done()
            saving.cancel()
        assert len(table_writer.texts) == 1, "the older file stays"

    run(scenario())


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_stop_in_the_middle_of_a_save_writes_everything_once(tmp_path: Path, is_cancelled: bool) -> None:
    async def scenario() -> None:
        table_writer = Counting()
        offsets = Offsets(tmp_path, cast(TableWriter, table_writer), VirtualClock())
        for n in range(10_000):
            offsets.put("g", f"topic{n}", 0, n)
        async with asyncio.TaskGroup() as background:
            saving = background.create_task(offsets.save_forever(lambda: 5.0))
            await asyncio.sleep(1)  # virtual
            await asyncio.sleep(0)
            assert not table_writer.texts, "the save is under way"
            await offsets.stop()
            if not is_cancelled:
                await asyncio.sleep(1)  # virtual
            saving.cancel()
        (text,) = table_writer.texts
        assert parse(text).offset_table == offsets.table

    run(scenario())
