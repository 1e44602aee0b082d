"""One message as it lies in the log and as it is delivered: the stored record.

    total size          int32   the whole record, this field included
    magic               int32   V1, or V2 with a topic length of two bytes
    body CRC            int32   CRC-32 of the body as stored, without its highest bit
    queue id            int32
    flag                int32   the user's
    queue offset        int64
    physical offset     int64
    sysFlag             int32   says how long the two hosts are
    born at             int64
    born host           4 or 16 address bytes, port int32
    stored at           int64
    store host          4 or 16 address bytes, port int32
    reconsume times     int32
    prepared offset     int64   of the half message, or 0
    body length, body           int32
    topic length, topic         int8 in V1, int16 in V2
    properties length, text     int16

Records follow each other without a gap. A Java client that meets one it cannot read drops the rest of the answer
without a word; we say where and which field. Every length is checked before it is used. The filler that ends a
commit-log file is no record, and is refused like any other unknown magic.
"""

import struct
from dataclasses import replace
from typing import NoReturn

from bolide import kernel
from bolide.errors import ProtocolError, Refusal
from bolide.kernel.layout import Buffer
from bolide.model.host import IPV4_SIZE, IPV6_SIZE, PORT_MAX, Host, pack_ip, unpack_ip
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol import sysflags
from bolide.protocol.codes import ResponseCode
from bolide.protocol.compression import BODY_SIZE_MAX, compression_of, decompress
from bolide.protocol.properties import decode_properties, encode_properties

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
TOPIC_SIZE_MAX = {MAGIC_V1: 0x7F, MAGIC_V2: 0x7FFF}  # the lengths are signed

_SYS_FLAG_POSITION = 36
_SIZE_AND_MAGIC = struct.Struct(">iI")
_SYS_FLAG = struct.Struct(">i")
_TOPIC_SIZE = {MAGIC_V1: struct.Struct(">b"), MAGIC_V2: struct.Struct(">h")}
_PROPERTIES_SIZE = struct.Struct(">h")


def _fixed_part(born_ip_size: int, store_ip_size: int) -> struct.Struct:
    return struct.Struct(f">iIIiiqqiq{born_ip_size}siq{store_ip_size}siiqi")


# All up to the body, by the address bits of the sysFlag.
_FIXED = {
    0: _fixed_part(IPV4_SIZE, IPV4_SIZE),
    sysflags.BORN_HOST_IPV6: _fixed_part(IPV6_SIZE, IPV4_SIZE),
    sysflags.STORE_HOST_IPV6: _fixed_part(IPV4_SIZE, IPV6_SIZE),
    sysflags.HOSTS_MASK: _fixed_part(IPV6_SIZE, IPV6_SIZE),
}


def encode_record(message: StoredMessage, magic: int = MAGIC_V1) -> bytes:
    """The record, with size, checksum and address bits as they follow from the rest of the message.

    4.9 clients read V1 only, so V2 must be asked for; without it a topic beyond 127 bytes is refused.
    """
    topic = _encode_topic(message.topic, magic)
    properties = encode_properties(message.properties)
    born_ip, store_ip = pack_ip(message.born_host.ip), pack_ip(message.store_host.ip)
    address_bits = _address_bits(born_ip, store_ip)
    fixed, topic_size = _FIXED[address_bits], _TOPIC_SIZE[magic]
    try:
        head = fixed.pack(
            fixed.size + len(message.body) + topic_size.size + len(topic) + _PROPERTIES_SIZE.size + len(properties),
            magic,
            kernel.body_crc(message.body),
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            message.sys_flag & ~sysflags.HOSTS_MASK | address_bits,
            message.born_at,
            born_ip,
            message.born_host.port,
            message.stored_at,
            store_ip,
            message.store_host.port,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(message.body),
        )
    except struct.error as problem:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"a number of the message does not fit its field: {problem}"
        ) from None
    tail = (topic_size.pack(len(topic)), topic, _PROPERTIES_SIZE.pack(len(properties)), properties)
    return b"".join((head, message.body, *tail))


def decode_records(buffer: Buffer, *, checks_crc: bool = False) -> list[StoredMessage]:
    """All records of a pull answer, a query answer or a stretch of the log."""
    messages: list[StoredMessage] = []
    position = 0
    while position < len(buffer):
        message = decode_record(buffer, position, checks_crc=checks_crc)
        messages.append(message)
        position += message.store_size
    return messages


