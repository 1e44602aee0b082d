"""What does a pull of 32 messages cost the broker, from the bytes of its request to the bytes of its answer?

One topic of --queues queues with messages of --body bytes, all in the page cache, pulled from the first to the last
offset by a group that subscribed with its heartbeat, --pipeline requests a read. `--path plain` shows the way of rare
pulls: a header read field by field, a view for each record. What it does not show: the socket and the loop, a cold
disk, consumers that wait.

    python -m benchmarks.pull_path
"""

import asyncio
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.measure import Answer, Work, measure, read_arguments

if TYPE_CHECKING:
    from bolide.broker.pulling.pull import Pulls
    from bolide.store.store import Store

QUESTION = "How many messages a second do pulls hand out?"
TOPIC, GROUP = "BenchmarkTest", "benchmark_consumer"


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(
        QUESTION, argv, body=128, count=400_000, pull=32, queues=4, pipeline=1, expression="*", path=("hot", "plain")
    )
    root = Path(tempfile.mkdtemp())
    try:
        with ThreadPoolExecutor(1) as file_thread:
            return asyncio.run(_measure(options, root, file_thread))
    finally:
        shutil.rmtree(root)


async def _measure(options: Any, root: Path, file_thread: ThreadPoolExecutor) -> Answer:
    from bolide.broker.config import read_config
    from bolide.broker.pulling.access import PullAccess
    from bolide.broker.pulling.filter_budget import FilterBudget
    from bolide.broker.pulling.longpoll import ParkedPulls
    from bolide.broker.pulling.pull import Pulls
    from bolide.broker.state import BrokerState
    from bolide.broker.tables.filters import Filters
    from bolide.broker.tables.table_files import TableWriter
    from bolide.clock import SystemClock
    from bolide.store.store import Store

    clock = SystemClock()
    full = dict.fromkeys(("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), "100")
    config = read_config({"storePathRootDir": str(root), **full})
    table_writer = TableWriter(file_thread)
    with Store.open(config.store, clock) as store:
        state = BrokerState.open(config, store, table_writer, clock)
        access = PullAccess(state, Filters(state.settings, table_writer, clock))
        pulls = Pulls(state, access, ParkedPulls(state.settings, clock), FilterBudget(clock))
        stats = state.stats
        state.members.heard(cast(Any, object()), _heartbeat(options.expression), 0, 0)
        count = _fill(store, options.count, options.queues, options.body)
        reads = _reads(count // options.queues, options.queues, options.pull, options.pipeline)
        answer = _hot(pulls) if options.path == "hot" else _plain(pulls)

        def run() -> Work:
            checksum = stats.got_total.count = 0
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            for stream, bounds in reads:
                checksum = zlib.adler32(answer(stream, bounds)[-64:], checksum)
            took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
            facts = {"cpu_us a pull": cpu_s / (len(reads) * options.pipeline) * 1e6}
            return Work(stats.got_total.count, "messages", took_s, checksum, facts)

        return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


def _heartbeat(expression: str) -> Any:
    from bolide.protocol.bodies import ConsumerMember, Heartbeat, Subscription

    subscription = Subscription(topic=TOPIC, sub_string=expression, sub_version=1)
    member = ConsumerMember(group_name=GROUP, subscription_data_set=[subscription])
    return Heartbeat(client_id="benchmark", consumer_data_set=[member])


def _fill(store: "Store", count: int, queue_count: int, body_size: int) -> int:
    """Store whole pulls in every queue; returns how many messages there are."""
    from bolide.model.host import Host
    from bolide.store.record import Draft

    host = Host("127.0.0.1", 10911).packed()
    batch = [
        Draft(TOPIC, n % queue_count, b"x" * body_size, b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, host)
        for n in range(32 * queue_count)
    ]
    for _ in range(max(1, count // len(batch))):
        store.append(batch)
    return max(1, count // len(batch)) * len(batch)


def _reads(depth: int, queue_count: int, pull: int, pipeline: int) -> list[tuple[memoryview, list[int]]]:
    """The requests of a consumer that goes through all queues, as they would lie in reads of a socket."""
    from bolide import kernel
    from bolide.protocol.codes import RequestCode
    from bolide.protocol.command import Command
    from bolide.protocol.headers import PullMessageRequest

    frames: list[bytes] = []
    for offset in range(0, depth - pull + 1, pull):
        for queue_id in range(queue_count):
            header = PullMessageRequest(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=queue_id,
                queue_offset=cast(Any, offset),
                message_count_max=pull,
                sys_flag=3,
                commit_offset=cast(Any, offset),
                suspend_timeout_ms=15_000,
                subscription_version=1,
                expression_type="TAG",
                answer_size_max=262_144,
            )
            frames.append(Command(RequestCode.PULL_MESSAGE, opaque=len(frames), fields=header.encode()).encode())
    reads = []
    for first in range(0, len(frames) - pipeline + 1, pipeline):
        stream = b"".join(frames[first : first + pipeline])
        reads.append((memoryview(stream), kernel.cut_frames(stream, len(stream), 1 << 24)[0]))
    return reads


def _hot(pulls: "Pulls") -> Callable[[memoryview, list[int]], bytes]:
    from bolide.remoting.owner import Read

    def answer(stream: memoryview, bounds: list[int]) -> bytes:
        frames, left = pulls.answer_read(Read(cast(Any, None), stream, bounds))
        assert not left
        return frames

    return answer


def _plain(pulls: "Pulls") -> Callable[[memoryview, list[int]], bytes]:
    from bolide.protocol.command import Command, read_commands
    from bolide.remoting.owner import Request

    def answer(stream: memoryview, bounds: list[int]) -> bytes:
        frames = []
        for command in read_commands(stream, bounds):
            reply = pulls.pull(Request(command, cast(Any, None), 0.0))
            assert isinstance(reply, Command)
            frames.append(reply.encode())
        return b"".join(frames)

    return answer


if __name__ == "__main__":
    main()
