"""A backup of a broker that is sent to, and a broker elsewhere that begins with it."""

import json
import shutil
import threading
from pathlib import Path

from bolide import Consumer, Producer, StartFrom
from tests.cli.processes import bolide
from tests.e2e.up import ANY_DISK, FREE_PORTS, running

SMALL = ("--set", "mappedFileSizeCommitLog=1048576", *ANY_DISK)


def test_what_was_confirmed_before_a_backup_is_where_it_is_restored(tmp_path: Path) -> None:
    here, there, copy = tmp_path / "here", tmp_path / "there", tmp_path / "copy"
    here.mkdir()
    there.mkdir()
    confirmed: list[bytes] = []
    is_over = threading.Event()
    with running(here, "up", *FREE_PORTS, *SMALL) as up:

        def send() -> None:
            with Producer("p", up.namesrv, timeout_s=20) as producer:
                while not is_over.is_set():
                    body = b"%d" % len(confirmed)
                    assert producer.send("T", body.ljust(4000)).is_ok
                    confirmed.append(body)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            with Consumer("g", "T", up.namesrv, start_from=StartFrom.oldest()) as consumer:
                read = {message.body.strip() for message, _ in zip(consumer, range(300), strict=False)}
            # Twice, for the second one finds a backup to bring up to date.
            for _ in range(2):
                before = set(confirmed)
                done = bolide(tmp_path, "store", "backup", str(here / "bolide-data"), str(copy), "--output", "json")
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["copied_bytes"] > 0
        finally:
            is_over.set()
            sender.join()
    assert len(before) > 300
    shutil.copytree(copy, there / "bolide-data")
    with running(there, "up", *FREE_PORTS, *SMALL) as restored, Consumer("g", "T", restored.namesrv) as consumer:
        found = set(read)
        while not found.issuperset(before):
            messages = consumer.receive(timeout_s=30)
            assert messages, f"{len(before - found)} of {len(before)} are missing"
            found |= {message.body.strip() for message in messages}
            consumer.commit()
