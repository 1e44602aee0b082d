"""Record what Java name servers answer and what Java brokers send, for the tests that run without Java.

    python -m interop.record            # writes tests/wire/recordings/

`conversation` is a list of requests that are sent one after another on one connection, so that their order is part of
the recording: a registration, then what it changed. A recording is a file of JSON lines, one an exchange, with the two
raw frames as text (a character a byte). The live test (`tests/wire/test_recordings.py`) holds the same conversation
with our name server and compares.
"""

import json
import socket
import sys
import tempfile
import zlib
from pathlib import Path

from bolide.kernel import layout
from interop import wire
from interop.cluster import DEFAULT_TOPIC, java_broker, java_name_server
from interop.process import await_that
from interop.release import SERVER_RELEASES
from interop.tap import Heard, tapped
from interop.wire import request_frame

RECORDINGS = Path(__file__).parents[1] / "tests" / "wire" / "recordings"
REGISTRATION_TIMEOUT_S = 30.0
# 4.x answers nothing at all to a code that it does not know.
UNANSWERED = {"4.9.7": ("unknown-code",), "5.5.0": ()}
PUT_KV, GET_KV, DELETE_KV, REGISTER, UNREGISTER = 100, 101, 102, 103, 104
WIPE_WRITE, DELETE_TOPIC, TOPICS_OF_CLUSTER, SYSTEM_TOPICS, QUERY_VERSION, ADD_WRITE = 205, 216, 224, 304, 322, 327
MEMBER_GROUP, HEARTBEAT, UNKNOWN_CODE = 901, 904, 4711

# Name, request and answer.
Exchange = tuple[str, bytes, bytes]

# Slash and umlaut tell the two JSON forms of a route apart: one escapes them, the other does not.
CLUSTER = "Süd/1"
MASTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": CLUSTER,
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
}
SLAVE = {**MASTER, "brokerAddr": "127.0.0.2:10911", "haServerAddr": "127.0.0.2:10912", "brokerId": "1"}
VERSION_ONE = '{"counter":1,"timestamp":1700000000000}'
VERSION_TWO = '{"counter":2,"timestamp":1700000000001}'


def topic(name: str, *, read: int = 4, write: int = 4, perm: int = 6, sys_flag: int = 0) -> str:
    return (
        f'"{name}":{{"order":false,"perm":{perm},"readQueueNums":{read},"topicFilterType":"SINGLE_TAG",'
        f'"topicName":"{name}","topicSysFlag":{sys_flag},"writeQueueNums":{write}}}'
    )


def registration_body(version: str, *topics: str) -> bytes:
    table = f'{{"dataVersion":{version},"topicConfigTable":{{{",".join(topics)}}}}}'
    return f'{{"filterServerList":[],"topicConfigSerializeWrapper":{table}}}'.encode()


def compressed_body(version: str, *topics: str) -> bytes:
    """The other form of the body: counted pieces under zlib, each topic a line of words."""

    def piece(text: str) -> bytes:
        return len(text).to_bytes(4, "big") + text.encode()

    parts = [piece(version), len(topics).to_bytes(4, "big"), *map(piece, topics), piece("[]")]
    return zlib.compress(b"".join(parts), 9)


def with_crc(fields: dict[str, str], body: bytes) -> dict[str, str]:
    return {**fields, "bodyCrc32": str(zlib.crc32(body) & 0x7FFF_FFFF)}


