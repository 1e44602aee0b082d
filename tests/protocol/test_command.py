"""The envelope: what Java, C++ and Go send is read, and what we send they read."""

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide import kernel
from bolide.errors import ProtocolError
from bolide.protocol.command import BINARY_CODEC, JSON_CODEC, Command, encode_commands, read_commands

TEXTS = st.text(max_size=20)


def frame_of(header: bytes, body: bytes = b"", codec: int = JSON_CODEC) -> bytes:
    word = bytes([codec]) + len(header).to_bytes(3, "big")
    return (4 + len(header) + len(body)).to_bytes(4, "big") + word + header + body


def read_one(stream: bytes) -> Command:
    (command,) = read_commands(stream, [4, len(stream)])
    return command


@pytest.mark.parametrize(
    ("text", "code", "flag", "opaque", "remark", "fields"),
    [
        (
            '{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,'
            '"serializeTypeCurrentRPC":"JSON","version":409}',
            105,
            0,
            7,
            None,
            {"topic": "T1"},
        ),
        (
            '{"code":34,"flag":0,"language":"JAVA","opaque":23,"serializeTypeCurrentRPC":"JSON","version":409}',
            34,
            0,
            23,
            None,
            {},
        ),
        (
            '{"code":0,"flag":1,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":409}',
            0,
            1,
            5,
            None,
            {},
        ),
        (
            '{"code":17,"flag":1,"language":"JAVA","opaque":5,"remark":"...","serializeTypeCurrentRPC":"JSON","version":409}',
            17,
            1,
            5,
            "...",
            {},
        ),
    ],
)
def test_the_headers_java_emits_are_read_and_written_back_the_same(
    text: str, code: int, flag: int, opaque: int, remark: str | None, fields: dict[str, str]
) -> None:
    command = read_one(frame_of(text.encode(), b"body"))
    assert (command.code, command.flag, command.opaque, command.remark, command.fields) == (
        code,
        flag,
        opaque,
        remark,
        fields,
    )
    assert (command.language, command.version, command.body) == (0, 409, b"body")
    written = json.loads(command.encode()[8:-4])
    if code == 34:  # a request of ours always has the map, for Java handlers read it unasked (gotcha 59)
        assert written.pop("extFields") == {}
    assert written == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"code":"105","opaque":"7","flag":"0","version":"409","extFields":{"topic":"T1"}}',
        "{'code':105,'opaque':7,'version':409,'extFields':{'topic':'T1'}}",
        '{"code":105,"opaque":7,"version":409,"extFields":{"topic":"T1",},}',
        '{code:105,opaque:7,version:409,extFields:{topic:"T1"}}',
        ' {"code" : 105 ,\n"opaque":7,"version":409,"extFields" :{"topic": "T1" , "none":null}, "x":{"y":[1,{}]}} ',
    ],
)
def test_headers_are_read_as_mildly_as_fastjson_reads_them(text: str) -> None:
    command = read_one(frame_of(text.encode()))
    assert (command.code, command.opaque, command.version, command.fields) == (105, 7, 409, {"topic": "T1"})


def test_cpp_headers_with_numbers_and_empty_texts_are_read() -> None:
    text = (
        '{"code":310,"extFields":{"AccessKey":"","OnsChannel":"","Signature":"","d":4,"e":-1,"k":false},'
        '"flag":0,"language":"CPP","opaque":3,"remark":"","version":333}'
    )
    command = read_one(frame_of(text.encode()))
    assert command.fields == {"AccessKey": "", "OnsChannel": "", "Signature": "", "d": "4", "e": "-1", "k": "false"}
    assert (command.language, command.remark) == (1, "")


def test_ext_values_leave_as_texts_in_compact_json() -> None:
    """Gotchas 47 and 48: C++ and Go fail on numbers, Go on blanks."""
    header = Command(11, 1, fields={"queueId": "3", "properties": "A\x01b\x02"}).encode()[8:]
    assert b'"extFields":{"queueId":"3","properties":"A\\u0001b\\u0002"}' in header
    assert b" " not in header


