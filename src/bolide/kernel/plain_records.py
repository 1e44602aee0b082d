"""The store's part of the plain kernel: records, queue entries and index keys, a batch at a time.

The same rule as in plain.py: bytes and integers in, bytes and integers out, and compiled_records.pyx repeats each
function with types. `layout.py` shows what a record, an entry and a key look like.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from mmap import mmap

from bolide.kernel.layout import (
    AT_BLANK,
    AT_END,
    AT_INNER_BATCH,
    AT_INVALID,
    BLANK_CHECKSUM,
    BLANK_SIZE,
    CHECKSUM_NAME,
    COLUMNS,
    ENTRY,
    ENTRY_SIZE,
    IN_QUEUE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    INNER_BATCH,
    IPV6_BORN,
    IPV6_STORE,
    KEY,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PAGE_SIZE,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_PLACE,
    RECORD_SIZE_MIN,
    RECORD_TAIL,
    RETRY_PREFIX,
    RETRY_TOPIC_SIZE_MAX,
    ROLLED_BACK,
    SCHEDULE_TOPIC,
    TOPIC_SIZE_MAX,
    TRANSACTION,
    UNCHECKED,
    WHOLE_CHECKED,
    Buffer,
    Draft,
    Row,
    Run,
)
from bolide.kernel.plain import java_hash


def body_crc(body: Buffer) -> int:
    """The checksum RocketMQ stores: CRC-32 without its top bit."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def encode_records(
    drafts: Sequence[Draft],
    physical_offset: int,
    store_ms: int,
    store_host: bytes,
    next_offsets: Mapping[tuple[str, int], int],
    delays_ms: Sequence[int],
    body_size_max: int,
) -> tuple[bytes, "array[int]", "array[int]", list[Run], bytes]:
    """Encode drafts out as records from physical_offset on.

    Returns the bytes, each record's physical offset and queue offset, the entries of each queue, and the keys. A draft
    that may not be stored raises ValueError, for a batch is stored whole or not at all.
    """
    parts: list[bytes] = []
    places, queue_offsets = array("q"), array("q")
    runs = _Runs()
    keys: list[bytes] = []
    at = physical_offset
    for draft in drafts:
        topic, queue_id, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, prepared_offset = draft
        name = topic.encode()
        _check_draft(name, body, properties, sys_flag, body_size_max)
        sys_flag = _with_host_bits(sys_flag, born_host, store_host)
        is_long = len(name) > TOPIC_SIZE_MAX
        size = 88 + len(born_host) + len(store_host) - 16 + len(body) + (2 if is_long else 1) + len(name)
        size += 2 + len(properties)
        queue_offset = 0
        if sys_flag & TRANSACTION in IN_QUEUE:
            queue_offset = runs.next_offset(name, queue_id, next_offsets.get((topic, queue_id), 0))
            tag = tag_hash(topic, properties, store_ms, delays_ms)
            runs.add(name, queue_id, queue_offset, ENTRY.pack(at, size, tag))
        keys += _keys(topic, properties, sys_flag, at, store_ms)
        magic = MAGIC_V2 if is_long else MAGIC_V1
        parts += (
            RECORD_HEAD.pack(size, magic, body_crc(body), queue_id, flag, queue_offset, at, sys_flag, born_ms),
            born_host,
            store_ms.to_bytes(8, "big", signed=True),
            store_host,
            RECORD_TAIL.pack(reconsume_times, prepared_offset, len(body)),
            bytes(body),
            len(name).to_bytes(2 if is_long else 1, "big"),
            name,
            len(properties).to_bytes(2, "big"),
            properties,
        )
        places.append(at)
        queue_offsets.append(queue_offset)
        at += size
    return b"".join(parts), places, queue_offsets, runs.done(), b"".join(keys)


def leads_elsewhere(topic: bytes) -> bool:
    """Whether a topic of this name would have its queues outside of the directory of the queues."""
    return b"/" in topic or topic.startswith(b".")


def seal_records(records: bytes) -> bytes:
    """Records that end in BLANK_CHECKSUM, with the checksum of all that comes before it in each of them."""
    sealed = bytearray(records)
    at = 0
    while at < len(sealed):
        size = int.from_bytes(sealed[at : at + 4], "big") if len(sealed) - at >= 4 else 0
        if not len(BLANK_CHECKSUM) <= size <= len(sealed) - at:
            raise ValueError(f"a record of {size} bytes, of {len(sealed) - at} that are there")
        end = at + size
        sealed[end - len(BLANK_CHECKSUM) : end] = _checksum(sealed, at, end)
        at = end
    return bytes(sealed)


