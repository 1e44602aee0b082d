"""Popped messages as gRPC carries them by the general path: what the kernel's encoder is held to."""

from bolide.model.message import StoredMessage
from bolide.model.queue import QueueOffset
from bolide.protocol.headers.poptext import PopHandle, TopicMark
from bolide.protocol.records import decode_records
from bolide.proxy import messages as m
from bolide.proxy.handles import Receipt
from bolide.proxy.receiving import received

TOPIC = "Orders"
INVISIBLE_MS = 30_500
HEADS = {queue_id: f"7 1700000000000 {INVISIBLE_MS} 3 0 broker-a".encode() for queue_id in (0, 1, 2)}
Told = tuple[m.ReceiveMessageResponse, str, str | None]


def as_above(records: bytes) -> list[Told]:
    """What the path above makes of some records; raises what it raises."""
    return [_as_above(record) for record in decode_records(records)]


def _as_above(record: StoredMessage) -> Told:
    handle = PopHandle(
        start_offset=QueueOffset(7),
        popped_ms=1_700_000_000_000,
        invisible_ms=INVISIBLE_MS,
        revive_queue_id=3,
        mark=TopicMark.NORMAL,
        broker_name="broker-a",
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
    )
    receipt = Receipt(handle, record.physical_offset)
    return received(record, receipt, TOPIC, 0), receipt.text, record.tags


def as_told(found: list[tuple[bytes, str, str | None]]) -> list[Told]:
    """What the kernel made, read by protobuf."""
    return [(m.ReceiveMessageResponse.FromString(content), handle, tag) for content, handle, tag in found]
