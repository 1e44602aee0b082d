"""Rot in the log: what is whole stays where it was, at its queue offset, and what is not is passed over and told."""

import contextlib
import logging
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide import kernel
from bolide.errors import CorruptRecord
from bolide.model.queue import QueueKey
from bolide.store.disk import Disk
from bolide.store.record import decode
from bolide.store.segments import Segments
from tests.grids import grid
from tests.store.given import HOST, START_MS, HeldClock, crash, draft, opened, small

SEGMENT = 16384
QUEUES = 3


class HastyDisk(Disk):
    """What is synced does not matter here, and there are many starts."""

    def sync(self, fd):
        return None

    def sync_directory(self, path):
        return None


def start(config, clock=None):
    return opened(config, clock, HastyDisk())


class Kept(NamedTuple):
    """A message that was confirmed: where it is read, where it lies."""

    queue_id: int
    queue_offset: int
    place: int
    size: int
    body: bytes


def fill(root, count=60, size=700, is_clean=True, is_flushed=True, **changes):
    """Messages in some queues and files, the store stopped or killed."""
    clock = HeldClock()
    store = start(small(root, **changes), clock)
    kept = []
    for i in range(count):
        clock.ms += 1
        queue_id, body = i % QUEUES, b"%05d" % i + bytes([65 + i % 26]) * (size - 5)
        done = store.append([draft(body, queue_id=queue_id, TAGS="t", KEYS=f"k{i}")])
        kept.append(Kept(queue_id, done.queue_offsets[0], done.physical_offsets[0], done.end, body))
    kept = [each._replace(size=each.size - each.place) for each in kept]
    if is_flushed:
        store.flush()
        store.flush_queues()
    if is_clean:
        store.close()
    else:
        crash(store)
    return kept


def log_path(root, place):
    return root / "commitlog" / f"{place // SEGMENT * SEGMENT:020d}"


def damage(root, place, content):
    """Overwrite bytes of the log, over the end of a file too."""
    while content:
        part = content[: SEGMENT - place % SEGMENT]
        if not log_path(root, place).exists():
            return
        with open(log_path(root, place), "r+b") as log:
            log.seek(place % SEGMENT)
            log.write(part)
        place, content = place + len(part), content[len(part) :]


def log_bytes(root, place, size):
    with open(log_path(root, place), "rb") as log:
        log.seek(place % SEGMENT)
        return log.read(size)


def readable(store, topic="T"):
    """Body and place by queue and offset, the way consumers read; nobody may stand still."""
    found = {}
    for (name, queue_id), queue in store.dispatch.queues.items():
        offset = queue.min_offset
        while name == topic and offset < queue.next_offset:
            slices = store.read(QueueKey(topic, queue_id), offset, 8)
            assert slices.next_offset > offset
            offsets = {queue.entry(each)[0]: each for each in range(offset, slices.next_offset)}
            for view in slices.views:
                with contextlib.suppress(CorruptRecord):  # in a file that a start after a clean stop does not read
                    message = decode(view)
                    found[queue_id, offsets[message.physical_offset]] = (message.body, message.physical_offset)
            offset = slices.next_offset
    return found


def untouched(root, kept, whole):
    """The messages all of whose bytes are what they were."""
    return [each for each in kept if whole[each.place] == log_bytes(root, each.place, each.size)]


def check(root, kept, whole, config=None):
    """All that was not touched is there, twice over, and what is written next goes behind it."""
    config = config or small(root)
    expected = untouched(root, kept, whole)
    ends = {}
    for each in kept:
        ends[each.queue_id] = max(ends.get(each.queue_id, 0), each.queue_offset + 1)
    for life in range(3):
        clock = HeldClock(START_MS + 1000 * (life + 1))
        with start(config, clock) as store:
            found = readable(store)
            for each in expected:
                assert found.get((each.queue_id, each.queue_offset)) == (each.body, each.place), each
                assert log_bytes(root, each.place, each.size) == whole[each.place]
            body = b"new%d" % life
            done = store.append([draft(body)])
            assert all(done.physical_offsets[0] >= each.place + each.size for each in expected)
            assert readable(store)[0, done.queue_offsets[0]] == (body, done.physical_offsets[0])
            expected.append(Kept(0, done.queue_offsets[0], done.physical_offsets[0], 0, body))
            whole = whole | {done.physical_offsets[0]: b""}
            losses = store.recovered.losses
            if life == 1:
                crash(store)
    return losses


