"""Imports point down: the table of floors, and the doors that lead out of them."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import ROOT, Module, dotted, modules, nodes

FLOORS: list[set[str]] = [
    {"kernel", "model", "errors", "clock", "files", "settings"},
    {"filter", "metrics", "protocol"},
    {"store", "remoting"},
    {"ha", "access"},
    {"broker", "namesrv", "controller", "client", "filtersrv"},
    {"admin", "spark", "proxy"},
    {"dashboard", "celery", "taskiq", "faststream"},
    {"cli", "testing"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# What a room may use of its own floor: the faces of the package, and values that raise errors.
NEIGHBOURS = {("model", "errors"), ("files", "errors"), ("settings", "errors"), ("cli", "testing")}
# The two towers: the name server and the client stand on the wire alone.
NO_DISK = {"remoting", "namesrv", "controller", "client", "filtersrv", "protocol"}
# The faces of the package show what lies behind them.
FACES = {"__init__", "__main__", "aio"}


def imported_rooms() -> Iterator[tuple[Module, ast.AST, str]]:
    for module, node in nodes(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.at(node)}: relative imports hide the floor"
        for name in imported_names(node):
            parts = name.split(".")
            if len(parts) > 1 and parts[1] in FLOOR_OF:
                yield module, node, parts[1]


def test_every_room_has_a_floor_and_no_floor_a_room_that_is_not_there() -> None:
    assert {module.room for module in modules()} - FACES == set(FLOOR_OF)


def test_the_page_for_contributors_shows_the_same_floors() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    told = [
        set(re.findall(r"[a-z]+", row)) for row in re.findall(r"^\d  ([a-z |]+?)(?:  disk .*)?$", page, re.MULTILINE)
    ]
    assert told[::-1] == FLOORS


def test_no_import_climbs() -> None:
    climbing = [
        f"{module.at(node)} imports {room}"
        for module, node, room in imported_rooms()
        if module.room not in FACES
        and room != module.room
        and FLOOR_OF[room] >= FLOOR_OF[module.room]
        and (module.room, room) not in NEIGHBOURS
    ]
    assert not climbing


def test_the_wire_does_not_know_the_disk() -> None:
    crossing = [
        f"{module.at(node)} imports {room}"
        for module, node, room in imported_rooms()
        if (module.room in NO_DISK and room == "store") or (module.room == "store" and room == "remoting")
    ]
    assert not crossing


@pytest.mark.parametrize("room", ["kernel", "model", "protocol", "filter", "metrics"])
def test_rooms_without_io_import_no_sockets_and_no_loop(room: str) -> None:
    forbidden = {"asyncio", "socket", "ssl", "selectors", "threading", "subprocess", "uvloop", "time"}
    found = [
        f"{module.at(node)} imports {name}"
        for module, node in nodes(ast.Import, ast.ImportFrom)
        if module.room == room
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")])
        if str(name).partition(".")[0] in forbidden
    ]
    assert not found


@pytest.mark.parametrize("folder", ["src/bolide", "interop", "benchmarks"])
def test_only_the_kernel_door_chooses_a_kernel(folder: str) -> None:
    """Functions come from `bolide.kernel`, tables and types from `bolide.kernel.layout`."""
    found = [
        f"{module.at(node)} imports {name}"
        for module, node in nodes(ast.ImportFrom, ast.Import, folder=ROOT / folder)
        if not module.name.startswith("src/bolide/kernel/")
        for name in imported_names(node)
        if re.match(r"bolide\.kernel\.(plain|compiled)", name)
    ]
    assert not found


def test_the_kernel_draws_its_structs_once() -> None:
    found = [
        module.at(node)
        for module, node in nodes(ast.Call)
        if module.room == "kernel"
        and dotted(node.func) == "struct.Struct"
        and module.path.name not in ("layout.py", "filter_layout.py")
    ]
    assert not found


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names if (node.module or "").startswith("bolide")]
    assert isinstance(node, ast.Import)
    return [alias.name for alias in node.names if alias.name.startswith("bolide")]


# Where a library reads the environment: who we are to which cluster (NAMESRV_ADDR, as every client of RocketMQ has it;
# BOLIDE_PROFILE and its kin); what starts a JVM.
ENVIRONMENT = {"src/bolide/client/config.py", "src/bolide/spark/session.py"}


def test_the_environment_is_read_in_the_command_line_at_the_kernel_switch_and_where_stated_only() -> None:
    found = [
        module.at(node)
        for module, node in nodes(ast.Attribute)
        if dotted(node) in ("os.environ", "os.getenv")
        and module.room not in ("cli", "kernel", "testing")
        and module.name not in ENVIRONMENT
    ]
    assert not found
