"""Single looks of a doctor at an address: which protocol is spoken there, who copies from it, and whom it lets in."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bolide.admin.admin import Admin
from bolide.admin.doctor.facts import SlaveFacts
from bolide.admin.walking import TOOLS_GROUP
from bolide.client.config import Credentials
from bolide.clock import Clock
from bolide.errors import ClientError, Refusal
from bolide.model.queue import MessageQueue
from bolide.model.topics import BENCHMARK_TOPIC
from bolide.protocol.bodies.brokers import ReplicationState
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.address import split_address

PROBE_S = 1.0
SEND_S = 3.0
TRIAL_GROUP = "bolide-doctor"
A_BROKER = "remoting, and is a broker"
# Of RocketMQ's own examples: tools.yml and plain_acl.yml of 4.x, and the pages on 5.x's access control.
DEFAULT_USERS = ("rocketmq2", "rocketmq")
_DEFAULT_PASSWORD = "12345678"
_HTTP2_SETTINGS = 4  # the kind of frame that a server of HTTP/2 begins with
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0])
_STATUS = Command(RequestCode.GET_BROKER_RUNTIME_INFO)


async def spoken_at(address: str) -> str:
    """What answers at an address where no name server does: HTTP/2 is what gRPC clients speak. Empty if unknown."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_HTTP2_PREFACE)
                head = await reader.readexactly(9)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError):
        return ""
    if head[3] == _HTTP2_SETTINGS and not any(head[5:]):
        return "HTTP/2 (gRPC)"
    return "HTTP" if head.startswith(b"HTTP/") else ""


async def is_broker(admin: Admin, address: str) -> bool:
    """Whether a broker answers where a name server was looked for."""
    with suppress(ClientError, Refusal, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            await admin.ask(address, _STATUS)
            return True
    return False


async def slaves_of(admin: Admin, address: str) -> tuple[SlaveFacts, ...] | None:
    """Who copies from a master; None where it does not say."""
    with suppress(ClientError, Refusal, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            answer = await admin.ask(address, Command(RequestCode.GET_BROKER_HA_STATUS))
            told = ReplicationState.decode(answer.body).ha_connection_info
            return tuple(SlaveFacts(address=each.addr, behind=max(0, each.diff)) for each in told)
    return None


async def delayed_due_ms(admin: Admin, now_ms: int) -> dict[str, int]:
    """When the first message is due that waits in a delay level, by the name of its broker."""
    async with admin.puller(TOOLS_GROUP) as consumer:
        rows = await admin.delay_levels(consumer, now_ms)
    found: dict[str, int] = {}
    for row in rows:
        if row.due_ms is not None:
            found[row.broker] = min(row.due_ms, found.get(row.broker, row.due_ms))
    return found


async def trial_send(admin: Admin, broker: str, clock: Clock) -> tuple[int, str]:
    """How many milliseconds a message to a broker took, and what went wrong; the one thing that a doctor leaves."""
    began_s, problem = clock.monotonic_s(), ""
    try:
        async with asyncio.timeout(SEND_S), admin.producer(TRIAL_GROUP) as producer:
            began_s = clock.monotonic_s()
            queue = MessageQueue(BENCHMARK_TOPIC, broker, 0)
            await producer.send(BENCHMARK_TOPIC, b"sent by bolide doctor --send", queue=queue, timeout_s=SEND_S)
    except (ClientError, Refusal, TimeoutError) as failure:
        problem = str(failure) or f"no answer within {SEND_S:g} s"
    return round((clock.monotonic_s() - began_s) * 1000), problem


async def default_user(opened: Callable[[Credentials], Admin], address: str) -> str:
    """The user of RocketMQ's examples whom a broker lets in with the password of the examples; empty if none."""
    for name in DEFAULT_USERS:
        credentials = Credentials(access_key=name, secret_key=_DEFAULT_PASSWORD)
        with suppress(ClientError, Refusal, TimeoutError):
            async with asyncio.timeout(PROBE_S), opened(credentials) as admin:
                await admin.ask(address, _STATUS)
                return name
    return ""
