"""What store tests start from: small files, a held clock, drafts that say what they are."""

from pathlib import Path
from typing import Any

from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import QueueKey
from bolide.protocol.properties import encode_properties
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.record import Draft, decode, store_ms_of
from bolide.store.store import Store

START_MS = 1_700_000_000_000
HOST = Host("127.0.0.1", 10911).packed()
BORN_HOST = Host("192.168.1.9", 51234).packed()


class HeldClock:
    """Time that moves when told to."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


def small(root: Path, **changes: Any) -> StoreConfig:
    """Tiny files, disk ratios that a full machine does not trip over, and as much time as a busy disk takes."""
    settings: dict[str, Any] = {
        "segment_size": 16384,
        "queue_file_size": 400,
        "index_slots": 64,
        "index_entries_max": 256,
        "disk_percent_max": 100,
        "disk_percent_forcibly": 100,
        "disk_percent_full": 100,
        "sync_flush_timeout_ms": 60_000,
    }
    return StoreConfig(root=root, **settings | changes)


def draft(body: bytes, topic: str = "T", queue_id: int = 0, sys_flag: int = 0, **properties: str) -> Draft:
    return Draft(topic, queue_id, body, encode_properties(properties), 0, sys_flag, START_MS, BORN_HOST)


def opened(config: StoreConfig, clock: HeldClock | None = None, disk: Disk | None = None) -> Store:
    return Store.open(config, clock or HeldClock(), HOST, disk)


def read_all(store: Store, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, read the way a consumer does."""
    key, records = QueueKey(topic, queue_id), []
    queue = store.queue(key)
    if queue is None:
        return []
    offset = queue.min_offset
    while offset < queue.next_offset:
        slices = store.read(key, offset, 32)
        records += [decode(view) for view in slices.views]
        assert slices.next_offset > offset
        offset = slices.next_offset
    return records


def bodies(store: Store, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read_all(store, topic, queue_id)]


def query(store: Store, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
    """Messages of a topic that have a key (or a unique key), in log order, found as the broker does."""
    count_max = min(count_max, store.config.query_count_max)
    places = [place for place in store.search(topic, key, begin_ms, end_ms) if place is not None]
    found: list[StoredMessage] = []
    for place in sorted(set(places[: 4 * count_max])):  # other keys may share the hash
        view = store.record_at(place)
        if view is not None and begin_ms <= store_ms_of(view) <= end_ms:
            record = decode(view)
            keys = (record.properties.get("UNIQ_KEY"), *record.properties.get("KEYS", "").split(" "))
            found += [record] if record.topic == topic and key in keys else []
    return found[-count_max:]


def crash(store: Store) -> None:
    """End as a killed process does: files stay as they are."""
    store.abandon()
