"""RocketMQ's C++ client, from the PyPI package `rocketmq`, sends to `bolide up` and reads everything back."""

import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up import FREE_PORTS, SMALL, Up, running

PROGRAM = Path(__file__).with_name("cpp_client.py")
LIMIT_S = 90
COUNT = 40


def why_not() -> str | None:
    """Its wheel is for Linux on x86-64 with glibc; elsewhere there is a package without a library, or none."""
    try:
        importlib.import_module("rocketmq.client")
    except (ImportError, OSError) as problem:
        return f"the C++ client of the PyPI package rocketmq 0.4.4 cannot be loaded here: {problem}"
    return None


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "up", *FREE_PORTS, *SMALL) as it:
        yield it


def client(home: Path, up: Up, work: str, topic: str, group: str, *more: str) -> list[dict[str, Any]]:
    """Run the client's program; returns what it printed, without its last line, which says that it got there."""
    command = [sys.executable, str(PROGRAM), work, "--namesrv", up.namesrv, "--topic", topic, "--group", group, *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, "HOME": str(home)}
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    assert lines, done.stderr
    assert lines[-1:] == [{"done": work}], done.stderr
    return lines[:-1]


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return sorted(line["number"] for line in lines)


@pytest.mark.feature("F002", "F003", "F004")
def test_what_is_sent_synchronously_is_pulled_and_pushed_whole_to_each_group(up: Up, tmp_path: Path) -> None:
    receipts = client(tmp_path, up, "send-sync", "CppSync", "cpp-pg", "--count", str(COUNT))
    assert [receipt["status"] for receipt in receipts] == ["OK"] * COUNT
    pulled = client(tmp_path, up, "pull", "CppSync", "cpp-pull", "--count", str(COUNT))
    pushed = client(tmp_path, up, "push", "CppSync", "cpp-push", "--count", str(COUNT))
    for received in (pulled, pushed):
        assert numbers(received) == list(range(COUNT))
        for line in received:
            number = line["number"]
            assert line["body"] == f"body {number}"
            assert line["keys"] == f"key-{number}"
            assert line["tags"] == ("TagA", "TagB")[number % 2]
            assert (line["id"], line["offset"]) == (receipts[number]["id"], receipts[number]["offset"])


def test_one_way_messages_arrive_too(up: Up, tmp_path: Path) -> None:
    client(tmp_path, up, "send-sync", "CppOneWay", "cpp-pg", "--count", "1")  # makes the topic
    client(tmp_path, up, "send-oneway", "CppOneWay", "cpp-pg", "--count", str(COUNT))
    received = client(tmp_path, up, "pull", "CppOneWay", "cpp-pull", "--count", str(COUNT + 1))
    assert numbers(received) == [0, *range(COUNT)]


def test_an_ordered_consumer_gets_each_order_in_the_sequence_it_was_sent(up: Up, tmp_path: Path) -> None:
    shards = 3
    count = ("--count", str(COUNT))
    receipts = client(tmp_path, up, "send-ordered", "CppOrdered", "cpp-pg", *count, "--shards", str(shards))
    assert [receipt["offset"] for receipt in receipts] == [number // shards for number in range(COUNT)]
    received = client(tmp_path, up, "push-orderly", "CppOrdered", "cpp-orderly", *count)
    sequences = defaultdict(list)
    for line in received:
        sequences[line["queue"]].append(line["number"])
    assert sorted(sequences.values()) == [list(range(shard, COUNT, shards)) for shard in range(shards)]


def test_a_tag_expression_lets_through_what_it_names(up: Up, tmp_path: Path) -> None:
    tags = ("--tags", "Aa,BB,Cc")  # the first two have one hash in Java, which alone would not tell them apart
    client(tmp_path, up, "send-sync", "CppTags", "cpp-pg", "--count", "30", *tags)
    pulled = client(tmp_path, up, "pull", "CppTags", "cpp-pull", "--count", "10", "--expression", "Cc")
    assert numbers(pulled) == list(range(2, 30, 3))
    pushed = client(tmp_path, up, "push", "CppTags", "cpp-push", "--count", "20", "--expression", "Aa || Cc")
    assert numbers(pushed) == [number for number in range(30) if number % 3 != 1]


def test_a_group_that_comes_back_goes_on_where_it_was(up: Up, tmp_path: Path) -> None:
    client(tmp_path, up, "send-sync", "CppAgain", "cpp-pg", "--count", "10")
    first = client(tmp_path, up, "push", "CppAgain", "cpp-again", "--count", "10")
    assert numbers(first) == list(range(10))
    client(tmp_path, up, "send-sync", "CppAgain", "cpp-pg", "--count", "5")
    second = client(tmp_path, up, "push", "CppAgain", "cpp-again", "--count", "5")
    assert {(line["queue"], line["offset"]) for line in second}.isdisjoint(
        {(line["queue"], line["offset"]) for line in first}
    )
    assert numbers(second) == list(range(5))