def _checksum(log: Buffer, at: int, end: int) -> bytes:
    """The property that a record should end in."""
    digits = b"%010d" % (zlib.crc32(log[at : end - len(BLANK_CHECKSUM)]) & 0x7FFF_FFFF)
    return CHECKSUM_NAME + digits[::-1] + b"\x02"


def _check_draft(name: bytes, body: Buffer, properties: bytes, sys_flag: int, body_size_max: int) -> None:
    limit = RETRY_TOPIC_SIZE_MAX if name.startswith(RETRY_PREFIX) else TOPIC_SIZE_MAX
    if not 0 < len(name) <= limit:
        raise ValueError(f"a topic of {len(name)} bytes, it may have 1 to {limit}")
    if len(body) > body_size_max:
        raise ValueError(f"a body of {len(body)} bytes, the limit is {body_size_max}")
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise ValueError(f"properties of {len(properties)} bytes, the limit is {PROPERTIES_SIZE_MAX}")
    # Recovery takes a zero at the end of a text for a lost one, so none is let in.
    if 0 in name or 0 in properties:
        raise ValueError("a zero byte in the topic or the properties")
    if sys_flag & INNER_BATCH:
        raise ValueError("an inner batch (system flag 0x80), which this store does not keep")


def _with_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    for host, bit in ((born_host, IPV6_BORN), (store_host, IPV6_STORE)):
        if len(host) not in (8, 20):
            raise ValueError(f"a host of {len(host)} bytes, it has 8 (IPv4) or 20 (IPv6)")
        sys_flag = sys_flag | bit if len(host) == 20 else sys_flag & ~bit
    return sys_flag


class _Runs:
    """Collects entries by queue, in the order in which queues turn up. A queue whose offsets jump gets another run."""

    def __init__(self) -> None:
        self._runs: list[tuple[str, int, int, list[bytes]]] = []
        self._latest: dict[tuple[bytes, int], int] = {}

    def next_offset(self, name: bytes, queue_id: int, default: int) -> int:
        number = self._latest.get((name, queue_id))
        return default if number is None else self._runs[number][2] + len(self._runs[number][3])

    def add(self, name: bytes, queue_id: int, queue_offset: int, entry: bytes) -> None:
        if (name, queue_id) not in self._latest or self.next_offset(name, queue_id, 0) != queue_offset:
            self._latest[name, queue_id] = len(self._runs)
            self._runs.append((name.decode("utf-8", "replace"), queue_id, queue_offset, []))
        self._runs[self._latest[name, queue_id]][3].append(entry)

    def done(self) -> list[Run]:
        return [(topic, queue_id, first, b"".join(entries)) for topic, queue_id, first, entries in self._runs]


def properties_of(properties: bytes) -> dict[bytes, bytes]:
    """Name → value; the last of equal names counts, pairs with an empty side do not."""
    found: dict[bytes, bytes] = {}
    for pair in properties.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if separator and name and value:
            found[name] = value
    return found


def tag_hash(topic: str, properties: bytes, store_ms: int, delays_ms: Sequence[int]) -> int:
    """What a queue entry says of a message: the hash of its tags, or the time at which a delayed one is due."""
    found = properties_of(properties)
    if topic == SCHEDULE_TOPIC and delays_ms:
        level = found.get(b"DELAY", b"")
        if level.isdigit() and int(level) > 0:
            return store_ms + delays_ms[min(int(level), len(delays_ms)) - 1]
    return java_hash(found.get(b"TAGS", b"").decode("utf-8", "replace"))


def _keys(topic: str, properties: bytes, sys_flag: int, physical_offset: int, store_ms: int) -> Iterable[bytes]:
    if sys_flag & TRANSACTION == ROLLED_BACK:
        return
    found = properties_of(properties)
    keys = found.get(b"KEYS", b"").split(b" ")
    for key in (found.get(b"UNIQ_KEY", b""), *keys):
        if key:
            hashed = key_hash(topic, key.decode("utf-8", "replace"))
            yield KEY.pack(hashed, physical_offset, store_ms)


def key_hash(topic: str, key: str) -> int:
    """The hash under which the index files a key: Java's, without its sign."""
    hashed = abs(java_hash(f"{topic}#{key}"))
    return 0 if hashed > 0x7FFF_FFFF else hashed


