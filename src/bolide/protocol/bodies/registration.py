"""The body of a broker's registration in all its forms: JSON, compressed, and the bare topic table of old brokers.

Compressed it is one zlib stream of parts, each an int32 and, where that is a length, this many bytes:

    length, DataVersion as JSON
    count of topics, and for each: length, `name read write perm FILTERTYPE`, since 5.x also the attributes as JSON
    length, filter servers as JSON
    since 5.0: count of mappings, and for each: length, TopicQueueMappingInfo as JSON

That text loses a topic's `order` and `topicSysFlag`. A stranger's lengths are checked before they are believed, the
stream may not unfold without limit, and each part is understood before the next is cut, so that the first bad one ends
the reading.
"""

import zlib

import msgspec

from bolide.protocol.bodies.body import read, refusal, write
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.bodies.topics import Registration, TopicConfig, TopicTable

# Ten thousand topics take a megabyte unfolded; this is room for a hundred thousand with attributes.
UNFOLDED_SIZE_MAX = 32 * 1024 * 1024
# Topics, and as many mappings; what is read of a stranger takes ten times its text, so they are counted before.
PARTS_MAX = 200_000
_OBJECTS_MAX = 4 * PARTS_MAX  # a topic of JSON is one object and has one for its attributes
# A length and the shortest topic; a mapping takes more. Empty parts are zeros, which fold to a thousandth.
_PART_SIZE_MIN = 4 + len("a 1 1 6 X")
_COMPRESSION_LEVEL = 9
_WHOLE_BODY_VERSION = 37  # 3.0.11; brokers before it send the topic table alone
_MAPPING_VERSION = 413  # 5.0.0
_ZLIB_START = b"\x78"


def decode_registration(body: bytes, compressed: bool, version: int) -> Registration:
    """Read a registration in the form the sender's header tells; raises Refusal. No body is an empty table.

    A body that begins as zlib is unfolded in any case: brokers of 5.4 and 5.5 compress it and say they did not.
    """
    if not body:
        return Registration()
    if body.count(b"{") > _OBJECTS_MAX:
        raise refusal(Registration, f"it has more than {_OBJECTS_MAX} objects")
    if version < _WHOLE_BODY_VERSION:
        return Registration(topic_config_serialize_wrapper=TopicTable.decode(body))
    if not compressed and not body.startswith(_ZLIB_START):
        return _without_body(Registration.decode(body))
    try:
        return _read_parts(_Parts(_unfold(body)), has_mappings=version >= _MAPPING_VERSION)
    except ValueError as problem:
        raise refusal(Registration, problem) from None


def encode_registration(registration: Registration, compressed: bool, version: int) -> bytes:
    """Write a registration for a header that tells the same `compressed` and `version`."""
    if version < _WHOLE_BODY_VERSION:
        return registration.topics.encode()
    if not compressed:
        return registration.encode()
    topics = registration.topics
    is_new = version >= _MAPPING_VERSION
    parts = [_part(topics.data_version.encode()), _number(len(topics.topic_config_table))]
    parts += [_part(_topic_line(topic, is_new)) for topic in topics.topic_config_table.values()]
    parts.append(_part(write(registration.filter_server_list)))
    if is_new:
        mappings = topics.topic_queue_mapping_info_map or {}
        parts.append(_number(len(mappings)))
        parts += [_part(bytes(mapping)) for mapping in mappings.values()]
    return zlib.compress(b"".join(parts), _COMPRESSION_LEVEL)


def _without_body(registration: Registration) -> Registration:
    """Copy what is passed on as it came: it may be kept for long, and would keep the whole body with it."""
    topics = registration.topics
    if not topics.topic_queue_mapping_info_map:
        return registration
    copies = {name: mapping.copy() for name, mapping in topics.topic_queue_mapping_info_map.items()}
    topics = msgspec.structs.replace(topics, topic_queue_mapping_info_map=copies)
    return msgspec.structs.replace(registration, topic_config_serialize_wrapper=topics)


def _unfold(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        unfolded = stream.decompress(body, UNFOLDED_SIZE_MAX)
    except zlib.error as problem:
        raise ValueError(f"it is not a zlib stream ({problem})") from None
    if stream.eof:
        return unfolded
    if len(unfolded) == UNFOLDED_SIZE_MAX:
        raise ValueError(f"it unfolds to more than {UNFOLDED_SIZE_MAX} bytes")
    raise ValueError("the zlib stream ends too early")


class _Parts:
    """What is left of the unfolded text. A negative length is read as a large one, which never fits."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._text)

    def part(self) -> bytes:
        text, at = self._text, self._at
        start = at + 4
        end = start + int.from_bytes(text[at:start], "big")
        if end > len(text):
            raise ValueError(f"at byte {at}: a part that ends at byte {end}, but the text at {len(text)}")
        self._at = end
        return text[start:end]

    def count(self) -> int:
        """How many parts follow, each a topic or a mapping."""
        start = self._at + 4
        count = int.from_bytes(self._text[self._at : start], "big")
        if start + _PART_SIZE_MIN * count > len(self._text):
            raise ValueError(f"at byte {self._at}: {count} parts, but {len(self._text) - self._at} bytes are left")
        if count > PARTS_MAX:
            raise ValueError(f"at byte {self._at}: {count} parts, of at most {PARTS_MAX}")
        self._at = start
        return count


def _read_parts(parts: _Parts, has_mappings: bool) -> Registration:
    version = read(DataVersion, parts.part())
    topics = {(topic := _read_topic(parts.part())).topic_name: topic for _ in range(parts.count())}
    filter_servers = read(list[str], parts.part())
    mappings = None
    if has_mappings and parts.has_more:
        mappings = dict(_read_mapping(parts.part()) for _ in range(parts.count()))
    table = TopicTable(
        data_version=version,
        topic_config_table=topics,
        topic_queue_mapping_info_map=mappings or None,
    )
    return Registration(filter_server_list=filter_servers, topic_config_serialize_wrapper=table)


def _read_topic(line: bytes) -> TopicConfig:
    tokens = line.decode().split(" ", 5)
    if len(tokens) == 5:
        tokens.append("{}")
    if len(tokens) < 6:
        raise ValueError(f"a topic is {line[:80]!r}, it needs five words")
    name, read_count, write_count, perm, filter_type, attributes = tokens
    return TopicConfig(
        attributes=read(dict[str, str], attributes.encode()) if attributes != "{}" else {},
        order=False,
        perm=int(perm),
        read_queue_nums=int(read_count),
        topic_filter_type=filter_type,
        topic_name=name,
        topic_sys_flag=0,
        write_queue_nums=int(write_count),
    )


class _Mapping(msgspec.Struct):
    topic: str


def _read_mapping(text: bytes) -> tuple[str, msgspec.Raw]:
    return read(_Mapping, text).topic, read(msgspec.Raw, text)


def _topic_line(topic: TopicConfig, is_new: bool) -> bytes:
    counts = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    line = f"{topic.topic_name} {counts} {topic.topic_filter_type}".encode()
    return line + b" " + write(topic.attributes) if is_new else line


def _number(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _part(text: bytes) -> bytes:
    return _number(len(text)) + text
