"""The texts a POP answer packs its offsets into, and the handle a message is acknowledged with.

Entries are joined by `;` and have three tokens with one space between. A client throws at anything else, so reading is
strict here as well: a wrong count of tokens, a queue named twice and a missing counterpart are refused.

    start offsets     T Q START          0 1 100;1 0 7
    message offsets   T Q o1,o2,...      0 1 100,101,104
    order counts      T Q N              0 1 2        how often the queue's first message was popped
                      T qoQ%OFFSET N     0 qo1%104 1  how often this message was
    handle            START POPPED INVISIBLE REVIVE T BROKER Q OFFSET

T is the topic's mark, Q the queue. Offsets of a queue match its messages by position.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from bolide.errors import Refusal
from bolide.model.queue import QueueOffset
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.header import read_int64

ORDERLY_REVIVE_QUEUE = 999  # stands in a handle for "popped in order": there is no revive queue then

_HANDLE_TOKENS = 8
_HANDLE_TOKENS_MAX = 10  # Apache's proxy adds where the message lies, and in local mode sometimes a 0 before that
_ENTRY_TOKENS = 3
_MESSAGE_PREFIX = "qo"
_SHOWN_CHARACTERS_MAX = 80
_KEPT_LENGTH_MAX = 400

K = TypeVar("K")
V = TypeVar("V")


class TopicMark(IntEnum):
    """Which topic a popped message came from: the one asked for, or a retry topic in its older or newer spelling."""

    NORMAL = 0
    RETRY_V1 = 1
    RETRY_V2 = 2


class PoppedQueue(NamedTuple):
    """A queue of a POP answer."""

    mark: TopicMark
    queue_id: int


class PoppedRange(NamedTuple):
    """What was popped from it: the offset the check point starts at, and the offset of each message."""

    start: QueueOffset
    offsets: tuple[QueueOffset, ...]


class OrderedItem(NamedTuple):
    """What an order count counts: a message, or with `offset` None the queue's first one."""

    mark: TopicMark
    queue_id: int
    offset: QueueOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopHandle:
    """The property POP_CK and the field `extraInfo`: enough for any broker to find the check point again."""

    start_offset: QueueOffset
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: TopicMark
    broker_name: str
    queue_id: int
    queue_offset: QueueOffset

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDERLY_REVIVE_QUEUE


def build_handle(handle: PopHandle) -> str:
    """The eight tokens of a handle."""
    assert " " not in handle.broker_name, f"broker name {handle.broker_name!r} would split the handle"
    return (
        f"{handle.start_offset} {handle.popped_ms} {handle.invisible_ms} {handle.revive_queue_id} {handle.mark:d}"
        f" {handle.broker_name} {handle.queue_id} {handle.queue_offset}"
    )


def parse_handle(text: str) -> PopHandle:
    """A handle from its tokens."""
    # An acknowledgement over gRPC has its handle read twice, at the port and in the broker.
    return _parsed_before(text) if len(text) <= _KEPT_LENGTH_MAX else _parsed(text)


def _parsed(text: str) -> PopHandle:
    usual = _USUAL_HANDLE.fullmatch(text)
    if usual is not None:
        start, popped, invisible, revive, mark, broker_name, queue, offset = usual.groups()
        return PopHandle(
            start_offset=QueueOffset(int(start)),
            popped_ms=int(popped),
            invisible_ms=int(invisible),
            revive_queue_id=int(revive),
            mark=_MARKS[mark],
            broker_name=broker_name,
            queue_id=int(queue),
            queue_offset=QueueOffset(int(offset)),
        )
    tokens = text.split(" ")
    try:
        if not _HANDLE_TOKENS <= len(tokens) <= _HANDLE_TOKENS_MAX:
            raise ValueError(f"{len(tokens)} tokens, not {_HANDLE_TOKENS}")
        start, popped, invisible, revive, mark, broker_name, queue, offset = tokens[:_HANDLE_TOKENS]
        return PopHandle(
            start_offset=QueueOffset(read_int64(start)),
            popped_ms=read_int64(popped),
            invisible_ms=read_int64(invisible),
            revive_queue_id=read_int64(revive),
            mark=_mark(mark),
            broker_name=broker_name,
            queue_id=read_int64(queue),
            queue_offset=QueueOffset(read_int64(offset)),
        )
    except ValueError as problem:
        raise _refusal("handle", text, problem) from None


