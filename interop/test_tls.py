"""Java brokers and clients over TLS, on the port that also takes plain connections."""

import socket
import ssl
from pathlib import Path

import pytest

from interop import wire
from interop.certificates import make_certificate
from interop.clients import java_consumer, send_messages
from interop.cluster import DEFAULT_TOPIC, LARGE, NameServer, java_broker
from interop.conftest import StartNameServer
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

COUNT = 5
TIMEOUT_S = 30.0


def is_refused_plainly(server: NameServer) -> bool:
    """Whether a plain request is answered by nothing but the end of the connection."""
    with socket.create_connection(server.address, 5) as connection:
        connection.sendall(wire.request_frame(wire.GET_CLUSTER))
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True


def is_routed_over_tls(server: NameServer, topic: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(server.address, 5) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(wire.request_frame(wire.GET_ROUTE, {"topic": topic}))
        return wire.decode(wire.read_frame(connection)).code == 0


def tls_flags(directory: Path) -> tuple[str, ...]:
    made = make_certificate(directory)
    return (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={made.certificate}",
        f"-Dtls.server.keyPath={made.key}",
    )


def tls_settings(directory: Path, mode: str) -> dict[str, object]:
    made = make_certificate(directory)
    return {
        "tls.server.mode": mode,
        "tls.test.mode.enable": False,
        "tls.server.certPath": made.certificate,
        "tls.server.keyPath": made.key,
    }


@pytest.fixture(autouse=True)
def only_ours(kind: str) -> None:
    if kind != "bolide":
        pytest.skip("a Java name server takes these settings from its command line")


@pytest.mark.short
@pytest.mark.parametrize(("broker_release", "client_release"), list(zip(SERVER_RELEASES, CLIENT_RELEASES, strict=True)))
def test_a_broker_and_its_clients_use_tls_where_plain_requests_are_refused(
    broker_release: str, client_release: str, start_name_server: StartNameServer, tmp_path: Path
) -> None:
    server = start_name_server(tls_settings(tmp_path, "enforcing"))
    assert is_refused_plainly(server)
    with java_broker(tmp_path, broker_release, server.endpoint, jvm=(*LARGE, *tls_flags(tmp_path))) as broker:
        broker.register_now()
        line = {"namesrv": server.endpoint, "topic": "Secret", "tls": True}
        await_that("the broker is known", lambda: is_routed_over_tls(server, DEFAULT_TOPIC), TIMEOUT_S)
        send_messages(tmp_path, client_release, **line, count=COUNT)
        await_that("the topic is known", lambda: is_routed_over_tls(server, "Secret"), TIMEOUT_S)
        with java_consumer(tmp_path, client_release, **line) as consumer:
            consumer.await_events("received", COUNT, TIMEOUT_S)


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_tls_and_plain_meet_on_a_permissive_port(
    release: str, start_name_server: StartNameServer, tmp_path: Path
) -> None:
    server = start_name_server(tls_settings(tmp_path, "permissive"))
    broker_release = SERVER_RELEASES[CLIENT_RELEASES.index(release)]
    with java_broker(tmp_path, broker_release, server.endpoint, jvm=(*LARGE, *tls_flags(tmp_path))) as broker:
        broker.await_route(server)
        line = {"namesrv": server.endpoint, "topic": "Mixed"}
        assert len(send_messages(tmp_path, release, **line, tls=True, count=COUNT)) == COUNT
        assert len(send_messages(tmp_path, release, **line, tls=False, count=COUNT)) == COUNT
