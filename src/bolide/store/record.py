"""One message on disk: what is given to be stored, and what is read back.

`Draft` is a tuple, because the kernel lays out whole lists of them and a tuple's fields cost it nothing. A record is
read back as the wire's `StoredMessage`, for it is the same bytes; the hot paths hand out views of the log instead.
"""

from array import array
from typing import NamedTuple

from bolide.errors import CorruptRecord, ProtocolError
from bolide.kernel.layout import BLANK_CHECKSUM, Buffer
from bolide.model.message import StoredMessage
from bolide.protocol.records import decode_record

_SEAL_NAME = BLANK_CHECKSUM[:9]


class Draft(NamedTuple):
    """A message about to be stored. Properties are RocketMQ's text; `born_host` is a `Host`, packed."""

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


def with_room_for_seal(draft: Draft) -> Draft:
    """The draft with room for a checksum of its whole record at the end, and without an older one."""
    properties = draft.properties
    if _SEAL_NAME in properties:  # of a message that was read from a log and is stored again
        kept = [pair for pair in properties.split(b"\x02") if pair and not pair.startswith(_SEAL_NAME)]
        properties = b"\x02".join(kept)
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return draft._replace(properties=properties + BLANK_CHECKSUM)


class Appended(NamedTuple):
    """Where a batch landed, message by message. `end` is what to wait for when it must be durable."""

    places: "array[int]"
    numbers: "array[int]"
    store_ms: int
    end: int

    @property
    def physical_offsets(self) -> list[int]:
        return self.places.tolist()

    @property
    def queue_offsets(self) -> list[int]:
        return self.numbers.tolist()


def decode(record: Buffer) -> StoredMessage:
    """Read one whole record and check its body; raises CorruptRecord for anything else."""
    try:
        message = decode_record(record, checks_crc=True)
    except ProtocolError as problem:
        raise CorruptRecord(f"{len(record)} bytes of the log are no record: {problem}") from problem
    if message.store_size != len(record):
        raise CorruptRecord(f"a record of {message.store_size} bytes was read as {len(record)}")
    return message


def store_ms_of(record: Buffer) -> int:
    """The store time of a record, without decoding it."""
    at = 68 if record[39] & 0x10 else 56
    return int.from_bytes(record[at : at + 8], "big", signed=True)
