"""House rules a reader can rely on: who reads the clock, who owns a task, what a thing may be called."""

import ast
import re
from pathlib import Path

import pytest

from bolide import errors
from tests.tidy.source import PACKAGE, ROOT, dotted, modules, nodes, typed_sources

CLOCK_CALLS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "date.today",
}
BANNED_WORDS = re.compile(r"(Manager|Service|Util|Utils|Helper|Impl|Data|Info|Base|Abstract|Default)$")
BANNED_NAMES = {"msg", "cfg", "mgr", "ctx", "util", "utils", "helper", "helpers", "manager", "common", "misc"}
# RocketMQ's own words where they are the wire's: the enum members and ids are checked nowhere else.
ALLOWED_CLASSES: set[str] = set()
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
LONG_FILE_LINES_MAX = 700
LINE_SIZE_MAX = 120
# Thought about and kept: one file or function, and the reason.
LONG_FILES: dict[str, str] = {
    "src/bolide/kernel/filter.pxi": "one machine: reading a program, running it, and finding what it asks for",
    "src/bolide/kernel/frames.pxi": "headers in both codecs, read and written by the same few steps",
    "src/bolide/kernel/records.pxi": "every function over records and entries, with the walks they share",
    "src/bolide/kernel/sends.pxi": "one batch, from its frames to records and answers, in memory that is freed once",
    "src/bolide/remoting/session.py": "one connection: its states, and what may happen in each",
    "src/bolide/store/store.py": "the store's door: what is asked of its rooms from outside has a name there",
}
LONG_FUNCTIONS: dict[str, str] = {}


def test_only_clock_py_reads_the_system_clock() -> None:
    found = [
        f"{module.at(node)} {dotted(node.func)}"
        for module, node in nodes(ast.Call)
        if dotted(node.func) in CLOCK_CALLS and module.name != "src/bolide/clock.py"
    ]
    assert not found


# Hosted by a task of its own, because whoever comes first may leave before the others; the last one awaits it.
HOSTED = {"src/bolide/client/instance.py"}


def test_every_task_has_an_owner() -> None:
    orphans = [
        module.at(node)
        for module, node in nodes(ast.Call)
        if module.name not in HOSTED
        and dotted(node.func).rpartition(".")[2] in ("create_task", "ensure_future")
        and dotted(node.func).partition(".")[0] in ("asyncio", "loop", "get_running_loop", "")
    ]
    assert not orphans, "asyncio.create_task outside a TaskGroup: nobody hears it die"


def test_every_task_has_a_name() -> None:
    nameless = [
        module.at(node)
        for module, node in nodes(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_task"
        and not any(keyword.arg == "name" for keyword in node.keywords)
    ]
    assert not nameless


# Retried together: `NoAnswer` names them all, and a list of them forgets the next one.
RETRIED = {"ConnectError", "ConnectionLost", "RequestTimeout", "NoAnswer"}


def test_no_loop_keeps_its_own_list_of_what_is_tried_again() -> None:
    lists = [
        module.at(node)
        for module, node in nodes(ast.Tuple, ast.BinOp)
        if len(RETRIED & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}) > 1
    ]
    assert not lists, "catch NoAnswer"


def test_errors_that_may_be_tried_again_are_of_one_class() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BolideError)]
    retried = {kind for kind in kinds if kind.retriable}
    assert retried == {kind for kind in kinds if issubclass(kind, errors.NoAnswer)}
    assert {kind.__name__ for kind in retried} >= RETRIED


def test_classes_are_nouns_of_the_domain() -> None:
    found = [
        f"{module.at(node)} {node.name}"
        for module, node in nodes(ast.ClassDef)
        if BANNED_WORDS.search(node.name) and node.name not in ALLOWED_CLASSES
    ]
    assert not found


def test_files_and_names_are_words() -> None:
    files = [module.name for module in modules() if module.path.stem in BANNED_NAMES]
    arguments = [f"{module.at(node)} {node.arg}" for module, node in nodes(ast.arg) if node.arg in BANNED_NAMES]
    targets = [
        f"{module.at(node)} {node.id}"
        for module, node in nodes(ast.Name)
        if isinstance(node.ctx, ast.Store) and node.id in BANNED_NAMES
    ]
    assert not files + arguments + targets


