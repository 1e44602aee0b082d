"""One message on disk: what is given to be stored, and what is read back.

`Draft` is a tuple, because the kernel lays out whole lists of them and a tuple's fields cost it nothing. `Record` is
for eyes and rare paths; the hot ones hand out views of the log.
"""

import ipaddress
from dataclasses import dataclass
from typing import NamedTuple

from bolide import kernel
from bolide.errors import CorruptRecord
from bolide.kernel.plain_records import COLUMNS

Buffer = bytes | bytearray | memoryview


class Draft(NamedTuple):
    """A message about to be stored. Properties are RocketMQ's text; hosts are packed by `pack_host`."""

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A stored message, decoded."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int


def pack_host(ip: str, port: int) -> bytes:
    """Address and port as a record holds them.

    An IPv4 address in IPv6 clothes, usual on dual-stack sockets, is stored as IPv4: Java would read it as such and then
    copy the flag of the longer form.
    """
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big", signed=True)


def unpack_host(host: bytes) -> str:
    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def message_id(store_host: bytes, physical_offset: int) -> str:
    """The id a producer is given: where the record lies, in hexadecimal."""
    return (store_host + physical_offset.to_bytes(8, "big")).hex().upper()


def decode(record: Buffer) -> Record:
    """Read one whole record; raises CorruptRecord for anything else."""
    physical_offset = int.from_bytes(record[28:36], "big", signed=True)
    columns, end, _ = kernel.scan_records(record, 0, len(record), physical_offset, True)
    if end == 0 or end != len(record):
        raise CorruptRecord(f"{len(record)} bytes said to lie at {physical_offset} are no whole record")
    row = {name: column[0] for name, column in zip(COLUMNS, columns, strict=True)}
    body, topic, properties = (
        bytes(record[row[name] : row[name] + row[f"{name}_size"]]) for name in ("body", "topic", "properties")
    )
    born_end, store_end = row["store_host"] - 8, row["body"] - 16
    return Record(
        topic=topic.decode("utf-8", "replace"),
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        physical_offset=physical_offset,
        size=row["size"],
        body=body,
        properties=read_properties(properties),
        flag=row["flag"],
        sys_flag=row["sys_flag"],
        born_ms=row["born_ms"],
        born_host=unpack_host(bytes(record[row["born_host"] : born_end])),
        store_ms=row["store_ms"],
        store_host=unpack_host(bytes(record[row["store_host"] : store_end])),
        reconsume_times=row["reconsume_times"],
        prepared_offset=row["prepared_offset"],
    )


def read_properties(text: bytes) -> dict[str, str]:
    """Name → value of RocketMQ's property text; a pair with an empty side is dropped."""
    pairs = (pair.partition("\x01") for pair in text.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, separator, value in pairs if separator and name and value}


def write_properties(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def store_ms_of(record: Buffer) -> int:
    """The store time of a record, without decoding it."""
    at = 68 if record[39] & 0x10 else 56
    return int.from_bytes(record[at : at + 8], "big", signed=True)
