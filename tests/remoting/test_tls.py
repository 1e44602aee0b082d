"""TLS in RocketMQ's three modes on one port, certificates that change, and clients that check them."""

import asyncio
import builtins
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bolide.clock import Clock, SystemClock
from bolide.errors import ConfigError, ConnectError, ConnectionLost
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.tls import Certificates, self_signed_pem
from tests.remoting.authority import Authority
from tests.remoting.ends import ECHO, Peer, Table, request_of, served
from tests.remoting.loops import both_loops, eventually


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def anything() -> ssl.SSLContext:
    """A client that takes any certificate, as Java's in test mode."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def is_answered(port: int, context: ssl.SSLContext | None) -> bool:
    try:
        peer = await Peer.connect(port, context=context)
    except OSError:
        return False
    try:
        peer.send(request_of(1))
        await peer.writer.drain()
        return bool(await peer.reader.read(1))
    except OSError:
        return False
    finally:
        peer.writer.transport.abort()


@pytest.mark.feature("X21")
@pytest.mark.parametrize(
    ("mode", "takes_plain", "takes_tls"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
@both_loops
async def test_the_mode_decides_who_is_served_on_the_one_port(
    mode: str, takes_plain: bool, takes_tls: bool, authority: Authority
) -> None:
    cert, key = authority.issue("server")
    async with served(Table(), tls_mode=mode, tls_cert_path=cert, tls_key_path=key) as server:
        assert await is_answered(server.port, None) == takes_plain
        assert await is_answered(server.port, anything()) == takes_tls


@pytest.mark.parametrize(("mode", "said"), [("disabled", "a TLS handshake"), ("enforcing", "plain bytes")])
@both_loops
async def test_who_is_turned_away_by_the_mode_is_told_of_in_one_line(
    mode: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Table(), tls_mode=mode) as server:
        assert not await is_answered(server.port, anything() if mode == "disabled" else None)
        await eventually(lambda: server.connection_count == 0)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said in line
    assert mode in line


@pytest.mark.feature("X21")
@both_loops
async def test_without_files_the_certificate_is_self_signed() -> None:
    owner = Table()
    async with served(owner) as server:
        peer = await Peer.connect(server.port, context=anything())
        answer = await peer.ask(request_of(1, b"x" * 100_000))
        assert answer.body == b"x" * 100_000
        assert server.sessions[0].is_tls
        peer.leave()


class Workshop:
    """Makes the self-signed certificate, but not before the door is opened."""

    def __init__(self) -> None:
        self.door = threading.Event()
        self.begun_count = 0
        self.was_opened: list[bool] = []

    def __call__(self, clock: Clock) -> bytes:
        self.begun_count += 1
        self.was_opened.append(self.door.wait(30))
        return self_signed_pem(clock)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    workshop = Workshop()
    monkeypatch.setattr("bolide.remoting.tls.self_signed_pem", workshop)
    return workshop


@both_loops
async def test_others_are_served_while_the_one_self_signed_certificate_is_made(workshop: Workshop) -> None:
    async with served(Table()) as server:
        strangers = [asyncio.ensure_future(is_answered(server.port, anything())) for _ in range(3)]
        await eventually(lambda: workshop.begun_count == 1)
        assert await is_answered(server.port, None)
        await eventually(lambda: server.connection_count == 3)
        workshop.door.set()
        assert await asyncio.gather(*strangers) == [True] * 3
        assert await is_answered(server.port, anything())
    assert (workshop.begun_count, workshop.was_opened) == (1, [True])


@both_loops
async def test_a_server_that_stops_while_its_certificate_is_made_stops(workshop: Workshop) -> None:
    async with served(Table()) as server:
        stranger = asyncio.ensure_future(is_answered(server.port, anything()))
        await eventually(lambda: workshop.begun_count == 1)
    assert workshop.was_opened == []
    workshop.door.set()
    assert not await stranger


@both_loops
async def test_a_certificate_is_made_for_all_who_wait_though_the_first_may_leave(workshop: Workshop) -> None:
    certificates = Certificates(ListenConfig(), SystemClock())
    first, second = (asyncio.ensure_future(certificates.context()) for _ in range(2))
    await eventually(lambda: workshop.begun_count == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    workshop.door.set()
    assert await second is not None
    assert await second is await certificates.context()
    assert workshop.begun_count == 1


@both_loops
async def test_bytes_flow_over_tls_in_both_directions_with_back_pressure() -> None:
    owner = Table(lambda request: request.command.answer(0, body=bytes(50_000)))
    async with served(owner, unsent_size_high=100_000) as server:
        peer = await Peer.connect(server.port, context=anything())
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(*(request_of(n) for n in range(2_000)))
        await eventually(lambda: bool(server.sessions) and server.sessions[0].in_flight_count > 0)
        assert server.sessions[0].unsent_size < 1_000_000
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [answer.opaque for answer in await peer.answers(2_000)] == list(range(2_000))
        peer.leave()


@both_loops
async def test_a_handshake_that_fails_ends_in_one_line(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    owner = Table()
    cert, key = authority.issue("server")
    async with served(owner, tls_cert_path=cert, tls_key_path=key) as server:
        peer = await Peer.connect(server.port)
        peer.send(b"\x16\x03\x01\x00\x05hello and more that is no handshake")
        await peer.end()
        peer.leave()
        await eventually(lambda: server.connection_count == 0)
    assert owner.gone == []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@both_loops
async def test_a_handshake_that_stops_half_way_is_left_after_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Table(), tls_handshake_limit_s=1) as server:
        peer = await Peer.connect(server.port)
        peer.send(b"\x16\x03\x01\x02\x00")
        await peer.end()
        peer.leave()
        await eventually(lambda: server.connection_count == 0)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def name_of(port: int, authority: Authority) -> str:
    """Whose certificate the port shows."""
    context = ssl.create_default_context(cafile=str(authority.path))
    context.check_hostname = False
    peer = await Peer.connect(port, context=context)
    subject = peer.writer.get_extra_info("peercert")["subject"]
    peer.leave()
    return str(dict(part[0] for part in subject)["commonName"])


@pytest.mark.feature("X21")
@both_loops
async def test_a_changed_certificate_is_used_without_a_restart(authority: Authority) -> None:
    cert, key = authority.issue("first", file="server")
    async with served(Table(), tls_cert_path=cert, tls_key_path=key) as server:
        assert await name_of(server.port, authority) == "first"
        authority.issue("second", file="server")
        assert await name_of(server.port, authority) == "second"


@both_loops
async def test_files_that_cannot_be_read_again_leave_the_old_certificate_at_work(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue("first", file="server")
    async with served(Table(), tls_cert_path=cert, tls_key_path=key) as server:
        spoil(cert)
        assert await name_of(server.port, authority) == "first"
        assert await name_of(server.port, authority) == "first"
        assert caplog.text.count("not read again") == 1
        authority.issue("second", file="server")
        assert await name_of(server.port, authority) == "second"


def spoil(path: str) -> None:
    Path(path).write_text("half a certifi", "ascii")


@both_loops
async def test_a_key_with_a_password_is_opened(authority: Authority) -> None:
    cert, key = authority.issue("server", password="open sesame")
    settings = {"tls_cert_path": cert, "tls_key_path": key}
    async with served(Table(), tls_key_password="open sesame", **settings) as server:
        assert await is_answered(server.port, anything())
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        Certificates(ListenConfig(tls_key_password="wrong", tls_cert_path=cert, tls_key_path=key), SystemClock())


@both_loops
async def test_client_certificates_are_asked_for_and_checked(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    ours, stranger = authority.issue("ours"), Authority(tmp_path, "stranger").issue("theirs")
    for auth, expected in (("none", [1, 1, 1]), ("optional", [1, 1, 0]), ("require", [0, 1, 0])):
        settings = {"tls_cert_path": cert, "tls_key_path": key, "tls_trust_path": str(authority.path)}
        async with served(Table(), tls_client_auth=auth, **settings) as server:
            found = [await is_answered(server.port, shows(pair)) for pair in (None, ours, stranger)]
        assert found == [bool(each) for each in expected], auth


def shows(pair: tuple[str, str] | None) -> ssl.SSLContext:
    context = anything()
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def test_asking_for_client_certificates_needs_something_to_check_them_with() -> None:
    with pytest.raises(ConfigError, match="trustCertPath"):
        Certificates(ListenConfig(tls_client_auth="require"), SystemClock())


def test_files_that_are_not_there_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certPath"):
        Certificates(ListenConfig(tls_cert_path=str(tmp_path / "none.crt")), SystemClock())


@pytest.fixture
def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: Callable[..., Any] = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


@both_loops
async def test_without_a_certificate_one_line_says_what_to_install_or_set(
    without_cryptography: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Table()) as server:
        for _ in range(2):
            assert not await is_answered(server.port, anything())
        assert await is_answered(server.port, None)
    assert caplog.text.count("bolide[tls]") == 1


@pytest.mark.parametrize("test_mode", [True, False])
def test_an_enforcing_port_without_a_certificate_does_not_start(without_cryptography: None, test_mode: bool) -> None:
    with pytest.raises(ConfigError, match="no certificate"):
        Certificates(ListenConfig(tls_mode="enforcing", tls_test_mode=test_mode), SystemClock())


@both_loops
async def test_outside_test_mode_nothing_is_self_signed(caplog: pytest.LogCaptureFixture) -> None:
    assert await Certificates(ListenConfig(tls_test_mode=False), SystemClock()).context() is None
    assert "tls.test.mode.enable is false" in caplog.text


@pytest.mark.feature("X21")
@both_loops
async def test_our_client_speaks_tls_and_checks_the_server_when_told_to(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    other = Authority(tmp_path, "other")
    async with served(Table(), tls_mode="enforcing", tls_cert_path=cert, tls_key_path=key) as server:
        for settings, is_welcome in (
            ({}, True),
            ({"tls_verify": True, "tls_trust_path": str(authority.path)}, True),
            ({"tls_verify": True, "tls_trust_path": str(other.path)}, False),
        ):
            config = ConnectConfig(is_tls=True, connect_timeout_ms=60_000, **settings)  # type: ignore[arg-type]
            async with Client(config, SystemClock()) as client:
                asking = client.request(f"127.0.0.1:{server.port}", Command(ECHO, body=b"x"), timeout_s=60)
                if is_welcome:
                    assert (await asking).body == b"x"
                else:
                    with pytest.raises(ConnectError):
                        await asking


@both_loops
async def test_the_connecting_side_reads_files_again_that_changed(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    other = Authority(tmp_path, "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.path.read_bytes())
    config = ConnectConfig(
        is_tls=True,
        tls_verify=True,
        tls_trust_path=str(trusted),
        connect_timeout_ms=60_000,
        backoff_first_ms=1,
        backoff_max_ms=1,
    )
    async with (
        served(Table(), tls_mode="enforcing", tls_cert_path=cert, tls_key_path=key) as server,
        Client(config, SystemClock()) as client,
    ):
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(ConnectError):
            await client.request(address, Command(ECHO), 60)
        spoil(str(trusted))
        with pytest.raises(ConnectError):
            await client.request(address, Command(ECHO), 60)
        trusted.write_bytes(authority.path.read_bytes())
        client.hasten(address)
        assert (await client.request(address, Command(ECHO), 60)).code == 0


@both_loops
async def test_a_plain_client_of_an_enforcing_port_is_told_so(authority: Authority) -> None:
    cert, key = authority.issue("server")
    async with (
        served(Table(), tls_mode="enforcing", tls_cert_path=cert, tls_key_path=key) as server,
        Client(ConnectConfig(), SystemClock()) as client,
    ):
        with pytest.raises(ConnectionLost):
            await client.request(f"127.0.0.1:{server.port}", Command(ECHO), timeout_s=60)


def test_a_clients_own_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = ConnectConfig(is_tls=True, tls_cert_path=str(tmp_path / "none.crt"))
    with pytest.raises(ConfigError, match=r"tls\.client\.certPath"):
        Client(config, SystemClock())
