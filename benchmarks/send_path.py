"""What does a send cost the broker between the socket's read and write?

Frames of code 310 lie in memory, with the header a Java producer sends, and are given to the hot path as reads of so
many frames (--batch): headers read, records laid out with their checksum, one write to the log, queues and index fed,
answers ready. Asynchronous flush, one topic of eight queues. `us` is microseconds a message; `plain_us` is the same by
the plain path (commands read, served one by one and encoded), `kernel_us` the kernel's call alone.

What it does not show: sockets, the loop around it, parked pulls that wake, a disk that cannot keep up.

    python -m benchmarks.send_path --body 128 --batch 64
"""

import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many sends a second does the hot path take?"
QUEUE_COUNT = 8
RATIOS = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
PEER = "127.0.0.1:50000"
Take = Callable[[memoryview, list[int]], bytes]


def frames(count: int, body_size: int) -> bytes:
    """One read: sends as Java's producer writes them."""
    from bolide.protocol.command import Command
    from bolide.protocol.headers.send import SendMessageRequest
    from bolide.protocol.properties import join_properties

    commands = []
    for number in range(count):
        properties = {"UNIQ_KEY": f"7F000001000018B4AAC2{number:012X}", "WAIT": "true", "TAGS": "TagA"}
        header = SendMessageRequest(
            producer_group="benchmark_producer",
            topic="BenchmarkTopic",
            default_topic="TBW102",
            default_topic_queue_count=4,
            queue_id=number % QUEUE_COUNT,
            sys_flag=0,
            born_ms=1_700_000_000_000,
            flag=0,
            properties=join_properties(properties),
            reconsume_times=0,
            addressed_broker="broker-a",
        )
        body = b"x" * body_size
        commands.append(Command(310, opaque=number, fields=header.encode(short=True), body=body, language=0))
    return b"".join(command.encode() for command in commands)


class Peer:
    """As much of a session as sending asks for."""

    peer = PEER


@contextmanager
def paths(root: Path) -> Iterator[tuple[Take, Take]]:
    """The fast path and the general one over a store of their own."""
    from bolide.broker.config import read_config
    from bolide.broker.hotpath import HotPath
    from bolide.broker.intake import Intake
    from bolide.broker.later.routing import DelayRouter
    from bolide.broker.members.locks import Locks
    from bolide.broker.sending.send import Sends
    from bolide.broker.state import BrokerState
    from bolide.broker.tables.open_topics import OpenTopics
    from bolide.broker.tables.table_files import TableWriter
    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.protocol.bodies.topics import TopicConfig
    from bolide.protocol.command import encode_commands, read_commands
    from bolide.remoting.owner import Read, Request
    from bolide.store.store import Store

    ratios = dict.fromkeys(
        ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), "100"
    )
    config, clock = read_config({"storePathRootDir": str(root), **ratios}), SystemClock()
    with (
        ThreadPoolExecutor(1) as file_thread,
        Store.open(config.store, clock, Host("127.0.0.1", 10911).packed()) as store,
    ):
        table_writer = TableWriter(file_thread)
        state = BrokerState.open(config, store, table_writer, clock)
        state.topics.update(TopicConfig(topic_name="BenchmarkTopic", read_queue_nums=8, write_queue_nums=8))
        open_topics = OpenTopics(state.topics, state.settings, table_writer)
        intake = Intake(state, DelayRouter(store.config.delay_levels))
        sends = Sends(state, intake, open_topics, Locks(clock))
        hot = HotPath(state, intake, open_topics)
        peer: Any = Peer()

        def take(stream: memoryview, bounds: list[int]) -> bytes:
            ((answers, left),) = hot.handle_turn([Read(peer, stream, bounds)])
            assert not left
            return answers

        def serve(stream: memoryview, bounds: list[int]) -> bytes:
            now_s = clock.monotonic_s()
            served: list[Any] = [sends.send(Request(each, peer, now_s)) for each in read_commands(stream, bounds)]
            return encode_commands(served)

        yield take, serve


def timed(take: Take, stream: memoryview, bounds: list[int], count: int) -> tuple[float, bytes]:
    take(stream, bounds)  # the first one makes files
    started_s = time.perf_counter()
    for _ in range(count):
        answers = take(stream, bounds)
    return time.perf_counter() - started_s, answers


def kernel_alone() -> Take:
    from bolide import kernel
    from bolide.broker.hotpath import answer_heads
    from bolide.kernel.layout import SendRules

    host = bytes(8)
    rules = SendRules(host, b"CLUSTER\x01DefaultCluster\x02", *answer_heads("DefaultRegion", True), 479, 4 << 20, False)
    topics = {b"BenchmarkTopic": ("BenchmarkTopic", QUEUE_COUNT)}

    def take(stream: memoryview, bounds: list[int]) -> bytes:
        return kernel.encode_sends([(stream, bounds, host)], topics, rules, 0, 1_700_000_000_000, {})[3][0][0][0]

    return take


def run(body_size: int, batch: int, count: int, directory: str) -> Work:
    from bolide import kernel

    content = frames(batch, body_size)
    bounds, _, _ = kernel.cut_frames(content, len(content), 1 << 24)
    stream = memoryview(content)
    root = Path(tempfile.mkdtemp(dir=directory or None))
    try:
        reads = max(count // batch, 1)
        with paths(root) as (take, serve):
            elapsed_s, answers = timed(take, stream, bounds, reads)
            fewer = max(reads // 10, 1)
            plain_s, _ = timed(serve, stream, bounds, fewer)
        kernel_s, _ = timed(kernel_alone(), stream, bounds, reads)
        facts = {
            "us": elapsed_s / (reads * batch) * 1e6,
            "plain_us": plain_s / (fewer * batch) * 1e6,
            "kernel_us": kernel_s / (reads * batch) * 1e6,
        }
        return Work(reads * batch, "sends", elapsed_s, zlib.crc32(answers), facts)
    finally:
        shutil.rmtree(root)


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=128, batch=64, count=400_000, directory="")
    return measure(
        QUESTION,
        lambda: run(options.body, options.batch, options.count, options.directory),
        runs=options.runs,
        parameters=vars(options),
        keep=options.keep,
    )


if __name__ == "__main__":
    main()
