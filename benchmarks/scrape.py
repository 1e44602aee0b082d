"""What do metrics cost a broker that is sent to as fast as it takes?

Two `bolide up` run at the same time and take turns, one without metrics and one with them. The load is sends of 128
bytes on 8 connections with 16 under way on each (`broker_load.c`), in three kinds of turns: *off*; *counted*, where
nobody reads the page; and *scraped*, where it is read every --pause-ms, far more often than any Prometheus does. The
stores have --topics more topics with a message each, so that the page has some length. Told are the rate, how long
sends took, and the broker's CPU a message, which does not depend on who else uses the machine; and what a page costs
in CPU while nobody sends, which says what it is for a Prometheus that asks every 15 s.

    python -m benchmarks.scrape --seconds 3 --turns 3 --topics 1000

Who reads the page uses the machine's other core beside the load: on two cores the rate of *scraped* has that in it.
"""

import json
import socket
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import commit, machine, publish, read_arguments
from benchmarks.measured_brokers import LOAD_SOURCE, Measured, bolide_up
from benchmarks.programs import built
from interop.process import free_port

QUESTION = "What do metrics cost a broker that is sent to as fast as it takes?"
# How full the disk of the machine is, is not what is measured.
ROOM = {"mappedFileSizeCommitLog": 256 << 20, "diskMaxUsedSpaceRatio": 99, "diskSpaceWarningLevelRatio": 100}
IDLE_PAGES = 10
SCRAPE_INTERVAL_S = 15  # of Prometheus, unless it is told otherwise
RECEIVE_SIZE = 1 << 20


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    options = read_arguments(QUESTION, argv, seconds="3", warmup="0.5", turns=3, topics=1000, pause_ms=200)
    port = free_port()
    metrics = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
    turns: dict[str, list[dict[str, float]]] = {"off": [], "counted": [], "scraped": []}
    with (
        tempfile.TemporaryDirectory(prefix="bolide-scrape-") as directory,
        bolide_up(Path(directory), ROOM) as without,
        bolide_up(Path(directory), {**ROOM, **metrics}) as server,
    ):
        for each in (without, server):
            each.make_topics("Bench", options.topics)
            _load(each, "Bench", topics=options.topics, count=options.topics)
            each.make_topic("T")
        page_ms = _page_cpu_ms(server, port)
        for turn in range(options.turns):
            for name in list(turns) if turn % 2 else reversed(turns):
                with _scraping(port, options.pause_ms / 1000 if name == "scraped" else 0) as pages:
                    told = _load(
                        without if name == "off" else server, "T", seconds=options.seconds, warmup=options.warmup
                    )
                sent = told["sends"]
                figures = {"rate": sent / told["seconds"], "cpu_us": told["cpu_s"] / sent * 1e6}
                figures |= {"p99_us": told["p99_us"], "p999_us": told["p999_us"]}
                turns[name].append({**figures, "pages": len(pages), "page_kb": max(pages, default=0) / 1024})
    rows = {
        name: {key: round(statistics.median(turn[key] for turn in some), 2) for key in some[0]}
        for name, some in turns.items()
    }
    share = page_ms / 1000 / SCRAPE_INTERVAL_S
    print(QUESTION)
    for name, row in rows.items():
        print(
            f"{name}: {row['rate']:,.0f} sends/s, {row['cpu_us']} us of CPU a message, "
            f"99.9 % within {row['p999_us']:.0f} us, {row['pages']:.0f} pages"
        )
    print(f"a page: {page_ms:.0f} ms of CPU, {share:.2%} of a core every {SCRAPE_INTERVAL_S} s")
    told_line = {"question": QUESTION, "rows": rows, "page_cpu_ms": round(page_ms, 1)}
    line = json.dumps({**told_line, "turns": turns, "machine": machine(), "commit": commit()})
    publish(line, is_kept=options.keep)
    return {**told_line, "turns": turns}


def _page_cpu_ms(server: Measured, port: int) -> float:
    """What a page costs the broker while nobody sends; the first one is not counted."""
    _read_page(port)
    before_s = server.cpu_s()
    for _ in range(IDLE_PAGES):
        _read_page(port)
    return (server.cpu_s() - before_s) / IDLE_PAGES * 1000


def _read_page(port: int) -> int:
    """Read it, with as little work as can be, for the load has the same core; returns its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        size = 0
        while part := connection.recv(RECEIVE_SIZE):
            size += len(part)
    return size


def _load(server: Measured, topic: str, **words: object) -> dict[str, float]:
    given = {"port": server.broker[1], "pid": server.program.pid, "topic": topic, "mode": "send", **words}
    command = [str(built(LOAD_SOURCE)), *(f"{key}={value}" for key, value in given.items()), "connections=8"]
    told: dict[str, float] = json.loads(subprocess.check_output([*command, "in_flight=16"]))
    return told


@contextmanager
def _scraping(port: int, pause_s: float) -> Iterator[list[int]]:
    """Read the page again and again, with a pause; the list has the size of each. Without a pause, never."""
    pages: list[int] = []
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(pause_s):
            pages.append(_read_page(port))

    thread = threading.Thread(target=scrape)
    if pause_s:
        thread.start()
    try:
        yield pages
    finally:
        is_over.set()
        if pause_s:
            thread.join()


if __name__ == "__main__":
    main()
