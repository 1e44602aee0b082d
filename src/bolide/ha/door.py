"""How a connection of replication begins, on both sides: TLS or plain, then the proof that both know the key.

With access control off and without TLS nothing is said here, and the stream is RocketMQ's from its first byte. With it
on a slave has to prove itself (`handshake.py`), unless its address is listed: brokers of Apache know neither TLS nor a
proof at this port. A listed master is followed in the same way.

A stranger costs a task and a few hundred bytes until the time for it is over.
"""

import asyncio
import ipaddress
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bolide.clock import Clock
from bolide.errors import ProtocolError
from bolide.ha import handshake
from bolide.ha.config import networks
from bolide.ha.handshake import HaKey
from bolide.ha.wire import Parts, TlsWire, Wire
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.tls import Certificates, ConnectingTls

LIMIT_S = 10.0
_TLS_HANDSHAKE = 0x16


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a broker asks of others at this port, and shows them."""

    listen: ListenConfig = field(default_factory=lambda: ListenConfig(tls_mode="disabled"))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    is_guarded: bool = False  # access control is on
    key: HaKey | None = None


class Door:
    """Lets slaves in, and goes to masters."""

    def __init__(self, security: Security, allowed: str, clock: Clock) -> None:
        self._security = security
        self._allowed = networks(allowed)
        self._certificates = Certificates(security.listen, clock)
        self._tls = ConnectingTls(security.connect)

    def is_listed(self, host: str) -> bool:
        """Whether a peer needs neither TLS nor a proof."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._allowed)

    # A slave comes

    async def admit(self, end: socket.socket, host: str, silence_max_s: float) -> Wire:
        """What to speak with the slave over; ProtocolError says why there is nothing to speak of."""
        wire = Wire(end)
        try:
            async with _limited(silence_max_s, "the peer has said nothing"):
                first = await _first_byte(end)
            async with _limited(LIMIT_S, "the peer did not come to the end of its handshake"):
                if first == _TLS_HANDSHAKE:
                    wire = await self._encrypted(end)
                if self._needs_proof(first, host):
                    await self._challenge(wire)
        except BaseException:
            wire.close()
            raise
        return wire

    def _needs_proof(self, first: int, host: str) -> bool:
        """Whether a peer that begins with this byte has to prove itself; some may not come at all."""
        if first == _TLS_HANDSHAKE:
            return self._security.is_guarded
        is_proof_offered = first == handshake.MAGIC[0]
        if self.is_listed(host):
            return is_proof_offered
        if self._security.listen.tls_mode == "enforcing":
            raise ProtocolError(
                "it speaks plainly, and tls.server.mode is enforcing; useTLS=true lets a slave of ours speak TLS, "
                "bolideHaAllowedAddresses lets others in"
            )
        return is_proof_offered or self._security.is_guarded

    async def _encrypted(self, end: socket.socket) -> Wire:
        context = None
        if self._security.listen.tls_mode != "disabled":
            context = await self._certificates.context()
        if context is None:
            raise ProtocolError("it begins TLS, and there is none here: tls.server.mode is disabled, or no certificate")
        return await _tls(end, context, None)

    async def _challenge(self, wire: Wire) -> None:
        """Have the slave prove that it knows the key, and prove it to the slave."""
        head = await _exactly(wire, len(handshake.MAGIC))
        if head != handshake.MAGIC:
            raise ProtocolError(
                "it did not prove who it is: access control is on, and a slave needs the same "
                "innerClientAuthenticationCredentials; bolideHaAllowedAddresses lets in one of Apache's"
            )
        rest = await _exactly(wire, handshake.HELLO_SIZE - len(head))
        slave_nonce, size = rest[: handshake.NONCE_SIZE], rest[-1]
        name = (await _exactly(wire, size)).decode("utf-8", "replace")
        key = self._security.key
        if key is None:
            raise await _told(wire, "the master has no innerClientAuthenticationCredentials to know a slave by")
        if name != key.name:
            raise await _told(wire, f"the master's innerClientAuthenticationCredentials are not those of {name!r}")
        master_nonce = secrets.token_bytes(handshake.NONCE_SIZE)
        await _put(wire, handshake.YES + master_nonce)
        claimed = await _exactly(wire, handshake.PROOF_SIZE)
        if not handshake.is_proof(claimed, key, "slave", slave_nonce, master_nonce, wire.binding):
            raise await _told(wire, "the slave's innerClientAuthenticationCredentials have another secret")
        own = handshake.proof(key, "master", slave_nonce, master_nonce, wire.binding)
        await _put(wire, handshake.YES + own)

    # We come to a master

    async def enter(self, end: socket.socket, host: str) -> Wire:
        """What to speak with the master over."""
        wire = Wire(end)
        try:
            if self.is_listed(str(end.getpeername()[0])):
                return wire
            async with _limited(LIMIT_S, "the master did not come to the end of its handshake"):
                if (context := self._tls.context()) is not None:
                    wire = await _tls(end, context, host)
                if self._security.key is not None:
                    await self._prove(wire, self._security.key)
        except BaseException:
            wire.close()
            raise
        return wire

    async def _prove(self, wire: Wire, key: HaKey) -> None:
        slave_nonce = secrets.token_bytes(handshake.NONCE_SIZE)
        await _put(wire, handshake.hello(slave_nonce, key.name))
        await _accepted(wire)
        master_nonce = await _exactly(wire, handshake.NONCE_SIZE)
        await _put(wire, handshake.proof(key, "slave", slave_nonce, master_nonce, wire.binding))
        await _accepted(wire)
        claimed = await _exactly(wire, handshake.PROOF_SIZE)
        if not handshake.is_proof(claimed, key, "master", slave_nonce, master_nonce, wire.binding):
            raise ProtocolError("the master did not prove that it knows the key: it is not one of this cluster")


