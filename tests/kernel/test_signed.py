"""What the kernel admits in bulk is what the general path would let in, and nothing else."""

import base64
import hashlib
import hmac
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide import kernel
from bolide.protocol.command import BINARY_CODEC, JSON_CODEC, Command
from bolide.protocol.signature import sign, verify

pytestmark = pytest.mark.skipif(kernel.NAME == "plain", reason="the plain kernel leaves all to the path above")
SECRET = "a secret of some length"
STATES = {b"bob": kernel.signing_state(SECRET.encode())}
VERDICTS = {b"bob\0T": True, b"bob\0T\0g": True}
SEND = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "KEYS\x01k\x02"}


COMPILER = shutil.which("gcc") or shutil.which("cc")
COMPILE_LIMIT_S = 120


def frame(code: int, fields: dict[str, str], body: bytes = b"x", codec: int = JSON_CODEC) -> bytes:
    return Command(code, fields=fields, body=body, codec=codec, opaque=7).encode()[4:]


def signed(fields: dict[str, str], body: bytes = b"x", name: str = "bob", secret: str = SECRET) -> dict[str, str]:
    whole = fields | {"AccessKey": name}
    return whole | {"Signature": sign(whole, body, secret)}


def admitted(*frames: bytes) -> list[bool]:
    """Which of the frames of one read are admitted."""
    stream, bounds = b"", []
    for each in frames:
        bounds += [len(stream), len(stream) + len(each)]
        stream += each
    inside, left = kernel.admit_signed(stream, bounds, STATES, VERDICTS)
    assert sorted(inside + left) == sorted(bounds)
    return [start in inside[::2] for start in bounds[::2]]


@given(secret=st.binary(max_size=200), data=st.binary(max_size=300))
def test_the_sum_is_that_of_the_standard_library(secret: bytes, data: bytes) -> None:
    claimed = base64.b64encode(hmac.digest(secret, b"bobT" + data, hashlib.sha1)).decode()
    command = frame(10, {"AccessKey": "bob", "topic": "T", "Signature": claimed}, data)
    inside, _ = kernel.admit_signed(command, [0, len(command)], {b"bob": kernel.signing_state(secret)}, VERDICTS)
    assert inside == [0, len(command)]


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_steps_and_instructions_make_the_same_sum(tmp_path: Path) -> None:
    program, source = tmp_path / "both", Path(__file__).with_name("sha1_both.c")
    subprocess.run([str(COMPILER), "-O2", "-o", str(program), str(source)], check=True, timeout=COMPILE_LIMIT_S)
    data = random.Random(7).randbytes(300)
    lines = subprocess.run([program], input=data, capture_output=True, check=True, timeout=COMPILE_LIMIT_S).stdout
    for size, line in enumerate(lines.decode().splitlines()):
        wanted = hashlib.sha1(data[:size]).hexdigest()
        by_steps, by_instructions = line.split()
        assert (by_steps, by_instructions) in ((wanted, wanted), (wanted, "-"))


def test_a_frame_is_judged_by_its_own_names_and_not_by_those_of_the_frame_before() -> None:
    mine, other, pull = signed(SEND), signed(SEND | {"b": "U"}), signed({"topic": "T", "consumerGroup": "other"})
    eve = signed(SEND, name="eve", secret=SECRET)
    forged = signed(SEND, secret="wrong")
    assert admitted(frame(310, mine), frame(310, mine), frame(310, other)) == [True, True, False]
    assert admitted(frame(310, mine), frame(11, pull)) == [True, False]
    assert admitted(frame(310, mine), frame(310, eve)) == [True, False]
    assert admitted(frame(310, mine), frame(310, forged)) == [True, False]
    ours = frame(11, signed({"topic": "T", "consumerGroup": "g"}))
    assert admitted(ours, frame(11, pull), ours) == [True, False, True]


@pytest.mark.parametrize("codec", [JSON_CODEC, BINARY_CODEC])
@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (310, SEND),
        (320, SEND),
        (310, SEND | {"i": "ключ\x01знач\x02"}),
        (10, {"topic": "T", "producerGroup": "pg", "properties": 'a"\\\n/'}),
        (11, {"topic": "T", "consumerGroup": "g"}),
    ],
)
def test_signed_sends_and_pulls_that_were_judged_are_admitted(code: int, fields: dict[str, str], codec: int) -> None:
    assert admitted(frame(code, signed(fields), codec=codec)) == [True]


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (310, SEND, b"x"),  # nobody
        (310, signed(SEND, secret="wrong"), b"x"),
        (310, signed(SEND, name="eve"), b"x"),
        (310, signed(SEND), b"y"),  # another body
        (310, signed(SEND) | {"b": "U"}, b"x"),  # another topic
        (310, signed(SEND | {"b": "U"}), b"x"),  # never judged
        (310, signed(SEND) | {"e": "1"}, b"x"),
        (310, signed(SEND) | {"Signature": ""}, b"x"),
        (310, signed(SEND) | {"Signature": signed(SEND)["Signature"][:-1] + "A"}, b"x"),
        (310, {key: text for key, text in signed(SEND).items() if key != "i"}, b"x"),
        (11, signed({"topic": "T", "consumerGroup": "other"}), b"x"),
        (11, signed({"topic": "T"}), b"x"),
        (34, signed({}), b"x"),
        (25, signed({"topic": "T"}), b"x"),
    ],
)
def test_everything_else_is_left(code: int, fields: dict[str, str], body: bytes) -> None:
    assert admitted(frame(code, fields, body)) == [False]


def test_a_name_that_is_there_twice_is_left() -> None:
    twice = frame(310, signed(SEND)).replace(b'"b":"T"', b'"b":"T","b":"T"')
    size = int.from_bytes(twice[:4], "big") + len(b',"b":"T"')
    assert admitted(size.to_bytes(4, "big") + twice[4:]) == [False]


def test_a_name_that_is_there_twice_in_a_binary_header_is_left() -> None:
    both = signed(SEND | {"z": "T"})
    assert admitted(frame(310, both, codec=BINARY_CODEC)) == [True]
    twice = frame(310, both, codec=BINARY_CODEC).replace(b"\x00\x01z", b"\x00\x01b")
    assert admitted(twice) == [False]


def test_sends_behind_a_frame_that_is_left_are_left_and_pulls_are_not() -> None:
    send, pull, other = frame(310, signed(SEND)), frame(11, signed({"topic": "T", "consumerGroup": "g"})), frame(34, {})
    assert admitted(send, other, send, pull) == [True, False, False, True]


@given(
    st.dictionaries(st.text("abcdeXYZ", min_size=1, max_size=4), st.text(max_size=12), max_size=12),
    st.binary(max_size=100),
)
def test_what_is_admitted_is_what_the_general_path_verifies(fields: dict[str, str], body: bytes) -> None:
    whole = signed({key: text.replace("\0", "") for key, text in fields.items()} | {"b": "T"}, body)
    assert verify(whole, body, SECRET)
    command = frame(310, whole, body)
    is_in = admitted(command) == [True]
    is_plain = all(char.isascii() and char >= " " and char not in '"\\' for text in whole.values() for char in text)
    assert is_in or not is_plain
    assert admitted(frame(310, whole | {"Signature": sign(whole, body, "wrong")}, body)) == [False]
