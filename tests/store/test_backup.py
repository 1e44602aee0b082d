"""A copy of a store that is being written to, and what is in it."""

import os
from pathlib import Path

import pytest

from bolide.errors import StoreError
from bolide.store.backup import back_up
from bolide.store.config import StoreConfig


def test_a_directory_that_a_broker_uses_is_no_place_for_a_backup(tmp_path: Path) -> None:
    (tmp_path / "used" / "consumequeue").mkdir(parents=True)
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(StoreError, match="a broker has used"):
        list(back_up(StoreConfig(root=tmp_path / "store"), tmp_path / "used"))


def test_a_log_file_is_copied_to_its_last_byte_and_has_its_length(tmp_path: Path) -> None:
    log, copy = tmp_path / "store" / "commitlog", tmp_path / "copy" / "commitlog"
    log.mkdir(parents=True)
    first, second = log / f"{0:020}", log / f"{1 << 22:020}"
    first.write_bytes(b"a" * (1 << 22))
    second.write_bytes(b"b\0b" + b"\0" * (3 << 20))
    config = StoreConfig(root=tmp_path / "store")
    assert [step.size for step in back_up(config, tmp_path / "copy")] == [1 << 22, 3]
    assert [path.read_bytes() for path in sorted(copy.iterdir())] == [first.read_bytes(), second.read_bytes()]
    times = second.stat()
    second.write_bytes(b"b\0bc" + b"\0" * (3 << 20))
    os.utime(second, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a write through a map leaves it
    assert [step.size for step in back_up(config, tmp_path / "copy")] == [0, 4]
    first.unlink()  # its time was over
    list(back_up(config, tmp_path / "copy"))
    assert [path.name for path in copy.iterdir()] == [second.name]


def test_every_table_is_copied_in_folders_too_and_the_copy_begins_like_a_crashed_store(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    tables = {
        "config/topics.json": "{}",
        "config/transactionMetrics": "x",
        "config/metrics/deep.json": "[]",
    }
    for name, text in tables.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(text)
    (store / "config" / "topics.json.bak").write_text("older")
    (store / "commitlog").mkdir()
    list(back_up(StoreConfig(root=store), copy))
    found = {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if path.is_file()}
    assert found == {**tables, "abort": "backup\n"}


def test_a_log_over_several_directories_is_copied_from_each_of_them_into_one(tmp_path: Path) -> None:
    texts = {f"{0:020}": b"first", f"{1 << 20:020}": b"second", f"{2 << 20:020}": b"third"}
    for directory, (name, text) in zip("bac", texts.items(), strict=True):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / name).write_bytes(text)
    paths = ",".join(str(tmp_path / directory) for directory in "abc")
    list(back_up(StoreConfig(root=tmp_path / "store", commitlog_path=paths), tmp_path / "copy"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy" / "commitlog").iterdir()} == texts
