"""What a hostile peer sends, a function for each kind: it sends for some seconds and returns how many bytes that was.

Each is run in a process of its own (`hostile.py`), with plain sockets: a flood need not be polite, but has to be fast.
Whatever the server answers, refuses or hangs up on is read and forgotten.
"""

import contextlib
import json
import select
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bolide.protocol.command import Command

HOST = "127.0.0.1"
TOPIC = "Flooded"
_THREE_DAYS_MS = 3 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Target:
    """The ports of a server, and how long to send."""

    broker: int
    namesrv: int
    grpc: int
    seconds: float


class Line:
    """A connection that takes whatever comes back."""

    def __init__(self, port: int) -> None:
        self.end = socket.create_connection((HOST, port))
        self.end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self.end, select.POLLIN | select.POLLOUT)

    def write(self, data: bytes, until_s: float) -> int:
        """As much of it as is taken before then; an end by the server is raised."""
        view, sent = memoryview(data), 0
        while sent < len(view) and time.monotonic() < until_s:
            ready = sum(events for _, events in self._poll.poll(50))
            if ready & ~select.POLLOUT and not self.end.recv(1 << 16):
                raise ConnectionError("hung up")
            if ready & select.POLLOUT:
                sent += self.end.send(view[sent : sent + (1 << 18)])
        return sent


def frame(code: int, body: bytes = b"", /, **fields: object) -> bytes:
    return Command(code, opaque=1, fields={key: str(value) for key, value in fields.items()}, body=body).encode()


def again_and_again(target: Target, port: int, frames: Callable[[], Iterator[bytes]], lines: int = 1) -> int:
    """Send over some connections in turn until the time is over; one that is hung up on is made anew."""
    until_s, sent = time.monotonic() + target.seconds, 0
    open_lines: list[Line | None] = [None] * lines
    while time.monotonic() < until_s:
        for number in range(lines):
            for data in frames():
                try:
                    line = open_lines[number] = open_lines[number] or Line(port)
                    sent += line.write(data, until_s)
                except OSError:
                    open_lines[number] = None
    return sent


def _hold(target: Target, connections: int, data: bytes) -> int:
    """The same over many connections, which stay open to the end."""
    until_s, sent, lines = time.monotonic() + target.seconds, 0, []
    for _ in range(connections):
        with contextlib.suppress(OSError):
            lines.append(Line(target.broker))
            sent += lines[-1].write(data, until_s)
        if time.monotonic() >= until_s:
            break
    time.sleep(max(until_s - time.monotonic(), 0))
    return sent


def _send(body: bytes, properties: str) -> bytes:
    fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 0, "h": 0, "i": properties, "j": 0}
    return frame(310, body, **fields, k="false", m="false")


def _fill(target: Target, count: int, properties: str) -> None:
    line = Line(target.broker)
    line.write(_send(b"x", properties) * count, time.monotonic() + 30)
    line.end.settimeout(2)
    with contextlib.suppress(OSError):
        while line.end.recv(1 << 16):
            pass


def _heartbeat(client_id: str, groups: list[str], quote: str = '"') -> bytes:
    body = json.dumps({"clientID": client_id, "producerDataSet": [{"groupName": each} for each in groups]})
    return frame(34, body.replace('"clientID"', f"{quote}clientID{quote}").encode())


def client_ids(target: Target) -> int:
    """Heartbeats, each with another client id of a megabyte."""
    number = iter(range(1 << 30))
    return again_and_again(
        target, target.broker, lambda: iter([_heartbeat(f"{next(number)}" + "x" * 1_000_000, ["g"])])
    )


def counters(target: Target) -> int:
    """Batch acknowledgements of groups and topics that are not here."""
    number = iter(range(1 << 30))

    def frames() -> Iterator[bytes]:
        first = next(number)
        acks = [{"c": f"g{first}-{n}", "t": f"t{first}-{n}", "b": "AQ==", "rq": 0, "q": 0} for n in range(50_000)]
        yield frame(200151, json.dumps({"brokerName": "b", "acks": acks}).encode())

    return again_and_again(target, target.broker, frames)


def log_lines(target: Target) -> int:
    """Heartbeats with a thousand groups and a client id of 200 KB."""
    number = iter(range(1 << 30))
    groups = [f"g{n}" for n in range(1_000)]
    return again_and_again(target, target.broker, lambda: iter([_heartbeat(f"{next(number)}" + "y" * 200_000, groups)]))


def checkpoints(target: Target) -> int:
    """Pops that hide each message for three days."""
    _fill(target, 20_000, "")
    fields = {"consumerGroup": "hider", "topic": TOPIC, "queueId": 0, "maxMsgNums": 1, "invisibleTime": _THREE_DAYS_MS}
    one = frame(200050, **fields, pollTime=0, bornTime=int(time.time() * 1000), initMode=0, expType="TAG", exp="*")
    return again_and_again(target, target.broker, lambda: iter([one * 64]))


