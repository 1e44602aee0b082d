"""Who is let in at the port of replication: keys, TLS, listed addresses, and strangers who bring none of them."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.errors import ConfigError
from bolide.ha.config import HaConfig
from bolide.ha.door import LIMIT_S, Door, Security
from bolide.ha.frames import plain_report
from bolide.ha.handshake import HELLO_SIZE, NO, YES, HaKey, hello, proof
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.tls import self_signed_pem
from tests.ha.brokers import Broker, Peer, broker, connected, fake_master
from tests.remoting.loops import both_loops, eventually, virtual_time, within

KEY = HaKey(name="inner", secret="a secret of brokers")
GUARDED = Security(is_guarded=True, key=KEY)
NONCE = bytes(range(32))


def certificate(path: Path) -> Path:
    path.write_bytes(self_signed_pem(SystemClock()))
    return path


def over_tls(server: Path, trusted: Path | None = None, **more: object) -> Security:
    """A broker that shows a certificate, takes TLS alone and speaks it."""
    listen = ListenConfig(tls_mode="enforcing", tls_cert_path=str(server))
    connect = ConnectConfig(is_tls=True, tls_verify=trusted is not None, tls_trust_path=str(trusted or ""))
    return Security(listen=listen, connect=connect, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def pair(
    root: Path, security: Security, of_slave: Security | None = None, epochs: list[tuple[int, int]] | None = None
) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master with messages, and a slave that follows it."""
    clock = SystemClock()
    soon = {"reconnect_pause_ms": 20}
    async with (
        broker(root / "master", clock=clock, security=security, epochs=epochs, ha=soon) as master,
        broker(
            root / "slave",
            clock=clock,
            security=of_slave or security,
            epochs=None if epochs is None else [],
            is_slave=True,
            ha=soon,
        ) as slave,
    ):
        master.put(50, 700)
        slave.replication.follow(master.address)
        yield master, slave


@pytest.mark.parametrize("epochs", [None, [(1, 0)]], ids=["plain stream", "AutoSwitch"])
@both_loops
async def test_brokers_with_one_key_copy_as_ever(tmp_path: Path, epochs: list[tuple[int, int]] | None) -> None:
    async with pair(tmp_path, GUARDED, epochs=epochs) as (master, slave):
        await eventually(lambda: slave.store.log_end == master.store.log_end)
        master.put(5)
        await eventually(lambda: slave.store.log_end == master.store.log_end)
        assert slave.log(slave.store.log_start) == master.log(slave.store.log_start)


@pytest.mark.feature("X21")
@pytest.mark.parametrize("is_guarded", [False, True], ids=["TLS alone", "TLS and a key"])
@both_loops
async def test_the_log_is_copied_over_tls(tmp_path: Path, is_guarded: bool) -> None:
    shown = certificate(tmp_path / "server.pem")
    security = over_tls(shown, shown, is_guarded=is_guarded, key=KEY if is_guarded else None)
    async with pair(tmp_path, security) as (master, slave):
        master.put(40, 3_000)
        await eventually(lambda: slave.store.log_end == master.store.log_end)
        master.put(5)
        await eventually(lambda: slave.store.log_end == master.store.log_end)
        assert slave.log(slave.store.log_start) == master.log(slave.store.log_start)
        await eventually(lambda: master.replication.acks.ends == [master.store.log_end])


@pytest.mark.feature("X21")
@both_loops
async def test_a_slave_checks_the_certificate_of_its_master(tmp_path: Path) -> None:
    shown, other = certificate(tmp_path / "server.pem"), certificate(tmp_path / "other.pem")
    async with pair(tmp_path, over_tls(shown, shown), over_tls(shown, other)) as (_, slave):
        await eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in slave.replication.following.problem)
        assert slave.store.log_end == 0


@both_loops
async def test_a_slave_that_speaks_plainly_where_tls_is_asked_for_is_told_of_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = over_tls(certificate(tmp_path / "server.pem"))
    async with pair(tmp_path, security, Security()) as (_, slave):
        await eventually(lambda: "tls.server.mode is enforcing; useTLS=true" in caplog.text)
        assert slave.store.log_end == 0


