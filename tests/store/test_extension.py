"""Consume queue extensions: queues as a broker with enableConsumeQueueExt left them, built byte by byte."""

import shutil
import struct

import pytest

from bolide.kernel import java_hash
from bolide.model.queue import QueueKey
from bolide.store.queue_files import Finding
from bolide.store.read import PullStatus
from bolide.store.record import decode
from bolide.store.roster import FILE_NAME
from bolide.store.verify import Verification, findings
from tests.store.given import START_MS, HeldClock, draft, opened, small

QUEUE = QueueKey("T", 0)
FILE_SIZE = 1024
BITMAP = b"\x05\x77" * 92
UNIT_SIZE = 20 + len(BITMAP)
UNITS_A_FILE = (FILE_SIZE - 4) // UNIT_SIZE
WANTED = frozenset([java_hash("b")])


def unit(tag, bitmap=BITMAP):
    return struct.pack(">hqqh", 20 + len(bitmap), java_hash(tag), START_MS, len(bitmap)) + bitmap


def extended(root, tags):
    """A cleanly stopped store whose entries hold addresses; each tag is in a unit of two extension files."""
    config = small(root, extension_file_size=FILE_SIZE)
    with opened(config) as store:
        for i, tag in enumerate(tags):
            store.append([draft(b"%d" % i, TAGS=tag)])
    directory = root / "consumequeue_ext" / "T" / "0"
    directory.mkdir(parents=True)
    queue_file = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    entries = bytearray(queue_file.read_bytes())
    for first in range(0, len(tags), UNITS_A_FILE):
        content = b""
        base = first // UNITS_A_FILE * FILE_SIZE
        for i, tag in enumerate(tags[first : first + UNITS_A_FILE], first):
            struct.pack_into(">q", entries, i * 20 + 12, -(2**63) + base + len(content))
            content += unit(tag)
        content += struct.pack(">h", -1)
        (directory / f"{base:020d}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
    queue_file.write_bytes(entries)
    (root / FILE_NAME).unlink()  # a Java broker leaves none
    return config


def found(store, **more):
    return [decode(view).body for view in store.read(QUEUE, 0, 32, **more).views]


def test_an_entry_with_an_address_is_filtered_by_the_tag_of_its_unit_in_whichever_file(tmp_path):
    with opened(extended(tmp_path, "abcabcab")) as store:
        assert found(store) == [b"%d" % i for i in range(8)]
        assert found(store, tag_hashes=WANTED) == [b"1", b"4", b"7"]
        nothing = store.read(QUEUE, 0, 32, tag_hashes=frozenset([java_hash("z")]))
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 8)


def damage_units(root, harm):
    """Units are torn, tell another tag, or are gone with their file or with all of them."""
    directory = root / "consumequeue_ext" / "T" / "0"
    (directory / f"{FILE_SIZE:020d}").unlink()
    first = directory / f"{0:020d}"
    content = bytearray(first.read_bytes())
    if harm == "torn":
        content[UNIT_SIZE : UNIT_SIZE + 2] = bytes(2)
    elif harm == "wrong":
        content[UNIT_SIZE : 2 * UNIT_SIZE] = unit("z")
    first.write_bytes(content)
    if harm == "gone":
        shutil.rmtree(root / "consumequeue_ext")


@pytest.mark.parametrize("harm", ["torn", "wrong", "gone"])
def test_an_entry_whose_unit_is_damaged_gets_its_tag_from_the_log_and_keeps_it(tmp_path, harm, caplog):
    config = extended(tmp_path, "abbabbab")
    damage_units(tmp_path, harm)
    assert {finding.what.split(" is ")[0] for finding in findings(config)} >= {"entry 1", "entry 7"}
    for _ in range(2):
        with opened(config) as store:
            assert found(store, tag_hashes=WANTED) == [b"1", b"2", b"4", b"5", b"7"]
            assert found(store) == [b"%d" % i for i in range(8)]
    assert findings(config) == []
    assert caplog.text.count("were made again") >= 1


def test_a_unit_that_is_lost_after_its_entry_was_read_has_the_message_passed_on_to_the_client(tmp_path):
    with opened(extended(tmp_path, "aaaaaaaa")) as store:
        assert found(store, tag_hashes=WANTED) == []
        damage_units(tmp_path, "torn")
        assert found(store, tag_hashes=WANTED) == [b"1", *(b"%d" % i for i in range(UNITS_A_FILE, 8))]


def test_new_messages_of_an_extended_queue_hold_their_own_tag(tmp_path):
    with opened(extended(tmp_path, "ab")) as store:
        store.append([draft(b"2", TAGS="b"), draft(b"3", TAGS="c")])
        assert found(store, tag_hashes=WANTED) == [b"1", b"2"]


def test_extension_files_expire_with_the_log_and_never_the_last(tmp_path):
    clock = HeldClock()
    config = small(tmp_path, extension_file_size=FILE_SIZE, log_size_max=16384)
    directory = tmp_path / "consumequeue_ext" / "T" / "0"
    directory.mkdir(parents=True)
    with opened(config, clock) as store:
        for _ in range(40):
            clock.ms += 1
            store.append([draft(bytes(900))])
        store.flush()
        starts = [store.earliest_ms(), clock.ms - 30, clock.ms - 1, clock.ms]
        for number, store_ms in enumerate(starts):
            head = struct.pack(">hqqh", 20, 7, store_ms, 0)
            (directory / f"{number * FILE_SIZE:020d}").write_bytes(head.ljust(FILE_SIZE, b"\0"))
        assert len(store.clean()) == 2
        assert starts[1] < store.earliest_ms() <= starts[2]
        assert sorted(path.name for path in directory.iterdir()) == [f"{n * FILE_SIZE:020d}" for n in (1, 2, 3)]
        clock.ms += 1000
        for _ in range(40):
            store.append([draft(bytes(900))])
        store.flush()
        assert store.clean()
        assert [path.name for path in directory.iterdir()] == [f"{3 * FILE_SIZE:020d}"]


def test_extension_files_go_with_their_topic(tmp_path):
    with opened(extended(tmp_path, "ab")) as store:
        store.append([draft(b"b", topic="B")])
        store.remove_topic("T")
        assert list((tmp_path / "consumequeue_ext").iterdir()) == []
        assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["B"]


def test_verify_looks_behind_addresses(tmp_path):
    config = extended(tmp_path, "abc")
    assert [step for step in Verification(config).run() if isinstance(step, Finding)] == []
    extension = tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    extension.write_bytes((unit("a") + unit("z") + unit("c")).ljust(FILE_SIZE, b"\0"))
    (wrong,) = (step for step in Verification(config).run() if isinstance(step, Finding))
    assert "entry 1 is not that of the record" in wrong.what