def bytes_of(root, kept):
    return {each.place: log_bytes(root, each.place, each.size) for each in kept}


KINDS = {
    "a bit in the body": lambda each, old: (each.place + 200, bytes([old[200] ^ 4])),
    "a bit in the size": lambda each, old: (each.place + 2, bytes([old[2] ^ 1])),
    "a high bit in the size": lambda each, old: (each.place, bytes([old[0] ^ 0x40])),
    "a bit in the magic": lambda each, old: (each.place + 5, bytes([old[5] ^ 8])),
    "a bit in its own offset": lambda each, old: (each.place + 34, bytes([old[34] ^ 2])),
    "a bit in the body's size": lambda each, old: (each.place + 86, bytes([old[86] ^ 1])),
    "a bit in the topic's length": lambda each, old: (each.place + 788, bytes([old[788] ^ 1])),
    "the properties' length": lambda each, old: (each.place + 790, b"\x7f\xff"),
    "a bit in the queue offset": lambda each, old: (each.place + 21, bytes([old[21] ^ 16])),
    "a high bit in the queue offset": lambda each, old: (each.place + 20, bytes([old[20] ^ 0x20])),
    "the sign of the queue offset": lambda each, old: (each.place + 20, bytes([old[20] ^ 0x80])),
    "a bit in the queue id": lambda each, old: (each.place + 12, bytes([old[12] ^ 0x40])),
    "the greatest queue id": lambda each, old: (each.place + 12, b"\x7f\xff\xff\xff"),
    "the sign of the queue id": lambda each, old: (each.place + 12, bytes([old[12] ^ 0x80])),
    "a high bit in the store time": lambda each, old: (each.place + 56, bytes([old[56] ^ 0x20])),
    "the sign of the store time": lambda each, old: (each.place + 56, bytes([old[56] ^ 0x80])),
    "a low bit in the queue offset": lambda each, old: (each.place + 27, bytes([old[27] ^ 2])),
    "a bit in the flags": lambda each, old: (each.place + 39, bytes([old[39] ^ 0x80])),
    "a lost page": lambda each, old: (each.place // 4096 * 4096, bytes(4096)),
    "a garbage page": lambda each, old: (each.place // 4096 * 4096, b"\xda\xa3\x20\xa7garbage" * 372 + b"!!!!"),
    "all of it": lambda each, old: (each.place, b"\xff" * each.size),
    "all of it zeros": lambda each, old: (each.place, bytes(each.size)),
}
PLACES = {
    "first": 0,
    "early": 7,
    "first of a file": 20,
    "last of a file": 19,
    "late": 50,
    "last but one": 58,
    "last": 59,
}


@grid(4, kind=KINDS, where=PLACES, is_clean=[True, False])
def test_what_is_whole_survives_rot_beside_it(tmp_path, kind, where, is_clean):
    kept = fill(tmp_path, is_clean=is_clean)
    assert kept[20].place == SEGMENT
    whole = bytes_of(tmp_path, kept)
    each = kept[PLACES[where]]
    damage(tmp_path, *KINDS[kind](each, whole[each.place]))
    check(tmp_path, kept, whole)


@grid(3, bit=[61, 44, 38], where=PLACES, is_clean=[True, False])
def test_a_bit_in_a_store_time_does_not_push_later_messages_ahead(tmp_path, bit, where, is_clean):
    kept = fill(tmp_path, is_clean=is_clean)
    each = kept[PLACES[where]]
    stored_ms = int.from_bytes(log_bytes(tmp_path, each.place + 56, 8), "big")
    damage(tmp_path, each.place + 56, (stored_ms ^ 1 << bit).to_bytes(8, "big"))
    for life in range(3):
        clock = HeldClock(START_MS + 5000 * (life + 1))
        with start(small(tmp_path), clock) as store:
            assert store.append([draft(b"new")]).store_ms == clock.ms
            assert store.checkpoint.log_ms <= clock.ms
            if life == 1:
                crash(store)


@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_store_times_do_not_go_back_with_a_clock_that_does(tmp_path, count, is_clean):
    fill(tmp_path, count, is_clean=is_clean)
    for _ in range(2):
        with start(small(tmp_path), HeldClock(START_MS - 30 * 86_400_000)) as store:
            assert store.append([draft(b"new")]).store_ms == START_MS + count


@grid(4, filler=[b"\x00", b"\xa5"], size=[1, 9, 1000, 7000], begin=[-3000, -400, -20, -8, -1], is_clean=[True, False])
def test_a_stretch_over_the_end_of_a_file_costs_what_it_covers(tmp_path, begin, size, filler, is_clean):
    kept = fill(tmp_path, is_clean=is_clean)
    whole = bytes_of(tmp_path, kept)
    damage(tmp_path, 2 * SEGMENT + begin, filler * size)
    check(tmp_path, kept, whole)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("at", [0, 3, 4, 7])
def test_a_damaged_blank_record_does_not_end_the_log(tmp_path, at, is_clean):
    kept = fill(tmp_path, is_clean=is_clean)
    whole = bytes_of(tmp_path, kept)
    for number in (19, 39):
        blank = kept[number].place + kept[number].size
        assert log_bytes(tmp_path, blank + 4, 4) == b"\xcb\xd4\x31\x94"
        damage(tmp_path, blank + at, bytes([log_bytes(tmp_path, blank + at, 1)[0] ^ 1]))
    check(tmp_path, kept, whole)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_byte_range_of_the_log_may_rot_and_nothing_else_goes(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("rot")
    is_clean = data.draw(st.booleans(), "is clean")
    kept = fill(root, 45, data.draw(st.sampled_from([5, 60, 700])), is_clean, data.draw(st.booleans(), "is flushed"))
    whole = bytes_of(root, kept)
    end = kept[-1].place + kept[-1].size
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, end - 1))
        size = data.draw(st.one_of(st.just(1), st.integers(1, 300), st.integers(1, 20000)))
        size = min(size, end - place)
        filler = data.draw(st.sampled_from([b"\x00", b"\xff", b"\xda\xa3\x20\xa7", b"rot", b""]))
        if filler:
            damage(root, place, (filler * size)[:size])
        else:
            damage(root, place, bytes([log_bytes(root, place, 1)[0] ^ 1 << data.draw(st.integers(0, 7))]))
    check(root, kept, whole)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_log_file_that_is_gone_takes_its_own_messages_only(tmp_path, is_clean):
    kept = fill(tmp_path, is_clean=is_clean)
    whole = bytes_of(tmp_path, kept)
    (tmp_path / "checkpoint").unlink()
    log_path(tmp_path, SEGMENT).unlink()
    left = [each for each in kept if each.place // SEGMENT != 1]
    check(tmp_path, left, whole)


def test_messages_confirmed_and_lost_with_the_end_of_the_log_keep_their_offsets(tmp_path, caplog):
    """A consumer that has read them must not be given others at their offsets, nor places be given twice."""
    kept = fill(tmp_path)
    damage(tmp_path, kept[-6].place, b"\xee" * sum(each.size for each in kept[-6:]))
    with caplog.at_level(logging.WARNING), start(small(tmp_path)) as store:
        losses = store.recovered.losses
        assert losses.stretches == [(kept[-6].place, kept[-1].place + kept[-1].size)]
        assert losses.confirmed_size == losses.size
        assert losses.record_count == 6
        done = store.append([draft(b"new")])
        assert done.queue_offsets == [20]
        assert done.physical_offsets == [kept[-1].place + kept[-1].size]
        found = readable(store)
        assert len(found) == 55
        assert (0, 18) not in found
    told = [record for record in caplog.records if record.name == "bolide.store.recovery"]
    assert [record.levelname for record in told] == ["ERROR"]
    assert f"bytes={losses.size} durable_bytes={losses.size} known_records=6" in caplog.text


def test_a_tail_that_was_never_durable_is_cut_and_kept(tmp_path, caplog):
    store = start(small(tmp_path))
    store.append([draft(b"a")])
    store.flush()
    store.flush_queues()
    end = store.append([draft(b"b")]).physical_offsets[0]
    crash(store)
    damage(tmp_path, end, b"torn" * 8 + bytes(80))
    with caplog.at_level(logging.WARNING), start(small(tmp_path)) as store:
        assert store.recovered.losses.cut_size == 32
        (path,) = store.recovered.losses.kept
        assert path.read_bytes() == b"torn" * 8
        assert store.append([draft(b"c")]).physical_offsets == [end]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(path) in caplog.text


def test_a_tail_too_large_to_copy_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("bolide.store.cutoffs.COPIED_SIZE_MAX", 1000)
    store = start(small(tmp_path))
    end = store.append([draft(b"a")]).end
    crash(store)
    (tmp_path / "checkpoint").unlink()
    damage(tmp_path, end, b"garbage!" * 1000)
    for life in range(2):
        with start(small(tmp_path)) as store:
            assert log_bytes(tmp_path, end + 8, 7992) == b"garbage!" * 999
            assert store.append([draft(b"%d" % life)]).physical_offsets[0] >= SEGMENT
            assert [body for body, _ in readable(store).values()] == [b"a", b"0", b"1"][: life + 2]


def test_no_file_is_kept_of_a_tail_of_zeros(tmp_path, caplog):
    kept = fill(tmp_path, is_clean=False, is_flushed=False)
    damage(tmp_path, kept[-1].place, bytes(kept[-1].size))
    with caplog.at_level(logging.WARNING), start(small(tmp_path)) as store:
        assert store.recovered.losses.cut_size == 0
    assert not (tmp_path / "cutoffs").exists()
    assert caplog.records == []


def forged(place, **more):
    return kernel.encode_records([draft(b"inner", topic="Evil", **more)], place, START_MS + 9, HOST, {}, (), 1000)[0]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("rot", [0, 2, 5, 34, 85, 300], ids=lambda at: f"byte {at}")
def test_a_record_forged_in_a_body_is_not_taken_when_its_carrier_rots(tmp_path, rot, is_clean):
    store = start(small(tmp_path))
    store.append([draft(b"first")])
    place = store.progress.appended
    inner = forged(place + 88)
    inner += forged(place + 88 + len(inner))
    carrier = store.append([draft(inner + b"x" * 500)])
    store.append([draft(b"%d" % i) for i in range(20)])
    store.flush()
    store.close() if is_clean else crash(store)
    damage(tmp_path, place + rot, bytes([log_bytes(tmp_path, place + rot, 1)[0] ^ 1]))
    with start(small(tmp_path)) as store:
        assert store.queue(QueueKey("Evil", 0)) is None
        assert [body for body, _ in readable(store).values()] == [b"first"] + [b"%d" % i for i in range(20)]
        assert store.recovered.losses.stretches == [(place, carrier.end)]


def test_the_queues_tell_how_far_a_lost_record_went(tmp_path):
    """With its head gone, only they know that what looks like a record is a part of another."""
    store = start(small(tmp_path))
    store.append([draft(b"first")])
    place = store.progress.appended
    body = b"y" * 200
    body += forged(place + 88 + len(body))
    rest = len(body) + 88
    store.append([draft(body + forged(place + rest))])
    store.append([draft(b"last")])
    crash(store)
    damage(tmp_path, place, bytes(100))
    with start(small(tmp_path)) as store:
        assert store.queue(QueueKey("Evil", 0)) is None
        assert [body for body, _ in readable(store).values()] == [b"first", b"last"]


def test_old_records_behind_a_truncation_of_another_broker_do_not_come_back(tmp_path):
    """A Java broker leaves them where they are; they are older than what lies before them."""
    clock = HeldClock()
    store = start(small(tmp_path), clock)
    first = store.append([draft(b"a" * 300)]).end
    store.append([draft(b"old%d" % i) for i in range(5)])
    crash(store)
    for name in ("checkpoint", "consumequeue"):
        path = tmp_path / name
        path.unlink() if path.is_file() else __import__("shutil").rmtree(path)
    newer = kernel.encode_records([draft(b"new")], first, START_MS + 5000, HOST, {("T", 0): 1}, (), 1000)[0]
    damage(tmp_path, first, newer + b"\xff" * 7)
    with start(small(tmp_path), clock) as store:
        assert [body for body, _ in readable(store).values()] == [b"a" * 300, b"new"]
        assert store.recovered.losses.kept


def test_a_store_of_one_page_of_garbage_starts_empty_and_keeps_it(tmp_path):
    kept = fill(tmp_path, 3, is_clean=False, is_flushed=False)
    (tmp_path / "checkpoint").unlink()
    damage(tmp_path, 0, b"\xaa" * (kept[-1].place + kept[-1].size))
    with start(small(tmp_path)) as store:
        assert readable(store) == {}
        assert store.append([draft(b"x")]).physical_offsets == [0]
        assert len(store.recovered.losses.kept) == 1


def test_a_healthy_start_looks_for_nothing(tmp_path, monkeypatch):
    kept = fill(tmp_path, is_clean=False)
    monkeypatch.setattr(kernel, "scan_records", None)
    with start(small(tmp_path)) as store:
        assert len(readable(store)) == len(kept)
        assert store.recovered.losses.stretches == []
        assert isinstance(store.commitlog.segments, Segments)
