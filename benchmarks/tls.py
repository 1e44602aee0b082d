"""What does TLS cost a send, and how does that compare with Apache's broker?

One broker of ours and one of Apache's, each with a certificate, take the same load plainly and over TLS in turns: sends
of code 310 over 8 connections with 16 in flight each. The load is in Python with the standard library's TLS, a thread a
connection: it is slower than `broker_load.c` and no broker is at its limit, so the broker's CPU for each send is the
figure to look at, and not the rate.

What it does not show: handshakes, client certificates, a network.

    python -m benchmarks.tls
    python -m benchmarks.tls --without-java --seconds 1
"""

import json
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.measured_brokers import JAVA_HEAP, JAVA_RELEASE, Measured, bolide_up, read_load_options
from bolide.protocol.command import Command
from interop.certificates import make_certificate
from interop.cluster import java_broker, java_name_server

QUESTION = "What does TLS cost a send?"
TOPIC, CONNECTIONS, IN_FLIGHT, BODY_SIZE = "Encrypted", 8, 16, 128
LIMIT_S = 60.0


def frames(count: int) -> bytes:
    """So many sends, one behind the other."""
    fields = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
    fields |= {"j": "0", "k": "false", "m": "false"}
    properties = "UNIQ_KEY\x017F000001000018B4AAC2{:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    body = b"x" * BODY_SIZE
    return b"".join(
        Command(
            310,
            opaque=number,
            fields={**fields, "e": str(number % 4), "i": properties.format(number)},
            body=body,
            language=0,
        ).encode()
        for number in range(count)
    )


def answers_read(connection: socket.socket, count: int, rest: bytes) -> bytes:
    """Read so many answers; what is behind them is returned. Raises ConnectionError."""
    while count:
        while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
            assert b'"code":0' in rest[8 : 4 + size], rest[8 : 4 + size]
            count, rest = count - 1, rest[4 + size :]
        if count:
            found = connection.recv(1 << 16)
            if not found:
                raise ConnectionError("the broker hung up")
            rest += found
    return rest


def send_until(broker: Measured, end_s: float, counts: list[int], *, is_tls: bool) -> None:
    """One connection's load; how many were answered is added to `counts`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    batch, rest, count = frames(IN_FLIGHT), b"", 0
    with socket.create_connection(broker.broker, LIMIT_S) as plain:
        connection = context.wrap_socket(plain) if is_tls else plain
        while not count or time.monotonic() < end_s:  # a busy machine may need all the time for the hand-shake
            connection.sendall(batch)
            rest = answers_read(connection, IN_FLIGHT, rest)
            count += IN_FLIGHT
    counts.append(count)


def load(broker: Measured, seconds: float, *, is_tls: bool) -> dict[str, float]:
    counts: list[int] = []
    before_s, began_s = broker.cpu_s(), time.monotonic()
    end_s = began_s + seconds
    threads = [
        threading.Thread(target=send_until, args=(broker, end_s, counts), kwargs={"is_tls": is_tls})
        for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == CONNECTIONS, "a connection of the load failed"
    took_s = time.monotonic() - began_s
    return {"rate": sum(counts) / took_s, "cpu_us": 1e6 * (broker.cpu_s() - before_s) / sum(counts)}


@contextmanager
def java_up(directory: Path, flags: tuple[str, ...]) -> Iterator[Measured]:
    with (
        java_name_server(directory, JAVA_RELEASE) as namesrv,
        java_broker(directory, JAVA_RELEASE, namesrv.endpoint, {}, jvm=(*JAVA_HEAP, *flags)) as broker,
    ):
        broker.await_route(namesrv)
        yield Measured("java", broker.program, broker.address, namesrv.endpoint)


def main(argv: Sequence[str] | None = None) -> None:
    options = read_load_options(QUESTION, argv)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = make_certificate(directory)
        given = {"tls.test.mode.enable": "false", "tls.server.certPath": made.certificate}
        given |= {"tls.server.keyPath": made.key}
        brokers = [stack.enter_context(bolide_up(directory, given))]
        if not options.without_java:
            flags = tuple(f"-D{key}={value}" for key, value in given.items())
            brokers.append(stack.enter_context(java_up(directory, flags)))
        figures: dict[str, list[dict[str, float]]] = {}
        for broker in brokers:
            broker.make_topic(TOPIC)
            load(broker, 1.0, is_tls=True)  # what is met for the first time costs more
        for _ in range(options.rounds):
            for broker in brokers:
                for is_tls in (False, True):
                    name = f"{broker.kind} {'TLS' if is_tls else 'plain'}"
                    figures.setdefault(name, []).append(load(broker, options.seconds, is_tls=is_tls))
    found = {
        name: {key: round(statistics.median(each[key] for each in rows), 2) for key in ("rate", "cpu_us")}
        for name, rows in figures.items()
    }
    for name, row in found.items():
        print(f"{name:14} {row['rate']:>9,.0f} sends/s {row['cpu_us']:>7} us of broker CPU each")
    print(json.dumps({"question": QUESTION, **found, **machine()}))


if __name__ == "__main__":
    main()
