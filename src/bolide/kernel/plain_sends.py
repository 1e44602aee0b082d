"""The sending part of the plain kernel: all frames of some reads in, records, queue entries, keys and answers out.

A send is taken when nothing about it needs thought: its topic is in the table, its queue is there, its properties name
nothing that the broker treats apart, its numbers are plain, its body has a legal size. Everything else is left, by its
bounds, for the broker's plain path, which knows all rules and every sentence. Order holds all the same: once a send was
left, later ones of its read and topic are left too, and all of them after a frame that could not be read.

What is stored of a message is what came, with `added` behind its properties; of a batch, each message as it came. A
half message (TRAN_MSG=true) goes to the topic of the rules' `half`, queue 0, and says in its properties where it
belongs. An answer is what `write_frames` would write with these ext fields: region and trace switch (ready in the
rules), then msgId, queueId (the one that was asked for), queueOffset and, where there is one, the unique key as
transactionId.

The compiled twin makes no object for a message. It may leave more (text with escapes beyond ASCII, odd JSON), but what
both take becomes the same bytes.
"""

import re
import struct
from collections.abc import Mapping, Sequence

from bolide.kernel.layout import (
    BATCH_ITEM,
    BATCH_ITEM_SIZE_MIN,
    BINARY_CODEC,
    INNER_BATCH,
    LONG_NAMES,
    ONEWAY_FLAG,
    PREPARED,
    PROPERTIES_SIZE_MAX,
    PYTHON,
    RESPONSE_FLAG,
    SEND,
    SEND_BATCH,
    SEND_SHORT,
    SHORT_NAMES,
    TRANSACTION,
    Buffer,
    Draft,
    Header,
    Read,
    Run,
    SendRules,
    Sent,
)
from bolide.kernel.plain import read_headers
from bolide.kernel.plain_records import lay_records, properties_of

_REQUIRED_COUNT = 8

# A message with one of these is not what it seems; in a single one the second kind has to be rewritten.
_APART = frozenset([b"DELAY", b"INNER_NUM"])
_HALF = b"TRAN_MSG"
_PLACE = frozenset([b"REAL_TOPIC", b"REAL_QID", b"__transactionId__"])  # what only the broker says of a half message
_REWRITTEN = frozenset([b"CLUSTER", b"MSG_REGION", b"POP_CK", b"TRACE_ON"])
_is_plain_number = re.compile("-?[0-9]{1,18}").fullmatch
_needs_escape = re.compile(rb'[\x00-\x1f"\\]').search


# codec, opaque, is answered, queue id, how many messages, unique key
_Taken = tuple[int, int, bool, int, int, bytes | None]