# Numbers that need no look at their size; a handle of every acknowledgement is one of these.
_NUMBER = r"(\d{1,18})"
_USUAL_HANDLE = re.compile(rf"{_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} ([012]) ([^ ]*) {_NUMBER} {_NUMBER}", re.ASCII)
_MARKS = {str(mark.value): mark for mark in TopicMark}
_parsed_before = lru_cache(maxsize=1_000)(_parsed)


def build_start_offsets(starts: Mapping[PoppedQueue, int]) -> str:
    """`startOffsetInfo`."""
    return ";".join(f"{mark:d} {queue_id} {start}" for (mark, queue_id), start in starts.items())


def parse_start_offsets(text: str) -> dict[PoppedQueue, QueueOffset]:
    """`startOffsetInfo`, read."""
    try:
        return _once_each(
            (PoppedQueue(_mark(mark), read_int64(queue)), QueueOffset(read_int64(start)))
            for mark, queue, start in _entries(text)
        )
    except ValueError as problem:
        raise _refusal("startOffsetInfo", text, problem) from None


def build_message_offsets(offsets: Mapping[PoppedQueue, Sequence[int]]) -> str:
    """`msgOffsetInfo`."""
    return ";".join(f"{mark:d} {queue_id} {','.join(map(str, each))}" for (mark, queue_id), each in offsets.items())


def parse_message_offsets(text: str) -> dict[PoppedQueue, tuple[QueueOffset, ...]]:
    """`msgOffsetInfo`, read."""
    try:
        return _once_each(
            (PoppedQueue(_mark(mark), read_int64(queue)), tuple(QueueOffset(read_int64(o)) for o in joined.split(",")))
            for mark, queue, joined in _entries(text)
        )
    except ValueError as problem:
        raise _refusal("msgOffsetInfo", text, problem) from None


def parse_popped(starts_text: str, offsets_text: str) -> dict[PoppedQueue, PoppedRange]:
    """Both texts of one answer together; a start without the offsets of its messages is refused."""
    offsets = parse_message_offsets(offsets_text)
    popped = {}
    for queue, start in parse_start_offsets(starts_text).items():
        if queue not in offsets:
            raise _refusal("msgOffsetInfo", offsets_text, f"no entry '{queue.mark:d} {queue.queue_id}', which started")
        popped[queue] = PoppedRange(start, offsets[queue])
    return popped


def build_order_counts(counts: Mapping[OrderedItem, int]) -> str:
    """`orderCountInfo`."""
    return ";".join(f"{item.mark:d} {_item_token(item)} {count}" for item, count in counts.items())


def parse_order_counts(text: str) -> dict[OrderedItem, int]:
    """`orderCountInfo`, read."""
    try:
        return _once_each((_item(mark, token), read_int64(count)) for mark, token, count in _entries(text))
    except ValueError as problem:
        raise _refusal("orderCountInfo", text, problem) from None


def _item_token(item: OrderedItem) -> str:
    return str(item.queue_id) if item.offset is None else f"{_MESSAGE_PREFIX}{item.queue_id}%{item.offset}"


def _item(mark: str, token: str) -> OrderedItem:
    if not token.startswith(_MESSAGE_PREFIX):
        return OrderedItem(_mark(mark), read_int64(token))
    queue, _, offset = token.removeprefix(_MESSAGE_PREFIX).partition("%")
    return OrderedItem(_mark(mark), read_int64(queue), QueueOffset(read_int64(offset)))


def _entries(text: str) -> list[list[str]]:
    entries = [entry.split(" ") for entry in text.split(";")] if text else []
    for entry in entries:
        if len(entry) != _ENTRY_TOKENS:
            raise ValueError(f"an entry of {len(entry)} tokens, not {_ENTRY_TOKENS}")
    return entries


def _once_each(entries: Iterable[tuple[K, V]]) -> dict[K, V]:
    table: dict[K, V] = {}
    for key, value in entries:
        if key in table:
            raise ValueError("the same queue or message twice")
        table[key] = value
    return table


def _mark(token: str) -> TopicMark:
    return TopicMark(read_int64(token))


def _refusal(what: str, text: str, problem: object) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{what} {text[:_SHOWN_CHARACTERS_MAX]!r}: {problem}")
