"""The floor plan of the broker: one door for storing, one frozen state, and nobody wired up from outside."""

import ast
from collections.abc import Iterator

from tests.tidy.source import PACKAGE, Module, dotted, modules, nodes

BROKER = PACKAGE / "broker"
PARAMETERS_MAX = 5


def calls() -> Iterator[tuple[Module, ast.Call, str]]:
    for module, node in nodes(ast.Call, folder=BROKER):
        yield module, node, dotted(node.func)


def is_storing(called: str) -> bool:
    """A call that puts something into the log."""
    *_, owner, name = ("", *called.split("."))
    return name == "append_encoded" or called == "redeliver" or (name == "append" and owner in ("store", "_store"))


def test_nobody_in_the_broker_appends_to_the_log_but_its_intake() -> None:
    storing = [
        (module.path.name, f"{module.at(node)} {called}")
        for module, node, called in calls()
        if is_storing(called) and called != "self._intake.append_encoded"
    ]
    assert [text for name, text in storing if name != "intake.py"] == []
    assert len(storing) == 4, "the rule still sees the appends of the intake"


def test_nobody_in_the_broker_counts_what_was_stored_but_its_intake() -> None:
    found = [f"{module.at(node)} {called}" for module, node, called in calls() if called.endswith("stats.put")]
    assert [each for each in found if "intake.py" not in each] == []
    assert found, "the rule still sees how messages are counted"


def test_the_state_of_the_broker_imports_nobody_who_answers_requests() -> None:
    (state,) = [module for module in modules(BROKER) if module.path == BROKER / "state.py"]
    named = {node.module for node in ast.walk(state.tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported = {PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in named}
    processors = {module.path for module, node in nodes(ast.FunctionDef, folder=BROKER) if node.name == "handlers"}
    assert processors, "processors are known by the table they give"
    assert imported & processors == set()


def test_no_constructor_of_the_broker_takes_more_than_five_parameters() -> None:
    found = []
    for module, node in nodes(ast.FunctionDef, folder=BROKER):
        if node.name == "__init__":
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][1:]
            if len(given) > PARAMETERS_MAX or node.args.vararg or node.args.kwarg:
                found.append(f"{module.at(node)} {[each.arg for each in given]}")
    assert found == []


def test_no_part_of_the_broker_is_wired_from_outside_after_it_was_made() -> None:
    """Who wants to hear of something says so by a method of whom it listens to."""
    (wiring,) = [module for module in modules(BROKER) if module.path == BROKER / "broker.py"]
    found = [
        f"{wiring.at(part)} {dotted(part)}"
        for part in ast.walk(wiring.tree)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and dotted(part.value) != "self"
    ]
    assert found == []