def lay_sends(
    reads: list[Read],
    topics: Mapping[bytes, tuple[str, int]],
    rules: SendRules,
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> tuple[bytes, list[Run], bytes, Sent]:
    """Take the plain sends of some reads, each of another connection; topics is name → name and number of queues."""
    drafts: list[Draft] = []
    found: list[tuple[list[_Taken], list[int]]] = [_read_sends(read, topics, rules, drafts) for read in reads]
    laid = lay_records(drafts, physical_offset, store_ms, rules.store_host, next_offsets, (), rules.body_size_max)
    records, places, queue_offsets, runs, keys = laid
    answered: list[tuple[bytes, list[int]]] = []
    first = 0
    for taken, left in found:
        answered.append((_answers(taken, places[first:], queue_offsets[first:], rules), left))
        first += sum(each[4] for each in taken)
    return records, runs, keys, (answered, _tallies(drafts, [*places, physical_offset + len(records)]))


def _read_sends(
    read: Read, topics: Mapping[bytes, tuple[str, int]], rules: SendRules, drafts: list[Draft]
) -> tuple[list[_Taken], list[int]]:
    """Add the drafts of one read; what its answers need, and the bounds of what is left."""
    stream, bounds, born_host = read
    taken: list[_Taken] = []
    left: list[int] = []
    left_topics: set[str] = set()
    is_blind = False
    for i, header in enumerate(read_headers(stream, bounds)):
        found = None
        if header is None:
            is_blind = True
        elif header[1] in (SEND, SEND_SHORT, SEND_BATCH) and not header[5] & RESPONSE_FLAG:
            topic = header[7].get("topic" if header[1] == SEND else "b")
            if topic is None:
                is_blind = True
            elif not is_blind and topic not in left_topics:
                found = _read_send(header, stream[header[8] : bounds[2 * i + 1]], topics, rules, born_host)
            if found is None and topic is not None:
                left_topics.add(topic)
        if found is None:
            left += bounds[2 * i : 2 * i + 2]
        else:
            drafts += found[0]
            taken.append(found[1])
    return taken, left


def _read_send(
    header: Header, body: Buffer, topics: Mapping[bytes, tuple[str, int]], rules: SendRules, born_host: bytes
) -> tuple[list[Draft], _Taken] | None:
    """The drafts of one send and what its answer needs; None if it needs thought."""
    codec, code, _, _, opaque, flag, _, fields, _ = header
    texts = [fields.get(name) for name in (LONG_NAMES if code == SEND else SHORT_NAMES)]
    if None in texts[:_REQUIRED_COUNT]:
        return None
    _, topic, _, queues, queue, system, born, own, properties, times, _, times_max, batch = texts
    numbers = [_number(text, bits) for text, bits in ((queues, 32), (queue, 32), (system, 32), (born, 64), (own, 32))]
    limits = [_number(text, 32) for text in (times or "0", times_max or "0")]
    try:
        "".join(fields.values()).encode()
        given = (properties or "").encode()
    except UnicodeEncodeError:
        return None
    known = topics.get((topic or "").encode())
    if known is None or None in numbers or None in limits or times == "" or times_max == "":
        return None
    _, queue_id, sys_flag, born_ms, user_flag = (number or 0 for number in numbers)
    if not 0 <= queue_id < known[1] or sys_flag & INNER_BATCH or sys_flag & TRANSACTION not in (0, PREPARED):
        return None
    if not 0 < len(body) <= rules.body_size_max:
        return None
    is_batch = (batch or "").lower() == "true"
    judged = _judge(given, rules, is_batch)
    if judged is None or (sys_flag & PREPARED and not judged[2]):
        return None
    stored, unique_key, is_half = judged
    name, place = known[0], queue_id
    if is_half and rules.half is not None and unique_key is not None:
        stored = _prepared(given, unique_key, known[0], queue_id) + rules.added
        if len(stored) > PROPERTIES_SIZE_MAX:
            return None
        name, place, sys_flag = rules.half[0], 0, sys_flag & ~TRANSACTION
    items = _split(body) if is_batch else [(user_flag, body, stored)]
    if items is None:
        return None
    reconsume_times = limits[0] or 0
    drafts: list[Draft] = [
        (name, place, content, text, item_flag, sys_flag, born_ms, born_host, reconsume_times, 0)
        for item_flag, content, text in items
    ]
    return drafts, (codec, opaque, not flag & ONEWAY_FLAG, queue_id, len(drafts), unique_key)


def _number(text: str | None, bits: int) -> int | None:
    if text is None or not _is_plain_number(text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _judge(given: bytes, rules: SendRules, is_batch: bool) -> tuple[bytes, bytes | None, bool] | None:
    """The properties to store, the unique key, whether it is a half message; None if one of them needs thought."""
    found = _judged(given)
    if found is None:
        return None
    is_half = _HALF in found
    if is_half and not _is_plain_half(found, rules, is_batch):
        return None
    if rules.is_sync and found.get(b"WAIT", b"true").lower() != b"true":
        return None
    unique_key = found.get(b"UNIQ_KEY")
    if unique_key is not None and _needs_escape(unique_key):
        return None
    if is_batch:
        return b"", unique_key, False
    if unique_key is None or not found.keys().isdisjoint(_REWRITTEN):
        return None
    stored = given + (b"" if given.endswith(b"\x02") else b"\x02") + rules.added
    return (stored, unique_key, is_half) if len(stored) <= PROPERTIES_SIZE_MAX else None


def _is_plain_half(found: dict[bytes, bytes], rules: SendRules, is_batch: bool) -> bool:
    is_marked = found[_HALF].lower() == b"true"
    return is_marked and rules.half is not None and not is_batch and found.keys().isdisjoint(_PLACE)


def _prepared(given: bytes, unique_key: bytes, topic: str, queue_id: int) -> bytes:
    """The properties of a half message, up to what the broker adds to every one."""
    end = b"" if given.endswith(b"\x02") else b"\x02"
    place = b"__transactionId__\x01%s\x02REAL_TOPIC\x01%s\x02REAL_QID\x01%d\x02"
    return given + end + place % (unique_key, topic.encode(), queue_id)


def _judged(given: bytes) -> dict[bytes, bytes] | None:
    """Name → value, as readers of the record will see them; None if one sets the message apart."""
    if 0 in given:
        return None
    found = properties_of(given)
    if not found.keys().isdisjoint(_APART) or any(name.startswith(b"TIMER_") for name in found):
        return None
    return found


def _split(body: Buffer) -> list[tuple[int, Buffer, bytes]] | None:
    """Flag, body and properties of each message of a batch; None if anything about it is wrong or needs thought."""
    items: list[tuple[int, Buffer, bytes]] = []
    at = 0
    while at < len(body):
        if len(body) - at < BATCH_ITEM_SIZE_MIN:
            return None
        size, _, _, flag, body_size = BATCH_ITEM.unpack_from(body, at)
        if not BATCH_ITEM_SIZE_MIN <= size <= len(body) - at or not 0 <= body_size <= size - BATCH_ITEM_SIZE_MIN:
            return None
        content = at + BATCH_ITEM.size
        text = content + body_size + 2
        if int.from_bytes(body[text - 2 : text], "big", signed=True) != at + size - text:
            return None
        properties = bytes(body[text : at + size])
        if _judged(properties) is None:
            return None
        items.append((flag, body[content : content + body_size], properties))
        at += size
    return items


def _tallies(drafts: list[Draft], places: list[int]) -> list[tuple[str, int, int]]:
    tallies: dict[str, tuple[int, int]] = {}
    for i, draft in enumerate(drafts):
        count, size = tallies.get(draft[0], (0, 0))
        tallies[draft[0]] = count + 1, size + places[i + 1] - places[i]
    return [(topic, count, size) for topic, (count, size) in tallies.items()]


def _answers(taken: list[_Taken], places: Sequence[int], queue_offsets: Sequence[int], rules: SendRules) -> bytes:
    answers: list[bytes] = []
    first = 0
    for codec, opaque, is_answered, queue_id, count, unique_key in taken:
        if is_answered:
            ids = [rules.store_host + place.to_bytes(8, "big") for place in places[first : first + count]]
            texts = [b",".join([each.hex().upper().encode() for each in ids]), b"%d" % queue_id]
            texts.append(b"%d" % queue_offsets[first])
            if unique_key is not None:
                texts.append(unique_key)
            write = _binary_answer if codec == BINARY_CODEC else _json_answer
            header = write(opaque, texts, rules)
            answers.append(struct.pack(">ii", 4 + len(header), codec << 24 | len(header)) + header)
        first += count
    return b"".join(answers)


_ANSWER_NAMES = (b"msgId", b"queueId", b"queueOffset", b"transactionId")


def _json_answer(opaque: int, texts: list[bytes], rules: SendRules) -> bytes:
    rest = [b',"%s":"%s"' % pair for pair in zip(_ANSWER_NAMES[1:], texts[1:], strict=False)]
    tail = b'},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    return b"".join((rules.json_head, texts[0], b'"', *rest, tail % (opaque, rules.version)))


def _binary_answer(opaque: int, texts: list[bytes], rules: SendRules) -> bytes:
    entries = [
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(text)) + text
        for name, text in zip(_ANSWER_NAMES, texts, strict=False)
    ]
    ext = rules.binary_head + b"".join(entries)
    return struct.pack(">hBhiiii", 0, PYTHON, rules.version, opaque, RESPONSE_FLAG, 0, len(ext)) + ext
