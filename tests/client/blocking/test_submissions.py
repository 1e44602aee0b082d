"""Messages that were submitted by a program that ends without closing its producer: sent in time, or told of."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bolide
from bolide.testing import Cluster, cluster
from bolide.testing.nodes import free_port

LIMIT_S = 60


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def run(program: str, namesrv: str, *options: str) -> "subprocess.CompletedProcess[str]":
    sources = os.pathsep.join([str(Path(bolide.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": sources},
    )


def stored_count(rocket: Cluster, topic: str) -> int:
    with bolide.PullConsumer("count", rocket.namesrv) as walker:
        return sum(walker.max_offset(queue) for queue in walker.queues(topic))


@pytest.mark.parametrize("linger_ms", [0, 200])
def test_what_was_submitted_arrives_though_nobody_closed_the_producer(rocket: Cluster, linger_ms: int) -> None:
    program = f"""
        import bolide
        producer = bolide.Producer("pg", linger_ms={linger_ms})
        producer.start()
        for number in range(100):
            producer.submit("Left-{linger_ms}", b"%d" % number)
    """
    done = run(program, rocket.namesrv, "-X", "dev")
    assert done.returncode == 0
    assert "ResourceWarning: producer pg was not closed before the program ended" in done.stderr
    assert "may not have been stored" not in done.stderr
    assert stored_count(rocket, f"Left-{linger_ms}") == 100


def test_the_end_of_a_block_sends_all_that_was_submitted(rocket: Cluster) -> None:
    program = """
        import bolide
        with bolide.Producer("pg", linger_ms=200) as producer:
            for number in range(1000):
                producer.submit("Block", b"%d" % number)
    """
    done = run(program, rocket.namesrv, "-W", "error::ResourceWarning")
    assert (done.returncode, done.stderr) == (0, "")
    assert stored_count(rocket, "Block") == 1000


def test_what_could_not_be_sent_is_counted_and_the_program_still_ends() -> None:
    program = """
        import bolide
        producer = bolide.Producer("pg", timeout_s=1)
        producer.start()
        for number in range(100):
            producer.submit("Nowhere", b"%d" % number)
    """
    begun_s = time.monotonic()
    done = run(program, f"127.0.0.1:{free_port()}")
    assert time.monotonic() - begun_s < LIMIT_S / 2
    assert done.returncode == 0
    assert "submitted messages that were under way may not have been stored" in done.stderr


def test_in_asyncio_the_number_of_messages_that_were_left_is_told(rocket: Cluster) -> None:
    program = """
        import asyncio
        from bolide import aio

        async def main():
            producer = aio.Producer("pg", linger_ms=5000)
            await producer.start()
            for number in range(50):
                await producer.submit("AioLeft", b"%d" % number)

        asyncio.run(main())
    """
    done = run(program, rocket.namesrv)
    assert "producer pg was not closed before the program ended: 50 of the 50 submitted messages" in done.stderr


def test_a_program_that_left_nothing_open_ends_without_a_word(rocket: Cluster) -> None:
    program = """
        import asyncio
        import bolide
        from bolide import aio

        async def main():
            async with aio.Producer("pg") as producer:
                await producer.submit("Quiet", b"x")

        asyncio.run(main())
        producer = bolide.Producer("pg")
        producer.start()
        producer.submit("Quiet", b"x")
        producer.flush()
    """
    done = run(program, rocket.namesrv)
    assert (done.returncode, done.stderr) == (0, "")