async def _told(wire: Wire, why: str) -> ProtocolError:
    await _put(wire, handshake.refusal(why))
    return ProtocolError(why)


async def _accepted(wire: Wire) -> None:
    """Hear yes; a no comes with its reason."""
    try:
        verdict = await _exactly(wire, 1)
    except (ProtocolError, OSError):
        raise ProtocolError(
            "it hung up on our proof: a master that takes TLS alone needs useTLS=true here, one without access control "
            "or of Apache's has to be in bolideHaAllowedAddresses"
        ) from None
    if verdict != handshake.YES:
        size = (await _exactly(wire, 1))[0]
        said = (await _exactly(wire, size)).decode("utf-8", "replace")
        raise ProtocolError(f"the master refused us: {said if said.isprintable() else repr(said)}")


@asynccontextmanager
async def _limited(limit_s: float, sentence: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise ProtocolError(f"{sentence} for {limit_s:g} s") from None


# A socket that does not block, for a coroutine


async def _first_byte(end: socket.socket) -> int:
    while True:
        try:
            seen = end.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _ready(end)
            continue
        if not seen:
            raise ProtocolError("the peer has ended the connection")
        return seen[0]


async def _exactly(wire: Wire, size: int) -> bytes:
    """So many bytes and no more: what follows is the stream's."""
    found = b""
    while len(found) < size:
        try:
            more = wire.receive(size - len(found))
        except (BlockingIOError, InterruptedError):
            await _ready(wire.end)
            continue
        if not more:
            raise ProtocolError("the peer has ended the connection in its handshake")
        found += more
    return found


async def _put(wire: Wire, said: bytes) -> None:
    rest: Parts = [said]
    while rest := wire.put(rest):
        await _ready(wire.end, is_to_write=True)


async def _tls(end: socket.socket, context: ssl.SSLContext, host: str | None) -> TlsWire:
    """Encrypt from here on; with a host we are the one who connected."""
    encrypted = context.wrap_socket(end, server_side=host is None, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                encrypted.do_handshake()
                return TlsWire(encrypted)
            except ssl.SSLWantReadError:
                await _ready(encrypted)
            except ssl.SSLWantWriteError:
                await _ready(encrypted, is_to_write=True)
            except ssl.SSLError as problem:
                raise ProtocolError(f"TLS failed: {problem.reason or problem}") from problem
    except BaseException:
        encrypted.close()
        raise


async def _ready(end: socket.socket, *, is_to_write: bool = False) -> None:
    """Wait until it can be read from, or written to."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if is_to_write else (loop.add_reader, loop.remove_reader)
    number = end.fileno()
    add(number, _wake, ready)
    try:
        await ready
    finally:
        remove(number)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
