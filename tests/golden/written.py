"""What Java wrote into the golden stores, and how a store of ours shows that it has it."""

from pathlib import Path

from bolide.clock import SystemClock
from bolide.kernel import java_hash
from bolide.model.host import Host
from bolide.model.queue import QueueKey
from bolide.store.config import StoreConfig
from bolide.store.record import decode
from bolide.store.store import Store
from bolide.store.verify import findings
from tests.store.given import query

TOPIC = "StoreTest"
QUEUES = 4
COUNT = 240
SIZES = {"segment": 1 << 16, "queue": 2000, "slots": 500, "entries": 200}
HOST = Host("127.0.0.1", 10911).packed()


def our_config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        segment_size=SIZES["segment"],
        queue_file_size=SIZES["queue"],
        index_slots=SIZES["slots"],
        index_entries_max=SIZES["entries"],
        disk_percent_max=100,
        disk_percent_forcibly=100,
        disk_percent_full=100,
    )


def body_of(number: int) -> bytes:
    return b"message %d " % number + b"x" * (number * 37 % 700)


def properties_of(number: int) -> dict[str, str]:
    return {"TAGS": ("TagA", "TagB", "订单")[number % 3], "KEYS": f"key-{number} all", "UNIQ_KEY": f"7F00{number:028X}"}


def check_ours(root: Path, count: int = COUNT) -> None:
    """Everything is there, in order, with its tag and its keys."""
    with Store.open(our_config(root), SystemClock(), HOST) as store:
        for queue_id in range(QUEUES):
            queue = store.queue(QueueKey(TOPIC, queue_id))
            assert queue is not None
            expected = [body_of(number) for number in range(queue_id, count, QUEUES)]
            assert queue.next_offset == len(expected)
            got: list[bytes] = []
            while len(got) < len(expected):
                got += [decode(view).body for view in store.read(QueueKey(TOPIC, queue_id), len(got), 32).views]
            assert got == expected
            for offset in range(len(expected)):
                tags = properties_of(queue_id + offset * QUEUES)["TAGS"]
                assert queue.entry(offset)[2] == java_hash(tags)
        for number in range(0, count, 7):
            found = query(store, TOPIC, f"key-{number}", 10, 0, 1 << 60)
            assert [record.body for record in found] == [body_of(number)]
    assert findings(our_config(root)) == []
