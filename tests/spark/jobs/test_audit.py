"""`bolide lake audit`: nothing to say of a clean store, and every damage found and named."""

import json
import shutil
import struct

import pytest
from click.testing import CliRunner

from bolide.cli.lake import app
from bolide.spark.jobs.audit import audit
from bolide.store.verify import findings
from tests.store.given import HeldClock, draft, opened, small

COUNT = 306
QUEUE = "consumequeue/Orders/1"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    root = tmp_path_factory.mktemp("audit") / "store"
    clock = HeldClock()
    with opened(small(root), clock) as store:
        for i in range(COUNT):
            store.append([draft(b"body %d" % i, "Orders" if i % 3 else "Bills", i % 3, TAGS=f"t{i % 4}", KEYS=f"k{i}")])
            clock.ms += 1000
    assert findings(small(root)) == []
    return root


@pytest.mark.feature("D09")
def test_a_clean_store_has_no_finding_however_it_is_cut(spark, clean):
    whole = audit(spark, small(clean))
    assert (whole.record_count, whole.queue_count, whole.findings) == (COUNT, 3, [])
    assert whole.index_file_count > 1
    cut = audit(spark, small(clean), range_size=9000)
    assert (cut.record_count, cut.findings) == (COUNT, [])


def segments(root):
    return sorted((root / "commitlog").iterdir())


def change(path, at, *content):
    """Put bytes into a file at a place, or at the first occurrence of some."""
    data = bytearray(path.read_bytes())
    place = data.index(at) if isinstance(at, bytes) else at
    new = b"".join(content) or bytes([data[place] ^ 1])
    data[place : place + len(new)] = new
    path.write_bytes(data)


def first_file(root, name):
    return min((root / name).iterdir())


def body_changed(root):
    change(segments(root)[0], b"body 7")


def size_changed(root):
    file = segments(root)[1]
    size = int.from_bytes(file.read_bytes()[:4], "big")
    change(file, size, struct.pack(">i", 100_000))


def record_elsewhere(root):
    file = segments(root)[1]
    size = int.from_bytes(file.read_bytes()[:4], "big")
    change(file, size + 28, struct.pack(">q", 77))


def page_lost(root):
    change(segments(root)[0], 4096, bytes(4096))


def segment_missing(root):
    segments(root)[1].unlink()


def bytes_behind_the_end(root):
    file = segments(root)[-1]
    data = file.read_bytes()
    change(file, len(data.rstrip(b"\0")) + 50, b"\xda\xa3\x20 half")


def entry_points_elsewhere(root):
    change(first_file(root, QUEUE), 5 * 20, struct.pack(">q", 12))


def entry_with_another_tag(root):
    change(first_file(root, QUEUE), 5 * 20 + 12, struct.pack(">q", 12))


def queue_file_missing(root):
    first_file(root, QUEUE).unlink()


def entry_without_record(root):
    file = max((root / QUEUE).iterdir())
    used = len(file.read_bytes().rstrip(b"\0"))
    change(file, -(-used // 20) * 20, struct.pack(">qiq", 1 << 40, 100, 5))


def key_leads_nowhere(root):
    file = first_file(root, "index")
    change(file, 40 + 64 * 4 + 9 * 20 + 4, struct.pack(">q", 333))


def slot_forgets_its_newest(root):
    file = first_file(root, "index")
    hashed = struct.unpack_from(">i", file.read_bytes(), 40 + 64 * 4 + 255 * 20)[0]
    change(file, 40 + hashed % 64 * 4, struct.pack(">i", 0))


def chain_that_turns_back(root):
    change(first_file(root, "index"), 40 + 64 * 4 + 200 * 20 + 16, struct.pack(">i", 201))


def index_file_missing(root):
    first_file(root, "index").unlink()


@pytest.mark.feature("D09")
@pytest.mark.parametrize(
    ("damage", "where", "what"),
    [
        (body_changed, "commitlog/00000000000000000000", "are no whole record and are passed over"),
        (size_changed, "commitlog/00000000000000016384", "are no whole record and are passed over"),
        (record_elsewhere, "commitlog/00000000000000016384", "are no whole record and are passed over"),
        (page_lost, "commitlog/00000000000000000000", "are no whole record and are passed over"),
        (segment_missing, "commitlog/00000000000000032768", "does not begin where"),
        (bytes_behind_the_end, "commitlog/", "neither a whole record nor the end of the log"),
        (entry_points_elsewhere, f"{QUEUE}/00000000000000000000", "entry 5 is not that of the record at"),
        (entry_with_another_tag, f"{QUEUE}/00000000000000000000", "entry 5 is not that of the record at"),
        (queue_file_missing, f"{QUEUE}/00000000000000000000", "entry 0 is not that of the record at"),
        (entry_without_record, QUEUE, "the log has nothing for it at 1099511627776"),
        (key_leads_nowhere, "index/", "entry 9: no record at 333"),
        (slot_forgets_its_newest, "index/", "entry 255 cannot be reached from its slot"),
        (chain_that_turns_back, "index/", "entry 200 follows 201 in its chain"),
        (index_file_missing, "index", "is missing"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damage_is_found_and_named(spark, clean, tmp_path, damage, where, what):
    root = tmp_path / "store"
    shutil.copytree(clean, root)
    damage(root)
    found = audit(spark, small(root)).findings
    assert any(where in each.file and what in each.what for each in found), found


def test_the_command_tells_and_exits_with_one(spark, clean, tmp_path):
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(
        "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=64\nmaxIndexNum=256\n"
    )
    shutil.copytree(clean, root)
    runner = CliRunner()
    scope = runner.invoke(app, ["audit", str(root), "-c", str(conf), "--dry-run", "-o", "json"])
    assert json.loads(scope.stdout)[0]["queues"] == 3
    healthy = runner.invoke(app, ["audit", str(root), "-c", str(conf)])
    assert healthy.exit_code == 0, healthy.output
    assert f"{COUNT} records, 3 queues, 0 findings" in healthy.stdout
    entry_points_elsewhere(root)
    damaged = runner.invoke(app, ["audit", str(root), "-c", str(conf), "-o", "json"])
    assert damaged.exit_code == 1
    assert "entry 5 is not" in json.loads(damaged.stdout)["findings"][0]["what"]
