"""What does Prometheus cost a broker that is sent to as fast as it takes?

One `bolide up --metrics`, sends of 128 bytes on 8 connections with 16 under way on each (`broker_load.c`), in turns: a
turn without a scrape, and one in which the page is read every --pause-ms, far more often than any Prometheus does. The
store has --topics more topics with a message each, so that the page has some length. Told are the rate and the broker's
CPU a message, which does not depend on who else uses the machine.

    python -m benchmarks.scrape --seconds 3 --turns 3 --topics 1000

It does not show what counting itself costs: metrics are on in both turns (`benchmarks.send_path` and `broker` are run
with them off).
"""

import json
import statistics
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import RESULTS, commit, machine, read_arguments
from benchmarks.measured_brokers import LOAD_SOURCE, Measured, bolide_up
from benchmarks.programs import built
from interop.process import free_port

QUESTION = "What does a scrape cost a broker that is sent to as fast as it takes?"


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    options = read_arguments(QUESTION, argv, seconds="3", warmup="0.5", turns=3, topics=1000, pause_ms=200)
    port = free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": port, "mappedFileSizeCommitLog": 256 << 20}
    turns: dict[str, list[dict[str, float]]] = {"alone": [], "scraped": []}
    with (
        tempfile.TemporaryDirectory(prefix="bolide-scrape-") as directory,
        bolide_up(Path(directory), settings) as server,
    ):
        server.make_topics("Bench", options.topics)
        _load(server, "Bench", topics=options.topics, count=options.topics)
        server.make_topic("T")
        for turn in range(options.turns):
            for name in ("alone", "scraped") if turn % 2 else ("scraped", "alone"):
                with _scraping(port, options.pause_ms / 1000 if name == "scraped" else 0) as pages:
                    told = _load(server, "T", seconds=options.seconds, warmup=options.warmup)
                sent = told["sends"]
                figures = {"rate": sent / told["seconds"], "cpu_us": told["cpu_s"] / sent * 1e6}
                turns[name].append({**figures, "pages": len(pages), "page_kb": max(pages, default=0) / 1024})
    rows = {
        name: {key: round(statistics.median(turn[key] for turn in some), 2) for key in some[0]}
        for name, some in turns.items()
    }
    ratio = rows["scraped"]["rate"] / rows["alone"]["rate"]
    cpu = rows["scraped"]["cpu_us"] / rows["alone"]["cpu_us"]
    print(f"{QUESTION} rate x {ratio:.2f}, CPU a message x {cpu:.2f}: {rows}")
    told_line = {"question": QUESTION, "rows": rows, "rate_ratio": round(ratio, 3), "cpu_ratio": round(cpu, 3)}
    line = json.dumps({**told_line, "turns": turns, "machine": machine(), "commit": commit()})
    print(line)
    if options.keep:
        with (RESULTS / "scrape.jsonl").open("a", encoding="utf-8") as results:
            results.write(line + "\n")
    return {**told_line, "turns": turns}


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
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                pages.append(len(answer.read()))

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
