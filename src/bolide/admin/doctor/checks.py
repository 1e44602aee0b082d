"""All that is judged from what was seen: nothing is asked here, so that every finding is tried with facts of a test."""

from bolide.admin.doctor import groups, servers, topics  # noqa: F401 (each has its checks in the list)
from bolide.admin.doctor.facts import Facts
from bolide.admin.doctor.findings import CHECKS, Finding, Severity

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def examine(facts: Facts) -> list[Finding]:
    """All findings, the worst first."""
    found = [Finding(number, *fault) for number, check in CHECKS.items() for fault in check(facts)]
    return sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.number))


def exit_code(findings: list[Finding], unseen: tuple[str, ...]) -> int:
    """0 fine, 1 warnings, 2 errors, 3 where not everything could be looked at and nothing worse was found."""
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return 2
    if unseen:
        return 3
    return 1 if Severity.WARNING in severities else 0
