"""What does an honest client notice while somebody floods the servers, and what is left of it afterwards?

`bolide up` runs in a process of its own, the flood in another. The honest client is here: it sends one message after
the other, each some milliseconds after the last, and waits for each with a long poll on a second connection. A send
that is answered late counts for those that were due meanwhile too. Told for each flood: how long its sends took (p50,
p99, and the p99 as a multiple of that before the flood), how long deliveries took, the longest time in which it was
refused, the server's memory during it at most and some seconds afterwards as a multiple of before, the bytes of log
for each byte that the flood sent, and the longest stretch in which the server's loop worked without a pause, in
processor time (`stretches.py`), from the flood's beginning to some seconds after its end.

Two figures tell the server's part from the machine's, which others may use. `own p99` is how long 99 of 100 who come
at any moment wait at most for the loop's own work, by those stretches. And a second client asks a second server in the
same seconds, which nobody floods: `times` is the p99 of the one as a multiple of that of the other, or of its own quiet
one if that is more. Who has little to do is given a core sooner than who has much, so `times` errs upwards.

Where the gRPC port is flooded, the honest client sends by gRPC, and pulls as ever.

A server is started anew for each flood. What this does not show: floods from many machines, and several kinds at once.

    python -m benchmarks.hostile --seconds 6 --floods searches,parked_pulls
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.floods import FLOODS, HOST, Target, frame
from benchmarks.grpc_floods import GRPC_FLOODS, GrpcSender
from benchmarks.measure import commit, machine, publish
from benchmarks.stretches import Stretches
from bolide.protocol.command import Command, read_commands
from bolide.protocol.frames import FrameReader

QUESTION = "What does an honest client notice while somebody floods the servers?"
TOPIC = "Honest"
PAUSE_S = 0.004
DUE_S = 0.01  # a message at least so often, whether the one before was answered or not
START_LIMIT_S = 60.0
QUIET_S = 5.0  # at least: a short one has too few sends for its p99 to mean much
SETTLE_S = 12.0  # by then periodic work has set new timers; one old one keeps an arena of Python's
ALL_FLOODS = FLOODS | GRPC_FLOODS
REFUSED_CODES = (1, 2, 3, 14, 215)


@dataclass
class Noticed:
    """What the honest client saw in some seconds."""

    sends_s: list[float] = field(default_factory=list)
    deliveries_s: list[float] = field(default_factory=list)
    refused_s: float = 0.0  # the longest without a success between

    def at(self, share: float, times_s: list[float]) -> float:
        """So many milliseconds, or less, it took for this share of them."""
        return sorted(times_s)[min(int(len(times_s) * share), len(times_s) - 1)] * 1000 if times_s else float("nan")


class Refusals:
    """Since when one kind of request is refused."""

    def __init__(self) -> None:
        self.since_s: float | None = None

    def note(self, is_refused: bool, noticed: Noticed) -> None:
        now_s = time.monotonic()
        if not is_refused:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = now_s
        if self.since_s is not None:
            noticed.refused_s = max(noticed.refused_s, now_s - self.since_s)


class Peer:
    """One connection that asks and waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()

    async def ask(self, request: bytes) -> Command:
        self._writer.write(request)
        while True:
            chunk = await self._reader.read(1 << 16)
            if not chunk:
                raise ConnectionError("the server hung up on an honest client")
            for whole in self._frames.feed(chunk):
                return read_commands(whole, [0, len(whole)])[0]


