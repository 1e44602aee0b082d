"""What does the doctor find, and how long does it look?

Runs the tests that build a fault in a real cluster, and those of healthy ones (`tests/admin/doctor`), and notes each
look of the doctor: what it found there, and in how many seconds. The tests hold that it finds what they built; this is
the table of it.

    python -m benchmarks.doctor

It does not show a network, nor clusters with thousands of topics (`benchmarks.dashboard` has one).
"""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.measure import commit, machine, publish, read_arguments
from bolide.admin.doctor.checks import examine
from bolide.admin.doctor.facts import Facts
from bolide.admin.doctor.gather import Doctor

QUESTION = "What does the doctor find, and how long does it look?"
TESTS = Path(__file__).parents[1] / "tests" / "admin" / "doctor"
# How full and how busy the machine is that runs this, is nobody's fault.
OF_THE_MACHINE = {"D03", "D07", "D21"}


class Looks:
    """A plugin of pytest: what every look of every test found, and how long it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.found: dict[str, set[str]] = defaultdict(set)
        self._test = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._test = item.name

    @pytest.fixture(autouse=True)
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gather = Doctor.gather

        async def watch(doctor: Doctor, *given: object, **named: object) -> Facts:
            began_s = time.perf_counter()
            facts = await gather(doctor, *given, **named)  # type: ignore[arg-type]
            self.seconds[self._test].append(time.perf_counter() - began_s)
            self.found[self._test] |= {finding.number for finding in examine(facts)}
            return facts

        monkeypatch.setattr(Doctor, "gather", watch)


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    options = read_arguments(QUESTION, argv)
    looks = Looks()
    files = [str(TESTS / name) for name in ("test_gather.py", "test_faults.py")]
    early = "ignore::pytest.PytestAssertRewriteWarning"  # bolide is imported here before pytest could rewrite it
    ended = pytest.main(["-q", "-m", "", "-p", "no:cacheprovider", "-W", early, *files], plugins=[looks])
    rows = {
        test: {"found": sorted(looks.found[test]), "looks": len(took_s), "seconds": round(max(took_s), 2)}
        for test, took_s in looks.seconds.items()
    }
    for test, took_s in looks.seconds.items():
        print(f"{max(took_s):6.2f} s  {', '.join(sorted(looks.found[test])) or 'nothing':<40}  {test}")
    numbers = sorted(set().union(*looks.found.values()) - OF_THE_MACHINE)
    print(f"{len(numbers)} findings seen in clusters that were built for them: {', '.join(numbers)}")
    told: dict[str, object] = {"question": QUESTION, "rows": rows, "exit_code": int(ended)}
    publish(json.dumps({**told, "machine": machine(), "commit": commit()}), is_kept=options.keep)
    return told


if __name__ == "__main__":
    main()