def decode_record(buffer: Buffer, position: int = 0, *, checks_crc: bool = False) -> StoredMessage:
    """The record at `position`; its `store_size` leads to the next. The body stays as it was stored, see `inflate`."""
    magic, fixed, end = _frame(buffer, position)
    (
        size,
        _,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_at,
        born_ip,
        born_port,
        stored_at,
        store_ip,
        store_port,
        reconsume_times,
        prepared_offset,
        body_size,
    ) = fixed.unpack_from(buffer, position)
    topic_size = _TOPIC_SIZE[magic]
    body_end, body = _cut(buffer, position + fixed.size, body_size, end, position, "body length")
    topic_start = _room_for(topic_size, body_end, end, position, "topic length")
    topic_end, topic = _cut(
        buffer, topic_start, topic_size.unpack_from(buffer, body_end)[0], end, position, "topic length"
    )
    text_start = _room_for(_PROPERTIES_SIZE, topic_end, end, position, "properties length")
    text_end, text = _cut(
        buffer, text_start, _PROPERTIES_SIZE.unpack_from(buffer, topic_end)[0], end, position, "properties length"
    )
    if text_end != end:
        _fail(position, "total size", f"{size}, but its parts take {text_end - position}")
    if checks_crc and crc != kernel.body_crc(body):
        _fail(position, "body CRC", f"{crc:#010x}, but the body has {kernel.body_crc(body):#010x}")
    return StoredMessage(
        topic=_topic(topic, position),
        body=body,
        queue_id=queue_id,
        queue_offset=QueueOffset(queue_offset),
        physical_offset=PhysicalOffset(physical_offset),
        born_at=born_at,
        born_host=_host(born_ip, born_port, position, "born host"),
        stored_at=stored_at,
        store_host=_host(store_ip, store_port, position, "store host"),
        properties=decode_properties(text),
        flag=flag,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=crc,
        store_size=size,
    )


def inflate(message: StoredMessage, size_max: int = BODY_SIZE_MAX) -> StoredMessage:
    """The message as a consumer wants it: the body as it was sent, and the compressed bit gone."""
    compression = compression_of(message.sys_flag)
    if compression is None:
        return message
    body = decompress(message.body, compression, size_max)
    return replace(message, body=body, sys_flag=message.sys_flag & ~sysflags.COMPRESSED)


def _encode_topic(topic: str, magic: int) -> bytes:
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as problem:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the topic name is not Unicode text: {problem}") from None
    size_max = TOPIC_SIZE_MAX[magic]
    if len(encoded) > size_max:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"the topic name takes {len(encoded)} bytes, at most {size_max} fit"
        )
    return encoded


def _address_bits(born_ip: bytes, store_ip: bytes) -> int:
    born = sysflags.BORN_HOST_IPV6 if len(born_ip) == IPV6_SIZE else 0
    store = sysflags.STORE_HOST_IPV6 if len(store_ip) == IPV6_SIZE else 0
    return born | store


def _frame(buffer: Buffer, position: int) -> tuple[int, struct.Struct, int]:
    """Magic, layout of the fixed part, and end of the record, once these three are known to fit the buffer."""
    available = len(buffer) - position
    if available < _SYS_FLAG_POSITION + _SYS_FLAG.size:
        _fail(position, "total size", f"only {available} bytes are left")
    size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic not in _TOPIC_SIZE:
        _fail(position, "magic", f"{magic:#010x}, known are {MAGIC_V1:#010x} and {MAGIC_V2:#010x}")
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, position + _SYS_FLAG_POSITION)
    fixed = _FIXED[sys_flag & sysflags.HOSTS_MASK]
    if not fixed.size <= size <= available:
        _fail(position, "total size", f"{size}, it may be {fixed.size} to {available}")
    return magic, fixed, position + size


def _room_for(length: struct.Struct, start: int, end: int, position: int, field: str) -> int:
    if start + length.size > end:
        _fail(position, field, "lies beyond the end of the record")
    return start + length.size


def _cut(buffer: Buffer, start: int, size: int, end: int, position: int, field: str) -> tuple[int, bytes]:
    if not 0 <= size <= end - start:
        _fail(position, field, f"{size}, the record has {end - start} bytes left")
    return start + size, bytes(buffer[start : start + size])


def _topic(encoded: bytes, position: int) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        _fail(position, "topic", f"{encoded!r} is not UTF-8")


def _host(ip: bytes, port: int, position: int, field: str) -> Host:
    if not 0 <= port <= PORT_MAX:
        _fail(position, field, f"port {port}")
    return Host(unpack_ip(ip), port)


def _fail(position: int, field: str, found: str) -> NoReturn:
    raise ProtocolError(f"record at byte {position}: {field}: {found}")