def read_record(log: Buffer, position: int, end: int, physical_base: int, check: int) -> Row | int:
    """The columns of the record at position, or why there is none."""
    left = end - position
    if left < BLANK_SIZE:
        return AT_END if left == 0 else AT_INVALID
    size, magic = struct.unpack_from(">iI", log, position)
    if magic == MAGIC_BLANK:
        return AT_BLANK
    if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_SIZE_MIN <= size <= left:
        return AT_INVALID
    _, _, _, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = RECORD_HEAD.unpack_from(log, position)
    # A record that lies elsewhere than it says is left over from before a truncation.
    if physical_offset != physical_base + position:
        return AT_INVALID
    record_end = position + size
    store_host = position + 56 + (20 if sys_flag & IPV6_BORN else 8)
    at = store_host + (20 if sys_flag & IPV6_STORE else 8)
    topic_width = 2 if magic == MAGIC_V2 else 1
    if at + RECORD_TAIL.size > record_end:
        return AT_INVALID
    store_ms = int.from_bytes(log[store_host - 8 : store_host], "big", signed=True)
    reconsume_times, prepared_offset, body_size = RECORD_TAIL.unpack_from(log, at)
    body = at + RECORD_TAIL.size
    topic = body + body_size + topic_width
    if body_size < 0 or topic > record_end:
        return AT_INVALID
    topic_size = int.from_bytes(log[topic - topic_width : topic], "big", signed=True)
    properties = topic + topic_size + 2
    if topic_size < 0 or properties > record_end:
        return AT_INVALID
    properties_size = int.from_bytes(log[properties - 2 : properties], "big", signed=True)
    if properties_size < 0 or properties + properties_size != record_end:
        return AT_INVALID
    born_host = position + 48
    numbers = (physical_offset, size, queue_id, flag, queue_offset, sys_flag, born_ms, store_ms)
    places = (body, body_size, topic, topic_size, properties, properties_size)
    row = (*numbers, reconsume_times, prepared_offset, born_host, store_host, *places)
    if check and not (has_whole_body(log, position, row, check) and has_whole_texts(log, row, physical_base)):
        return AT_INVALID
    return row


def has_whole_body(log: Buffer, position: int, row: Row, check: int) -> bool:
    """Whether the checksum of the body is right, and that of the whole record where it is asked for."""
    (crc,) = struct.unpack_from(">I", log, position + 8)
    if body_crc(log[row[12] : row[12] + row[13]]) != crc:
        return False
    return check != WHOLE_CHECKED or _is_sealed(log, position, position + row[1], row[16])


def has_whole_texts(log: Buffer, row: Row, physical_base: int) -> bool:
    """Whether topic and properties show no sign of a lost page."""
    if _is_torn(log, row[14], row[15], physical_base):
        return False
    return not row[17] or not _is_torn(log, row[16], row[17], physical_base)


def _is_torn(log: Buffer, position: int, size: int, physical_base: int) -> bool:
    """Whether a text of a record was lost with the end of a write or with a page of its file, and reads as zeros.

    The checksum covers the body alone. Zeros that stand for lost bytes reach the end of the text or the edge of a page.
    """
    end = position + size
    if size == 0 or log[end - 1] == 0:
        return True
    edge = position + -(physical_base + position) % PAGE_SIZE
    return any(log[at] == 0 or (at > position and log[at - 1] == 0) for at in range(edge, end, PAGE_SIZE))


def _is_sealed(log: Buffer, position: int, end: int, properties: int) -> bool:
    seal = end - len(BLANK_CHECKSUM)
    return seal >= properties and bytes(log[seal:end]) == _checksum(log, position, end)


def check_stretch(log: Buffer, position: int, end: int) -> int:
    """Where a stretch of the log ends; one that begins before it raises."""
    if position < 0 or end < 0:
        raise ValueError(f"a stretch from {position} to {end} begins before its log")
    return min(end, len(log))


def scan_records(
    log: Buffer, position: int, end: int, physical_base: int, check: int
) -> tuple[list["array[int]"], int, int]:
    """Spread the records of log[position:end] into COLUMNS; returns them, where it ended and why.

    physical_base is the physical offset of log[0]. With check, checksums and signs of lost pages are looked at too.
    """
    rows: list[Row] = []
    end = check_stretch(log, position, end)
    while isinstance(row := read_record(log, position, end, physical_base, check), tuple):
        rows.append(row)
        position += row[1]
    columns = [array("q", column) for column in zip(*rows, strict=True)] or [array("q") for _ in COLUMNS]
    return columns, position, row


