"""What was asked of a cluster and what it answered: sends with their fate, and what readers saw; values and lines.

A message is its producer and its number; its body says both, so a queue tells which sends it holds. The lines of a
history are appended by the process that sends, so a history can be judged whatever became of that process.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

# Queue ("broker/id") → what it holds, as (offset, body), in the order of its offsets.
Queues = Mapping[str, list[tuple[int, str]]]


class Fate(Enum):
    """What the producer knows of a send."""

    ACKNOWLEDGED = "acknowledged"  # code 0
    OPEN = "open"  # 10, 11, 12: stored on the master, perhaps nowhere else
    REFUSED = "refused"  # the broker says that it did not store the message
    UNKNOWN = "unknown"  # no answer, or one that promises nothing


@dataclass(frozen=True, slots=True)
class Send:
    """One send, from its call to its answer; `is_retried` where the client may have sent it more than once."""

    producer: str
    number: int
    invoked_s: float
    ended_s: float
    fate: Fate
    code: int | None = None
    remark: str = ""
    queue: str | None = None
    offset: int | None = None
    is_retried: bool = False

    @property
    def body(self) -> str:
        return f"{self.producer}/{self.number}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A message that a reader was given while the cluster was running."""

    queue: str
    offset: int
    body: str
    at_s: float


def line_of(event: Send | Sighting) -> str:
    fields: dict[str, Any] = {key: value for key, value in asdict(event).items() if value is not None}
    if isinstance(event, Send):
        fields["fate"] = event.fate.value
    return json.dumps(fields, separators=(",", ":"))


def event_of(line: str) -> Send | Sighting:
    fields: dict[str, Any] = json.loads(line)
    if "fate" not in fields:
        return Sighting(**fields)
    return Send(**{**fields, "fate": Fate(fields["fate"])})


def lines_from(path: Path, position: int) -> tuple[list[str], int]:
    """The whole lines behind a position, and the next position; a writer that was killed may have left half a line."""
    with path.open("rb") as file:
        file.seek(position)
        content = file.read().rpartition(b"\n")[0]
    return content.decode().splitlines(), position + len(content) + (1 if content else 0)