def test_an_answer_has_the_opaque_and_the_codec_of_its_request() -> None:
    for codec in (JSON_CODEC, BINARY_CODEC):
        request = Command(105, opaque=-9, fields={"topic": "T1"}, codec=codec)
        answer = read_one(
            read_one(request.encode()).answer(17, remark="no route", fields={"a": "b"}, body=b"x").encode()
        )
        assert (answer.code, answer.opaque, answer.codec, answer.is_response) == (17, -9, codec, True)
        assert (answer.remark, answer.fields, answer.body) == ("no route", {"a": "b"}, b"x")


@pytest.mark.parametrize(
    ("code", "on_the_wire"),
    [
        (200050, 3442),
        (200051, 3443),
        (200052, 3444),
        (200053, 3445),
        (200054, 3446),
        (200055, 3447),
        (200056, 3448),
        (200151, 3543),
    ],
)
def test_pop_codes_that_the_binary_codec_cuts_are_made_whole_again(code: int, on_the_wire: int) -> None:
    """Gotcha 42."""
    stream = Command(code, codec=BINARY_CODEC).encode()
    assert int.from_bytes(stream[8:10], "big") == on_the_wire
    assert read_one(stream).code == code
    assert read_one(Command(on_the_wire, flag=1, codec=BINARY_CODEC).encode()).code == on_the_wire


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (frame_of(b"not json"), "not JSON"),
        (frame_of(b"\xff\xfe{}"), "not JSON"),
        (frame_of(b"[1,2]"), "no command"),
        (frame_of(b'{"code":{}}'), "no command"),
        (frame_of(b'{"code":99999999999}'), "no command"),
        (frame_of(b'{"code":1,"extFields":[1]}'), "no command"),
        (frame_of(b""), "not JSON"),
        (frame_of(b"{'code':1,'x':[" + b"1," * 9000 + b"1]}"), "not strict JSON, the limit is 16384"),
        (frame_of(b"{'code':1,'x':[" + b"1," * 1100 + b"1]}"), "not strict JSON, the limit is 1024"),
        (frame_of(b"{'code':1,'x':'" + b"\\x41" * 1100 + b"'}"), "not strict JSON, the limit is 1024"),
        (frame_of(b"\x00" * 20, codec=1), "do not add up"),
        (frame_of(b"\x00" * 13 + b"\x7f\xff\xff\xff" + b"\x00" * 4, codec=1), "do not add up"),
    ],
)
def test_a_header_nobody_can_read_is_a_protocol_error(stream: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        read_one(stream)


def test_commands_of_one_write_are_read_in_order() -> None:
    commands = [Command(code, opaque=code, codec=code % 2) for code in range(5)]
    stream = encode_commands(commands)
    bounds, consumed, fault = kernel.cut_frames(stream, len(stream), 1 << 24)
    assert (consumed, fault) == (len(stream), None)
    assert read_commands(stream, bounds) == commands


COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15), 3000),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    fields=st.dictionaries(TEXTS.filter(bool), TEXTS.filter(bool), max_size=5),
    body=st.binary(max_size=50),
    remark=st.none() | TEXTS.filter(bool),
    language=st.integers(0, 13),
    version=st.integers(0, 2**15 - 1),
    codec=st.sampled_from([JSON_CODEC, BINARY_CODEC]),
)


@given(COMMANDS)
def test_any_command_survives_the_wire(command: Command) -> None:
    assert read_one(command.encode()) == command


@given(header=st.binary(max_size=200), codec=st.integers(0, 1))
@example(header=b"[" * 100_000, codec=0)
@example(header=b'{"a":' * 50_000, codec=0)
@example(header=b"{'code':1,'extFields':{'a':" + b"9" * 5000 + b"}}", codec=0)
def test_any_bytes_are_a_command_or_a_protocol_error(header: bytes, codec: int) -> None:
    try:
        command = read_one(frame_of(header, b"tail", codec))
    except ProtocolError:
        return
    assert command.body == b"tail"


@given(command=COMMANDS, position=st.integers(0, 400), byte=st.integers(0, 255))
def test_one_wrong_byte_is_a_command_or_a_protocol_error(command: Command, position: int, byte: int) -> None:
    stream = bytearray(command.encode())
    stream[8 + position % max(1, len(stream) - 8)] = byte
    bounds, _, fault = kernel.cut_frames(stream, len(stream), 1 << 24)
    assert fault is None
    with contextlib.suppress(ProtocolError):
        read_commands(stream, bounds)