@pytest.mark.feature("X10")
@both_loops
async def test_a_stranger_with_eight_bytes_of_offset_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path, security=GUARDED) as master, connected(master.address) as peer:
        master.put(10)
        peer.say(plain_report(0))
        assert await within(30, peer.reader.read()) == b""
        assert "slave turned away address=127.0.0.1 why=it did not prove who it is" in caplog.text
        assert "bolideHaAllowedAddresses" in caplog.text
        assert master.replication.slaves == []


@pytest.mark.parametrize("listed", ["127.0.0.1", "10.0.0.1, 127.0.0.0/8"])
@both_loops
async def test_a_listed_address_gets_the_stream_of_rocketmq(tmp_path: Path, listed: str) -> None:
    shown = certificate(tmp_path / "server.pem")
    security = over_tls(shown, is_guarded=True, key=KEY)
    async with (
        broker(tmp_path / "master", security=security, ha={"allowed_addresses": listed}) as master,
        connected(master.address) as peer,
    ):
        master.put(10)
        peer.say(plain_report(0))
        async for frame in peer.frames():
            assert isinstance(frame, tuple)
            assert frame[1] == master.log()
            break


@both_loops
async def test_a_listed_master_is_followed_without_a_proof(tmp_path: Path) -> None:
    shown = certificate(tmp_path / "server.pem")
    security = over_tls(shown, is_guarded=True, key=KEY)
    listed = {"allowed_addresses": "127.0.0.1"}
    async with (
        fake_master() as master,
        broker(tmp_path / "slave", is_slave=True, security=security, ha=listed) as slave,
    ):
        slave.replication.follow(master.address)
        peer = await master.slave()
        assert await peer.hear(8) == plain_report(0)


def test_a_peer_without_an_address_is_not_listed() -> None:
    door = Door(Security(), "0.0.0.0/0,::/0", SystemClock())
    assert [door.is_listed(host) for host in ("10.0.0.1", "fd00::1%eth0", "", "somewhere")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_list_of_addresses_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="bolideHaAllowedAddresses"):
        HaConfig(allowed_addresses="10.0.0.1, somewhere")


@pytest.mark.feature("X10")
@pytest.mark.parametrize(
    ("key", "why"),
    [
        (HaKey(name="inner", secret="another"), "the slave's innerClientAuthenticationCredentials have another secret"),
        (HaKey(name="other", secret=KEY.secret), "innerClientAuthenticationCredentials are not those of 'other'"),
    ],
)
@both_loops
async def test_a_wrong_key_is_told_of_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: HaKey, why: str
) -> None:
    async with pair(tmp_path, GUARDED, Security(is_guarded=True, key=key)) as (_, slave):
        await eventually(lambda: why in slave.replication.following.problem)
        await eventually(lambda: f"slave turned away address=127.0.0.1 why={why}" in caplog.text or why in caplog.text)
        assert slave.replication.following.problem.startswith("the master refused us")
        assert slave.store.log_end == 0
        assert KEY.secret not in caplog.text


@both_loops
async def test_a_master_without_a_key_says_so(tmp_path: Path) -> None:
    async with pair(tmp_path, Security(is_guarded=True), GUARDED) as (_, slave):
        await eventually(lambda: "has no innerClientAuthenticationCredentials" in slave.replication.following.problem)


@both_loops
async def test_a_master_that_cannot_prove_itself_is_told_no_offset(tmp_path: Path) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, security=GUARDED) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        said = await peer.hear(HELLO_SIZE + len(KEY.name))
        assert said.endswith(KEY.name.encode())
        peer.say(YES + NONCE)
        await peer.hear(32)
        peer.say(YES + bytes(32))
        assert await within(30, peer.reader.read()) == b""
        await eventually(lambda: "did not prove that it knows the key" in slave.replication.following.problem)


@both_loops
async def test_a_master_that_hangs_up_on_a_proof_may_be_apaches(tmp_path: Path) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, security=GUARDED) as slave:
        slave.replication.follow(master.address)
        (await master.slave()).close()
        await eventually(lambda: "bolideHaAllowedAddresses" in slave.replication.following.problem)


