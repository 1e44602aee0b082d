"""The C++ client of the PyPI package `rocketmq`, as a program of its own: what it did is printed as lines of JSON.

A native library that breaks takes its process with it, so it does not run inside the tests. The last line says that the
work was done; after it the process ends at once, for the library's threads are not ours to wait for.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

LIMIT_S = 60
SEND_TIMEOUT_MS = 10_000
POLL_INTERVAL_S = 0.02


def main() -> None:
    options = parse()
    WORK[options.work](options)
    say({"done": options.work})
    os._exit(0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORK)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--expression", default="*")
    parser.add_argument("--tags", default="TagA,TagB", help="taken by turns")
    parser.add_argument("--shards", type=int, default=3, help="orders: how many there are at a time")
    return parser.parse_args()


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def producer(options: argparse.Namespace) -> Iterator[Producer]:
    it = Producer(options.group, timeout=SEND_TIMEOUT_MS)
    it.set_namesrv_addr(options.namesrv)
    it.start()
    yield it
    it.shutdown()


def message(options: argparse.Namespace, number: int) -> Message:
    tags = options.tags.split(",")
    it = Message(options.topic)
    it.set_keys(f"key-{number}")
    it.set_tags(tags[number % len(tags)])
    it.set_property("number", str(number))
    it.set_body(f"body {number}")
    return it


def send_sync(options: argparse.Namespace) -> None:
    with producer(options) as it:
        for number in range(options.count):
            receipt = it.send_sync(message(options, number))
            say({"number": number, "status": receipt.status.name, "id": receipt.msg_id, "offset": receipt.offset})


def send_oneway(options: argparse.Namespace) -> None:
    with producer(options) as it:
        for number in range(options.count):
            it.send_oneway(message(options, number))


def send_ordered(options: argparse.Namespace) -> None:
    """Each shard has a queue of its own; its messages are sent one after the other."""
    with producer(options) as it:
        for number in range(options.count):
            receipt = it.send_orderly(message(options, number), number % options.shards)
            say({"number": number, "status": receipt.status.name, "id": receipt.msg_id, "offset": receipt.offset})


def push(options: argparse.Namespace, *, orderly: bool = False) -> None:
    """Consume until `count` messages came."""
    lock = threading.Lock()
    seen: set[tuple[int, int]] = set()
    is_enough = threading.Event()

    def take(received: Any) -> None:
        with lock:
            say(shown(received))
            seen.add((received.queue_id, received.queue_offset))
            if len(seen) >= options.count:
                is_enough.set()

    it = PushConsumer(options.group, orderly=orderly)
    it.set_namesrv_addr(options.namesrv)
    it.subscribe(options.topic, take, options.expression)
    it.start()
    is_enough.wait(LIMIT_S)
    it.shutdown()


def push_orderly(options: argparse.Namespace) -> None:
    push(options, orderly=True)


def pull(options: argparse.Namespace) -> None:
    """Pull all queues until `count` messages came."""
    it = PullConsumer(options.group)
    it.set_namesrv_addr(options.namesrv)
    it.start()
    count = 0
    deadline_s = time.monotonic() + LIMIT_S
    while count < options.count and time.monotonic() < deadline_s:
        for received in it.pull(options.topic, options.expression):
            say(shown(received))
            count += 1
        time.sleep(POLL_INTERVAL_S)
    it.shutdown()


def shown(received: Any) -> dict[str, Any]:
    return {
        "topic": received.topic,
        "number": int(received["number"]),
        "tags": received.tags.decode(),
        "keys": received.keys.decode(),
        "body": received.body.decode(),
        "queue": received.queue_id,
        "offset": received.queue_offset,
        "id": received.id,
        "attempts": received.reconsume_times,
    }


WORK: dict[str, Callable[[argparse.Namespace], None]] = {
    "send-sync": send_sync,
    "send-oneway": send_oneway,
    "send-ordered": send_ordered,
    "push": push,
    "push-orderly": push_orderly,
    "pull": pull,
}

if __name__ == "__main__":
    main()
