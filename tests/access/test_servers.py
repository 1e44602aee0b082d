"""Servers that check access know each other by their inner credentials, and show one certificate at all ports."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from bolide.broker.broker import serve
from bolide.broker.config import read_config
from bolide.clock import SystemClock
from bolide.controller.config import read_config as controller_config
from bolide.controller.server import serve as serve_controller
from bolide.namesrv.config import read_config as namesrv_config
from bolide.namesrv.server import serve as serve_namesrv
from bolide.protocol.bodies import Clusters
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.proxy.config import read_config as proxy_config
from bolide.proxy.server import serve_beside
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.ports import free_port
from tests.access.walking import request_of, signed
from tests.broker.replication.replicas import group
from tests.broker.whole import SMALL
from tests.remoting.authority import Authority
from tests.remoting.loops import eventually, one_loop

HERE = {"listenPort": "0", "bindAddress": "127.0.0.1"}
INNER = {"innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}'}
ON = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
ROOT = {"initAuthenticationUser": '{"username":"root","password":"root-secret"}'}
TIMEOUT_S = 20


@pytest.mark.feature("X10")
@one_loop
async def test_a_broker_registers_with_a_name_server_that_checks_if_it_knows_the_inner_credentials(
    tmp_path: Path,
) -> None:
    clock = SystemClock()
    namesrv = namesrv_config({"kvConfigPath": str(tmp_path / "ns" / "kv.json"), **HERE, **ON, **INNER})
    async with serve_namesrv(namesrv, clock) as (_, at), Client(ConnectConfig(), clock) as client:
        address = f"127.0.0.1:{at.port}"
        for name, given in (("known", INNER), ("stranger", {})):
            own = SMALL | HERE | {"storePathRootDir": str(tmp_path / name), "brokerName": name, "namesrvAddr": address}
            async with serve(read_config(own | given), clock):
                asked = signed(Command(RequestCode.GET_BROKER_CLUSTER_INFO), "inner", "inner-secret")
                answer = await client.request(address, asked, TIMEOUT_S)
                assert set(Clusters.decode(answer.body).broker_addr_table) == ({name} if given else set())
        assert (await client.request(address, Command(106), TIMEOUT_S)).code == 16


@pytest.mark.feature("X10")
@one_loop
async def test_a_slave_follows_a_master_that_checks_with_the_inner_credentials(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers, Client(ConnectConfig(), SystemClock()) as client:
        master = await brokers.master(**ON, **INNER, **ROOT)
        slave = await brokers.start("slave", brokerRole="SLAVE", brokerId="1", **ON, **INNER, **ROOT)
        made = request_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        made.fields["topic"] = "Made"
        assert (await client.request(master.address, signed(made, "root", "root-secret"), TIMEOUT_S)).code == 0
        await eventually(lambda: slave.broker.state.topics.find("Made") is not None, 30)
        send = request_of(RequestCode.SEND_MESSAGE_V2)
        send.fields["b"], send.body = "Made", b"kept"
        assert (await client.request(master.address, signed(send, "root", "root-secret"), TIMEOUT_S)).code == 0
        await eventually(lambda: slave.store.log_end == master.store.log_end, 30)


async def shown_at(port: int, alpn: str = "") -> str:
    """The name in the certificate that a port shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([alpn])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        (name,) = x509.load_der_x509_certificate(shown).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(name.value)
    finally:
        writer.transport.abort()


@pytest.mark.feature("X21")
@one_loop
async def test_tls_properties_and_a_renewed_certificate_are_in_force_on_every_port(tmp_path: Path) -> None:
    clock, authority = SystemClock(), Authority(tmp_path)
    cert, key = authority.issue("first", file="server")
    tls = tmp_path / "tls.properties"
    tls.write_text(f"tls.server.mode=enforcing\ntls.server.certPath={cert}\ntls.server.keyPath={key}\n")
    given = {**HERE, "tls.config.file": str(tls)}
    port, ha_port = free_port(-2), free_port()
    own = {"storePathRootDir": str(tmp_path / "store"), "brokerName": "b", "haListenPort": str(ha_port)}
    async with (
        serve_namesrv(namesrv_config({"kvConfigPath": str(tmp_path / "kv.json"), **given}), clock) as (_, namesrv),
        serve_controller(controller_config({"controllerStorePath": str(tmp_path / "c"), **given}), clock) as (
            _,
            control,
        ),
        serve(read_config(SMALL | given | own | {"listenPort": str(port)}), clock) as (broker, _),
        serve_beside(broker, proxy_config(given)[0], clock) as (_, grpc),
    ):
        ports = {"broker": port, "VIP": port - 2, "HA": ha_port, "namesrv": namesrv.port, "controller": control.port}

        async def names() -> dict[str, str]:
            found = {name: await shown_at(each) for name, each in ports.items()}
            return found | {"gRPC": await shown_at(grpc.port, "h2")}

        assert set((await names()).values()) == {"first"}
        authority.issue("second", file="server")
        assert set((await names()).values()) == {"second"}
        assert len(await names()) == 6
