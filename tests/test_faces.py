"""The two faces of the package: the same names, found by those who look, and each says what it is."""

import ast
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_origin, get_type_hints

import pytest

import bolide
import bolide.admin
import bolide.protocol.bodies
import bolide.protocol.headers
from bolide import aio, errors
from bolide.model.message import StoredMessage
from tests.tidy.source import ROOT

# Called by the rooms of the client alone.
INNER = {"Producer.topics", "Producer.route_changed", "Producer.send_together"}
# Types that are loaded when somebody asks for what they are in.
LATE = {"StoredMessage": StoredMessage} | {
    name: kind
    for package in (bolide.admin, bolide.protocol.bodies, bolide.protocol.headers)
    for module in iter_modules(package.__path__, f"{package.__name__}.")
    if not module.ispkg
    for name, kind in vars(import_module(module.name)).items()
    if inspect.isclass(kind)
}
# What has a loop to run, and what runs one.
ONLY_BLOCKING, ONLY_ASYNCIO = {"__version__", "run"}, {"run_until_stopped"}


def test_both_faces_have_the_same_names() -> None:
    assert set(bolide.__all__) - ONLY_BLOCKING == set(aio.__all__) - ONLY_ASYNCIO


def test_what_is_loaded_late_is_listed_all_the_same() -> None:
    assert set(bolide.__all__) <= set(dir(bolide))


def test_a_type_checker_sees_the_names_that_are_there_and_no_others() -> None:
    """To one that sees a `__getattr__` every name is there, and a misspelt one passes."""
    tree = ast.parse(inspect.getsource(bolide))
    conditions = {ast.unparse(node.test): node.body for node in tree.body if isinstance(node, ast.If)}
    assert [each.name for each in conditions["not TYPE_CHECKING"] if isinstance(each, ast.FunctionDef)] == [
        "__getattr__"
    ]
    assert not [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "__getattr__"]
    told = {
        alias.asname or alias.name
        for each in conditions["TYPE_CHECKING"]
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert told == set(bolide.__all__) - {"BolideError", "__version__"}


@pytest.mark.parametrize("face", [bolide, aio])
def test_every_error_of_the_documented_tree_is_exported_with_its_code_and_whether_to_try_again(face: object) -> None:
    page = (ROOT / "docs" / "sending.md").read_text()
    tree = page[page.index("BolideError\n├") :].partition("```")[0]
    named = set(re.findall(r"\w+", tree)) & vars(errors).keys()
    exported = {name for name in face.__all__ if name in vars(errors)}  # type: ignore[attr-defined]
    assert named == exported
    for name in exported:
        kind = getattr(face, name)
        assert issubclass(kind, bolide.BolideError)
        assert isinstance(kind.retriable, bool)
        assert "code" in dir(kind) or "code" in get_type_hints(kind)


@pytest.mark.parametrize("face", [bolide, aio])
def test_everything_public_says_what_it_is(face: object) -> None:
    silent = []
    for name in face.__all__:  # type: ignore[attr-defined]
        found = getattr(face, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            silent += [] if found.__doc__ else [name]
        if inspect.isclass(found):
            methods = {key: value for key, value in vars(found).items() if inspect.isfunction(value) and key[0] != "_"}
            silent += [f"{name}.{key}" for key, value in methods.items() if not value.__doc__]
    assert set(silent) - INNER == set()


def keywords(function: Callable[..., Any]) -> dict[str, object]:
    """Every parameter with its type; a set of options counts as the parameters it names."""
    hints = get_type_hints(function, localns=LATE)
    found: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = hints[name].__args__
            found |= get_type_hints(options)
        elif name != "self":
            found[name] = hints[name]
    return found


@pytest.mark.parametrize("name", ["Producer", "TransactionProducer", "Consumer", "PullConsumer", "Admin"])
def test_what_one_face_can_be_told_the_other_can_be_told_too(name: str) -> None:
    blocking, asynchronous = getattr(bolide, name), getattr(aio, name)
    methods = ["__init__"]
    methods += [key for key, value in inspect.getmembers(blocking, inspect.isfunction) if key[0] != "_"]
    told = {method: keywords(getattr(blocking, method)) for method in methods}
    assert told == {method: keywords(getattr(asynchronous, method)) for method in methods}


@pytest.mark.parametrize("name", ["Producer", "TransactionProducer", "Consumer", "PullConsumer", "Admin"])
def test_what_help_shows_of_a_blocking_method_is_what_it_returns(name: str) -> None:
    """Its own result, and never something to await."""
    methods = inspect.getmembers(getattr(bolide, name), inspect.isfunction)
    returned = {key: inspect.signature(value).return_annotation for key, value in methods if key[0] != "_"}
    assert inspect.Signature.empty not in returned.values()
    waited = {key for key, kind in returned.items() if get_origin(kind) in (AsyncIterator, Awaitable, Coroutine)}
    assert waited == set()
    assert not any(inspect.iscoroutinefunction(value) for key, value in methods if key[0] != "_")


def test_an_option_that_nobody_knows_is_refused_and_not_lost() -> None:
    with pytest.raises(TypeError, match="linger"):
        bolide.Producer("pg", "127.0.0.1:9876", linger=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'tag'"):
        bolide.Producer("pg", "127.0.0.1:9876").send("Orders", b"", tag="TagA")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'tag'"):
        bolide.Producer("pg", "127.0.0.1:9876").submit("Orders", b"", tag="TagA").result(5)  # type: ignore[call-arg]


def test_a_text_for_a_body_is_refused_with_what_to_write() -> None:
    from bolide.client.sending.message import check_message

    with pytest.raises(bolide.ClientError, match=r"give body\.encode\(\)"):
        check_message(bolide.Message("Orders", "two teas"), 4 << 20)  # type: ignore[arg-type]