def test_no_error_is_swallowed_at_other_doors_than_the_named_ones() -> None:
    doors = {
        "src/bolide/remoting/session.py",
        "src/bolide/remoting/isolated_tasks.py",
        "src/bolide/remoting/loop_turn.py",
        "src/bolide/broker/hotpath.py",
        "src/bolide/client/transactions/checker.py",
        "src/bolide/client/sending/hooks.py",
        "src/bolide/client/consuming/listener.py",
        "src/bolide/filtersrv/worker.py",
        "src/bolide/store/mishaps.py",
        "src/bolide/proxy/methods.py",
    }
    found = [
        module.at(node)
        for module, node in nodes(ast.ExceptHandler)
        if (node.type is None or dotted(node.type) in ("Exception", "BaseException"))
        and not any(isinstance(child, ast.Raise) for child in ast.walk(node))
        and module.name not in doors
    ]
    assert not found


def test_modules_say_what_they_are_for() -> None:
    silent = [module.name for module in modules() if not ast.get_docstring(module.tree)]
    assert not silent


def test_functions_fit_a_screen_or_were_thought_about() -> None:
    # Two functions of a module may have one name, as every `__init__` does.
    found = [
        (f"{module.name}::{node.name}", node.end_lineno - node.lineno + 1)
        for module, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    assert {name for name, lines in found if lines > FUNCTION_LINES_MAX} == set(LONG_FUNCTIONS)


def test_files_stay_readable_or_were_thought_about() -> None:
    paths = [*(module.path for module in modules()), *typed_sources()]
    sizes = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {name for name, size in sizes.items() if size > FILE_LINES_MAX} == set(LONG_FILES)
    assert {name: size for name, size in sizes.items() if size > LONG_FILE_LINES_MAX} == {}


def test_lines_that_no_formatter_reads_fit_the_page_and_their_files_say_what_they_are_for() -> None:
    sources = {path: path.read_text("utf-8") for path in typed_sources()}
    long = [
        f"{path.name}:{number}"
        for path, text in sources.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > LINE_SIZE_MAX
    ]
    assert not long
    assert [path.name for path, text in sources.items() if '"""' not in text[:300] and "/*" not in text[:3]] == []


def test_names_in_the_compiled_kernel_are_words() -> None:
    defined = re.compile(r"^\s*(?:cdef|def)\b[^=(]*?\b(\w+)\s*\(", re.MULTILINE)
    found = [
        f"{path.name} {name}"
        for path in typed_sources()
        for name in defined.findall(path.read_text("utf-8"))
        if name in BANNED_NAMES
    ]
    assert not found


def test_the_compiler_counts_the_bytes_of_a_literal() -> None:
    counted = re.compile(r"""b("|')(?:(?!\1).)*\1,\s*\d""")
    found = [
        f"{path.name}:{number}"
        for path in typed_sources()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if counted.search(line)
    ]
    assert not found, "a length that was counted by hand is wrong one day: literal(b'...') has its size"


@pytest.mark.parametrize("folder", ["tests", "interop"])
def test_no_test_sleeps(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\b(time|asyncio)\.sleep\((?!0\)|POLL)", line) and "# virtual" not in line
    ]
    assert not found, "poll with a deadline (sleep(POLL_INTERVAL_S)), or use virtual time (say `# virtual`)"


def test_the_package_prints_nothing_but_through_the_command_line() -> None:
    found = [
        module.at(node) for module, node in nodes(ast.Call) if dotted(node.func) == "print" and module.room != "cli"
    ]
    assert not found


def test_the_tidy_tests_look_at_the_real_source() -> None:
    assert PACKAGE.is_dir()
    assert len(modules()) > 10


STORE_ROOMS = {"commitlog", "dispatch", "reader", "progress", "log_flush", "checkpoint"}


def test_the_broker_asks_the_store_and_not_its_rooms() -> None:
    reaches = [
        f"{module.at(node)} {dotted(node)}"
        for module, node in nodes(ast.Attribute)
        if module.name.startswith("src/bolide/broker/")
        and node.attr in STORE_ROOMS
        and dotted(node.value).rpartition(".")[2] in ("store", "_store")
    ]
    assert not reaches, "the store offers what is asked of it under its own name (store/store.py)"
