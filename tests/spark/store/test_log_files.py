"""Ranges of the log: cut anywhere, read apart, and the rows are those of the log, once each. No Spark is needed."""

import shutil

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.errors import ConfigError, CorruptRecord, StoreError
from bolide.protocol.compression import Compression, compress, with_compression
from bolide.spark.columns import Columns, Wanted
from bolide.spark.schema import STORE_COLUMNS
from bolide.spark.store.log_files import FAILFAST, PERMISSIVE, TAIL, log_directories, log_files, plan, read_range
from tests.store.given import START_MS, HeldClock, draft, opened, small

COUNT = 300


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    root = tmp_path_factory.mktemp("logfiles") / "store"
    write(root)
    return root


def write(root, clock=None):
    """Five segments; every seventh body holds what looks like a record."""
    clock = clock or HeldClock()
    with opened(small(root), clock) as store:
        for i in range(COUNT):
            body = b"body %d " % i + (b"\x00\x00\x00\x60\xda\xa3\x20\xa7" * 8 if i % 7 == 0 else b"x" * (i % 90))
            store.append([draft(body, "AB"[i % 2], i % 3, TAGS=f"t{i % 4}", KEYS=f"k{i}")])
            clock.ms += 1000


def rows(root, names=("physical_offset", "body"), wanted=None, range_size=None, mode=TAIL, paths=None, **more):
    columns = Columns(names, "a")
    files = log_files(log_directories(paths or [str(root)]), mode)
    found = []
    for ranges in plan(files, wanted or Wanted(), range_size):
        for part in ranges:
            for batch in read_range(part, columns, wanted or Wanted(), mode=mode, **more):
                found += batch.to_pylist()
    return found


def last_file(root):
    return max((root / "commitlog").iterdir())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(range_size=st.integers(40, 40_000), row_count_max=st.integers(1, 50))
def test_however_the_log_is_cut_every_record_is_read_once(stored, range_size, row_count_max):
    found = rows(stored, range_size=range_size, row_count_max=row_count_max)
    assert [row["body"].split()[1] for row in found] == [b"%d" % i for i in range(COUNT)]


def test_a_record_inside_a_body_is_not_taken_for_one(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"first")])
        (offset,) = store.append([draft(b"second")]).physical_offsets
    file = last_file(tmp_path)
    content = bytearray(file.read_bytes())
    true_record = bytes(content[offset : offset + int.from_bytes(content[offset : offset + 4], "big")])
    with opened(small(tmp_path)) as store:
        end = offset + len(true_record)
        # A whole record that says it lies where it does: in the body of another, at byte 88 of it.
        fake = bytearray(true_record)
        fake[28:36] = (end + 88).to_bytes(8, "big")
        store.append([draft(bytes(fake) + fake[:8])])
        store.append([draft(b"last")])
    assert len(rows(tmp_path)) == 4
    with pytest.raises(CorruptRecord, match="inside of another"):
        rows(tmp_path, range_size=end + 60)


def test_a_store_that_is_being_written_and_a_copy_read_the_same(tmp_path):
    root = tmp_path / "live"
    with opened(small(root)) as store:
        for i in range(200):
            store.append([draft(b"%d" % i)])
        live = rows(root, STORE_COLUMNS)
        shutil.copytree(root, tmp_path / "copy")
    assert [row["body"] for row in live] == [b"%d" % i for i in range(200)]
    assert rows(tmp_path / "copy", STORE_COLUMNS) == live == rows(root / "commitlog", STORE_COLUMNS)


def test_a_log_in_several_directories_is_one_log(stored, tmp_path):
    whole = rows(stored)
    for number, path in enumerate(sorted((stored / "commitlog").iterdir())):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / str(number % 2))
    assert rows(None, paths=[str(tmp_path / "1"), str(tmp_path / "0")]) == whole
    shutil.copy(max((tmp_path / "0").iterdir()), tmp_path / "1")
    with pytest.raises(StoreError, match="too; read one of the two"):
        rows(None, paths=[str(tmp_path / "1"), str(tmp_path / "0")])


