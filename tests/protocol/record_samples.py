"""Records whose bytes are known."""

from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueOffset

HELLO = StoredMessage(
    topic="T1",
    body=b"hello",
    queue_id=2,
    queue_offset=QueueOffset(7),
    physical_offset=PhysicalOffset(4096),
    born_at=1_700_000_000_000,
    born_host=Host("10.0.0.9", 5000),
    stored_at=1_700_000_000_001,
    store_host=Host("10.0.0.1", 10911),
    properties={"KEYS": "k1", "TAGS": "TagA"},
)
