"""Offsets and plans: pure rules that a restart relies on."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bolide.model.queue import MessageQueue
from bolide.spark.source import offsets
from bolide.spark.source.offsets import Range
from bolide.spark.source.planner import plan

QUEUES = st.builds(
    MessageQueue, st.sampled_from(["orders", "a", "ü"]), st.sampled_from(["broker-a", "b"]), st.integers(0, 12)
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 10_000), max_size=12)


@given(OFFSETS, st.randoms())
def test_the_same_positions_are_the_same_text_in_whatever_order_they_came(positions, chance) -> None:
    shuffled = list(positions.items())
    chance.shuffle(shuffled)
    text = json.dumps(offsets.write(positions, positions))
    assert json.dumps(offsets.write(dict(shuffled), dict(shuffled))) == text
    assert offsets.read(json.loads(text)) == positions
    assert offsets.start_of(json.loads(text)) == positions


@given(OFFSETS, OFFSETS, st.none() | OFFSETS)
def test_a_query_never_goes_back_nor_beyond_its_target_nor_forgets_a_queue(start, latest, target) -> None:
    reached = offsets.advanced(start, latest, target)
    assert set(start) <= set(reached)
    for queue, offset in reached.items():
        assert offset >= start.get(queue, 0)
        if target is not None:
            assert offset <= max(start.get(queue, 0), target.get(queue, 0))
        assert offset <= max(start.get(queue, 0), latest.get(queue, 0), (target or {}).get(queue, 0))


@given(OFFSETS, OFFSETS, st.integers(1, 5_000))
def test_a_limit_is_kept_used_up_and_shared(start, latest, rows_max) -> None:
    end = offsets.advanced(start, latest)
    chosen = offsets.limited(start, end, rows_max)
    taken = sum(chosen[queue] - start.get(queue, 0) for queue in chosen)
    available = sum(end[queue] - start.get(queue, 0) for queue in end)
    assert taken == min(rows_max, available)
    assert all(start.get(queue, 0) <= chosen[queue] <= end[queue] for queue in end)


@given(st.lists(st.integers(0, 3_000_000), max_size=12), st.integers(0, 40))
def test_a_plan_covers_every_row_once_and_has_the_tasks_that_were_asked_for(counts, partitions_min) -> None:
    wanted = [Range(MessageQueue("t", "b", number), 5, 5 + count) for number, count in enumerate(counts)]
    tasks = plan(wanted, partitions_min)
    covered: dict[MessageQueue, list[tuple[int, int]]] = {}
    for task in tasks:
        assert task
        for each in task:
            covered.setdefault(each.queue, []).append((each.first, each.end))
    for whole in wanted:
        pieces = sorted(covered.get(whole.queue, []))
        assert [piece for piece in pieces if piece[0] >= piece[1]] == []
        ends = [whole.first, *(end for _, end in pieces)]
        assert [first for first, _ in pieces] == ends[:-1]
        assert ends[-1] == whole.end
    assert len(tasks) >= min(partitions_min, sum(counts))
    if 0 < sum(counts) <= 20_000 and partitions_min <= 1:
        assert len(tasks) == 1
