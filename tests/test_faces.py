"""The two faces of the package: the same names, found by those who look, and each says what it is."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, get_origin, get_type_hints

import pytest

import bolide
from bolide import aio
from bolide.admin.traces import MessageTrace

# Called by the rooms of the client alone.
INNER = {"Producer.topics", "Producer.route_changed", "Producer.send_together"}
# A type that is loaded when a trace is asked for.
LATE = {"MessageTrace": MessageTrace}
# What has a loop to run, and what runs one.
ONLY_BLOCKING, ONLY_ASYNCIO = {"__version__", "run"}, {"run_until_stopped"}


def test_both_faces_have_the_same_names() -> None:
    assert set(bolide.__all__) - ONLY_BLOCKING == set(aio.__all__) - ONLY_ASYNCIO


def test_what_is_loaded_late_is_listed_all_the_same() -> None:
    assert set(bolide.__all__) <= set(dir(bolide))


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
