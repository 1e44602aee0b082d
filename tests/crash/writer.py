"""A process that appends until it is killed. Each line on its output is an acknowledgement: life, number.

Run as `python -m tests.crash.writer ROOT MODE LIFE`; under SYNC_FLUSH a number is told after its flush.
"""

import os
import random
import sys
from pathlib import Path

from bolide.clock import SystemClock
from bolide.model.host import Host
from bolide.protocol.properties import encode_properties
from bolide.store.config import StoreConfig
from bolide.store.record import Draft
from bolide.store.store import Store

HOST = Host("127.0.0.1", 10911).packed()


def crash_config(root: Path, mode: str) -> StoreConfig:
    return StoreConfig(
        root=root,
        flush_mode=mode,
        segment_size=1 << 16,
        queue_file_size=2000,
        index_slots=128,
        index_entries_max=500,
        disk_percent_max=100,
        disk_percent_forcibly=100,
        disk_percent_full=100,
    )


def draft(life: int, number: int, queue_id: int, size: int) -> Draft:
    name = f"{life}.{number}"
    properties = encode_properties({"KEYS": name, "TAGS": f"t{number % 3}"})
    return Draft("T", queue_id, name.encode().ljust(size, b"."), properties, 0, 0, 1_700_000_000_000, HOST)


def main() -> None:
    root, mode, life = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    chance = random.Random(life)
    number = 0
    with Store.open(crash_config(root, mode), SystemClock(), HOST) as store:
        os.write(1, b"open\n")
        while True:
            count = chance.choice((1, 1, 5, 20))
            batch = [draft(life, number + i, (number + i) % 3, chance.choice((20, 300, 5000))) for i in range(count)]
            if sum(len(one.body) for one in batch) > 50_000:
                continue
            store.append(batch)
            if mode == "SYNC_FLUSH" or chance.random() < 0.05:
                store.flush()
            if chance.random() < 0.05:
                store.flush_queues()
            number += count
            os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    main()
