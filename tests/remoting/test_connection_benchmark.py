"""The benchmark of this room, run small, so that it does not rot."""

import json
import zlib

import pytest

from benchmarks.connection import main
from bolide.protocol.command import Command


@pytest.mark.parametrize("door", ["serve", "turn", "wait"])
def test_every_door_carries_the_same_frames(door: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--count", "100", "--runs", "1", "--door", door])
    sentence, line = capsys.readouterr().out.splitlines()
    answer = json.loads(line)
    assert "requests/s" in sentence
    assert answer["parameters"] == {"count": 100, "in_flight": 64, "body": 128, "door": door, "loop": "uvloop"}
    answers = [Command(105, opaque=n).answer(0, body=bytes(128)).encode() for n in range(100)]
    assert answer["checksum"] == zlib.crc32(b"".join(answers))
