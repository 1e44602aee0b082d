"""The table of filters and its file: versions, deaths, and what a Java broker left or will read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.broker.tables.filters import FILE_NAME, KEPT_LENGTH_MAX, Filters, GroupFilter, parse_filters
from bolide.protocol.bodies import Subscription
from bolide.testing import VirtualClock
from tests.broker.open_tables import tables
from tests.remoting.loops import virtual_time

DAY_S = 86_400


@asynccontextmanager
async def kept(root: Path, clock: VirtualClock, **settings: str) -> AsyncIterator[Filters]:
    """Filters with a keeper and their timer, saved at the end as at a broker's stop."""
    async with tables(root, clock, **settings) as held, asyncio.TaskGroup() as background:
        filters = Filters(held.settings, held.table_writer, clock)
        saving = background.create_task(filters.save_forever(), name="test.filters")
        yield filters
        filters.save()
        saving.cancel()


def wanting(expression: str, version: int, topic: str = "T", kind: str = "SQL92") -> Subscription:
    return Subscription(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def filter_of(filters: Filters) -> GroupFilter:
    found = filters.get("T", "G")
    assert found is not None
    return found


def file_of(root: Path) -> dict[str, object]:
    return json.loads((root / "config" / FILE_NAME).read_text())["filterDataByTopic"]  # type: ignore[no-any-return]


@virtual_time
async def test_a_newer_version_replaces_an_older_changes_nothing_and_a_broken_one_removes(tmp_path) -> None:
    async with kept(tmp_path, VirtualClock()) as filters:

        def now() -> tuple[str, int] | None:
            found = filters.get("T", "G")
            return None if found is None else (found.expression, found.client_version)

        filters.heard("G", [wanting("a = 1", 5)])
        first = filters.get("T", "G")
        filters.heard("G", [wanting("a = 2", 5)])
        filters.heard("G", [wanting("a = 2", 4)])
        assert now() == ("a = 1", 5)
        filters.heard("G", [wanting("a = 1", 6)])
        assert now() == ("a = 1", 6)
        assert filters.get("T", "G") is first, "the same expression is not compiled again"
        filters.heard("G", [wanting("a = 2", 7)])
        assert now() == ("a = 2", 7)
        filters.heard("G", [wanting("a =", 8)])
        assert now() is None
        filters.heard("G", [wanting("TagA", 9, kind="TAG"), wanting("", 9, "U")])
        assert now() is None


@virtual_time
async def test_a_filter_nobody_uses_is_dead_and_deleted_a_day_later(tmp_path) -> None:
    clock = VirtualClock()
    async with kept(tmp_path, clock) as filters:
        filters.heard("G", [wanting("a = 1", 5), wanting("b = 1", 5, "U")])
        filters.heard("G", [wanting("a = 1", 5)])
        topics = [filters.get(topic, "G") for topic in "TU"]
        assert [found and found.is_dead for found in topics] == [False, True], "U is not subscribed any more"
        filters.left("G")
        assert filter_of(filters).is_dead
        filters.heard("G", [wanting("a = 1", 5)])
        assert not filter_of(filters).is_dead
        filters.left("G")
        await asyncio.sleep(DAY_S - 20)  # virtual
        assert filters.get("T", "G") is not None
        await asyncio.sleep(40)  # virtual
        assert filters.get("T", "G") is None
        assert filters.get("U", "G") is None
        await asyncio.sleep(20)  # virtual
        assert file_of(tmp_path) == {}


@virtual_time
async def test_the_file_follows_within_ten_seconds_and_says_what_javas_says(tmp_path) -> None:
    clock = VirtualClock()
    async with kept(tmp_path, clock) as filters:
        filters.heard("G", [wanting("a > 1 AND b = 'x'", 5)])
        born_ms = clock.now_ms()
        await asyncio.sleep(11)  # virtual
        for _ in range(100):
            await asyncio.sleep(0.01)  # virtual
        assert file_of(tmp_path) == {
            "T": {
                "groupFilterData": {
                    "G": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": file_bits(tmp_path)},
                        "bornTime": born_ms,
                        "clientVersion": 5,
                        "consumerGroup": "G",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "a > 1 AND b = 'x'",
                        "expressionType": "SQL92",
                        "topic": "T",
                    }
                },
                "topic": "T",
            }
        }
        assert len(file_bits(tmp_path)) == 3