def test_rows_are_chosen_by_topic_tag_and_time(stored):
    bodies = [int(row["body"].split()[1]) for row in rows(stored, wanted=Wanted(topics=frozenset([b"A"])))]
    assert bodies == list(range(0, COUNT, 2))
    assert len(rows(stored, wanted=Wanted(tags=frozenset([b"t1"])))) == COUNT // 4
    timed = Wanted(from_ms=START_MS + 100_000, until_ms=START_MS + 200_000)
    assert [int(row["body"].split()[1]) for row in rows(stored, wanted=timed)] == list(range(100, 200))


def test_segments_outside_the_wanted_time_are_not_even_opened(tmp_path):
    clock = HeldClock()
    with opened(small(tmp_path), clock) as store:
        for _ in range(COUNT):
            store.append([draft(b"x" * 200)])
            clock.ms += 60_000
    files = log_files([tmp_path / "commitlog"])
    middle = START_MS + COUNT // 2 * 60_000
    parts = plan(files, Wanted(from_ms=middle, until_ms=middle + 60_000))
    assert 0 < sum(len(part) for part in parts) <= 3 < len(files)
    assert plan(files, Wanted(until_ms=0)) == []


def test_an_expired_beginning_is_no_damage(stored, tmp_path):
    shutil.copytree(stored, tmp_path / "store")
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    found = rows(tmp_path / "store", mode=FAILFAST)
    assert 0 < len(found) < COUNT
    assert found == [row for row in rows(stored) if row["physical_offset"] >= 16384]


@pytest.mark.parametrize("damage", ["half a record", "a body that changed"])
def test_a_torn_tail_is_left_out_and_said(stored, tmp_path, caplog, damage):
    shutil.copytree(stored, tmp_path / "store")
    file, found = last_file(tmp_path / "store"), rows(stored)
    content = bytearray(file.read_bytes())
    end = content.rindex(b"x", 0, content.rindex(b"KEYS"))
    if damage == "half a record":
        content[end:] = bytes(len(content) - end)
    else:
        content[end] ^= 1
    file.write_bytes(content)
    assert rows(tmp_path / "store") == found[:-1]
    assert "left out" in caplog.text
    with pytest.raises(CorruptRecord, match=r"half a record|no whole record"):
        rows(tmp_path / "store", mode=FAILFAST)


def test_damage_before_whole_records_is_refused_unless_one_asks_for_what_is_whole(stored, tmp_path, caplog):
    shutil.copytree(stored, tmp_path / "store")
    file = min((tmp_path / "store" / "commitlog").iterdir())
    content = bytearray(file.read_bytes())
    content[content.index(b"body 5 ")] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptRecord, match=r"no whole record at byte \d+, whole ones from byte \d+ on; .*permissive"):
        rows(tmp_path / "store")
    found = [int(row["body"].split()[1]) for row in rows(tmp_path / "store", mode=PERMISSIVE)]
    assert found == [i for i in range(COUNT) if i != 5]
    assert "going on at byte" in caplog.text
    assert len(rows(tmp_path / "store", is_checked=False)) == COUNT


def test_a_missing_segment_is_said_and_with_failfast_refused(stored, tmp_path, caplog):
    shutil.copytree(stored, tmp_path / "store")
    sorted((tmp_path / "store" / "commitlog").iterdir())[1].unlink()
    assert 0 < len(rows(tmp_path / "store")) < COUNT
    assert "part of the log is missing" in caplog.text
    with pytest.raises(CorruptRecord, match="part of the log is missing"):
        rows(tmp_path / "store", mode=FAILFAST)


def test_an_empty_store_has_no_rows_and_a_directory_that_is_none_is_refused(tmp_path):
    with opened(small(tmp_path / "store")):
        pass
    assert rows(tmp_path / "store") == []
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError, match="holds no commit log"):
        rows(tmp_path / "other")
    with pytest.raises(ConfigError, match="not a directory"):
        rows(tmp_path / "nowhere")


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_bodies_come_as_they_were_sent(tmp_path, compression):
    packed = compress(b"tea " * 100, compression)
    with opened(small(tmp_path)) as store:
        store.append([draft(b"plain"), draft(packed, sys_flag=with_compression(0, compression))])
    first, second = rows(tmp_path, ("body", "body_size"))
    assert (first["body"], second["body"]) == (b"plain", b"tea " * 100)
    assert second["body_size"] == len(packed)


def test_without_a_column_the_rows_are_counted():
    batch = Columns(()).batch_of(b"")
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 0
