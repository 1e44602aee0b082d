"""`bolide lake rebuild`: queues to the byte, an index with the same answers."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bolide.cli.lake import app
from bolide.errors import StoreError
from bolide.model.queue import QueueKey
from bolide.spark.jobs.rebuild import rebuild
from bolide.store.verify import findings
from tests.spark.stores import queue_files
from tests.store.given import HeldClock, draft, opened, query, read_all, small

COUNT = 320


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Several topics and queues, delayed and rolled back messages among them, over many files."""
    root = tmp_path_factory.mktemp("rebuild") / "store"
    clock = HeldClock()
    with opened(small(root), clock) as store:
        for i in range(COUNT):
            topic = ("Orders", "Bills", "SCHEDULE_TOPIC_XXXX", "主题")[i % 4]
            sys_flag = 0xC if i % 40 == 7 else 0
            labels = {"TAGS": f"t{i % 5}", "KEYS": f"k{i} both", "UNIQ_KEY": f"U{i:08X}", "DELAY": "3"}
            store.append([draft(b"body %d" % i, topic, i % 3, sys_flag, **labels)])
            clock.ms += 700
    assert findings(small(root)) == []
    return root


def answers(root: Path):
    """What the index says to every key, and to one that all share."""
    with opened(small(root)) as store:
        return {
            (topic, key): [message.physical_offset for message in query(store, topic, key, 64, 0, 1 << 60)]
            for topic in ("Orders", "Bills", "主题")
            for key in ("both", *(f"k{i}" for i in range(COUNT)), *(f"U{i:08X}" for i in range(0, COUNT, 7)))
        }


@pytest.mark.feature("D10")
@pytest.mark.parametrize("range_size", [None, 9000])
def test_rebuilt_queues_equal_the_originals_byte_for_byte(spark, original, tmp_path, range_size):
    root = tmp_path / "store"
    shutil.copytree(original, root)
    shutil.rmtree(root / "consumequeue" / "Orders")
    done = rebuild(spark, small(root), range_size=range_size)
    assert queue_files(root) == queue_files(original)
    assert done.entry_count == COUNT - COUNT // 40
    assert findings(small(root)) == []


@pytest.mark.feature("D10")
def test_a_rebuilt_index_gives_the_same_answers(spark, original, tmp_path):
    wanted = answers(shutil.copytree(original, tmp_path / "asked"))
    root = tmp_path / "store"
    shutil.copytree(original, root)
    shutil.rmtree(root / "index")
    done = rebuild(spark, small(root), range_size=20_000)
    assert len(done.index) > 2
    assert answers(root) == wanted
    assert findings(small(root)) == []


def test_only_what_came_after_a_topic_was_made_again_is_in_its_queue(spark, tmp_path):
    root = tmp_path / "store"
    with opened(small(root)) as store:
        for i in range(50):
            store.append([draft(b"old %d" % i)])
        store.remove_topic("T")
        for i in range(30):
            store.append([draft(b"new %d" % i)])
        assert store.queue(QueueKey("T", 0)).next_offset == 30
    before = queue_files(root)
    rebuild(spark, small(root))
    assert queue_files(root) == before
    with opened(small(root)) as store:
        assert [message.body for message in read_all(store)] == [b"new %d" % i for i in range(30)]


def test_a_store_in_use_and_a_damaged_log_are_refused(spark, original, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(original, root)
    with opened(small(root)), pytest.raises(StoreError, match="open in this process"):
        rebuild(spark, small(root))
    file = min((root / "commitlog").iterdir())
    content = bytearray(file.read_bytes())
    content[content.index(b"body 3")] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"^\S+: no whole record at byte \d+; start a broker"):
        rebuild(spark, small(root))
    assert queue_files(root) == queue_files(original)


def test_the_command_rebuilds_elsewhere_and_says_what_it_would_do(spark, original, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=64\nmaxIndexNum=256\n"
    )
    words = ["rebuild", str(original), "-c", str(conf), "-o", "json", "--to", str(tmp_path / "out")]
    dry = CliRunner().invoke(app, [*words, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert sum(row["entries"] for row in json.loads(dry.stdout)) == COUNT - COUNT // 40
    assert not (tmp_path / "out").exists()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert queue_files(tmp_path / "out") == queue_files(original)
