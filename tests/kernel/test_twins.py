"""plain.py and compiled.pyx are the same functions: same names, same parameters, same answers to the same bytes."""

import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bolide.kernel
from bolide.kernel import layout, plain

PARTS = [importlib.import_module(f"bolide.kernel.{name}") for name in bolide.kernel.PARTS]
INT32 = st.integers(-(2**31), 2**31 - 1)
CODES = st.integers(-(2**15), 2**15 - 1)
# Real life: printable names, control characters as in property strings, other scripts, halves of surrogate pairs.
TEXTS = st.one_of(
    st.text(alphabet=st.characters(min_codepoint=0, max_codepoint=0x24F), max_size=40),
    st.text(max_size=20),
    st.sampled_from(
        ["UNIQ_KEY\x017F0000010A2318B4\x02WAIT\x01true\x02", "主题", "\ud83d", '"\\/\b\f\n\r\t', "\x7f", ""]
    ),
    st.text(max_size=2000, alphabet="ab\x01"),
)
FIELDS = st.dictionaries(TEXTS, TEXTS, max_size=6)
FRAMES = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        CODES,
        st.integers(0, 13),
        CODES,
        INT32,
        st.integers(0, 3),
        st.none() | TEXTS,
        st.none() | FIELDS,
        st.binary(max_size=60),
    ),
    max_size=6,
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INT32 | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=6,
)
HEADER_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "code": INT32 | st.sampled_from([105, "105", None, 2**31, 1.0]),
        "version": INT32 | st.sampled_from([317, 401, 409, True]),
        "opaque": INT32 | JSON_VALUES,
        "flag": st.integers(0, 3) | JSON_VALUES,
        "language": st.sampled_from(["JAVA", "GO", "COBOL", 9, 99, None]) | JSON_VALUES,
        "remark": st.none() | TEXTS | JSON_VALUES,
        "extFields": st.none()
        | st.dictionaries(
            TEXTS | st.sampled_from(["topic", "acceptStandardJsonOnly"]), JSON_VALUES | TEXTS, max_size=5
        ),
        "serializeTypeCurrentRPC": st.just("JSON") | JSON_VALUES,
        "unknown é": JSON_VALUES,
    },
)
SPACED = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r")])


def public(module: ModuleType) -> dict[str, Callable[..., Any]]:
    return {
        name: function
        for name, function in vars(module).items()
        if callable(function)
        and not name.startswith("_")
        and not isinstance(function, type)
        and getattr(function, "__module__", None) == module.__name__
        # shared with the mild reader, or asked by the compiled twin alone: no batch functions
        and name not in ("header_from_json", "read_odd_header")
    }


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as problem:
        return f"ValueError: {problem}"


def as_frame(header: bytes, body: bytes = b"", codec: int = 0) -> bytes:
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big")
        + bytes([codec])
        + len(header).to_bytes(3, "big")
        + header
        + body
    )


def test_both_kernels_have_the_same_functions_and_parameters(compiled: ModuleType) -> None:
    twins = {name: function for part in PARTS for name, function in vars(part).items() if name in door()}
    assert twins.keys() == public(compiled).keys() == door()
    for name, function in twins.items():
        twin = public(compiled)[name]
        assert list(inspect.signature(function).parameters) == list(inspect.signature(twin).parameters), name


def door() -> set[str]:
    return set(bolide.kernel.__all__) - {"NAME"} - bolide.kernel._OF_ONE_ITEM.keys()


