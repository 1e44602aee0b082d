"""Every change that was made by the dashboard: one line of JSON each, in a file that is only ever added to."""

import json
import logging
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from bolide.clock import Clock

SHOWN_MAX = 200
_TAIL_SIZE = 1 << 18
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """Who changed what, from where, and how it went."""

    at: int
    user: str
    address: str
    action: str
    object: str
    before: str
    after: str
    result: str


class Audit:
    """The file, or the memory of this process where none was named."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._recent: deque[Change] = deque(_read(path), maxlen=SHOWN_MAX)

    def note(
        self,
        user: str,
        address: str,
        action: str,
        thing: str,
        *,
        before: str = "",
        after: str = "",
        result: str = "done",
    ) -> None:
        """Keep a line before the change is told as done."""
        change = Change(self._clock.now_ms(), user, address, action, thing, before, after, result)
        self._recent.append(change)
        log.info("changed %s %s user=%s address=%s result=%s", action, thing, user or "-", address, result)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(change), ensure_ascii=True) + "\n")

    def recent(self) -> list[Change]:
        """The last changes, newest first."""
        return list(reversed(self._recent))


def _read(path: Path | None) -> list[Change]:
    """The end of the file; a line that is not ours is passed over."""
    if path is None or not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_SIZE))
        lines = file.read().decode("utf-8", "replace").splitlines()
    found = []
    for line in lines:
        try:
            found.append(Change(**json.loads(line)))
        except (ValueError, TypeError):
            log.debug("a line of %s is not ours", path)
    return found
