"""The envelope: one request or answer, as a value.

Sans-IO: bytes in, `Command` out, and back. The kernel reads regular headers; what it leaves is tried with the mild
reader (`fastjson.py`), because Java's parser takes single quotes, bare keys, trailing commas and numbers in quotes. A
header that neither can read is a `ProtocolError`: there is no opaque to answer to.
"""

from dataclasses import dataclass, field

from bolide import kernel
from bolide.errors import ProtocolError
from bolide.kernel.layout import BINARY_CODEC, JSON_CODEC, LANGUAGES, Buffer, Frame, Header
from bolide.protocol.codes import FULL_REQUEST_CODES

FRAME_SIZE_MAX = 16 * 1024 * 1024  # with the four length bytes; Java's default on both sides
VERSION = 479  # the ordinal of 5.3.3; clients ask it before they use SQL filters, compressed registrations and more
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
# The mild reader is some hundred times slower than the kernel; a stranger must not have it read megabytes, nor
# thousands of members. The headers of clients have some twenty.
MILD_HEADER_SIZE_MAX = 16 * 1024
MILD_HEADER_PARTS_MAX = 1_024
_PART_MARKS = b",:[{\\"
PYTHON = LANGUAGES.index("PYTHON")

__all__ = ["BINARY_CODEC", "FRAME_SIZE_MAX", "JSON_CODEC", "ONEWAY_FLAG", "PYTHON", "RESPONSE_FLAG", "VERSION"]
__all__ += ["Command", "encode_commands", "read_commands", "read_until_bad"]


@dataclass(slots=True)
class Command:
    """RocketMQ's RemotingCommand. `fields` are the ext fields, all text; `code` is the result in an answer."""

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    language: int = PYTHON
    version: int = VERSION
    codec: int = JSON_CODEC

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def answer(
        self, code: int, *, remark: str | None = None, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> "Command":
        """The answer to this request: same opaque, and same codec, for the C++ client reads no other than its own."""
        return Command(
            code=code,
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            fields=fields or {},
            body=body,
            remark=remark,
            codec=self.codec,
        )

    def as_frame(self) -> Frame:
        return (
            self.codec,
            self.code,
            self.language,
            self.version,
            self.opaque,
            self.flag,
            self.remark,
            self.fields,
            self.body,
        )

    def encode(self) -> bytes:
        return encode_commands([self])


def encode_commands(commands: list[Command]) -> bytes:
    """All commands in one buffer, ready for one write."""
    return kernel.write_frames([command.as_frame() for command in commands])


def read_commands(stream: Buffer, bounds: list[int]) -> list[Command]:
    """The commands in the frames at `bounds` (see `kernel.cut_frames`)."""
    headers = kernel.read_headers(stream, bounds)
    return [
        _command(header or _read_mildly(stream, bounds[2 * i], bounds[2 * i + 1]), stream, bounds[2 * i + 1])
        for i, header in enumerate(headers)
    ]


def read_until_bad(stream: Buffer, bounds: list[int]) -> tuple[list[Command], str | None]:
    """The commands of one read; when a header cannot be read, those before it and what is wrong."""
    try:
        return read_commands(stream, bounds), None
    except ProtocolError:
        commands: list[Command] = []
        for i in range(0, len(bounds), 2):
            try:
                commands += read_commands(stream, bounds[i : i + 2])
            except ProtocolError as problem:
                return commands, str(problem)
        raise


def _command(header: Header, stream: Buffer, end: int) -> Command:
    codec, code, language, version, opaque, flag, remark, fields, body_position = header
    if codec == BINARY_CODEC and not flag & RESPONSE_FLAG:
        code = FULL_REQUEST_CODES.get(code, code)
    body = bytes(stream[body_position:end])
    return Command(code, opaque, flag, fields, body, remark, language, version, codec)


def _read_mildly(stream: Buffer, start: int, end: int) -> Header:
    header_end = start + 4 + int.from_bytes(stream[start + 1 : start + 4], "big")
    if stream[start] != JSON_CODEC or header_end > end:
        raise ProtocolError("a binary header whose inner lengths do not add up")
    text = bytes(stream[start + 4 : header_end])
    if len(text) > MILD_HEADER_SIZE_MAX:
        raise ProtocolError(
            f"a header of {len(text)} bytes that is not strict JSON, the limit is {MILD_HEADER_SIZE_MAX}"
        )
    parts = len(text) - len(text.translate(None, _PART_MARKS))
    if parts > MILD_HEADER_PARTS_MAX:
        raise ProtocolError(f"a header of {parts} parts that is not strict JSON, the limit is {MILD_HEADER_PARTS_MAX}")
    try:
        from bolide.protocol import fastjson  # few write what only it can read

        header = kernel.header_from_json(fastjson.header_document(fastjson.loads(text)), header_end)
    except ValueError as problem:
        raise ProtocolError(f"a header that is not JSON: {problem}") from None
    if header is None:
        raise ProtocolError(f"a header that is JSON but no command: {text[:80]!r}")
    return header
