"""What a doctor finds: a number that stays, how bad it is, what was seen, why it matters, and what to do.

A check is a function from facts to faults, and has a number; all of them are in `CHECKS`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from bolide.admin.doctor.facts import Facts

_PAGE = "docs/operating.md"


class Severity(StrEnum):
    """How bad it is; a note changes no exit code."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: a number that stays, what was seen, why it matters, and what to do."""

    number: str
    severity: Severity
    seen: str
    why: str
    fix: str
    page: str = _PAGE


# What a check says of one fault: how bad, what was seen, why it matters, and what to do.
Fault = tuple[Severity, str, str, str]
Check = Callable[[Facts], Iterator[Fault]]
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CHECKS: dict[str, Check] = {}


def finds(number: str) -> Callable[[Check], Check]:
    """A check, under the number that its findings have for ever."""

    def kept(check: Check) -> Check:
        CHECKS[number] = check
        return check

    return kept
