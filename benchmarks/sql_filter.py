"""How many messages a second does a broker examine for an SQL92 filter, and how does that compare with Java's?

The same messages go to both brokers, in batches: each has a body and the properties of an order, and one in a hundred
satisfies the expression. Then one consumer per queue walks it from its first message to its last, with a pull in
flight at all times and the expression in each pull, as a lite pull consumer does; when all are through they begin anew,
until --seconds are over. The brokers take turns, and the first rounds of each are for warming up. What is counted is
every message between the first offset and the last, whether it was sent or not; what came is counted too, and has to be
the same from both. The processor time of each broker and of the consumers is told per message, and how many were
examined for one pull: both have Apache's settings, with which ours goes on until 32 have passed or two milliseconds are
over, and Apache's until it has looked at 800 (`maxFilterMessageSize`).

What it does not show: a network, messages that are not in memory any more, expressions that are left to the predicate
(`kernel/filter_layout.py` says which), and Apache's bit maps in the extended consume queue (`enableConsumeQueueExt`,
`enableCalcFilterBitMap`): both are off unless set, and serve only groups that subscribed before the messages came.

    python -m benchmarks.sql_filter                        # ours alone
    python -m benchmarks.sql_filter --java --keep          # both, in one run
    python -m benchmarks.sql_filter --smoke                # what the tests run
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import active_kernel, commit, machine, publish
from benchmarks.measured_brokers import QUEUES, Measured, bolide_up, java_up
from bolide.clock import SystemClock
from bolide.model.message import Message
from bolide.model.queue import QueueOffset
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers import PullMessageAnswer, PullMessageRequest
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from interop.process import await_that

QUESTION = "How many messages a second are examined for an SQL92 filter?"
TOPIC, GROUP = "BenchFilter", "bench_filter"
EXPRESSION = "region = 'north' AND price > 90 AND customer IS NOT NULL"
REGIONS = ("north", "south", "east", "west", "middle")
BATCH_COUNT = 1000
TIMEOUT_S = 60.0
RATE_MIN, TIMES_MIN = 300_000, 5


class Round(NamedTuple):
    """What one round showed, all but `found` as a mean."""

    examined_per_s: float
    found: int
    examined_a_pull: float
    broker_cpu_ns: float
    consumers_cpu_ns: float


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    options = read_options(argv)
    settings: dict[str, object] = {"enablePropertyFilter": "true", "autoCreateSubscriptionGroup": "true"}
    if options.smoke:
        options.count, options.rounds, options.warmup, options.seconds, options.java = 4000, 1, 0, 0, False
        settings |= {"mappedFileSizeCommitLog": 16 << 20}
    rounds: dict[str, list[Round]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory, ExitStack() as stack:
        starts = (bolide_up, java_up) if options.java else (bolide_up,)
        servers = [stack.enter_context(start(Path(directory), settings)) for start in starts]
        for server in servers:
            asyncio.run(fill(server, options.count, options.body))
            expect_stored(server, options.count)
        for _ in range(options.warmup + options.rounds):
            for server in servers:
                rounds.setdefault(server.kind, []).append(asyncio.run(walk(server, options.count, options.seconds)))
    found = {each.found for walked in rounds.values() for each in walked}
    if len(found) != 1:
        raise SystemExit(f"the brokers found different messages: {sorted(found)} in different runs")
    return tell(options, {kind: walked[options.warmup :] for kind, walked in rounds.items()}, found.pop())


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="rounds of each broker before those that count")
    parser.add_argument("--seconds", type=float, default=3, help="how long a round is, at least")
    parser.add_argument("--java", action="store_true", help="Java's broker beside ours")
    parser.add_argument("--smoke", action="store_true", help="seconds, without Java")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    return parser.parse_args(argv)


def messages(count: int, body_size: int) -> Iterator[Message]:
    """Orders; exactly one in a hundred satisfies the expression."""
    for i in range(count):
        is_wanted = i % 100 == 7
        properties = {
            "UNIQ_KEY": f"7F00000100002A9F{i:016X}",
            "WAIT": "true",
            "TAGS": "order",
            "region": "north" if is_wanted else REGIONS[i % 5],
            "price": str(91 + i % 9) if is_wanted else str(i * 7 % 91),
            "customer": f"c-{i % 9973}",
        }
        yield Message(topic=TOPIC, body=b"x" * body_size, properties=properties)


async def fill(server: Measured, count: int, body_size: int) -> None:
    server.make_topic(TOPIC)
    address = f"{server.broker[0]}:{server.broker[1]}"
    waiting: list[Message] = []
    async with Client(ConnectConfig(), SystemClock()) as client:
        for number, message in enumerate(messages(count, body_size), 1):
            waiting.append(message)
            if len(waiting) == BATCH_COUNT or number == count:
                fields = {"a": "bench", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number // BATCH_COUNT % QUEUES)}
                fields |= {"f": "0", "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
                command = Command(RequestCode.SEND_BATCH_MESSAGE, fields=fields, body=encode_batch(waiting))
                answer = await client.request(address, command, TIMEOUT_S)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                waiting.clear()


def expect_stored(server: Measured, count: int) -> None:
    await_that(f"{server.kind} has all {count:,}", lambda: server.message_count(TOPIC) == count, TIMEOUT_S)


async def walk(server: Measured, count: int, seconds: float) -> Round:
    """Every queue from end to end at the same time, again and again."""
    address = f"{server.broker[0]}:{server.broker[1]}"
    laps = pulls = 0
    found: set[int] = set()
    async with Client(ConnectConfig(), SystemClock()) as client:
        began_s, began_cpu_s, own_s = time.perf_counter(), server.cpu_s(), time.process_time()
        while not laps or time.perf_counter() < began_s + seconds:
            async with asyncio.TaskGroup() as group:
                walks = [group.create_task(walk_queue(client, address, i), name=f"walk.{i}") for i in range(QUEUES)]
            ends, founds, pull_counts = zip(*map(asyncio.Task.result, walks), strict=True)
            assert sum(ends) == count
            found.add(sum(founds))
            pulls += sum(pull_counts)
            laps += 1
        cpu_s, own_s = server.cpu_s() - began_cpu_s, time.process_time() - own_s
        elapsed_s = time.perf_counter() - began_s
    assert len(found) == 1, f"{server.kind} found different messages: {sorted(found)}"
    examined = laps * count
    return Round(examined / elapsed_s, found.pop(), examined / pulls, cpu_s / examined * 1e9, own_s / examined * 1e9)


async def walk_queue(client: Client, address: str, queue_id: int) -> tuple[int, int, int]:
    """Where it ended, how many came, and how many pulls that took."""
    offset = found = pulls = 0
    while True:
        header = PullMessageRequest(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=QueueOffset(offset),
            message_count_max=32,
            sys_flag=4,
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=0,
            subscription=EXPRESSION,
            subscription_version=0,
            expression_type="SQL92",
        )
        answer = await client.request(address, Command(RequestCode.PULL_MESSAGE, fields=header.encode()), TIMEOUT_S)
        pulls += 1
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return offset, found, pulls
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
        if answer.code == ResponseCode.SUCCESS:
            found += count_records(answer.body)
        offset = PullMessageAnswer.decode(answer.fields).next_offset


def count_records(body: bytes) -> int:
    """How many came, by their sizes alone: it is the broker that is measured, and client and broker share two cores."""
    count = at = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4], "big")
        count += 1
    return count


def tell(options: argparse.Namespace, rounds: dict[str, list[Round]], found: int) -> dict[str, Any]:
    medians = {kind: Round(*map(statistics.median, zip(*walked, strict=True))) for kind, walked in rounds.items()}
    rates = {kind: median.examined_per_s for kind, median in medians.items()}
    targets = {f"at least {RATE_MIN:,} examined/s": rates["bolide"] >= RATE_MIN}
    if "java" in rates:
        targets[f"at least {TIMES_MIN} times Java's"] = rates["bolide"] >= TIMES_MIN * rates["java"]
    record = {
        "question": QUESTION,
        "examined_per_s": {kind: round(rate) for kind, rate in rates.items()},
        "runs": {kind: [round(each.examined_per_s) for each in walked] for kind, walked in rounds.items()},
        "examined_a_pull": {kind: round(median.examined_a_pull) for kind, median in medians.items()},
        "broker_cpu_ns": {kind: round(median.broker_cpu_ns) for kind, median in medians.items()},
        "consumers_cpu_ns": {kind: round(median.consumers_cpu_ns) for kind, median in medians.items()},
        "count": options.count,
        "found": found,
        "body": options.body,
        "expression": EXPRESSION,
        "targets": targets,
        "machine": machine(),
        "commit": commit(),
        "kernel": active_kernel(),
    }
    sentence = ", ".join(f"{kind} {rate:,.0f}/s" for kind, rate in rates.items())
    print(f"{QUESTION} {sentence}; {found:,} of {options.count:,} pass")
    publish(json.dumps(record), is_kept=options.keep)
    return record


if __name__ == "__main__":
    main()
