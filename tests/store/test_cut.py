"""A log that is cut ends there for good, with all that follows from it; nobody is shown what is not confirmed."""

import random
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.errors import StoreError
from bolide.model.queue import QueueKey
from bolide.store.config import SYNC_FLUSH
from bolide.store.store import Store
from bolide.store.verify import findings
from bolide.testing.disk import ForgetfulDisk
from tests.store.given import HOST, HeldClock, bodies, crash, draft, opened, read_all, small
from tests.store.replicas import FILE_SIZE, assert_equal_files, contents, copy, filled, follower


@pytest.fixture(scope="module")
def leader(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("leader"), count=45) as store:
        yield store


def starts_of(store):
    """Where records begin, the blank ones too, and where files do."""
    places = {each.physical_offset for key in store.queue_keys for each in read_all(store, key.topic, key.queue_id)}
    places |= {base for base in store.commitlog.segments.bases if base < store.log_end}
    return sorted(places)


def copied(source, root, **changes):
    store = follower(root, **changes)
    copy(source, store)
    return store


def grown_to(source, root, end):
    """What a store looks like that never had more than this."""
    with follower(root) as store:
        for at in range(0, end, FILE_SIZE):
            store.append_copy(at, bytes(source.commitlog.segments.open(at).view[: min(end - at, FILE_SIZE)]))
    return contents(root)


@pytest.mark.feature("F127")
def test_a_cut_at_any_record_leaves_what_a_shorter_copy_has(leader, tmp_path):
    starts = starts_of(leader)
    assert any(start % FILE_SIZE == 0 for start in starts[1:])
    store = copied(leader, tmp_path / "copy")
    for number, start in enumerate(reversed(starts)):
        store.cut_to(start)
        assert store.log_end == store.written_end == store.visible_end == store.durable_end == start
        assert store.checkpoint.durable <= start
        if number % 6 == 0:
            assert contents(tmp_path / "copy") == grown_to(leader, tmp_path / f"short{start}", start), start
    copy(leader, store, [777])
    assert_equal_files(leader.config.root, tmp_path / "copy")
    store.close()
    assert findings(store.config) == []


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["no", "kill", "stop"])), min_size=1, max_size=6))
def test_cuts_copies_and_restarts_in_any_order_end_with_equal_files(leader, tmp_path_factory, cuts):
    root, starts = tmp_path_factory.mktemp("copy"), starts_of(leader)
    store = follower(root)
    for number, restart in cuts:
        copy(leader, store, [number * 100 + 1])
        store.cut_to(starts[number % len(starts)])
        if restart != "no":
            crash(store) if restart == "kill" else store.close()
            store = follower(root)
            assert store.log_end == starts[number % len(starts)]
    copy(leader, store)
    assert_equal_files(leader.config.root, root)
    store.close()
    assert findings(store.config) == []


@pytest.mark.feature("F127")
def test_what_another_leader_writes_behind_a_cut_takes_the_place_of_what_was_there(leader, tmp_path):
    old = copied(leader, tmp_path / "old")
    new = copied(leader, tmp_path / "new")
    cut = starts_of(leader)[-9]
    new.cut_to(cut)
    assert new.lead() == cut
    old.lead()
    for store, word in ((old, b"old"), (new, b"new")):
        for number in range(30):
            store.append([draft(word * 100 + b"%d" % number, "Split", number % 2, KEYS=f"{word}{number}")])
    old.follow()
    old.cut_to(cut)
    copy(new, old, [100, 333])
    assert_equal_files(tmp_path / "new", tmp_path / "old")
    assert all(body.startswith(b"new") for queue in (0, 1) for body in bodies(old, "Split", queue))
    assert len(list((tmp_path / "old" / "cutoffs").iterdir())) >= 1
    for key in old.queue_keys:
        assert old.next_offset(key) == old.max_offset(key) == new.max_offset(key)
    old.close()
    new.close()
    assert findings(old.config) == []


def test_a_log_is_cut_at_records_only(leader, tmp_path):
    store = copied(leader, tmp_path / "copy")
    before = contents(tmp_path / "copy")
    start = starts_of(leader)[10]
    for offset in (start + 1, start - 1, leader.log_end + 1, -1, leader.log_end - 1):
        with pytest.raises(StoreError, match=f"cut at {offset}|begins at {offset}"):
            store.cut_to(offset)
    store.cut_to(leader.log_end)
    assert contents(tmp_path / "copy") == before
    with pytest.raises(StoreError, match="leads"):
        leader.cut_to(0)
    store.close()


