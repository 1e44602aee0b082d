"""`bolide store`: what is shown is what was stored."""

import json

import pytest
from click.testing import CliRunner

from bolide.cli.store import app
from bolide.store.verify import findings
from tests.store.given import draft, opened, small

SETTINGS = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=64\nmaxIndexNum=256\n"


@pytest.fixture
def stored(tmp_path):
    root = tmp_path / "store"
    with opened(small(root)) as store:
        for i in range(30):
            store.append([draft(b"body %d" % i, queue_id=i % 2, TAGS="t", KEYS=f"k{i}")])
    (tmp_path / "broker.conf").write_text(SETTINGS)
    return root


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_inspect_shows_segments_queues_and_health(stored):
    conf = stored.parent / "broker.conf"
    document = json.loads(run("inspect", stored, "-c", conf, "-o", "json").stdout)
    assert document["health"] == "stopped cleanly"
    assert [row["records"] for row in document["segments"]] == [30]
    assert [(row["topic"], row["queue_id"], row["max_offset"]) for row in document["queues"]] == [
        ("T", 0, 15),
        ("T", 1, 15),
    ]
    assert document["index"][0]["keys"] == 30
    assert "stopped cleanly" in run("inspect", stored, "-c", conf).stdout.replace("\n", "")


def test_verify_is_silent_about_a_healthy_store_and_names_damage(stored):
    conf = stored.parent / "broker.conf"
    healthy = run("verify", stored, "-c", conf)
    assert (healthy.exit_code, healthy.stdout) == (0, "30 records, 0 findings\n")
    queue = stored / "consumequeue" / "T" / "1" / "00000000000000000000"
    content = bytearray(queue.read_bytes())
    content[3 * 20 + 5] ^= 1
    queue.write_bytes(content)
    damaged = run("verify", stored, "-c", conf, "-o", "json")
    assert damaged.exit_code == 1
    (finding,) = json.loads(damaged.stdout)["findings"]
    assert (finding["file"], finding["position"]) == (str(queue), 60)


@pytest.mark.parametrize("file", ["commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000"])
def test_verify_finds_a_stray_byte_behind_megabytes_of_nothing(tmp_path, file):
    config = small(tmp_path / "store", segment_size=4 << 20, queue_file_size=4_000_000)
    with opened(config) as store:
        store.append([draft(b"body")])
    with (config.root / file).open("r+b") as damaged:
        damaged.seek(3_000_007)
        damaged.write(b"x")
    (finding,) = findings(config)
    assert finding.file == str(config.root / file)
    assert "queue" not in file or finding.position == 3_000_000


def test_cat_decodes_the_messages_of_a_queue_and_needs_no_settings(stored):
    shown = run("cat", stored, "--topic", "T", "--queue", 1, "--from", 10, "--limit", 2, "-o", "json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["queue_offset"], row["body"]) for row in rows] == [(10, "body 21"), (11, "body 23")]
    assert rows[0]["properties"] == {"TAGS": "t", "KEYS": "k21"}
    assert "body 29" in run("cat", stored, "--topic", "T", "--queue", 1).stdout


def test_looking_changes_nothing(stored):
    before = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}
    for words in (("inspect", stored), ("verify", stored), ("cat", stored, "--topic", "T")):
        run(*words, "-c", stored.parent / "broker.conf")
    assert {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()} == before


def test_an_unknown_queue_is_answered_with_a_sentence(stored):
    missing = run("cat", stored, "--topic", "Nobody")
    assert missing.exit_code == 2
    assert "no queue 0 of topic 'Nobody'" in missing.output