def registrations(target: Target) -> int:
    """Compressed registrations with as many topics as fit."""
    topics = {
        f"t{n}": {"topicName": f"t{n}", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6} for n in range(200_000)
    }
    plain = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}, "filterServerList": []}).encode()
    text = {"brokerName": "x", "brokerAddr": "10.9.9.9:1", "clusterName": "c", "haServerAddr": "10.9.9.9:2"}
    whole = frame(103, zlib.compress(plain), **text, brokerId=0, compressed="true", bodyCrc32=0)
    return again_and_again(target, target.namesrv, lambda: iter([whole]))


def _header(field_count: int) -> bytes:
    fields = ",".join(f'"k{n}":"v"' for n in range(field_count))
    head = '{"code":11,"language":"JAVA","version":1,"opaque":1,"flag":0,"extFields":{"a":"\\u0001",'
    text = f"{head}{fields}}}}}".encode()
    return (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


def headers(target: Target) -> int:
    """Headers with a million fields, and with as many as the bound on headers lets through."""
    return again_and_again(target, target.broker, lambda: iter([_header(1_000_000), *[_header(10_500)] * 20]))


def filters(target: Target) -> int:
    """Pulls that compare a long property hundreds of times."""
    _fill(target, 300, "p\x01" + "x" * 30_000 + "\x02")
    expression = " OR ".join(f"p CONTAINS 'y{n}'" for n in range(540))
    pulls = b"".join(_pull(TOPIC, 0, 4, subscription=expression, expressionType="SQL92") for _ in range(8))
    return again_and_again(target, target.broker, lambda: iter([pulls]))


def _pull(topic: str, offset: int, flag: int, **more: object) -> bytes:
    fields: dict[str, object] = {
        "consumerGroup": "puller",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
    }
    rest = {"sysFlag": flag, "commitOffset": 0, "suspendTimeoutMillis": 3_600_000, "subVersion": 0}
    return frame(11, b"", **{**fields, **rest, "subscription": "*", "expressionType": "TAG", **more})


def searches(target: Target) -> int:
    """Searches by a key that thousands of messages share, hundreds at a time."""
    _fill(target, 20_000, "KEYS\x01k\x02")
    one = frame(12, topic=TOPIC, key="k", maxNum=64, beginTimestamp=0, endTimestamp=1)
    return again_and_again(target, target.broker, lambda: iter([one * 500]), lines=6)


def expressions(target: Target) -> int:
    """Pulls over eight connections, each with an expression that nobody has seen."""
    number = iter(range(1 << 30))

    def frames() -> Iterator[bytes]:
        expression = f"z{next(number)} = 1 OR " + " OR ".join(f"a{n} > {n}" for n in range(400))
        yield _pull(TOPIC, 0, 4, subscription=expression, expressionType="SQL92")

    _fill(target, 1, "")
    return again_and_again(target, target.broker, frames, lines=8)


def odd_heartbeats(target: Target) -> int:
    """Heartbeats of 0.7 MB with one single quote, which only the slow reader reads."""
    one = _heartbeat("odd", [f"group-{n}" for n in range(25_000)], quote="'")
    return again_and_again(target, target.broker, lambda: iter([one]), lines=6)


def parked_pulls(target: Target) -> int:
    """A hundred thousand pulls that wait, over seven connections."""
    _fill(target, 1, "")
    return _hold(target, 7, _pull(TOPIC, 1, 6) * 15_000)


def large_beginnings(target: Target) -> int:
    """Sixty frames of 16 MB without their last byte."""
    size = (16 << 20) - 8
    return _hold(target, 60, size.to_bytes(4, "big") + (10).to_bytes(4, "big") + bytes(size - 100))


def small_beginnings(target: Target) -> int:
    """Thousands of connections with twenty bytes of a frame."""
    return _hold(target, 4_000, (1 << 20).to_bytes(4, "big") + (10).to_bytes(4, "big") + bytes(12))


def garbage(target: Target) -> int:
    """Connections that send what is no frame."""
    return again_and_again(target, target.broker, lambda: iter([b"\x7f\xff\xff\xffgarbage of thirty-two bytes."]))


FLOODS: dict[str, Callable[[Target], int]] = {
    flood.__name__: flood
    for flood in (
        client_ids,
        counters,
        log_lines,
        checkpoints,
        registrations,
        headers,
        filters,
        searches,
        expressions,
        odd_heartbeats,
        parked_pulls,
        large_beginnings,
        small_beginnings,
        garbage,
    )
}