def test_what_is_cut_off_is_kept(leader, tmp_path):
    store = copied(leader, tmp_path / "copy")
    start = starts_of(leader)[5]
    assert leader.log_end > 2 * FILE_SIZE
    log = b"".join(bytes(leader.commitlog.segments.open(base).view) for base in leader.commitlog.segments.bases)
    store.cut_to(start)
    kept = sorted((tmp_path / "copy" / "cutoffs").iterdir(), key=lambda path: int(path.name[4:].split(".")[0]))
    content = b"".join(
        path.read_bytes() if n else path.read_bytes().ljust(FILE_SIZE - start, b"\0") for n, path in enumerate(kept)
    )
    assert content.rstrip(b"\0") == log[start:].rstrip(b"\0")
    store.close()


def test_half_a_record_is_cut_before_a_cut_is_asked_for_and_with_it(leader, tmp_path):
    starts = starts_of(leader)
    with follower(tmp_path / "copy") as store:
        store.append_copy(0, bytes(leader.log_view(0, starts[7] + 60)))
        assert store.log_end == starts[7] + 60
        assert store.cut_incomplete() == store.log_end == starts[7]
        assert store.cut_incomplete() == starts[7]
        store.append_copy(starts[7], bytes(leader.log_view(starts[7], 50)))
        store.cut_to(starts[4])
        assert store.log_end == starts[4]
        copy(leader, store)
        assert_equal_files(leader.config.root, tmp_path / "copy")


class Killed(BaseException):
    """The process is no more."""


class DyingDisk(ForgetfulDisk):
    """Counts what is done to it, dies at one step, or leaves what a power cut would at each."""

    def __init__(self, root):
        super().__init__(root)
        self.step = 0
        self.dies_at = None
        self.cuts_power_to = None
        self.chance = random.Random(5)

    def _step(self):
        self.step += 1
        if self.step == self.dies_at:
            raise Killed
        if self.cuts_power_to is not None:
            self.survive(self.cuts_power_to / str(self.step), self.chance)

    def sync(self, fd):
        super().sync(fd)
        self._step()

    def sync_directory(self, path):
        super().sync_directory(path)
        self._step()

    def write(self, fd, content, position):
        super().write(fd, content, position)
        self._step()

    def clear(self, fd, position, size, is_reserved):
        found = super().clear(fd, position, size, is_reserved)
        self._step()
        return found

    def remove(self, path):
        super().remove(path)
        self._step()

    def create(self, path, size):
        fd = super().create(path, size)
        self._step()
        return fd


def prepared_for_a_cut(leader, root, disk):
    """A store of three files with a split tail: what is behind the cut must never be read again."""
    config = small(root, role="SLAVE", index_entries_max=30)
    store = opened(config, HeldClock(), disk)
    copy(leader, store)
    store.flush()
    store.flush_queues()
    return store


def check_after_the_fall(root, leader, cut, is_cut_wanted=False):
    config = small(root, role="SLAVE", index_entries_max=30)
    store = opened(config)
    assert store.log_end == cut if is_cut_wanted else store.log_end in (cut, leader.log_end)
    for key in store.queue_keys:
        places = [each.physical_offset for each in read_all(store, key.topic, key.queue_id)]
        assert all(place < store.log_end for place in places)
    store.cut_to(cut)
    store.lead()
    for number in range(8):  # shorter than what was there: old records would parse behind them
        store.append([draft(b"new %d" % number, "New")])
    end = store.log_end
    crash(store)
    store = opened(config)
    assert store.log_end == end
    assert bodies(store, "New") == [b"new %d" % number for number in range(8)]
    store.close()
    assert findings(config) == []


@pytest.fixture(scope="module")
def steps(leader, tmp_path_factory):
    """How many steps a cut takes, and its place: in the first of three files."""
    root = tmp_path_factory.mktemp("steps")
    cut = starts_of(leader)[6]
    disk = DyingDisk(root)
    store = prepared_for_a_cut(leader, root, disk)
    disk.step = 0
    store.cut_to(cut)
    store.commitlog.await_next()
    store.close()
    return disk.step, cut


@pytest.mark.feature("F127")
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_at_any_step_of_a_cut_leaves_the_old_end_or_the_cut(leader, steps, tmp_path, stride):
    count, cut = steps
    assert count > 20
    for number in range(1, count + 1, stride):
        root = tmp_path / str(number)
        disk = DyingDisk(root)
        store = prepared_for_a_cut(leader, root, disk)
        store.commitlog.await_next()
        disk.step, disk.dies_at = 0, number
        try:
            store.cut_to(cut)
        except Killed:
            disk.dies_at = None
        crash(store)
        check_after_the_fall(root, leader, cut)
        shutil.rmtree(root)