def walk_records(
    log: Buffer, position: int, end: int, physical_base: int, check: int, delays_ms: Sequence[int]
) -> tuple[list[Run], bytes, int, int, int, int]:
    """Derive from log[position:end] what queues and index say of it.

    Returns the entries of each queue, the keys, how many records, the last store time (-1 without a record), where it
    ended and why.
    """
    runs = _Runs()
    keys: list[bytes] = []
    end = check_stretch(log, position, end)
    count, last_store_ms = 0, -1
    while isinstance(row := read_record(log, position, end, physical_base, check), tuple):
        physical_offset, size, queue_id, _, queue_offset, sys_flag, _, store_ms = row[:8]
        topic_at, topic_size, properties_at, properties_size = row[14:]
        if sys_flag & INNER_BATCH:
            return runs.done(), b"".join(keys), count, last_store_ms, position, AT_INNER_BATCH
        name = bytes(log[topic_at : topic_at + topic_size])
        topic = name.decode("utf-8", "replace")
        properties = bytes(log[properties_at : properties_at + properties_size])
        if sys_flag & TRANSACTION in IN_QUEUE:
            tag = tag_hash(topic, properties, store_ms, delays_ms)
            runs.add(name, queue_id, queue_offset, ENTRY.pack(physical_offset, size, tag))
        keys += _keys(topic, properties, sys_flag, physical_offset, store_ms)
        count += 1
        last_store_ms = store_ms
        position += size
    return runs.done(), b"".join(keys), count, last_store_ms, position, row


def find_record(log: Buffer, position: int, end: int, physical_base: int) -> int:
    """The first place from position on that looks like the start of a record, -1 without one.

    A record says where it lies, so this is seldom wrong, but a body may hold such bytes: who walks from here must make
    sure that a walk from before ends here.
    """
    limit = check_stretch(log, position, end) - 36
    for at in range(position, limit + 1):
        if log[at + 4] == MAGIC_V1 >> 24:
            (magic,) = struct.unpack_from(">I", log, at + 4)
            if magic in (MAGIC_V1, MAGIC_V2) and struct.unpack_from(">q", log, at + 28)[0] == physical_base + at:
                return at
    return -1


def count_entries(entries: Buffer, physical_limit: int) -> int:
    """How many entries from the start are whole, in log order, and point below physical_limit."""
    count, previous_end = 0, 0
    for physical_offset, size, _ in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        if size <= 0 or physical_offset < 0 or physical_offset >= physical_limit:
            break
        is_pre_blank = size == 0x7FFF_FFFF and physical_offset == 0
        if not is_pre_blank:
            if physical_offset < previous_end:
                break
            previous_end = physical_offset + size
        count += 1
    return count


def fitting_entries(
    entries: Buffer, log: Buffer, physical_base: int, topic: bytes, queue_id: int, queue_offset: int, has_tags: bool
) -> int:
    """How many entries from the start are what their records in the log make of them, from queue_offset on.

    An entry that stands for nothing fits. Without has_tags tags are not compared, and one below 32 bits never is: it is
    an address in the extension file. Only what lies in log[0:], which begins at physical_base, is known to fit.
    """
    count = 0
    for place, size, tag in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        if (place, size, tag) != (0, 0x7FFF_FFFF, 0):
            at = place - physical_base
            row = (
                read_record(log, at, at + size, physical_base, UNCHECKED) if 0 <= at <= len(log) - size else AT_INVALID
            )
            if not isinstance(row, tuple) or (row[1], row[2], row[4]) != (size, queue_id, queue_offset + count):
                break
            if (
                row[5] & INNER_BATCH
                or row[5] & TRANSACTION not in IN_QUEUE
                or log[row[14] : row[14] + row[15]] != topic
            ):
                break
            properties = bytes(log[row[16] : row[16] + row[17]])
            if has_tags and tag >= -0x8000_0000 and tag != tag_hash("", properties, 0, ()):
                break
        count += 1
    return count