@pytest.mark.feature("X10")
@both_loops
async def test_what_was_heard_of_one_handshake_opens_no_other(tmp_path: Path) -> None:
    async with broker(tmp_path, security=GUARDED) as master:
        master.put(10)
        async with connected(master.address) as first:
            first.say(hello(NONCE, KEY.name))
            nonce = (await first.hear(33))[1:]
            heard = proof(KEY, "slave", NONCE, nonce, b"")
            first.say(heard)
            assert (await first.hear(33)) == YES + proof(KEY, "master", NONCE, nonce, b"")
        async with connected(master.address) as second:
            second.say(hello(NONCE, KEY.name))
            assert (await second.hear(33))[1:] != nonce
            second.say(heard)
            assert (await second.hear(1)) == NO
            assert await second.is_ended()


@asynccontextmanager
async def man_in_the_middle(address: str, shown: Path) -> AsyncIterator[str]:
    """Ends TLS with one certificate and begins it again towards the other side; passes on what is said."""
    inner, outer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    inner.load_cert_chain(shown)
    outer.check_hostname, outer.verify_mode = False, ssl.CERT_NONE

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        ends = await asyncio.open_connection(host, int(port), ssl=outer)
        await asyncio.gather(pass_on(reader, ends[1]), pass_on(ends[0], writer), return_exceptions=True)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=inner)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()


@pytest.mark.feature("X10")
@both_loops
async def test_a_stranger_in_the_middle_of_tls_that_is_not_checked_cannot_pass_proofs_on(tmp_path: Path) -> None:
    shown, his = certificate(tmp_path / "server.pem"), certificate(tmp_path / "his.pem")
    security = over_tls(shown, is_guarded=True, key=KEY)
    async with pair(tmp_path, security) as (master, slave), man_in_the_middle(master.address, his) as middle:
        await eventually(lambda: slave.store.log_end == master.store.log_end)
        slave.replication.follow(middle)
        await eventually(lambda: "have another secret" in slave.replication.following.problem)


@pytest.mark.parametrize("seed", range(2))
@both_loops
async def test_garbage_is_turned_away(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    noise = random.Random(seed)
    shown = certificate(tmp_path / "server.pem")
    listen = ListenConfig(tls_cert_path=str(shown))
    async with broker(tmp_path / "a", security=Security(listen=listen, is_guarded=True, key=KEY)) as master:
        for first in (b"\x16\x03\x01", hello(NONCE, KEY.name)[:40], hello(NONCE, "\x00" * 255), b""):
            async with connected(master.address) as peer:
                peer.say(first + noise.randbytes(4_000))
                peer.writer.write_eof()
                assert await peer.is_ended()
        assert master.replication.slaves == []


@virtual_time
async def test_silence_and_half_a_handshake_have_an_end(tmp_path: Path) -> None:
    ha = {"silence_max_ms": 20_000, "links_max": 2}
    async with (
        broker(tmp_path, security=GUARDED, ha=ha) as master,
        connected(master.address) as silent,
        connected(master.address) as slow,
    ):
        slow.say(hello(NONCE, KEY.name)[:20])
        async with connected(master.address) as third:  # both at the door count
            assert await third.is_ended()
        await within(LIMIT_S + 1, slow.is_ended())
        await within(21, silent.is_ended())


@virtual_time
async def test_a_master_that_never_answers_is_left(tmp_path: Path) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, security=GUARDED) as slave:
        slave.replication.follow(master.address)
        peer: Peer = await master.slave()
        await peer.hear(HELLO_SIZE)
        await within(LIMIT_S + 2, peer.is_ended())
        await eventually(lambda: "did not come to the end of its handshake" in slave.replication.following.problem)


@both_loops
async def test_a_change_of_roles_ends_those_at_the_door(tmp_path: Path) -> None:
    async with broker(tmp_path, security=GUARDED) as master, connected(master.address) as peer:
        peer.say(hello(NONCE, KEY.name))
        await peer.hear(33)
        await master.replication.pause()
        assert await peer.is_ended()