def file_bits(root: Path) -> list[int]:
    return file_of(root)["T"]["groupFilterData"]["G"]["bloomFilterData"]["bitPos"]  # type: ignore[index,no-any-return]


@virtual_time
async def test_after_a_start_filters_are_there_and_dead_until_somebody_is_heard(tmp_path) -> None:
    clock = VirtualClock()
    async with kept(tmp_path, clock) as filters:
        filters.heard("G", [wanting("a = 1", 5)])
    await asyncio.sleep(100)  # virtual
    async with kept(tmp_path, clock) as filters:
        found = filter_of(filters)
        assert (found.expression, found.client_version, found.is_dead) == ("a = 1", 5, True)
        assert found.predicate is not None
        assert found.predicate.matches({"a": "1"})
        assert clock.now_ms() - found.dead_ms == 30_000
        filters.heard("G", [wanting("a = 1", 5)])
        assert not found.is_dead


@virtual_time
async def test_filters_filed_with_other_sizes_are_dropped_as_in_java(tmp_path) -> None:
    async with kept(tmp_path, VirtualClock()) as filters:
        filters.heard("G", [wanting("a = 1", 5)])
    async with kept(tmp_path, VirtualClock(), expectConsumerNumUseFilter="64") as filters:
        assert filters.get("T", "G") is None


@pytest.mark.parametrize("text", ['{"filterDataByTopic":{}}', "{}", '{"filterDataByTopic":{"T":{"topic":"T"}}}'])
def test_files_with_nothing_in_them_are_read(text: str) -> None:
    assert not any(topic.group_filter_data for topic in parse_filters(text).filter_data_by_topic.values())


@virtual_time
async def test_an_expression_of_a_file_that_no_longer_compiles_is_no_reason_not_to_start(tmp_path) -> None:
    async with kept(tmp_path, VirtualClock()) as filters:
        filters.heard("G", [wanting("a = 1", 5)])
    path = tmp_path / "config" / FILE_NAME
    path.write_text(path.read_text().replace("a = 1", "a ~ 1"))
    async with kept(tmp_path, VirtualClock()) as filters:
        found = filter_of(filters)
        assert found.predicate is None
        filters.heard("G", [wanting("a = 1", 6)])
        assert filter_of(filters).predicate is not None


@virtual_time
async def test_a_heartbeat_with_much_to_compile_is_taken_in_by_and_by(tmp_path, caplog) -> None:
    async with kept(tmp_path, VirtualClock()) as filters:
        texts = [f"a IN ('{number}', '{'x' * 12_000}')" for number in range(8)]
        subscriptions = [wanting(text, 1, topic=f"T{number}") for number, text in enumerate(texts)]
        counts = []
        for _ in range(4):
            filters.heard("G", subscriptions)
            counts.append(sum(filters.get(f"T{number}", "G") is not None for number in range(8)))
        assert counts == [3, 6, 8, 8]
        assert "the next heartbeat goes on" in caplog.text


@virtual_time
async def test_all_filters_together_are_bounded_and_the_dead_make_room(tmp_path, caplog) -> None:
    clock = VirtualClock()
    async with kept(tmp_path, clock) as filters:
        text = f"a = '{'x' * 16_000}'"
        fitting = KEPT_LENGTH_MAX // len(text)
        for number in range(fitting + 1):
            filters.heard(f"G{number}", [wanting(text, 1)])
        assert filters.get("T", f"G{fitting - 1}") is not None
        assert filters.get("T", f"G{fitting}") is None
        assert "the expressions of all groups have more" in caplog.text
        filters.left("G0")
        await asyncio.sleep(1)  # virtual
        filters.heard(f"G{fitting}", [wanting(text, 1)])
        assert filters.get("T", f"G{fitting}") is not None
        assert filters.get("T", "G0") is None


@virtual_time
async def test_short_expressions_are_kept_up_to_a_number(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.broker.tables.filters.KEPT_COUNT_MAX", 5)
    async with kept(tmp_path, VirtualClock()) as filters:
        filters.heard("G", [wanting("a = 1", 1, f"T{number}") for number in range(9)])
        assert [number for number in range(9) if filters.get(f"T{number}", "G") is not None] == [0, 1, 2, 3, 4]
        filters.heard("G", [wanting("a = 2", 2, "T0")])  # the others are dead now, and make room
        filters.heard("H", [wanting("a = 1", 1)])
        assert filters.get("T", "H") is not None
