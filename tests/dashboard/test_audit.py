"""Every change is a line, and stays."""

import json
from pathlib import Path

from bolide.dashboard.audit import SHOWN_MAX, Audit
from tests.dashboard.clocks import HeldClock


def test_changes_are_lines_of_a_file_and_are_read_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(path, HeldClock()).note("ada", "127.0.0.1", "delete topic", "Orders\n<b>", before="8 queues")
    path.open("a").write("not ours\n{}\n")
    again = Audit(path, HeldClock())
    again.note("", "::1", "reset", "cg", result="failed: no")
    assert [(each.action, each.object) for each in again.recent()] == [("reset", "cg"), ("delete topic", "Orders\n<b>")]
    lines = path.read_text().splitlines()
    assert len(lines) == 4, "what is in a name makes no line of its own"
    assert json.loads(lines[0])["before"] == "8 queues"


def test_only_so_many_are_shown() -> None:
    audit = Audit(None, HeldClock())
    for number in range(SHOWN_MAX + 10):
        audit.note("", "", "send", str(number))
    assert len(audit.recent()) == SHOWN_MAX
    assert audit.recent()[0].object == str(SHOWN_MAX + 9)