@pytest.mark.feature("F127")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 9))])
def test_a_power_cut_at_any_step_of_a_cut_leaves_the_old_end_or_the_cut(leader, steps, tmp_path, seed):
    _, cut = steps
    root = tmp_path / "store"
    disk = DyingDisk(root)
    store = prepared_for_a_cut(leader, root, disk)
    store.commitlog.await_next()
    disk.chance.seed(seed)
    disk.step, disk.cuts_power_to = 0, tmp_path / "left"
    store.cut_to(cut)
    disk.cuts_power_to = None
    done = disk.step
    disk.survive(tmp_path / "left" / str(done + 1), disk.chance)
    crash(store)
    chosen = random.Random(seed).sample(range(1, done + 1), min(40 if seed else 6, done))
    for number in [*chosen, done + 1]:
        check_after_the_fall(tmp_path / "left" / str(number), leader, cut, is_cut_wanted=number > done)


def controlled(root, **changes):
    return Store.open(small(root, index_entries_max=30, **changes), HeldClock(), HOST, is_controlled=True)


@pytest.mark.feature("F143")
def test_nothing_is_seen_beyond_what_is_confirmed(tmp_path):
    with opened(small(tmp_path)) as store:
        told = []
        store.listen(lambda arrival: told.append(arrival.queue_offset))
        store.confirm(0)
        ends = [store.append([draft(b"%d" % number)]).end for number in range(4)]
        assert bodies(store) == []
        assert store.visible_end == 0
        store.confirm(ends[1])
        assert bodies(store) == [b"0", b"1"]
        assert told == [0, 1]
        store.confirm(ends[0])  # what was seen stays seen
        assert bodies(store) == [b"0", b"1"]
        assert store.visible_end == ends[1]
        store.confirm(ends[3] - 1)
        assert bodies(store) == [b"0", b"1", b"2"]
        assert store.record_at(ends[2]) is None
        store.confirm(None)
        assert bodies(store) == [b"0", b"1", b"2", b"3"]
        assert store.append([draft(b"4")]).queue_offsets == [4]
        assert store.visible_end == store.log_end


@pytest.mark.feature("F143")
def test_a_follower_shows_what_is_confirmed_and_flushed(leader, tmp_path):
    with follower(tmp_path / "copy", flush_mode=SYNC_FLUSH) as store:
        store.confirm(0)
        copy(leader, store)
        store.flush()
        assert bodies(store, "A") == []
        store.confirm(leader.log_end)
        assert bodies(store, "A") == bodies(leader, "A")
        assert_equal_files(leader.config.root, tmp_path / "copy")


@pytest.mark.feature("F143")
@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.31, 0.77, 1.0])
def test_after_a_restart_nothing_is_seen_before_it_is_confirmed_again(leader, tmp_path, is_kill, part):
    store = controlled(tmp_path / "copy")
    confirmed = int(leader.log_end * part)
    store.confirm(confirmed)
    copy(leader, store, [500] * 200)
    store.flush()
    store.flush_queues()
    seen = store.checkpoint.confirmed
    assert seen <= confirmed
    store.confirm(leader.log_end)  # and of this nothing is written down
    crash(store) if is_kill else store.close()
    if not is_kill:
        seen = leader.log_end
    store = controlled(tmp_path / "copy")
    assert store.log_end == leader.log_end
    for key in store.queue_keys:
        records = read_all(store, key.topic, key.queue_id)
        assert all(each.physical_offset + each.store_size <= seen for each in records)
        expected = read_all(leader, key.topic, key.queue_id)
        assert records == [each for each in expected if each.physical_offset + each.store_size <= store.visible_end]
        assert store.next_offset(key) == leader.next_offset(key)
    store.confirm(leader.log_end)
    assert_equal_files(leader.config.root, tmp_path / "copy")
    assert store.lead() == leader.log_end
    appended = store.append([draft(b"x", "A", 0)])
    assert appended.queue_offsets == [leader.max_offset(QueueKey("A", 0))]
    store.close()
    assert findings(store.config) == []


@pytest.mark.feature("F143")
def test_a_leader_with_an_unconfirmed_tail_gives_no_offset_twice_after_a_restart(tmp_path):
    store = controlled(tmp_path)
    store.lead()
    store.confirm(0)
    for number in range(5):
        store.append([draft(b"%d" % number)])
    store.flush()
    store.flush_queues()
    crash(store)
    store = controlled(tmp_path)
    assert bodies(store) == []
    store.lead()
    assert bodies(store) == [b"%d" % number for number in range(5)]
    assert store.append([draft(b"5")]).queue_offsets == [5]
    store.close()


def test_a_store_that_had_no_controller_shows_what_it_had(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"old")])
    with controlled(tmp_path) as store:
        assert store.is_follower
        assert bodies(store) == [b"old"]