def conversation() -> list[tuple[str, bytes]]:
    """Name and frame of each request. Opaques are the positions, so that a mixed-up answer shows."""
    both = registration_body(VERSION_ONE, topic("Orders"), topic("Unit", read=8, write=2, perm=4, sys_flag=1))
    changed = registration_body(VERSION_TWO, topic("Orders", write=8), topic("Later"))
    packed = compressed_body(VERSION_TWO, "Packed 3 3 6 SINGLE_TAG")
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"}
    steps = [
        ("route-before-any-broker", wire.GET_ROUTE, {"topic": "Orders"}, b"", {}),
        ("cluster-empty", wire.GET_CLUSTER, {}, b"", {}),
        ("register-wrong-crc", REGISTER, {**MASTER, "bodyCrc32": "1"}, both, {}),
        ("register-master", REGISTER, with_crc(MASTER, both), both, {}),
        ("register-slave", REGISTER, SLAVE, registration_body(VERSION_ONE, topic("OfSlave"), topic("Orders")), {}),
        ("route-bare-keys", wire.GET_ROUTE, {"topic": "Orders"}, b"", {"version": 317}),
        ("route-standard-json", wire.GET_ROUTE, {"topic": "Orders"}, b"", {"version": 409}),
        (
            "route-standard-json-asked",
            wire.GET_ROUTE,
            {"topic": "Orders", "acceptStandardJsonOnly": "true"},
            b"",
            {"version": 317},
        ),
        ("route-binary-header", wire.GET_ROUTE, {"topic": "Orders"}, b"", {"codec": layout.BINARY_CODEC}),
        ("route-unit-topic", wire.GET_ROUTE, {"topic": "Unit"}, b"", {}),
        ("route-unknown-topic", wire.GET_ROUTE, {"topic": "Nowhere"}, b"", {}),
        ("route-topic-of-slave-only", wire.GET_ROUTE, {"topic": "OfSlave"}, b"", {}),
        ("cluster", wire.GET_CLUSTER, {}, b"", {}),
        ("all-topics", wire.GET_ALL_TOPICS, {}, b"", {}),
        ("topics-of-cluster", TOPICS_OF_CLUSTER, {"cluster": CLUSTER}, b"", {}),
        ("topics-of-unknown-cluster", TOPICS_OF_CLUSTER, {"cluster": "Nowhere"}, b"", {}),
        ("system-topics", SYSTEM_TOPICS, {}, b"", {}),
        ("unit-topics", 311, {}, b"", {}),
        ("version-equal", QUERY_VERSION, _identity(MASTER), VERSION_ONE.encode(), {}),
        ("version-changed", QUERY_VERSION, _identity(MASTER), VERSION_TWO.encode(), {}),
        ("kv-absent", GET_KV, order, b"", {}),
        ("kv-namespace-absent", wire.GET_KV_LIST, {"namespace": "Nowhere"}, b"", {}),
        ("kv-put", PUT_KV, {**order, "value": "broker-a:4"}, b"", {}),
        ("kv-get", GET_KV, order, b"", {}),
        ("kv-list", wire.GET_KV_LIST, {"namespace": "ORDER_TOPIC_CONFIG"}, b"", {}),
        ("register-changed", REGISTER, MASTER, changed, {}),
        ("route-changed", wire.GET_ROUTE, {"topic": "Orders"}, b"", {}),
        ("kv-delete", DELETE_KV, order, b"", {}),
        ("register-compressed", REGISTER, {**MASTER, "compressed": "true"}, packed, {}),
        ("wipe-write", WIPE_WRITE, {"brokerName": "broker-a"}, b"", {}),
        ("route-wiped", wire.GET_ROUTE, {"topic": "Orders"}, b"", {}),
        ("add-write", ADD_WRITE, {"brokerName": "broker-a"}, b"", {}),
        ("route-writable", wire.GET_ROUTE, {"topic": "Orders"}, b"", {}),
        ("delete-topic", DELETE_TOPIC, {"topic": "Later"}, b"", {}),
        ("route-deleted", wire.GET_ROUTE, {"topic": "Later"}, b"", {}),
        ("unknown-code", UNKNOWN_CODE, {}, b"", {}),
    ]
    return [
        (name, request_frame(code, fields, body, opaque=position, **options))
        for position, (name, code, fields, body, options) in enumerate(steps)
    ]


def _identity(broker: dict[str, str]) -> dict[str, str]:
    return {name: broker[name] for name in ("brokerName", "brokerAddr", "clusterName", "brokerId")}


def record_name_server(release: str, scratch: Path) -> list[Exchange]:
    with java_name_server(scratch, release) as server, socket.create_connection(server.address, 10) as connection:
        exchanges = []
        for name, frame in conversation():
            if name not in UNANSWERED[release]:
                connection.sendall(frame)
                exchanges.append((name, frame, wire.read_frame(connection)))
        return exchanges


def record_broker(release: str, scratch: Path, *, compressed: bool) -> list[Exchange]:
    """What a broker says at its start and stop, and what its own kind of name server then tells about it."""
    with java_name_server(scratch, release) as server, tapped(server.address) as tap:
        settings = {"compressedRegister": compressed, "registerNameServerPeriod": 60_000}
        with java_broker(scratch, release, tap.endpoint, settings) as broker:
            registration = await_that("a registration", lambda: tap.requests(REGISTER), REGISTRATION_TIMEOUT_S)[0]
            answer = await_that("its answer", lambda: _answer(tap.frames(), registration), REGISTRATION_TIMEOUT_S)
            exchanges = [("register", registration.raw, answer)]
            if (
                wire.decode(answer).code != 0
            ):  # 5.5.0 calls its compressed body plain, and its own kind does not read it
                return exchanges
            exchanges += [(name, frame, wire.exchange(server.address, frame)) for name, frame in questions()]
            broker.program.stop()
            farewell = tap.requests(UNREGISTER)[0]
            return [*exchanges, ("unregister", farewell.raw, _answer(tap.frames(), farewell))]


def questions() -> list[tuple[str, bytes]]:
    """What is asked about a registered Java broker."""
    return [
        ("route-bare-keys", request_frame(wire.GET_ROUTE, {"topic": DEFAULT_TOPIC}, version=317)),
        ("route-standard-json", request_frame(wire.GET_ROUTE, {"topic": DEFAULT_TOPIC}, version=409)),
        ("cluster", request_frame(wire.GET_CLUSTER)),
        ("all-topics", request_frame(wire.GET_ALL_TOPICS)),
    ]


def _answer(frames: list[Heard], request: Heard) -> bytes:
    """The frame that answers a request; empty while there is none."""
    following = frames[frames.index(request) :]
    found = (heard.raw for heard in following if not heard.is_request and heard.connection == request.connection)
    return next(found, b"")


def keep(name: str, exchanges: list[Exchange]) -> None:
    lines = [
        json.dumps({"name": name, "request": request.decode("latin-1"), "answer": answer.decode("latin-1")})
        for name, request, answer in exchanges
    ]
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "ascii")
    print(f"recorded {name}: {len(lines)} exchanges", file=sys.stderr)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        for release in SERVER_RELEASES:
            keep(f"namesrv-{release}", record_name_server(release, scratch))
            keep(f"broker-{release}", record_broker(release, scratch, compressed=False))
            keep(f"broker-{release}-compressed", record_broker(release, scratch, compressed=True))


if __name__ == "__main__":
    main()