def test_a_library_of_other_sources_is_refused(tmp_path: Path) -> None:
    """Such a one as lies about after a pull: it would be imported, and the broker would be slow or wrong."""
    shutil.copytree(Path(bolide.__file__).parent, tmp_path / "bolide", ignore=shutil.ignore_patterns("*.so", "*.c"))
    (tmp_path / "bolide" / "kernel" / "compiled.py").write_text("def cut_frames(): ...")
    (tmp_path / "bolide" / "kernel" / "compiled_sends.py").write_text("raise AssertionError('a part of old')")
    run = subprocess.run(
        [sys.executable, "-c", "import bolide.kernel"],
        env={**os.environ, "BOLIDE_KERNEL": "auto", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "compiled.py was built from other sources: make build" in run.stderr


@pytest.mark.parametrize("wanted", ["plain", "compiled"])
def test_the_environment_chooses_the_kernel(wanted: str, compiled: ModuleType) -> None:
    code = "import bolide.kernel as k; print(k.NAME, k.cut_frames.__module__)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "BOLIDE_KERNEL": wanted},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [wanted, f"bolide.kernel.{wanted}"]


def test_an_unknown_kernel_is_refused_by_name() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import bolide.kernel"],
        env={**os.environ, "BOLIDE_KERNEL": "fortran"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "'fortran': it may be auto, plain or compiled" in run.stderr


@given(st.text() | TEXTS)
def test_java_hash_agrees_on_any_text(compiled: ModuleType, text: str) -> None:
    assert plain.java_hash(text) == compiled.java_hash(text)


@given(
    stream=st.binary(max_size=80) | FRAMES.map(plain.write_frames), cut=st.integers(0, 40), limit=st.integers(8, 400)
)
def test_cutting_agrees_on_any_bytes(compiled: ModuleType, stream: bytes, cut: int, limit: int) -> None:
    end = max(0, len(stream) - cut)
    assert plain.cut_frames(stream, end, limit) == compiled.cut_frames(stream, end, limit)


@given(FRAMES)
def test_writing_agrees_on_any_frame(compiled: ModuleType, frames: list[layout.Frame]) -> None:
    assert plain.write_frames(frames) == compiled.write_frames(frames)


@given(FRAMES)
def test_reading_agrees_on_what_was_written(compiled: ModuleType, frames: list[layout.Frame]) -> None:
    stream = plain.write_frames(frames)
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    for view in (stream, bytearray(stream), memoryview(stream)):
        assert plain.read_headers(view, bounds) == compiled.read_headers(view, bounds)


@given(document=HEADER_DOCUMENTS | JSON_VALUES, separators=SPACED, ascii_only=st.booleans())
def test_reading_agrees_on_any_json(
    compiled: ModuleType, document: object, separators: tuple[str, str], ascii_only: bool
) -> None:
    text = json.dumps(document, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    stream = as_frame(text, b"body")
    assert plain.read_headers(stream, [4, len(stream)]) == compiled.read_headers(stream, [4, len(stream)])


@given(st.binary(max_size=120), st.integers(0, 2))
@example(b'{"code":105,"code":007}', 0)
@example(b'{"code":-0,"extFields":{"a":-0}}', 0)
@example(b'{"code":105,"extFields":{"topic":"T","topic":null}}', 0)
@example(b'{"code":105,"extFields":{"a":1},"extFields":null}', 0)
@example(b'{"x":"\xff","code":1}', 0)
@example(b'{"\xff":1,"code":1}', 0)
@example(b'{"code":105,"extFields":{"a":"\\ud83d\\ude00","b":"\\u00e9","c":"\\u0041"}}', 0)
@example(b'{"code":105,}', 0)
@example(b'{"code":105} x', 0)
@example(b'{"code":105,"extFields":{"a":"\\', 0)
@example(b'{"code":9007199254740993999999}', 0)
@example(b'{"code":1e2}', 0)
@example(b"[" * 60_000, 0)
def test_reading_agrees_on_any_bytes(compiled: ModuleType, header: bytes, codec: int) -> None:
    stream = as_frame(header, b"", codec)
    assert plain.read_headers(stream, [4, len(stream)]) == compiled.read_headers(stream, [4, len(stream)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([105, 106]), st.sampled_from(["T1", "T2", "主题", 'a"b', ""]), st.sampled_from([317, 409])
        )
        | HEADER_DOCUMENTS,
        max_size=5,
    ),
    st.booleans(),
)
def test_answering_routes_agrees_on_any_batch(compiled: ModuleType, requests: list[Any], is_binary: bool) -> None:
    quoted = {name.encode(): b"Q" + name.encode() for name in ("T1", "主题", 'a"b', "")}
    bare = {name: b"B" + body for name, body in quoted.items()}
    stream = b"".join(
        as_frame(json.dumps(request).encode("utf-8", "surrogatepass"))
        if isinstance(request, dict)
        else plain.write_frames([(int(is_binary), request[0], 0, request[2], 7, 0, None, {"topic": request[1]}, b"")])
        for request in requests
    )
    bounds, _, _ = plain.cut_frames(stream, len(stream), 1 << 24)
    arguments = (stream, bounds, quoted, bare, 479)
    assert plain.answer_routes(*arguments) == compiled.answer_routes(*arguments)


@given(
    st.sampled_from(["true", "TRUE", "false", "1", ""]),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(["__ZONE_MODE", "topic", "x"]), TEXTS, max_size=3),
)
def test_answering_routes_agrees_on_odd_look_ups(
    compiled: ModuleType, standard: str, flag: int, extra: dict[str, str]
) -> None:
    fields = {"topic": "T1", "acceptStandardJsonOnly": standard, **extra}
    stream = plain.write_frames([(0, 105, 0, 317, -5, flag, "é", fields, b"")])
    arguments = (stream, [4, len(stream)], {b"T1": b"Q"}, {b"T1": b"B"}, 479)
    assert plain.answer_routes(*arguments) == compiled.answer_routes(*arguments)


@pytest.mark.parametrize("bounds", [[-1, 8], [0, 3], [4, 999], [6, 4], [2**40, 2**40 + 8]])
def test_bounds_outside_the_stream_are_refused_alike(compiled: ModuleType, bounds: list[int]) -> None:
    for function, more in (("read_headers", ()), ("answer_routes", ({}, {}, 1))):
        answers = {outcome(getattr(twin, function), b"12345678", bounds, *more) for twin in (plain, compiled)}
        assert len(answers) == 1
        assert "is outside a stream of 8 bytes" in answers.pop()


def test_bounds_that_are_no_pairs_are_refused_alike(compiled: ModuleType) -> None:
    for function, more in (("read_headers", ()), ("answer_routes", ({}, {}, 1))):
        answers = {outcome(getattr(twin, function), bytes(64), [0], *more) for twin in (plain, compiled)}
        assert answers == {"ValueError: 1 bounds, they come in pairs"}


def test_an_odd_header_is_read_once_for_sends_pulls_and_commands(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = ",".join(f'"f{i}":"{i}"' for i in range(50))
    stream = as_frame(b'{"code":34,"extFields":{"x":"\\ud83d",' + fields.encode() + b"}}")
    bounds = [4, len(stream)]
    reads = count()
    read_header = plain._read_header
    monkeypatch.setattr(plain, "_read_header", lambda *given: (next(reads), read_header(*given))[1])
    monkeypatch.setattr(plain, "_odd", {})
    rules = (bytes(8), b"", b"", b"", 0, 100, False, None)
    assert compiled.encode_sends([(stream, bounds, bytes(8))], {}, rules, 0, 0, {})[3] == ([(b"", bounds)], [])
    assert compiled.read_pulls(stream, bounds) == [None]
    first, second = (compiled.read_headers(stream, bounds)[0] for _ in range(2))
    assert next(reads) == 1
    assert first == second == read_header(stream, *bounds)
    first[7].clear()
    assert compiled.read_headers(b"...." + stream, [8, 4 + len(stream)])[0] == (*second[:8], second[8] + 4)


def test_what_is_kept_of_odd_headers_is_bounded(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_odd", {})
    for i in range(9):
        stream = as_frame(b'{"code":%d,"remark":"%s","extFields":{"x":"\\ud83d"}}' % (i, b"." * 200_000))
        assert compiled.read_headers(stream, [4, len(stream)])[0][1] == i
    assert 1 < len(plain._odd) < 9
    assert sum(map(len, plain._odd)) <= 1 << 20
