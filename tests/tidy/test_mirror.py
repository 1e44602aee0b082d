"""Where a test stands: in the folder of what it tests. What tests share is no test."""

import re
import subprocess
import sys
from pathlib import Path

from tests.remoting.loops import BOTH_KERNELS, loops_of
from tests.tidy.source import PACKAGE, ROOT

TESTS = ROOT / "tests"
# Folders of tests without a room of that name, and what they are for.
APART = {
    "crash": "processes that are killed and disks that lie, over all rooms",
    "deploy": "what stands in deploy/, tried by the programs it is for",
    "e2e": "a whole `bolide up`, with clients",
    "fuzz": "the kernel under bytes of chance",
    "golden": "stores that Java wrote",
    "replication": "groups of brokers whose hosts are killed, frozen and parted, and a judge of what they acknowledged",
    "tidy": "the source itself",
    "wire": "frames that RocketMQ's servers and clients sent",
}
# Rooms whose tests stand elsewhere, and where.
ELSEWHERE = {"broker/settings": "broker/test_config.py, with the settings that are honoured"}


def folders(root: Path) -> set[str]:
    return {str(path.parent.relative_to(root)) for path in root.rglob("*.py")} - {"."}


def test_every_folder_of_tests_is_one_of_the_source_or_says_what_it_is_for() -> None:
    assert folders(TESTS) - folders(PACKAGE) == set(APART)


def test_every_folder_of_the_source_has_its_tests_in_the_same_place() -> None:
    tested = {str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")}
    assert folders(PACKAGE) - tested == set(ELSEWHERE)


IMPORT = re.compile(r"^\s*(?:from (\S+) )?import (\([^)]*\)|.*)$", re.MULTILINE)


def imported(text: str) -> set[str]:
    """Every module that a source may mean in an import: `from a import b` names a, and perhaps a.b.

    A pattern is enough for this: parsing fifty thousand lines of tests takes longer than all that tidy tests do else.
    """
    names: set[str] = set()
    for source, imports in IMPORT.findall(text):
        modules = re.findall(r"(?:^|,)\s*([\w.]+)", imports.strip("()"))
        names |= {source, *(f"{source}.{each}" for each in modules)} if source else set(modules)
    return names


def test_the_pattern_sees_every_form_of_an_import() -> None:
    text = "import a.b, c as d\n\n    from e import (\n    f,\n    g as h,\n)\nfrom i import j, k\n"
    assert imported(text) == {"a.b", "c", "e", "e.f", "e.g", "i", "i.j", "i.k"}


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    borrowed = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in imported(path.read_text("utf-8"))
        if name.partition(".")[0] in ("tests", "interop") and name.rpartition(".")[2].startswith("test_")
    }
    assert not borrowed, "what tests share stands beside them, in a module that is no test"


def paths_in_makefile(name: str) -> list[str]:
    (line,) = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line.startswith(f"{name} :=")]
    return [word for word in line.split() if word.startswith("tests/")]


def test_what_runs_on_one_kernel_in_a_room_that_runs_on_both_asks_for_none() -> None:
    """Its modules can be imported where the kernel cannot. Nor has it a loop, for each kernel has its own."""
    paths = paths_in_makefile("NO_KERNEL")
    assert [path for path in paths if "both_loops" in (ROOT / path).read_text("utf-8")] == []
    modules = [path.removesuffix(".py").replace("/", ".") for path in paths]
    assert modules
    program = f"import sys; sys.modules['bolide.kernel'] = None; import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_room_that_runs_on_both_kernels_runs_on_both_loops() -> None:
    twice = {path.removeprefix("tests/") for path in paths_in_makefile("BOTH_KERNELS")}
    assert twice == BOTH_KERNELS
    for room in twice:
        assert {*loops_of(room, "plain"), *loops_of(room, "compiled")} == {"asyncio", "uvloop"}
    for room, kernel in (("client", "compiled"), ("broker", None)):
        assert set(loops_of(room, kernel)) == {"asyncio", "uvloop"}, "it runs once, so on both"
