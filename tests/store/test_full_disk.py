"""A disk that is really full: a small tmpfs, where this machine lets us mount one."""

import contextlib
import os
import shutil
import subprocess

import pytest

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.store.verify import findings
from tests.store.given import bodies, crash, draft, opened, query, small

DISK_SIZE = 512 << 10
SEGMENT_SIZE = 64 << 10


@pytest.fixture
def mounted(tmp_path):
    """A directory that holds half a megabyte."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount command here")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "bolide-test", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(directory):
    """Leave not a page; returns the file to delete when there shall be room again."""
    ballast = directory / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert os.statvfs(directory).f_bfree == 0
    return ballast


def send_until_refused(store, make):
    sent = []
    while True:
        try:
            store.append([make(len(sent))])
        except Refusal as refusal:
            return sent, refusal
        sent.append(bytes(make(len(sent)).body))


@pytest.mark.feature("F151", "F167")
@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_full_disk_when_the_log_rolls_refuses_and_resumes(mounted, flush_mode):
    config = small(mounted / "store", segment_size=SEGMENT_SIZE, queue_file_size=40_000, flush_mode=flush_mode)
    with opened(config) as store:
        store.append([draft(b"first")])
        store.flush()  # its queue has a page now
        store.commitlog.discard_next()  # the segment made ahead
        ballast = fill(mounted)
        sent, refusal = send_until_refused(store, lambda i: draft(bytes([i % 256]) * 900))
        assert refusal.code == ResponseCode.SYSTEM_ERROR
        assert "CREATE_MAPPED_FILE_FAILED" in refusal.remark
        assert "No space left" in refusal.remark
        assert len(sent) > 50  # the segment that was there took them
        store.flush()
        assert bodies(store) == [b"first", *sent]
        assert os.listdir(config.log_directory) == [f"{0:020d}"]  # nothing half made stays behind
        ballast.unlink()
        store.append([draft(b"after" * 200)])
        store.flush()
        assert bodies(store) == [b"first", *sent, b"after" * 200]
    with opened(config) as store:
        assert bodies(store) == [b"first", *sent, b"after" * 200]
    assert findings(config) == []


@pytest.mark.feature("F151", "F171")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_full_disk_in_a_queue_file_refuses_and_resumes_and_is_no_signal(mounted, is_killed):
    config = small(mounted / "store", segment_size=SEGMENT_SIZE, queue_file_size=40_000)
    store = opened(config)
    store.append([draft(b"first", KEYS="k")])
    ballast = fill(mounted)
    # The queue's first page takes some two hundred entries; then it needs another.
    sent, refusal = send_until_refused(store, lambda i: draft(b"%d" % i))
    assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "cannot be written" in refusal.remark
    assert "No space left" in refusal.remark
    assert store.dispatch_behind > 0
    with pytest.raises(Refusal, match="No space left"):
        store.append([draft(b"refused")])
    shown = bodies(store)
    assert shown == [b"first", *sent][: len(shown)]
    ballast.unlink()
    if is_killed:
        crash(store)
        store = opened(config)
    else:
        sent.append(b"after")
        store.append([draft(b"after")])
    assert bodies(store) == [b"first", *sent]
    assert store.dispatch_behind == 0
    store.close()
    assert findings(config) == []


@pytest.mark.feature("F151")
def test_a_full_disk_for_a_new_queue_and_its_index_refuses_and_resumes(mounted):
    config = small(mounted / "store", segment_size=SEGMENT_SIZE)
    with opened(config) as store:
        store.append([draft(b"first", topic="Old")])
        ballast = fill(mounted)
        sent, refusal = send_until_refused(store, lambda i: draft(b"%d" % i, topic="New", KEYS=f"k{i}"))
        assert sent == [b"0"]  # the log took it, its queue could not be made
        assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies(store, "New") == []
        ballast.unlink()
        store.append([draft(b"1", topic="New", KEYS="k1")])
        assert bodies(store, "New") == [b"0", b"1"]
        assert [found.body for found in query(store, "New", "k0", 1, 0, 1 << 60)] == [b"0"]
    assert findings(config) == []
