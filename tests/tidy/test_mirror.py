"""Where a test stands: in the folder of what it tests. What tests share is no test."""

import ast
from pathlib import Path

from tests.remoting.loops import BOTH_KERNELS, loops_of
from tests.tidy.source import PACKAGE, ROOT, modules

TESTS = ROOT / "tests"
# Folders of tests without a room of that name, and what they are for.
APART = {
    "crash": "processes that are killed and disks that lie, over all rooms",
    "e2e": "a whole `bolide up`, with clients",
    "fuzz": "the kernel under bytes of chance",
    "golden": "stores that Java wrote",
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


def imported(tree: ast.Module) -> set[str]:
    """Every module that a module may mean in an import: `from a import b` names a, and perhaps a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    borrowed = {
        f"{module.name} imports {name}"
        for module in modules(TESTS)
        for name in imported(module.tree)
        if name.partition(".")[0] in ("tests", "interop") and name.rpartition(".")[2].startswith("test_")
    }
    assert not borrowed, "what tests share stands beside them, in a module that is no test"


def test_a_room_that_runs_on_both_kernels_runs_on_both_loops() -> None:
    (line,) = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line.startswith("BOTH_KERNELS")]
    twice = {word.removeprefix("tests/") for word in line.split() if word.startswith("tests/")}
    assert twice == BOTH_KERNELS
    for room in twice:
        assert {*loops_of(room, "plain"), *loops_of(room, "compiled")} == {"asyncio", "uvloop"}
    for room, kernel in (("client", "compiled"), ("broker", None)):
        assert set(loops_of(room, kernel)) == {"asyncio", "uvloop"}, "it runs once, so on both"