def select_entries(
    entries: Buffer,
    tag_hashes: frozenset[int] | None,
    log_min: int,
    near_from: int,
    count_max: int,
    size_max: int,
    near_limits: tuple[int, int],
    far_limits: tuple[int, int],
) -> tuple[list[int], int]:
    """Choose what a pull takes: physical offset and size of each, in one flat list, and how many entries it saw.

    An entry counts as near (in memory) from physical offset near_from on; limits are (bytes, messages). The first
    message is taken whatever its size. Tags are compared as 32 bits, and a value below those is an address in the
    extension file, whose tag nobody knows here: it is taken. Entries that point below log_min are left out.
    """
    chosen: list[int] = []
    taken_size, scanned = 0, 0
    for physical_offset, size, tag in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        if chosen:
            size_limit, count_limit = near_limits if physical_offset >= near_from else far_limits
            taken = len(chosen) // 2
            if taken >= min(count_max, count_limit) or taken_size + size > min(size_max, size_limit):
                break
        scanned += 1
        if physical_offset < log_min or size <= 0 or size == 0x7FFF_FFFF:
            continue
        if tag_hashes is not None and tag >= -0x8000_0000 and _as_int32(tag) not in tag_hashes:
            continue
        chosen += (physical_offset, size)
        taken_size += size
    return chosen, scanned


def heading_records(log: Buffer, physical_base: int, chosen: Sequence[int]) -> int:
    """How many of the chosen, each a physical offset and a size, are where a record of that size begins, from the first
    on; log[0] is at physical_base."""
    for number in range(len(chosen) // 2):
        place, size = chosen[2 * number], chosen[2 * number + 1]
        if not 36 <= size <= len(log) or not 0 <= place - physical_base <= len(log) - size:
            return number
        found_size, magic, own_place = RECORD_PLACE.unpack_from(log, place - physical_base)
        if (found_size, own_place) != (size, place) or magic not in (MAGIC_V1, MAGIC_V2):
            return number
    return len(chosen) // 2


def _as_int32(value: int) -> int:
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


def put_keys(index: bytearray | memoryview | mmap, keys: bytes, slot_count: int, entry_count_max: int) -> int:
    """File keys in a hash index; returns how many were taken before the file was full.

    index is the whole file, writable: header, slots (number of the newest entry of a chain), entries (key hash,
    physical offset, seconds since the file's begin, number of the entry before in the chain). One that is too short, or
    says that its next entry lies outside of it, is damaged: that raises ValueError and changes nothing.
    """
    if len(keys) % KEY.size:
        raise ValueError(f"{len(keys)} bytes of keys, each has {KEY.size}")
    _check_index(index, slot_count, entry_count_max)
    begin_ms, end_ms, begin_physical, end_physical, used_slots, number = INDEX_HEADER.unpack_from(index)
    number = max(number, 1)  # Java's files say 0 until they have a key
    taken = 0
    for hashed, physical_offset, store_ms in KEY.iter_unpack(keys):
        if number >= entry_count_max:
            break
        slot = INDEX_HEADER_SIZE + hashed % slot_count * 4
        (previous,) = struct.unpack_from(">i", index, slot)
        if previous <= 0 or previous > number:
            previous = 0
        if number <= 1:
            begin_ms, begin_physical = store_ms, physical_offset
        seconds = 0 if begin_ms <= 0 else min(max((store_ms - begin_ms) // 1000, 0), 0x7FFF_FFFF)
        entry = INDEX_HEADER_SIZE + slot_count * 4 + number * INDEX_ENTRY_SIZE
        INDEX_ENTRY.pack_into(index, entry, hashed, physical_offset, seconds, previous)
        struct.pack_into(">i", index, slot, number)
        used_slots = min(used_slots + (previous == 0), 0x7FFF_FFFF)
        number += 1
        end_ms, end_physical = store_ms, physical_offset
        taken += 1
    INDEX_HEADER.pack_into(index, 0, begin_ms, end_ms, begin_physical, end_physical, used_slots, number)
    return taken


def _check_index(index: bytearray | memoryview | mmap, slots: int, entries: int) -> None:
    size, is_count = len(index), 0 < slots <= 0x7FFF_FFFF and 0 <= entries <= 0x7FFF_FFFF
    if not is_count or size < INDEX_HEADER_SIZE + 4 * slots + INDEX_ENTRY_SIZE * entries:
        raise ValueError(f"an index file of {size} bytes, too short for {slots} slots and {entries} entries")
    number = INDEX_HEADER.unpack_from(index)[5]
    if not 0 <= number <= entries:
        raise ValueError(f"a damaged index file: it says that entry {number} comes next, and has {entries}")
