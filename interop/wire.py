"""Raw frames to a name server, for what no Java program can be made to ask.

Blocking, one connection a call, and written on the plain kernel alone: the scenarios judge the rest of the protocol, so
they do not lean on it.
"""

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

from bolide import kernel
from bolide.kernel import layout

FRAME_SIZE_MAX = 64 * 1024 * 1024
TIMEOUT_S = 10.0
JAVA = layout.LANGUAGES.index("JAVA")
GET_ROUTE, GET_CLUSTER, GET_ALL_TOPICS, GET_KV_LIST = 105, 106, 206, 219
TOPIC_NOT_EXIST = 17

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """A decoded answer."""

    code: int
    opaque: int
    fields: dict[str, str]
    remark: str | None
    body: bytes


def request_frame(
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    version: int = 409,
    opaque: int = 7,
    codec: int = layout.JSON_CODEC,
) -> bytes:
    return kernel.write_frames([(codec, code, JAVA, version, opaque, 0, None, fields or {}, body)])


def exchange(address: Address, frame: bytes) -> bytes:
    """Send one frame on a connection of its own and return the answer's frame, as it came."""
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(frame)
        return read_frame(connection)


def read_frame(connection: socket.socket) -> bytes:
    head = _read_exactly(connection, 4)
    size = int.from_bytes(head, "big")
    assert size <= FRAME_SIZE_MAX, f"a frame of {size} bytes"
    return head + _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError(f"the connection ended after {len(content)} of {size} bytes")
        content += part
    return bytes(content)


def decode(frame: bytes) -> Answer:
    bounds, _, problem = kernel.cut_frames(frame, len(frame), FRAME_SIZE_MAX)
    assert problem is None, problem
    (header,) = kernel.read_headers(frame, bounds)
    assert header is not None, f"an answer with an irregular header: {frame[:200]!r}"
    _, code, _, _, opaque, _, remark, fields, body_position = header
    return Answer(code, opaque, fields, remark, frame[body_position:])


def call(address: Address, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    return decode(exchange(address, request_frame(code, fields, body)))


def route(address: Address, topic: str) -> dict[str, Any] | None:
    """The route of a topic as its name server tells it now; None when it knows none."""
    answer = call(address, GET_ROUTE, {"topic": topic})
    if answer.code == TOPIC_NOT_EXIST:
        return None
    assert answer.code == 0, answer
    return parse(answer.body)


def broker_addresses(address: Address, topic: str) -> dict[str, dict[str, str]]:
    """Broker name → broker id → address in a topic's route; empty when there is no route."""
    found = route(address, topic) or {"brokerDatas": []}
    return {broker["brokerName"]: broker["brokerAddrs"] for broker in found["brokerDatas"]}


def queue_counts(address: Address, topic: str) -> dict[str, tuple[int, int, int]]:
    """Broker name → read queues, write queues and permission in a topic's route."""
    found = route(address, topic) or {"queueDatas": []}
    return {q["brokerName"]: (q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in found["queueDatas"]}


def cluster(address: Address) -> dict[str, Any]:
    answer = call(address, GET_CLUSTER)
    assert answer.code == 0, answer
    return parse(answer.body)


def topics(address: Address) -> set[str]:
    answer = call(address, GET_ALL_TOPICS)
    assert answer.code == 0, answer
    return set(parse(answer.body)["topicList"])


def parse(body: bytes) -> dict[str, Any]:
    """Read a body; bare integer keys, which fastjson writes, are put in quotes. The test names hold no such text."""
    document: dict[str, Any] = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))
    return document