class Honest:
    """A producer and a consumer of one queue."""

    def __init__(self, sender: Peer, taker: Peer, grpc: GrpcSender | None = None) -> None:
        self.noticed = Noticed()
        self._grpc = grpc
        self._sender, self._taker = sender, taker
        self._offset = 0

    async def send(self) -> None:
        refusals = Refusals()
        fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 0, "h": 0, "i": "", "j": 0}
        by_grpc = False  # the first message makes the topic
        while True:
            began_s, noticed = time.monotonic(), self.noticed
            body = b"%.6f" % began_s
            if self._grpc is not None and by_grpc:
                answer = await self._grpc.send(body)
            else:
                answer = await self._sender.ask(frame(310, body, **fields, k="false", m="false"))
            by_grpc = True
            took_s = time.monotonic() - began_s
            while took_s > 0:  # those that were due meanwhile would have waited too
                noticed.sends_s.append(took_s)
                took_s -= DUE_S
            refusals.note(answer.code in REFUSED_CODES, noticed)
            await asyncio.sleep(PAUSE_S)

    async def take(self) -> None:
        refusals = Refusals()
        while True:
            fields = {"consumerGroup": "honest", "topic": TOPIC, "queueId": 0, "queueOffset": self._offset}
            more = {"maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0}
            answer = await self._taker.ask(frame(11, b"", **fields, **more, subscription="*", expressionType="TAG"))
            refusals.note(answer.code in REFUSED_CODES, self.noticed)
            if answer.code in (0, 19, 20, 21):
                self._offset = int(answer.fields["nextBeginOffset"])
            if answer.code == 0:  # the body of the newest is its last word but the properties: found by its length
                self.noticed.deliveries_s.append(time.monotonic() - _sent_s(answer.body))
            elif answer.code != 19:
                await asyncio.sleep(PAUSE_S)


def _sent_s(records: bytes) -> float:
    from bolide.protocol.records import decode_records

    return float(list(decode_records(records))[-1].body)


@dataclass(frozen=True)
class Server:
    """`bolide up` in its process."""

    process: subprocess.Popen[bytes]
    log: Path
    broker: int
    namesrv: int
    grpc: int
    stretches: Stretches

    @property
    def memory(self) -> int:
        """Of its own, in kilobytes, without the pages of mapped files."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@asynccontextmanager
async def started(sources: str) -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(prefix="bolide-hostile-") as folder:
        root = Path(folder)
        ready, log, stretches = root / "ready", root / "log", root / "stretches"
        asked = ["up", "--port", "0", "--namesrv-port", "0", "--data", str(root / "data"), "--ready-file", str(ready)]
        small = ["--grpc-port", "0", "--set", "mappedFileSizeCommitLog=268435456"]
        paths = [sources, str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
        command = [sys.executable, "-m", "benchmarks.stretches", str(stretches), *asked, *small]
        with log.open("wb") as lines:
            process = subprocess.Popen(command, stdout=lines, stderr=lines, env=environment, cwd=root)  # noqa: ASYNC220
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not ready.exists():
                    if process.poll() is not None:
                        raise RuntimeError(log.read_text())
                    await asyncio.sleep(0.05)
            found = json.loads(ready.read_text())
            broker, namesrv, grpc = (_port(found, kind) for kind in ("broker", "namesrv", "grpc"))
            yield Server(process, log, broker, namesrv, grpc, Stretches(stretches))
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()


def _port(found: dict[str, object], kind: str) -> int:
    text = next(str(value) for key, value in found.items() if kind in key.lower() and ":" in str(value))
    return int(text.rpartition(":")[2].strip("[]'\" "))


@asynccontextmanager
async def honest(server: Server, *, by_grpc: bool = False) -> AsyncIterator[Honest]:
    sender, taker = [Peer(*await asyncio.open_connection(HOST, server.broker)) for _ in range(2)]
    grpc = GrpcSender(*await asyncio.open_connection(HOST, server.grpc), TOPIC) if by_grpc else None
    client = Honest(sender, taker, grpc)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(client.send())
        await asyncio.sleep(0.5)
        taking = group.create_task(client.take())
        yield client
        sending.cancel()
        taking.cancel()


async def watched(client: Honest, seconds: float) -> Noticed:
    client.noticed = Noticed()
    await asyncio.sleep(seconds)
    return client.noticed


async def measured(name: str, seconds: float, sources: str) -> dict[str, float | str]:
    """One flood against a new server."""
    async with (
        started(sources) as server,
        started(sources) as calm_server,
        honest(server, by_grpc=name in GRPC_FLOODS) as client,
        honest(calm_server, by_grpc=name in GRPC_FLOODS) as calm,
    ):
        await watched(client, 1.0)
        server.stretches.begin()
        quiet = await watched(client, max(seconds, QUIET_S))
        quiet_stretch_s, quiet_wait_s = server.stretches.longest_s, server.stretches.wait_s(0.99)
        memory, logged = server.memory, server.log.stat().st_size
        command = [sys.executable, "-m", "benchmarks.hostile", "--flood", name, "--seconds", str(seconds)]
        ports = ["--broker", str(server.broker), "--namesrv", str(server.namesrv), "--grpc", str(server.grpc)]
        client.noticed, calm.noticed = noticed, beside = Noticed(), Noticed()
        server.stretches.begin()
        flood = await asyncio.create_subprocess_exec(*command, *ports, stdout=subprocess.PIPE)
        telling = asyncio.ensure_future(flood.communicate())
        highest = memory
        while not telling.done():
            highest = max(highest, server.memory)
            await asyncio.wait([telling], timeout=0.2)
        own_s = server.stretches.wait_s(0.99)
        sent = int((await telling)[0] or 0)
        await asyncio.sleep(SETTLE_S)
        before_ms, during_ms = quiet.at(0.99, quiet.sends_s), noticed.at(0.99, noticed.sends_s)
        beside_ms = beside.at(0.99, beside.sends_s)
        return {
            "flood": name,
            "p50 ms": noticed.at(0.5, noticed.sends_s),
            "p99 ms": during_ms,
            "quiet p99": before_ms,
            "calm p99": beside_ms,
            "times": during_ms / max(before_ms, beside_ms),
            "own p99": own_s * 1000,
            "quiet own p99": quiet_wait_s * 1000,
            "stretch ms": server.stretches.longest_s * 1000,
            "quiet stretch": quiet_stretch_s * 1000,
            "delivery p99": noticed.at(0.99, noticed.deliveries_s),
            "refused s": noticed.refused_s,
            "MB": memory / 1024,
            "peak ratio": highest / memory,
            "after ratio": server.memory / memory,
            "log/sent": (server.log.stat().st_size - logged) / max(sent, 1),
            "sent MB": sent / 1e6,
        }


async def run(names: Sequence[str], seconds: float, sources: str = "") -> list[dict[str, float | str]]:
    rows = []
    for name in names:
        try:
            rows.append(await measured(name, seconds, sources))
        except* (OSError, ConnectionError) as problem:
            rows.append({"flood": name, "failed": str(problem.exceptions[0])})
        print(_line(rows[-1]), flush=True)
    return rows


def _line(row: dict[str, float | str]) -> str:
    return "  ".join(f"{key} {value if isinstance(value, str) else format(value, '.2f')}" for key, value in row.items())


def main(argv: Sequence[str] | None = None) -> list[dict[str, float | str]]:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--floods", default=",".join(ALL_FLOODS), help="by name, with commas between; default all")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--sources", default="", help="where the server's package is, to compare another state of it")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--broker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--grpc", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.flood:
        target = Target(options.broker, options.namesrv, options.grpc, options.seconds)
        print(ALL_FLOODS[options.flood](target))
        return []
    rows = asyncio.run(run(options.floods.split(","), options.seconds, options.sources))
    told = {"question": QUESTION, "rows": rows, "seconds": options.seconds, "machine": machine(), "commit": commit()}
    publish(json.dumps(told), is_kept=options.keep)
    return rows


if __name__ == "__main__":
    main()
