"""How many frames a second go through one connection?

One server process, one connection, a number of requests in flight. The load is a process of its own that only moves
bytes: it sends ready-made requests in bursts and counts the bytes of the answers, so what is measured is the server's
side. `--door serve` makes a command of each frame, asks the owner and encodes each answer, as for any request without a
fast path; `--door turn` answers a whole read with one call into the kernel; `--door wait` is `serve` with an awaitable,
which costs a task. `us each` is the server's CPU for one request and its answer.

What it does not show: a network (all is loopback), an owner that does real work, more than one connection.

    python -m benchmarks.connection --count 200000 --in-flight 64 --door serve --kernel compiled
"""

import asyncio
import multiprocessing
import socket
import time
import zlib
from argparse import Namespace
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Work, measure, read_arguments

if TYPE_CHECKING:
    from bolide.protocol.command import Command
    from bolide.remoting.owner import Answered, Read
    from bolide.remoting.session import Reply, Request, Session

QUESTION = "How many frames a second go through one connection?"
TOPIC = b"benchmark"


class Echo:
    """An owner that answers every request with a small body, through the door it was told."""

    def __init__(self, door: str, body: bytes) -> None:
        self._door = door
        self._bodies = {TOPIC: body}
        self.count = 0

    def on_answer(self, request: "Request", answer: "Command") -> None:
        pass

    def handle_turn(self, reads: "Sequence[Read]") -> "list[Answered]":
        return [self._answer_read(read) for read in reads]

    def _answer_read(self, read: "Read") -> "Answered":
        if self._door != "turn":
            return b"", read.bounds
        from bolide import kernel

        answers, left = kernel.answer_routes(read.stream, read.bounds, self._bodies, self._bodies, 479)
        self.count += (len(read.bounds) - len(left)) // 2
        return answers, left

    def serve(self, request: "Request") -> "Reply | Awaitable[Reply]":
        self.count += 1
        return self._later(request) if self._door == "wait" else self._answer(request)

    async def _later(self, request: "Request") -> "Reply":
        await asyncio.sleep(0)
        return self._answer(request)

    def _answer(self, request: "Request") -> "Reply":
        return request.command.answer(0, body=self._bodies[TOPIC])

    def closed(self, session: "Session", why: str) -> None:
        pass


def load(port: int, requests: list[bytes], answer_sizes: list[int], in_flight: int, results: Any) -> None:
    """Keep `in_flight` requests under way until all are answered; tells the seconds and a checksum of the answers."""
    sent = answered = waiting_size = checksum = 0
    began_s = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while answered < len(requests):
                if sent < min(answered + in_flight, len(requests)):
                    connection.sendall(b"".join(requests[sent : answered + in_flight]))
                    sent = min(answered + in_flight, len(requests))
                chunk = connection.recv(1 << 16)
                if not chunk:
                    break
                checksum = zlib.crc32(chunk, checksum)
                waiting_size += len(chunk)
                while answered < len(requests) and waiting_size >= answer_sizes[answered]:
                    waiting_size -= answer_sizes[answered]
                    answered += 1
    finally:
        results.put((answered, time.perf_counter() - began_s, checksum))


async def run(options: Namespace) -> Work:
    from bolide.clock import SystemClock
    from bolide.protocol.command import Command
    from bolide.remoting.listen_config import ListenConfig
    from bolide.remoting.server import listen

    body = bytes(options.body)
    commands = [Command(105, opaque=n, fields={"topic": TOPIC.decode()}) for n in range(options.count)]
    requests = [command.encode() for command in commands]
    sizes = [len(command.answer(0, body=body).encode()) for command in commands]
    owner = Echo(options.door, body)
    processes = multiprocessing.get_context("spawn")
    results = processes.SimpleQueue()
    async with listen(ListenConfig(host="127.0.0.1"), owner, SystemClock()) as server:
        child = processes.Process(target=load, args=(server.port, requests, sizes, options.in_flight, results))
        child.start()
        began_s = time.process_time()
        answered, elapsed_s, checksum = await asyncio.get_running_loop().run_in_executor(None, results.get)
        cpu_s = time.process_time() - began_s
        child.join()
    assert answered == owner.count == options.count, f"{owner.count} served and {answered} answered of {options.count}"
    return Work(answered, "requests", elapsed_s, checksum, {"us each": cpu_s / answered * 1e6})


def main(argv: Sequence[str] | None = None) -> None:
    options = read_arguments(
        QUESTION, argv, count=50_000, in_flight=64, body=128, door=("serve", "turn", "wait"), loop=("uvloop", "asyncio")
    )
    measure(QUESTION, lambda: _run_on(options), runs=options.runs, parameters=vars(options), keep=options.keep)


def _run_on(options: Namespace) -> Work:
    import uvloop

    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(run(options))


if __name__ == "__main__":
    main()
