"""A log over several directories: files take turns, and together they are one log."""

import shutil

import pytest

from bolide.errors import StoreError
from bolide.store.inspect import StoreView
from bolide.store.verify import findings
from bolide.testing.disk import FaultyDisk
from tests.store.given import bodies, crash, draft, opened, small


def spread(root, names=("b", "a", "c"), **changes):
    paths = ",".join(str(root / name) for name in names)
    return small(root / "store", commitlog_path=paths, **changes)


def send(store, first, count):
    for i in range(first, first + count):
        store.append([draft(bytes([i]) * 900)])


def files(root):
    return {name: sorted(int(path.name) // 16384 for path in (root / name).iterdir()) for name in "abc"}


@pytest.mark.feature("F148")
@pytest.mark.parametrize("is_killed", [False, True])
def test_files_of_the_log_go_round_and_are_found_again(tmp_path, is_killed):
    config = spread(tmp_path)
    store = opened(config)
    send(store, 0, 100)
    expected = bodies(store)
    assert len(expected) == 100
    (crash if is_killed else store.__class__.close)(store)
    assert {name: numbers[:2] for name, numbers in files(tmp_path).items()} == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    assert not (tmp_path / "store" / "commitlog").exists()
    with opened(config) as store:
        assert bodies(store) == expected
        send(store, 100, 50)
    with opened(config) as store:
        assert len(bodies(store)) == 150
    assert findings(config) == []
    assert sum(row["records"] for row in StoreView(config).summary()["segments"]) == 150


def test_the_oldest_go_whichever_directory_they_are_in(tmp_path):
    config = spread(tmp_path, log_size_max=2 * 16384)
    with opened(config) as store:
        send(store, 0, 100)
        store.flush()
        gone = store.clean()
        assert [base // 16384 for base in gone] == list(range(len(gone)))
        left = bodies(store)
        assert left == [bytes([i]) * 900 for i in range(100 - len(left), 100)]
    assert sum(len(numbers) for numbers in files(tmp_path).values()) == 2
    with opened(config) as store:
        assert bodies(store) == left
        send(store, 0, 20)


def test_a_directory_on_a_disk_that_is_too_full_is_left_out_and_the_emptiest_counts(tmp_path):
    class UnevenDisk(FaultyDisk):
        def used_percent(self, path):
            return {"a": 40, "b": 95, "c": 60}.get(path.name, 10)

    ratios = {"disk_percent_full": 90, "disk_percent_forcibly": 85, "disk_percent_max": 75}
    with opened(spread(tmp_path, **ratios), disk=UnevenDisk()) as store:
        send(store, 0, 80)
        assert (store.is_disk_full, store.disk_percent) == (False, 40)
        assert len(bodies(store)) == 80
    found = files(tmp_path)
    assert found["b"] == []
    assert found["a"]
    assert found["c"]


def test_a_file_that_is_in_two_directories_stops_the_start(tmp_path):
    config = spread(tmp_path)
    with opened(config) as store:
        send(store, 0, 40)
    shutil.copy(tmp_path / "a" / f"{0:020d}", tmp_path / "c")
    with pytest.raises(StoreError, match="too; one of the two must be moved away"):
        opened(config)


def test_a_second_directory_may_be_added_later(tmp_path):
    with opened(spread(tmp_path, ("a",))) as store:
        send(store, 0, 40)
    with opened(spread(tmp_path, ("a", "b", "c"))) as store:
        send(store, 40, 60)
        assert bodies(store) == [bytes([i]) * 900 for i in range(100)]
    assert all(files(tmp_path).values())
