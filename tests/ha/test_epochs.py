"""Epochs: the file as Java writes it, and where two logs agree."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import StoreError
from bolide.ha.epochs import Epochs, decode, encode
from bolide.ha.frames import Epoch


def epochs(path: Path, *entries: tuple[int, int]) -> Epochs:
    path.write_text(encode([Epoch(*each) for each in entries]))
    return Epochs(path)


def test_the_file_is_javas(tmp_path: Path) -> None:
    assert encode([Epoch(1, 0)]) == "1\n1725254278\n1-0\n"
    assert encode([Epoch(7, 7000), Epoch(8, 8000)]) == "2\n773307083\n7-7000\n8-8000\n"
    assert decode("2\n0\n7-7000\n8-8000\n") == (Epoch(7, 7000), Epoch(8, 8000))  # 0 is not checked
    found = Epochs(tmp_path / "epochFileCheckpoint")
    found.record(1, 0)
    assert (tmp_path / "epochFileCheckpoint").read_bytes() == b"1\n1725254278\n1-0\n"


@pytest.mark.parametrize(
    "text",
    [
        "1\n5\n1-0\n",
        "2\n0\n1-0\n",
        "x\n",
        "1\n0\n1\n",
        "1\n0\n1-\n",
        "1\n0\n1-2-3\n",
        "2\n0\n2-0\n1-5\n",
        "1\n0\n1--5\n",
    ],
)
def test_a_file_that_is_none_is_refused_and_its_backup_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "e"
    path.write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        Epochs(path)
    (tmp_path / "e.bak").write_text(encode([Epoch(3, 30)]))
    assert Epochs(path).entries == (Epoch(3, 30),)


def test_epochs_outlive_a_restart_and_a_write_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "e"
    first = Epochs(path)
    first.record(1, 0)
    first.record(2, 100)
    (tmp_path / "e.tmp").write_text("torn")
    assert Epochs(path).entries == (Epoch(1, 0), Epoch(2, 100))


def test_every_epoch_is_recorded_though_nothing_was_written_in_the_one_before(tmp_path: Path) -> None:
    found = Epochs(tmp_path / "e")
    for number in range(1, 11):
        found.record(number, 50)
    assert [each.number for each in Epochs(tmp_path / "e").entries] == list(range(1, 11))
    assert found.holding(50) == (Epoch(10, 50), None)


@pytest.mark.parametrize(("number", "start"), [(1, 100), (2, 99), (2, 101), (3, 99)])
def test_an_epoch_that_does_not_follow_is_refused(tmp_path: Path, number: int, start: int) -> None:
    found = epochs(tmp_path / "e", (1, 0), (2, 100))
    with pytest.raises(StoreError, match="is followed by"):
        found.record(number, start)
    found.record(2, 100)
    assert found.entries == (Epoch(1, 0), Epoch(2, 100))


def test_a_cut_drops_what_begins_behind_it_and_what_is_above_the_common_epoch(tmp_path: Path) -> None:
    path = tmp_path / "e"
    entries = [(1, 0), (2, 100), (3, 100), (4, 200)]
    found = epochs(path, *entries)
    found.cut_to(200)
    assert [each.number for each in found.entries] == [1, 2, 3, 4]
    found.cut_to(199)
    assert [each.number for each in Epochs(path).entries] == [1, 2, 3]
    found.cut_to(100, number_max=2)
    assert [each.number for each in Epochs(path).entries] == [1, 2]
    found.cut_to(0, number_max=0)
    assert Epochs(path).entries == ()


def test_retention_drops_epochs_that_ended_before_the_log_begins(tmp_path: Path) -> None:
    found = epochs(tmp_path / "e", (1, 0), (2, 100), (3, 200))
    found.drop_below(100)
    assert [each.number for each in found.entries] == [1, 2, 3]
    found.drop_below(101)
    assert [each.number for each in found.entries] == [2, 3]
    found.drop_below(10_000)
    assert [each.number for each in found.entries] == [3], "the last one goes on"


def test_a_byte_belongs_to_the_newest_epoch_that_began_before_it(tmp_path: Path) -> None:
    found = epochs(tmp_path / "e", (1, 10), (2, 100), (3, 100), (4, 200))
    assert found.holding(9) is None
    assert found.holding(10) == found.holding(99) == (Epoch(1, 10), 100)
    assert found.holding(100) == (Epoch(3, 100), 200)
    assert found.holding(10**15) == (Epoch(4, 200), None)


@pytest.mark.parametrize(
    ("own", "own_end", "others", "others_end", "common"),
    [
        ([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 450)], 700, (2, 450)),
        ([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 500)], 600, (3, 600)),
        ([(1, 100), (2, 300)], 400, [(1, 200), (2, 500)], 600, None),
        ([(1, 0)], 100, [(1, 0)], 500, (1, 100)),  # behind: nothing is cut
        ([(1, 0), (2, 100)], 180, [(1, 0), (3, 100)], 150, (1, 100)),  # written by a master that was deposed
        ([(1, 0), (2, 100), (3, 100)], 100, [(1, 0), (3, 100)], 150, (3, 100)),
        ([], 50, [(1, 0)], 100, None),
        ([(1, 0)], 50, [], 100, None),
    ],
)
def test_two_logs_agree_up_to_the_smaller_end_of_their_newest_common_epoch(
    tmp_path: Path,
    own: list[tuple[int, int]],
    own_end: int,
    others: list[tuple[int, int]],
    others_end: int,
    common: tuple[int, int] | None,
) -> None:
    found = epochs(tmp_path / "e", *own)
    assert found.common([Epoch(*each) for each in others], others_end, own_end) == common


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_logs_that_grew_apart_are_never_found_equal_where_they_differ(
    tmp_path_factory: pytest.TempPathFactory, turns: list[bool], data: st.DataObject
) -> None:
    """Two brokers take turns as master; a byte is the number of the epoch that wrote it."""
    logs: list[list[int]] = [[], []]
    tables: list[list[Epoch]] = [[], []]
    for number, is_second in enumerate(turns, 1):
        own, other = logs[is_second], logs[not is_second]
        tables[is_second].append(Epoch(number, len(own)))
        own += [number] * data.draw(st.integers(0, 3))
        # The other one follows for a while, after it has cut what it has for itself; or it hears of nothing.
        if data.draw(st.booleans()):
            follower = Epochs(tmp_path_factory.mktemp("e") / "e")
            follower.entries = tuple(tables[not is_second])
            found = follower.common(tables[is_second], len(own), len(other))
            if found is None and other:
                continue
            end = found[1] if found else 0
            assert other[:end] == own[:end]
            del other[end:]
            taken = data.draw(st.integers(end, len(own)))
            other += own[end:taken]
            tables[not is_second] = [each for each in tables[is_second] if each.start < taken or each.start == 0]
