"""Acknowledgements by gRPC, and what the general path reads in one: what the kernel's reader is held to."""

from bolide.proxy import messages as m
from bolide.proxy.handles import read_receipt
from bolide.proxy.settling import PlainAck

HANDLE = "7 1700000000000 30000 3 0 broker-a 2 9 123456"


def plain_ack(handle: str = HANDLE) -> m.AckMessageRequest:
    request = m.AckMessageRequest(group=m.Resource(name="readers"), topic=m.Resource(name="Orders"))
    request.entries.add(message_id="01AB", receipt_handle=handle)
    return request


def as_above(request: m.AckMessageRequest) -> PlainAck:
    """What the path above understands; raises Denied."""
    (entry,) = request.entries
    assert not entry.HasField("lite_topic")
    pop = read_receipt(entry.receipt_handle).pop
    return PlainAck(
        *(request.group.name, request.topic.name, entry.message_id, entry.receipt_handle),
        *(pop.start_offset, pop.popped_ms, pop.invisible_ms, pop.revive_queue_id, int(pop.mark)),
        *(pop.broker_name, pop.queue_id, pop.queue_offset),
    )
