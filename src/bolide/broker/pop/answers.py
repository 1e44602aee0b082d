"""Answers of POP calls: the messages as bytes."""

from collections.abc import Sequence
from dataclasses import replace

from bolide.broker.pop.reading import Taken
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.protocol.headers.poptext import PopHandle, build_handle
from bolide.protocol.records import encode_record
from bolide.store.record import decode


def joined(parts: Sequence[bytes | memoryview]) -> bytes:
    return b"".join(parts)


def under_origin(taken: Taken, topic: str, handle: PopHandle) -> list[bytes | memoryview]:
    """Messages of a retry topic as a client of the topic itself knows them: its name, and the handle with each."""
    return [_renamed(view, decode(view), topic, handle) for view in taken.views]


def _renamed(view: memoryview, message: StoredMessage, topic: str, handle: PopHandle) -> bytes | memoryview:
    own = build_handle(replace(handle, queue_id=message.queue_id, queue_offset=message.queue_offset))
    properties = {**message.properties, names.POP_HANDLE: own}
    try:
        return encode_record(replace(message, topic=topic, properties=properties))
    except Refusal:
        return view  # no room for the handle: the client makes its own from the offsets in the header
