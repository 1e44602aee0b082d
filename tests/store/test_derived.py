"""Queues and index follow from the log: whatever happens to their files, a start makes them again from it."""

import itertools
import json
import logging
import os
import shutil

import pytest

from bolide.errors import Refusal, StoreError
from bolide.model.queue import QueueKey
from bolide.store import indexmend
from bolide.store.roster import FILE_NAME
from bolide.store.verify import findings
from tests.grids import grid
from tests.store.given import HeldClock, bodies, crash, draft, opened, query, read_all, small

QUEUES = [("A", 0), ("A", 1), ("B", 0)]
ROUNDS = 45
QUEUE_FILE = "consumequeue/A/0/00000000000000000000"


def config_of(root, **changes):
    return small(root, **{"index_entries_max": 60} | changes)


def fill(store, clock, rounds, first=0):
    for i in range(first, first + rounds):
        clock.ms += 100
        for topic, queue_id in QUEUES:
            store.append([draft(b"%s%d.%d" % (topic.encode(), queue_id, i), topic, queue_id, TAGS="t", KEYS=f"k{i}")])
    store.flush()
    store.flush_queues()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One that was stopped and one that was killed, each with its derived files from halfway, to put back as stale."""
    made = {}
    for is_clean in (True, False):
        root, clock = tmp_path_factory.mktemp("made") / "store", HeldClock()
        store = opened(config_of(root), clock)
        fill(store, clock, ROUNDS // 2)
        for name in ("consumequeue", "index"):
            shutil.copytree(root / name, root.parent / "stale" / name)
        fill(store, clock, ROUNDS - ROUNDS // 2, ROUNDS // 2)
        store.close() if is_clean else crash(store)
        made[is_clean] = root.parent, clock.ms
    return made


@pytest.fixture
def make(stores, tmp_path):
    def make(is_clean=True):
        made, now_ms = stores[is_clean]
        shutil.copytree(made, tmp_path / "made")
        return tmp_path / "made" / "store", HeldClock(now_ms)

    return make


def flipped(content, at):
    content[at] ^= 0x10
    return bytes(content)


def overwritten(content, at, page):
    content[at : at + len(page)] = page
    return bytes(content)


NOISE = bytes(itertools.islice(itertools.cycle(range(7, 251, 13)), 160))
DAMAGES = {
    "missing": None,
    "empty": lambda content, _: b"",
    "half": lambda content, _: bytes(content[: len(content) // 2]),
    "doubled": lambda content, _: bytes(content) * 2,
    "bit at the head": lambda content, _: flipped(content, 3),
    "bit at the head's end": lambda content, _: flipped(content, 11),
    "bit in the middle": lambda content, _: flipped(content, len(content) // 2 + 6),
    "bit at the end": lambda content, _: flipped(content, len(bytes(content).rstrip(b"\0")) - 16),
    "garbage page": lambda content, _: overwritten(content, 160, NOISE),
    "zero page": lambda content, _: overwritten(content, 160, bytes(160)),
    "zeros": lambda content, _: bytes(len(content)),
    "another's": lambda content, other: other,
    "stale": lambda content, _: None,
}


def damage(root, path, kind):
    if kind == "missing":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    other = next(p for p in sorted(path.parents[1].rglob("*")) if p.is_file() and p.read_bytes() != content)
    if kind == "stale":
        stale = root.parent / "stale" / path.relative_to(root)
        shutil.copy(stale, path) if stale.exists() else path.unlink()
    else:
        path.write_bytes(DAMAGES[kind](content, other.read_bytes()))


def check_all(store, rounds=ROUNDS):
    for topic, queue_id in QUEUES:
        sent = [b"%s%d.%d" % (topic.encode(), queue_id, i) for i in range(rounds)]
        assert bodies(store, topic, queue_id) == sent
        assert [record.queue_offset for record in read_all(store, topic, queue_id)] == list(range(rounds))
    for i in range(rounds):
        found = {message.body for message in query(store, "A", f"k{i}", 10, 0, 1 << 60)}
        assert found >= {b"A0.%d" % i, b"A1.%d" % i}, i


def check_goes_on(root, clock):
    """No offset is given twice, and another start has nothing to mend."""
    with opened(config_of(root), clock) as store:
        check_all(store)
        assert store.append([draft(b"A0.%d" % ROUNDS, "A", KEYS=f"k{ROUNDS}")]).queue_offsets == [ROUNDS]
    assert findings(config_of(root)) == []


@grid(3, number=[0, 1, -1], kind=DAMAGES, is_clean=[True, False])
def test_a_damaged_queue_file_hides_no_message(make, caplog, kind, number, is_clean):
    root, clock = make(is_clean)
    path = sorted((root / "consumequeue" / "A" / "0").iterdir())[number]
    damage(root, path, kind)
    with opened(config_of(root), clock) as store:
        check_all(store)
    caplog.clear()
    check_goes_on(root, clock)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "kill"])
@pytest.mark.parametrize("what", ["queue", "topic", "all"])
def test_queues_that_are_gone_come_back(make, what, is_clean):
    root, clock = make(is_clean)
    shutil.rmtree(root / {"queue": "consumequeue/A/0", "topic": "consumequeue/A", "all": "consumequeue"}[what])
    with opened(config_of(root), clock) as store:
        check_all(store)
    check_goes_on(root, clock)


@grid(3, number=[0, 1, -1], kind=DAMAGES, is_clean=[True, False])
def test_a_damaged_index_file_hides_no_key(make, kind, number, is_clean):
    root, clock = make(is_clean)
    damage(root, sorted((root / "index").iterdir())[number], kind)
    with opened(config_of(root), clock) as store:
        check_all(store)
    check_goes_on(root, clock)


def make_long(root, clock):
    """A store whose queues A and B end far below the checkpoint, killed: a start does not walk over their records."""
    config = config_of(root, index_entries_max=4)
    store = opened(config, clock)
    fill(store, clock, ROUNDS)
    for i in range(60):
        clock.ms += 1000
        store.append([draft(bytes(900), "C", KEYS=f"c{i}")])
    store.flush()
    store.flush_queues()
    crash(store)
    return config


@grid(2, number=[0, -1], kind=[kind for kind in DAMAGES if kind != "stale"])
def test_damage_far_below_the_checkpoint_is_noticed_after_a_kill_too(tmp_path, kind, number):
    root, clock = tmp_path / "store", HeldClock()
    config = make_long(root, clock)
    damage(root, sorted((root / "consumequeue" / "A" / "0").iterdir())[number], kind)
    with opened(config, clock) as store:
        assert store.recovered.started_at > store.queue(QueueKey("B", 0)).entry(ROUNDS - 1)[0]
        check_all(store)
        assert store.append([draft(b"next", "A")]).queue_offsets == [ROUNDS]


def test_a_queue_that_is_gone_after_a_kill_goes_on_where_it_was(tmp_path):
    root, clock = tmp_path / "store", HeldClock()
    config = make_long(root, clock)
    shutil.rmtree(root / "consumequeue" / "A")
    with opened(config, clock) as store:
        assert store.append([draft(b"next", "A")]).queue_offsets == [ROUNDS]
        assert bodies(store, "A", 1) == [b"A1.%d" % i for i in range(ROUNDS)]


def test_a_queue_cut_short_without_a_roster_is_made_again_when_the_log_goes_on_behind_it(make):
    """As a Java broker leaves a store, which knows no roster."""
    root, clock = make()
    (root / FILE_NAME).unlink()
    max((root / "consumequeue" / "A" / "0").iterdir()).unlink()
    with opened(config_of(root), clock) as store:
        check_all(store)


@pytest.mark.parametrize("damage_at", [0, 5, 200, -3, None])
def test_a_damaged_or_lost_roster_costs_nothing_but_its_checks(make, damage_at):
    root, clock = make()
    content = bytearray((root / FILE_NAME).read_bytes())
    if damage_at is None:
        content = content[: len(content) // 2]
    else:
        content[damage_at] ^= 4
    (root / FILE_NAME).write_bytes(content)
    with opened(config_of(root), clock) as store:
        check_all(store)
    check_goes_on(root, clock)


def test_an_offset_that_rotted_in_the_roster_is_not_believed(make):
    root, clock = make()
    checksum, _, text = (root / FILE_NAME).read_bytes().partition(b" ")
    facts = json.loads(text)
    facts["queues"][0][3] += 1000
    (root / FILE_NAME).write_bytes(checksum + b" " + json.dumps(facts, separators=(",", ":")).encode() + b"\n")
    topic, queue_id, _, rotted, *_ = facts["queues"][0]
    with opened(config_of(root), clock) as store:
        assert store.max_offset(QueueKey(topic, queue_id)) == rotted - 1000
        check_all(store)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "kill"])
def test_a_topic_that_was_removed_stays_away_and_made_again_begins_at_zero(tmp_path, is_clean):
    root, clock = tmp_path / "store", HeldClock()
    config = make_long(root, clock)
    store = opened(config, clock)
    store.remove_topic("A")
    store.remove_topic("B")
    assert store.append([draft(b"new", "B")]).queue_offsets == [0]
    for _ in range(40):
        clock.ms += 1000
        store.append([draft(bytes(900), "C")])
    store.flush()
    store.flush_queues()
    store.close() if is_clean else crash(store)
    shutil.rmtree(root / "consumequeue" / "B")
    with opened(config, clock) as store:
        assert store.queue(QueueKey("A", 0)) is None
        assert bodies(store, "B") == [b"new"]
        assert store.append([draft(b"more", "B")]).queue_offsets == [1]


def test_a_queue_whose_messages_expired_keeps_its_numbers_when_its_files_are_lost(tmp_path):
    clock, config = HeldClock(), small(tmp_path, keep_hours=0, delete_hours=";".join(map(str, range(24))))
    with opened(config, clock) as store:
        store.append([draft(b"%d" % i, "Old") for i in range(40)])
        for i in range(100):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        clock.ms = 1 << 42
        assert len(store.clean()) > 3
    shutil.rmtree(tmp_path / "consumequeue")
    for _ in range(2):
        with opened(config, clock) as store:
            assert store.max_offset(QueueKey("Old", 0)) == store.min_offset(QueueKey("Old", 0)) == 40
            assert read_all(store)[-1].queue_offset == 99
    with opened(config, clock) as store:
        assert store.append([draft(b"x", "Old")]).queue_offsets == [40]


def test_another_file_size_in_the_settings_refuses_the_start_and_deletes_nothing(make):
    root, clock = make()
    before = {path: path.stat().st_size for path in root.rglob("*")}
    for changes in ({"queue_file_size": 800}, {"index_slots": 32}):
        with pytest.raises(StoreError, match="written"):
            opened(config_of(root, **changes), clock)
    (root / "abort").unlink()
    assert {path: path.stat().st_size for path in root.rglob("*")} == before
    with opened(config_of(root), clock) as store:
        check_all(store)


def test_a_wrong_length_is_told_with_both_sizes(make, caplog):
    root, clock = make()
    os.truncate(root / QUEUE_FILE, 120)
    index_file = min((root / "index").iterdir())
    size = index_file.stat().st_size
    os.truncate(index_file, 100)
    with opened(config_of(root), clock) as store:
        check_all(store)
    said = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert f"file={root / QUEUE_FILE} bytes=120 wanted=400" in said
    assert f"{index_file} has 100 bytes instead of {size}" in said


def test_a_large_damaged_index_file_is_refused_until_the_next_start_makes_it_again(make, monkeypatch):
    root, clock = make()
    path = min((root / "index").iterdir())
    path.write_bytes(overwritten(bytearray(path.read_bytes()), 40, bytes(256)))
    monkeypatch.setattr(indexmend, "_KEYS_MAX", 10)
    with opened(config_of(root), clock) as store, pytest.raises(Refusal, match="restart the broker"):
        query(store, "A", "k0", 10, 0, 1 << 60)
    with opened(config_of(root), clock) as store:
        check_all(store)


def test_verification_names_files_of_a_wrong_length_and_changes_none(make):
    root, _ = make()
    os.truncate(root / QUEUE_FILE, 120)
    (root / "consumequeue/B/0/00000000000000000400").unlink()
    index_file = min((root / "index").iterdir())
    os.truncate(index_file, 100)
    before = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
    said = "\n".join(f"{finding.file}: {finding.what}" for finding in findings(config_of(root)))
    assert f"{root / QUEUE_FILE}: has 120 bytes" in said
    assert f"{root}/consumequeue/B/0/00000000000000000400: entry 20 is not that of" in said
    assert f"{index_file} has 100 bytes instead of" in said
    assert {path: path.stat().st_size for path in root.rglob("*") if path.is_file()} == before
