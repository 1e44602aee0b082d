"""The kernel in plain Python: the meaning of the compiled functions; `layout.py` has the byte tables.

Each function takes bytes and integers and returns bytes and integers, for a whole batch: all frames of one read, all
answers of one write. Nothing here opens a file, reads a clock or keeps state, so compiled.pyx can repeat it with types
and one test suite can hold the two together. Where the compiled twin meets something irregular it calls the function
here for that one item: fast and slow can then differ in speed only.

`bounds` is a flat list of positions, two for each frame: that of its header word and that of its end.
"""

import json
import struct
from json.encoder import encode_basestring

from bolide.kernel.layout import (
    BINARY_CODEC,
    BINARY_FIXED,
    BINARY_SIZE_MIN,
    HEADER_SIZE_MAX,
    JSON_CODEC,
    LANGUAGES,
    OTHER,
    PYTHON,
    RESPONSE_FLAG,
    Buffer,
    Frame,
    Header,
)

_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}

_ROUTE_REQUEST = 105
# From this version on a client reads integer map keys in quotes; before it they are bare, as fastjson wrote them.
_STANDARD_JSON_VERSION = 401


def java_hash(text: str) -> int:
    """Hash text as java.lang.String does, so that tags filter and keys index alike in every broker."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def cut_frames(stream: Buffer, end: int, frame_size_max: int) -> tuple[list[int], int, str | None]:
    """Find the whole frames in stream[:end]: their bounds, how many bytes they take, and what is wrong after them.

    A false length is reported as soon as its bytes are there: it must not make us hoard memory for a stranger.
    frame_size_max counts the four length bytes too, as Java's limit does.
    """
    if not 0 <= end <= len(stream):
        raise ValueError(f"end {end} is outside a stream of {len(stream)} bytes")
    bounds: list[int] = []
    position = 0
    while end - position >= 4:
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if size < 4 or size > frame_size_max - 4:
            return bounds, position, f"a frame says it is {size} bytes long, it may be 4 to {frame_size_max - 4}"
        if end - position < 8:
            break
        header_size = int.from_bytes(stream[position + 5 : position + 8], "big")
        if stream[position + 4] > BINARY_CODEC:
            return bounds, position, f"a frame has codec {stream[position + 4]}, known are 0 (JSON) and 1 (binary)"
        if header_size > size - 4:
            return bounds, position, f"a header of {header_size} bytes does not fit its frame of {size}"
        if end - position < 4 + size:
            break
        bounds += (position + 4, position + 4 + size)
        position += 4 + size
    return bounds, position, None


def read_headers(stream: Buffer, bounds: list[int]) -> list[Header | None]:
    """Read the header of each frame; None stands for one that is not regular (the caller may have a milder reader)."""
    if len(bounds) & 1:
        raise ValueError(f"{len(bounds)} bounds, they come in pairs")
    return [_read_header(stream, bounds[i], bounds[i + 1]) for i in range(0, len(bounds), 2)]


def _read_header(stream: Buffer, start: int, end: int) -> Header | None:
    if not 0 <= start <= end - 4 <= len(stream) - 4:
        raise ValueError(f"a frame from {start} to {end} is outside a stream of {len(stream)} bytes")
    header_end = start + 4 + int.from_bytes(stream[start + 1 : start + 4], "big")
    if header_end > end:
        return None
    if stream[start] == BINARY_CODEC:
        return _read_binary_header(bytes(stream[start + 4 : header_end]), header_end)
    if stream[start] != JSON_CODEC:
        return None
    try:
        return header_from_json(json.loads(str(stream[start + 4 : header_end], "utf-8")), header_end)
    except (ValueError, RecursionError):
        return None


# Headers that the compiled functions could not read, and what they were found to be: each of them would ask again.
_odd: dict[bytes, Header | None] = {}
_ODD_SIZE_MAX = 1 << 20


def read_odd_header(stream: Buffer, start: int, end: int) -> Header | None:
    """`read_headers` for one frame that the compiled twins leave to us.

    Sends are looked for in a frame, then pulls, then it is read as a command, and an odd one comes here each time: what
    was found is kept for as long as it takes.
    """
    if not 0 <= start <= end - 4 <= len(stream) - 4:
        raise ValueError(f"a frame from {start} to {end} is outside a stream of {len(stream)} bytes")
    header_end = start + 4 + int.from_bytes(stream[start + 1 : start + 4], "big")
    if header_end > end:
        return None
    key = bytes(stream[start:header_end])
    if key in _odd:
        header = _odd[key]
    else:
        header = _read_header(key, 0, len(key))
        while _odd and sum(map(len, _odd)) + len(key) > _ODD_SIZE_MAX:
            del _odd[next(iter(_odd))]
        _odd[key] = header
    # anyone who is given the fields may change them
    return None if header is None else (*header[:7], dict(header[7]), header_end)


def header_from_json(document: object, body_position: int) -> Header | None:
    """Turn a parsed JSON header into a `Header`; None when its shape is not that of one.

    Numbers and booleans among the ext fields become text, for some clients do not quote them; nulls are left out.
    """
    if not isinstance(document, dict):
        return None
    numbers = [document.get(name, 0) for name in ("code", "version", "opaque", "flag")]
    if not all(type(number) is int and -0x8000_0000 <= number <= 0x7FFF_FFFF for number in numbers):
        return None
    code, version, opaque, flag = numbers
    remark = document.get("remark")
    if remark is not None and not isinstance(remark, str):
        return None
    language = document.get("language", "JAVA")
    if isinstance(language, str):
        language = _LANGUAGE_CODES.get(language, OTHER)
    elif type(language) is not int or not 0 <= language < len(LANGUAGES):
        language = OTHER
    entries = document.get("extFields")
    fields: dict[str, str] = {}
    if entries is not None:
        if not isinstance(entries, dict):
            return None
        for key, value in entries.items():
            if isinstance(value, str):
                fields[key] = value
            elif isinstance(value, bool):
                fields[key] = "true" if value else "false"
            elif isinstance(value, int):
                fields[key] = str(value)
            elif value is not None:
                return None
    return JSON_CODEC, code, language, version, opaque, flag, remark, fields, body_position


def _read_binary_header(header: bytes, body_position: int) -> Header | None:
    if len(header) < BINARY_SIZE_MIN:
        return None
    code, language, version, opaque, flag, remark_size = BINARY_FIXED.unpack_from(header)
    at = BINARY_FIXED.size + remark_size
    if remark_size < 0 or len(header) - at < 4:
        return None
    ext_size = int.from_bytes(header[at : at + 4], "big", signed=True)
    if ext_size != len(header) - at - 4:
        return None
    try:
        remark = header[BINARY_FIXED.size : at].decode() if remark_size else None
        fields = _read_binary_fields(header, at + 4)
    except ValueError:
        return None
    if fields is None:
        return None
    language = language if language < len(LANGUAGES) else OTHER
    return BINARY_CODEC, code, language, version, opaque, flag, remark, fields, body_position


def _read_binary_fields(header: bytes, at: int) -> dict[str, str] | None:
    fields: dict[str, str] = {}
    while at < len(header):
        if len(header) - at < 6:
            return None
        key_size = int.from_bytes(header[at : at + 2], "big", signed=True)
        value_at = at + 2 + key_size + 4
        if key_size < 0 or value_at > len(header):
            return None
        value_size = int.from_bytes(header[value_at - 4 : value_at], "big", signed=True)
        if value_size < 0 or value_at + value_size > len(header):
            return None
        key = header[at + 2 : at + 2 + key_size].decode()
        value = header[value_at : value_at + value_size].decode()
        if key and value:  # Java reads a zero length as null, so an empty text does not survive this codec
            fields[key] = value
        at = value_at + value_size
    return fields


def write_frames(frames: list[Frame]) -> bytes:
    """Write whole frames, one after another, in one buffer.

    A request always carries extFields, be it `{}`: several Java handlers read the map without asking whether it is
    there.
    """
    return b"".join(map(_write_frame, frames))


def _write_frame(frame: Frame) -> bytes:
    codec, code, language, version, opaque, flag, remark, fields, body = frame
    if codec == BINARY_CODEC:
        header = _write_binary_header(code, language, version, opaque, flag, remark, fields or {})
    else:
        header = _write_json_header(code, language, version, opaque, flag, remark, fields or {})
    if len(header) > HEADER_SIZE_MAX:
        raise ValueError(f"a header of {len(header)} bytes, the limit is {HEADER_SIZE_MAX}")
    if 4 + len(header) + len(body) > 0x7FFF_FFFF:
        raise ValueError(f"a body of {len(body)} bytes does not fit a frame")
    return b"".join((struct.pack(">ii", 4 + len(header) + len(body), codec << 24 | len(header)), header, body))


def _write_json_header(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, fields: dict[str, str]
) -> bytes:
    parts = [f'{{"code":{code}']
    if fields or not flag & RESPONSE_FLAG:
        entries = ",".join([f"{encode_basestring(key)}:{encode_basestring(value)}" for key, value in fields.items()])
        parts.append(f'"extFields":{{{entries}}}')
    parts.append(f'"flag":{flag},"language":"{LANGUAGES[language]}","opaque":{opaque}')
    if remark is not None:
        parts.append(f'"remark":{encode_basestring(remark)}')
    parts.append(f'"serializeTypeCurrentRPC":"JSON","version":{version}}}')
    return ",".join(parts).encode("utf-8", "replace")


def _write_binary_header(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, fields: dict[str, str]
) -> bytes:
    text = (remark or "").encode("utf-8", "replace")
    entries = []
    for key, value in fields.items():
        name, content = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(name) > 0x7FFF:
            raise ValueError(f"a field name of {len(name)} bytes, the limit is {0x7FFF}")
        entries.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(content)) + content)
    ext = b"".join(entries)
    # The code has 16 bits here: greater ones lose their upper half, as they do in Java.
    code = (code + 0x8000 & 0xFFFF) - 0x8000
    version = (version + 0x8000 & 0xFFFF) - 0x8000
    fixed = BINARY_FIXED.pack(code, language, version, opaque, flag, len(text))
    return fixed + text + struct.pack(">i", len(ext)) + ext


def answer_routes(
    stream: Buffer, bounds: list[int], quoted: dict[bytes, bytes], bare: dict[bytes, bytes], version: int
) -> tuple[bytes, list[int]]:
    """Answer the route look-ups of one read for the topics at hand; returns the answers and the bounds of the rest.

    quoted and bare hold a ready body for each topic: with integer map keys in quotes for clients that read standard
    JSON, bare for those before. Everything else stays for its owner: unknown topics, other codes, one-way requests,
    answers, and look-ups that name a zone.
    """
    answers: list[Frame] = []
    left: list[int] = []
    headers = read_headers(stream, bounds)
    for i, header in enumerate(headers):
        body = None if header is None else _route_body(header, quoted, bare)
        if header is None or body is None:
            left += bounds[2 * i : 2 * i + 2]
        else:
            answers.append((header[0], 0, PYTHON, version, header[4], RESPONSE_FLAG, None, None, body))
    return write_frames(answers), left


def _route_body(header: Header, quoted: dict[bytes, bytes], bare: dict[bytes, bytes]) -> bytes | None:
    _, code, _, asker_version, _, flag, _, fields, _ = header
    if code != _ROUTE_REQUEST or flag & 3 or "__ZONE_MODE" in fields:
        return None
    is_standard = asker_version >= _STANDARD_JSON_VERSION or fields.get("acceptStandardJsonOnly", "").lower() == "true"
    bodies = quoted if is_standard else bare
    return bodies.get(fields.get("topic", "").encode("utf-8", "replace"))
